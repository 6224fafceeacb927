//! Whether a Workload still stands for its job. As `EquivalentToWorkload` and `util/equality` of Kueue.

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use quintet_api::kueue::v1beta2::PodSet;

/// Whether pod sets mean the same. Tolerations count only while nothing was injected.
pub(crate) fn are_equivalent(of_job: &[PodSet], of_workload: &[PodSet], with_tolerations: bool) -> bool {
    of_job.len() == of_workload.len()
        && of_job.iter().zip(of_workload).all(|(own, other)| {
            own.count.unwrap_or(1) == other.count.unwrap_or(1)
                && own.min_count == other.min_count
                && is_same_template(&own.template, &other.template, with_tolerations)
        })
}

fn is_same_template(own: &PodTemplateSpec, other: &PodTemplateSpec, with_tolerations: bool) -> bool {
    let empty = PodSpec::default();
    let (own, other) = (own.spec.as_ref().unwrap_or(&empty), other.spec.as_ref().unwrap_or(&empty));
    let tolerations = |spec: &PodSpec| spec.tolerations.clone().unwrap_or_default();
    own.containers == other.containers
        && own.init_containers.as_deref().unwrap_or_default()
            == other.init_containers.as_deref().unwrap_or_default()
        && (!with_tolerations || tolerations(own) == tolerations(other))
}
