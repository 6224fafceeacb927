//! The Services in front of a Ray cluster. They are made once and left alone afterwards.

pub(crate) mod events;
pub(crate) mod update;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerPort, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::ray::v1::{RayCluster, RayClusterSpec};

use crate::{labels, names, settings::Settings};

/// Port of Ray clients.
pub const CLIENT_PORT: i32 = 10001;
/// Port of the control store.
pub const GCS_PORT: i32 = 6379;
/// Port of the dashboard.
pub const DASHBOARD_PORT: i32 = 8265;
/// Port of metrics.
pub const METRICS_PORT: i32 = 8080;
/// Port of Serve's proxy.
pub const SERVE_PORT: i32 = 8000;

/// Name of the dashboard's port.
pub const DASHBOARD: &str = "dashboard";
/// Name of the metrics port.
pub const METRICS: &str = "metrics";
/// Name of the port of Serve's proxy; others may begin with it.
pub const SERVE: &str = "serve";

/// Ports of a head that declares none.
const DEFAULT_PORTS: [(&str, i32); 5] = [
    ("client", CLIENT_PORT),
    ("gcs-server", GCS_PORT),
    (DASHBOARD, DASHBOARD_PORT),
    (METRICS, METRICS_PORT),
    (SERVE, SERVE_PORT),
];

/// The RayJob or RayService that a Service is made for.
#[derive(Clone, Copy, Debug)]
pub struct Behalf<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
}

impl Behalf<'_> {
    /// The labels by which objects made for it are found.
    pub fn labels(self) -> BTreeMap<String, String> {
        [(labels::ORIGIN_NAME, self.name), (labels::ORIGIN_KIND, self.kind)].map(owned).into()
    }
}

/// The Service in front of the head, named after the cluster or after what it is made on behalf of. The
/// caller adds the owner.
pub fn head_service(cluster: &RayCluster, behalf: Option<Behalf<'_>>, settings: &Settings) -> Service {
    let head = &cluster.spec.head_group_spec;
    let mut service = head.head_service.clone().unwrap_or_default();
    let is_custom = head.head_service.is_some();
    let spec = service.spec.get_or_insert_default();
    if is_custom {
        // The user's port of a name comes first; a second one of that name is refused by the API server.
        let ports = spec.ports.get_or_insert_default();
        ports.extend(ports_with_protocol(&cluster.spec));
    } else {
        let mut ports = ports_with_protocol(&cluster.spec);
        ports.sort_by(|a, b| a.name.cmp(&b.name));
        spec.ports = Some(ports);
    }
    spec.selector = Some(head_labels(cluster));
    spec.type_ = spec.type_.take().or_else(|| head.service_type.clone().filter(|kind| !kind.is_empty()));
    if !is_custom && !settings.head_cluster_ip && spec.type_.as_deref().is_none_or(|kind| kind == "ClusterIP")
    {
        spec.cluster_ip = Some("None".to_owned());
        spec.publish_not_ready_addresses = Some(true);
    }
    let name = match behalf {
        Some(behalf) => names::head_service(behalf.name),
        None => head_service_name(cluster),
    };
    let own_labels = match behalf {
        Some(behalf) => {
            let mut own = behalf.labels();
            own.extend([
                (labels::NODE_TYPE.to_owned(), labels::HEAD.to_owned()),
                (labels::IDENTIFIER.to_owned(), names::identifier(behalf.name, labels::HEAD)),
            ]);
            own
        }
        None => head_labels(cluster),
    };
    let metadata = &mut service.metadata;
    metadata.name = Some(name);
    metadata.namespace.clone_from(&cluster.metadata.namespace);
    metadata.labels.get_or_insert_default().extend(own_labels);
    if let Some(annotations) = &cluster.spec.head_service_annotations {
        metadata.annotations.get_or_insert_default().extend(annotations.clone());
    }
    service
}

/// The name of a cluster's own head Service.
pub fn head_service_name(cluster: &RayCluster) -> String {
    let custom = cluster.spec.head_group_spec.head_service.as_ref();
    let custom = custom.and_then(|service| service.metadata.name.clone()).filter(|name| !name.is_empty());
    custom.unwrap_or_else(|| names::head_service(cluster_name(cluster)))
}

/// The labels of a head Service, which are also what it selects pods by.
pub fn head_labels(cluster: &RayCluster) -> BTreeMap<String, String> {
    let name = cluster_name(cluster);
    let template = cluster.spec.head_group_spec.template.metadata.as_ref();
    let application = template
        .and_then(|metadata| metadata.labels.as_ref())
        .and_then(|given| given.get(labels::APP_NAME))
        .map_or(labels::APPLICATION, String::as_str);
    [
        (labels::CLUSTER, name),
        (labels::NODE_TYPE, labels::HEAD),
        (labels::IDENTIFIER, &names::identifier(name, labels::HEAD)),
        (labels::APP_NAME, application),
        (labels::APP_CREATED_BY, labels::CREATOR),
    ]
    .map(owned)
    .into()
}

/// The Service by which the hosts of multi-host workers find each other, if the cluster has any.
pub fn headless_worker_service(cluster: &RayCluster) -> Option<Service> {
    let groups = cluster.spec.worker_group_specs.iter().flatten();
    if !groups.into_iter().any(|group| group.num_of_hosts.is_some_and(|hosts| hosts > 1)) {
        return None;
    }
    let name = cluster_name(cluster);
    Some(Service {
        metadata: ObjectMeta {
            name: Some(names::headless_service(name)),
            namespace: cluster.metadata.namespace.clone(),
            labels: Some([(labels::HEADLESS_WORKER_SERVICE, name)].map(owned).into()),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            selector: Some([(labels::CLUSTER, name), (labels::NODE_TYPE, labels::WORKER)].map(owned).into()),
            publish_not_ready_addresses: Some(true),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    })
}

/// The Service for Serve of a cluster that asks for one by annotation. The error is for the user to fix.
pub fn serve_service(cluster: &RayCluster) -> Result<Option<Service>, String> {
    let wants = |annotations: &BTreeMap<_, _>| {
        annotations.get(labels::ENABLE_SERVE_SERVICE).is_some_and(|v| v == "true")
    };
    if !cluster.metadata.annotations.as_ref().is_some_and(wants) {
        return Ok(None);
    }
    let name = cluster_name(cluster);
    let ports = serve_ports(&cluster.spec);
    if ports.is_empty() {
        return Err(format!(
            "the head of RayCluster {name} declares ports, but none of them is named serve; add one or \
             remove the annotation {}",
            labels::ENABLE_SERVE_SERVICE
        ));
    }
    let mut own = Behalf { kind: "RayCluster", name }.labels();
    own.insert(labels::SERVE.to_owned(), names::identifier(name, SERVE));
    Ok(Some(Service {
        metadata: ObjectMeta {
            name: Some(names::serve_service(name)),
            namespace: cluster.metadata.namespace.clone(),
            labels: Some(own),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            ports: Some(ports),
            selector: Some([(labels::CLUSTER, name)].map(owned).into()),
            type_: cluster.spec.head_group_spec.service_type.clone().filter(|kind| !kind.is_empty()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }))
}

/// The head's ports for Serve: those named `serve` or `serve-...`.
pub fn serve_ports(spec: &RayClusterSpec) -> Vec<ServicePort> {
    let is_serve = |name: &str| name == SERVE || name.starts_with("serve-");
    let mut ports = ports(spec);
    ports.retain(|(name, _)| is_serve(name));
    ports
        .into_iter()
        .map(|(name, port)| ServicePort { name: Some(name), port, ..ServicePort::default() })
        .collect()
}

/// A port of the head's Ray container by name.
pub fn head_port(spec: &RayClusterSpec, name: &str) -> Option<i32> {
    let is_it = |port: &&ContainerPort| port.name.as_deref() == Some(name);
    head_container_ports(spec).iter().find(is_it).map(|port| port.container_port)
}

fn ports_with_protocol(spec: &RayClusterSpec) -> Vec<ServicePort> {
    let port = |(name, port)| ServicePort {
        name: Some(name),
        port,
        app_protocol: Some("tcp".to_owned()),
        ..ServicePort::default()
    };
    ports(spec).into_iter().map(port).collect()
}

/// Names and numbers of the head's ports.
fn ports(spec: &RayClusterSpec) -> Vec<(String, i32)> {
    let declared = head_container_ports(spec);
    if declared.is_empty() {
        return DEFAULT_PORTS.map(|(name, port)| (name.to_owned(), port)).to_vec();
    }
    let named = |port: &ContainerPort| {
        let name = port.name.clone().filter(|name| !name.is_empty());
        (name.unwrap_or_else(|| format!("{}-port", port.container_port)), port.container_port)
    };
    let mut ports: Vec<_> = declared.iter().map(named).collect();
    if !ports.iter().any(|(name, _)| name == METRICS) {
        ports.push((METRICS.to_owned(), METRICS_PORT));
    }
    ports
}

fn head_container_ports(spec: &RayClusterSpec) -> &[ContainerPort] {
    let pod = spec.head_group_spec.template.spec.as_ref();
    pod.and_then(|pod| pod.containers.first()?.ports.as_deref()).unwrap_or_default()
}

fn cluster_name(cluster: &RayCluster) -> &str {
    cluster.metadata.name.as_deref().unwrap_or_default()
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}
