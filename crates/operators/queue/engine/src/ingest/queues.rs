//! ClusterQueues, LocalQueues, Cohorts, ResourceFlavors, Topologies and AdmissionChecks.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use quintet_api::conditions::is_true;
use quintet_api::kueue::conditions::ACTIVE;
use quintet_api::kueue::v1beta2::{
    self, AdmissionMode, BorrowWithinCohortPolicy, FlavorFungibilityPolicy, FlavorFungibilityPreference,
    QueueingStrategy, ReclaimWithinCohortPolicy, StopPolicy, WithinClusterQueuePolicy,
};

use super::IngestError;
use super::pod::{labels, quantity, requirement, taints, tolerations};
use crate::amount::Amount;
use crate::labels::{Operator, Requirement, Selector};
use crate::model::{
    BorrowWithinCohort, CheckRule, CohortSpec, Flavor, FlavorQuotas, FungibilityPolicy, LocalQueue,
    Preemption, PreemptionPolicy, QueueSpec, Quota, ResourceGroup, Strategy,
};
use crate::names::{CohortId, FlavorId, LocalQueueId, Names, ResourceId, TopologyId};
use crate::state::CheckInfo;

/// The name of an object.
pub(super) fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or("")
}

/// A ClusterQueue.
pub fn cluster_queue(object: &v1beta2::ClusterQueue, names: &mut Names) -> Result<QueueSpec, IngestError> {
    let spec = &object.spec;
    let mut queue = QueueSpec::new(names.queues.intern(name(&object.metadata)));
    queue.cohort = cohort_id(spec.cohort_name.as_deref(), names);
    queue.strategy = match spec.queueing_strategy {
        Some(QueueingStrategy::StrictFIFO) => Strategy::StrictFifo,
        Some(QueueingStrategy::BestEffortFIFO) => Strategy::BestEffortFifo,
        None => Strategy::Unset,
    };
    queue.namespaces = spec.namespace_selector.as_ref().map(selector).transpose()?;
    queue.groups = groups(spec.resource_groups.as_deref(), names)?;
    queue.fungibility = fungibility(spec.flavor_fungibility.as_ref());
    queue.preemption = preemption(spec.preemption.as_ref());
    queue.weight = weight(spec.fair_sharing.as_ref())?;
    let mode = spec.admission_scope.as_ref().map(|scope| scope.admission_mode);
    queue.usage_based_admission = mode == Some(AdmissionMode::UsageBasedAdmissionFairSharing);
    queue.stopped = is_stopped(spec.stop_policy);
    queue.terminating = object.metadata.deletion_timestamp.is_some();
    let rules = spec.admission_checks_strategy.iter().flat_map(|strategy| &strategy.admission_checks);
    queue.checks = rules
        .map(|rule| CheckRule {
            name: rule.name.as_str().into(),
            flavors: rule.on_flavors.iter().flatten().map(|name| names.flavors.intern(name)).collect(),
        })
        .collect();
    queue.migration = spec.concurrent_admission_policy.as_ref().map(|policy| {
        let constraints = policy.migration.constraints.as_ref();
        let last = constraints.and_then(|constraints| constraints.last_acceptable_flavor_name.as_ref());
        last.map(|name| names.flavors.intern(name))
    });
    Ok(queue)
}

fn cohort_id(name: Option<&str>, names: &mut Names) -> Option<CohortId> {
    name.filter(|name| !name.is_empty()).map(|name| names.cohorts.intern(name))
}

fn is_stopped(policy: Option<StopPolicy>) -> bool {
    policy.is_some_and(|policy| policy != StopPolicy::None)
}

fn weight(fair_sharing: Option<&v1beta2::FairSharing>) -> Result<f64, IngestError> {
    let weight = fair_sharing.and_then(|fair_sharing| fair_sharing.weight.as_ref());
    weight.map_or(Ok(1.0), |weight| Ok(crate::float::as_f64(quantity(weight)?)))
}

fn fungibility(policies: Option<&v1beta2::FlavorFungibility>) -> FungibilityPolicy {
    let when_can_borrow = policies.and_then(|policies| policies.when_can_borrow);
    let when_can_preempt = policies.and_then(|policies| policies.when_can_preempt);
    let preference = policies.and_then(|policies| policies.preference);
    FungibilityPolicy {
        try_next_before_borrowing: when_can_borrow == Some(FlavorFungibilityPolicy::TryNextFlavor),
        try_next_before_preempting: when_can_preempt != Some(FlavorFungibilityPolicy::MayStopSearch),
        preemption_over_borrowing: preference == Some(FlavorFungibilityPreference::PreemptionOverBorrowing),
    }
}

/// Preemption policies. One that is left out of an object that has some did not pass API defaulting.
fn preemption(policies: Option<&v1beta2::ClusterQueuePreemption>) -> Preemption {
    let Some(policies) = policies else {
        return Preemption::default();
    };
    Preemption {
        within_queue: match policies.within_cluster_queue {
            Some(WithinClusterQueuePolicy::Never) => PreemptionPolicy::Never,
            Some(WithinClusterQueuePolicy::LowerPriority) => PreemptionPolicy::LowerPriority,
            Some(WithinClusterQueuePolicy::LowerOrNewerEqualPriority) => {
                PreemptionPolicy::LowerOrNewerEqualPriority
            }
            None => PreemptionPolicy::Unset,
        },
        reclaim_within_cohort: match policies.reclaim_within_cohort {
            Some(ReclaimWithinCohortPolicy::Never) => PreemptionPolicy::Never,
            Some(ReclaimWithinCohortPolicy::LowerPriority) => PreemptionPolicy::LowerPriority,
            Some(ReclaimWithinCohortPolicy::Any) => PreemptionPolicy::Any,
            None => PreemptionPolicy::Unset,
        },
        borrow_within_cohort: policies.borrow_within_cohort.as_ref().map(|policy| BorrowWithinCohort {
            never: policy.policy == Some(BorrowWithinCohortPolicy::Never),
            max_priority: policy.max_priority_threshold,
        }),
    }
}

fn groups(
    groups: Option<&[v1beta2::ResourceGroup]>,
    names: &mut Names,
) -> Result<Vec<ResourceGroup>, IngestError> {
    groups.unwrap_or_default().iter().map(|group| resource_group(group, names)).collect()
}

fn resource_group(group: &v1beta2::ResourceGroup, names: &mut Names) -> Result<ResourceGroup, IngestError> {
    let resources = group.covered_resources.iter().map(|name| names.resource(name)).collect();
    let mut flavors = Vec::new();
    for flavor in &group.flavors {
        let id = names.flavors.intern(&flavor.name);
        let quotas = flavor.resources.iter().map(|resource| {
            let id = names.resource(&resource.name);
            Ok((id, quota(resource, id)?))
        });
        flavors.push(FlavorQuotas { flavor: id, quotas: quotas.collect::<Result<_, IngestError>>()? });
    }
    Ok(ResourceGroup { resources, flavors })
}

fn quota(resource: &v1beta2::ResourceQuota, id: ResourceId) -> Result<Quota, IngestError> {
    let amount = |value| Ok(Amount::of(quantity(value)?, id == ResourceId::CPU));
    Ok(Quota {
        nominal: amount(&resource.nominal_quota)?,
        borrowing_limit: resource.borrowing_limit.as_ref().map(amount).transpose()?,
        lending_limit: resource.lending_limit.as_ref().map(amount).transpose()?,
    })
}

fn selector(selector: &LabelSelector) -> Result<Selector, IngestError> {
    let labels = labels(selector.match_labels.as_ref());
    let mut requirements: Vec<_> = labels
        .into_iter()
        .map(|(key, value)| Requirement { key, operator: Operator::In, values: vec![value] })
        .collect();
    for own in selector.match_expressions.iter().flatten() {
        requirements.push(requirement(&own.key, &own.operator, own.values.as_deref())?);
    }
    Ok(Selector { requirements })
}

/// A Cohort.
pub fn cohort(object: &v1beta2::Cohort, names: &mut Names) -> Result<CohortSpec, IngestError> {
    let id = names.cohorts.intern(name(&object.metadata));
    let spec = &object.spec;
    Ok(CohortSpec {
        id,
        parent: cohort_id(spec.parent_name.as_deref(), names),
        groups: groups(spec.resource_groups.as_deref(), names)?,
        weight: weight(spec.fair_sharing.as_ref())?,
    })
}

/// A ResourceFlavor.
pub fn resource_flavor(
    object: &v1beta2::ResourceFlavor,
    names: &mut Names,
) -> Result<(FlavorId, Flavor), IngestError> {
    let spec = &object.spec;
    let flavor = Flavor {
        node_labels: labels(spec.node_labels.as_ref()),
        taints: taints(spec.node_taints.as_deref())?,
        tolerations: tolerations(spec.tolerations.as_deref())?,
        topology: spec.topology_name.as_ref().map(|name| names.topologies.intern(name)),
    };
    Ok((names.flavors.intern(name(&object.metadata)), flavor))
}

/// A Topology: the node labels of its levels, highest first.
pub fn topology(object: &v1beta2::Topology, names: &mut Names) -> (TopologyId, Vec<Arc<str>>) {
    let levels = object.spec.levels.iter().map(|level| level.node_label.as_str().into());
    (names.topologies.intern(name(&object.metadata)), levels.collect())
}

/// A LocalQueue.
pub fn local_queue(
    object: &v1beta2::LocalQueue,
    names: &mut Names,
) -> Result<(LocalQueueId, LocalQueue), IngestError> {
    let spec = &object.spec;
    let local_queue = LocalQueue {
        queue: names.queues.intern(spec.cluster_queue.as_deref().unwrap_or("")),
        weight: weight(spec.fair_sharing.as_ref())?,
        stopped: is_stopped(spec.stop_policy),
    };
    let namespace = object.metadata.namespace.as_deref().unwrap_or("");
    Ok((names.local_queue(namespace, name(&object.metadata)), local_queue))
}

/// An AdmissionCheck.
pub fn admission_check(object: &v1beta2::AdmissionCheck) -> (Arc<str>, CheckInfo) {
    let conditions = object.status.as_ref().and_then(|status| status.conditions.as_deref());
    let check = CheckInfo {
        active: conditions.is_some_and(|conditions| is_true(conditions, ACTIVE)),
        controller: object.spec.controller_name.as_str().into(),
    };
    (name(&object.metadata).into(), check)
}
