//! What to do about a RayJob whose job was handed to Ray.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::Time};
use quintet_api::ray::reasons;
use quintet_api::ray::v1::{RayCluster, RayJobInfo};
use quintet_controller::{Action, ApiKind, Event, Next, ObjectKey, cache::Entry};

use super::{
    Draft, at_first, ensure_cluster, ensure_submitter, has_passed, miss_deadline, poll, selected_cluster,
    submission::{self, Progress},
};
use crate::{
    dashboard::{JobInfo, JobPoll, JobRequest, JobStatus},
    k8s_service::{events as service_events, update},
    rayjob::{Observed, Plan, Step, objects, status::State, validation::Mode},
};

/// How long Ray may take to notice the end of a job whose submitter has ended.
const SUBMITTER_GRACE: SignedDuration = SignedDuration::from_secs(30);

/// Computes the plan.
pub(crate) fn plan(mut draft: Draft<'_>) -> Plan {
    let (observed, job) = (draft.observed, draft.job());
    let settings = &observed.settings;
    if job.spec.suspend == Some(true) {
        return draft.transition(State::Suspending);
    }
    let active = draft.deadline(job.spec.active_deadline_seconds);
    if has_passed(observed.now, active) {
        return miss_deadline(draft);
    }
    let recorded = draft.status.job_status.clone().unwrap_or_default();
    let ended = draft.status.ray_job_info.as_ref().and_then(|info| info.end_time.as_ref());
    let grace_ends = ended
        .filter(|_| submission::is_terminal(&recorded))
        .and_then(|ended| ended.0.checked_add(settings.job_transition_grace).ok());
    if has_passed(observed.now, grace_ends) {
        return out_of_grace(draft, &recorded);
    }
    let failing_since = draft.status.job_status_check_failure_start_time.as_ref().map(|time| time.0);
    let check_ends =
        failing_since.and_then(|since| since.checked_add(settings.job_status_check_timeout).ok());
    if let (true, Some(since)) = (has_passed(observed.now, check_ends), failing_since) {
        let seconds = settings.job_status_check_timeout.as_secs();
        let since = date_time(since);
        let message =
            format!("Job status checks have been failing since {since}; exceeded timeout of {seconds}s");
        return draft.fail(reasons::JOB_STATUS_CHECK_TIMEOUT_EXCEEDED, message);
    }
    if observed.cluster.is_none()
        && let Err(event) = ensure_cluster(&mut draft)
    {
        draft.events.push(event);
    }
    let progress = match submission::inspect(observed) {
        Ok(progress) => progress,
        Err(gone) => return draft.fail(reasons::APP_FAILED, gone),
    };
    let submitter_ends = progress.finished_at.and_then(|at| at.checked_add(SUBMITTER_GRACE).ok());
    let next = at_first(observed.now, [active, grace_ends, check_ends, submitter_ends]);
    let service = observed.cluster.as_ref().map(|cluster| head_service(observed, cluster));
    let mut plan = listen(draft, &progress, next);
    // Last, because the job does not need it.
    match service {
        Some(Ok(step)) => plan.steps.extend(step),
        Some(Err(event)) => plan.events.push(event),
        None => {}
    }
    plan
}

fn out_of_grace(mut draft: Draft<'_>, recorded: &str) -> Plan {
    draft.status.reason = Some(reasons::JOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_EXCEEDED.to_owned());
    let message = "JobDeploymentStatus does not transition to Complete or Failed within the grace period after \
                   JobStatus reaches a terminal state.";
    draft.status.message = Some(message.to_owned());
    draft.transition(if recorded == "FAILED" { State::Failed } else { State::Complete })
}

/// Goes by what Ray last said, and by how far the submitter is.
fn listen(mut draft: Draft<'_>, progress: &Progress, next: Next) -> Plan {
    let observed = draft.observed;
    let mode = Mode::of(&draft.job().spec);
    let Some(heard) = &observed.ray_job else {
        // Ray is being asked; the answer wakes us.
        return draft.done(next);
    };
    match &heard.response {
        Ok(Some(info)) => {
            take(&mut draft, info);
            if let Some(message) = &progress.failure {
                return submitter_failed(draft, message);
            }
            if info.status.is_terminal() && (!mode.has_submitter() || progress.finished_at.is_some()) {
                return end(draft, info.status == JobStatus::Failed);
            }
            match progress.finished_at {
                Some(at) if heard.at.duration_since(at) >= SUBMITTER_GRACE => submitter_left(draft, at),
                _ => draft.done(next),
            }
        }
        _ if progress.failure.is_some() => {
            let message = progress.failure.clone().unwrap_or_default();
            submitter_failed(draft, &message)
        }
        Ok(None) if mode == Mode::Http => submit(draft),
        Ok(None) if progress.finished_at.is_some() => {
            draft.fail(reasons::APP_FAILED, "Submitter completed but Ray job not found in RayCluster.")
        }
        Ok(None) => {
            // It is an answer, though not the one that is hoped for.
            draft.status.job_status_check_failure_start_time = None;
            if let (Mode::K8sJob, Some(cluster)) = (mode, &observed.cluster)
                && let Err(event) = ensure_submitter(&mut draft, &cluster.object)
            {
                draft.events.push(event);
            }
            draft.done(next)
        }
        // What Ray has said of a job's end stays true, though it cannot be asked any more.
        Err(_) if progress.finished_at.is_some() && submission::is_terminal(recorded(&draft)) => {
            let has_failed = recorded(&draft) == "FAILED";
            end(draft, has_failed)
        }
        Err(_) => {
            let since = draft.status.job_status_check_failure_start_time.get_or_insert(Time(observed.now)).0;
            // After an outage of ours, Ray gets the same time to answer as it has otherwise: what was written down
            // before does not count.
            match progress.finished_at.map(|at| (at, at.max(heard.since))) {
                Some((at, silent)) if observed.now.duration_since(silent) >= SUBMITTER_GRACE => {
                    submitter_left(draft, at)
                }
                Some((_, silent)) => {
                    draft.done(sooner(observed.now, next, silent.checked_add(SUBMITTER_GRACE).ok()))
                }
                None => {
                    let ends = since.checked_add(observed.settings.job_status_check_timeout).ok();
                    draft.done(sooner(observed.now, next, ends))
                }
            }
        }
    }
}

/// What Ray last said of the job, as far as it was written down.
fn recorded<'a>(draft: &'a Draft<'_>) -> &'a str {
    draft.status.job_status.as_deref().unwrap_or_default()
}

/// Requeue at `next`, or at this time if that is sooner.
fn sooner(now: Timestamp, next: Next, time: Option<Timestamp>) -> Next {
    match (next, at_first(now, [time])) {
        (Next::After(a), Next::After(b)) => Next::After(a.min(b)),
        (Next::AwaitChange, other) | (other, Next::AwaitChange) => other,
    }
}

/// Takes over what Ray says.
fn take(draft: &mut Draft<'_>, info: &JobInfo) {
    let status = &mut draft.status;
    status.job_status_check_failure_start_time = None;
    if let Some(cluster) = &draft.observed.cluster {
        status.ray_cluster_status.clone_from(&cluster.object.status);
    }
    status.job_status = Some(info.status.as_str().to_owned());
    status.message = Some(info.message.clone());
    status.reason = None;
    let time = |time: Option<Timestamp>| time.map(Time);
    status.ray_job_info =
        Some(RayJobInfo { start_time: time(info.start_time), end_time: time(info.end_time) });
}

fn end(mut draft: Draft<'_>, has_failed: bool) -> Plan {
    if has_failed {
        draft.status.reason = Some(reasons::APP_FAILED.to_owned());
        return draft.transition(State::Failed);
    }
    draft.transition(State::Complete)
}

fn submitter_failed(draft: Draft<'_>, message: &str) -> Plan {
    let is_app = draft.status.job_status.as_deref() == Some("FAILED");
    draft.fail(if is_app { reasons::APP_FAILED } else { reasons::SUBMISSION_FAILED }, message)
}

fn submitter_left(mut draft: Draft<'_>, at: Timestamp) -> Plan {
    draft.status.job_status = Some("FAILED".to_owned());
    let (at, seconds) = (date_time(at), SUBMITTER_GRACE.as_secs());
    let message = format!(
        "The RayJob submitter finished at {at} but the ray job did not reach terminal state within {seconds}s"
    );
    draft.fail(reasons::JOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_EXCEEDED, message)
}

/// A time as upstream's messages give it.
fn date_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Ray does not know the job: the operator submits it, again if Ray has lost it.
fn submit(mut draft: Draft<'_>) -> Plan {
    let observed = draft.observed;
    let Some(JobPoll { at, id }) = poll(observed.object(), observed.cluster.as_ref().map(|c| &c.object))
    else {
        return draft.done(Next::AwaitChange);
    };
    match objects::submission(draft.job(), &id) {
        Ok(job) => {
            draft.status.job_status_check_failure_start_time = None;
            let root = observed.job.key.clone();
            draft.steps.push(Action::Call(JobRequest::SubmitJob { root, at, job }).into());
            draft.done(Next::AwaitChange)
        }
        Err(error) => draft.fail(reasons::SUBMISSION_FAILED, error),
    }
}

/// The RayJob's own Service in front of the head, made once and moved when the cluster is another one.
fn head_service(observed: &Observed, cluster: &Entry<RayCluster>) -> Result<Option<Step>, Event> {
    let job = observed.object();
    if selected_cluster(job).is_some() {
        return Ok(None);
    }
    let wanted = objects::head_service(job, &cluster.object, &observed.settings);
    let Some(live) = &observed.head_service else {
        let namespace = observed.job.key.namespace().unwrap_or_default();
        let key = ObjectKey::new(namespace, wanted.metadata.name.as_deref().unwrap_or_default());
        let create = Action::create(ApiKind::of::<Service>(), &wanted);
        return Ok(Some(create.with_event(service_events::created(&key))));
    };
    update::refuse_foreign(live, observed.job.uid.as_str())?;
    let update = update::to_select(live, &wanted);
    Ok(update.map(|update| update.with_event(service_events::updated(&live.key))))
}
