//! The pod lifecycle: the status a kubelet reports at a moment, and when it changes next. Pure: no clock, no I/O.

mod containers;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::pod::{Pod, Status};
use crate::status::Address;

/// The exit code after SIGTERM.
const TERMINATED: i32 = 143;
/// The exit code after SIGKILL.
const KILLED: i32 = 137;

/// The addresses of a pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PodAddresses {
    /// The address of the node.
    pub host_ip: String,
    /// The address of the pod.
    pub pod_ip: String,
}

/// The next state of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its status now.
    pub status: Status,
    /// Whether its containers have stopped and the API may remove it.
    pub remove: bool,
    /// When to reconcile again, if nothing changes before.
    pub wake: Option<Duration>,
}

/// Computes the status of a pod at a moment.
pub fn step(pod: &Pod, addresses: &PodAddresses, now: Timestamp) -> Step {
    let mut status = pod.status.clone();
    let mut wake = Wake { now, earliest: None };
    let mut remove = false;
    if pod.deletion.is_some() {
        remove = end(pod, &mut status, &mut wake);
    } else if !status.is_terminal() {
        status.observed_generation = pod.generation;
        live(pod, addresses, &mut status, &mut wake);
    }
    Step { status, remove, wake: wake.after() }
}

/// A pod that is not being deleted.
fn live(pod: &Pod, addresses: &PodAddresses, status: &mut Status, wake: &mut Wake) {
    let now = second(wake.now);
    let started = *status.start_time.get_or_insert(now);
    if status.host_ip.is_none() {
        status.host_ip = Some(addresses.host_ip.clone());
        status.host_ips = vec![Address { ip: addresses.host_ip.clone() }];
    }
    containers::prepare(&pod.spec, status);
    if let Some(message) = &pod.options.evict {
        status.set("DisruptionTarget", true, Some(("TerminationByKubelet", Some(message.clone()))), now);
        return fail(pod, status, "Evicted", message, now);
    }
    if let Some(seconds) = pod.spec.active_deadline_seconds
        && wake.is_past(started, Duration::from_secs(seconds.unsigned_abs()))
    {
        let message = "Pod was active on the node longer than the specified deadline";
        return fail(pod, status, "DeadlineExceeded", message, now);
    }
    let stuck = pod.options.invalid.as_ref().map(|reason| ("InvalidAnnotation", Some(reason.clone())));
    let stuck = stuck.or_else(|| pod.options.stuck.as_deref().map(|reason| (reason, None)));
    if let Some((reason, message)) = stuck
        && containers::hold(status, reason, message.as_ref())
    {
        // Nothing has started, and nothing will until the annotation changes.
    } else if wake.is_past(started, pod.options.start_after) {
        if status.pod_ip.is_none() {
            let ip = if pod.spec.host_network { &addresses.host_ip } else { &addresses.pod_ip };
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
    let killed = pod.options.stop_for > grace;
    if wake.is_past(asked, pod.options.stop_for.min(grace)) {
        let now = second(wake.now);
        containers::end_all(status, if killed { KILLED } else { TERMINATED }, now);
        status.phase = Some("Failed".to_owned());
        containers::not_ready(pod, status, "PodFailed", now);
    }
    false
}

/// Stops all containers because the pod as a whole has failed.
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

/// Collects when to reconcile again.
struct Wake {
    now: Timestamp,
    earliest: Option<Timestamp>,
}

impl Wake {
    /// Whether `duration` has passed since a whole second in a status; if not, the pod is reconciled again when it has. The
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
