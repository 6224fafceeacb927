//! ClusterQueues. As Kueue's `pkg/webhooks/clusterqueue_webhook.go`.

use std::collections::{BTreeMap, BTreeSet};

use quintet_api::kueue::v1beta2::{
    BorrowWithinCohortPolicy, ClusterQueue, ClusterQueuePreemption, ClusterQueueSpec,
    ConcurrentAdmissionMode, FlavorFungibility, FlavorFungibilityPolicy, QueueingStrategy,
    ReclaimWithinCohortPolicy, ResourceGroup,
};

use super::field::Errors;
use super::quota::{self, Owner};
use super::{Gates, metadata};

const MAX_FLAVORS: usize = 256;
const MAX_COVERED_RESOURCES: usize = 256;
const MAX_COMBINATIONS: usize = 512;
const MAX_CONCURRENT_FLAVORS: usize = 16;

/// Whether a new ClusterQueue is valid.
pub fn validate_create(queue: &ClusterQueue, gates: &Gates) -> Errors {
    let mut errors = Errors::default();
    validate_spec(&queue.spec, gates, &mut errors);
    on_flavors(&queue.spec, &BTreeMap::new(), &mut errors);
    errors
}

/// Whether a ClusterQueue may be changed like this.
pub fn validate_update(queue: &ClusterQueue, old: &ClusterQueue, gates: &Gates) -> Errors {
    let mut errors = Errors::default();
    validate_spec(&queue.spec, gates, &mut errors);
    on_flavors(&queue.spec, &tolerated_checks(&queue.spec, &old.spec, gates), &mut errors);
    let policy = |queue: &ClusterQueue| queue.spec.concurrent_admission_policy.clone();
    errors.immutable("spec.concurrentAdmissionPolicy", &policy(queue), &policy(old));
    errors
}

fn validate_spec(spec: &ClusterQueueSpec, gates: &Gates, errors: &mut Errors) {
    let groups = spec.resource_groups.as_ref();
    let has_cohort = spec.cohort_name.as_ref().is_some_and(|cohort| !cohort.is_empty());
    quota::resource_groups(groups, Owner::ClusterQueue { has_cohort }, "spec.resourceGroups", errors);
    metadata::label_selector(spec.namespace_selector.as_ref(), "spec.namespaceSelector", errors);
    if let Some(preemption) = &spec.preemption {
        validate_preemption(preemption, errors);
    }
    if let Some(fungibility) = &spec.flavor_fungibility {
        validate_fungibility(fungibility, errors);
    }
    quota::fair_sharing(spec.fair_sharing.as_ref(), "spec.fairSharing", errors);
    validate_totals(groups.map_or(&[], Vec::as_slice), errors);
    if gates.scheduling.concurrent_admission {
        validate_concurrent_admission(spec, errors);
    }
}

fn validate_preemption(preemption: &ClusterQueuePreemption, errors: &mut Errors) {
    let borrows = preemption.borrow_within_cohort.as_ref().and_then(|borrow| borrow.policy);
    if preemption.reclaim_within_cohort == Some(ReclaimWithinCohortPolicy::Never)
        && borrows.is_some_and(|policy| policy != BorrowWithinCohortPolicy::Never)
    {
        let why = "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never";
        errors.invalid("spec.preemption", preemption, why);
    }
}

fn validate_fungibility(fungibility: &FlavorFungibility, errors: &mut Errors) {
    let Some(preference) = fungibility.preference else { return };
    let tries_next = |policy| policy == Some(FlavorFungibilityPolicy::TryNextFlavor);
    if !tries_next(fungibility.when_can_borrow) || !tries_next(fungibility.when_can_preempt) {
        errors.invalid(
            "spec.flavorFungibility.preference",
            preference,
            format!(
                "preference \"{preference:?}\" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor"
            ),
        );
    }
}

fn validate_totals(groups: &[ResourceGroup], errors: &mut Errors) {
    let path = "spec.resourceGroups";
    let flavors: usize = groups.iter().map(|group| group.flavors.len()).sum();
    if flavors > MAX_FLAVORS {
        let why = format!(
            "total number of flavors across all resourceGroups must be ≤ {MAX_FLAVORS}, got {flavors}"
        );
        errors.invalid(path, flavors, why);
    }
    let covered: usize = groups.iter().map(|group| group.covered_resources.len()).sum();
    if covered > MAX_COVERED_RESOURCES {
        let why = format!(
            "total number of covered resources across all resourceGroups must be ≤ {MAX_COVERED_RESOURCES}, got {covered}"
        );
        errors.invalid(path, covered, why);
    }
    for (index, group) in groups.iter().enumerate() {
        let combinations: usize = group.flavors.iter().map(|flavor| flavor.resources.len()).sum();
        if combinations > MAX_COMBINATIONS {
            let why = format!(
                "number of flavor-resource combinations in a resourceGroup must be ≤ {MAX_COMBINATIONS}, got {combinations}"
            );
            errors.invalid(format!("{path}[{index}]"), combinations, why);
        }
    }
}

fn validate_concurrent_admission(spec: &ClusterQueueSpec, errors: &mut Errors) {
    let Some(policy) = &spec.concurrent_admission_policy else { return };
    let groups = spec.resource_groups.as_deref().unwrap_or(&[]);
    match groups {
        [only] if only.flavors.len() > MAX_CONCURRENT_FLAVORS => errors.invalid(
            "spec.resourceGroups[0].flavors",
            only.flavors.len(),
            format!(
                "cannot have more than {MAX_CONCURRENT_FLAVORS} resource flavors in the ResourceGroup when ConcurrentAdmissionPolicy is defined"
            ),
        ),
        [_] => {}
        _ => errors.invalid(
            "spec.resourceGroups",
            groups.len(),
            "must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined",
        ),
    }
    if let Some(constraints) = &policy.migration.constraints {
        let path = "spec.concurrentAdmissionPolicy.migration.constraints";
        let mode = policy.migration.mode;
        let flavors = flavors(groups);
        if mode != ConcurrentAdmissionMode::TryPreferredFlavors {
            let wanted = ConcurrentAdmissionMode::TryPreferredFlavors;
            let why = format!("may only be set when migration.mode is \"{wanted:?}\" (got \"{mode:?}\")");
            errors.forbidden(path, why);
        } else if let Some(last) =
            constraints.last_acceptable_flavor_name.as_deref().filter(|last| !flavors.contains(last))
        {
            let known: Vec<&str> = flavors.into_iter().collect();
            let why =
                format!("must be one of the flavors defined in the ClusterQueue: [{}]", known.join(" "));
            errors.invalid(format!("{path}.lastAcceptableFlavorName"), last, why);
        }
    }
    if spec.queueing_strategy == Some(QueueingStrategy::StrictFIFO) {
        let why = "StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined";
        errors.invalid("spec.queueingStrategy", QueueingStrategy::StrictFIFO, why);
    }
}

type ChecksByName<'s> = BTreeMap<&'s str, BTreeSet<&'s str>>;

/// Checks whose unknown flavors were there before: changing something else must be possible.
fn tolerated_checks<'s>(
    spec: &ClusterQueueSpec,
    old: &'s ClusterQueueSpec,
    gates: &Gates,
) -> ChecksByName<'s> {
    let groups = |spec: &'s ClusterQueueSpec| spec.resource_groups.as_deref().unwrap_or(&[]);
    let now = spec.resource_groups.as_deref().unwrap_or(&[]);
    if gates.reject_invalid_on_flavors || flavors(groups(old)) != flavors(now) {
        return BTreeMap::new();
    }
    let checks = old.admission_checks_strategy.iter().flat_map(|strategy| &strategy.admission_checks);
    checks.map(|check| (check.name.as_str(), texts(check.on_flavors.as_ref()))).collect()
}

fn on_flavors(spec: &ClusterQueueSpec, tolerated: &ChecksByName<'_>, errors: &mut Errors) {
    let flavors = flavors(spec.resource_groups.as_deref().unwrap_or(&[]));
    let checks = spec.admission_checks_strategy.iter().flat_map(|strategy| &strategy.admission_checks);
    for (index, check) in checks.enumerate() {
        if tolerated.get(check.name.as_str()) == Some(&texts(check.on_flavors.as_ref())) {
            continue;
        }
        for (position, flavor) in check.on_flavors.iter().flatten().enumerate() {
            if !flavors.contains(flavor.as_str()) {
                let path =
                    format!("spec.admissionChecksStrategy.admissionChecks[{index}].onFlavors[{position}]");
                errors.unsupported(path, flavor, flavors.iter().copied());
            }
        }
    }
}

fn flavors(groups: &[ResourceGroup]) -> BTreeSet<&str> {
    groups.iter().flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect()
}

fn texts(texts: Option<&Vec<String>>) -> BTreeSet<&str> {
    texts.into_iter().flatten().map(String::as_str).collect()
}
