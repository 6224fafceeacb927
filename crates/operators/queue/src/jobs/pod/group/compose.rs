//! The Workload of a group.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use quintet_api::kueue::metadata::{
    IS_GROUP_WORKLOAD, POD_GROUP_FAST_ADMISSION, POD_GROUP_POD_INDEX, POD_GROUP_TOTAL_COUNT, QUEUE_NAME,
    RESOURCE_IN_USE,
};
use quintet_api::kueue::v1beta2::{PodSet, Workload};
use quintet_controller::ObjectKey;
use quintet_controller::cache::Entry;

use super::super::super::compose::{self, annotation, label};
use super::super::super::priority::Priority;
use super::super::members::{Member, is_runnable_or_succeeded, role_of};
use super::super::{phase, pod_set};
use crate::settings::Settings;

/// Pod sets of a Workload.
const MAX_ROLES: usize = 18;

/// Whether the group is admitted as soon as its first pod exists.
pub(super) fn is_fast(pod: &Pod) -> bool {
    annotation(&pod.metadata, POD_GROUP_FAST_ADMISSION) == Some("true")
}

/// How many pods a pod says that its group has.
pub(super) fn total_count(pod: &Pod) -> Result<usize, String> {
    let text = annotation(&pod.metadata, POD_GROUP_TOTAL_COUNT)
        .ok_or_else(|| format!("failed to extract '{POD_GROUP_TOTAL_COUNT}' annotation"))?;
    let count: usize =
        text.parse().map_err(|_| format!("{POD_GROUP_TOTAL_COUNT}: {text:?} is not a number"))?;
    if count == 0 {
        return Err(format!("{POD_GROUP_TOTAL_COUNT}: the total count should be greater than zero"));
    }
    Ok(count)
}

/// What the pods run, by role. With fast admission it is the first pod that may run, as often as the group is large.
pub(super) fn pod_sets(pods: &[Member], settings: &Settings) -> Result<Vec<PodSet>, String> {
    let gates = &settings.scheduling;
    let mut runnable = pods.iter().filter(|entry| is_runnable_or_succeeded(&entry.object));
    if pods.first().is_some_and(|first| is_fast(&first.object)) {
        let first = runnable.next().ok_or("failed to find a runnable pod in the group")?;
        let total = i32::try_from(total_count(&first.object)?).unwrap_or(i32::MAX);
        return Ok(cleaned(vec![pod_set(&first.object, &role_of(&first.object), total, gates)]));
    }
    let mut sets: BTreeMap<String, PodSet> = BTreeMap::new();
    for entry in runnable {
        let role = role_of(&entry.object);
        if let Some(set) = sets.get_mut(&role) {
            set.count = set.count.map(|count| count + 1);
        } else {
            let set = pod_set(&entry.object, &role, 1, gates);
            sets.insert(role, set);
        }
    }
    Ok(cleaned(sets.into_values().collect()))
}

fn cleaned(mut sets: Vec<PodSet>) -> Vec<PodSet> {
    for set in &mut sets {
        compose::clean(&mut set.template);
    }
    sets
}

/// What keeps the pods from being one group.
pub(super) fn problem(key: &ObjectKey, pods: &[Member], runnable: usize) -> Option<String> {
    let first = pods.first()?;
    let total = match total_count(&first.object) {
        Ok(total) => total,
        Err(problem) => return Some(problem),
    };
    if let Some(text) = label(&first.object.metadata, POD_GROUP_POD_INDEX)
        && text.parse::<usize>().ok().is_none_or(|index| index >= total)
    {
        return Some(format!("{POD_GROUP_POD_INDEX}: {text:?} is not a number below {total}"));
    }
    if !is_fast(&first.object) && runnable < total {
        return Some(format!("'{}' group has fewer runnable pods than expected", key.name()));
    }
    let queue = label(&first.object.metadata, QUEUE_NAME).unwrap_or_default();
    let name = first.key.name();
    for other in pods.iter().filter(|entry| phase(&entry.object) != "Failed") {
        let other_name = other.key.name();
        let other_queue = label(&other.object.metadata, QUEUE_NAME).unwrap_or_default();
        if other_queue != queue {
            return Some(format!(
                "pods '{name}' and '{other_name}' have different queue names: {queue}!={other_queue}"
            ));
        }
        match total_count(&other.object) {
            Ok(other_total) if other_total != total => {
                return Some(format!(
                    "pods '{name}' and '{other_name}' have different '{POD_GROUP_TOTAL_COUNT}' values: {total}!={other_total}"
                ));
            }
            Ok(_) => {}
            Err(problem) => return Some(format!("pod '{other_name}': {problem}")),
        }
    }
    None
}

/// The owner references of pods to their Workload, which outlives each of them.
pub(super) fn owner_reference(entry: &Entry<Pod>) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: entry.key.name().to_owned(),
        uid: entry.uid.to_string(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// A Workload for a group that has none. The error says why the pods cannot have one.
pub(super) fn workload(
    key: &ObjectKey,
    pods: &[Member],
    priority: &Priority,
    settings: &Settings,
) -> Result<Workload, String> {
    let first = pods.first().ok_or("a group without pods")?;
    let sets = pod_sets(pods, settings)?;
    if sets.len() > MAX_ROLES {
        return Err(format!("pod group can't include more than {MAX_ROLES} roles"));
    }
    let mut annotations = compose::annotations(&first.object.metadata, settings).unwrap_or_default();
    annotations.insert(IS_GROUP_WORKLOAD.to_owned(), "true".to_owned());
    annotations.extend(copied(pods, "annotation", settings.annotations_to_copy(), annotation)?);
    let labels = copied(pods, "label", settings.labels_to_copy(), label)?;
    Ok(Workload {
        metadata: ObjectMeta {
            name: Some(key.name().to_owned()),
            namespace: key.namespace().map(str::to_owned),
            labels: (!labels.is_empty()).then_some(labels),
            annotations: Some(annotations),
            finalizers: Some(vec![RESOURCE_IN_USE.to_owned()]),
            owner_references: Some(pods.iter().map(|entry| owner_reference(entry)).collect()),
            ..ObjectMeta::default()
        },
        spec: compose::spec(&first.object.metadata, sets, priority),
        status: None,
    })
}

/// Labels or annotations that the Workload has, too; all pods that have them agree.
fn copied<'k>(
    pods: &[Member],
    what: &str,
    keys: impl Iterator<Item = &'k str>,
    value: for<'m> fn(&'m ObjectMeta, &str) -> Option<&'m str>,
) -> Result<BTreeMap<String, String>, String> {
    let mut copied = BTreeMap::new();
    for key in keys {
        for value in pods.iter().filter_map(|entry| value(&entry.object.metadata, key)) {
            if copied.insert(key.to_owned(), value.to_owned()).is_some_and(|known| known != value) {
                return Err(format!("pods have different values of the {what} {key}"));
            }
        }
    }
    Ok(copied)
}
