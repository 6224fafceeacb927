//! The status of a Deployment: counts, availability and progress.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSetStatus};

use super::labels;
use super::plan::{Rollout, replicas_of};
use crate::time;

/// A deadline of this many seconds is none, as upstream's `HasProgressDeadline`.
const NO_DEADLINE: i32 = i32::MAX;

/// A status, and when it has to be computed again though nothing changes.
pub(super) struct Outlook {
    pub(super) status: DeploymentStatus,
    pub(super) deadline: Option<Timestamp>,
}

/// What condition `Progressing` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Progressing {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Progressing {
    fn holds(reason: &'static str, message: String) -> Self {
        Self { status: "True", reason, message }
    }

    pub(super) fn failed(reason: &'static str, message: String) -> Self {
        Self { status: "False", reason, message }
    }

    fn unknown(reason: &'static str, message: &str) -> Self {
        Self { status: "Unknown", reason, message: message.to_owned() }
    }

    pub(super) fn created(name: &str) -> Self {
        Self::holds(labels::NEW_REPLICA_SET_CREATED, format!("Created new replica set {name:?}"))
    }

    pub(super) fn found(name: &str) -> Self {
        Self::holds(labels::FOUND_NEW_REPLICA_SET, format!("Found new replica set {name:?}"))
    }

    /// Sets the condition, unless it has the same status and reason.
    pub(super) fn set(&self, status: &mut DeploymentStatus, now: Timestamp) {
        set(status, labels::PROGRESSING, self.status, self.reason, &self.message, now);
    }
}

/// Computes the status. `found` is what the rollout says about the new ReplicaSet.
pub(super) fn status(
    rollout: &Rollout<'_>,
    current: &DeploymentStatus,
    found: Option<Progressing>,
    now: Timestamp,
) -> Outlook {
    let mut status = counts(rollout, current);
    set_availability(rollout, &mut status, now);
    let has_deadline = progress_deadline(rollout).is_some();
    if has_deadline && !rollout.observed.deployment.deleting {
        set_progress(rollout, current, &mut status, found, now);
    } else if !has_deadline {
        remove(&mut status, labels::PROGRESSING);
    }
    copy_replica_failure(rollout, &mut status, now);
    let deadline = timeout(rollout, &status);
    Outlook { status, deadline }
}

fn progress_deadline(rollout: &Rollout<'_>) -> Option<i32> {
    Some(rollout.spec.progress_deadline_seconds.unwrap_or(600)).filter(|seconds| *seconds != NO_DEADLINE)
}

fn counts(rollout: &Rollout<'_>, current: &DeploymentStatus) -> DeploymentStatus {
    let sum = |field: &dyn Fn(&ReplicaSetStatus) -> i32| -> i32 {
        rollout.all().filter_map(|set| set.object.status.as_ref()).map(field).sum()
    };
    let available = sum(&|status| status.available_replicas.unwrap_or_default());
    let wanted: i32 = rollout.all().map(replicas_of).sum();
    let some = |number: i32| (number != 0).then_some(number);
    DeploymentStatus {
        observed_generation: rollout.deployment().metadata.generation,
        replicas: some(sum(&|status| status.replicas)),
        updated_replicas: some(
            rollout.new.and_then(|new| new.object.status.as_ref()).map_or(0, |new| new.replicas),
        ),
        ready_replicas: some(sum(&|status| status.ready_replicas.unwrap_or_default())),
        available_replicas: some(available),
        unavailable_replicas: some((wanted - available).max(0)),
        terminating_replicas: Some(sum(&|status| status.terminating_replicas.unwrap_or_default())),
        collision_count: current.collision_count,
        conditions: current.conditions.clone(),
    }
}

fn set_availability(rollout: &Rollout<'_>, status: &mut DeploymentStatus, now: Timestamp) {
    let is_available = status.available_replicas.unwrap_or_default() >= rollout.bounds.min_available();
    let (value, reason, message) = if is_available {
        ("True", labels::MINIMUM_REPLICAS_AVAILABLE, "Deployment has minimum availability.")
    } else {
        ("False", labels::MINIMUM_REPLICAS_UNAVAILABLE, "Deployment does not have minimum availability.")
    };
    set(status, labels::AVAILABLE, value, reason, message, now);
}

/// Condition `Progressing`, as upstream's `checkPausedConditions` and `syncRolloutStatus`.
fn set_progress(
    rollout: &Rollout<'_>,
    current: &DeploymentStatus,
    status: &mut DeploymentStatus,
    found: Option<Progressing>,
    now: Timestamp,
) {
    let reason = |status: &DeploymentStatus| {
        find(status, labels::PROGRESSING).and_then(|condition| condition.reason.clone()).unwrap_or_default()
    };
    let is_paused = rollout.spec.paused == Some(true);
    let before = reason(status);
    if before != labels::PROGRESS_DEADLINE_EXCEEDED {
        if is_paused && before != labels::DEPLOYMENT_PAUSED {
            Progressing::unknown(labels::DEPLOYMENT_PAUSED, "Deployment is paused").set(status, now);
        } else if !is_paused && before == labels::DEPLOYMENT_PAUSED {
            Progressing::unknown(labels::DEPLOYMENT_RESUMED, "Deployment is resumed").set(status, now);
        }
    }
    if is_paused {
        return;
    }
    match found {
        // A ReplicaSet that exists already is reported only if nothing is known of the progress.
        Some(found) if found.reason != labels::FOUND_NEW_REPLICA_SET || reason(status).is_empty() => {
            found.set(status, now);
        }
        _ => {}
    }
    let is_settled =
        status.replicas == status.updated_replicas && before == labels::NEW_REPLICA_SET_AVAILABLE;
    if is_settled {
        return;
    }
    let name = match rollout.new {
        Some(new) => format!("ReplicaSet {:?}", new.key.name()),
        None => format!("Deployment {:?}", rollout.observed.deployment.key.name()),
    };
    if is_complete(rollout.deployment(), rollout.bounds.replicas, status) {
        let message = format!("{name} has successfully progressed.");
        Progressing::holds(labels::NEW_REPLICA_SET_AVAILABLE, message).set(status, now);
    } else if has_progressed(current, status) {
        // Its update time moves with every progress and feeds the deadline, so it is replaced; only the time of the
        // transition is kept.
        let message = format!("{name} is progressing.");
        let since = find(status, labels::PROGRESSING).filter(|condition| condition.status == "True").cloned();
        remove(status, labels::PROGRESSING);
        Progressing::holds(labels::REPLICA_SET_UPDATED, message).set(status, now);
        if let (Some(since), Some(condition)) = (since, find_mut(status, labels::PROGRESSING)) {
            condition.last_transition_time = since.last_transition_time;
        }
    } else if timeout(rollout, status).is_some_and(|due| due <= now) {
        let message = format!("{name} has timed out progressing.");
        Progressing::failed(labels::PROGRESS_DEADLINE_EXCEEDED, message).set(status, now);
    }
}

/// Whether a rollout is over: all replicas are new and available.
pub(super) fn is_complete(deployment: &Deployment, replicas: i32, status: &DeploymentStatus) -> bool {
    let is = |number: Option<i32>| number.unwrap_or_default() == replicas;
    is(status.updated_replicas)
        && is(status.replicas)
        && is(status.available_replicas)
        && status.observed_generation >= deployment.metadata.generation
}

fn has_progressed(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let old = |status: &DeploymentStatus| {
        status.replicas.unwrap_or_default() - status.updated_replicas.unwrap_or_default()
    };
    after.updated_replicas > before.updated_replicas
        || old(after) < old(before)
        || after.ready_replicas > before.ready_replicas
        || after.available_replicas > before.available_replicas
}

/// When the rollout has made no progress for too long.
fn timeout(rollout: &Rollout<'_>, status: &DeploymentStatus) -> Option<Timestamp> {
    let condition = find(status, labels::PROGRESSING)?;
    let is_over = matches!(
        condition.reason.as_deref(),
        Some(
            labels::NEW_REPLICA_SET_AVAILABLE
                | labels::PROGRESS_DEADLINE_EXCEEDED
                | labels::DEPLOYMENT_PAUSED
        )
    );
    let since = condition.last_update_time.as_ref().filter(|_| !is_over)?;
    Some(time::after(since.0, i64::from(progress_deadline(rollout)?)))
}

/// Condition `ReplicaFailure` of the newest ReplicaSet that has one.
fn copy_replica_failure(rollout: &Rollout<'_>, status: &mut DeploymentStatus, now: Timestamp) {
    let sets = rollout.new.into_iter().chain(rollout.old.iter().rev().copied());
    let mut conditions = sets
        .filter_map(|set| set.object.status.as_ref()?.conditions.as_ref())
        .flatten()
        .filter(|condition| condition.type_ == labels::REPLICA_FAILURE);
    let Some(failure) = conditions.next() else {
        remove(status, labels::REPLICA_FAILURE);
        return;
    };
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (reason, message) = (text(&failure.reason), text(&failure.message));
    set(status, labels::REPLICA_FAILURE, &failure.status, &reason, &message, now);
}

fn find<'a>(status: &'a DeploymentStatus, type_: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

fn find_mut<'a>(status: &'a mut DeploymentStatus, type_: &str) -> Option<&'a mut DeploymentCondition> {
    status.conditions.iter_mut().flatten().find(|condition| condition.type_ == type_)
}

fn remove(status: &mut DeploymentStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != type_);
    }
}

/// Sets a condition, unless it has the same status and reason.
fn set(status: &mut DeploymentStatus, type_: &str, value: &str, reason: &str, message: &str, now: Timestamp) {
    let before = find(status, type_).cloned();
    let is_same = |condition: &DeploymentCondition| {
        condition.status == value && condition.reason.as_deref() == Some(reason)
    };
    if before.as_ref().is_some_and(is_same) {
        return;
    }
    let now = time::second(now);
    let since =
        before.filter(|condition| condition.status == value).and_then(|before| before.last_transition_time);
    remove(status, type_);
    status.conditions.get_or_insert_default().push(DeploymentCondition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(now.clone()),
        last_transition_time: since.or(Some(now)),
    });
}

/// What the Deployment waits for.
pub(super) fn awaits(rollout: &Rollout<'_>, status: &DeploymentStatus) -> Vec<String> {
    if is_complete(rollout.deployment(), rollout.bounds.replicas, status) {
        return Vec::new();
    }
    let number = |field: Option<i32>| field.unwrap_or_default();
    vec![format!(
        "{} of {} replicas updated, {} available",
        number(status.updated_replicas),
        rollout.bounds.replicas,
        number(status.available_replicas)
    )]
}
