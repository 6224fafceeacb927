//! Groups of pods: one Workload for all of them, named as the group is.

mod compose;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use quintet_api::kueue::metadata::{ADMISSION_GATE, IS_GROUP_WORKLOAD, POD_GROUP_NAME, WORKLOAD};
use quintet_api::kueue::v1beta2::{ResourceFlavor, Workload};
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{Controller, Error, NoCall, ObjectKey, Plan};
use serde::{Deserialize, Serialize};

use super::super::JobKind;
use super::super::compose::{annotation, label};
use super::super::observe::{flavors_of, labels_of};
use super::super::priority::{MissingClass, Priority, PriorityClasses};
use super::members::Member;
use super::{group_of, is_gated, pod_set};
use crate::settings::Settings;
use crate::{Context, watches};
pub(super) use plan::plan;

/// Pods by the group that they name.
const BY_GROUP: &str = "group";
/// Pods by namespace.
const BY_NAMESPACE: &str = "namespace";

/// Everything a decision about a group needs.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObservedGroup {
    /// Namespace and name, those of its Workload, too.
    pub(super) key: ObjectKey,
    pub(super) pods: Vec<Member>,
    pub(super) workload: Option<Arc<Entry<Workload>>>,
    pub(super) settings: Arc<Settings>,
    pub(super) now: Timestamp,
    pub(super) is_namespace_managed: bool,
    /// Its priority.
    pub(super) priority: Result<Priority, MissingClass>,
    pub(super) flavors: BTreeMap<String, ResourceFlavor>,
}

#[derive(Clone)]
struct GroupCaches {
    pods: Cache<Pod>,
    workloads: Cache<Workload>,
    namespaces: Cache<Namespace>,
    flavors: Cache<ResourceFlavor>,
    classes: PriorityClasses,
}

struct GroupController {
    context: Context,
    caches: GroupCaches,
}

/// Adds the controller of groups. Its roots are Workloads, whether they exist yet or not.
pub(in super::super) fn add_groups(context: &Context) -> Result<(), Error> {
    let watched = context.runtime.caches();
    let pods = WatchSpec::<Pod>::typed()
        .select(Pod::selector())
        .index(BY_GROUP, |entry| {
            let metadata = &entry.object.metadata;
            let names = [annotation(metadata, POD_GROUP_NAME), label(metadata, POD_GROUP_NAME)];
            let namespace = entry.key.namespace().unwrap_or_default();
            names.into_iter().flatten().map(|name| ObjectKey::new(namespace, name).to_string()).collect()
        })
        .index(BY_NAMESPACE, |entry| entry.key.namespace().map(str::to_owned).into_iter().collect());
    let caches = GroupCaches {
        pods: watched.watch(pods)?,
        workloads: watched.watch(watches::workloads())?,
        namespaces: watched.watch(WatchSpec::typed())?,
        flavors: watched.watch(watches::resource_flavors())?,
        classes: PriorityClasses::watch(watched)?,
    };
    let (pods, workloads, namespaces) =
        (caches.pods.clone(), caches.workloads.clone(), caches.namespaces.clone());
    let (of_pod, of_namespace) = (Arc::clone(&context.settings), Arc::clone(&context.settings));
    let in_namespace = caches.pods.clone();
    count_ungated(context, &caches);
    let controller = GroupController { context: context.clone(), caches };
    context
        .runtime
        .add(controller, &workloads, context.concurrency)
        .watches(&pods, move |entry| group_key(entry, &of_pod).into_iter().collect())
        .watches(&namespaces, move |entry| {
            let pods = in_namespace.by_index(BY_NAMESPACE, entry.key.name());
            pods.iter().filter_map(|pod| group_key(pod, &of_namespace)).collect()
        })
        .done();
    Ok(())
}

/// Counts how long pods wait for their gate to be removed.
fn count_ungated(context: &Context, caches: &GroupCaches) {
    let Context { metrics, settings, clock, .. } = context.clone();
    let workloads = caches.workloads.clone();
    caches.pods.subscribe(move |change| {
        let (Some(old), Some(new)) = (&change.old, &change.new) else { return };
        if old.uid != new.uid || !is_gated(&old.object) || is_gated(&new.object) {
            return;
        }
        let namespace = new.key.namespace().unwrap_or_default();
        let name = annotation(&new.object.metadata, WORKLOAD);
        if let Some(workload) = name.and_then(|name| workloads.get(&ObjectKey::new(namespace, name))) {
            let is_group = group_of(&new.object.metadata, &settings).is_some();
            metrics.ungated(ADMISSION_GATE, &workload.object, is_group, clock.now());
        }
    });
}

fn group_key(entry: &Entry<Pod>, settings: &Settings) -> Option<ObjectKey> {
    let name = group_of(&entry.object.metadata, settings)?;
    Some(ObjectKey::new(entry.key.namespace()?, name))
}

fn is_group_workload(workload: &Workload) -> bool {
    annotation(&workload.metadata, IS_GROUP_WORKLOAD) == Some("true")
}

impl GroupCaches {
    fn observe(&self, key: &ObjectKey, settings: &Arc<Settings>, now: Timestamp) -> Option<ObservedGroup> {
        let mut pods = self.pods.by_index(BY_GROUP, key.as_str());
        pods.retain(|entry| group_of(&entry.object.metadata, settings) == Some(key.name()));
        let workload = self.workloads.get(key);
        if pods.is_empty() && !workload.as_ref().is_some_and(|entry| is_group_workload(&entry.object)) {
            return None;
        }
        let namespace = self.namespaces.get(&ObjectKey::cluster(key.namespace().unwrap_or_default()));
        let labels = namespace.map(|entry| labels_of(&entry.object));
        let assigned = workload.iter().flat_map(|entry| flavors_of(&entry.object));
        let flavors = assigned.filter_map(|name| {
            let flavor = self.flavors.get(&ObjectKey::cluster(&name))?;
            Some((name, flavor.object.clone()))
        });
        let priority = pods.first().map_or_else(
            || Ok(Priority::default()),
            |first| {
                let sets = pods.iter().map(|entry| pod_set(&entry.object, "", 1, &settings.scheduling));
                self.classes.of(&first.object.metadata, None, sets)
            },
        );
        Some(ObservedGroup {
            key: key.clone(),
            is_namespace_managed: labels.is_some_and(|labels| settings.manages_namespace(&labels)),
            flavors: flavors.collect(),
            settings: Arc::clone(settings),
            pods,
            workload,
            now,
            priority,
        })
    }
}

impl Controller for GroupController {
    type Observed = ObservedGroup;
    type Call = NoCall;

    /// Users see one integration, for single pods and groups.
    const NAME: &'static str = Pod::CONTROLLER;

    async fn observe(&self, key: &ObjectKey) -> Result<Option<ObservedGroup>, Error> {
        let Context { settings, clock, .. } = &self.context;
        Ok(self.caches.observe(key, settings, clock.now()))
    }

    fn plan(observed: &ObservedGroup) -> Plan {
        plan(observed)
    }
}
