//! What is kept of a pod: enough to decide, a tenth of the whole.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::labels;

/// A pod of a Ray cluster, as the operator sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations about the operator that made it.
    pub annotations: BTreeMap<String, String>,
    /// UID of the object that controls it.
    pub controller: Option<Box<str>>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Where it is in its life.
    pub phase: Phase,
    /// Condition `Ready`, if the kubelet has set it.
    pub ready: Option<Readiness>,
    /// Its address, or empty.
    pub ip: Box<str>,
    /// Whether its containers start again once they are down.
    pub restart_policy: RestartPolicy,
    /// Its containers in the order of its spec; the first one runs Ray.
    pub containers: Vec<ContainerView>,
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum Phase {
    /// Not all containers run yet.
    #[default]
    Pending,
    /// Bound to a node, with at least one container running.
    Running,
    /// All containers have ended well.
    Succeeded,
    /// All containers have ended, one of them badly; or the pod was evicted.
    Failed,
    /// The node does not answer.
    #[serde(other)]
    Unknown,
}

impl Phase {
    /// Whether the kubelet starts nothing of it again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// When the kubelet starts containers of a pod again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum RestartPolicy {
    /// Whenever they have ended.
    #[default]
    Always,
    /// When they have ended badly.
    OnFailure,
    /// Not at all.
    Never,
}

/// What a pod's condition `Ready` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// Whether it holds.
    pub holds: bool,
    /// One word about why; may be empty.
    pub reason: Box<str>,
    /// A sentence about it; may be empty.
    pub message: Box<str>,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerView {
    /// Its name.
    pub name: Box<str>,
    /// Named ports.
    pub ports: Vec<(Box<str>, i32)>,
    /// What it does now.
    pub state: ContainerState,
    /// How often it was restarted.
    pub restarts: i32,
    /// Whether an earlier life of it has ended.
    pub ended_before: bool,
}

/// What a container does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ContainerState {
    /// Nothing is known.
    #[default]
    Unknown,
    /// It waits, for this reason.
    Waiting {
        /// One word about why.
        reason: Box<str>,
        /// A sentence about it.
        message: Box<str>,
    },
    /// It runs.
    Running,
    /// It has ended.
    Terminated {
        /// Exit code of its process.
        exit_code: i32,
        /// One word about why.
        reason: Box<str>,
        /// A sentence about it.
        message: Box<str>,
        /// When it ended.
        finished_at: Option<Timestamp>,
    },
}

impl PodView {
    /// Whether it is the head of its cluster.
    pub fn is_head(&self) -> bool {
        self.label(labels::NODE_TYPE) == labels::HEAD
    }

    /// Whether it is a worker of its cluster.
    pub fn is_worker(&self) -> bool {
        self.label(labels::NODE_TYPE) == labels::WORKER
    }

    /// The value of a label, or empty.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    /// Whether it runs and its condition `Ready` holds.
    pub fn is_running_and_ready(&self) -> bool {
        self.phase == Phase::Running && self.ready.as_ref().is_some_and(|ready| ready.holds)
    }

    /// Whether it runs and does not say that it is not ready: a pod whose kubelet has not spoken counts.
    pub fn runs_and_does_not_complain(&self) -> bool {
        self.phase == Phase::Running && self.ready.as_ref().is_none_or(|ready| ready.holds)
    }

    /// A container by name.
    pub fn container(&self, name: &str) -> Option<&ContainerView> {
        self.containers.iter().find(|container| &*container.name == name)
    }

    /// The number of a named port of the container that runs Ray.
    pub fn ray_port(&self, name: &str) -> Option<i32> {
        let ports = &self.containers.first()?.ports;
        ports.iter().find(|(port, _)| &**port == name).map(|(_, number)| *number)
    }

    /// Reads a pod's JSON.
    pub fn project(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<raw::Pod>(text).map(Into::into)
    }
}

/// The shape of a pod on the wire, with nothing that is not needed.
mod raw {
    use super::{BTreeMap, Deserialize, Phase, RestartPolicy, Timestamp};

    #[derive(Deserialize)]
    pub(super) struct Pod {
        pub(super) metadata: Metadata,
        #[serde(default)]
        pub(super) spec: Spec,
        #[serde(default)]
        pub(super) status: Status,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Metadata {
        #[serde(default)]
        pub(super) labels: BTreeMap<String, String>,
        #[serde(default)]
        pub(super) annotations: BTreeMap<String, String>,
        #[serde(default)]
        pub(super) owner_references: Vec<Owner>,
        pub(super) creation_timestamp: Option<Timestamp>,
    }

    #[derive(Deserialize)]
    pub(super) struct Owner {
        pub(super) uid: Box<str>,
        #[serde(default)]
        pub(super) controller: bool,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Spec {
        pub(super) restart_policy: Option<RestartPolicy>,
        pub(super) containers: Vec<Container>,
    }

    #[derive(Deserialize)]
    pub(super) struct Container {
        pub(super) name: Box<str>,
        #[serde(default)]
        pub(super) ports: Vec<Port>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Port {
        pub(super) name: Option<Box<str>>,
        pub(super) container_port: i32,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Status {
        pub(super) phase: Phase,
        #[serde(rename = "podIP")]
        pub(super) pod_ip: Box<str>,
        pub(super) conditions: Vec<Condition>,
        pub(super) container_statuses: Vec<ContainerStatus>,
    }

    #[derive(Deserialize)]
    pub(super) struct Condition {
        #[serde(rename = "type")]
        pub(super) type_: Box<str>,
        pub(super) status: Box<str>,
        #[serde(default)]
        pub(super) reason: Box<str>,
        #[serde(default)]
        pub(super) message: Box<str>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct ContainerStatus {
        pub(super) name: Box<str>,
        #[serde(default)]
        pub(super) restart_count: i32,
        #[serde(default)]
        pub(super) state: State,
        #[serde(default)]
        pub(super) last_state: State,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct State {
        pub(super) waiting: Option<Waiting>,
        pub(super) running: Option<serde::de::IgnoredAny>,
        pub(super) terminated: Option<Terminated>,
    }

    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    pub(super) struct Waiting {
        pub(super) reason: Box<str>,
        pub(super) message: Box<str>,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Terminated {
        pub(super) exit_code: i32,
        pub(super) reason: Box<str>,
        pub(super) message: Box<str>,
        pub(super) finished_at: Option<Timestamp>,
    }
}

/// Annotations worth keeping.
const ANNOTATIONS: [&str; 3] = [labels::RECREATE_HASH, labels::OPERATOR_VERSION, labels::FT_ENABLED];

impl From<raw::Pod> for PodView {
    fn from(pod: raw::Pod) -> Self {
        let raw::Pod { metadata, spec, mut status } = pod;
        let mut annotations = metadata.annotations;
        annotations.retain(|name, _| ANNOTATIONS.contains(&name.as_str()));
        let ready = status.conditions.into_iter().find(|condition| &*condition.type_ == "Ready");
        let containers = spec.containers.into_iter().map(|container| {
            let at = status.container_statuses.iter().position(|status| status.name == container.name);
            let status = at.map(|at| status.container_statuses.swap_remove(at));
            ContainerView::new(container, status)
        });
        Self {
            labels: metadata.labels,
            annotations,
            controller: metadata
                .owner_references
                .into_iter()
                .find(|owner| owner.controller)
                .map(|owner| owner.uid),
            created: metadata.creation_timestamp,
            phase: status.phase,
            ready: ready.map(|ready| Readiness {
                holds: &*ready.status == "True",
                reason: ready.reason,
                message: ready.message,
            }),
            ip: status.pod_ip,
            restart_policy: spec.restart_policy.unwrap_or_default(),
            containers: containers.collect(),
        }
    }
}

impl ContainerView {
    fn new(spec: raw::Container, status: Option<raw::ContainerStatus>) -> Self {
        let named = |port: raw::Port| Some((port.name?, port.container_port));
        let ports = spec.ports.into_iter().filter_map(named).collect();
        let Some(status) = status else {
            return Self { name: spec.name, ports, ..Self::default() };
        };
        Self {
            name: spec.name,
            ports,
            state: status.state.into(),
            restarts: status.restart_count,
            ended_before: status.last_state.terminated.is_some(),
        }
    }
}

impl From<raw::State> for ContainerState {
    fn from(state: raw::State) -> Self {
        match state {
            raw::State { terminated: Some(ended), .. } => Self::Terminated {
                exit_code: ended.exit_code,
                reason: ended.reason,
                message: ended.message,
                finished_at: ended.finished_at,
            },
            raw::State { waiting: Some(waiting), .. } => {
                Self::Waiting { reason: waiting.reason, message: waiting.message }
            }
            raw::State { running: Some(_), .. } => Self::Running,
            raw::State { .. } => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_reduced_to_what_decisions_need() {
        let pod = json!({
            "metadata": {
                "name": "a", "labels": {"ray.io/node-type": "head"},
                "annotations": {"ray.io/kuberay-version": "1", "other": "x"},
                "ownerReferences": [{"uid": "u", "controller": true}],
            },
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "ray", "ports": [{"name": "serve", "containerPort": 8000}, {"containerPort": 1}]},
                    {"name": "side"},
                ],
            },
            "status": {
                "phase": "Running", "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
                "containerStatuses": [
                    {"name": "side", "state": {"running": {}}},
                    {"name": "ray", "restartCount": 2, "lastState": {"terminated": {"exitCode": 1}},
                     "state": {"terminated": {"exitCode": 7, "reason": "Error",
                                              "finishedAt": "2026-01-01T00:00:00Z"}}},
                ],
            },
        });
        let view = PodView::project(&pod.to_string()).unwrap();
        assert!(view.is_head() && !view.is_worker() && view.restart_policy == RestartPolicy::Never);
        assert!(!view.is_running_and_ready() && !view.runs_and_does_not_complain());
        assert_eq!(view.annotations.len(), 1);
        assert_eq!(view.controller.as_deref(), Some("u"));
        assert_eq!(view.ray_port("serve"), Some(8000));
        let ray = view.container("ray").unwrap();
        assert!(ray.ended_before && ray.restarts == 2);
        assert!(matches!(&ray.state, ContainerState::Terminated { exit_code: 7, finished_at: Some(_), .. }));
        assert_eq!(view.container("side").unwrap().state, ContainerState::Running);
    }

    #[test]
    fn a_pod_that_nobody_has_spoken_of_is_pending() {
        let view = PodView::project(r#"{"metadata": {"name": "a"}}"#).unwrap();
        assert_eq!(view, PodView::default());
        let strange = r#"{"metadata": {}, "status": {"phase": "Odd", "conditions": null}}"#;
        assert!(PodView::project(strange).is_err(), "null lists are not sent by any API server");
    }
}
