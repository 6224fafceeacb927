//! StatefulSets: a Workload for all pods, which join its group after they were created.
//!
//! The group does the rest: its pods are started and stopped as those of any other. As
//! `pkg/controller/jobs/statefulset` of Kueue.

mod plan;
mod pod;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::reasons::QuotaReservedReason;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::cache::{Cache, Entry, Selector, WatchSpec};
use quintet_controller::{ApiKind, Controller, Error, NoCall, ObjectKey, Plan};
use serde::{Deserialize, Serialize};

use super::ancestors::{Ancestor, Ancestors, controller_of};
use super::compose;
use super::lifecycle::find;
use super::observe::labels_of;
use super::priority::{MissingClass, Priority, PriorityClasses};
use crate::settings::Settings;
use crate::{Context, watches};
pub(super) use pod::PodHead;

const KIND: &str = "StatefulSet";
const GROUP: &str = "apps";
/// Label that the StatefulSet controller gives to all pods.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Pods by the uid of their StatefulSet.
const BY_OWNER: &str = "owner";
/// StatefulSets by namespace.
const BY_NAMESPACE: &str = "namespace";

/// Everything a decision about a StatefulSet needs.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    stateful_set: Arc<Entry<StatefulSet>>,
    pods: Vec<Arc<Entry<PodHead>>>,
    /// What its Workload is called.
    name: String,
    workload: Option<Arc<Entry<Workload>>>,
    settings: Arc<Settings>,
    now: Timestamp,
    is_namespace_managed: bool,
    ancestor: Ancestor,
    /// Its priority; the error is the name of a class that does not exist.
    priority: Result<Priority, MissingClass>,
}

#[derive(Clone)]
struct StatefulSetCaches {
    stateful_sets: Cache<StatefulSet>,
    pods: Cache<PodHead>,
    workloads: Cache<Workload>,
    namespaces: Cache<Namespace>,
    classes: PriorityClasses,
    ancestors: Ancestors,
}

struct StatefulSetController {
    context: Context,
    caches: StatefulSetCaches,
}

/// The names that the Workload of a StatefulSet may have, the one of today first. Older ones did not depend on its uid.
pub(super) fn workload_names(name: &str, uid: &str, settings: &Settings) -> [String; 2] {
    [uid, ""].map(|uid| compose::workload_name(KIND, GROUP, name, uid, settings))
}

/// Whether a Workload waits until its StatefulSet has pods again.
pub(super) fn is_on_hold(workload: &Workload) -> bool {
    find(workload, WorkloadCondition::QuotaReserved)
        .is_some_and(|own| own.status == "False" && own.reason == QuotaReservedReason::OnHold.as_str())
}

/// Adds the controller.
pub(super) fn add(context: &Context) -> Result<(), Error> {
    let watched = context.runtime.caches();
    let stateful_sets = WatchSpec::<StatefulSet>::typed()
        .index(BY_NAMESPACE, |entry| entry.key.namespace().map(str::to_owned).into_iter().collect());
    let pods = WatchSpec::projected(ApiKind::of::<Pod>(), |text| serde_json::from_str::<PodHead>(text))
        .select(Selector::all().has_label(POD_NAME))
        .index(BY_OWNER, |entry| {
            entry.object.owner().map(|owner| owner.uid.to_string()).into_iter().collect()
        });
    let caches = StatefulSetCaches {
        stateful_sets: watched.watch(stateful_sets)?,
        pods: watched.watch(pods)?,
        workloads: watched.watch(watches::workloads())?,
        namespaces: watched.watch(WatchSpec::typed())?,
        classes: PriorityClasses::watch(watched)?,
        ancestors: Ancestors::watch(watched, &context.settings)?,
    };
    let (roots, in_namespace) = (caches.stateful_sets.clone(), caches.stateful_sets.clone());
    let (pods, workloads, namespaces) =
        (caches.pods.clone(), caches.workloads.clone(), caches.namespaces.clone());
    let controller = StatefulSetController { context: context.clone(), caches };
    context
        .runtime
        .add(controller, &roots, context.concurrency)
        .watches(&pods, |entry| {
            let owner = entry.object.owner().map(|owner| owner.name.to_string());
            let namespace = entry.key.namespace().unwrap_or_default();
            owner.map(|name| ObjectKey::new(namespace, &name)).into_iter().collect()
        })
        .watches(&workloads, |entry| {
            let namespace = entry.key.namespace().unwrap_or_default();
            let owners = entry.object.metadata.owner_references.iter().flatten();
            let owners = owners.filter(|owner| owner.kind == KIND);
            owners.map(|owner| ObjectKey::new(namespace, &owner.name)).collect()
        })
        .watches(&namespaces, move |entry| {
            let found = in_namespace.by_index(BY_NAMESPACE, entry.key.name());
            found.iter().map(|entry| entry.key.clone()).collect()
        })
        .done();
    Ok(())
}

impl StatefulSetCaches {
    fn observe(&self, key: &ObjectKey, settings: &Arc<Settings>, now: Timestamp) -> Option<Observed> {
        let stateful_set = self.stateful_sets.get(key)?;
        let namespace = key.namespace().unwrap_or_default();
        let names = workload_names(key.name(), stateful_set.uid.as_str(), settings);
        let found = names
            .iter()
            .find_map(|name| Some((name.clone(), self.workloads.get(&ObjectKey::new(namespace, name))?)));
        let [current, _] = names;
        let (name, workload) = found.map_or((current, None), |(name, entry)| (name, Some(entry)));
        let labels =
            self.namespaces.get(&ObjectKey::cluster(namespace)).map(|entry| labels_of(&entry.object));
        let metadata = &stateful_set.object.metadata;
        Some(Observed {
            pods: self.pods.by_index(BY_OWNER, stateful_set.uid.as_str()),
            is_namespace_managed: labels.is_some_and(|labels| settings.manages_namespace(&labels)),
            ancestor: self.ancestors.of(namespace, controller_of(metadata).as_ref(), settings),
            priority: self.classes.of(metadata, None, plan::pod_set(&stateful_set.object, settings)),
            settings: Arc::clone(settings),
            stateful_set,
            name,
            workload,
            now,
        })
    }
}

impl Controller for StatefulSetController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "statefulset-kueue-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Context { settings, clock, .. } = &self.context;
        Ok(self.caches.observe(key, settings, clock.now()))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }
}
