//! What is kept of the pods of registries and the catalog.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use quintet_controller::ApiKind;
use quintet_controller::cache::{Entry, Selector, WatchSpec};
use serde::{Deserialize, Serialize};

/// Index: by namespace and label `app`.
pub(crate) const BY_APP: &str = "app";

/// Pods of a component.
pub(crate) fn pods(component: &str) -> WatchSpec<PodView> {
    WatchSpec::projected(ApiKind::of::<Pod>(), PodView::project)
        .select(Selector::all().label("component", component))
        .index(BY_APP, |pod| vec![app_of(pod)])
}

/// The key of a pod in the index [`BY_APP`].
fn app_of(pod: &Entry<PodView>) -> String {
    app_key(pod.key.namespace().unwrap_or_default(), &pod.object.app)
}

/// The key of an app in the index [`BY_APP`].
pub(crate) fn app_key(namespace: &str, app: &str) -> String {
    format!("{namespace}/{app}")
}

/// How far a pod is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodView {
    /// The label `app`.
    pub(crate) app: String,
    /// The label `app.kubernetes.io/name`.
    pub(crate) name: String,
    /// How many containers it has.
    pub(crate) containers: usize,
    /// What is known of them.
    pub(crate) statuses: Vec<ContainerView>,
    /// Why it is not ready, if its condition says so: reason and message.
    pub(crate) unready: Option<Why>,
}

/// How far a container is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerView {
    pub(crate) name: String,
    pub(crate) ready: bool,
    pub(crate) state: ContainerState,
}

/// Why a container does not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerState {
    pub(crate) waiting: Option<Why>,
    pub(crate) terminated: Option<Why>,
}

/// A reason and a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Why {
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl ContainerView {
    /// What the container waits for, unless it is only being created.
    pub(crate) fn trouble(&self) -> Option<&Why> {
        let waiting = self.state.waiting.as_ref().filter(|_| !self.ready)?;
        (waiting.reason != "ContainerCreating").then_some(waiting)
    }
}

impl PodView {
    /// What is kept of a pod.
    pub(crate) fn project(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: Metadata,
            #[serde(default)]
            spec: Spec,
            #[serde(default)]
            status: Status,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default)]
            labels: BTreeMap<String, String>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Spec {
            containers: Vec<serde::de::IgnoredAny>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Status {
            container_statuses: Vec<ContainerView>,
            conditions: Vec<Condition>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Condition {
            #[serde(rename = "type")]
            type_: String,
            status: String,
            #[serde(flatten)]
            why: Why,
        }
        let Raw { mut metadata, spec, status } = serde_json::from_str(text)?;
        let mut label = |name: &str| metadata.labels.remove(name).unwrap_or_default();
        let is_unready = |condition: &Condition| condition.type_ == "Ready" && condition.status == "False";
        Ok(Self {
            app: label("app"),
            name: label("app.kubernetes.io/name"),
            containers: spec.containers.len(),
            statuses: status.container_statuses,
            unready: status.conditions.into_iter().find(is_unready).map(|condition| condition.why),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_tells_why_it_is_not_ready() {
        let pod = json!({
            "metadata": {"labels": {"app": "a", "app.kubernetes.io/name": "a-postgres"}},
            "spec": {"containers": [{"name": "x"}, {"name": "y"}]},
            "status": {
                "containerStatuses": [
                    {"name": "x", "ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}},
                    {"name": "y", "ready": false, "state": {"waiting": {"reason": "ContainerCreating"}}},
                ],
                "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
            },
        });
        let view = PodView::project(&pod.to_string()).unwrap();
        assert_eq!((view.app.as_str(), view.name.as_str(), view.containers), ("a", "a-postgres", 2));
        let troubles: Vec<_> = view.statuses.iter().filter_map(ContainerView::trouble).collect();
        assert_eq!(troubles.len(), 1);
        assert_eq!(view.unready.unwrap().reason, "ContainersNotReady");
    }
}
