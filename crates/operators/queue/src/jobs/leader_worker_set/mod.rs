//! LeaderWorkerSets: a Workload for every group of a leader and its workers, whose pods join it after they were created.
//!
//! The pod group does the rest, as with StatefulSets. As `pkg/controller/jobs/leaderworkerset` of Kueue.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::cache::{Cache, Entry, Selector, WatchSpec};
use quintet_controller::{ApiKind, Controller, Error, NoCall, ObjectKey, Plan};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ancestors::{Ancestor, Ancestors, controller_of};
use super::observe::labels_of;
use super::priority::{MissingClass, Priority, PriorityClasses};
use super::stateful_set::PodHead;
use crate::settings::Settings;
use crate::watches::BY_OWNER;
use crate::{Context, watches};
pub(super) use plan::pod_sets;

pub(super) const KIND: &str = "LeaderWorkerSet";
pub(super) const GROUP: &str = "leaderworkerset.x-k8s.io";
pub(super) const VERSION: &str = "v1";
/// Label of pods and StatefulSets: their LeaderWorkerSet.
const NAME: &str = "leaderworkerset.sigs.k8s.io/name";
/// Pods and StatefulSets by LeaderWorkerSet.
const BY_SET: &str = "set";
/// LeaderWorkerSets by namespace.
const BY_NAMESPACE: &str = "namespace";

/// A LeaderWorkerSet, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LeaderWorkerSet {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

/// What is kept of the StatefulSets of a LeaderWorkerSet.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Revisions {
    metadata: ObjectMeta,
    #[serde(default)]
    status: RevisionStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RevisionStatus {
    current_revision: Option<String>,
    update_revision: Option<String>,
}

/// Everything a decision about a LeaderWorkerSet needs.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    set: Arc<Entry<LeaderWorkerSet>>,
    pods: Vec<Arc<Entry<PodHead>>>,
    /// Those of its StatefulSets whose pods are replaced: the revision that goes.
    outdated: BTreeMap<String, String>,
    workloads: Vec<Arc<Entry<Workload>>>,
    settings: Arc<Settings>,
    now: Timestamp,
    is_namespace_managed: bool,
    ancestor: Ancestor,
    /// Its priority; the error is the name of a class that does not exist.
    priority: Result<Priority, MissingClass>,
}

#[derive(Clone)]
struct LeaderWorkerSetCaches {
    roots: Cache<LeaderWorkerSet>,
    pods: Cache<PodHead>,
    stateful_sets: Cache<Revisions>,
    workloads: Cache<Workload>,
    namespaces: Cache<Namespace>,
    classes: PriorityClasses,
    ancestors: Ancestors,
}

struct LeaderWorkerSetController {
    context: Context,
    caches: LeaderWorkerSetCaches,
}

fn api_kind() -> ApiKind {
    ApiKind::namespaced(GROUP, VERSION, KIND, "leaderworkersets")
}

/// The key of a LeaderWorkerSet in indexes.
fn set_index(namespace: Option<&str>, name: &str) -> String {
    ObjectKey::new(namespace.unwrap_or_default(), name).to_string()
}

/// Adds the controller.
pub(super) fn add(context: &Context) -> Result<(), Error> {
    let watched = context.runtime.caches();
    let sets = WatchSpec::projected(api_kind(), |text| serde_json::from_str::<LeaderWorkerSet>(text))
        .optional()
        .index(BY_NAMESPACE, |entry| entry.key.namespace().map(str::to_owned).into_iter().collect());
    let pods = WatchSpec::projected(ApiKind::of::<Pod>(), |text| serde_json::from_str::<PodHead>(text))
        .select(Selector::all().has_label(NAME))
        .index(BY_SET, |entry| {
            let name = entry.object.label(NAME);
            name.map(|name| set_index(entry.key.namespace(), name)).into_iter().collect()
        });
    let stateful_sets =
        WatchSpec::projected(ApiKind::of::<StatefulSet>(), |text| serde_json::from_str::<Revisions>(text))
            .select(Selector::all().has_label(NAME))
            .index(BY_SET, |entry| {
                let labels = entry.object.metadata.labels.as_ref();
                let name = labels.and_then(|labels| labels.get(NAME));
                name.map(|name| set_index(entry.key.namespace(), name)).into_iter().collect()
            });
    let caches = LeaderWorkerSetCaches {
        roots: watched.watch(sets)?,
        pods: watched.watch(pods)?,
        stateful_sets: watched.watch(stateful_sets)?,
        workloads: watched.watch(watches::workloads())?,
        namespaces: watched.watch(WatchSpec::typed())?,
        classes: PriorityClasses::watch(watched)?,
        ancestors: Ancestors::watch(watched, &context.settings)?,
    };
    let of_key = |namespace: Option<&str>, name: &str| ObjectKey::new(namespace.unwrap_or_default(), name);
    let (roots, in_namespace) = (caches.roots.clone(), caches.roots.clone());
    let (pods, stateful_sets, workloads, namespaces) = (
        caches.pods.clone(),
        caches.stateful_sets.clone(),
        caches.workloads.clone(),
        caches.namespaces.clone(),
    );
    let controller = LeaderWorkerSetController { context: context.clone(), caches };
    context
        .runtime
        .add(controller, &roots, context.concurrency)
        .watches(&pods, move |entry| {
            let name = entry.object.label(NAME);
            name.map(|name| of_key(entry.key.namespace(), name)).into_iter().collect()
        })
        .watches(&stateful_sets, move |entry| {
            let labels = entry.object.metadata.labels.as_ref();
            let name = labels.and_then(|labels| labels.get(NAME));
            name.map(|name| of_key(entry.key.namespace(), name)).into_iter().collect()
        })
        .watches(&workloads, move |entry| {
            let owners = entry.object.metadata.owner_references.iter().flatten();
            let owners = owners.filter(|owner| owner.kind == KIND);
            owners.map(|owner| of_key(entry.key.namespace(), &owner.name)).collect()
        })
        .watches(&namespaces, move |entry| {
            let found = in_namespace.by_index(BY_NAMESPACE, entry.key.name());
            found.iter().map(|entry| entry.key.clone()).collect()
        })
        .done();
    Ok(())
}

impl LeaderWorkerSetCaches {
    fn observe(&self, key: &ObjectKey, settings: &Arc<Settings>, now: Timestamp) -> Option<Observed> {
        let set = self.roots.get(key)?;
        let namespace = key.namespace().unwrap_or_default();
        let labels =
            self.namespaces.get(&ObjectKey::cluster(namespace)).map(|entry| labels_of(&entry.object));
        let metadata = &set.object.metadata;
        let index = set_index(Some(namespace), key.name());
        let outdated = self.stateful_sets.by_index(BY_SET, &index).into_iter().filter_map(|entry| {
            let RevisionStatus { current_revision, update_revision } = &entry.object.status;
            let current = current_revision.clone().filter(|_| current_revision != update_revision)?;
            Some((entry.uid.to_string(), current))
        });
        let sets = pod_sets(&set.object.spec, settings).unwrap_or_default();
        Some(Observed {
            pods: self.pods.by_index(BY_SET, &index),
            outdated: outdated.collect(),
            workloads: self.workloads.by_index(BY_OWNER, set.uid.as_str()),
            is_namespace_managed: labels.is_some_and(|labels| settings.manages_namespace(&labels)),
            ancestor: self.ancestors.of(namespace, controller_of(metadata).as_ref(), settings),
            priority: self.classes.of(metadata, None, sets),
            settings: Arc::clone(settings),
            set,
            now,
        })
    }
}

impl Controller for LeaderWorkerSetController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "leaderworkerset.x-k8s.io/leaderworkerset-kueue-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Context { settings, clock, .. } = &self.context;
        Ok(self.caches.observe(key, settings, clock.now()))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }
}
