//! The state machine of an AppWrapper.
//!
//! ```text
//!   "" ──> Suspended ──> Resuming ──> Running ──> Succeeded
//!              ^            │  ^         │
//!              │            v  │         ├──> Failed
//!          Suspending <─────┴──┼─────────┤
//!              ^               │         v
//!              └────────────── Resetting <┘
//! ```

mod deploy;
mod remove;
mod running;

use std::time::Duration;

use quintet_api::appwrapper::conditions::{
    DELETING_RESOURCES, PODS_READY, QUOTA_RESERVED, RESOURCES_DEPLOYED, UNHEALTHY,
};
use quintet_api::appwrapper::metadata::{CONTROLLER, DELETION_ON_FAILURE_GRACE_PERIOD, FINALIZER};
use quintet_api::appwrapper::{AppWrapperComponentStatus, Phase, reasons};
use quintet_api::duration::GoDuration;
use quintet_controller::{Event, Next, Plan, finalizers};

pub(super) use deploy::on_error;

use super::observe::Observed;
use super::podsets;
use super::status::Draft;

/// How often deletions are looked at.
const DELETION_POLL: Duration = Duration::from_secs(5);

/// Computes the plan for an AppWrapper. Pure: no clock, no I/O.
pub(super) fn plan(observed: &Observed) -> Plan {
    let managed_by = observed.appwrapper.object.spec.managed_by.as_deref();
    if let Some(other) = managed_by.filter(|name| *name != CONTROLLER) {
        return Plan::awaiting(format!("{other}, which manages the AppWrapper"));
    }
    if observed.appwrapper.deleting {
        return terminate(observed);
    }
    match observed.phase() {
        Some(Phase::Empty) => initialize(observed),
        Some(Phase::Suspended) => suspended(observed),
        Some(Phase::Resuming) => deploy::resuming(observed),
        Some(Phase::Running) => running::running(observed),
        Some(Phase::Suspending) => suspending(observed),
        Some(Phase::Resetting) => resetting(observed),
        Some(Phase::Failed) => failed(observed),
        Some(Phase::Succeeded) => succeeded(observed),
        Some(Phase::Terminating) | None => {
            Plan::awaiting("a phase that is known; status.phase was written by another program")
        }
    }
}

/// A plan that writes a status.
fn write(draft: Draft<'_>) -> Plan {
    Plan { status: draft.patch(), ..Plan::default() }
}

/// Freezes the pod sets.
fn initialize(observed: &Observed) -> Plan {
    let mut draft = Draft::new(observed);
    let components = &observed.appwrapper.object.spec.components;
    if draft.status.component_status.as_ref().map_or(0, Vec::len) != components.len() {
        let fresh = components.iter().map(|component| AppWrapperComponentStatus {
            pod_sets: podsets::of_component(component),
            ..AppWrapperComponentStatus::default()
        });
        draft.status.component_status = Some(fresh.collect());
    }
    draft.set_phase(Phase::Suspended);
    write(draft)
}

fn suspended(observed: &Observed) -> Plan {
    if observed.is_suspended() {
        return Plan::awaiting("spec.suspend to become false");
    }
    let mut draft = Draft::new(observed);
    for (type_, holds) in
        [(QUOTA_RESERVED, true), (RESOURCES_DEPLOYED, true), (PODS_READY, false), (UNHEALTHY, false)]
    {
        draft.set(type_, holds, Phase::Resuming.as_str(), "Suspend is false");
    }
    draft.set_phase(Phase::Resuming);
    let appwrapper = &observed.appwrapper;
    let finalizer = finalizers::add(appwrapper, &appwrapper.object.metadata, FINALIZER);
    Plan { steps: finalizer.map(Into::into).into_iter().collect(), ..write(draft) }
}

/// The AppWrapper was suspended while it had components.
fn suspend(observed: &Observed, mut draft: Draft<'_>) -> Plan {
    let phase = observed.phase().unwrap_or_default();
    let note = format!("Externally suspended while in the {phase} phase");
    draft.set_phase(Phase::Suspending);
    Plan { events: vec![Event::normal(reasons::SUSPENDING_EVENT, "Suspend", note)], ..write(draft) }
}

fn suspending(observed: &Observed) -> Plan {
    let mut draft = Draft::new(observed);
    let reason = Phase::Suspended.as_str();
    if draft.is_true(RESOURCES_DEPLOYED) {
        if let Err(steps) = remove::remove(observed, &mut draft) {
            return remove::wait(draft, steps);
        }
        draft.set(RESOURCES_DEPLOYED, false, reason, "Suspend is true");
    }
    draft.set(QUOTA_RESERVED, false, reason, "Suspend is true");
    draft.clear(PODS_READY, reason);
    draft.clear(UNHEALTHY, reason);
    draft.set_phase(Phase::Suspended);
    write(draft)
}

fn resetting(observed: &Observed) -> Plan {
    let mut draft = Draft::new(observed);
    if observed.is_suspended() {
        return suspend(observed, draft);
    }
    let reason = Phase::Resetting.as_str();
    draft.clear(PODS_READY, reason);
    if draft.is_true(RESOURCES_DEPLOYED) {
        if let Err(steps) = remove::remove(observed, &mut draft) {
            return remove::wait(draft, steps);
        }
        draft.set(RESOURCES_DEPLOYED, false, reason, "Resources deleted for resetting AppWrapper");
    }
    let pause = draft.left(UNHEALTHY, observed.options().retry_pause());
    if !pause.is_zero() {
        let awaits = vec!["the pause before the next retry to end".to_owned()];
        return Plan { next: Next::After(pause), awaits, ..write(draft) };
    }
    draft.set(RESOURCES_DEPLOYED, true, Phase::Resuming.as_str(), "Reset complete; resuming");
    draft.set_phase(Phase::Resuming);
    write(draft)
}

/// Components of a failed AppWrapper may be kept for a while, so that users can look at them.
fn failed(observed: &Observed) -> Plan {
    let mut draft = Draft::new(observed);
    let delay = observed.options().deletion_on_failure_grace();
    let is_kept = !delay.is_zero() && !observed.is_suspended();
    // Once deletion has begun, it goes on. Upstream pauses it again and waits for the delay a second time.
    if is_kept && !draft.is_true(DELETING_RESOURCES) {
        let message = format!("{DELETION_ON_FAILURE_GRACE_PERIOD} has value {}", GoDuration(delay));
        draft.set(DELETING_RESOURCES, false, reasons::DELETION_PAUSED, &message);
        let left = draft.left(DELETING_RESOURCES, delay);
        if !left.is_zero() && draft.is_true(RESOURCES_DEPLOYED) {
            let awaits = vec!["the time that components of failed AppWrappers are kept to end".to_owned()];
            return Plan { next: Next::After(left), awaits, ..write(draft) };
        }
    }
    let reason = Phase::Failed.as_str();
    if draft.is_true(RESOURCES_DEPLOYED) {
        if let Err(steps) = remove::remove(observed, &mut draft) {
            return remove::wait(draft, steps);
        }
        let message = if !delay.is_zero() && observed.is_suspended() {
            "Kueue forced resource deletion by suspending AppWrapper"
        } else {
            "Resources deleted for failed AppWrapper"
        };
        draft.set(RESOURCES_DEPLOYED, false, reason, message);
    }
    draft.set(QUOTA_RESERVED, false, reason, "No resources deployed");
    write(draft)
}

fn succeeded(observed: &Observed) -> Plan {
    let mut draft = Draft::new(observed);
    if !draft.is_true(RESOURCES_DEPLOYED) {
        return Plan::nothing();
    }
    let ttl = observed.options().success_ttl();
    let left = draft.left(RESOURCES_DEPLOYED, ttl);
    if !left.is_zero() {
        let awaits = vec!["the time to live after success to end".to_owned()];
        return Plan { next: Next::After(left), awaits, ..Plan::default() };
    }
    if let Err(steps) = remove::remove(observed, &mut draft) {
        return remove::wait(draft, steps);
    }
    let message = format!("Time to live after success of {} expired", GoDuration(ttl));
    draft.set(RESOURCES_DEPLOYED, false, Phase::Succeeded.as_str(), &message);
    write(draft)
}

/// The AppWrapper is deleted: its components go first.
fn terminate(observed: &Observed) -> Plan {
    let appwrapper = &observed.appwrapper;
    let Some(release) = finalizers::remove(appwrapper, &appwrapper.object.metadata, FINALIZER) else {
        return Plan::nothing();
    };
    let mut draft = Draft::new(observed);
    let reason = Phase::Terminating.as_str();
    if draft.is_true(RESOURCES_DEPLOYED) {
        if let Err(steps) = remove::remove(observed, &mut draft) {
            draft.set_phase(Phase::Terminating);
            return remove::wait(draft, steps);
        }
        draft.set(RESOURCES_DEPLOYED, false, reason, "Resources successfully deleted");
    }
    if draft.is_true(QUOTA_RESERVED) {
        draft.set(QUOTA_RESERVED, false, reason, "No resources deployed");
    }
    // The status first: an AppWrapper that other finalizers keep must not hold quota.
    match draft.patch() {
        Some(status) => Plan { status: Some(status), ..Plan::default() },
        None => Plan { steps: vec![release.into()], ..Plan::default() },
    }
}

/// Something went wrong: the AppWrapper is retried, or fails. `count` says by how much the count of retries grows.
fn reset_or_fail(observed: &Observed, draft: &mut Draft<'_>, is_terminal: bool, count: i32) {
    let resets = draft.status.resetting_count.unwrap_or_default();
    if is_terminal || resets >= observed.options().retry_limit() {
        draft.set_phase(Phase::Failed);
        return;
    }
    let resets = resets.saturating_add(count);
    draft.status.resetting_count = Some(resets).filter(|resets| *resets != 0);
    draft.set_phase(Phase::Resetting);
}

/// The AppWrapper is unhealthy.
fn unhealthy_event(note: String) -> Event {
    Event::normal(reasons::UNHEALTHY_EVENT, "Reconcile", note)
}
