//! Everything a decision about an AppWrapper needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use quintet_api::appwrapper::conditions::RESOURCES_DEPLOYED;
use quintet_api::appwrapper::{AppWrapper, AppWrapperComponentStatus, AppWrapperStatus, Phase};
use quintet_api::conditions;
use quintet_api::config::codeflare::AppWrapperConfiguration;
use quintet_api::job::JobConditions;
use quintet_controller::api::Api;
use quintet_controller::cache::{Cache, Entry, ObjectMetadata};
use quintet_controller::discovery::Discovery;
use quintet_controller::object::Uid;
use quintet_controller::{ApiKind, Class, Error, ObjectKey};
use serde::{Deserialize, Serialize};

use super::component::may_exist;
use super::objects;
use super::options::Options;
use super::pod_view::{BY_APP_WRAPPER, PodView};

/// What was observed of an AppWrapper and of what belongs to it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    pub(super) appwrapper: Arc<Entry<AppWrapper>>,
    pub(super) config: Arc<AppWrapperConfiguration>,
    pub(super) now: Timestamp,
    /// Its components, in order; empty where the decision does not depend on them.
    pub(super) components: Vec<ObservedComponent>,
    /// Pods that carry its label.
    pub(super) pods: Vec<Arc<Entry<PodView>>>,
    /// Nodes of its pods that have to be left, and the resources that are unhealthy there.
    pub(super) unhealthy_nodes: BTreeMap<String, BTreeSet<String>>,
}

/// What was observed of one component.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObservedComponent {
    /// Its kind, if the cluster serves it.
    pub(super) kind: Option<ApiKind>,
    /// Its name, which is the same for every attempt to create it.
    pub(super) name: String,
    /// The object of that name.
    pub(super) live: Live,
}

/// The object of the name of a component.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Live {
    /// There is none.
    Absent,
    /// The operator is not allowed to read it.
    Unreadable,
    /// It exists.
    Present(LiveObject),
}

/// What is kept of a component that exists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LiveObject {
    pub(super) uid: Uid,
    pub(super) deleting: bool,
    /// The uid of its controller, if it has one.
    pub(super) controller: Option<String>,
    /// Its own controller reports that it has failed; known of Jobs and PyTorchJobs.
    pub(super) has_failed: bool,
}

impl Observed {
    /// The status as it is.
    pub(super) fn status(&self) -> Option<&AppWrapperStatus> {
        self.appwrapper.object.status.as_ref()
    }

    /// Status of the components as it is.
    pub(super) fn component_status(&self) -> &[AppWrapperComponentStatus] {
        self.status().and_then(|status| status.component_status.as_deref()).unwrap_or_default()
    }

    pub(super) fn phase(&self) -> Option<Phase> {
        phase_of(&self.appwrapper.object)
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.appwrapper.object.spec.suspend.unwrap_or(false)
    }

    pub(super) fn options(&self) -> Options<'_> {
        Options {
            annotations: self.appwrapper.object.metadata.annotations.as_ref(),
            config: &self.config.fault_tolerance,
        }
    }

    /// Whether an object is one of this AppWrapper's: names do not count, they can be used again.
    pub(super) fn owns(&self, live: &LiveObject) -> bool {
        live.controller.as_deref() == Some(self.appwrapper.uid.as_str())
    }
}

fn phase_of(appwrapper: &AppWrapper) -> Option<Phase> {
    let phase = appwrapper.status.as_ref().and_then(|status| status.phase.as_deref());
    Phase::parse(phase.unwrap_or_default())
}

/// Whether a decision depends on the objects of the components.
fn depends_on_components(appwrapper: &AppWrapper) -> bool {
    let conditions = appwrapper.status.as_ref().and_then(|status| status.conditions.as_deref());
    let is_deployed = conditions::is_true(conditions.unwrap_or_default(), RESOURCES_DEPLOYED);
    is_deployed && !matches!(phase_of(appwrapper), Some(Phase::Empty | Phase::Suspended) | None)
}

/// The name of a component: the recorded one while its object may exist, and then that of the next attempt.
pub(super) fn name_of(appwrapper: &AppWrapper, number: usize) -> String {
    let status = appwrapper.status.as_ref();
    let recorded = status.and_then(|status| status.component_status.as_ref()?.get(number));
    let resets = status.and_then(|status| status.resetting_count).unwrap_or_default();
    recorded
        .filter(|component| may_exist(component))
        .map_or_else(|| objects::name_of(appwrapper, number, resets), |component| component.name.clone())
}

/// Where the controller looks.
pub(super) struct Sources {
    pub(super) api: Api,
    pub(super) discovery: Discovery,
    pub(super) appwrappers: Cache<AppWrapper>,
    pub(super) pods: Cache<PodView>,
    pub(super) nodes: Option<Cache<ObjectMetadata>>,
}

impl Sources {
    pub(super) async fn read(
        &self,
        key: &ObjectKey,
        config: &Arc<AppWrapperConfiguration>,
        now: Timestamp,
    ) -> Result<Option<Observed>, Error> {
        let Some(appwrapper) = self.appwrappers.get(key) else { return Ok(None) };
        let mut components = Vec::new();
        if depends_on_components(&appwrapper.object) {
            for number in 0..appwrapper.object.spec.components.len() {
                components.push(self.component(&appwrapper.object, number).await?);
            }
        }
        let pods = self.pods.by_index(BY_APP_WRAPPER, key.as_str());
        let unhealthy_nodes = self.unhealthy_nodes(&pods, config);
        Ok(Some(Observed { appwrapper, config: Arc::clone(config), now, components, pods, unhealthy_nodes }))
    }

    async fn component(&self, appwrapper: &AppWrapper, number: usize) -> Result<ObservedComponent, Error> {
        let name = name_of(appwrapper, number);
        let template = appwrapper.spec.components.get(number).map(|component| &component.template);
        let text = |field: &str| template.and_then(|template| template[field].as_str()).unwrap_or_default();
        let kind = self.discovery.find(text("apiVersion"), text("kind")).await?;
        let live = match &kind {
            Some(kind) if kind.namespaced => {
                let namespace = appwrapper.metadata.namespace.as_deref().unwrap_or_default();
                self.live(kind, &ObjectKey::new(namespace, &name)).await?
            }
            // What is not served does not exist, and cluster-scoped kinds are never created.
            _ => Live::Absent,
        };
        Ok(ObservedComponent { kind, name, live })
    }

    async fn live(&self, kind: &ApiKind, key: &ObjectKey) -> Result<Live, Error> {
        if key.name().is_empty() {
            return Ok(Live::Absent);
        }
        match self.api.get(kind, key).await {
            Ok(None) => Ok(Live::Absent),
            Ok(Some(text)) => decode(kind, key, &text).map(Live::Present),
            Err(error) if error.has_code(403) => Ok(Live::Unreadable),
            Err(error) => Err(error),
        }
    }

    /// Nodes of pods that carry a label that counts as `NoExecute`.
    fn unhealthy_nodes(
        &self,
        pods: &[Arc<Entry<PodView>>],
        config: &AppWrapperConfiguration,
    ) -> BTreeMap<String, BTreeSet<String>> {
        let Some(nodes) = &self.nodes else { return BTreeMap::new() };
        let names: BTreeSet<_> = pods.iter().map(|pod| &pod.object.node).collect();
        let unhealthy = names.into_iter().filter_map(|name| {
            let node = nodes.get(&ObjectKey::cluster(name))?;
            let resources = super::node_health::resources_to_leave(&node.object, config);
            (!resources.is_empty()).then(|| (name.to_string(), resources))
        });
        unhealthy.collect()
    }
}

fn decode(kind: &ApiKind, key: &ObjectKey, text: &str) -> Result<LiveObject, Error> {
    #[derive(Deserialize)]
    struct Raw {
        metadata: Metadata,
        #[serde(default)]
        status: Option<serde_json::Value>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        uid: Uid,
        deletion_timestamp: Option<String>,
        #[serde(default)]
        owner_references: Vec<Owner>,
    }
    #[derive(Deserialize)]
    struct Owner {
        uid: String,
        #[serde(default)]
        controller: bool,
    }
    let wrong = |error: serde_json::Error| {
        Error::new(Class::Transient, format!("cannot decode {kind} {key}"), error.to_string())
    };
    let Raw { metadata, status } = serde_json::from_str(text).map_err(wrong)?;
    let reports_failure = matches!(
        (&*kind.group, &*kind.version, &*kind.kind),
        ("batch", "v1", "Job") | ("kubeflow.org", "v1", "PyTorchJob")
    );
    let conditions = status.filter(|_| reports_failure).map(|mut status| status["conditions"].take());
    let conditions = conditions.filter(|conditions| !conditions.is_null());
    let conditions = conditions.map(serde_json::from_value::<JobConditions>).transpose().map_err(wrong)?;
    Ok(LiveObject {
        uid: metadata.uid,
        deleting: metadata.deletion_timestamp.is_some(),
        controller: metadata
            .owner_references
            .into_iter()
            .find(|owner| owner.controller)
            .map(|owner| owner.uid),
        has_failed: conditions.is_some_and(|conditions| conditions.has_failed()),
    })
}
