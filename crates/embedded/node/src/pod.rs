//! The projection of a pod that the cache keeps: a fraction of its size, since there may be many.

use std::collections::BTreeMap;

use jiff::Timestamp;
use quintet_api::Quantity;
use quintet_api::requests::PodRequests;
use serde::{Deserialize, Serialize};

pub use crate::options::Options;
pub use crate::status::{Condition, ContainerState, ContainerStatus, Running, Status, Terminated, Waiting};

/// A pod.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pod {
    /// Counts changes of the spec.
    pub generation: Option<i64>,
    /// When it was created; ties are broken by name.
    pub created: Option<Timestamp>,
    /// Being deleted: when it has to be gone, and how many seconds it got.
    pub deletion: Option<(Timestamp, i64)>,
    /// The options in its annotations.
    pub options: Options,
    /// The desired state.
    pub spec: Spec,
    /// The observed state.
    pub status: Status,
}

/// The spec of a pod.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "Kubernetes' own fields")]
pub struct Spec {
    pub node_name: Option<String>,
    pub restart_policy: RestartPolicy,
    pub active_deadline_seconds: Option<i64>,
    pub host_network: bool,
    pub scheduler_name: Option<String>,
    pub scheduling_gates: Vec<SchedulingGate>,
    pub node_selector: BTreeMap<String, String>,
    pub readiness_gates: Vec<ReadinessGate>,
    pub init_containers: Vec<Container>,
    pub containers: Vec<Container>,
    pub ephemeral_containers: Vec<Container>,
    pub overhead: BTreeMap<String, Quantity>,
}

/// What happens to containers that end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "Kubernetes' own words")]
pub enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

/// A reason not to schedule yet; which one does not matter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SchedulingGate {}

/// A condition without which the pod is not ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "Kubernetes' own fields")]
pub struct ReadinessGate {
    pub condition_type: String,
}

/// A container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "Kubernetes' own fields")]
pub struct Container {
    pub name: String,
    pub image: String,
    pub restart_policy: Option<RestartPolicy>,
    pub resources: Resources,
}

impl Container {
    /// Whether an init container is a sidecar.
    pub(crate) fn is_sidecar(&self) -> bool {
        self.restart_policy == Some(RestartPolicy::Always)
    }
}

/// The resource requirements of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "Kubernetes' own fields")]
pub struct Resources {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
}

impl Pod {
    /// Reads a pod's JSON.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Whole {
            metadata: Metadata,
            #[serde(default)]
            spec: Spec,
            #[serde(default)]
            status: Status,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            generation: Option<i64>,
            creation_timestamp: Option<Timestamp>,
            deletion_timestamp: Option<Timestamp>,
            deletion_grace_period_seconds: Option<i64>,
            #[serde(default)]
            annotations: BTreeMap<String, String>,
        }
        let Whole { metadata, spec, status } = serde_json::from_str(text)?;
        let grace = metadata.deletion_grace_period_seconds.unwrap_or_default();
        Ok(Self {
            generation: metadata.generation,
            created: metadata.creation_timestamp,
            deletion: metadata.deletion_timestamp.map(|at| (at, grace)),
            options: Options::read(&metadata.annotations),
            spec,
            status,
        })
    }

    /// Its effective resource requests: the larger of what runs together and what any init container needs.
    pub fn requests(&self) -> BTreeMap<String, Quantity> {
        let requests = PodRequests {
            containers: self.spec.containers.iter().map(|container| &container.resources.requests).collect(),
            init_containers: self
                .spec
                .init_containers
                .iter()
                .map(|container| (&container.resources.requests, container.is_sidecar()))
                .collect(),
            pod: None,
            overhead: Some(&self.spec.overhead),
        };
        let mut total = requests.effective();
        total.insert("pods".to_owned(), Quantity::from_units(1, quintet_api::quantity::Notation::DecimalSi));
        total
    }

    /// Whether it takes resources of its node.
    pub fn takes_room(&self) -> bool {
        self.spec.node_name.is_some() && !self.status.is_terminal()
    }
}
