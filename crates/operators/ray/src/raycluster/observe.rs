//! Everything a decision about one RayCluster needs.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use quintet_api::ray::v1::{RayCluster, RayClusterStatus, WorkerGroupSpec};
use quintet_controller::{
    ObjectKey,
    cache::{Entry, ObjectMetadata},
    plan::REDACTED,
};
use serde::{Deserialize, Serialize, Serializer};

use super::pod_names::PodNames;
use crate::{
    labels,
    pod_view::PodView,
    schedulers::native,
    settings::Settings,
    watches::{JobView, ServiceView},
};

/// A pod as the caches show it.
pub(super) type Pod = Arc<Entry<PodView>>;

/// What was observed of a cluster and of what belongs to it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    pub(super) cluster: Arc<Entry<RayCluster>>,
    pub(super) settings: Arc<Settings>,
    pub(super) now: Timestamp,
    pub(super) pods: Vec<Pod>,
    pub(super) services: Vec<Arc<Entry<ServiceView>>>,
    /// Jobs that clear Redis.
    pub(super) cleanup_jobs: Vec<Arc<Entry<JobView>>>,
    /// The Ingress of the name ours would have, whoever made it.
    pub(super) ingress: Option<Arc<Entry<ObjectMetadata>>>,
    /// Which of the objects that are made once are there.
    pub(super) present: Present,
    /// The claim that the head's state is kept on.
    pub(super) claim: Option<Arc<Entry<ClaimView>>>,
    /// Whether the certificates of a cluster with TLS can be used; the error says what is missing.
    pub(super) certificates: Result<(), String>,
    /// A token to store, if the cluster needs one and has none.
    pub(super) new_token: Option<NewToken>,
    pub(super) names: PodNames,
    /// What Kubernetes' own scheduler knows of the cluster as a gang.
    pub(super) gang: Option<native::Observed>,
}

/// Objects that are made once and left alone.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is about an object of its own")]
pub(super) struct Present {
    pub(super) service_account: bool,
    pub(super) role: bool,
    pub(super) role_binding: bool,
    pub(super) route: bool,
}

/// A token that is about to be stored in a Secret. It is redacted when the observed state is serialized.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct NewToken(pub(super) String);

impl Serialize for NewToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

/// What is kept of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimView {
    /// Its owners.
    pub owners: Vec<OwnerReference>,
    /// What it asks for.
    pub size: Option<String>,
    /// The class it asks for.
    pub storage_class: Option<String>,
    /// How it may be mounted.
    pub access_modes: BTreeSet<String>,
}

impl ClaimView {
    pub(super) fn project(text: &str) -> Result<Self, serde_json::Error> {
        let claim: PersistentVolumeClaim = serde_json::from_str(text)?;
        let spec = claim.spec.unwrap_or_default();
        let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
        Ok(Self {
            owners: claim.metadata.owner_references.unwrap_or_default(),
            size: requests.get("storage").map(|size| size.0.clone()),
            storage_class: spec.storage_class_name,
            access_modes: spec.access_modes.into_iter().flatten().collect(),
        })
    }
}

impl Observed {
    pub(super) fn object(&self) -> &RayCluster {
        &self.cluster.object
    }

    pub(super) fn key(&self) -> &ObjectKey {
        &self.cluster.key
    }

    pub(super) fn name(&self) -> &str {
        self.cluster.key.name()
    }

    pub(super) fn namespace(&self) -> &str {
        self.cluster.key.namespace().unwrap_or_default()
    }

    pub(super) fn status(&self) -> RayClusterStatus {
        self.object().status.clone().unwrap_or_default()
    }

    pub(super) fn groups(&self) -> &[WorkerGroupSpec] {
        self.object().spec.worker_group_specs.as_deref().unwrap_or_default()
    }

    pub(super) fn heads(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| pod.object.is_head())
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| pod.object.is_worker())
    }

    /// The pods of a group. A head is never a worker, whatever a group is called.
    pub(super) fn workers_of<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.workers().filter(move |pod| pod.object.label(labels::GROUP) == group)
    }

    /// Services in front of the head.
    pub(super) fn head_services(&self) -> impl Iterator<Item = &Arc<Entry<ServiceView>>> {
        let is_head = |service: &&Arc<Entry<ServiceView>>| {
            let label = |name: &str| service.object.labels.get(name).map(String::as_str);
            label(labels::NODE_TYPE) == Some(labels::HEAD)
        };
        self.services.iter().filter(is_head)
    }

    pub(super) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.object().metadata.finalizers.iter().flatten().any(|one| one == finalizer)
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.object().metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }
}

/// Pods that a group should have: replicas within their bounds, times hosts; none while it is suspended.
pub(super) fn wanted_pods(group: &WorkerGroupSpec) -> i32 {
    if group.suspend == Some(true) {
        return 0;
    }
    let min = group.min_replicas.unwrap_or_default();
    let max = group.max_replicas.unwrap_or(i32::MAX);
    let replicas = group.replicas.unwrap_or(min).max(min).min(max);
    replicas.saturating_mul(hosts(group)).max(0)
}

/// Pods of one replica.
pub(super) fn hosts(group: &WorkerGroupSpec) -> i32 {
    group.num_of_hosts.unwrap_or(1)
}
