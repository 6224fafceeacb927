//! Workloads.

use std::sync::Arc;

use quintet_api::Quantity;
use quintet_api::kueue::v1beta2;
use serde_json::Value;

use super::Unreadable;
use super::json::{Hasher, at, int, int32, list, name, strings, text, texts};
use super::pod::{Quantities, pod_requests, pod_shape, quantities, requests, tolerations};
use crate::model::{
    Admission, Check, CheckState, Condition, ConditionKind, ConditionReason, Delayed, Links, PodSet,
    PodSetAdmission, PodSetUpdate, ShapeHash, SliceLayer, TopologyRequest, Workload, WorkloadKey,
};
use crate::names::Names;
use crate::settings::Gates;
use crate::tas::TopologyAssignment;
use crate::time::Time;

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

/// What changes requests on their way in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntakeOptions {
    /// Resources with these prefixes do not count.
    pub excluded_prefixes: Vec<String>,
    /// Transformations.
    pub transformations: Vec<Transformation>,
    /// Resources of claims, per pod set, with the extended resources they stand for.
    pub claims: Vec<(String, Quantities, Vec<String>)>,
}

impl IntakeOptions {
    /// Reads `resources` of the manager configuration.
    pub fn from_config(config: &Value) -> Result<Self, Unreadable> {
        let mut options = Self {
            excluded_prefixes: texts(config, "resources.excludeResourcePrefixes")
                .iter()
                .map(std::string::ToString::to_string)
                .collect(),
            ..Self::default()
        };
        for value in list(config, "resources.transformations") {
            options.transformations.push(Transformation {
                input: text(value, "input").unwrap_or("").to_owned(),
                replaces_input: text(value, "strategy") == Some("Replace"),
                outputs: quantities(at(value, "outputs"))?,
                multiply_by: text(value, "multiplyBy").filter(|name| !name.is_empty()).map(ToOwned::to_owned),
            });
        }
        Ok(options)
    }

    /// What one pod costs in quota.
    fn effective(&self, asked: Quantities, pod_set: &str, gates: &Gates) -> Quantities {
        let mut kept = asked;
        kept.retain(|name, _| !self.excluded_prefixes.iter().any(|prefix| name.starts_with(prefix.as_str())));
        let mut result = self.transformed(kept);
        if gates.dra
            && let Some((_, claimed, replaced)) = self.claims.iter().find(|(name, ..)| name == pod_set)
        {
            result.retain(|name, _| !replaced.contains(name));
            sum_into(&mut result, claimed);
        }
        result
    }

    fn transformed(&self, asked: Quantities) -> Quantities {
        let find = |name: &str| self.transformations.iter().rev().find(|rule| rule.input == name);
        if !asked.keys().any(|name| find(name).is_some()) {
            return asked;
        }
        let mut retained = Quantities::new();
        let mut generated = Quantities::new();
        for (name, quantity) in &asked {
            let Some(rule) = find(name) else {
                retained.insert(name.clone(), *quantity);
                continue;
            };
            let multiplier = rule.multiply_by.as_ref().and_then(|name| asked.get(name));
            let base = multiplier.map_or(*quantity, |multiplier| quantity.scaled_by(*multiplier));
            let outputs =
                rule.outputs.iter().map(|(name, factor)| (name.clone(), base.scaled_by(*factor))).collect();
            sum_into(&mut generated, &outputs);
            if !rule.replaces_input {
                retained.insert(name.clone(), *quantity);
            }
        }
        for quantity in generated.values_mut().filter(|quantity| quantity.is_negative()) {
            *quantity = Quantity::ZERO;
        }
        sum_into(&mut retained, &generated);
        retained
    }
}

fn sum_into(sum: &mut Quantities, other: &Quantities) {
    for (name, quantity) in other {
        let total = sum.entry(name.clone()).or_default();
        *total += *quantity;
    }
}

/// Reads an RFC 3339 time; none is [`Time::ZERO`].
pub fn time(value: &Value) -> Result<Time, Unreadable> {
    let Some(text) = value.as_str() else {
        return Ok(Time::ZERO);
    };
    let read: jiff::Timestamp = text.parse().map_err(|_| Unreadable::new("time", text))?;
    Ok(i64::try_from(read.as_nanosecond()).map_or(Time::ZERO, Time::from_nanos))
}

/// The quota of every pod set of a pending workload, per pod, before it becomes integers.
pub fn demand_quantities(
    object: &Value,
    options: &IntakeOptions,
    gates: &Gates,
) -> Result<Vec<Quantities>, Unreadable> {
    let pod_sets = list(object, "spec.podSets").iter();
    pod_sets
        .map(|pod_set| {
            let asked = pod_requests(at(pod_set, "template.spec"))?;
            Ok(options.effective(asked, text(pod_set, "name").unwrap_or(""), gates))
        })
        .collect()
}

/// Reads a Workload whose pod templates were adjusted ([`super::adjust_resources`]) already.
pub fn workload(
    object: &Value,
    options: &IntakeOptions,
    gates: &Gates,
    names: &mut Names,
) -> Result<Workload, Unreadable> {
    let namespace = text(object, "metadata.namespace").unwrap_or("");
    let queue_name = text(object, "spec.queueName").unwrap_or("");
    let annotations = strings(at(object, "metadata.annotations"));
    let boost =
        annotations.get("kueue.x-k8s.io/priority-boost").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut workload = Workload {
        key: WorkloadKey { namespace: names.namespaces.intern(namespace), name: name(object).into() },
        uid: text(object, "metadata.uid").unwrap_or("").into(),
        generation: int(object, "metadata.generation").unwrap_or(0),
        created: time(at(object, "metadata.creationTimestamp"))?,
        local_queue: names.local_queues.intern(&format!("{namespace}/{queue_name}")),
        priority: int32(object, "spec.priority").unwrap_or(0),
        boost,
        active: at(object, "spec.active").as_bool().unwrap_or(true),
        spec_fingerprint: fingerprint(at(object, "spec")),
        reclaim_fingerprint: fingerprint(at(object, "status.reclaimablePods")),
        shape: None,
        pod_sets: pod_sets(object, options, gates, names)?,
        conditions: conditions(object)?,
        checks: checks(object)?,
        requeue_at: match at(object, "status.requeueState.requeueAt") {
            Value::Null => None,
            value => Some(time(value)?),
        },
        admission: None,
        unhealthy_nodes: list(object, "status.unhealthyNodes")
            .iter()
            .filter_map(|node| text(node, "name"))
            .map(Into::into)
            .collect(),
        links: links(object, &annotations, names),
    };
    workload.admission = admission(object, &workload, names)?.map(Arc::new);
    if gates.equivalence_hashing {
        workload.shape = Some(shape(object, &workload, gates, names));
    }
    Ok(workload)
}

fn fingerprint(value: &Value) -> u64 {
    let mut hasher = Hasher::new();
    hasher.value(value);
    hasher.finish64()
}

fn pod_sets(
    object: &Value,
    options: &IntakeOptions,
    gates: &Gates,
    names: &mut Names,
) -> Result<Vec<PodSet>, Unreadable> {
    let costs = demand_quantities(object, options, gates)?;
    let reclaimed = list(object, "status.reclaimablePods");
    let mut pod_sets = Vec::new();
    for (value, cost) in list(object, "spec.podSets").iter().zip(costs) {
        let name = text(value, "name").unwrap_or("");
        let count = int32(value, "count").unwrap_or(0);
        let done = reclaimed
            .iter()
            .find(|entry| text(entry, "name") == Some(name))
            .and_then(|entry| int32(entry, "count"));
        let done = done.filter(|_| gates.reclaimable_pods).unwrap_or(0).min(count);
        pod_sets.push(PodSet {
            name: name.into(),
            count,
            min_count: int32(value, "minCount"),
            effective_count: count - done,
            requests: requests(&cost, names).floor_zero(),
            pod: pod_shape(at(value, "template.spec"), names).map(|shape| names.pod_shapes.share(shape))?,
            topology: topology_request(at(value, "topologyRequest")).map(Box::new),
        });
    }
    Ok(pod_sets)
}

/// Reads a pod set's topology request.
pub fn topology_request(value: &Value) -> Option<TopologyRequest> {
    if value.is_null() {
        return None;
    }
    let level = |key| text(value, key).map(Arc::<str>::from);
    let mut slices: Vec<SliceLayer> = list(value, "podsetSliceRequiredTopologyConstraints")
        .iter()
        .map(|layer| SliceLayer {
            level: text(layer, "topology").unwrap_or("").into(),
            size: int32(layer, "size").unwrap_or(0),
        })
        .collect();
    if slices.is_empty()
        && let Some(level) = level("podSetSliceRequiredTopology")
    {
        slices.push(SliceLayer { level, size: int32(value, "podSetSliceSize").unwrap_or(0) });
    }
    Some(TopologyRequest {
        required: level("required"),
        preferred: level("preferred"),
        unconstrained: at(value, "unconstrained").as_bool(),
        slices,
        slice_size_given: !at(value, "podSetSliceSize").is_null(),
        group: level("podSetGroupName"),
    })
}

fn conditions(object: &Value) -> Result<Vec<Condition>, Unreadable> {
    let mut conditions = Vec::new();
    for value in list(object, "status.conditions") {
        let kind = match text(value, "type").unwrap_or("") {
            "QuotaReserved" => ConditionKind::QuotaReserved,
            "Admitted" => ConditionKind::Admitted,
            "Evicted" => ConditionKind::Evicted,
            "Preempted" => ConditionKind::Preempted,
            "Requeued" => ConditionKind::Requeued,
            "Finished" => ConditionKind::Finished,
            "PodsReady" => ConditionKind::PodsReady,
            "WaitingForReplacementPods" => ConditionKind::WaitingForReplacementPods,
            "BlockedOnPreemptionGates" => ConditionKind::BlockedOnPreemptionGates,
            _ => continue,
        };
        let reason = match text(value, "reason").unwrap_or("") {
            "OnHold" => ConditionReason::OnHold,
            "PodsReadyTimeout" => ConditionReason::PodsReadyTimeout,
            "AdmissionCheck" => ConditionReason::AdmissionCheck,
            "InCohortReclaimWhileBorrowing" => ConditionReason::InCohortReclaimWhileBorrowing,
            _ => ConditionReason::Other,
        };
        let status = text(value, "status") == Some("True");
        let since = time(at(value, "lastTransitionTime"))?;
        conditions.push(Condition { kind, status, reason, since, fingerprint: fingerprint(value) });
    }
    Ok(conditions)
}

fn checks(object: &Value) -> Result<Vec<Check>, Unreadable> {
    let read = |value: &Value| -> Result<Check, Unreadable> {
        let mut updates = Vec::new();
        for update in list(value, "podSetUpdates") {
            updates.push(PodSetUpdate {
                name: text(update, "name").unwrap_or("").into(),
                node_selector: strings(at(update, "nodeSelector")),
                tolerations: tolerations(at(update, "tolerations"))?,
            });
        }
        let state = match text(value, "state").unwrap_or("") {
            "Ready" => CheckState::Ready,
            "Retry" => CheckState::Retry,
            "Rejected" => CheckState::Rejected,
            _ => CheckState::Pending,
        };
        Ok(Check { name: text(value, "name").unwrap_or("").into(), state, updates })
    };
    list(object, "status.admissionChecks").iter().map(read).collect()
}

fn admission(
    object: &Value,
    workload: &Workload,
    names: &mut Names,
) -> Result<Option<Admission>, Unreadable> {
    let value = at(object, "status.admission");
    if value.is_null() {
        return Ok(None);
    }
    let mut pod_sets = Vec::new();
    for held in list(value, "podSetAssignments") {
        let name: Arc<str> = text(held, "name").unwrap_or("").into();
        let flavors = at(held, "flavors").as_object().into_iter().flatten();
        let flavors = flavors
            .filter_map(|(resource, flavor)| {
                Some((names.resource(resource), names.flavors.intern(flavor.as_str()?)))
            })
            .collect();
        let topology = match at(held, "topologyAssignment") {
            Value::Null => None,
            value => {
                let encoded: v1beta2::TopologyAssignment = serde_json::from_value(value.clone())
                    .map_err(|error| Unreadable::new("topology assignment", error))?;
                let decoded = TopologyAssignment::decoded(encoded);
                Some(decoded.ok_or_else(|| Unreadable::new("topology assignment", value))?)
            }
        };
        let spec_count = workload.pod_set(&name).map_or(0, |pod_set| pod_set.count);
        pod_sets.push(PodSetAdmission {
            flavors,
            usage: requests(&quantities(at(held, "resourceUsage"))?, names),
            count: int32(held, "count").unwrap_or(spec_count),
            topology,
            delayed: match text(held, "delayedTopologyRequest") {
                Some("Pending") => Some(Delayed::Pending),
                Some("Ready") => Some(Delayed::Ready),
                _ => None,
            },
            name,
        });
    }
    let queue = names.queues.intern(text(value, "clusterQueue").unwrap_or(""));
    Ok(Some(Admission { queue, pod_sets }))
}

fn links(
    object: &Value,
    annotations: &std::collections::BTreeMap<Arc<str>, Arc<str>>,
    names: &mut Names,
) -> Option<Box<Links>> {
    let annotation = |key: &str| annotations.get(key).map(|value| &**value).filter(|value| !value.is_empty());
    let labels = strings(at(object, "metadata.labels"));
    let owners = list(object, "metadata.ownerReferences");
    let replaces = annotation("kueue.x-k8s.io/workload-slice-replacement-for").map(|key| {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        WorkloadKey { namespace: names.namespaces.intern(namespace), name: name.into() }
    });
    let parent = owners.iter().find(|owner| text(owner, "kind") == Some("Workload"));
    let allowed = annotation("kueue.x-k8s.io/workload-allowed-resource-flavors")
        .map(|value| value.split(',').map(|flavor| names.flavors.intern(flavor.trim())).collect());
    let links = Links {
        job_uid: labels.get("kueue.x-k8s.io/job-uid").cloned(),
        replaces,
        elastic: annotation("kueue.x-k8s.io/elastic-job") == Some("true"),
        parent_uid: parent.and_then(|owner| text(owner, "uid")).map(Into::into),
        is_parent: labels.get("kueue.x-k8s.io/concurrent-admission-parent").map(|value| &**value)
            == Some("true"),
        allowed_flavors: allowed,
        admission_gated: annotation("kueue.x-k8s.io/admission-gated-by").is_some(),
        preemption_gated: has_closed_gate(object),
        owned_by_pod: owners.len() == 1
            && owners
                .iter()
                .all(|owner| text(owner, "kind") == Some("Pod") && text(owner, "apiVersion") == Some("v1"))
            && annotation("kueue.x-k8s.io/is-group-workload") != Some("true"),
        invalid: None,
    };
    (links != Links::default()).then(|| Box::new(links))
}

/// A gate of the spec is closed unless the status says it is open.
fn has_closed_gate(object: &Value) -> bool {
    let states = list(object, "status.preemptionGates");
    list(object, "spec.preemptionGates").iter().any(|gate| {
        let state = states.iter().find(|state| text(state, "name") == text(gate, "name"));
        state.is_none_or(|state| text(state, "position") == Some("Closed"))
    })
}

/// Everything that decides whether the workload fits.
fn shape(object: &Value, workload: &Workload, gates: &Gates, names: &Names) -> ShapeHash {
    const SPEC: [&str; 8] = [
        "nodeSelector",
        "affinity",
        "tolerations",
        "runtimeClassName",
        "priority",
        "topologySpreadConstraints",
        "overhead",
        "resourceClaims",
    ];
    let mut hasher = Hasher::new();
    hasher.int(workload.effective_priority(gates));
    let demands = workload.demands();
    for (index, value) in list(object, "spec.podSets").iter().enumerate() {
        hasher.text(text(value, "name").unwrap_or(""));
        let spec = at(value, "template.spec");
        for containers in ["initContainers", "containers"] {
            hasher.text(containers);
            for container in list(spec, containers) {
                hasher.value(at(container, "resources.requests"));
                hasher.value(at(container, "ports"));
            }
        }
        for key in SPEC {
            hasher.value(at(spec, key));
        }
        hasher.value(at(spec, "resources.requests"));
        let demand = demands.get(index);
        hasher.int(demand.map_or(0, |demand| i64::from(demand.count)));
        let mut totals: Vec<_> = demand
            .map(|demand| {
                demand.requests.iter().map(|(id, value)| (names.resource_name(id), value)).collect()
            })
            .unwrap_or_default();
        totals.sort_unstable();
        for (name, total) in totals {
            hasher.text(name);
            hasher.int(total);
        }
        hasher.value(at(value, "minCount"));
        hasher.value(at(value, "topologyRequest"));
    }
    if gates.concurrent_admission {
        let annotation =
            at(object, "metadata.annotations").get("kueue.x-k8s.io/workload-allowed-resource-flavors");
        hasher.value(annotation.unwrap_or(&Value::Null));
    }
    ShapeHash::new(hasher.finish())
}
