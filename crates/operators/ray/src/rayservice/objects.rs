//! The Services of a RayService and the clusters it makes.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use quintet_api::{
    owners::controller_reference,
    ray::v1::{RayCluster, RayClusterSpec, RayService},
};

use crate::{
    k8s_service::{self, Behalf},
    labels, names,
    settings::Settings,
    spec_hash::upgrade_hash,
};

/// Annotation on a RayService's cluster: the Serve config that Ray was last given, so that a restarted operator
/// does not give it again.
pub(super) const APPLIED_CONFIG: &str = "ray.quintet.dev/serve-config";
/// Annotation on a cluster that is no longer wanted: when it is deleted.
pub(super) const DELETE_AFTER: &str = "ray.quintet.dev/delete-after";

pub(super) fn behalf(service: &RayService) -> Behalf<'_> {
    Behalf { kind: "RayService", name: service.metadata.name.as_deref().unwrap_or_default() }
}

/// The labels and annotations of a cluster made for a service as it is now.
pub(super) fn cluster_metadata(
    service: &RayService,
    settings: &Settings,
) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let config = &service.spec.ray_cluster_config;
    let mut given = service.metadata.labels.clone().unwrap_or_default();
    given.extend(behalf(service).labels());
    let mut annotations = service.metadata.annotations.clone().unwrap_or_default();
    annotations.extend(marks(config, settings));
    (given, annotations)
}

/// The annotations by which a changed spec is noticed later, and whose making the cluster is.
pub(super) fn marks(config: &RayClusterSpec, settings: &Settings) -> [(String, String); 2] {
    [
        (labels::UPGRADE_HASH.to_owned(), upgrade_hash(config)),
        (labels::OPERATOR_VERSION.to_owned(), settings.version.clone()),
    ]
}

/// A cluster for the service as it is now. One that grows in steps begins with as few workers as it may
/// have.
pub(super) fn cluster(
    service: &RayService,
    name: &str,
    starts_small: bool,
    settings: &Settings,
) -> RayCluster {
    let (given, annotations) = cluster_metadata(service, settings);
    let mut spec = service.spec.ray_cluster_config.clone();
    if starts_small {
        for group in spec.worker_group_specs.iter_mut().flatten() {
            group.replicas = None;
        }
    }
    RayCluster {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: service.metadata.namespace.clone(),
            labels: Some(given),
            annotations: Some(annotations),
            owner_references: controller_reference(service).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

/// The service's own Service in front of the head.
pub(super) fn head_service(service: &RayService, cluster: &RayCluster, settings: &Settings) -> Service {
    let mut made = k8s_service::head_service(cluster, Some(behalf(service)), settings);
    made.metadata.owner_references = controller_reference(service).map(|owner| vec![owner]);
    made
}

/// The name of the Service that takes requests.
pub(super) fn serve_service_name(service: &RayService) -> String {
    let custom = service.spec.serve_service.as_ref().and_then(|custom| custom.metadata.name.clone());
    let custom = custom.filter(|name| !name.is_empty());
    custom.unwrap_or_else(|| names::serve_service(behalf(service).name))
}

/// The Service that takes requests, of the user's making where they have a say. The error is for the user to fix.
pub(super) fn serve_service(service: &RayService, cluster: &RayCluster) -> Result<Service, String> {
    let custom = service.spec.serve_service.as_ref();
    let detected = k8s_service::serve_ports(&cluster.spec);
    let mut made = custom.cloned().unwrap_or_default();
    made.status = None;
    let spec = made.spec.get_or_insert_default();
    let given = spec.ports.take().unwrap_or_default();
    let ports = if detected.is_empty() {
        given
    } else {
        detected.into_iter().map(|port| chosen(port, &given)).collect()
    };
    if ports.is_empty() && custom.is_none() {
        return Err(no_serve_port(cluster));
    }
    spec.ports = Some(ports);
    spec.selector = Some(serve_selector(cluster));
    let type_ = cluster.spec.head_group_spec.service_type.clone().filter(|kind| !kind.is_empty());
    spec.type_ = spec.type_.take().filter(|kind| !kind.is_empty()).or(type_);
    let mut own = behalf(service).labels();
    own.insert(labels::SERVE.to_owned(), names::identifier(behalf(service).name, k8s_service::SERVE));
    made.metadata.name = Some(serve_service_name(service));
    made.metadata.namespace.clone_from(&service.metadata.namespace);
    made.metadata.labels.get_or_insert_default().extend(own);
    made.metadata.owner_references = controller_reference(service).map(|owner| vec![owner]);
    Ok(made)
}

/// The user's port of the same name, or the one that was found.
fn chosen(found: ServicePort, given: &[ServicePort]) -> ServicePort {
    given.iter().find(|port| port.name == found.name).cloned().unwrap_or(found)
}

fn serve_selector(cluster: &RayCluster) -> BTreeMap<String, String> {
    let name = cluster.metadata.name.clone().unwrap_or_default();
    BTreeMap::from([(labels::CLUSTER.to_owned(), name), (labels::SERVE.to_owned(), "true".to_owned())])
}

fn no_serve_port(cluster: &RayCluster) -> String {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    format!("the head of RayCluster {name} declares ports, but none of them is named serve; add one")
}

/// The Service that takes requests for one of the clusters between which traffic is split. It goes with its
/// cluster, but is made for a RayService.
pub(super) fn cluster_serve_service(cluster: &RayCluster) -> Result<Service, String> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let ports = k8s_service::serve_ports(&cluster.spec);
    if ports.is_empty() {
        return Err(no_serve_port(cluster));
    }
    let mut own = Behalf { kind: "RayService", name }.labels();
    own.insert(labels::SERVE.to_owned(), names::identifier(name, k8s_service::SERVE));
    Ok(Service {
        metadata: ObjectMeta {
            name: Some(names::serve_service(name)),
            namespace: cluster.metadata.namespace.clone(),
            labels: Some(own),
            owner_references: controller_reference(cluster).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            ports: Some(ports),
            selector: Some(serve_selector(cluster)),
            type_: cluster.spec.head_group_spec.service_type.clone().filter(|kind| !kind.is_empty()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    })
}
