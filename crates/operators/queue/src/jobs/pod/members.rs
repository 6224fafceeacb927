//! Which pods of a group count: those that run or may run, those that have to be replaced, and those that are too many.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use quintet_api::kueue::metadata::{MANAGED_FINALIZER, ROLE_HASH};
use quintet_api::kueue::v1beta2::PodSet;
use quintet_controller::cache::Entry;

use super::super::compose::annotation;
use super::{is_gated, phase, role};

/// A pod of the group.
pub(super) type Member = Arc<Entry<Pod>>;

/// The pods of a group by what becomes of them.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// Those that the Workload stands for.
    pub(super) kept: Vec<Member>,
    /// Those beyond the size of their role.
    pub(super) excess: Vec<Member>,
    /// Those that cannot run any more, and have been replaced.
    pub(super) replaced: Vec<Member>,
    /// How many are missing.
    pub(super) absent: usize,
}

/// The role of a pod: what its pod set is called.
pub(super) fn role_of(pod: &Pod) -> String {
    match annotation(&pod.metadata, ROLE_HASH) {
        Some(role) => role.to_owned(),
        // A type of Kubernetes is always JSON.
        None => role::hash_of(&serde_json::to_value(&pod.spec).unwrap_or_default()),
    }
}

/// Whether a pod runs, may run, or has succeeded. One that is deleted before it has a node never runs.
pub(super) fn is_runnable_or_succeeded(pod: &Pod) -> bool {
    let has_node =
        pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref().is_some_and(|n| !n.is_empty()));
    (pod.metadata.deletion_timestamp.is_none() || has_node) && phase(pod) != "Failed"
}

/// Those that run or may run, and the others.
pub(super) fn partition(pods: &[Member]) -> (Vec<Member>, Vec<Member>) {
    pods.iter().cloned().partition(|entry| is_runnable_or_succeeded(&entry.object))
}

/// Compares a group with the pod sets of its Workload. A group with fast admission waits for none of its pods but the
/// first.
pub(super) fn select(pods: &[Member], sets: &[PodSet], is_fast: bool, now: Timestamp) -> Selection {
    let (active, inactive) = partition(pods);
    let mut selection = Selection::default();
    for set in sets {
        let name = set.name.as_deref().unwrap_or_default();
        let size = usize::try_from(set.count.unwrap_or(1)).unwrap_or_default();
        let of_role = |pods: &[Member]| -> Vec<Member> {
            pods.iter().filter(|entry| role_of(&entry.object) == name).cloned().collect()
        };
        let (mut active, mut inactive) = (of_role(&active), of_role(&inactive));
        let missing = size.saturating_sub(active.len());
        selection.absent += if is_fast { missing.min(usize::from(active.is_empty())) } else { missing };
        // Each that is there replaces one that cannot run.
        sort_inactive(&mut inactive, now);
        let replaced = (inactive.len() + active.len()).saturating_sub(size).min(inactive.len());
        selection.replaced.extend(inactive.split_off(inactive.len() - replaced));
        selection.excess.extend(excess_of(&mut active, size));
        selection.kept.append(&mut active);
        selection.kept.append(&mut inactive);
    }
    selection
}

/// Takes the pods beyond the size out: those that were finalized already, that wait, or that are the newest.
pub(super) fn excess_of(active: &mut Vec<Member>, size: usize) -> Vec<Member> {
    active.sort_by_key(|entry| {
        let metadata = &entry.object.metadata;
        let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
        (!has_finalizer(entry), is_gated(&entry.object), created, entry.key.clone())
    });
    if active.len() > size { active.split_off(size) } else { Vec::new() }
}

/// Those that still need their finalizer first, then those that were active last.
fn sort_inactive(inactive: &mut [Member], now: Timestamp) {
    inactive.sort_by_key(|entry| {
        let created = entry.object.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (!has_finalizer(entry), Reverse(last_active(&entry.object, now)), created, entry.key.clone())
    });
}

fn has_finalizer(entry: &Entry<Pod>) -> bool {
    entry.object.metadata.finalizers.iter().flatten().any(|own| own == MANAGED_FINALIZER)
}

/// When the pod failed, or was deleted.
fn last_active(pod: &Pod, now: Timestamp) -> Timestamp {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let failed = conditions
        .iter()
        .find(|condition| condition.type_ == "ContainersReady")
        .filter(|condition| condition.status == "False" && condition.reason.as_deref() == Some("PodFailed"));
    let failed = failed.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| time.0);
    let deleted = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    failed.unwrap_or(now).min(deleted.unwrap_or(now))
}
