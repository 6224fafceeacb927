//! Resource groups and weights, which ClusterQueues and Cohorts share. As `validateResourceGroups` and
//! `validateFairSharing` in Kueue's `pkg/webhooks`.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use quintet_api::Quantity;
use quintet_api::kueue::v1beta2::{FairSharing, FlavorQuotas, ResourceGroup};
use quintet_api::names::problems;

use super::field::Errors;

const NEGATIVE: &str = "must be greater than or equal to 0";
/// One nano-unit: weights up to it are no different from zero in calculations.
const SMALLEST_WEIGHT_NANOS: i128 = 1;

/// Whose quotas they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A ClusterQueue, and whether it is in a cohort.
    ClusterQueue { has_cohort: bool },
    /// A Cohort, and whether it has a parent. It may lend more than it has itself: its children add to it.
    Cohort { has_parent: bool },
}

impl Owner {
    /// What must be set for limits of borrowing and lending to have a meaning; `None` if it is.
    fn missing_parent(self) -> Option<&'static str> {
        match self {
            Self::ClusterQueue { has_cohort: false } => Some("cohort"),
            Self::Cohort { has_parent: false } => Some("parent"),
            _ => None,
        }
    }
}

pub(super) fn resource_groups(
    groups: Option<&Vec<ResourceGroup>>,
    owner: Owner,
    path: &str,
    errors: &mut Errors,
) {
    let (mut resources, mut flavors) = (BTreeSet::new(), BTreeSet::new());
    for (index, group) in groups.into_iter().flatten().enumerate() {
        let path = format!("{path}[{index}]");
        for (index, resource) in group.covered_resources.iter().enumerate() {
            let path = format!("{path}.coveredResources[{index}]");
            errors.each(&path, resource, problems::qualified_name(resource));
            if !resources.insert(resource) {
                errors.duplicate(path, resource);
            }
        }
        for (index, flavor) in group.flavors.iter().enumerate() {
            let path = format!("{path}.flavors[{index}]");
            flavor_quotas(flavor, &group.covered_resources, owner, &path, errors);
            if !flavors.insert(&flavor.name) {
                errors.duplicate(format!("{path}.name"), &flavor.name);
            }
        }
    }
}

fn flavor_quotas(flavor: &FlavorQuotas, covered: &[String], owner: Owner, path: &str, errors: &mut Errors) {
    // A flavor with more resources than the group covers is rejected by the schema.
    for (index, (quota, covered)) in flavor.resources.iter().zip(covered).enumerate() {
        let path = format!("{path}.resources[{index}]");
        if quota.name != *covered {
            let path = format!("{path}.name");
            errors.invalid(path, &quota.name, "must match the name in coveredResources");
        }
        let nominal = amount(&quota.nominal_quota, &format!("{path}.nominalQuota"), errors);
        if let Some(limit) = &quota.borrowing_limit {
            let path = format!("{path}.borrowingLimit");
            parent_of_limit(limit, owner, &path, errors);
            amount(limit, &path, errors);
        }
        if let Some(limit) = &quota.lending_limit {
            let path = format!("{path}.lendingLimit");
            let lending = amount(limit, &path, errors);
            parent_of_limit(limit, owner, &path, errors);
            if matches!(owner, Owner::ClusterQueue { .. })
                && let (Some(lending), Some(nominal)) = (lending, nominal)
                && lending > nominal
            {
                errors.invalid(path, lending.to_string(), "must be less than or equal to the nominalQuota");
            }
        }
    }
}

/// A quantity that is not negative. `None` if it is none at all.
pub(super) fn amount(quantity: &WireQuantity, path: &str, errors: &mut Errors) -> Option<Quantity> {
    match Quantity::try_from(quantity) {
        Ok(amount) => {
            if amount < Quantity::ZERO {
                errors.invalid(path, amount.to_string(), NEGATIVE);
            }
            Some(amount)
        }
        Err(error) => {
            errors.invalid(path, &quantity.0, error);
            None
        }
    }
}

fn parent_of_limit(limit: &WireQuantity, owner: Owner, path: &str, errors: &mut Errors) {
    if let Some(parent) = owner.missing_parent() {
        let shown = Quantity::try_from(limit).map_or_else(|_| limit.0.clone(), |limit| limit.to_string());
        errors.invalid(path, shown, format!("must be nil when {parent} is empty"));
    }
}

pub(super) fn fair_sharing(sharing: Option<&FairSharing>, path: &str, errors: &mut Errors) {
    let weight = sharing.and_then(|sharing| sharing.weight.as_ref());
    let Some(weight) = weight.and_then(|weight| amount(weight, path, errors)) else { return };
    if weight > Quantity::ZERO && weight.nanos() <= SMALLEST_WEIGHT_NANOS {
        errors.invalid(path, weight.to_string(), "When not 0, weight must be > 10e-9");
    }
}
