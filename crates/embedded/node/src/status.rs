//! The part of a pod's status that its node writes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use quintet_api::Quantity;
use serde::{Deserialize, Serialize};

use crate::pod::Resources;

/// The part of a pod's status that its node writes, and conditions of others, which it keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "Kubernetes' own fields")]
pub struct Status {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(rename = "hostIP", skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<String>,
    #[serde(rename = "hostIPs", skip_serializing_if = "Vec::is_empty")]
    pub host_ips: Vec<Address>,
    #[serde(rename = "podIP", skip_serializing_if = "Option::is_none")]
    pub pod_ip: Option<String>,
    #[serde(rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    pub pod_ips: Vec<Address>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
}

/// An IP address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub ip: String,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "Kubernetes' own fields")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
}

/// The status of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "Kubernetes' own fields")]
pub struct ContainerStatus {
    pub name: String,
    pub image: String,
    #[serde(rename = "imageID")]
    pub image_id: String,
    #[serde(rename = "containerID", skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    pub ready: bool,
    pub started: bool,
    pub restart_count: i32,
    pub state: ContainerState,
    #[serde(skip_serializing_if = "ContainerState::is_nothing")]
    pub last_state: ContainerState,
    /// The requests that the node has granted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated_resources: BTreeMap<String, Quantity>,
    /// The resources of the running container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// One of three states; none of them when nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "Kubernetes' own fields")]
pub struct ContainerState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated: Option<Terminated>,
}

/// Waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "Kubernetes' own fields")]
pub struct Waiting {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "Kubernetes' own fields")]
pub struct Running {
    pub started_at: Timestamp,
}

/// Terminated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "Kubernetes' own fields")]
pub struct Terminated {
    pub exit_code: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

impl ContainerState {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn waiting(reason: &str, message: Option<String>) -> Self {
        let waiting = Waiting { reason: Some(reason.to_owned()), message };
        Self { waiting: Some(waiting), ..Self::default() }
    }

    pub(crate) fn running(started_at: Timestamp) -> Self {
        Self { running: Some(Running { started_at }), ..Self::default() }
    }

    pub(crate) fn terminated(exit_code: i32, started_at: Option<Timestamp>, finished_at: Timestamp) -> Self {
        let reason = if exit_code == 0 { "Completed" } else { "Error" };
        let terminated = Terminated {
            exit_code,
            reason: Some(reason.to_owned()),
            started_at,
            finished_at: Some(finished_at),
        };
        Self { terminated: Some(terminated), ..Self::default() }
    }
}

impl ContainerStatus {
    /// Terminates it if it runs.
    pub(crate) fn end(&mut self, exit_code: i32, now: Timestamp) {
        if let Some(running) = &self.state.running {
            self.state = ContainerState::terminated(exit_code, Some(running.started_at), now);
        }
        (self.ready, self.started) = (false, false);
    }
}

impl Status {
    /// Whether nothing of the pod will ever run again.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// Whether a condition is true.
    pub(crate) fn is_true(&self, kind: &str) -> bool {
        self.conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
    }

    /// Sets a condition; it keeps its time while it keeps its status.
    pub(crate) fn set(
        &mut self,
        kind: &str,
        holds: bool,
        why: Option<(&str, Option<String>)>,
        now: Timestamp,
    ) {
        let status = if holds { "True" } else { "False" };
        let index =
            self.conditions.iter().position(|condition| condition.kind == kind).unwrap_or_else(|| {
                self.conditions.push(Condition { kind: kind.to_owned(), ..Condition::default() });
                self.conditions.len() - 1
            });
        let observed_generation = self.observed_generation;
        if let Some(condition) = self.conditions.get_mut(index) {
            if condition.status != status {
                status.clone_into(&mut condition.status);
                condition.last_transition_time = Some(now);
            }
            condition.observed_generation = observed_generation;
            condition.reason = why.as_ref().map(|(reason, _)| (*reason).to_owned());
            condition.message = why.and_then(|(_, message)| message);
        }
    }
}
