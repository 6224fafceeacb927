//! The plan for one RayJob: one function per state.
//!
//! ```text
//!   New -> Initializing -> [Waiting ->] Running -> Complete | Failed
//!    ^          |                          |
//!    |          +--- suspend: Suspending -> Suspended --+
//!    +------ Retrying (a failure with attempts left) <--+
//! ```

mod awaits;
mod cleanup;
mod running;
pub(super) mod submission;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::Time};
use quintet_api::ray::events as event_reasons;
use quintet_api::ray::reasons;
use quintet_api::ray::v1::{RayCluster, RayClusterStatus, RayJob, RayJobStatus};
use quintet_controller::{Action, ApiKind, Event, Next, ObjectKey, StatusPatch, cache::Entry, finalizers};
use serde_json::json;

use super::{
    Observed, Plan, Step, events, objects,
    status::State,
    validation::{Invalid, Mode, validate},
};
use crate::{
    dashboard::{self, Address, JobPoll, JobRequest},
    labels, names, schedulers,
};

/// How often Ray is polled: `RayJobDefaultRequeueDuration` in KubeRay's rayjob_controller.go.
pub(super) const POLL: std::time::Duration = std::time::Duration::from_secs(3);

/// How long a deletion waits for a Ray job that cannot be stopped, because the token for it is gone.
const STOPPING: SignedDuration = SignedDuration::from_mins(5);

/// Computes the plan for one RayJob.
pub(super) fn plan(observed: &Observed) -> Plan {
    let job = observed.object();
    if labels::is_managed_elsewhere(job.spec.managed_by.as_deref()) {
        return Plan::awaiting(labels::managed_elsewhere(job.spec.managed_by.as_deref()));
    }
    if observed.job.deleting {
        return finalize(observed);
    }
    let state = State::of(job);
    if let Err(invalid) = validate(job, &observed.settings) {
        return refuse(observed, state, &invalid);
    }
    let awaits = awaits::awaits(observed);
    Plan { awaits, ..transition(observed, state) }
}

/// The plan of a RayJob with a valid spec, by its state.
fn transition(observed: &Observed, state: State) -> Plan {
    let job = observed.object();
    let draft = Draft::new(observed);
    match state {
        State::New => begin(draft),
        State::Initializing => initialize(draft),
        State::Waiting => wait_for_user(draft),
        State::Running => running::plan(draft),
        State::Suspending | State::Retrying => tear_down(draft, state),
        State::Suspended if job.spec.suspend == Some(true) => Plan::nothing(),
        State::Suspended => draft.transition(State::New),
        State::Complete | State::Failed => finish(observed),
        State::ValidationFailed => recover(draft),
        // A word of another operator, which will know what it means.
        State::Unknown => Plan::nothing(),
    }
}

/// What has ended is cleaned up, and a batch scheduler hears of it.
fn finish(observed: &Observed) -> Plan {
    let mut plan = cleanup::plan(observed);
    let cluster =
        observed.cluster.as_ref().filter(|cluster| !cluster.deleting).map(|cluster| &cluster.object);
    // First things first: what is deleted now wakes us again when it is gone.
    if plan.steps.is_empty() {
        plan.steps.extend(schedulers::release_job(observed.object(), cluster, &observed.settings));
    }
    plan
}

/// What to ask Ray about a RayJob, if anything.
pub(super) fn poll(job: &RayJob, cluster: Option<&RayCluster>) -> Option<JobPoll> {
    let status = job.status.as_ref()?;
    if State::of(job) != State::Running || job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let text = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let at = Address::of(cluster?, &text(&status.dashboard_url)?);
    Some(JobPoll { at, id: text(&status.job_id)? })
}

/// A status in the making, and what has to be done before it is true.
pub(super) struct Draft<'a> {
    pub(super) observed: &'a Observed,
    pub(super) status: RayJobStatus,
    pub(super) steps: Vec<Step>,
    pub(super) events: Vec<Event>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(observed: &'a Observed) -> Self {
        let status = observed.status().cloned().unwrap_or_default();
        Self { observed, status, steps: Vec::new(), events: Vec::new() }
    }

    pub(super) fn job(&self) -> &'a RayJob {
        self.observed.object()
    }

    /// The cluster of this attempt.
    pub(super) fn cluster_key(&self) -> ObjectKey {
        let namespace = self.observed.job.key.namespace().unwrap_or_default();
        ObjectKey::new(namespace, self.status.ray_cluster_name.as_deref().unwrap_or_default())
    }

    /// The time `seconds` after this attempt began.
    pub(super) fn deadline(&self, seconds: Option<i32>) -> Option<Timestamp> {
        let start = self.status.start_time.as_ref()?.0;
        start.checked_add(SignedDuration::from_secs(seconds?.into())).ok()
    }

    pub(super) fn fail(mut self, reason: &str, message: impl Into<String>) -> Plan {
        self.status.reason = Some(reason.to_owned());
        self.status.message = Some(message.into());
        self.transition(State::Failed)
    }

    /// Goes on in another state, and counts the attempt if that ends it.
    pub(super) fn transition(mut self, state: State) -> Plan {
        self.status.job_deployment_status = Some(state.as_str().to_owned());
        if state == State::Failed {
            let failed = self.status.failed.unwrap_or_default() + 1;
            self.status.failed = Some(failed);
            let may_retry = !matches!(
                self.status.reason.as_deref(),
                Some(reasons::DEADLINE_EXCEEDED | reasons::JOB_STATUS_CHECK_TIMEOUT_EXCEEDED)
            );
            if may_retry && failed <= self.job().spec.backoff_limit.unwrap_or_default() {
                self.status.job_deployment_status = Some(State::Retrying.as_str().to_owned());
            }
        }
        if state == State::Complete && self.status.job_status.as_deref() == Some("SUCCEEDED") {
            self.status.succeeded = Some(self.status.succeeded.unwrap_or_default() + 1);
        }
        self.done(Next::AwaitChange)
    }

    /// Writes the status if something changed that is worth writing.
    pub(super) fn done(mut self, next: Next) -> Plan {
        let observed = self.observed;
        let before = observed.status().cloned().unwrap_or_default();
        let status = if is_worth_writing(&before, &self.status) {
            if State::of_status(Some(&self.status)).is_terminal() {
                self.status.end_time.get_or_insert(Time(observed.now));
            }
            StatusPatch::between(&observed.job, &before, &self.status)
        } else {
            None
        };
        Plan { steps: self.steps, status, events: self.events, awaits: Vec::new(), next }
    }
}

/// Whether a change is one that clients are told of; messages alone are not.
fn is_worth_writing(before: &RayJobStatus, after: &RayJobStatus) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    text(&before.job_status) != text(&after.job_status)
        || text(&before.job_deployment_status) != text(&after.job_deployment_status)
        || before.job_status_check_failure_start_time != after.job_status_check_failure_start_time
        || lasting(before.ray_cluster_status.as_ref()) != lasting(after.ray_cluster_status.as_ref())
}

/// A cluster's status without what changes all the time.
fn lasting(status: Option<&RayClusterStatus>) -> RayClusterStatus {
    let status = status.cloned().unwrap_or_default();
    RayClusterStatus {
        last_update_time: None,
        observed_generation: None,
        state_transition_times: None,
        desired_cpu: None,
        desired_gpu: None,
        desired_memory: None,
        desired_tpu: None,
        ..status
    }
}

/// Requeue at the first of these times that is still to come, if nothing happens before.
pub(super) fn at_first(now: Timestamp, times: impl IntoIterator<Item = Option<Timestamp>>) -> Next {
    let waits = times.into_iter().flatten().filter(|time| *time > now).map(|time| time.duration_since(now));
    match waits.min().and_then(|wait| std::time::Duration::try_from(wait).ok()) {
        Some(wait) => Next::After(wait),
        None => Next::AwaitChange,
    }
}

pub(super) fn has_passed(now: Timestamp, time: Option<Timestamp>) -> bool {
    time.is_some_and(|time| now >= time)
}

/// Finalizes a RayJob that is being deleted: stops the Ray job if it can still be reached.
fn finalize(observed: &Observed) -> Plan {
    let Some(release) = finalizers::remove(&observed.job, &observed.object().metadata, labels::JOB_FINALIZER)
    else {
        return Plan::nothing();
    };
    let status = observed.status().cloned().unwrap_or_default();
    let is_over = status.job_status.as_deref().is_some_and(submission::is_terminal);
    let text = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let (mut steps, mut events) = (Vec::new(), Vec::new());
    if let (false, Some(cluster), Some(host), Some(id)) =
        (is_over, &observed.cluster, text(&status.dashboard_url), text(&status.job_id))
    {
        let deleted = observed.object().metadata.deletion_timestamp.as_ref();
        let patience_ends = deleted.and_then(|deleted| deleted.0.checked_add(STOPPING).ok());
        if has_passed(observed.now, patience_ends) {
            let note = format!(
                "Ray job {id} could not be stopped within {} minutes of the deletion and may run on on RayCluster {}; \
                 stop it there",
                STOPPING.as_mins(),
                cluster.key
            );
            events.push(Event::warning(event_reasons::FAILED_TO_STOP_RAY_JOB, "Delete", note));
        } else {
            let stop = JobRequest::StopJob { at: Address::of(&cluster.object, &host), id };
            steps.push(Action::Call(stop).into());
        }
    }
    steps.push(release.into());
    Plan { steps, events, ..Plan::default() }
}

/// The user has to fix something first. What has ended stays as it ended.
fn refuse(observed: &Observed, state: State, invalid: &Invalid) -> Plan {
    let mut draft = Draft::new(observed);
    let is_known =
        state == State::ValidationFailed && draft.status.message.as_deref() == Some(invalid.message.as_str());
    if is_known {
        return Plan::awaiting(invalid.message.clone());
    }
    draft.events.push(events::invalid(&observed.job.key, invalid));
    if state.is_terminal() {
        return draft.done(Next::AwaitChange);
    }
    draft.status.job_deployment_status = Some(State::ValidationFailed.as_str().to_owned());
    draft.status.reason = Some(reasons::VALIDATION_FAILED.to_owned());
    draft.status.message = Some(invalid.message.clone());
    // Another mistake in place of the first changes nothing but the message, and users wait for that one.
    let before = observed.status().cloned().unwrap_or_default();
    let status = StatusPatch::between(&observed.job, &before, &draft.status);
    let awaits = vec![invalid.message.clone()];
    Plan { status, events: draft.events, awaits, ..Plan::default() }
}

/// What was wrong has been fixed: go on where it was noticed.
fn recover(mut draft: Draft<'_>) -> Plan {
    let state = former_state(&draft);
    draft.status.reason = None;
    draft.status.message = None;
    // Written as it is: an attempt that had ended before was counted then.
    draft.status.job_deployment_status = Some(state.as_str().to_owned());
    draft.done(Next::AwaitChange)
}

/// The state in which a mistake was noticed, or one from which everything that is missing is made again.
fn former_state(draft: &Draft<'_>) -> State {
    let (observed, status) = (draft.observed, &draft.status);
    let mode = Mode::of(&draft.job().spec);
    let is_set = |field: &Option<String>| field.as_ref().is_some_and(|text| !text.is_empty());
    let job_status = status.job_status.as_deref().unwrap_or_default();
    let is_over = submission::is_terminal(job_status);
    if status.end_time.is_some() {
        return if is_over && job_status != "FAILED" { State::Complete } else { State::Failed };
    }
    if !is_set(&status.ray_cluster_name) {
        return State::New;
    }
    if !is_set(&status.dashboard_url) {
        return State::Initializing;
    }
    let has_cluster = observed.cluster.as_ref().is_some_and(|cluster| !cluster.deleting);
    // The attempt is being cleared away: that is brought to its end before another one begins.
    if !has_cluster || (is_over && !mode.has_submitter()) {
        return State::Retrying;
    }
    if mode == Mode::Interactive && !is_set(&status.job_id) {
        return State::Waiting;
    }
    State::Running
}

fn begin(mut draft: Draft<'_>) -> Plan {
    let (observed, job) = (draft.observed, draft.job());
    let name = observed.job.key.name();
    let finalizer = finalizers::add(&observed.job, &job.metadata, labels::JOB_FINALIZER);
    draft.steps.extend(finalizer.map(Into::into));
    // The name is written down before anything is made under it, so that it is chosen once.
    let fresh = |what: &str| {
        let moment = observed.now.as_nanosecond();
        format!("{name}-{}", names::suffix((observed.job.uid.as_str(), moment, what)))
    };
    let given = job.spec.job_id.clone().filter(|id| !id.is_empty());
    let is_set = |field: &Option<String>| field.as_ref().is_some_and(|text| !text.is_empty());
    let status = &mut draft.status;
    if !is_set(&status.job_id) && Mode::of(&job.spec) != Mode::Interactive {
        status.job_id = Some(given.unwrap_or_else(|| fresh("job")));
    }
    if !is_set(&status.ray_cluster_name) {
        status.ray_cluster_name = Some(selected_cluster(job).map_or_else(|| fresh("cluster"), str::to_owned));
    }
    status.failed = status.failed.or(Some(0));
    status.succeeded = status.succeeded.or(Some(0));
    status.start_time = Some(Time(observed.now));
    status.end_time = None;
    draft.transition(State::Initializing)
}

/// The name of the existing cluster that a RayJob wants to use.
pub(super) fn selected_cluster(job: &RayJob) -> Option<&str> {
    let name = job.spec.cluster_selector.as_ref()?.get(labels::CLUSTER)?;
    Some(name.as_str()).filter(|name| !name.is_empty())
}

fn initialize(mut draft: Draft<'_>) -> Plan {
    let (observed, job) = (draft.observed, draft.job());
    if job.spec.suspend == Some(true) {
        return draft.transition(State::Suspending);
    }
    let active = draft.deadline(job.spec.active_deadline_seconds);
    let pre_running = draft.deadline(job.spec.pre_running_deadline_seconds);
    if has_passed(observed.now, active) {
        return miss_deadline(draft);
    }
    if has_passed(observed.now, pre_running) {
        return miss_pre_running_deadline(draft);
    }
    let next = at_first(observed.now, [active, pre_running]);
    match prepare_scheduler(&draft) {
        Ok(steps) => draft.steps.extend(steps),
        Err(error) => {
            let event = events::failed_to_create_cluster(&draft.cluster_key(), &error);
            return Plan { events: vec![event], next, ..Plan::default() };
        }
    }
    let Some(cluster) = &observed.cluster else {
        return match ensure_cluster(&mut draft) {
            Ok(()) => draft.done(next),
            // The user has to make it; its creation enqueues the RayJob.
            Err(event) => Plan { events: vec![event], next, ..Plan::default() },
        };
    };
    if cluster.deleting {
        // Once it is gone, another one is made.
        return draft.done(next);
    }
    let host = draft.status.dashboard_url.clone().filter(|url| !url.is_empty());
    let cluster_status = cluster.object.status.as_ref();
    let is_ready = cluster_status.and_then(|status| status.state.as_deref()) == Some("ready");
    if host.is_none() && !is_ready && !submission::has_ended_in_head(observed) {
        draft.status.ray_cluster_status = cluster_status.cloned();
        return draft.done(next);
    }
    let service = observed.cluster_service.as_ref();
    let host = host.or_else(|| dashboard::host(service?, &observed.settings.cluster_domain));
    let Some(host) = host else {
        // The Service wakes us when it comes.
        return draft.done(next);
    };
    draft.status.dashboard_url = Some(host);
    // What clients read of the cluster is that it is ready: nothing before the first answer of Ray would say so.
    draft.status.ray_cluster_status = cluster_status.cloned();
    match Mode::of(&job.spec) {
        Mode::Interactive => return draft.transition(State::Waiting),
        Mode::K8sJob => match ensure_submitter(&mut draft, &cluster.object) {
            Ok(true) => {}
            // What is in the way wakes us when it is gone.
            Ok(false) => return draft.done(next),
            Err(event) => return Plan { events: vec![event], next, ..Plan::default() },
        },
        _ => {}
    }
    draft.transition(State::Running)
}

/// What a batch scheduler has to know before the pods come.
fn prepare_scheduler(draft: &Draft<'_>) -> Result<Vec<Step>, String> {
    let (settings, job) = (&draft.observed.settings, draft.job());
    if settings.batch_scheduler.is_none() {
        return Ok(Vec::new());
    }
    let name = draft.status.ray_cluster_name.clone().unwrap_or_default();
    let cluster = match selected_cluster(job) {
        Some(_) => None,
        None => Some(objects::cluster(job, &name, settings)?),
    };
    let submitter = cluster.as_ref().and_then(|cluster| objects::submitter_template(job, cluster));
    schedulers::prepare_job(job, cluster.as_ref(), submitter.as_ref(), settings)
}

/// Makes the cluster, unless the user has to make it.
pub(super) fn ensure_cluster(draft: &mut Draft<'_>) -> Result<(), Event> {
    let (observed, job) = (draft.observed, draft.job());
    if let Some(name) = selected_cluster(job) {
        let namespace = observed.job.key.namespace().unwrap_or_default();
        return Err(events::cluster_not_found(&ObjectKey::new(namespace, name)));
    }
    let key = draft.cluster_key();
    let cluster = objects::cluster(job, key.name(), &observed.settings)
        .map_err(|error| events::failed_to_create_cluster(&key, &error))?;
    let create = Action::create(ApiKind::of::<RayCluster>(), &cluster);
    draft.steps.push(create.with_event(events::created_cluster(&key)));
    Ok(())
}

/// Makes the Job that submits, and says whether one is there or coming. It asks Ray before it submits, so that
/// making it again does not submit twice.
pub(super) fn ensure_submitter(draft: &mut Draft<'_>, cluster: &RayCluster) -> Result<bool, Event> {
    let observed = draft.observed;
    let refusal = |error: &str| events::failed_to_create_submitter(&observed.job.key, error);
    if observed.own_submitter().is_some_and(|submitter| !submitter.deleting) {
        return Ok(true);
    }
    if let Some(other) = &observed.submitter {
        if !other.deleting {
            draft.events.push(refusal("a Job of that name belongs to something else; it has to go first"));
        }
        return Ok(false);
    }
    let submitter = objects::submitter(draft.job(), &draft.status, cluster, &observed.settings);
    let submitter = submitter.map_err(|error| refusal(&error))?;
    let create = Action::create(ApiKind::of::<Job>(), &submitter);
    draft.steps.push(create.with_event(events::created_submitter(&observed.job.key)));
    Ok(true)
}

/// When this attempt began, as upstream's messages give it.
fn started(draft: &Draft<'_>) -> String {
    let start = draft.status.start_time.as_ref().map(|time| time.0).unwrap_or_default();
    start.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string()
}

pub(super) fn miss_deadline(draft: Draft<'_>) -> Plan {
    let seconds = draft.job().spec.active_deadline_seconds.unwrap_or_default();
    let start = started(&draft);
    let message = format!(
        "The RayJob has passed the activeDeadlineSeconds. StartTime: {start}. ActiveDeadlineSeconds: {seconds}"
    );
    draft.fail(reasons::DEADLINE_EXCEEDED, message)
}

fn miss_pre_running_deadline(draft: Draft<'_>) -> Plan {
    let seconds = draft.job().spec.pre_running_deadline_seconds.unwrap_or_default();
    let start = started(&draft);
    let message = format!(
        "The RayJob has passed the preRunningDeadlineSeconds. StartTime: {start}. \
         PreRunningDeadlineSeconds: {seconds}"
    );
    draft.fail(reasons::PRE_RUNNING_DEADLINE_EXCEEDED, message)
}

fn wait_for_user(mut draft: Draft<'_>) -> Plan {
    let (now, job) = (draft.observed.now, draft.job());
    let deadline = draft.deadline(job.spec.pre_running_deadline_seconds);
    if has_passed(now, deadline) {
        return miss_pre_running_deadline(draft);
    }
    if let Some(id) = job.spec.job_id.clone().filter(|id| !id.is_empty()) {
        draft.status.job_id = Some(id);
        return draft.transition(State::Running);
    }
    // Users look here for how the cluster is that they are to submit to.
    if let Some(cluster) = &draft.observed.cluster {
        draft.status.ray_cluster_status.clone_from(&cluster.object.status);
    }
    draft.done(at_first(now, [deadline]))
}

/// Deletes what the attempt has made; once it is gone, the names can be forgotten.
fn tear_down(mut draft: Draft<'_>, state: State) -> Plan {
    let (observed, job) = (draft.observed, draft.job());
    let mut is_clear = true;
    if let Some(cluster) = observed.own_cluster() {
        is_clear = false;
        if !cluster.deleting {
            draft.steps.push(delete_cluster(cluster));
        }
    }
    let submitter =
        observed.own_submitter().filter(|_| !matches!(Mode::of(&job.spec), Mode::Http | Mode::Sidecar));
    if let Some(submitter) = submitter {
        is_clear = false;
        if !submitter.deleting {
            let delete = Action::delete(ApiKind::of::<Job>(), submitter);
            draft.steps.push(delete.with_event(events::deleted_submitter(&submitter.key)));
        }
    }
    if !is_clear {
        return Plan { steps: draft.steps, next: Next::AwaitChange, ..Plan::default() };
    }
    draft.steps.extend(schedulers::release_job(job, None, &observed.settings));
    let status = &mut draft.status;
    status.ray_cluster_status = None;
    status.ray_cluster_name = None;
    status.dashboard_url = None;
    status.job_id = None;
    status.message = None;
    status.reason = None;
    status.ray_job_info = None;
    status.job_status_check_failure_start_time = None;
    status.job_status = Some(String::new());
    draft.transition(if state == State::Suspending { State::Suspended } else { State::New })
}

/// Deletes a RayJob's cluster.
pub(super) fn delete_cluster(cluster: &Entry<RayCluster>) -> Step {
    Action::delete(ApiKind::of::<RayCluster>(), cluster).with_event(events::deleted_cluster(&cluster.key))
}

/// Suspends every worker group of a cluster that is not suspended yet.
pub(super) fn suspend_workers(cluster: &Entry<RayCluster>) -> Step {
    let groups = cluster.object.spec.worker_group_specs.as_deref().unwrap_or_default();
    let operations = groups.iter().enumerate().filter(|(_, group)| group.suspend != Some(true));
    let operations = operations.flat_map(|(index, group)| {
        let path = format!("/spec/workerGroupSpecs/{index}");
        [
            json!({ "op": "test", "path": format!("{path}/groupName"), "value": group.group_name }),
            json!({ "op": "add", "path": format!("{path}/suspend"), "value": true }),
        ]
    });
    let action = Action::Patch {
        kind: ApiKind::of::<RayCluster>(),
        key: cluster.key.clone(),
        subresource: None,
        patch_kind: quintet_controller::plan::PatchKind::Json,
        patch: operations.collect(),
    };
    action.with_event(events::suspended_workers(&cluster.key))
}
