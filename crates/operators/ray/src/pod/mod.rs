//! The pods of a Ray cluster, built from a group's template exactly as clients of upstream know them.
//!
//! The first container of a template runs Ray, whatever its name. Building is pure: the same cluster, settings and
//! name make the same pod.

pub mod auth;
mod autoscaler;
mod collector;
mod environment;
mod fault_tolerance;
mod probes;
pub mod ray_start;
mod redis_cleanup;
#[cfg(test)]
mod tests;
pub mod tls;
mod volumes;
mod waiting;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::ray::v1::{AutoscalerVersion, GcsBackend, RayCluster, RayClusterSpec, WorkerGroupSpec};

pub use fault_tolerance::{claim_name, is_fault_tolerant, storage_namespace};
pub use redis_cleanup::cleanup_job;

use crate::{
    k8s_service::{METRICS, METRICS_PORT, head_service_name},
    labels, names,
    settings::Settings,
    spec_hash::recreate_hash,
};
use ray_start::Params;

/// Which kind of object a cluster was made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The user.
    #[default]
    RayCluster,
    /// A RayJob.
    RayJob,
    /// A RayService.
    RayService,
}

impl Origin {
    /// As the label on the cluster says.
    pub fn of(cluster: &RayCluster) -> Self {
        let given = cluster.metadata.labels.as_ref().and_then(|labels| labels.get(labels::ORIGIN_KIND));
        match given.map(String::as_str) {
            Some("RayJob") => Self::RayJob,
            Some("RayService") => Self::RayService,
            _ => Self::RayCluster,
        }
    }

    /// The kind.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::RayCluster => "RayCluster",
            Self::RayJob => "RayJob",
            Self::RayService => "RayService",
        }
    }
}

/// Head or worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The pod that runs the control processes.
    Head,
    /// Any other.
    Worker,
}

/// Where in its group a worker stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Which replica.
    pub replica: u32,
    /// Which host of the replica.
    pub host: u32,
    /// The name shared by the hosts of a replica; empty if it has only one.
    pub replica_name: String,
}

/// Everything pods of one cluster have in common.
pub struct Blueprint<'a> {
    cluster: &'a RayCluster,
    settings: &'a Settings,
    origin: Origin,
    /// Where the head is found from anywhere in the Kubernetes cluster.
    head_host: String,
    /// Port of the control store.
    head_port: String,
}

impl<'a> Blueprint<'a> {
    /// The blueprint of a cluster.
    pub fn new(cluster: &'a RayCluster, settings: &'a Settings) -> Self {
        let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
        let params = cluster.spec.head_group_spec.ray_start_params.as_ref();
        let port = params.and_then(|params| params.get("port").cloned());
        Self {
            cluster,
            settings,
            origin: Origin::of(cluster),
            head_host: names::service_host(&head_service_name(cluster), namespace, &settings.cluster_domain),
            head_port: port.unwrap_or_else(|| crate::k8s_service::GCS_PORT.to_string()),
        }
    }

    /// What the names of head pods begin with.
    pub fn head_prefix(&self) -> String {
        names::pod_prefix(self.name(), labels::HEAD)
    }

    /// What the names of a group's pods begin with.
    pub fn worker_prefix(&self, group: &WorkerGroupSpec) -> String {
        names::pod_prefix(&format!("{}-{}", self.name(), group.group_name), labels::WORKER)
    }

    /// The name a head pod has whatever happens, if it has one.
    pub fn fixed_head_name(&self) -> Option<String> {
        let own = self.cluster.spec.head_group_spec.template.metadata.as_ref();
        let own = own.and_then(|metadata| metadata.name.clone()).filter(|name| !name.is_empty());
        let fixed =
            || self.settings.fixed_head_name.then(|| self.head_prefix().trim_end_matches('-').to_owned());
        fixed().or(own)
    }

    /// The head pod of that name. The caller adds the owner.
    pub fn head_pod(&self, name: &str) -> Pod {
        let group = &self.cluster.spec.head_group_spec;
        let spec = &self.cluster.spec;
        let mut draft = Draft::new(&group.template, self.metadata(&group.template, name, self.head_prefix()));
        let mut params = Params::new(group.ray_start_params.as_ref());
        params.advertise(group.resources.as_ref());
        params.label(group.labels.as_ref());
        draft.metadata.labels =
            Some(self.pod_labels(Role::Head, labels::HEAD_GROUP, &group.template, group.labels.as_ref()));
        params.complete(Role::Head, self);
        draft.annotate_overwrite(self.cluster);
        if is_autoscaling(spec) {
            params.set("no-monitor", "true");
            draft.pod.service_account_name = Some(names::object_name(service_account(self.cluster)));
            let mut autoscaler = autoscaler::container(draft.ray(), self.settings);
            auth::configure(&mut autoscaler, self.name(), spec);
            tls::configure(&mut autoscaler, spec);
            autoscaler::apply_options(&mut autoscaler, spec.autoscaler_options.as_ref());
            draft.pod.containers.push(autoscaler);
            match autoscaler_version(spec) {
                Some(AutoscalerVersion::V2) => {
                    environment::set(draft.ray(), autoscaler::VERSION_ENV, "true");
                    draft.pod.restart_policy = Some("Never".to_owned());
                }
                Some(AutoscalerVersion::V1) => {
                    environment::set(draft.ray(), autoscaler::VERSION_ENV, "false");
                }
                None => {}
            }
        }
        fault_tolerance::configure_head(&mut draft, &mut params, self.cluster);
        self.finish(&mut draft, &mut params, Role::Head);
        let annotations = draft.metadata.annotations.get_or_insert_default();
        annotations.insert(labels::RECREATE_HASH.to_owned(), recreate_hash(spec));
        annotations.insert(labels::OPERATOR_VERSION.to_owned(), self.settings.version.clone());
        draft.into_pod()
    }

    /// A worker pod of that name and place in its group. The caller adds the owner.
    pub fn worker_pod(&self, group: &WorkerGroupSpec, place: &Place, name: &str) -> Pod {
        let spec = &self.cluster.spec;
        let mut metadata = self.metadata(&group.template, name, self.worker_prefix(group));
        let mut own =
            self.pod_labels(Role::Worker, &group.group_name, &group.template, group.labels.as_ref());
        if self.settings.gates.multi_host_indexing {
            own.insert(labels::REPLICA_INDEX.to_owned(), place.replica.to_string());
            if group.num_of_hosts.is_some_and(|hosts| hosts > 1) {
                own.insert(labels::REPLICA_NAME.to_owned(), place.replica_name.clone());
                own.insert(labels::HOST_INDEX.to_owned(), place.host.to_string());
            }
        }
        metadata.labels = Some(own);
        let mut draft = Draft::new(&group.template, metadata);
        if self.settings.wait_for_head {
            let wait = waiting::for_head(draft.ray(), &self.head_host, &self.head_port, self.settings);
            draft.pod.init_containers.get_or_insert_default().push(wait);
        }
        let mut params = Params::new(group.ray_start_params.as_ref());
        params.advertise(group.resources.as_ref());
        params.label(group.labels.as_ref());
        params.complete(Role::Worker, self);
        draft.annotate_overwrite(self.cluster);
        fault_tolerance::configure_worker(&mut draft, self.cluster);
        if is_autoscaling(spec) && autoscaler_version(spec) == Some(AutoscalerVersion::V2) {
            draft.pod.restart_policy = Some("Never".to_owned());
        }
        self.finish(&mut draft, &mut params, Role::Worker);
        draft.into_pod()
    }

    /// What head and workers have in common, from the metrics port on.
    fn finish(&self, draft: &mut Draft, params: &mut Params, role: Role) {
        let spec = &self.cluster.spec;
        let ports = draft.ray().ports.get_or_insert_default();
        if !ports.iter().any(|port| port.name.as_deref() == Some(METRICS)) {
            let port = ContainerPort {
                name: Some(METRICS.to_owned()),
                container_port: METRICS_PORT,
                ..ContainerPort::default()
            };
            ports.push(port);
        }
        auth::configure_pod(&mut draft.pod, self.name(), spec);
        tls::configure_pod(&mut draft.pod, self.cluster, role);
        let collector = collector::container(self, role);
        let has_collector = collector.is_some();
        draft.pod.containers.extend(collector);
        let sidecars = match role {
            Role::Head => &self.settings.head_sidecars,
            Role::Worker => &self.settings.worker_sidecars,
        };
        draft.pod.containers.extend(sidecars.iter().cloned());
        draft.default_metadata(self.settings);
        if self.origin == Origin::RayService {
            let serves = if role == Role::Head { "false" } else { "true" };
            let own = draft.metadata.labels.get_or_insert_default();
            own.insert(labels::SERVE.to_owned(), serves.to_owned());
        }
        volumes::add_shared_memory(&mut draft.pod, params);
        if role == Role::Head && is_autoscaling(spec) {
            volumes::share_logs(&mut draft.pod, autoscaler::NAME);
        }
        if has_collector {
            volumes::share_logs(&mut draft.pod, collector::NAME);
        }
        params.take_from_container(draft.ray());
        let command = params.command(role);
        let overwrites = draft.overwrites_command();
        ray_start::set_command(draft.ray(), &command, overwrites, self.settings);
        for container in draft.pod.init_containers.iter_mut().flatten() {
            environment::set_head_address(container, &self.head_host);
        }
        let environment = environment::Environment {
            role,
            origin: self.origin,
            head_host: &self.head_host,
            head_port: &self.head_port,
            command: &command,
            has_collector,
            settings: self.settings,
        };
        environment.fill(draft.ray());
        if self.settings.probes {
            let version = spec.ray_version.as_deref().unwrap_or_default();
            probes::add(draft.ray(), role, self.origin, params, version);
        }
    }

    fn name(&self) -> &str {
        self.cluster.metadata.name.as_deref().unwrap_or_default()
    }

    fn metadata(&self, template: &PodTemplateSpec, name: &str, prefix: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            generate_name: Some(prefix),
            // Whoever may make clusters in one namespace must not make pods in another.
            namespace: self.cluster.metadata.namespace.clone(),
            ..template.metadata.clone().unwrap_or_default()
        }
    }

    fn pod_labels(
        &self,
        role: Role,
        group: &str,
        template: &PodTemplateSpec,
        of_group: Option<&BTreeMap<String, String>>,
    ) -> BTreeMap<String, String> {
        let node_type = match role {
            Role::Head => labels::HEAD,
            Role::Worker => labels::WORKER,
        };
        let fixed = [(labels::CLUSTER, self.name()), (labels::NODE_TYPE, node_type), (labels::GROUP, group)];
        let mut all: BTreeMap<String, String> = [
            (labels::IS_RAY_NODE, "yes"),
            (labels::IDENTIFIER, &names::identifier(self.name(), node_type)),
            (labels::APP_NAME, labels::APPLICATION),
            (labels::APP_CREATED_BY, labels::CREATOR),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let of_template = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
        all.extend(of_template.unwrap_or_default());
        all.extend(of_group.cloned().unwrap_or_default());
        all.extend(fixed.map(|(key, value)| (key.to_owned(), value.to_owned())));
        all
    }
}

/// A pod in the making. There always is a container that runs Ray: validation has seen to it.
struct Draft {
    metadata: ObjectMeta,
    pod: PodSpec,
}

impl Draft {
    fn new(template: &PodTemplateSpec, metadata: ObjectMeta) -> Self {
        let mut pod = template.spec.clone().unwrap_or_default();
        if pod.containers.is_empty() {
            pod.containers.push(Container::default());
        }
        Self { metadata, pod }
    }

    /// The container that runs Ray.
    fn ray(&mut self) -> &mut Container {
        &mut self.pod.containers[0]
    }

    fn annotate_overwrite(&mut self, cluster: &RayCluster) {
        if is_true(cluster.metadata.annotations.as_ref(), labels::OVERWRITE_COMMAND) {
            let annotations = self.metadata.annotations.get_or_insert_default();
            annotations.insert(labels::OVERWRITE_COMMAND.to_owned(), "true".to_owned());
        }
    }

    fn overwrites_command(&self) -> bool {
        is_true(self.metadata.annotations.as_ref(), labels::OVERWRITE_COMMAND)
    }

    fn default_metadata(&mut self, settings: &Settings) {
        add_missing(&mut self.metadata.annotations, &settings.default_annotations);
        add_missing(&mut self.metadata.labels, &settings.default_labels);
    }

    fn into_pod(self) -> Pod {
        Pod { metadata: self.metadata, spec: Some(self.pod), ..Pod::default() }
    }
}

fn add_missing(map: &mut Option<BTreeMap<String, String>>, defaults: &BTreeMap<String, String>) {
    if defaults.is_empty() {
        return;
    }
    let map = map.get_or_insert_default();
    for (key, value) in defaults {
        map.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

fn is_true(annotations: Option<&BTreeMap<String, String>>, name: &str) -> bool {
    annotations.and_then(|all| all.get(name)).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Whether an autoscaler runs in the head.
pub fn is_autoscaling(spec: &RayClusterSpec) -> bool {
    spec.enable_in_tree_autoscaling == Some(true)
}

/// The generation of the autoscaler that the user asks for.
pub fn autoscaler_version(spec: &RayClusterSpec) -> Option<AutoscalerVersion> {
    spec.autoscaler_options.as_ref().and_then(|options| options.version)
}

/// Whether the state of the control store is kept on a volume of the head.
pub fn is_embedded_storage(spec: &RayClusterSpec) -> bool {
    let options = spec.gcs_fault_tolerance_options.as_ref();
    options.is_some_and(|options| options.backend == Some(GcsBackend::Rocksdb))
}

/// The account the head runs as when an autoscaler needs rights: the template's, or one named like the cluster.
pub fn service_account(cluster: &RayCluster) -> &str {
    let pod = cluster.spec.head_group_spec.template.spec.as_ref();
    let own = pod.and_then(|pod| pod.service_account_name.as_deref()).filter(|name| !name.is_empty());
    own.unwrap_or_else(|| cluster.metadata.name.as_deref().unwrap_or_default())
}
