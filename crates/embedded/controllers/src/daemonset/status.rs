//! The status of a DaemonSet.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSetStatus;

use super::plan::Daemons;
use crate::pod::Availability;

/// A status, and when it has to be computed again though nothing changes.
pub(super) struct Outlook {
    pub(super) status: DaemonSetStatus,
    pub(super) due: Option<Timestamp>,
}

/// Computes the status from the nodes and the pods on them.
pub(super) fn status(daemons: &Daemons<'_>, current: &DaemonSetStatus) -> Outlook {
    let mut status = DaemonSetStatus {
        observed_generation: daemons.observed.set.object.metadata.generation,
        collision_count: current.collision_count,
        conditions: current.conditions.clone(),
        ..DaemonSetStatus::default()
    };
    let (mut updated, mut available, mut due) = (0, 0, None);
    for node in &daemons.observed.nodes {
        let pods = daemons.pods_on(node.key.name());
        if !daemons.placement(&node.object).should_run {
            status.number_misscheduled += i32::from(!pods.is_empty());
            continue;
        }
        status.desired_number_scheduled += 1;
        // The oldest pod that is ready speaks for the node.
        let Some(pod) = pods.iter().find(|pod| pod.object.is_ready()).or_else(|| pods.first()) else {
            continue;
        };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(pod.object.is_ready());
        updated += i32::from(pods.iter().any(|pod| daemons.is_updated(pod)));
        match pod.object.availability(daemons.min_ready_seconds(), daemons.observed.now) {
            Availability::Available => available += 1,
            Availability::From(at) => due = Some(due.map_or(at, |other: Timestamp| other.min(at))),
            Availability::Unavailable => {}
        }
    }
    let some = |number: i32| (number != 0).then_some(number);
    status.updated_number_scheduled = some(updated);
    status.number_available = some(available);
    status.number_unavailable = some(status.desired_number_scheduled - available);
    Outlook { status, due }
}

/// What the DaemonSet waits for.
pub(super) fn awaits(status: &DaemonSetStatus) -> Vec<String> {
    let (ready, wanted) = (status.number_ready, status.desired_number_scheduled);
    if ready < wanted { vec![format!("{ready} of {wanted} pods ready")] } else { Vec::new() }
}
