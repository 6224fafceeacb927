//! `kueue.x-k8s.io`: `v1beta1` and `v1beta2`.
#![expect(
    clippy::unnecessary_wraps,
    reason = "conversions share one signature, whether or not they can fail"
)]

use serde_json::{Map, Value, json};

use super::ConversionError;
use super::object::{child, children, is_empty, rename, text};
use super::stash::Stash;
use crate::kueue::{v1beta1, v1beta2};

type Object = Map<String, Value>;

/// Group, kind and the old word for a priority class.
const PRIORITY_CLASSES: [(&str, &str, &str); 2] = [
    ("kueue.x-k8s.io", "WorkloadPriorityClass", "kueue.x-k8s.io/workloadpriorityclass"),
    ("scheduling.k8s.io", "PriorityClass", "scheduling.k8s.io/priorityclass"),
];

const OLD_SECONDS: &str = "accumulatedPastExexcutionTimeSeconds";
const NEW_SECONDS: &str = "accumulatedPastExecutionTimeSeconds";
const SLICE_CONSTRAINTS: &str = "podsetSliceRequiredTopologyConstraints";

pub(super) fn workload_up(object: &mut Object) -> Result<(), ConversionError> {
    let mut stash = Stash::from_annotation(object);
    if let Some(spec) = child(object, "spec") {
        let name = spec.remove("priorityClassName");
        let source = spec.remove("priorityClassSource");
        let known =
            PRIORITY_CLASSES.iter().find(|(.., old)| source.as_ref().is_some_and(|source| source == old));
        // As upstream: a source without a name is a reference without one.
        if let Some((group, kind, _)) = known {
            let mut reference =
                Map::from_iter([("group".into(), json!(group)), ("kind".into(), json!(kind))]);
            reference.extend(name.map(|name| ("name".into(), name)));
            spec.insert("priorityClassRef".into(), reference.into());
        }
        stash.put_back("spec", Some(&mut *spec), &["preemptionGates"]);
        stash.put_back_each(spec, "podSets", "topologyRequest", SLICE_CONSTRAINTS);
    }
    if let Some(status) = child(object, "status") {
        rename(status, OLD_SECONDS, NEW_SECONDS);
        stash.put_back("status", Some(&mut *status), &["preemptionGates"]);
        each_topology_assignment(status, |assignment: v1beta1::TopologyAssignment| {
            let domains = assignment.domains.into_iter().map(|domain| (domain.values, domain.count));
            let domains: Vec<_> = domains.collect();
            Some(v1beta2::TopologyAssignment::from_domains(assignment.levels, &domains))
        })?;
    }
    Ok(())
}

pub(super) fn workload_down(object: &mut Object) -> Result<(), ConversionError> {
    let mut stash = Stash::default();
    if let Some(spec) = child(object, "spec") {
        if let Some(Value::Object(mut reference)) = spec.remove("priorityClassRef") {
            let own = (text(&reference, "group"), text(&reference, "kind"));
            let mut known = PRIORITY_CLASSES.iter();
            if let Some((.., source)) = known.find(|(group, kind, _)| own == (Some(group), Some(kind))) {
                spec.insert("priorityClassSource".into(), (*source).into());
                spec.extend(reference.remove("name").map(|name| ("priorityClassName".into(), name)));
            }
        }
        stash.take("spec", Some(&mut *spec), &["preemptionGates"]);
        stash.take_each(spec, "podSets", "topologyRequest", SLICE_CONSTRAINTS);
        spec.entry("podSets").or_insert_with(|| json!([]));
    }
    if let Some(status) = child(object, "status") {
        rename(status, NEW_SECONDS, OLD_SECONDS);
        if let Some(admission) = child(status, "admission") {
            // Required in the older version, if only in name.
            admission.entry("clusterQueue").or_insert_with(|| json!(""));
            admission.entry("podSetAssignments").or_insert_with(|| json!([]));
        }
        stash.take("status", Some(&mut *status), &["preemptionGates"]);
        each_topology_assignment(status, |assignment: v1beta2::TopologyAssignment| {
            let domains = assignment
                .domains()?
                .into_iter()
                .map(|(values, count)| v1beta1::TopologyDomainAssignment { count, values });
            Some(v1beta1::TopologyAssignment { domains: domains.collect(), levels: assignment.levels })
        })?;
    }
    stash.into_annotation(object);
    Ok(())
}

/// Converts every topology assignment; `None` says that one promises domains it does not have.
fn each_topology_assignment<From, To>(
    status: &mut Object,
    convert: impl Fn(From) -> Option<To>,
) -> Result<(), ConversionError>
where
    From: serde::de::DeserializeOwned,
    To: serde::Serialize,
{
    let malformed = |reason: String| ConversionError::Malformed {
        kind: "Workload".into(),
        path: "status.admission.podSetAssignments.topologyAssignment",
        reason,
    };
    let unreadable = |error: serde_json::Error| malformed(error.to_string());
    let Some(admission) = child(status, "admission") else { return Ok(()) };
    for assignment in children(admission, "podSetAssignments") {
        if let Some(topology) = assignment.get_mut("topologyAssignment") {
            let old = serde_json::from_value(topology.take()).map_err(unreadable)?;
            let new = convert(old).ok_or_else(|| {
                malformed("a slice has fewer values or counts than domains, or too many domains".into())
            })?;
            *topology = serde_json::to_value(new).map_err(unreadable)?;
        }
    }
    Ok(())
}

pub(super) fn cluster_queue_up(object: &mut Object) -> Result<(), ConversionError> {
    let mut stash = Stash::from_annotation(object);
    if let Some(spec) = child(object, "spec") {
        rename(spec, "cohort", "cohortName");
        if let Some(Value::Array(names)) = spec.remove("admissionChecks")
            && !names.is_empty()
        {
            let checks: Vec<Value> = names.into_iter().map(|name| json!({ "name": name })).collect();
            spec.insert("admissionChecksStrategy".into(), json!({ "admissionChecks": checks }));
        }
        // The newer version has no strategy without checks.
        if child(spec, "admissionChecksStrategy")
            .is_some_and(|strategy| is_empty(strategy.get("admissionChecks")))
        {
            spec.remove("admissionChecksStrategy");
        }
        if let Some(fungibility) = child(spec, "flavorFungibility") {
            for (field, old) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
                if text(fungibility, field) == Some(old) {
                    fungibility.insert(field.into(), "MayStopSearch".into());
                }
            }
        }
        stash.put_back("spec", Some(spec), &["concurrentAdmissionPolicy"]);
    }
    if let Some(status) = child(object, "status") {
        status.remove("pendingWorkloadsStatus");
    }
    drop_consumed_resources(object);
    Ok(())
}

pub(super) fn cluster_queue_down(object: &mut Object) -> Result<(), ConversionError> {
    let mut stash = Stash::default();
    if let Some(spec) = child(object, "spec") {
        rename(spec, "cohortName", "cohort");
        stash.take("spec", Some(spec), &["concurrentAdmissionPolicy"]);
    }
    stash.into_annotation(object);
    Ok(())
}

pub(super) fn local_queue_up(object: &mut Object) -> Result<(), ConversionError> {
    if let Some(status) = child(object, "status") {
        rename(status, "flavorUsage", "flavorsUsage");
        status.remove("flavors");
    }
    Ok(())
}

pub(super) fn local_queue_down(object: &mut Object) -> Result<(), ConversionError> {
    if let Some(status) = child(object, "status") {
        rename(status, "flavorsUsage", "flavorUsage");
    }
    Ok(())
}

pub(super) fn cohort_up(object: &mut Object) -> Result<(), ConversionError> {
    drop_consumed_resources(object);
    Ok(())
}

pub(super) fn cohort_down(_: &mut Object) -> Result<(), ConversionError> {
    Ok(())
}

/// Only LocalQueues consume; the older version had the field everywhere.
fn drop_consumed_resources(object: &mut Object) {
    if let Some(fair_sharing) = child(object, "status").and_then(|status| child(status, "fairSharing")) {
        fair_sharing.remove("admissionFairSharingStatus");
    }
}

pub(super) fn multikueue_cluster_up(object: &mut Object) -> Result<(), ConversionError> {
    let Some(spec) = child(object, "spec") else { return Ok(()) };
    let mut source = Map::new();
    let kube_config = spec.remove("kubeConfig").filter(|kube_config| !is_empty(kube_config.get("location")));
    source.extend(kube_config.map(|kube_config| ("kubeConfig".into(), kube_config)));
    source.extend(spec.remove("clusterProfileRef").map(|reference| ("clusterProfileRef".into(), reference)));
    spec.insert("clusterSource".into(), Value::Object(source));
    Ok(())
}

pub(super) fn multikueue_cluster_down(object: &mut Object) -> Result<(), ConversionError> {
    let Some(spec) = child(object, "spec") else { return Ok(()) };
    if let Some(Value::Object(mut source)) = spec.remove("clusterSource") {
        // The older version always has a kubeconfig; an empty location says that there is none.
        let kube_config = source
            .remove("kubeConfig")
            .unwrap_or_else(|| json!({ "location": "", "locationType": "Secret" }));
        spec.insert("kubeConfig".into(), kube_config);
        spec.extend(source);
    }
    Ok(())
}
