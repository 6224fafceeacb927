//! Cohorts. As Kueue's `pkg/webhooks/cohort_webhook.go`.

use quintet_api::kueue::v1beta2::Cohort;

use super::field::Errors;
use super::quota::{self, Owner};

/// Whether a Cohort is valid, new or changed.
pub fn validate(cohort: &Cohort) -> Errors {
    let mut errors = Errors::default();
    let spec = &cohort.spec;
    let has_parent = spec.parent_name.as_ref().is_some_and(|parent| !parent.is_empty());
    quota::fair_sharing(spec.fair_sharing.as_ref(), "spec.fairSharing", &mut errors);
    let owner = Owner::Cohort { has_parent };
    quota::resource_groups(spec.resource_groups.as_ref(), owner, "spec.resourceGroups", &mut errors);
    errors
}
