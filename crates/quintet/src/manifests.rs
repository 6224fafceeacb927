//! `quintet manifests`.

use std::fs;

use anyhow::{Context as _, ensure};
use clap::Args;
use quintet_api::config::{Component, Configuration, Process, Webhook};
use quintet_api::crd::{self, WebhookService};
use quintet_api::names::{MAX_LABEL, is_dns_label};
use serde_json::{Value, json};

use crate::operator::{Duties, ray_settings};
use crate::output::{self, Format};

/// Print everything needed to install Quintet on a cluster.
///
/// Pipe it into `kubectl apply --server-side -f -`: some definitions are too large for a client-side apply. Give the
/// configuration and the feature gates that the operator is to run with: it gets them, and the rights they need.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The namespace to install into.
    #[arg(short, long, default_value = "quintet-system")]
    namespace: String,
    /// The image to run.
    #[arg(long, default_value = concat!("quintet:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// How many replicas to run; one leads, the others stand by and answer webhooks.
    #[arg(long, default_value_t = 2)]
    replicas: u32,
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
    let service = WebhookService { namespace: namespace.clone(), name: process.webhook.service_name.clone() };
    let crds = crd::all(&service);

    let mut objects =
        vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } })];
    if !no_crds {
        let crds = crds.iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>();
        objects.extend(crds.context("cannot write the definitions")?);
    }
    objects.extend(permissions(&namespace, &configuration, openshift)?);
    objects.extend(services(&namespace, process));
    let mut deployment = deployment(&namespace, &image, replicas, process);
    let pod = &mut deployment["spec"]["template"]["spec"];
    let mut command = vec!["operator".to_owned()];
    if let Some(text) = file {
        let data = json!({ "config.yaml": text });
        objects.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(&namespace, NAME), "data": data,
        }));
        pod["volumes"] = json!([{ "name": "configuration", "configMap": { "name": NAME } }]);
        let mount = json!({ "name": "configuration", "mountPath": "/etc/quintet", "readOnly": true });
        pod["containers"][0]["volumeMounts"] = json!([mount]);
        command.push(format!("--config={CONFIGURATION}"));
    }
    command.extend(flags);
    pod["containers"][0]["args"] = json!(command);
    objects.push(deployment);
    output::print_objects(&objects, output)
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

/// The least that the operator needs: for the cluster, in its own namespace, and in those it looks after, which are all
/// unless some are named.
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
    let at_home = json!([
        rule("coordination.k8s.io", &["leases"], &[], &["create"]),
        rule("coordination.k8s.io", &["leases"], &[lease], &["get", "update"]),
        rule("", &["secrets"], &[], &["create"]),
        rule("", &["secrets"], &[&webhook.secret_name], &["get", "update"]),
    ]);
    let mut objects =
        vec![json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(namespace, NAME) })];
    objects.extend(both("ClusterRole", json!({ "name": NAME, "labels": labels() }), json!(for_all)));
    objects.extend(both("Role", metadata(namespace, NAME), at_home));
    for watched in watch_namespaces {
        objects.extend(both("Role", metadata(watched, "quintet-operator"), json!(where_it_looks)));
    }
    Ok(objects)
}

fn services(namespace: &str, process: &Process) -> Vec<Value> {
    let Webhook { service_name, .. } = &process.webhook;
    let service = |name: &str, port: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata(namespace, name),
            "spec": { "selector": labels(), "ports": [port] },
        })
    };
    vec![
        service(service_name, json!({ "name": "https", "port": 443, "targetPort": "webhook" })),
        service(
            "quintet-metrics",
            json!({ "name": "http", "port": port(&process.metrics_bind_address), "targetPort": "metrics" }),
        ),
    ]
}

/// The port of an address such as `:8080`.
fn port(address: &str) -> Option<u16> {
    address.rsplit(':').next()?.parse().ok()
}

fn deployment(namespace: &str, image: &str, replicas: u32, process: &Process) -> Value {
    let probe = |path: &str| json!({ "httpGet": { "path": path, "port": "health" } });
    json!({
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
                        "ports": [
                            { "name": "webhook", "containerPort": process.webhook.port },
                            { "name": "metrics", "containerPort": port(&process.metrics_bind_address) },
                            { "name": "health", "containerPort": port(&process.health_bind_address) },
                        ],
                        "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
                        "resources": { "requests": { "cpu": "50m", "memory": "64Mi" }, "limits": { "memory": "1Gi" } },
                        "securityContext": {
                            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                            "capabilities": { "drop": ["ALL"] },
                        },
                    }],
                },
            },
        },
    })
}
