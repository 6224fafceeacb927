//! Letting a cluster go. Its children go with it by their owner references; only Redis has to be cleared first.

use k8s_openapi::api::batch::v1::Job;
use quintet_controller::{Action, ApiKind, Event, Next, Plan};
use std::time::Duration;

use super::{Draft, owned, pod_kind, set_finalizers};
use crate::{
    labels,
    pod::{Blueprint, cleanup_job, is_embedded_storage, is_fault_tolerant},
    raycluster::observe::Observed,
};

/// Seconds after which a cluster is let go although Redis may not be cleared.
const PATIENCE: i64 = 300;

/// Whether Redis is cleared when the cluster goes.
pub(crate) fn clears_redis(observed: &Observed) -> bool {
    let cluster = observed.object();
    observed.settings.redis_cleanup && is_fault_tolerant(cluster) && !is_embedded_storage(&cluster.spec)
}

/// Decides about a cluster that is being deleted.
pub(crate) fn plan(observed: &Observed) -> Plan {
    if !observed.has_finalizer(labels::REDIS_CLEANUP_FINALIZER) {
        return Plan::nothing();
    }
    if !clears_redis(observed) {
        return let_go(observed, Vec::new());
    }
    // Checked first: whatever else hangs, a cluster always goes in the end.
    let waited = waited_seconds(observed);
    let patience = patience(observed);
    if waited >= patience {
        let note = format!(
            "Let RayCluster {} go after {waited} seconds without knowing that Redis is cleared; look for keys of its \
             storage namespace",
            observed.key()
        );
        return let_go(observed, vec![Event::warning("ForceDeletedStuckCluster", "Cleanup", note)]);
    }
    let wait = u64::try_from(patience - waited).unwrap_or(1);
    let again = Next::After(Duration::from_secs(wait));
    let mut draft = Draft::new(observed);
    for pod in observed.pods.iter().filter(|pod| !pod.deleting) {
        draft.act(Action::delete(pod_kind(), pod));
    }
    // A head that still runs would write to Redis after it was cleared.
    if observed.heads().next().is_some() {
        return Plan { steps: draft.steps, next: again, ..Plan::default() };
    }
    match observed.cleanup_jobs.first() {
        Some(job) if job.object.end.is_some() || job.object.is_failing => let_go(observed, Vec::new()),
        Some(_) => Plan { steps: draft.steps, next: again, ..Plan::default() },
        None => {
            let job = cleanup_job(&Blueprint::new(observed.object(), &observed.settings));
            let name = job.metadata.name.clone().unwrap_or_default();
            let note = format!("Created Redis cleanup Job {}/{name}", observed.namespace());
            let create = Action::create(ApiKind::of::<Job>(), &owned(observed.object(), &job));
            draft.act_and_tell(create, Event::normal("CreatedRedisCleanupJob", "Create", note));
            Plan { steps: draft.steps, next: again, ..Plan::default() }
        }
    }
}

fn let_go(observed: &Observed, events: Vec<Event>) -> Plan {
    let others = observed.object().metadata.finalizers.iter().flatten();
    let others = others.filter(|one| *one != labels::REDIS_CLEANUP_FINALIZER).cloned();
    Plan { steps: vec![set_finalizers(observed, others).into()], events, ..Plan::default() }
}

fn waited_seconds(observed: &Observed) -> i64 {
    let since = observed.object().metadata.deletion_timestamp.as_ref();
    since.map_or(0, |since| observed.now.duration_since(since.0).as_secs())
}

fn patience(observed: &Observed) -> i64 {
    let given = observed.annotation(labels::FT_DELETION_TIMEOUT).and_then(|text| text.parse().ok());
    given.filter(|seconds: &i64| *seconds > 0).unwrap_or(PATIENCE)
}
