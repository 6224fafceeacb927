//! `quintet manifests`: everything an installation consists of, from the descriptors of its components.

mod deployment;
mod rbac;
mod webhooks;

pub(crate) use deployment::CONTAINER_PORTS;

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use quintet_api::config::Process;
use quintet_api::crd::{self, WebhookService};
use quintet_api::names::{MAX_LABEL, is_dns_label, short_hash};
use quintet_component::{Component, Platform, Service, WebhookScope};
use serde_json::{Value, json};

use crate::catalog::{Catalog, Configured};
use crate::names::{DEFAULT_NAMESPACE, NAME};
use crate::operator::{ConfigurationArguments, addresses};
use crate::output::{self, Format};

pub(crate) use webhooks::configurations as webhook_configurations;

/// Print everything needed to install Quintet on a cluster.
///
/// Pipe it into `kubectl apply --server-side --field-manager quintet -f -`: some definitions are too large for a
/// client-side apply, and the field manager is that of `quintet crds --apply` and of the operator. Give the
/// configuration and the feature gates that the operator is to run with: it gets them, and the rights they need.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The namespace to install into.
    #[arg(short, long, default_value = DEFAULT_NAMESPACE)]
    namespace: String,
    /// The image to run. None is published: build it with the Dockerfile of the source tree, and push it to a
    /// registry that the cluster pulls from.
    #[arg(long, default_value = concat!("quintet:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// How many replicas to run: one leads, the others stand by and serve webhooks. Defaults to two, or to one without
    /// leader election.
    #[arg(long)]
    replicas: Option<u32>,
    /// The cluster is OpenShift: grant what its APIs need, such as Routes.
    #[arg(long)]
    openshift: bool,
    #[command(flatten)]
    configuration: ConfigurationArguments,
    /// Leave out the CustomResourceDefinitions.
    #[arg(long)]
    no_crds: bool,
    /// Print YAML or JSON.
    #[arg(short, long, default_value = "yaml")]
    output: Format,
}

/// Changes with the configuration file, so that pods are replaced by some that have read it.
const CONFIGURATION_HASH: &str = "quintet.dev/configuration-hash";
/// Where clients look for the name of an application.
const NAME_LABEL: &str = "app.kubernetes.io/name";
/// Where the operator finds its configuration file.
const CONFIGURATION: &str = "/etc/quintet/config.yaml";

pub(crate) fn run(arguments: Arguments, catalog: &Catalog) -> anyhow::Result<()> {
    let Arguments { namespace, image, replicas, openshift, configuration, no_crds, output } = arguments;
    ensure!(
        is_dns_label(&namespace),
        "\"{namespace}\" is not a valid namespace name; use lower-case letters, digits and hyphens, at most {MAX_LABEL}"
    );
    let file = configuration.config.as_deref().map(fs::read_to_string).transpose();
    let file = file.context("cannot read the configuration file")?;
    let flags = configuration.flags();
    let configuration = configuration.into_configuration(catalog)?;
    let process = &configuration.process;
    if let Some(other) = process.namespace.as_deref().filter(|other| *other != namespace) {
        bail!(
            "the configuration says namespace: {other}, and this would install into {namespace}; give --namespace {other}, or leave it out of the file"
        );
    }
    let replicas = replicas_of(process, replicas)?;
    let ports = Ports::of(process)?;
    let platform = if openshift { Platform::openshift() } else { Platform::default() };
    let (components, operators) =
        (catalog.enabled(&configuration), catalog.configure(&configuration, &namespace, &platform)?);

    let mut objects =
        vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } })];
    if !no_crds {
        objects.extend(crds(&namespace, process, &components));
    }
    objects.extend(rbac::objects(&namespace, process, &components, &operators));
    objects.extend(services(&namespace, process, &ports, &operators));
    let service = &process.webhook.service_name;
    let scope = WebhookScope { namespace: &namespace, service, watched: &process.watch_namespaces };
    objects.extend(webhooks::configurations(&operators, &scope));
    objects.extend(api_services(&namespace, &operators));
    let mut deployment = deployment::deployment(&namespace, &image, replicas, process, &ports);
    if let Some(label) = operators.iter().find_map(|one| one.component.deployment_label) {
        deployment["metadata"]["labels"] = json!({ NAME_LABEL: label, "app.kubernetes.io/part-of": NAME });
        // CodeFlare's NetworkPolicies let the operator of Ray in by this label of its pods.
        deployment["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] = label.into();
    }
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
    let container = &mut template["spec"]["containers"][0];
    container["args"] = json!(command);
    let environment = environment(&components);
    if !environment.is_empty() {
        container["env"] = json!(environment);
    }
    for service in operators.iter().flat_map(Configured::services) {
        let port = json!({ "name": service.port_name, "containerPort": service.target_port });
        container["ports"].as_array_mut().into_iter().for_each(|ports| ports.push(port.clone()));
    }
    objects.push(deployment);
    output::print_objects(&objects, output)
}

/// The CRDs of enabled components.
fn crds(namespace: &str, process: &Process, components: &[Component]) -> Vec<Value> {
    let name = process.webhook.service_name.clone();
    let service = WebhookService { namespace: namespace.to_owned(), name };
    let definitions: Vec<_> = components.iter().flat_map(|component| (component.crds)()).collect();
    crd::manifests(&definitions, &service)
}

/// Environment variables that the components read, as far as they are set here.
fn environment(components: &[Component]) -> Vec<Value> {
    // Components may share one, such as the name of a Gateway.
    let mut seen = std::collections::BTreeSet::new();
    let names = components.iter().flat_map(|component| component.environment);
    let names = names.filter(|name| seen.insert(**name));
    let set = names.filter_map(|name| Some((name, std::env::var(name).ok()?)));
    set.map(|(name, value)| json!({ "name": name, "value": value })).collect()
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
struct Ports {
    metrics: Option<u16>,
    health: Option<u16>,
}

impl Ports {
    fn of(process: &Process) -> anyhow::Result<Self> {
        let endpoints = addresses::Endpoints::of(process, addresses::Placement::Pod)?;
        let port = |address: Option<SocketAddr>, what: &str| -> anyhow::Result<Option<u16>> {
            let port = address.map(|address| address.port());
            ensure!(
                port != Some(0),
                "{what} with port 0 is another port at every start; name one, or 0 alone for none"
            );
            Ok(port)
        };
        Ok(Self {
            metrics: port(endpoints.metrics, "metricsBindAddress")?,
            health: port(endpoints.health, "healthBindAddress")?,
        })
    }
}

fn labels() -> Value {
    json!({ NAME_LABEL: NAME })
}

fn metadata(namespace: &str, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "labels": labels() })
}

fn services(namespace: &str, process: &Process, ports: &Ports, operators: &[Configured]) -> Vec<Value> {
    let service = |name: &str, port: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata(namespace, name),
            "spec": { "selector": labels(), "ports": [port] },
        })
    };
    let webhooks = json!({ "name": "https", "port": 443, "targetPort": "webhook" });
    let webhooks = service(&process.webhook.service_name, webhooks);
    let metrics = ports.metrics.map(|port| {
        service("quintet-metrics", json!({ "name": "http", "port": port, "targetPort": "metrics" }))
    });
    let of_operators = operators.iter().flat_map(Configured::services).map(|one: &Service| {
        service(one.name, json!({ "name": one.port_name, "port": one.port, "targetPort": one.port_name }))
    });
    [webhooks].into_iter().chain(metrics).chain(of_operators).collect()
}

/// Who serves the groups of aggregated APIs. The operator adds the certificate authority.
fn api_services(namespace: &str, operators: &[Configured]) -> Vec<Value> {
    let mut objects = Vec::new();
    for api in operators.iter().flat_map(|one| &one.operator.apis) {
        for (name, version) in api.api_services().zip(api.versions) {
            objects.push(json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": { "name": name, "labels": labels() },
                "spec": {
                    "group": api.group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                    "service": { "namespace": namespace, "name": api.service.name, "port": api.service.port },
                },
            }));
        }
    }
    objects
}
