//! Letting a cluster go. Its children go with it by their owner references; only Redis has to be cleared first.

use k8s_openapi::api::batch::v1::Job;
use quintet_api::duration::GoDuration;
use quintet_controller::{Action, ApiKind, Error, Event, Next, ObjectKey, OnError, Plan};
use std::time::Duration;

use super::{Draft, owned, pod_kind, set_finalizers};
use crate::{
    labels,
    pod::{Blueprint, cleanup_job, is_embedded_storage, is_fault_tolerant, storage_namespace},
    raycluster::{events, observe::Observed},
};

/// Seconds after which a cluster loses its finalizer although Redis may not be cleared.
const PATIENCE: i64 = 300;

/// Whether Redis is cleared when the cluster goes.
pub(crate) fn clears_redis(observed: &Observed) -> bool {
    may_have_to_clear_redis(observed) && is_fault_tolerant(observed.object())
}

/// Whether the cluster may have used Redis before its spec was changed.
fn may_have_to_clear_redis(observed: &Observed) -> bool {
    observed.settings.redis_cleanup && !is_embedded_storage(&observed.object().spec)
}

/// Computes the plan for a RayCluster that is being deleted.
pub(crate) fn plan(observed: &Observed) -> Plan {
    if !observed.has_finalizer(labels::REDIS_CLEANUP_FINALIZER) {
        return Plan::nothing();
    }
    if !may_have_to_clear_redis(observed) {
        return finalize(observed, Vec::new());
    }
    // Checked first: whatever else hangs, a cluster always goes in the end.
    let waited = waited_seconds(observed);
    let patience = patience(observed);
    if waited >= patience {
        let waited = GoDuration::from_secs(u64::try_from(waited).unwrap_or_default()).to_string();
        let event = events::force_deleted(&waited, &storage_namespace(observed.object()));
        return finalize(observed, vec![event]);
    }
    let wait = u64::try_from(patience - waited).unwrap_or(1);
    let again = Next::After(Duration::from_secs(wait));
    if !is_fault_tolerant(observed.object()) {
        // The spec no longer says where Redis is. Until time is up, the user can add it again.
        let awaits = vec!["spec.gcsFaultToleranceOptions, which says what Redis to clear".to_owned()];
        return Plan { awaits, next: again, ..Plan::default() };
    }
    let mut draft = Draft::new(observed);
    for pod in observed.pods.iter().filter(|pod| !pod.deleting) {
        draft.act(Action::delete(pod_kind(), pod));
    }
    // A head that still runs would write to Redis after it was cleared.
    if observed.heads().next().is_some() {
        let awaits = vec![format!("{} Pods to be deleted before Redis is cleared", observed.pods.len())];
        return Plan { steps: draft.steps, awaits, next: again, ..Plan::default() };
    }
    let awaits = vec!["the Job that clears Redis".to_owned()];
    match observed.cleanup_jobs.first() {
        Some(job) if job.object.end.is_some() || job.object.is_failing => finalize(observed, Vec::new()),
        Some(_) => Plan { steps: draft.steps, awaits, next: again, ..Plan::default() },
        None => {
            let job = cleanup_job(&Blueprint::new(observed.object(), &observed.settings));
            let name = job.metadata.name.clone().unwrap_or_default();
            let created = events::created("Job", &ObjectKey::new(observed.namespace(), &name));
            let create = Action::create(ApiKind::of::<Job>(), &owned(observed.object(), &job));
            draft.act_with_event(create, created);
            Plan { steps: draft.steps, awaits, next: again, ..Plan::default() }
        }
    }
}

fn finalize(observed: &Observed, events: Vec<Event>) -> Plan {
    Plan { steps: vec![remove_finalizer(observed).into()], events, ..Plan::default() }
}

fn remove_finalizer(observed: &Observed) -> Action {
    let others = observed.object().metadata.finalizers.iter().flatten();
    set_finalizers(observed, others.filter(|one| *one != labels::REDIS_CLEANUP_FINALIZER).cloned())
}

/// A namespace that is being deleted takes no Job that could clear Redis, and waits for the cluster. KubeRay lets it wait
/// until the deadline.
pub(in crate::raycluster) fn on_error(
    observed: &Observed,
    action: &Action,
    error: &Error,
) -> Option<OnError> {
    let is_cleanup = matches!(action, Action::Create { kind, .. } if *kind == ApiKind::of::<Job>())
        && observed.cluster.deleting;
    (is_cleanup && error.is_namespace_terminating()).then(|| OnError {
        instead: Some(remove_finalizer(observed)),
        requeue: Some(Next::AwaitChange),
        ..OnError::default()
    })
}

fn waited_seconds(observed: &Observed) -> i64 {
    let since = observed.object().metadata.deletion_timestamp.as_ref();
    since.map_or(0, |since| observed.now.duration_since(since.0).as_secs())
}

fn patience(observed: &Observed) -> i64 {
    let given = observed.annotation(labels::FT_DELETION_TIMEOUT).and_then(|text| text.parse().ok());
    given.filter(|seconds: &i64| *seconds > 0).unwrap_or(PATIENCE)
}
