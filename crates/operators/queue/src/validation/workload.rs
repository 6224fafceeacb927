//! Workloads, their spec and their status. As Kueue's `pkg/webhooks/workload_webhook.go`.

mod admission;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::metadata::{ELASTIC_JOB, PRIORITY_BOOST};
use quintet_api::kueue::v1beta2::{
    AdmissionCheckState, CheckState, PodSet, PodSetTopologyRequest, Workload, WorkloadStatus,
};

use super::field::Errors;
use super::{Gates, admission_gates, metadata, quota};

const POD_SETS: &str = "spec.podSets";
const CHECKS: &str = "status.admissionChecks";
/// What a pod set is called that has no name.
const DEFAULT_POD_SET: &str = "main";
/// Kueue counts pods under this name; requests for it are rejected.
const RESERVED_RESOURCE: &str = "pods";

/// Whether a new Workload is valid.
pub fn validate_create(workload: &Workload, gates: &Gates) -> Errors {
    let mut errors = Errors::default();
    validate(workload, None, gates, &mut errors);
    errors
}

/// Whether a Workload or its status may be changed like this.
pub fn validate_update(workload: &Workload, old: &Workload, gates: &Gates) -> Errors {
    let mut errors = Errors::default();
    validate(workload, Some(old), gates, &mut errors);
    if old.has_quota_reservation() {
        immutable_pod_sets(pod_sets(workload), pod_sets(old), gates, &mut errors);
        if workload.has_quota_reservation() {
            admission::reclaimable_update(workload, old, gates, &mut errors);
        }
    }
    admission::update(workload, old, gates, &mut errors);
    immutable_updates_of_ready_checks(workload, old, &mut errors);
    admission::cluster_name_update(workload, old, gates, &mut errors);
    if gates.scheduling.admission_gated_by {
        let [new, old] = [workload, old].map(|workload| admission_gates::value(&workload.metadata));
        admission_gates::validate_update(new, old, &mut errors);
    }
    errors
}

fn validate(workload: &Workload, old: Option<&Workload>, gates: &Gates, errors: &mut Errors) {
    let sets = pod_sets(workload);
    for (index, set) in sets.iter().enumerate() {
        validate_pod_set(set, &format!("{POD_SETS}[{index}]"), gates, errors);
    }
    let variable = sets.iter().filter(|set| set.min_count.is_some()).count();
    if variable > 1 {
        errors.invalid(POD_SETS, variable, "at most one podSet can use minCount");
    }
    if variable > 0 && is_elastic(workload, gates) {
        errors.invalid(POD_SETS, variable, "partial admission and elastic job cannot be used together");
    }
    if workload.has_quota_reservation() {
        admission::validate(workload, old, errors);
    }
    let status = workload.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    metadata::conditions(conditions, "status.conditions", errors);
    admission::reclaimable(workload, old, gates, errors);
    for (index, check) in checks(status).iter().enumerate() {
        validate_updates(check, sets, &format!("{CHECKS}[{index}].podSetUpdates"), errors);
    }
    if gates.scheduling.admission_gated_by {
        admission_gates::validate(admission_gates::value(&workload.metadata), errors);
    }
    if gates.scheduling.priority_boost {
        validate_priority_boost(workload, errors);
    }
}

fn pod_sets(workload: &Workload) -> &[PodSet] {
    workload.spec.pod_sets.as_deref().unwrap_or(&[])
}

fn checks(status: Option<&WorkloadStatus>) -> &[AdmissionCheckState] {
    status.and_then(|status| status.admission_checks.as_deref()).unwrap_or(&[])
}

fn name_of(set: &PodSet) -> &str {
    set.name.as_deref().unwrap_or(DEFAULT_POD_SET)
}

fn count_of(set: &PodSet) -> i32 {
    set.count.unwrap_or(1)
}

fn annotation<'w>(workload: &'w Workload, key: &str) -> Option<&'w str> {
    workload.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether the job may change its size while it runs.
fn is_elastic(workload: &Workload, gates: &Gates) -> bool {
    gates.scheduling.elastic_slices && annotation(workload, ELASTIC_JOB) == Some("true")
}

fn validate_pod_set(set: &PodSet, path: &str, gates: &Gates, errors: &mut Errors) {
    let template = &set.template;
    if gates.pod_set_metadata
        && let Some(own) = &template.metadata
    {
        metadata::labels(own.labels.as_ref(), &format!("{path}.template.metadata.labels"), errors);
        let path = format!("{path}.template.metadata.annotations");
        metadata::annotations(own.annotations.as_ref(), &path, errors);
    }
    if let Some(spec) = &template.spec {
        let path = format!("{path}.template.spec");
        let inits = spec.init_containers.as_deref().unwrap_or(&[]);
        validate_containers(inits, &format!("{path}.initContainers"), gates, errors);
        validate_containers(&spec.containers, &format!("{path}.containers"), gates, errors);
        validate_resources(spec.resources.as_ref(), &format!("{path}.resources"), gates, errors);
    }
    if gates.slice_size
        && let Some(request) = &set.topology_request
    {
        validate_slices(request, &format!("{path}.topologyRequest"), errors);
    }
}

fn validate_containers(containers: &[Container], path: &str, gates: &Gates, errors: &mut Errors) {
    for (index, container) in containers.iter().enumerate() {
        validate_resources(
            container.resources.as_ref(),
            &format!("{path}[{index}].resources"),
            gates,
            errors,
        );
    }
}

fn validate_resources(
    resources: Option<&ResourceRequirements>,
    path: &str,
    gates: &Gates,
    errors: &mut Errors,
) {
    let Some(resources) = resources else { return };
    for (name, list) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        for (resource, quantity) in list.iter().flatten() {
            validate_resource(resource, quantity, &format!("{path}.{name}[{resource}]"), gates, errors);
        }
    }
}

fn validate_resource(
    resource: &str,
    quantity: &WireQuantity,
    path: &str,
    gates: &Gates,
    errors: &mut Errors,
) {
    if resource == RESERVED_RESOURCE {
        errors.invalid(path, resource, "the key is reserved for internal kueue use");
    }
    if gates.resources_not_negative {
        quota::amount(quantity, path, errors);
    }
}

fn validate_slices(request: &PodSetTopologyRequest, path: &str, errors: &mut Errors) {
    let path_of_size = format!("{path}.podSetSliceSize");
    match (&request.pod_set_slice_required_topology, request.pod_set_slice_size) {
        (Some(_), None) => {
            errors.required(path_of_size, "must be set when podSetSliceRequiredTopology is specified");
        }
        (Some(_), Some(size)) if size <= 0 => errors.invalid(path_of_size, size, "must be greater than 0"),
        (None, Some(_)) => {
            let why = "may not be set when podSetSliceRequiredTopology is not specified";
            errors.forbidden(path_of_size, why);
        }
        _ => {}
    }
    let constraints = request.podset_slice_required_topology_constraints.iter().flatten();
    for (index, constraint) in constraints.enumerate().filter(|(_, constraint)| constraint.size <= 0) {
        let path = format!("{path}.podsetSliceRequiredTopologyConstraints[{index}].size");
        errors.invalid(path, constraint.size, "must be greater than 0");
    }
}

fn validate_updates(check: &AdmissionCheckState, sets: &[PodSet], path: &str, errors: &mut Errors) {
    let known: BTreeSet<&str> = sets.iter().map(name_of).collect();
    for (index, update) in check.pod_set_updates.iter().flatten().enumerate() {
        let path = format!("{path}[{index}]");
        if !known.contains(update.name.as_str()) {
            errors.unsupported(format!("{path}.name"), &update.name, known.iter().copied());
        }
        metadata::tolerations(update.tolerations.as_ref(), &format!("{path}.tolerations"), errors);
        metadata::annotations(update.annotations.as_ref(), &format!("{path}.annotations"), errors);
        metadata::labels(update.node_selector.as_ref(), &format!("{path}.nodeSelector"), errors);
        metadata::labels(update.labels.as_ref(), &format!("{path}.labels"), errors);
    }
}

fn immutable_updates_of_ready_checks(workload: &Workload, old: &Workload, errors: &mut Errors) {
    let now: BTreeMap<&str, &AdmissionCheckState> =
        checks(workload.status.as_ref()).iter().map(|check| (check.name.as_str(), check)).collect();
    for (index, before) in checks(old.status.as_ref()).iter().enumerate() {
        if let Some(after) = now.get(before.name.as_str())
            && before.state == CheckState::Ready
            && after.state == CheckState::Ready
        {
            let path = format!("{CHECKS}[{index}].podSetUpdates");
            errors.immutable(path, &after.pod_set_updates, &before.pod_set_updates);
        }
    }
}

/// Pod sets of a Workload with a reservation stay as they are. With elastic jobs, counts may shrink.
fn immutable_pod_sets(new: &[PodSet], old: &[PodSet], gates: &Gates, errors: &mut Errors) {
    if new.len() != old.len() {
        errors.invalid(POD_SETS, new, "field is immutable");
        return;
    }
    for (index, (new, old)) in new.iter().zip(old).enumerate() {
        // The index stands after a dot here, and nowhere else.
        let path = format!("{POD_SETS}.{index}");
        if gates.scheduling.elastic_slices && count_of(new) < count_of(old) {
            errors.immutable(path, &PodSet { count: old.count, ..new.clone() }, old);
        } else {
            errors.immutable(path, new, old);
        }
    }
}

fn validate_priority_boost(workload: &Workload, errors: &mut Errors) {
    let path = format!("metadata.annotations[{PRIORITY_BOOST}]");
    match annotation(workload, PRIORITY_BOOST) {
        Some("") => {
            let why = "must be a valid signed integer; use \"0\" explicitly, empty string is not allowed";
            errors.invalid(path, "", why);
        }
        Some(value) if value.parse::<i32>().is_err() => {
            errors.invalid(path, value, "must be a valid signed integer");
        }
        _ => {}
    }
}
