//! What users' dashboards read about RayJobs, under upstream's names.

use jiff::Timestamp;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
};
use quintet_api::ray::v1::RayJob;
use quintet_controller::{
    cache::{Cache, Change, Entry},
    clock::Clock,
    metrics::MetricsRegistry,
};

use super::status::State;
use crate::gauges::{self, Listing};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempt {
    name: String,
    namespace: String,
    uid: String,
    job_deployment_status: &'static str,
    retry_count: i32,
}

type Durations = Family<Attempt, Gauge<f64, std::sync::atomic::AtomicU64>>;

/// Shows gauges of the RayJobs in `jobs`.
pub(super) fn register(registry: &MetricsRegistry, jobs: &Cache<RayJob>, clock: Clock) {
    gauges::register(
        registry,
        jobs,
        [
            Listing {
                name: "kuberay_job_info",
                help: "Metadata information about RayJob custom resources",
                series: |entry| vec![gauges::identity(entry)],
            },
            Listing {
                name: "kuberay_job_deployment_status",
                help: "The RayJob's current deployment status",
                series: |entry: &Entry<RayJob>| {
                    let mut labels = gauges::identity(entry);
                    let status = entry.object.status.as_ref();
                    let state = status.and_then(|status| status.job_deployment_status.clone());
                    labels.push(("deployment_status", state.unwrap_or_default()));
                    vec![labels]
                },
            },
        ],
    );
    let durations = Durations::default();
    registry.register(|registry| {
        registry.register(
            "kuberay_job_execution_duration_seconds",
            "Duration of an attempt of the RayJob from its start to its end",
            durations.clone(),
        );
    });
    let known = parking_lot::Mutex::new(std::collections::HashMap::<String, Vec<Attempt>>::new());
    jobs.subscribe(move |change| {
        if change.new.as_ref().map(|entry| &entry.uid) != change.old.as_ref().map(|entry| &entry.uid) {
            let gone = change.old.as_ref().and_then(|old| known.lock().remove(old.uid.as_str()));
            for attempt in gone.into_iter().flatten() {
                durations.remove(&attempt);
            }
        }
        if let Some((attempt, seconds)) = ended(change, clock.now()) {
            durations.get_or_create(&attempt).set(seconds);
            known.lock().entry(attempt.uid.clone()).or_default().push(attempt);
        }
    });
}

/// The attempt that a change has ended, and how long it took.
fn ended(change: &Change<RayJob>, now: Timestamp) -> Option<(Attempt, f64)> {
    let (old, new) = (change.old.as_ref()?, change.new.as_ref()?);
    let (before, after) = (State::of(&old.object), State::of(&new.object));
    let is_over = |state| matches!(state, State::Complete | State::Failed | State::Retrying);
    if is_over(before) || !is_over(after) {
        return None;
    }
    let start = new.object.status.as_ref()?.start_time.as_ref()?.0;
    Some((attempt(old, after), now.duration_since(start).as_secs_f64()))
}

fn attempt(old: &Entry<RayJob>, after: State) -> Attempt {
    let failed = old.object.status.as_ref().and_then(|status| status.failed);
    Attempt {
        name: old.key.name().to_owned(),
        namespace: old.key.namespace().unwrap_or_default().to_owned(),
        uid: old.uid.to_string(),
        job_deployment_status: after.as_str(),
        retry_count: failed.unwrap_or_default(),
    }
}
