//! The status of a CronJob: what is active, and what has ended since.

use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use quintet_controller::Event;
use quintet_controller::cache::Entry;

use super::Observed;
use super::plan::SCHEDULED_TIMESTAMP;
use crate::job::labels::{COMPLETE, FAILED};

const SAW_COMPLETED_JOB: &str = "SawCompletedJob";
const UNEXPECTED_JOB: &str = "UnexpectedJob";
const MISSING_JOB: &str = "MissingJob";

/// The names of active Jobs in the status.
pub(super) fn active_names(cron: &CronJob) -> Vec<String> {
    let active = cron.status.iter().flat_map(|status| status.active.iter().flatten());
    active.filter_map(|reference| reference.name.clone()).collect()
}

/// The condition by which a Job has finished.
pub(super) fn finished(job: &Job) -> Option<&'static str> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let holds = |type_: &str| conditions.iter().any(|one| one.type_ == type_ && one.status == "True");
    [COMPLETE, FAILED].into_iter().find(|type_| holds(type_))
}

/// Whether a Job was made for a scheduled time.
fn is_scheduled(job: &Job) -> bool {
    job.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(SCHEDULED_TIMESTAMP))
}

fn reference(job: &Entry<Job>) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        namespace: job.key.namespace().map(str::to_owned),
        name: Some(job.key.name().to_owned()),
        uid: Some(job.uid.to_string()),
        resource_version: Some(job.version.to_string()),
        ..ObjectReference::default()
    }
}

/// Brings the list of active Jobs up to date with the Jobs there are.
pub(super) fn follow(observed: &Observed, status: &mut CronJobStatus) -> Vec<Event> {
    let mut events = Vec::new();
    let mut active = status.active.take().unwrap_or_default();
    for job in &observed.jobs {
        let position = active.iter().position(|one| one.uid.as_deref() == Some(job.uid.as_str()));
        match (finished(&job.object), position) {
            // A new Job is in no status yet.
            (None, None) if is_scheduled(&job.object) => active.push(reference(job)),
            (None, None) => {
                let note =
                    format!("Saw a job that the controller did not create or forgot: {}", job.key.name());
                events.push(Event::warning(UNEXPECTED_JOB, "Follow", note));
                active.push(reference(job));
            }
            (Some(condition), Some(position)) => {
                active.remove(position);
                let note = format!("Saw completed job: {}, condition: {condition}", job.key.name());
                events.push(Event::normal(SAW_COMPLETED_JOB, "Follow", note));
            }
            (None, Some(_)) | (Some(_), None) => {}
        }
        let ended = job.object.status.as_ref().and_then(|status| status.completion_time.clone());
        if finished(&job.object) == Some(COMPLETE) && ended > status.last_successful_time {
            status.last_successful_time = ended;
        }
    }
    for name in &observed.missing {
        active.retain(|one| one.name.as_ref() != Some(name));
        events.push(Event::normal(MISSING_JOB, "Follow", format!("Active job went missing: {name}")));
    }
    status.active = (!active.is_empty()).then_some(active);
    events
}
