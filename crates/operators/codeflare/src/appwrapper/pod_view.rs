//! What is kept of the pods of AppWrappers.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use quintet_api::appwrapper::metadata::APP_WRAPPER;
use quintet_controller::cache::{Entry, Selector, WatchSpec};
use quintet_controller::{ApiKind, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::objects::container_uses;

/// Index: by `namespace/name` of the AppWrapper.
pub(super) const BY_APP_WRAPPER: &str = "appwrapper";
/// Index: by node.
pub(super) const BY_NODE: &str = "node";

/// Pods of AppWrappers.
pub(super) fn pods() -> WatchSpec<PodView> {
    WatchSpec::projected(ApiKind::of::<Pod>(), PodView::project)
        .select(Selector::all().has_label(APP_WRAPPER))
        .index(BY_APP_WRAPPER, |pod| {
            appwrapper_of(pod).map(|key| key.as_str().to_owned()).into_iter().collect()
        })
        .index(BY_NODE, |pod| vec![pod.object.node.to_string()])
}

/// The AppWrapper of a pod.
pub(super) fn appwrapper_of(pod: &Entry<PodView>) -> Option<ObjectKey> {
    Some(ObjectKey::new(pod.key.namespace()?, &pod.object.appwrapper))
}

/// What is kept of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodView {
    /// The AppWrapper of its label.
    pub(super) appwrapper: Box<str>,
    pub(super) phase: PodPhase,
    /// Where it runs, or empty.
    pub(super) node: Box<str>,
    /// Exit codes of containers that have ended.
    pub(super) exit_codes: Vec<i32>,
    /// Resources that its containers ask for.
    pub(super) resources: BTreeSet<Box<str>>,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum PodPhase {
    /// Not all of its containers have started.
    #[default]
    Pending,
    /// It runs.
    Running,
    /// All containers have ended well.
    Succeeded,
    /// All containers have ended, not all well.
    Failed,
    /// The node does not say.
    #[serde(other)]
    Unknown,
}

impl PodView {
    /// What is kept of a pod.
    fn project(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: Metadata,
            spec: Spec,
            #[serde(default)]
            status: Status,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default)]
            labels: BTreeMap<String, String>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            #[serde(default)]
            node_name: Box<str>,
            #[serde(default)]
            containers: Vec<Value>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Status {
            phase: PodPhase,
            container_statuses: Vec<Container>,
        }
        #[derive(Deserialize)]
        struct Container {
            #[serde(default)]
            state: State,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct State {
            terminated: Option<Terminated>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Terminated {
            exit_code: i32,
        }
        let Raw { mut metadata, spec, status } = serde_json::from_str(text)?;
        let ended = status.container_statuses.into_iter().filter_map(|container| container.state.terminated);
        Ok(Self {
            appwrapper: metadata.labels.remove(APP_WRAPPER).unwrap_or_default().into(),
            phase: status.phase,
            node: spec.node_name,
            exit_codes: ended.map(|ended| ended.exit_code).collect(),
            resources: spec.containers.iter().flat_map(resources_of).collect(),
        })
    }
}

/// Resources that a container asks for.
fn resources_of(container: &Value) -> Vec<Box<str>> {
    let lists =
        ["requests", "limits"].into_iter().filter_map(|list| container["resources"][list].as_object());
    let names = lists.flat_map(|list| list.keys());
    names.filter(|name| container_uses(container, name)).map(|name| name.as_str().into()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_tells_its_appwrapper_codes_and_resources() {
        let pod = json!({
            "metadata": {"labels": {APP_WRAPPER: "w"}},
            "spec": {"nodeName": "n", "containers": [
                {"resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "0"}}},
            ]},
            "status": {"phase": "Failed", "containerStatuses": [
                {"state": {"terminated": {"exitCode": 3}}}, {"state": {"running": {}}},
            ]},
        });
        let view = PodView::project(&pod.to_string()).unwrap();
        assert_eq!((&*view.appwrapper, view.phase, &*view.node), ("w", PodPhase::Failed, "n"));
        assert_eq!(view.exit_codes, [3]);
        assert_eq!(view.resources, BTreeSet::from(["nvidia.com/gpu".into()]));
        let lost = json!({"metadata": {}, "spec": {}, "status": {"phase": "Unknown"}});
        assert_eq!(PodView::project(&lost.to_string()).unwrap().phase, PodPhase::Unknown);
    }
}
