//! The plan for one Job.

mod backoff;
mod outcome;
mod policies;
pub(super) mod scale;
mod tally;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::JobStatus;
use k8s_openapi::api::core::v1::Pod;
use quintet_api::owners::controller_reference;
use quintet_controller::cache::Entry;
use quintet_controller::plan::Propagation;
use quintet_controller::{Action, ApiKind, Event, Plan, StatusPatch};

use super::labels;
use super::observe::Observed;
use super::settings::{Settings, is_managed_elsewhere};
use super::status::{self, finished_at};
use crate::claim;
use crate::pod::PodView;
use crate::time;
use outcome::Outcome;
use scale::Scale;
use tally::{Tally, count};

/// Computes the plan.
pub(super) fn plan(observed: &Observed) -> Plan {
    let job = &observed.job.object;
    let (Some(spec), Some(owner)) = (&job.spec, controller_reference(job)) else { return Plan::nothing() };
    let current = job.status.clone().unwrap_or_default();
    if let Some(at) = finished_at(&current) {
        return plan_finished(observed, at);
    }
    if is_managed_elsewhere(job) {
        return Plan::awaiting("the controller that spec.managedBy names");
    }
    let settings = Settings::of(spec);
    let selector = spec.selector.as_ref().and_then(claim::selector);
    let kind = ApiKind::of::<Pod>();
    let claimed = claim::claim(&owner, observed.job.deleting, selector.as_ref(), &kind, &observed.pods);
    let mut plan = reconcile(observed, &settings, &current, &claimed.owned);
    plan.steps.splice(0..0, claimed.steps);
    plan
}

/// A finished Job: its pods lose the finalizer, and it is deleted when its time to live is over.
fn plan_finished(observed: &Observed, finished: Timestamp) -> Plan {
    let job = &observed.job;
    let mut plan = Plan::default();
    if !is_managed_elsewhere(&job.object) {
        let tracked = observed.pods.iter().filter(|pod| pod.object.has_finalizer(labels::TRACKING_FINALIZER));
        plan.steps.extend(tracked.map(|pod| scale::untrack(pod)));
    }
    let ttl = job.object.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished);
    let Some(due) = ttl.map(|ttl| time::after(finished, ttl.into())).filter(|_| !job.deleting) else {
        return plan;
    };
    if due > observed.now {
        plan.awaits.push(format!("{due}, when its time to live is over"));
        plan.next = time::earliest(observed.now, [due]);
    } else if observed.ttl_is_current {
        let delete = Action::Delete {
            kind: ApiKind::of::<k8s_openapi::api::batch::v1::Job>(),
            key: job.key.clone(),
            uid: job.uid.clone(),
            propagation: Propagation::Foreground,
            grace_seconds: None,
        };
        plan.steps.push(delete.into());
    }
    plan
}

/// A Job that is not finished.
fn reconcile(
    observed: &Observed,
    settings: &Settings<'_>,
    current: &JobStatus,
    pods: &[&Entry<PodView>],
) -> Plan {
    let now = observed.now;
    let is_deleting = observed.job.deleting;
    let tally = Tally::of(settings, pods, current);
    let mut desired = current.clone();
    if desired.start_time.is_none() && !settings.is_suspended {
        desired.start_time = Some(time::second(now));
    }
    let mut events = Vec::new();
    let mut outcome = outcome::decide(settings, &desired, &tally, now);
    let scale = match &outcome {
        _ if is_deleting => Scale { active: count(&tally.active), ..Scale::default() },
        Some(_) => finish(&tally),
        None if settings.is_suspended => scale::suspend(&tally),
        None => scale::scale(observed, settings, pods, &tally),
    };
    if outcome.is_none() && !is_deleting {
        if is_complete(settings, &tally, &scale) {
            outcome = Some(Outcome::completed());
            if settings.completions.is_some_and(|completions| tally.succeeded > completions) {
                let note = "Too many succeeded pods running after completion count reached";
                events.push(Event::warning(labels::EVENT_TOO_MANY_SUCCEEDED, "Count", note));
            }
        }
        events.extend(status::suspension(&mut desired, settings.is_suspended, now));
    }
    let accounting = tally.account(settings, current, outcome.is_some(), is_deleting);
    let mut steps = scale.steps;
    // Deletions before finalizers: while a pod has its finalizer, its end is not lost.
    steps.extend(accounting.counted.iter().map(|pod| scale::untrack(pod)));
    let nothing = |number: i32| (number != 0).then_some(number);
    desired.active = nothing(scale.active);
    desired.terminating = Some(count(&tally.terminating) + scale.removed);
    desired.ready = Some(tally.ready.min(scale.active));
    desired.failed = nothing(accounting.failed);
    if settings.is_indexed {
        desired.succeeded = nothing(tally.succeeded);
        desired.completed_indexes = tally.succeeded_indexes.text();
    } else {
        desired.succeeded = nothing(accounting.succeeded);
    }
    if settings.backoff_limit_per_index.is_some() {
        // Present as soon as the Job has been looked at, as upstream writes it.
        desired.failed_indexes = Some(tally.failed_indexes.text().unwrap_or_default());
    }
    let nothing_uncounted = accounting.uncounted.succeeded.is_none() && accounting.uncounted.failed.is_none();
    desired.uncounted_terminated_pods = Some(accounting.uncounted);
    if let Some(outcome) = &outcome {
        status::set_condition(&mut desired, outcome.interim(), true, &outcome.reason, &outcome.message, now);
        let is_over = scale.active == 0 && scale.removed == 0 && tally.terminating.is_empty();
        if is_over && nothing_uncounted && accounting.is_complete {
            status::set_condition(
                &mut desired,
                outcome.terminal(),
                true,
                &outcome.reason,
                &outcome.message,
                now,
            );
            events.push(end(&mut desired, outcome, now));
        }
    }
    let due = [scale.due, outcome::deadline(settings, &desired).filter(|_| outcome.is_none())];
    let awaits = awaits(settings, &tally, scale.due, outcome.as_ref());
    Plan {
        steps,
        status: StatusPatch::between(&observed.job, current, &desired),
        events,
        awaits,
        next: time::earliest(now, due.into_iter().flatten()),
    }
}

/// Deletes the active pods of a Job that is over. They keep the finalizer, so that they are counted.
fn finish(tally: &Tally<'_>) -> Scale {
    Scale {
        steps: tally.active.iter().map(|pod| crate::pod_events::delete(pod)).collect(),
        active: 0,
        removed: count(&tally.active),
        due: None,
    }
}

/// Whether all completions are reached and no pod is active.
fn is_complete(settings: &Settings<'_>, tally: &Tally<'_>, scale: &Scale) -> bool {
    let is_enough = match settings.completions {
        None => tally.succeeded > 0,
        Some(completions) => tally.succeeded >= completions,
    };
    is_enough && scale.active == 0 && !settings.is_suspended
}

/// The end of a Job: its completion time if it succeeded, and the event.
fn end(desired: &mut JobStatus, outcome: &Outcome, now: Timestamp) -> Event {
    if outcome.is_success {
        desired.completion_time = Some(time::second(now));
        Event::normal(labels::EVENT_COMPLETED, "Complete", "Job completed")
    } else {
        Event::warning(&outcome.reason, "Fail", outcome.message.clone())
    }
}

fn awaits(
    settings: &Settings<'_>,
    tally: &Tally<'_>,
    due: Option<Timestamp>,
    outcome: Option<&Outcome>,
) -> Vec<String> {
    if outcome.is_some() {
        return vec![format!("{} pods to terminate", tally.active.len() + tally.terminating.len())];
    }
    if settings.is_suspended {
        return vec!["spec.suspend to be false".to_owned()];
    }
    let wanted = settings.completions.map_or_else(|| "1".to_owned(), |completions| completions.to_string());
    let mut awaits = vec![format!("{} of {wanted} completions", tally.succeeded)];
    awaits.extend(due.map(|due| format!("{due}, when failed pods may be replaced")));
    awaits
}
