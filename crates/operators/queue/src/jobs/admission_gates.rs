//! The annotation `kueue.x-k8s.io/admission-gated-by` of jobs, which their Workloads have, too. As
//! `PropagateAdmissionGatedByAnnotation` of Kueue.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::kueue::events::JobEvent;
use quintet_api::kueue::metadata::ADMISSION_GATED_BY;
use quintet_controller::Event;

use super::compose::annotation;
use super::lifecycle::event;
use crate::settings::Settings;

/// The gates of an object. None at all are the same as an empty list.
pub(super) fn gates<'m>(metadata: &'m ObjectMeta, settings: &Settings) -> Option<&'m str> {
    let gates = annotation(metadata, ADMISSION_GATED_BY);
    gates.filter(|gates| settings.scheduling.admission_gated_by && !gates.is_empty())
}

/// Gives a Workload the gates of its job; the event about that, if it has others.
pub(super) fn follow(job: &ObjectMeta, workload: &mut ObjectMeta, settings: &Settings) -> Option<Event> {
    let wanted = gates(job, settings);
    if gates(workload, settings) == wanted {
        return None;
    }
    let annotations = workload.annotations.get_or_insert_default();
    match wanted {
        Some(gates) => annotations.insert(ADMISSION_GATED_BY.to_owned(), gates.to_owned()),
        None => annotations.remove(ADMISSION_GATED_BY),
    };
    let note = format!("Updated workload AdmissionGatedBy to {:?}", wanted.unwrap_or_default());
    Some(event(JobEvent::UpdatedWorkload, note))
}
