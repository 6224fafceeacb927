//! Queues, cohorts, flavors, topologies, nodes and configuration.

use std::sync::Arc;

use serde_json::Value;

use super::Unreadable;
use super::json::{at, condition, int32, list, name, strings, text};
use super::pod::{pod_requests, quantities, quantity, requests, requirement, taints, tolerations};
use crate::amount::Amount;
use crate::labels::{Labels, Operator, Requirement, Selector};
use crate::model::{
    BorrowWithinCohort, CheckRule, CohortSpec, Flavor, FlavorQuotas, FungibilityPolicy, LocalQueue,
    Preemption, PreemptionPolicy, QueueSpec, Quota, ResourceGroup, Strategy,
};
use crate::names::{CohortId, FlavorId, LocalQueueId, Names, NamespaceId, ResourceId, TopologyId};
use crate::requests::Requests;
use crate::settings::{AdmissionFairSharing, FairStrategy, QuotaCheck, RequeuingTimestamp, Settings};
use crate::state::CheckInfo;
use crate::tas::NodeInfo;
use crate::time::Span;

/// Reads a ClusterQueue.
pub fn queue(object: &Value, names: &mut Names) -> Result<QueueSpec, Unreadable> {
    let spec = at(object, "spec");
    let mut queue = QueueSpec::new(names.queues.intern(name(object)));
    queue.cohort =
        text(spec, "cohortName").filter(|name| !name.is_empty()).map(|name| names.cohorts.intern(name));
    queue.strategy = match text(spec, "queueingStrategy") {
        Some("StrictFIFO") => Strategy::StrictFifo,
        Some("BestEffortFIFO") => Strategy::BestEffortFifo,
        _ => Strategy::Unset,
    };
    queue.namespaces = selector(at(spec, "namespaceSelector"))?;
    queue.groups = groups(spec, names)?;
    queue.fungibility = fungibility(at(spec, "flavorFungibility"));
    queue.preemption = preemption(at(spec, "preemption"));
    queue.weight = weight(spec)?;
    queue.usage_based_admission =
        text(spec, "admissionScope.admissionMode") == Some("UsageBasedAdmissionFairSharing");
    queue.stopped = is_stopped(spec);
    queue.terminating = !at(object, "metadata.deletionTimestamp").is_null();
    let legacy = list(spec, "admissionChecks").iter().filter_map(Value::as_str);
    let plain = legacy.map(|name| CheckRule { name: name.into(), flavors: Vec::new() });
    queue.checks = plain.collect();
    for rule in list(spec, "admissionChecksStrategy.admissionChecks") {
        let flavors = list(rule, "onFlavors").iter().filter_map(Value::as_str);
        queue.checks.push(CheckRule {
            name: text(rule, "name").unwrap_or("").into(),
            flavors: flavors.map(|name| names.flavors.intern(name)).collect(),
        });
    }
    queue.migration = match at(spec, "concurrentAdmissionPolicy") {
        Value::Null => None,
        policy => {
            let last = text(policy, "migration.constraints.lastAcceptableFlavorName");
            Some(last.map(|name| names.flavors.intern(name)))
        }
    };
    Ok(queue)
}

fn is_stopped(spec: &Value) -> bool {
    text(spec, "stopPolicy").is_some_and(|policy| !policy.is_empty() && policy != "None")
}

fn weight(spec: &Value) -> Result<f64, Unreadable> {
    match at(spec, "fairSharing.weight") {
        Value::Null => Ok(1.0),
        value => Ok(crate::float::as_f64(quantity(value)?)),
    }
}

fn fungibility(value: &Value) -> FungibilityPolicy {
    FungibilityPolicy {
        try_next_before_borrowing: text(value, "whenCanBorrow") == Some("TryNextFlavor"),
        try_next_before_preempting: !matches!(
            text(value, "whenCanPreempt"),
            Some("MayStopSearch" | "Preempt")
        ),
        preemption_over_borrowing: text(value, "preference") == Some("PreemptionOverBorrowing"),
    }
}

fn preemption(value: &Value) -> Preemption {
    let policy = |key| match text(value, key) {
        Some("LowerPriority") => PreemptionPolicy::LowerPriority,
        Some("LowerOrNewerEqualPriority") => PreemptionPolicy::LowerOrNewerEqualPriority,
        Some("Any") => PreemptionPolicy::Any,
        None | Some("") if !value.is_null() => PreemptionPolicy::Unset,
        _ => PreemptionPolicy::Never,
    };
    let borrow = at(value, "borrowWithinCohort");
    Preemption {
        within_queue: policy("withinClusterQueue"),
        reclaim_within_cohort: policy("reclaimWithinCohort"),
        borrow_within_cohort: (!borrow.is_null()).then(|| BorrowWithinCohort {
            never: text(borrow, "policy") == Some("Never"),
            max_priority: int32(borrow, "maxPriorityThreshold"),
        }),
    }
}

fn groups(spec: &Value, names: &mut Names) -> Result<Vec<ResourceGroup>, Unreadable> {
    let mut groups = Vec::new();
    for group in list(spec, "resourceGroups") {
        let covered = list(group, "coveredResources").iter().filter_map(Value::as_str);
        let resources = covered.map(|name| names.resource(name)).collect();
        let mut flavors = Vec::new();
        for flavor in list(group, "flavors") {
            let id = names.flavors.intern(text(flavor, "name").unwrap_or(""));
            let mut quotas = Vec::new();
            for resource in list(flavor, "resources") {
                let id = names.resource(text(resource, "name").unwrap_or(""));
                let amount = |key: &str| -> Result<_, Unreadable> {
                    match at(resource, key) {
                        Value::Null => Ok(None),
                        value => Ok(Some(Amount::of(quantity(value)?, id == ResourceId::CPU))),
                    }
                };
                let quota = Quota {
                    nominal: amount("nominalQuota")?.unwrap_or_default(),
                    borrowing_limit: amount("borrowingLimit")?,
                    lending_limit: amount("lendingLimit")?,
                };
                quotas.push((id, quota));
            }
            flavors.push(FlavorQuotas { flavor: id, quotas });
        }
        groups.push(ResourceGroup { resources, flavors });
    }
    Ok(groups)
}

/// A label selector; none selects nothing, an empty one everything.
fn selector(value: &Value) -> Result<Option<Selector>, Unreadable> {
    if value.is_null() {
        return Ok(None);
    }
    let labels = strings(at(value, "matchLabels"));
    let mut requirements: Vec<_> = labels
        .into_iter()
        .map(|(key, value)| Requirement { key, operator: Operator::In, values: vec![value] })
        .collect();
    for expression in list(value, "matchExpressions") {
        requirements.push(requirement(expression)?);
    }
    Ok(Some(Selector { requirements }))
}

/// Reads a Cohort.
pub fn cohort(object: &Value, names: &mut Names) -> Result<(CohortId, CohortSpec), Unreadable> {
    let spec = at(object, "spec");
    let id = names.cohorts.intern(name(object));
    let parent =
        text(spec, "parentName").filter(|name| !name.is_empty()).map(|name| names.cohorts.intern(name));
    Ok((id, CohortSpec { id, parent, groups: groups(spec, names)?, weight: weight(spec)? }))
}

/// Reads a ResourceFlavor.
pub fn flavor(object: &Value, names: &mut Names) -> Result<(FlavorId, Flavor), Unreadable> {
    let spec = at(object, "spec");
    let flavor = Flavor {
        node_labels: strings(at(spec, "nodeLabels")),
        taints: taints(at(spec, "nodeTaints"))?,
        tolerations: tolerations(at(spec, "tolerations"))?,
        topology: text(spec, "topologyName").map(|name| names.topologies.intern(name)),
    };
    Ok((names.flavors.intern(name(object)), flavor))
}

/// Reads a Topology: its levels, highest first.
pub fn topology(object: &Value, names: &mut Names) -> (TopologyId, Vec<Arc<str>>) {
    let levels = list(object, "spec.levels").iter().filter_map(|level| text(level, "nodeLabel"));
    (names.topologies.intern(name(object)), levels.map(Into::into).collect())
}

/// Reads a LocalQueue.
pub fn local_queue(object: &Value, names: &mut Names) -> Result<(LocalQueueId, LocalQueue), Unreadable> {
    let namespace = text(object, "metadata.namespace").unwrap_or("");
    let spec = at(object, "spec");
    let local_queue = LocalQueue {
        queue: names.queues.intern(text(spec, "clusterQueue").unwrap_or("")),
        weight: weight(spec)?,
        stopped: is_stopped(spec),
    };
    Ok((names.local_queues.intern(&format!("{namespace}/{}", name(object))), local_queue))
}

/// Reads a Namespace.
pub fn namespace(object: &Value, names: &mut Names) -> (NamespaceId, Labels) {
    (names.namespaces.intern(name(object)), strings(at(object, "metadata.labels")))
}

/// Reads an AdmissionCheck.
pub fn check(object: &Value) -> (Arc<str>, CheckInfo) {
    let active = condition(object, "Active").is_some_and(|active| text(active, "status") == Some("True"));
    let controller = text(object, "spec.controllerName").unwrap_or("").into();
    (name(object).into(), CheckInfo { active, controller })
}

/// Reads a Node.
pub fn node(object: &Value, names: &mut Names) -> Result<NodeInfo, Unreadable> {
    let ready = condition(object, "Ready").is_some_and(|ready| text(ready, "status") == Some("True"));
    let cordoned = at(object, "spec.unschedulable").as_bool().unwrap_or(false);
    Ok(NodeInfo {
        name: name(object).into(),
        labels: strings(at(object, "metadata.labels")),
        taints: taints(at(object, "spec.taints"))?,
        allocatable: requests(&quantities(at(object, "status.allocatable"))?, names),
        usable: ready && !cordoned,
        non_tas_usage: Requests::new(),
    })
}

/// What a Pod uses of its node without the topology knowing, and the node's name.
pub fn pod_usage(object: &Value, names: &mut Names) -> Result<Option<(Arc<str>, Requests)>, Unreadable> {
    const MARKS: [&str; 5] = [
        "kueue.x-k8s.io/podset-required-topology",
        "kueue.x-k8s.io/podset-preferred-topology",
        "kueue.x-k8s.io/podset-unconstrained-topology",
        "kueue.x-k8s.io/podset-slice-required-topology",
        "kueue.x-k8s.io/podset-slice-required-topology-constraints",
    ];
    let annotations = strings(at(object, "metadata.annotations"));
    let node = text(object, "spec.nodeName").unwrap_or("");
    let is_over = matches!(text(object, "status.phase"), Some("Succeeded" | "Failed"));
    if node.is_empty() || is_over || MARKS.iter().any(|mark| annotations.contains_key(*mark)) {
        return Ok(None);
    }
    let mut usage = requests(&pod_requests(at(object, "spec"))?, names);
    let pods = usage.get(ResourceId::PODS).saturating_add(1);
    usage.set(ResourceId::PODS, pods);
    Ok(Some((node.into(), usage)))
}

/// Reads the parts of the manager configuration that change decisions.
pub fn settings(config: &Value, names: &mut Names) -> Result<Settings, Unreadable> {
    let mut settings = Settings::default();
    let fair = at(config, "fairSharing");
    if !fair.is_null() {
        let strategies = list(fair, "preemptionStrategies").iter().filter_map(Value::as_str);
        let strategies: Vec<_> = strategies
            .map(|name| match name {
                "LessThanInitialShare" => FairStrategy::LessThanInitialShare,
                _ => FairStrategy::LessThanOrEqualToFinalShare,
            })
            .collect();
        settings.fair_sharing =
            Some(if strategies.is_empty() { Settings::DEFAULT_STRATEGIES.to_vec() } else { strategies });
    }
    let afs = at(config, "admissionFairSharing");
    if !afs.is_null() {
        let weights = at(afs, "resourceWeights").as_object().into_iter().flatten();
        settings.admission_fair_sharing = Some(AdmissionFairSharing {
            half_life: duration(at(afs, "usageHalfLifeTime"))?,
            sampling_interval: match at(afs, "usageSamplingInterval") {
                Value::Null => Span::secs(300),
                value => duration(value)?,
            },
            resource_weights: weights
                .filter_map(|(name, weight)| Some((names.resource(name), weight.as_f64()?)))
                .collect(),
        });
    }
    if text(config, "resources.quotaCheckStrategy") == Some("IgnoreUndeclared") {
        settings.quota_check = QuotaCheck::IgnoreUndeclared;
    }
    let ready = at(config, "waitForPodsReady");
    settings.block_admission = at(ready, "blockAdmission").as_bool().unwrap_or(false);
    if text(ready, "requeuingStrategy.timestamp") == Some("Creation") {
        settings.requeuing_timestamp = RequeuingTimestamp::Creation;
    }
    Ok(settings)
}

/// A Go duration such as `1h30m` or `10s`.
fn duration(value: &Value) -> Result<Span, Unreadable> {
    let Some(text) = value.as_str() else {
        return Ok(Span::default());
    };
    let unreadable = || Unreadable::new("duration", text);
    let mut rest = text;
    let mut nanos = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(unreadable)?;
        let (number, tail) = rest.split_at(digits);
        let units = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(units);
        let scale = match unit {
            "h" => 3600e9,
            "m" => 60e9,
            "s" => 1e9,
            "ms" => 1e6,
            "us" | "µs" => 1e3,
            "ns" => 1.0,
            _ => return Err(unreadable()),
        };
        nanos += number.parse::<f64>().map_err(|_| unreadable())? * scale;
        rest = tail;
    }
    #[expect(clippy::cast_possible_truncation, reason = "saturates at 292 years")]
    let nanos = nanos.round() as i64;
    Ok(Span::nanos(nanos))
}
