//! `quintet manifests`.

use std::fs;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use quintet_api::config::{Component, Configuration, Process, Webhook};
use quintet_api::crd::{self, WebhookService};
use quintet_api::names::{MAX_LABEL, is_dns_label, short_hash};
use serde_json::{Value, json};

use crate::operator::{Duties, addresses, ray_settings};
use crate::output::{self, Format};

/// Print everything needed to install Quintet on a cluster.
///
/// Pipe it into `kubectl apply --server-side -f -`: some definitions are too large for a client-side apply. Give the
/// configuration and the feature gates that the operator is to run with: it gets them, and the rights they need.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The namespace to install into.
    #[arg(short, long, default_value = HOME)]
    namespace: String,
    /// The image to run.
    #[arg(long, default_value = concat!("quintet:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// How many replicas to run; one leads, the others stand by and answer webhooks. Two, or one if they elect no
    /// leader.
    #[arg(long)]
    replicas: Option<u32>,
    /// The cluster is OpenShift: Ray dashboards get Routes.
    #[arg(long)]
    openshift: bool,
    #[command(flatten)]
    duties: Duties,
    /// Leave out the CustomResourceDefinitions.
    #[arg(long)]
    no_crds: bool,
    /// Print YAML or JSON.
    #[arg(short, long, default_value = "yaml")]
    output: Format,
}

/// The name of everything that is ours.
const NAME: &str = "quintet";
/// Where it is installed unless the user says otherwise.
const HOME: &str = "quintet-system";
/// Changes with the configuration file, so that pods are replaced by some that have read it.
const CONFIGURATION_HASH: &str = "quintet.dev/configuration-hash";
/// The least Kubernetes wants to know of a pod's user.
const NOBODY: i64 = 65532;

/// Where the operator finds its configuration file.
const CONFIGURATION: &str = "/etc/quintet/config.yaml";

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { namespace, image, replicas, openshift, duties, no_crds, output } = arguments;
    ensure!(
        is_dns_label(&namespace),
        "\"{namespace}\" is no name of a namespace; use lower-case letters, digits and hyphens, at most {MAX_LABEL}"
    );
    let file = duties.config.as_deref().map(fs::read_to_string).transpose();
    let file = file.context("cannot read the configuration file")?;
    let flags = duties.flags()?;
    let configuration = duties.into_configuration()?;
    let process = &configuration.process;
    if let Some(other) = process.namespace.as_deref().filter(|other| *other != namespace) {
        bail!(
            "the configuration says namespace: {other}, and this would install into {namespace}; give --namespace {other}, or leave it out of the file"
        );
    }
    let replicas = replicas_of(process, replicas)?;
    let endpoints = Endpoints::of(process)?;
    let service = WebhookService { namespace: namespace.clone(), name: process.webhook.service_name.clone() };
    let crds = crd::all(&service);

    let mut objects =
        vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } })];
    if !no_crds {
        let crds = crds.iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>();
        objects.extend(crds.context("cannot write the definitions")?);
    }
    objects.extend(permissions(&namespace, &configuration, openshift)?);
    objects.extend(services(&namespace, &process.webhook, &endpoints));
    let mut deployment = deployment(&namespace, &image, replicas, process, &endpoints);
    let template = &mut deployment["spec"]["template"];
    let mut command = vec!["operator".to_owned()];
    if let Some(text) = file {
        template["metadata"]["annotations"] = json!({ CONFIGURATION_HASH: short_hash(&text, 40) });
        let data = json!({ "config.yaml": text });
        objects.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(&namespace, NAME), "data": data,
        }));
        let pod = &mut template["spec"];
        pod["volumes"] = json!([{ "name": "configuration", "configMap": { "name": NAME } }]);
        let mount = json!({ "name": "configuration", "mountPath": "/etc/quintet", "readOnly": true });
        pod["containers"][0]["volumeMounts"] = json!([mount]);
        command.push(format!("--config={CONFIGURATION}"));
    }
    command.extend(flags);
    template["spec"]["containers"][0]["args"] = json!(command);
    objects.push(deployment);
    output::print_objects(&objects, output)
}

/// Without an election all replicas would write.
fn replicas_of(process: &Process, asked: Option<u32>) -> anyhow::Result<u32> {
    if process.leader_election.leader_elect {
        return Ok(asked.unwrap_or(2));
    }
    ensure!(
        asked.is_none_or(|replicas| replicas <= 1),
        "without leader election there can be only one replica; leave out --replicas, or set leaderElection.leaderElect"
    );
    Ok(asked.unwrap_or(1))
}

/// The ports of what can be turned off.
struct Endpoints {
    metrics: Option<u16>,
    health: Option<u16>,
}

impl Endpoints {
    fn of(process: &Process) -> anyhow::Result<Self> {
        let port = |address: &str, what: &str| -> anyhow::Result<Option<u16>> {
            let port = addresses::optional(address, what)?.map(|address| address.port());
            ensure!(
                port != Some(0),
                "{what} \"{address}\" is another port at every start; name one, or 0 alone for none"
            );
            Ok(port)
        };
        Ok(Self {
            metrics: port(&process.metrics_bind_address, "metricsBindAddress")?,
            health: port(&process.health_bind_address, "healthBindAddress")?,
        })
    }
}

/// A name for what several installations have in one place.
fn shared_name(namespace: &str, name: &str) -> String {
    if namespace == HOME { name.to_owned() } else { format!("{name}-{namespace}") }
}

fn labels() -> Value {
    json!({ "app.kubernetes.io/name": NAME })
}

fn metadata(namespace: &str, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "labels": labels() })
}

/// A rule of a role.
fn rule(group: &str, resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    let mut rule = json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}

/// What the components need where they look after something.
fn component_rules(configuration: &Configuration, openshift: bool) -> anyhow::Result<Vec<Value>> {
    let mut rules = vec![rule("events.k8s.io", &["events"], &[], &["create", "patch"])];
    if configuration.components().contains(&Component::Ray) {
        let mut settings = ray_settings(configuration)?;
        settings.platform.routes = openshift;
        rules.extend(quintet_ray::permissions::rules(&settings).iter().map(|rule| json!(rule)));
    }
    Ok(rules)
}

/// The least that the operator needs: for the cluster, in its own namespace, in that of its Lease, and in those it looks
/// after, which are all unless some are named.
fn permissions(
    namespace: &str,
    configuration: &Configuration,
    openshift: bool,
) -> anyhow::Result<Vec<Value>> {
    let Process { leader_election, webhook, watch_namespaces, .. } = &configuration.process;
    let role = |kind: &str, metadata: Value, rules: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules,
        })
    };
    let binding = |kind: &str, metadata: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": metadata["name"] },
            "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": namespace }],
        })
    };
    let both = |kind: &str, metadata: Value, rules: Value| {
        [role(kind, metadata.clone(), rules), binding(kind, metadata)]
    };
    let converted = crd::converted();
    let converted: Vec<&str> = converted.iter().map(String::as_str).collect();
    let mut for_all =
        vec![rule("apiextensions.k8s.io", &["customresourcedefinitions"], &converted, &["get", "patch"])];
    let where_it_looks = component_rules(configuration, openshift)?;
    if watch_namespaces.is_empty() {
        for_all.extend(where_it_looks.clone());
    }
    let lease = &leader_election.resource_name;
    let for_lease = [
        rule("coordination.k8s.io", &["leases"], &[], &["create"]),
        rule("coordination.k8s.io", &["leases"], &[lease], &["get", "update"]),
    ];
    let lease_namespace = leader_election.resource_namespace.as_deref().unwrap_or(namespace);
    let mut at_home = vec![
        rule("", &["secrets"], &[], &["create"]),
        rule("", &["secrets"], &[&webhook.secret_name], &["get", "update"]),
    ];
    let mut objects =
        vec![json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(namespace, NAME) })];
    let everywhere = json!({ "name": shared_name(namespace, NAME), "labels": labels() });
    objects.extend(both("ClusterRole", everywhere, json!(for_all)));
    if leader_election.leader_elect {
        if lease_namespace == namespace {
            at_home.extend(for_lease);
        } else {
            let name = shared_name(namespace, "quintet-leader");
            objects.extend(both("Role", metadata(lease_namespace, &name), json!(for_lease)));
        }
    }
    objects.extend(both("Role", metadata(namespace, NAME), json!(at_home)));
    for watched in watch_namespaces {
        let name = shared_name(namespace, "quintet-operator");
        objects.extend(both("Role", metadata(watched, &name), json!(where_it_looks)));
    }
    Ok(objects)
}

fn services(namespace: &str, webhook: &Webhook, endpoints: &Endpoints) -> Vec<Value> {
    let service = |name: &str, port: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata(namespace, name),
            "spec": { "selector": labels(), "ports": [port] },
        })
    };
    let webhooks =
        service(&webhook.service_name, json!({ "name": "https", "port": 443, "targetPort": "webhook" }));
    let metrics = endpoints.metrics.map(|port| {
        service("quintet-metrics", json!({ "name": "http", "port": port, "targetPort": "metrics" }))
    });
    [webhooks].into_iter().chain(metrics).collect()
}

fn deployment(
    namespace: &str,
    image: &str,
    replicas: u32,
    process: &Process,
    endpoints: &Endpoints,
) -> Value {
    let ports = [
        ("webhook", Some(process.webhook.port)),
        ("metrics", endpoints.metrics),
        ("health", endpoints.health),
    ];
    let ports =
        ports.into_iter().filter_map(|(name, port)| Some(json!({ "name": name, "containerPort": port? })));
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(namespace, NAME),
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels() },
            "template": {
                "metadata": { "labels": labels() },
                "spec": {
                    "serviceAccountName": NAME,
                    "securityContext": {
                        "runAsNonRoot": true, "runAsUser": NOBODY, "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    "containers": [{
                        "name": NAME, "image": image,
                        "ports": ports.collect::<Vec<Value>>(),
                        "resources": { "requests": { "cpu": "50m", "memory": "64Mi" }, "limits": { "memory": "1Gi" } },
                        "securityContext": {
                            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                            "capabilities": { "drop": ["ALL"] },
                        },
                    }],
                },
            },
        },
    });
    if endpoints.health.is_some() {
        let probe = |path: &str| json!({ "httpGet": { "path": path, "port": "health" } });
        let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        container["livenessProbe"] = probe("/healthz");
        container["readinessProbe"] = probe("/readyz");
    }
    if !process.leader_election.leader_elect {
        // The old pod must have gone before the new one writes.
        deployment["spec"]["strategy"] = json!({ "type": "Recreate" });
    }
    deployment
}
