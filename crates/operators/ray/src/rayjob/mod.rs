//! RayJob: a cluster for a job, the job on it, and the cleaning up afterwards.

mod command;
mod events;
mod metrics;
mod objects;
mod observe;
mod plan;
mod preview;
mod status;
#[cfg(test)]
mod tests;
pub mod validation;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::ray::v1::{RayCluster, RayJob};
use quintet_controller::{
    Action, Controller, Error, ObjectKey, OnError, Runtime, StatusPatch,
    cache::{Cache, Entry, WatchSpec},
    clock::Clock,
    metrics::MetricsRegistry,
};

pub use observe::Observed;
use plan::submission;
pub use preview::preview;
pub use status::State;

use crate::{
    Context,
    dashboard::{Dashboard, DashboardError, JobPoll, JobRequest, Poller, Pollers},
    k8s_service::events as service_events,
    pod_view::PodView,
    settings::Settings,
    watches::{self, JobView, ServiceView},
};

/// What is done about a RayJob, with requests to Ray.
type Plan = quintet_controller::Plan<JobRequest>;
type Step = quintet_controller::Step<JobRequest>;

/// The controller of RayJobs.
struct JobController {
    jobs: Cache<RayJob>,
    clusters: Cache<RayCluster>,
    services: Cache<ServiceView>,
    submitters: Cache<JobView>,
    pods: Cache<PodView>,
    poller: Poller<JobPoll>,
    dashboard: Arc<dyn Dashboard>,
    settings: Arc<Settings>,
    clock: Clock,
}

/// Adds the controller of RayJobs.
pub fn add(
    runtime: &Runtime,
    context: &Context,
    pollers: &Pollers,
    metrics: Option<&MetricsRegistry>,
) -> Result<(), Error> {
    let caches = runtime.caches();
    let controller = JobController {
        jobs: caches.watch(WatchSpec::typed().index(RUNS_ON, cluster_of))?,
        clusters: caches.watch(watches::clusters())?,
        services: caches.watch(watches::services())?,
        submitters: caches.watch(watches::jobs())?,
        pods: caches.watch(watches::pods())?,
        poller: Poller::new(plan::POLL, context.seed),
        dashboard: Arc::clone(&pollers.dashboard),
        settings: Arc::clone(&context.settings),
        clock: context.clock.clone(),
    };
    let (jobs, clusters) = (controller.jobs.clone(), controller.clusters.clone());
    let (services, submitters) = (controller.services.clone(), controller.submitters.clone());
    let (pods, poller) = (controller.pods.clone(), controller.poller.clone());
    if let Some(registry) = metrics {
        metrics::register(registry, &jobs, context.clock.clone());
    }
    let all_jobs = jobs.clone();
    let of_cluster = move |cluster: &ObjectKey| using(&all_jobs, cluster);
    let (of_service, of_pod) = (of_cluster.clone(), of_cluster.clone());
    let setup = runtime
        .add(controller, &jobs, context.concurrency)
        .watches(&clusters, move |entry| {
            let mut roots = of_cluster(&entry.key);
            roots.extend(entry.object.metadata.labels.as_ref().and_then(|given| origin(&entry.key, given)));
            roots
        })
        .watches(&submitters, |entry| origin(&entry.key, &entry.object.labels).into_iter().collect())
        .watches(&services, move |entry| {
            let mut roots: Vec<_> = origin(&entry.key, &entry.object.labels).into_iter().collect();
            // The cluster's own head Service tells where its dashboard is.
            let cluster = watches::cluster_of(entry, &entry.object.selector);
            roots.extend(cluster.iter().flat_map(&of_service));
            roots
        })
        .watches(&pods, move |entry| {
            // Only submitters in head pods are looked at.
            if !entry.object.is_head() || entry.object.container(submission::CONTAINER).is_none() {
                return Vec::new();
            }
            let cluster = watches::cluster_of(entry, &entry.object.labels);
            cluster.iter().flat_map(&of_pod).collect()
        });
    poller.start(JobController::NAME, pollers, setup.trigger());
    setup.done();
    Ok(())
}

/// Index of RayJobs by the cluster they run on, whoever made it.
const RUNS_ON: &str = "runs on";

fn cluster_of(job: &Entry<RayJob>) -> Vec<String> {
    let cluster = job.object.status.as_ref().and_then(|status| status.ray_cluster_name.as_deref());
    let namespace = job.key.namespace().unwrap_or_default();
    cluster.map(|name| ObjectKey::new(namespace, name).to_string()).into_iter().collect()
}

fn using(jobs: &Cache<RayJob>, cluster: &ObjectKey) -> Vec<ObjectKey> {
    jobs.by_index(RUNS_ON, cluster.as_str()).into_iter().map(|job| job.key.clone()).collect()
}

/// The RayJob that an object was made for.
fn origin(key: &ObjectKey, given: &BTreeMap<String, String>) -> Option<ObjectKey> {
    watches::origin_of_kind("RayJob", key, given)
}

impl Controller for JobController {
    type Observed = Observed;
    type Call = JobRequest;

    const NAME: &'static str = "rayjob-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        Ok(self.read(key))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }

    async fn call(&self, request: &JobRequest) -> Result<(), Error> {
        match request {
            JobRequest::SubmitJob { root, at, job } => {
                let response = self.dashboard.submit(at, job).await;
                // Whatever came of it, what Ray said before is out of date.
                self.poller.poll_again(root);
                match response {
                    // The id is ours: an earlier submission arrived although its response did not.
                    Ok(()) | Err(DashboardError::AlreadyUsed(_)) => Ok(()),
                    Err(error) => {
                        Err(error.while_trying(format!("cannot submit Ray job {}", job.submission_id)))
                    }
                }
            }
            JobRequest::StopJob { at, id } => match self.dashboard.stop(at, id).await {
                Err(error @ DashboardError::NoToken { .. }) => {
                    Err(error.while_trying(format!("cannot stop Ray job {id}")))
                }
                Err(error) => {
                    tracing::warn!(job = id, "the Ray job was not stopped and may run on: {error}");
                    Ok(())
                }
                Ok(()) => Ok(()),
            },
        }
    }

    fn on_error(observed: &Observed, action: &Action<JobRequest>, error: &Error) -> OnError {
        on_error(observed, action, error)
    }

    async fn polled(&self, key: &ObjectKey) {
        self.poller.answered(key).await;
    }
}

fn on_error(observed: &Observed, action: &Action<JobRequest>, error: &Error) -> OnError {
    if let Action::Call(request) = action {
        if matches!(request, JobRequest::StopJob { .. }) {
            return OnError::default();
        }
        let before = observed.status().cloned().unwrap_or_default();
        let mut after = before.clone();
        after.job_status_check_failure_start_time.get_or_insert(Time(observed.now));
        return OnError {
            status: StatusPatch::between(&observed.job, &before, &after),
            ..OnError::default()
        };
    }
    let Some((kind, target)) = action.kind().zip(action.target()) else {
        return OnError::default();
    };
    let (target, cause) = (&target, error.cause());
    let event = match (&*kind.kind, action) {
        ("RayCluster", Action::Create { .. }) => events::failed_to_create_cluster(target, &cause),
        ("RayCluster", Action::Delete { .. }) => events::failed_to_delete_cluster(target, &cause),
        ("RayCluster", _) => events::failed_to_suspend_workers(target, &cause),
        ("Job", Action::Create { .. }) => events::failed_to_create_submitter(target, &cause),
        ("Job", _) => events::failed_to_delete_submitter(target, &cause),
        ("Service", Action::Create { .. }) => service_events::failed_to_create(target, &cause),
        ("Service", _) => service_events::failed_to_update(target, &cause),
        _ => return OnError::default(),
    };
    // The Service comes last: all that the status tells has happened.
    let status = if &*kind.kind == "Service" { plan::plan(observed).status } else { None };
    OnError { status, events: vec![event], ..OnError::default() }
}
