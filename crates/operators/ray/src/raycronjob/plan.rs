//! The plan for one RayCronJob.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use quintet_api::{
    owners::controller_reference,
    ray::{
        events,
        v1::{RayCronJob, RayCronJobStatus, RayJob},
    },
};
use quintet_controller::{Action, ApiKind, Event, Next, Plan, StatusPatch, cache::Entry};

use super::{Observed, Zone, validation};
use crate::labels;

/// Computes the plan.
pub(super) fn plan(observed: &Observed) -> Plan {
    let cron = &observed.cron.object;
    if observed.cron.deleting {
        return Plan::nothing();
    }
    let valid = validation::validate(cron, &observed.settings);
    let (schedule, zone) = match (valid, &observed.zone) {
        (Ok(schedule), Zone::Known(zone)) => (schedule, zone),
        (Err(error), _) => return complain(observed, error),
        (_, Zone::Unknown(error)) => return complain(observed, error.clone()),
    };
    if cron.spec.suspend == Some(true) {
        let note = "RayCronJob suspended, no new RayJobs will be created";
        return Plan {
            events: vec![Event::normal(events::SUSPENDED_RAY_CRON_JOB, "Suspend", note)],
            awaits: vec!["spec.suspend to be false".to_owned()],
            ..Plan::default()
        };
    }
    let last = cron.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
    let created = cron.metadata.creation_timestamp.as_ref();
    let base = last.or(created).map_or(observed.now, |time| time.0);
    let Some((tick, is_first)) = schedule.last_due(base, observed.now, zone) else {
        let Some(tick) = schedule.next(base, zone) else {
            let error = format!("schedule {:?} matches no time within five years", cron.spec.schedule);
            return complain(observed, error);
        };
        return Plan {
            awaits: vec![format!("{tick}, the next time of its schedule")],
            next: wait(observed.now, tick),
            ..Plan::default()
        };
    };
    let mut events = Vec::new();
    if !is_first {
        let note = format!(
            "More than one start was missed since {base}; only the last one, of {tick}, is made up for"
        );
        events.push(Event::warning(events::MISSED_SCHEDULE, "Schedule", note));
    }
    let before = cron.status.clone().unwrap_or_default();
    let next = schedule.next(tick, zone);
    let after = RayCronJobStatus { last_schedule_time: Some(Time(tick)) };
    Plan {
        // One of that name is the one of this tick, whoever made it.
        steps: vec![Action::ensure(ApiKind::of::<RayJob>(), &child(&observed.cron, tick)).into()],
        status: StatusPatch::between(&observed.cron, &before, &after),
        events,
        awaits: next.map(|time| format!("{time}, the next time of its schedule")).into_iter().collect(),
        next: next.map_or(Next::AwaitChange, |next| wait(observed.now, next)),
    }
}

fn complain(observed: &Observed, error: String) -> Plan {
    let note = format!("{}: {error}", observed.cron.key);
    Plan {
        events: vec![Event::warning(events::INVALID_RAY_CRON_JOB_SPEC, "Validate", note)],
        awaits: vec![error],
        ..Plan::default()
    }
}

fn wait(now: Timestamp, until: Timestamp) -> Next {
    std::time::Duration::try_from(until.duration_since(now)).map_or(Next::AwaitChange, Next::After)
}

/// The RayJob of a tick, under a name that every attempt would choose again.
fn child(cron: &Entry<RayCronJob>, tick: Timestamp) -> RayJob {
    let name = cron.key.name();
    RayJob {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{}", tick.as_second() / 60)),
            namespace: cron.key.namespace().map(str::to_owned),
            labels: Some(BTreeMap::from([(labels::CRON_JOB.to_owned(), name.to_owned())])),
            annotations: Some(BTreeMap::from([(labels::SCHEDULED_TIMESTAMP.to_owned(), tick.to_string())])),
            owner_references: controller_reference(&cron.object).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: cron.object.spec.job_template.clone(),
        status: None,
    }
}
