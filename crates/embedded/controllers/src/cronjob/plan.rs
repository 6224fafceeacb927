//! The plan for one CronJob.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::owners::controller_reference;
use quintet_api::schedule::Schedule;
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Event, Plan, StatusPatch, Step};

use super::status::{self, finished};
use super::{Observed, Zone};
use crate::job::labels::COMPLETE;
use crate::time;

/// The annotation of a Job with the time it was scheduled for.
pub(super) const SCHEDULED_TIMESTAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// More missed times than this are worth a warning, as upstream's `mostRecentScheduleTime`.
const MANY_MISSED: usize = 100;

const UNPARSEABLE_SCHEDULE: &str = "UnparseableSchedule";
const UNKNOWN_TIME_ZONE: &str = "UnknownTimeZone";
const TOO_MANY_MISSED_TIMES: &str = "TooManyMissedTimes";
const MISS_SCHEDULE: &str = "MissSchedule";
const JOB_ALREADY_ACTIVE: &str = "JobAlreadyActive";
const SUCCESSFUL_CREATE: &str = "SuccessfulCreate";
const SUCCESSFUL_DELETE: &str = "SuccessfulDelete";

/// Computes the plan.
pub(super) fn plan(observed: &Observed) -> Plan {
    let cron = &observed.cron;
    if cron.deleting {
        return Plan::nothing();
    }
    let spec = &cron.object.spec;
    let current = cron.object.status.clone().unwrap_or_default();
    let mut desired = current.clone();
    let mut plan = Plan { events: status::follow(observed, &mut desired), ..Plan::default() };
    plan.steps.extend(clean_up(observed, spec));
    match schedule(observed, spec) {
        Ok(_) if spec.suspend == Some(true) => plan.awaits.push("spec.suspend to be false".to_owned()),
        Ok((schedule, zone)) => run(observed, spec, &schedule, zone, &mut desired, &mut plan),
        Err(event) => {
            plan.awaits.push(event.note.clone());
            plan.events.push(event);
        }
    }
    plan.status = StatusPatch::between(cron, &current, &desired);
    plan
}

/// The schedule, or what is wrong with it.
fn schedule<'a>(
    observed: &'a Observed,
    spec: &CronJobSpec,
) -> Result<(Schedule, &'a jiff::tz::TimeZone), Event> {
    let zone = match &observed.zone {
        Zone::Known(zone) => zone,
        Zone::Unknown(error) => return Err(Event::warning(UNKNOWN_TIME_ZONE, "Schedule", error.clone())),
    };
    let schedule = spec.schedule.parse::<Schedule>().map_err(|error| {
        let note = format!("unparseable schedule: {:?} : {error}", spec.schedule);
        Event::warning(UNPARSEABLE_SCHEDULE, "Schedule", note)
    })?;
    Ok((schedule, zone))
}

/// Starts the Job of the last time that is due, if there is one.
fn run(
    observed: &Observed,
    spec: &CronJobSpec,
    schedule: &Schedule,
    zone: &jiff::tz::TimeZone,
    desired: &mut k8s_openapi::api::batch::v1::CronJobStatus,
    plan: &mut Plan,
) {
    let cron = &observed.cron;
    let now = observed.now;
    let last = desired.last_schedule_time.as_ref().or(cron.object.metadata.creation_timestamp.as_ref());
    let base = last.map_or(now, |time| time.0);
    // Times before the starting deadline do not count.
    let deadline = spec.starting_deadline_seconds;
    let earliest = deadline.map_or(base, |seconds| base.max(time::after(now, -seconds)));
    let next = schedule.next(now, zone);
    plan.next = time::earliest(now, next);
    plan.awaits.extend(next.map(|next| format!("{next}, the next time of its schedule")));
    let Some((due, _)) = schedule.last_due(earliest, now, zone) else {
        if earliest > base && schedule.last_due(base, now, zone).is_some() {
            let note = "Missed scheduled time to start a job: its starting deadline is over";
            plan.events.push(Event::warning(MISS_SCHEDULE, "Schedule", note));
        }
        return;
    };
    if missed(schedule, zone, earliest, due) > MANY_MISSED {
        let note =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.events.push(Event::warning(TOO_MANY_MISSED_TIMES, "Schedule", note));
    }
    let job = child(&cron.object, spec, due, zone);
    let name = job.metadata.name.clone().unwrap_or_default();
    if observed.jobs.iter().any(|job| job.key.name() == name) {
        // It was created, and the status was not written: it must not forbid or replace itself.
        desired.last_schedule_time = Some(Time(due));
        return;
    }
    let active = desired.active.clone().unwrap_or_default();
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !active.is_empty() => {
            let note = "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.events.push(Event::normal(JOB_ALREADY_ACTIVE, "Schedule", note));
            return;
        }
        Some("Replace") => {
            let is_active =
                |job: &Entry<Job>| active.iter().any(|one| one.uid.as_deref() == Some(job.uid.as_str()));
            let replaced = observed.jobs.iter().filter(|job| is_active(job) && !job.deleting);
            plan.steps.extend(replaced.map(|job| delete(job)));
            desired.active = None;
        }
        _ => {}
    }
    let event = Event::normal(SUCCESSFUL_CREATE, "Create", format!("Created job {name}"));
    plan.steps.push(Action::create(ApiKind::of::<Job>(), &job).with_event(event));
    desired.last_schedule_time = Some(Time(due));
}

/// How many times were missed, up to one more than are worth a warning.
fn missed(schedule: &Schedule, zone: &jiff::tz::TimeZone, after: Timestamp, until: Timestamp) -> usize {
    let times = std::iter::successors(schedule.next(after, zone), |time| schedule.next(*time, zone));
    times.take_while(|time| *time <= until).take(MANY_MISSED + 1).count()
}

fn delete(job: &Entry<Job>) -> Step {
    let event = Event::normal(SUCCESSFUL_DELETE, "Delete", format!("Deleted job {}", job.key.name()));
    Action::delete(ApiKind::of::<Job>(), job).with_event(event)
}

/// The Job of a scheduled time, under a name that every attempt would choose again.
fn child(cron: &CronJob, spec: &CronJobSpec, due: Timestamp, zone: &jiff::tz::TimeZone) -> Job {
    let template = spec.job_template.clone();
    let mut metadata = template.metadata.unwrap_or_default();
    let local = due.to_zoned(zone.clone());
    let stamp = local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    let stamp = stamp.strip_suffix("+00:00").map(|utc| format!("{utc}Z")).unwrap_or(stamp);
    metadata.annotations.get_or_insert_default().insert(SCHEDULED_TIMESTAMP.to_owned(), stamp);
    let name = cron.metadata.name.as_deref().unwrap_or_default();
    metadata.name = Some(format!("{name}-{}", due.as_second() / 60));
    metadata.namespace.clone_from(&cron.metadata.namespace);
    metadata.owner_references = controller_reference(cron).map(|owner| vec![owner]);
    Job { metadata, spec: template.spec, status: None }
}

/// Deletes the oldest finished Jobs beyond the limits.
fn clean_up(observed: &Observed, spec: &CronJobSpec) -> Vec<Step> {
    let limits = [
        (true, spec.successful_jobs_history_limit.unwrap_or(3)),
        (false, spec.failed_jobs_history_limit.unwrap_or(1)),
    ];
    let mut steps = Vec::new();
    for (succeeded, limit) in limits {
        let is_of = |job: &&&Entry<Job>| {
            finished(&job.object).is_some_and(|condition| (condition == COMPLETE) == succeeded)
                && !job.deleting
        };
        let jobs: Vec<_> = observed.jobs.iter().map(|job| &**job).collect();
        let mut ended: Vec<_> = jobs.iter().filter(is_of).copied().collect();
        ended.sort_by_key(|job| {
            let started = job.object.status.as_ref().and_then(|status| status.start_time.clone());
            (started.map(|time| time.0), job.key.clone())
        });
        let excess = ended.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        steps.extend(ended.into_iter().take(excess).map(delete));
    }
    steps
}
