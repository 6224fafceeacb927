//! A pod's life: what its node says of it next, and when to look again. Pure.

mod containers;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::pod::{Pod, Status};
use crate::status::Address;

/// What programs end with that are asked to end by SIGTERM.
const TERMINATED: i32 = 143;
/// What programs end with that are killed.
const KILLED: i32 = 137;

/// Where a pod is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The address of the node.
    pub host_ip: String,
    /// The address of the pod.
    pub pod_ip: String,
}

/// What is next for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The status it has now.
    pub status: Status,
    /// Whether everything has ended that the API was waiting for to remove it.
    pub remove: bool,
    /// When to look again, if nothing changes before.
    pub wake: Option<Duration>,
}

/// What a pod's node says of it at a moment.
pub fn step(pod: &Pod, place: &Place, now: Timestamp) -> Step {
    let mut status = pod.status.clone();
    let mut wake = Wake { now, earliest: None };
    let mut remove = false;
    if pod.deletion.is_some() {
        remove = end(pod, &mut status, &mut wake);
    } else if !status.is_terminal() {
        status.observed_generation = pod.generation;
        live(pod, place, &mut status, &mut wake);
    }
    Step { status, remove, wake: wake.after() }
}

/// A pod that nobody deletes.
fn live(pod: &Pod, place: &Place, status: &mut Status, wake: &mut Wake) {
    let now = second(wake.now);
    let started = *status.start_time.get_or_insert(now);
    if status.host_ip.is_none() {
        status.host_ip = Some(place.host_ip.clone());
        status.host_ips = vec![Address { ip: place.host_ip.clone() }];
    }
    containers::prepare(&pod.spec, status);
    if let Some(message) = &pod.wishes.evict {
        status.set("DisruptionTarget", true, Some(("TerminationByKubelet", Some(message.clone()))), now);
        return fail(pod, status, "Evicted", message, now);
    }
    if let Some(seconds) = pod.spec.active_deadline_seconds
        && wake.is_past(started, Duration::from_secs(seconds.unsigned_abs()))
    {
        let message = "Pod was active on the node longer than the specified deadline";
        return fail(pod, status, "DeadlineExceeded", message, now);
    }
    let stuck = pod.wishes.mistake.as_ref().map(|mistake| ("InvalidAnnotation", Some(mistake.clone())));
    let stuck = stuck.or_else(|| pod.wishes.stuck.as_deref().map(|reason| (reason, None)));
    if let Some((reason, message)) = stuck
        && containers::hold(status, reason, message.as_ref())
    {
        // Nothing has started, and nothing will until the annotation changes.
    } else if wake.is_past(started, pod.wishes.start_after) {
        if status.pod_ip.is_none() {
            let ip = if pod.spec.host_network { &place.host_ip } else { &place.pod_ip };
            status.pod_ip = Some(ip.clone());
            status.pod_ips = vec![Address { ip: ip.clone() }];
        }
        containers::advance(pod, status, wake);
    }
    containers::summarise(pod, status, now);
}

/// A pod that is being deleted. Returns whether it can be removed.
fn end(pod: &Pod, status: &mut Status, wake: &mut Wake) -> bool {
    let Some((deadline, grace)) = pod.deletion else { return false };
    if status.is_terminal() {
        // A pod that waits for its finalizers has been removed as far as its node is concerned.
        return grace > 0;
    }
    let asked = deadline.saturating_sub(SignedDuration::from_secs(grace)).unwrap_or(deadline);
    let grace = Duration::from_secs(grace.unsigned_abs());
    let killed = pod.wishes.stop_for > grace;
    if wake.is_past(asked, pod.wishes.stop_for.min(grace)) {
        let now = second(wake.now);
        containers::end_all(status, if killed { KILLED } else { TERMINATED }, now);
        status.phase = Some("Failed".to_owned());
        containers::not_ready(pod, status, "PodFailed", now);
    }
    false
}

/// Ends everything because the pod as a whole has failed.
fn fail(pod: &Pod, status: &mut Status, reason: &str, message: &str, now: Timestamp) {
    containers::end_all(status, KILLED, now);
    status.phase = Some("Failed".to_owned());
    status.reason = Some(reason.to_owned());
    status.message = Some(message.to_owned());
    containers::not_ready(pod, status, "PodFailed", now);
}

/// Status keeps whole seconds.
fn second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Collects when to look again.
struct Wake {
    now: Timestamp,
    earliest: Option<Timestamp>,
}

impl Wake {
    /// Whether `duration` has passed since a whole second in a status; if not, we look again when it has. The
    /// moment itself may have been up to a second later than the status says.
    fn is_past(&mut self, since: Timestamp, duration: Duration) -> bool {
        if duration.is_zero() {
            return true;
        }
        let wait = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        let wait = wait.saturating_add(SignedDuration::from_secs(1));
        let due = since.saturating_add(wait).unwrap_or(Timestamp::MAX);
        if self.now < due {
            self.earliest = Some(self.earliest.map_or(due, |earliest| earliest.min(due)));
        }
        self.now >= due
    }

    fn after(&self) -> Option<Duration> {
        self.earliest.map(|at| Duration::try_from(at.duration_since(self.now)).unwrap_or_default())
    }
}
