//! `quintet manifests`.

use anyhow::{Context as _, ensure};
use clap::Args;
use quintet_api::config::{Process, Webhook};
use quintet_api::crd::{self, WebhookService};
use quintet_api::names::{MAX_LABEL, is_dns_label};
use serde_json::{Value, json};

use crate::output::{self, Format};

/// Print everything needed to install Quintet on a cluster.
///
/// Pipe it into `kubectl apply --server-side -f -`: some definitions are too large for a client-side apply.
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

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { namespace, image, replicas, no_crds, output } = arguments;
    ensure!(
        is_dns_label(&namespace),
        "\"{namespace}\" is no name of a namespace; use lower-case letters, digits and hyphens, at most {MAX_LABEL}"
    );
    let process = Process::default();
    let service = WebhookService { namespace: namespace.clone(), name: process.webhook.service_name.clone() };
    let crds = crd::all(&service);
    let converted = crd::converted();
    let converted: Vec<&str> = converted.iter().map(String::as_str).collect();

    let mut objects =
        vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } })];
    if !no_crds {
        let crds = crds.iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>();
        objects.extend(crds.context("cannot write the definitions")?);
    }
    objects.extend(permissions(&namespace, &converted, &process));
    objects.extend(services(&namespace, &process));
    objects.push(deployment(&namespace, &image, replicas, &process));
    output::print_objects(&objects, output)
}

fn labels() -> Value {
    json!({ "app.kubernetes.io/name": NAME })
}

fn metadata(namespace: &str, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "labels": labels() })
}

/// The least that the machinery needs; each component adds what it looks after.
fn permissions(namespace: &str, converted: &[&str], process: &Process) -> Vec<Value> {
    let Process { leader_election, webhook, .. } = process;
    let lease = &leader_election.resource_name;
    let subject = json!([{ "kind": "ServiceAccount", "name": NAME, "namespace": namespace }]);
    let reference =
        |kind: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME });
    let rule = |group: &str, resources: &[&str], names: &[&str], verbs: &[&str]| {
        let mut rule = json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        rule
    };
    let mut rules = vec![
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], converted, &["get", "patch"]),
        rule("events.k8s.io", &["events"], &[], &["create", "patch"]),
    ];
    let ray = quintet_ray::permissions::rules(&quintet_ray::settings::Settings::default());
    rules.extend(ray.iter().map(|rule| json!(rule)));
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(namespace, NAME) }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": NAME, "labels": labels() },
            "rules": rules,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": NAME, "labels": labels() },
            "roleRef": reference("ClusterRole"), "subjects": subject,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata(namespace, NAME),
            "rules": [
                rule("coordination.k8s.io", &["leases"], &[], &["create"]),
                rule("coordination.k8s.io", &["leases"], &[lease], &["get", "update"]),
                rule("", &["secrets"], &[], &["create"]),
                rule("", &["secrets"], &[&webhook.secret_name], &["get", "update"]),
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata(namespace, NAME),
            "roleRef": reference("Role"), "subjects": subject,
        }),
    ]
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
                        "name": NAME, "image": image, "args": ["operator"],
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
