//! The spec of a Job with its defaults filled in.

use k8s_openapi::api::batch::v1::{Job, JobSpec, PodFailurePolicyRule, SuccessPolicyRule};

use super::labels;
use crate::pod::PodView;

/// What a Job asks for.
#[expect(clippy::struct_excessive_bools, reason = "independent settings of the spec")]
pub(super) struct Settings<'a> {
    pub(super) parallelism: i32,
    pub(super) completions: Option<i32>,
    pub(super) backoff_limit: i32,
    pub(super) backoff_limit_per_index: Option<i32>,
    pub(super) max_failed_indexes: Option<i32>,
    pub(super) active_deadline_seconds: Option<i64>,
    pub(super) is_indexed: bool,
    pub(super) is_suspended: bool,
    pub(super) restarts_on_failure: bool,
    /// A pod is replaced when it has failed, not already when it is being deleted.
    pub(super) replaces_failed_only: bool,
    pub(super) failure_rules: &'a [PodFailurePolicyRule],
    pub(super) success_rules: &'a [SuccessPolicyRule],
}

impl<'a> Settings<'a> {
    pub(super) fn of(spec: &'a JobSpec) -> Self {
        let failure_policy = spec.pod_failure_policy.as_ref();
        let restart_policy = spec.template.spec.as_ref().and_then(|pod| pod.restart_policy.as_deref());
        let per_index = spec.backoff_limit_per_index;
        Self {
            parallelism: spec.parallelism.unwrap_or(1),
            completions: spec.completions,
            backoff_limit: spec
                .backoff_limit
                .unwrap_or_else(|| if per_index.is_some() { i32::MAX } else { 6 }),
            backoff_limit_per_index: per_index,
            max_failed_indexes: spec.max_failed_indexes,
            active_deadline_seconds: spec.active_deadline_seconds,
            is_indexed: spec.completion_mode.as_deref() == Some("Indexed"),
            is_suspended: spec.suspend == Some(true),
            restarts_on_failure: restart_policy == Some("OnFailure"),
            replaces_failed_only: spec.pod_replacement_policy.as_deref() == Some("Failed")
                || failure_policy.is_some(),
            failure_rules: failure_policy.map(|policy| &*policy.rules).unwrap_or_default(),
            success_rules: spec.success_policy.as_ref().map(|policy| &*policy.rules).unwrap_or_default(),
        }
    }

    /// The completions of an Indexed Job.
    pub(super) fn indexes(&self) -> i32 {
        self.completions.unwrap_or_default()
    }

    /// The completion index of a pod, if it has one in range.
    pub(super) fn index_of(&self, pod: &PodView) -> Option<i32> {
        let text = pod.metadata.annotations.get(labels::COMPLETION_INDEX)?;
        text.parse().ok().filter(|index| (0..self.indexes()).contains(index))
    }

    /// Whether a pod counts as failed.
    pub(super) fn has_failed(&self, pod: &PodView) -> bool {
        use crate::pod::Phase::{Failed, Succeeded};
        pod.status.phase == Failed
            || (!self.replaces_failed_only && pod.is_deleting() && pod.status.phase != Succeeded)
    }
}

/// Whether another controller manages a Job.
pub(super) fn is_managed_elsewhere(job: &Job) -> bool {
    let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    manager.is_some_and(|manager| manager != labels::CONTROLLER)
}
