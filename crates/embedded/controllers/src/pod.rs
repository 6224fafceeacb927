//! The projection of a pod that all controllers share: one watch, and a fraction of the size of a whole pod.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Affinity, PersistentVolumeClaimTemplate, Pod, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use quintet_api::Quantity;
use quintet_api::requests::PodRequests;
use quintet_controller::ApiKind;
use quintet_controller::cache::{Entry, WatchSpec};
use serde::{Deserialize, Serialize};

use crate::claim::{self, Claimable};

/// An annotation that repeats the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The condition of a pod that is about to be deleted, and why.
pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// The index of pods by the node they are bound to.
pub(crate) const BY_NODE: &str = "node";

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodView {
    pub metadata: Metadata,
    pub spec: Spec,
    pub status: Status,
}

/// The metadata of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub owner_references: Vec<OwnerReference>,
    pub finalizers: Vec<String>,
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<Timestamp>,
    pub generation: Option<i64>,
}

/// The spec of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    pub node_name: Option<String>,
    pub hostname: Option<String>,
    pub subdomain: Option<String>,
    pub scheduler_name: Option<String>,
    pub priority: i32,
    pub preemption_policy: Option<String>,
    pub host_network: bool,
    pub scheduling_gates: Vec<SchedulingGate>,
    pub node_selector: BTreeMap<String, String>,
    pub affinity: Option<Box<Affinity>>,
    pub tolerations: Vec<Toleration>,
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    pub containers: Vec<Container>,
    pub init_containers: Vec<Container>,
    pub overhead: BTreeMap<String, Quantity>,
    pub resources: Resources,
    pub volumes: Vec<Volume>,
}

/// A reason not to schedule yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SchedulingGate {
    pub name: String,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub name: String,
    pub image: String,
    pub restart_policy: Option<String>,
    pub ports: Vec<Port>,
    pub resources: Resources,
}

/// A port of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Port {
    pub name: String,
    #[serde(rename = "containerPort")]
    pub number: i32,
    #[serde(rename = "hostPort")]
    pub on_host: i32,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    pub protocol: String,
}

/// The resource requests of a container or of a whole pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {
    pub requests: BTreeMap<String, Quantity>,
}

/// A volume, as far as it names a claim, or has one made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Volume {
    pub name: String,
    pub persistent_volume_claim: Option<ClaimSource>,
    pub ephemeral: Option<EphemeralSource>,
}

/// A claim that is made for one pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EphemeralSource {
    pub volume_claim_template: Option<Box<PersistentVolumeClaimTemplate>>,
}

/// The claim that a volume uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimSource {
    pub claim_name: String,
}

/// The status of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub phase: Phase,
    pub reason: Option<String>,
    pub conditions: Vec<Condition>,
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
    pub start_time: Option<Timestamp>,
    pub nominated_node_name: Option<String>,
    pub container_statuses: Vec<ContainerStatus>,
    pub init_container_statuses: Vec<ContainerStatus>,
}

/// The phase of a pod, in the order in which controllers remove pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

/// An address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PodIp {
    pub ip: String,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The status of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub name: String,
    pub restart_count: i32,
    pub state: ContainerState,
}

/// The state of a container, as far as it has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerState {
    pub terminated: Option<Terminated>,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub exit_code: i32,
    pub finished_at: Option<Timestamp>,
}

impl Claimable for PodView {
    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        Some(&self.metadata.labels)
    }

    fn owner_references(&self) -> &[OwnerReference] {
        &self.metadata.owner_references
    }
}

/// The owner reference by which a pod controls its claims.
pub(crate) fn owner_pod(pod: &Entry<PodView>) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.key.name().to_owned(),
        uid: pod.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

impl Volume {
    /// The claim that it uses in a pod of this name.
    pub(crate) fn claim(&self, pod: &str) -> Option<Cow<'_, str>> {
        let named = self.persistent_volume_claim.as_ref().map(|source| source.claim_name.as_str().into());
        named.or_else(|| self.ephemeral.as_ref().map(|_| format!("{pod}-{}", self.name).into()))
    }
}

impl Container {
    /// Whether an init container is a sidecar.
    pub(crate) fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

impl PodView {
    /// Decodes a pod's JSON.
    pub(crate) fn project(text: &str) -> Result<Self, serde_json::Error> {
        let mut pod: Self = serde_json::from_str(text)?;
        pod.metadata.annotations.remove(LAST_APPLIED);
        Ok(pod)
    }

    /// The watch that all controllers share.
    pub(crate) fn watch() -> WatchSpec<Self> {
        WatchSpec::projected(ApiKind::of::<Pod>(), Self::project)
            .index(claim::BY_CONTROLLER, claim::index_by_controller)
            .index(claim::BY_NAMESPACE, claim::index_by_namespace)
            .index(BY_NODE, |entry| entry.object.spec.node_name.iter().cloned().collect())
    }

    /// Whether deletion has begun.
    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether it has ended, well or not.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.status.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether it runs or will run.
    pub(crate) fn is_active(&self) -> bool {
        !self.is_terminal() && !self.is_deleting()
    }

    /// Whether it is being deleted and has not ended yet.
    pub(crate) fn is_terminating(&self) -> bool {
        !self.is_terminal() && self.is_deleting()
    }

    /// The condition of a type.
    pub(crate) fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether its condition `Ready` is true.
    pub(crate) fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|ready| ready.status == "True")
    }

    /// Since when it is ready.
    pub(crate) fn ready_since(&self) -> Option<Timestamp> {
        self.condition("Ready").filter(|ready| ready.status == "True")?.last_transition_time
    }

    /// Whether it has been ready for so many seconds; if not, when it will have been.
    pub(crate) fn availability(&self, min_ready_seconds: i32, now: Timestamp) -> Availability {
        if !self.is_ready() {
            return Availability::Unavailable;
        }
        if min_ready_seconds <= 0 {
            return Availability::Available;
        }
        let Some(since) = self.ready_since() else { return Availability::Unavailable };
        let due = since.saturating_add(SignedDuration::from_secs(min_ready_seconds.into())).unwrap_or(since);
        if due <= now { Availability::Available } else { Availability::From(due) }
    }

    /// Its conditions with one that says why it is about to be deleted.
    pub(crate) fn with_disruption(&self, reason: &str, message: &str, now: Timestamp) -> Vec<Condition> {
        let others = self.status.conditions.iter().filter(|condition| condition.type_ != DISRUPTION_TARGET);
        let target = Condition {
            type_: DISRUPTION_TARGET.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(crate::time::second(now).0),
            ..Condition::default()
        };
        others.cloned().chain([target]).collect()
    }

    /// Restarts of its containers: regular ones, and sidecars.
    pub(crate) fn restarts(&self) -> (i32, i32) {
        let sum = |statuses: &[ContainerStatus]| statuses.iter().map(|status| status.restart_count).sum();
        let is_sidecar = |name: &str| {
            self.spec.init_containers.iter().any(|container| container.name == name && container.is_sidecar())
        };
        let sidecars = self.status.init_container_statuses.iter().filter(|status| is_sidecar(&status.name));
        (sum(&self.status.container_statuses), sidecars.map(|status| status.restart_count).sum())
    }

    /// Whether it carries a finalizer.
    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.metadata.finalizers.iter().any(|finalizer| finalizer == name)
    }

    /// Its effective resource requests: the larger of what runs together and what any init container needs, with
    /// requests of the whole pod before those of its containers.
    pub(crate) fn requests(&self) -> BTreeMap<String, Quantity> {
        let requests = PodRequests {
            containers: self.spec.containers.iter().map(|container| &container.resources.requests).collect(),
            init_containers: self
                .spec
                .init_containers
                .iter()
                .map(|container| (&container.resources.requests, container.is_sidecar()))
                .collect(),
            pod: Some(&self.spec.resources.requests),
            overhead: Some(&self.spec.overhead),
        };
        requests.effective()
    }
}

/// Whether a pod is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It has been ready for long enough.
    Available,
    /// It is ready, and will be available from this time on.
    From(Timestamp),
    /// It is not ready.
    Unavailable,
}
