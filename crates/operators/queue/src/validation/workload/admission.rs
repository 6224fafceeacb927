//! The admission of a Workload, and what may change while quota is reserved: reclaimable pods and the worker cluster.

use std::collections::{BTreeMap, BTreeSet};

use quintet_api::Quantity;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::metadata::SLICE_REPLACEMENT_FOR;
use quintet_api::kueue::v1beta2::{Admission, PodSetAssignment, ReclaimablePod, Workload};

use super::{DEFAULT_POD_SET, annotation, count_of, is_elastic, name_of, pod_sets};
use crate::validation::Gates;
use crate::validation::field::Errors;

const PATH: &str = "status.admission";
const RECLAIMABLE: &str = "status.reclaimablePods";

fn admission(workload: &Workload) -> Option<&Admission> {
    workload.status.as_ref()?.admission.as_ref()
}

fn assignments(admission: &Admission) -> &[PodSetAssignment] {
    admission.pod_set_assignments.as_deref().unwrap_or(&[])
}

fn reclaimable_pods(workload: &Workload) -> &[ReclaimablePod] {
    workload.status.as_ref().and_then(|status| status.reclaimable_pods.as_deref()).unwrap_or(&[])
}

fn assignment_name(assignment: &PodSetAssignment) -> &str {
    assignment.name.as_deref().unwrap_or(DEFAULT_POD_SET)
}

/// The admission of a Workload that has a reservation.
pub(super) fn validate(workload: &Workload, old: Option<&Workload>, errors: &mut Errors) {
    let Some(admission) = admission(workload) else {
        // One that was stored like this may be repaired or deleted.
        let was_so = old.is_some_and(|old| old.has_quota_reservation() && self::admission(old).is_none());
        if !was_so {
            errors.required(PATH, "must be set while the QuotaReserved condition is true");
        }
        return;
    };
    let known: BTreeSet<&str> = pod_sets(workload).iter().map(name_of).collect();
    for (index, assignment) in assignments(admission).iter().enumerate() {
        let path = format!("{PATH}.podSetAssignments[{index}]");
        let name = assignment_name(assignment);
        if !known.contains(name) {
            errors.not_found(format!("{path}.name"), name);
        }
        validate_usage(assignment, &format!("{path}.resourceUsage"), errors);
    }
}

/// Usage of all pods must be a multiple of that of one.
fn validate_usage(assignment: &PodSetAssignment, path: &str, errors: &mut Errors) {
    let count = i64::from(assignment.count.unwrap_or(0));
    if count <= 0 {
        return;
    }
    for (resource, quantity) in assignment.resource_usage.iter().flatten() {
        let Ok(usage) = Quantity::try_from(quantity) else { continue };
        let value = if resource == "cpu" { usage.millis() } else { usage.units() };
        if value % count != 0 {
            let why = format!("is not a multiple of {count}");
            errors.invalid(format!("{path}[{resource}]"), usage.to_string(), why);
        }
    }
}

/// Once set, an admission does not change but for the placement of its pods. It may be taken away.
pub(super) fn update(workload: &Workload, old: &Workload, gates: &Gates, errors: &mut Errors) {
    let (Some(new), Some(old)) = (admission(workload), admission(old)) else { return };
    let mut before = old.clone();
    if gates.scheduling.tas && assignments(new).len() == assignments(old).len() {
        let placed = before.pod_set_assignments.iter_mut().flatten().zip(assignments(new));
        for (before, now) in placed {
            before.topology_assignment.clone_from(&now.topology_assignment);
            before.delayed_topology_request.clone_from(&now.delayed_topology_request);
        }
    }
    errors.immutable(PATH, new, &before);
}

/// Reclaimable pods are of known pod sets, and no more than these have. A stale count of an elastic job that shrank is
/// tolerated until it is corrected.
pub(super) fn reclaimable(workload: &Workload, old: Option<&Workload>, gates: &Gates, errors: &mut Errors) {
    let sets = pod_sets(workload);
    for pods in reclaimable_pods(workload) {
        let path = format!("{RECLAIMABLE}[{}]", pods.name);
        let is_stale = || {
            is_elastic(workload, gates)
                && old.is_some_and(|old| {
                    reclaimable_pods(old).iter().any(|old| old.name == pods.name && old.count == pods.count)
                })
        };
        match sets.iter().find(|set| name_of(set) == pods.name) {
            None => errors.unsupported(format!("{path}.name"), &pods.name, sets.iter().map(name_of)),
            Some(set) if pods.count > count_of(set) && !is_stale() => errors.invalid(
                format!("{path}.count"),
                pods.count,
                format!("should be less or equal to {}", count_of(set)),
            ),
            Some(_) => {}
        }
    }
}

/// Pods that finished stay finished while quota is reserved, unless their pod set shrank.
pub(super) fn reclaimable_update(workload: &Workload, old: &Workload, gates: &Gates, errors: &mut Errors) {
    let by_name = |workload| -> BTreeMap<&str, i32> {
        reclaimable_pods(workload).iter().map(|pods| (pods.name.as_str(), pods.count)).collect()
    };
    let (now, before) = (by_name(workload), by_name(old));
    let shrunk = shrunk_pod_sets(workload, gates);
    for (name, was) in before.iter().filter(|(name, _)| !shrunk.contains(*name)) {
        let path = format!("{RECLAIMABLE}[{name}]");
        match now.get(name) {
            None => errors.required(path, "cannot be removed"),
            Some(count) if count < was => {
                errors.invalid(format!("{path}.count"), count, format!("cannot be less than {was}"));
            }
            Some(_) => {}
        }
    }
}

/// Pod sets of an elastic job with fewer pods than were admitted.
fn shrunk_pod_sets<'w>(workload: &'w Workload, gates: &Gates) -> BTreeSet<&'w str> {
    let Some(admission) = admission(workload).filter(|_| is_elastic(workload, gates)) else {
        return BTreeSet::new();
    };
    let counts: BTreeMap<&str, i32> =
        pod_sets(workload).iter().map(|set| (name_of(set), count_of(set))).collect();
    let has_shrunk = |assignment: &&PodSetAssignment| {
        let now = counts.get(assignment_name(assignment)).copied().unwrap_or(0);
        assignment.count.is_some_and(|count| count > now)
    };
    assignments(admission).iter().filter(has_shrunk).map(assignment_name).collect()
}

/// A worker cluster is chosen among those nominated before, except for the replacement of an elastic job's slice.
pub(super) fn cluster_name_update(workload: &Workload, old: &Workload, gates: &Gates, errors: &mut Errors) {
    if gates.scheduling.elastic_slices && annotation(workload, SLICE_REPLACEMENT_FOR).is_some() {
        return;
    }
    let cluster = |workload: &'_ Workload| workload.status.as_ref()?.cluster_name.clone();
    let Some(chosen) = cluster(workload).filter(|_| cluster(old).is_none()) else { return };
    let nominated = old.status.as_ref().and_then(|status| status.nominated_cluster_names.as_ref());
    if !nominated.is_some_and(|names| names.contains(&chosen)) {
        let why = "when setting clusterName it must be one of the nominatedClusterNames";
        errors.invalid("status.clusterName", chosen, why);
    }
}
