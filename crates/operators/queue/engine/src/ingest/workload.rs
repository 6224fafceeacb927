//! Workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use quintet_api::Quantity;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::metadata;
use quintet_api::kueue::v1beta2::{self, DelayedTopologyRequestState, GatePosition};

use super::fingerprint::{Fingerprint, fingerprint};
use super::pod::{Quantities, add, labels, pod_requests, pod_shape, quantities, requests, tolerations};
use super::queues::name;
use super::{DeviceQuota, IngestError};
use crate::model::{
    Admission, Check, Condition, ConditionReason, Delayed, Links, PodSet, PodSetAdmission, PodSetUpdate,
    ShapeHash, SliceLayer, TopologyRequest, Workload, WorkloadKey,
};
use crate::names::Names;
use crate::settings::Gates;
use crate::tas::TopologyAssignment;
use crate::time::Time;

/// The name of a pod set that has none: API defaulting gives it this one.
const DEFAULT_POD_SET: &str = "main";

/// Annotation of a slice: the pod sets that may get fewer pods than they ask for, and how few, as `set=1,other=0`. Not
/// Kueue's.
pub const MIN_COUNTS: &str = "queue.quintet.dev/min-counts";

/// A configured change of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transformation {
    /// The resource it starts from.
    pub input: String,
    /// Whether the input itself no longer counts.
    pub replaces_input: bool,
    /// What it becomes, per unit.
    pub outputs: Quantities,
    /// A resource whose amount multiplies the outputs.
    pub multiply_by: Option<String>,
}

/// What changes requests before they count against quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// Resources with these prefixes do not count.
    pub excluded_prefixes: Vec<String>,
    /// Transformations.
    pub transformations: Vec<Transformation>,
    /// What pods claim.
    pub claims: Vec<Claims>,
    /// As what devices count, by their DeviceClass.
    pub device_classes: BTreeMap<String, DeviceQuota>,
}

/// Resources of claims of a pod set, with the extended resources they stand for.
pub type Claims = (String, Quantities, Vec<String>);

impl RequestOptions {
    /// Resources that are written as memory is: counters and capacities of devices.
    pub fn in_bytes(&self) -> BTreeSet<String> {
        let sources = self.device_classes.values().flat_map(DeviceQuota::sources);
        sources.map(|source| source.resource.clone()).collect()
    }

    /// What one pod costs in quota.
    fn effective(&self, requested: Quantities, pod_set: &str, gates: &Gates) -> Quantities {
        let mut kept = requested;
        kept.retain(|name, _| !self.excluded_prefixes.iter().any(|prefix| name.starts_with(prefix.as_str())));
        let mut result = self.transformed(kept);
        if gates.dra
            && let Some((_, claimed, replaced)) = self.claims.iter().find(|(name, ..)| name == pod_set)
        {
            result.retain(|name, _| !replaced.contains(name));
            add(&mut result, claimed);
        }
        result
    }

    fn transformed(&self, requested: Quantities) -> Quantities {
        let find = |name: &str| self.transformations.iter().rev().find(|rule| rule.input == name);
        if !requested.keys().any(|name| find(name).is_some()) {
            return requested;
        }
        let mut retained = Quantities::new();
        let mut generated = Quantities::new();
        for (name, quantity) in &requested {
            let Some(rule) = find(name) else {
                retained.insert(name.clone(), *quantity);
                continue;
            };
            let multiplier = rule.multiply_by.as_ref().and_then(|name| requested.get(name));
            let base = multiplier.map_or(*quantity, |multiplier| quantity.scaled_by(*multiplier));
            let outputs =
                rule.outputs.iter().map(|(name, factor)| (name.clone(), base.scaled_by(*factor))).collect();
            add(&mut generated, &outputs);
            if !rule.replaces_input {
                retained.insert(name.clone(), *quantity);
            }
        }
        for quantity in generated.values_mut().filter(|quantity| quantity.is_negative()) {
            *quantity = Quantity::ZERO;
        }
        add(&mut retained, &generated);
        retained
    }
}

/// A time of the API. One outside the range of the engine, such as Go's zero time, is [`Time::ZERO`].
pub fn time(time: &ApiTime) -> Time {
    i64::try_from(time.0.as_nanosecond()).map_or(Time::ZERO, Time::from_nanos)
}

pub(super) fn pod_set_name(pod_set: &v1beta2::PodSet) -> &str {
    pod_set.name.as_deref().unwrap_or(DEFAULT_POD_SET)
}

/// The quota of every pod set of a pending workload, per pod, before it becomes integers.
fn demand_quantities(
    object: &v1beta2::Workload,
    options: &RequestOptions,
    gates: &Gates,
) -> Result<Vec<Quantities>, IngestError> {
    let pod_sets = object.spec.pod_sets.iter().flatten();
    pod_sets
        .map(|pod_set| {
            let requested = pod_set.template.spec.as_ref().map(pod_requests).transpose()?.unwrap_or_default();
            Ok(options.effective(requested, pod_set_name(pod_set), gates))
        })
        .collect()
}

/// A Workload whose pod templates were adjusted ([`super::adjust_resources`]) already.
pub fn workload(
    object: &v1beta2::Workload,
    options: &RequestOptions,
    gates: &Gates,
    names: &mut Names,
) -> Result<Workload, IngestError> {
    let (meta, spec) = (&object.metadata, &object.spec);
    let empty = v1beta2::WorkloadStatus::default();
    let status = object.status.as_ref().unwrap_or(&empty);
    let namespace = meta.namespace.as_deref().unwrap_or("");
    let boost = annotation(object, metadata::PRIORITY_BOOST).and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut workload = Workload {
        key: WorkloadKey { namespace: names.namespaces.intern(namespace), name: name(meta).into() },
        uid: meta.uid.as_deref().unwrap_or("").into(),
        generation: meta.generation.unwrap_or(0),
        created: meta.creation_timestamp.as_ref().map_or(Time::ZERO, time),
        local_queue: names.local_queue(namespace, spec.queue_name.as_deref().unwrap_or("")),
        priority: spec.priority.unwrap_or(0),
        boost,
        active: spec.active.unwrap_or(true),
        spec_fingerprint: fingerprint(spec),
        reclaim_fingerprint: fingerprint(&status.reclaimable_pods),
        shape: None,
        pod_sets: pod_sets(object, status, options, gates, names)?,
        conditions: conditions(status),
        checks: checks(status)?,
        requeue_at: status.requeue_state.as_ref().and_then(|state| state.requeue_at.as_ref()).map(time),
        admission: None,
        unhealthy_nodes: status
            .unhealthy_nodes
            .iter()
            .flatten()
            .map(|node| node.name.as_str().into())
            .collect(),
        links: links(object, names),
    };
    workload.admission =
        reservation(object).map(|own| admission(own, &workload, names)).transpose()?.map(Arc::new);
    if gates.equivalence_hashing {
        workload.shape = Some(shape(object, &workload, gates, names));
    }
    Ok(workload)
}

/// The value of an annotation that is not empty.
fn annotation<'o>(object: &'o v1beta2::Workload, key: &str) -> Option<&'o str> {
    let annotations = object.metadata.annotations.as_ref()?;
    annotations.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

fn label<'o>(object: &'o v1beta2::Workload, key: &str) -> Option<&'o str> {
    object.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn pod_sets(
    object: &v1beta2::Workload,
    status: &v1beta2::WorkloadStatus,
    options: &RequestOptions,
    gates: &Gates,
    names: &mut Names,
) -> Result<Vec<PodSet>, IngestError> {
    let costs = demand_quantities(object, options, gates)?;
    let reclaimed = status.reclaimable_pods.as_deref().unwrap_or_default();
    let no_spec = PodSpec::default();
    let mut pod_sets = Vec::new();
    for (pod_set, cost) in object.spec.pod_sets.iter().flatten().zip(costs) {
        let name = pod_set_name(pod_set);
        let count = pod_set.count.unwrap_or(1);
        let done = reclaimed.iter().find(|own| own.name == name).map(|own| own.count);
        let done = done.filter(|_| gates.reclaimable_pods).unwrap_or(0).min(count);
        let spec = pod_set.template.spec.as_ref().unwrap_or(&no_spec);
        pod_sets.push(PodSet {
            name: name.into(),
            count,
            min_count: pod_set.min_count.or_else(|| min_count(object, name, gates)),
            effective_count: count - done,
            requests: requests(&cost, names).floor_zero(),
            pod: pod_shape(spec, names).map(|shape| names.pod_shapes.share(shape))?,
            topology: pod_set.topology_request.as_ref().map(topology_request).map(Box::new),
        });
    }
    Ok(pod_sets)
}

/// A pod set's topology request.
pub fn topology_request(request: &v1beta2::PodSetTopologyRequest) -> TopologyRequest {
    let level = |name: &Option<String>| name.as_deref().map(Arc::<str>::from);
    let layers = request.podset_slice_required_topology_constraints.iter().flatten();
    let mut slices: Vec<SliceLayer> =
        layers.map(|layer| SliceLayer { level: layer.topology.as_str().into(), size: layer.size }).collect();
    if slices.is_empty()
        && let Some(level) = level(&request.pod_set_slice_required_topology)
    {
        slices.push(SliceLayer { level, size: request.pod_set_slice_size.unwrap_or(0) });
    }
    TopologyRequest {
        required: level(&request.required),
        preferred: level(&request.preferred),
        unconstrained: request.unconstrained,
        slices,
        slice_size_given: request.pod_set_slice_size.is_some(),
        group: level(&request.pod_set_group_name),
    }
}

/// How few pods of a pod set a slice can do with.
fn min_count(object: &v1beta2::Workload, pod_set: &str, gates: &Gates) -> Option<i32> {
    let is_elastic = gates.elastic_slices && annotation(object, metadata::ELASTIC_JOB) == Some("true");
    let mut counts = annotation(object, MIN_COUNTS).filter(|_| is_elastic)?.split(',');
    let text = counts.find_map(|entry| entry.split_once('=').filter(|(name, _)| *name == pod_set))?.1;
    text.parse().ok().filter(|count| *count >= 0)
}

fn conditions(status: &v1beta2::WorkloadStatus) -> Vec<Condition> {
    let conditions = status.conditions.iter().flatten();
    conditions
        .filter_map(|condition| {
            Some(Condition {
                kind: WorkloadCondition::from_name(&condition.type_)?,
                status: condition.status == "True",
                reason: ConditionReason::from_name(&condition.reason),
                since: time(&condition.last_transition_time),
                fingerprint: fingerprint(condition),
            })
        })
        .collect()
}

fn checks(status: &v1beta2::WorkloadStatus) -> Result<Vec<Check>, IngestError> {
    let mut checks = Vec::new();
    for check in status.admission_checks.iter().flatten() {
        let mut updates = Vec::new();
        for update in check.pod_set_updates.iter().flatten() {
            updates.push(PodSetUpdate {
                name: update.name.as_str().into(),
                node_selector: labels(update.node_selector.as_ref()),
                tolerations: tolerations(update.tolerations.as_deref())?,
            });
        }
        checks.push(Check { name: check.name.as_str().into(), state: check.state, updates });
    }
    Ok(checks)
}

/// The admission of a Workload whose reservation was not ended. Who ends one by server-side apply leaves an admission behind
/// that another field manager wrote: it says nothing. Without the condition the admission stands, as upstream's
/// `workload.NewInfo` reads it.
pub(super) fn reservation(object: &v1beta2::Workload) -> Option<&v1beta2::Admission> {
    let was_ended = object.condition_status(WorkloadCondition::QuotaReserved) == Some(false);
    object.status.as_ref()?.admission.as_ref().filter(|_| !was_ended)
}

fn admission(
    admission: &v1beta2::Admission,
    workload: &Workload,
    names: &mut Names,
) -> Result<Admission, IngestError> {
    let mut pod_sets = Vec::new();
    for held in admission.pod_set_assignments.iter().flatten() {
        let name: Arc<str> = held.name.as_deref().unwrap_or(DEFAULT_POD_SET).into();
        let flavors = held.flavors.iter().flatten();
        let flavors =
            flavors.map(|(resource, flavor)| (names.resource(resource), names.flavors.intern(flavor)));
        let flavors = flavors.collect();
        let spec_count = workload.pod_set(&name).map_or(0, |pod_set| pod_set.count);
        pod_sets.push(PodSetAdmission {
            flavors,
            usage: requests(&quantities(held.resource_usage.as_ref())?, names),
            count: held.count.unwrap_or(spec_count),
            topology: held.topology_assignment.as_ref().map(topology_assignment).transpose()?,
            delayed: held.delayed_topology_request.map(|state| match state {
                DelayedTopologyRequestState::Pending => Delayed::Pending,
                DelayedTopologyRequestState::Ready => Delayed::Ready,
            }),
            name,
        });
    }
    let queue = names.queues.intern(admission.cluster_queue.as_deref().unwrap_or(""));
    Ok(Admission { queue, pod_sets })
}

fn topology_assignment(encoded: &v1beta2::TopologyAssignment) -> Result<TopologyAssignment, IngestError> {
    let invalid = || IngestError::new("topology assignment", "fewer values or counts than domains");
    TopologyAssignment::decoded(encoded).ok_or_else(invalid)
}

fn links(object: &v1beta2::Workload, names: &mut Names) -> Option<Box<Links>> {
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    let replaces = annotation(object, metadata::SLICE_REPLACEMENT_FOR).map(|key| {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        WorkloadKey { namespace: names.namespaces.intern(namespace), name: name.into() }
    });
    let parent = owners.iter().find(|owner| owner.kind == "Workload");
    let allowed = annotation(object, metadata::ALLOWED_RESOURCE_FLAVORS)
        .map(|value| value.split(',').map(|flavor| names.flavors.intern(flavor.trim())).collect());
    let links = Links {
        job_uid: label(object, metadata::JOB_UID).map(Into::into),
        replaces,
        elastic: annotation(object, metadata::ELASTIC_JOB) == Some("true"),
        parent_uid: parent.map(|owner| owner.uid.as_str().into()),
        is_parent: label(object, metadata::CONCURRENT_ADMISSION_PARENT) == Some("true"),
        allowed_flavors: allowed,
        admission_gated: annotation(object, metadata::ADMISSION_GATED_BY).is_some(),
        preemption_gated: has_closed_gate(object),
        owned_by_pod: is_owned_by_pod(object),
        invalid: None,
        has_invalid_devices: false,
    };
    (links != Links::default()).then(|| Box::new(links))
}

/// Whether a Workload is that of a single Pod, which has its node for good.
pub fn is_owned_by_pod(object: &v1beta2::Workload) -> bool {
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    matches!(owners, [owner] if owner.kind == "Pod" && owner.api_version == "v1")
        && annotation(object, metadata::IS_GROUP_WORKLOAD) != Some("true")
}

/// A gate of the spec is closed unless the status says it is open.
fn has_closed_gate(object: &v1beta2::Workload) -> bool {
    let states = object.status.as_ref().and_then(|status| status.preemption_gates.as_deref());
    let states = states.unwrap_or_default();
    object.spec.preemption_gates.iter().flatten().any(|gate| {
        let state = states.iter().find(|state| state.name == gate.name);
        state.is_none_or(|state| state.position == GatePosition::Closed)
    })
}

/// Everything that decides whether the workload fits. As `computeSchedulingHash` in Kueue's
/// `pkg/workload/workload.go`.
fn shape(object: &v1beta2::Workload, workload: &Workload, gates: &Gates, names: &Names) -> ShapeHash {
    let mut hash = Fingerprint::new();
    hash.add(&workload.effective_priority(gates));
    let demands = workload.demands();
    for (index, pod_set) in object.spec.pod_sets.iter().flatten().enumerate() {
        hash.add(&pod_set_name(pod_set));
        if let Some(spec) = &pod_set.template.spec {
            add_pod_spec(&mut hash, spec);
        }
        let demand = demands.get(index);
        hash.add(&demand.map_or(0, |demand| demand.count));
        let totals = demand.iter().flat_map(|demand| demand.requests.iter());
        let totals: BTreeMap<&str, i64> =
            totals.map(|(id, value)| (names.resource_name(id), value)).collect();
        hash.add(&totals);
        hash.add(&pod_set.min_count);
        hash.add(&pod_set.topology_request);
    }
    if let Some(counts) = annotation(object, MIN_COUNTS) {
        // How far it can grow depends on the slice it replaces.
        hash.add(&(counts, annotation(object, metadata::SLICE_REPLACEMENT_FOR)));
    }
    if gates.concurrent_admission {
        hash.add(&annotation(object, metadata::ALLOWED_RESOURCE_FLAVORS));
    }
    ShapeHash::new(hash.finish())
}

fn add_pod_spec(hash: &mut Fingerprint, spec: &PodSpec) {
    fn add_containers(hash: &mut Fingerprint, containers: &[Container]) {
        hash.add(&containers.len());
        for container in containers {
            hash.add(&container.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
            hash.add(&container.ports);
        }
    }
    add_containers(hash, spec.init_containers.as_deref().unwrap_or_default());
    add_containers(hash, &spec.containers);
    hash.add(&spec.node_selector);
    hash.add(&spec.affinity);
    hash.add(&spec.tolerations);
    hash.add(&spec.runtime_class_name);
    hash.add(&spec.priority);
    hash.add(&spec.topology_spread_constraints);
    hash.add(&spec.overhead);
    hash.add(&spec.resource_claims);
    hash.add(&spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
}
