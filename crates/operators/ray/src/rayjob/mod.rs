//! RayJob: a cluster for a job, the job on it, and the cleaning up afterwards.

mod command;
mod metrics;
mod objects;
mod plan;
mod preview;
mod status;
#[cfg(test)]
mod tests;
pub mod validation;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::ray::events;
use quintet_api::{
    owners,
    ray::v1::{RayCluster, RayJob, RayJobStatus},
};
use quintet_controller::{
    Action, Controller, Error, Event, ObjectKey, OnError, Runtime, StatusPatch,
    cache::{Cache, Entry, WatchSpec},
    clock::Clock,
    metrics::MetricsRegistry,
};
use serde::{Deserialize, Serialize};

use plan::submission;
pub use preview::preview;
pub use status::State;

use crate::{
    Context,
    dashboard::{Dashboard, DashboardError, JobInfo, JobPoll, JobRequest, Observation, Poller, Pollers},
    k8s_service, labels, names,
    pod_view::PodView,
    settings::Settings,
    watches::{self, JobView, ServiceView},
};

/// Everything that a decision about a RayJob needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// The RayJob.
    pub job: Arc<Entry<RayJob>>,
    /// The cluster of the current attempt.
    pub cluster: Option<Arc<Entry<RayCluster>>>,
    /// The cluster's own head Service.
    pub cluster_service: Option<Arc<Entry<ServiceView>>>,
    /// The RayJob's head Service.
    pub head_service: Option<Arc<Entry<ServiceView>>>,
    /// The Job of the submitter's name, whoever made it.
    pub submitter: Option<Arc<Entry<JobView>>>,
    /// The head pods of the cluster.
    pub heads: Vec<Arc<Entry<PodView>>>,
    /// What Ray last said of the job, after the submitter's end if it has ended.
    pub ray_job: Option<Observation<Option<JobInfo>>>,
    /// What is the same for all.
    pub settings: Arc<Settings>,
    /// The time.
    pub now: Timestamp,
}

impl Observed {
    fn object(&self) -> &RayJob {
        &self.job.object
    }

    fn status(&self) -> Option<&RayJobStatus> {
        self.job.object.status.as_ref()
    }

    /// The cluster, if it was made for this RayJob: any other is not its to delete or change.
    fn own_cluster(&self) -> Option<&Arc<Entry<RayCluster>>> {
        let is_ours = |cluster: &&Arc<Entry<RayCluster>>| {
            owners::is_controlled_by(&cluster.object.metadata, self.job.uid.as_str())
        };
        self.cluster.as_ref().filter(is_ours)
    }

    /// The Job that submits. One of an earlier RayJob of the same name, which is about to go, is none.
    fn own_submitter(&self) -> Option<&Arc<Entry<JobView>>> {
        self.submitter.as_ref().filter(|job| job.object.controller.as_deref() == Some(self.job.uid.as_str()))
    }
}

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
    let name = given.get(labels::ORIGIN_NAME)?;
    let is_job = given.get(labels::ORIGIN_KIND).is_some_and(|kind| kind == "RayJob");
    is_job.then(|| ObjectKey::new(key.namespace().unwrap_or_default(), name))
}

impl Controller for JobController {
    type Observed = Observed;
    type Call = JobRequest;

    const NAME: &'static str = "rayjob-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(job) = self.jobs.get(key) else {
            self.poller.forget(key);
            return Ok(None);
        };
        let namespace = key.namespace().unwrap_or_default();
        let named = |name: &str| ObjectKey::new(namespace, name);
        let status = job.object.status.as_ref();
        let cluster = status.and_then(|status| status.ray_cluster_name.as_deref());
        let cluster =
            cluster.filter(|name| !name.is_empty()).and_then(|name| self.clusters.get(&named(name)));
        let cluster_service = cluster
            .as_ref()
            .and_then(|cluster| self.services.get(&named(&k8s_service::head_service_name(&cluster.object))));
        let heads = cluster.as_ref().map(|cluster| {
            let pods = self.pods.by_index(watches::BY_CLUSTER, cluster.key.as_str());
            pods.into_iter().filter(|pod| pod.object.is_head() && !pod.deleting).collect()
        });
        let poll = plan::poll(&job.object, cluster.as_ref().map(|cluster| &cluster.object));
        let mut observed = Observed {
            cluster,
            cluster_service,
            head_service: self.services.get(&named(&names::head_service(key.name()))),
            submitter: self.submitters.get(key),
            heads: heads.unwrap_or_default(),
            ray_job: None,
            settings: Arc::clone(&self.settings),
            now: self.clock.now(),
            job,
        };
        // What Ray said before the submitter's end says nothing about what comes after it.
        let submitter_ended = submission::inspect(&observed).ok().and_then(|progress| progress.finished_at);
        observed.ray_job = self.poller.watch_since(key, poll.as_slice(), submitter_ended).pop().flatten();
        Ok(Some(observed))
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
        return OnError { status: StatusPatch::between(&observed.job, &before, &after), events: Vec::new() };
    }
    let noun = match action.kind().map(|kind| kind.kind.as_ref()) {
        Some("RayCluster") => "RayCluster",
        Some("Job") => "RayJobSubmitter",
        Some("Service") => "Service",
        _ => return OnError::default(),
    };
    let verb = match action {
        Action::Create { .. } => "Create",
        Action::Delete { .. } => "Delete",
        _ => "Update",
    };
    let note = format!("Failed to {} {noun} of RayJob {}: {error}", verb.to_lowercase(), observed.job.key);
    // The Service comes last: all that the status tells has happened.
    let status = if noun == "Service" { plan::plan(observed).status } else { None };
    OnError { status, events: vec![Event::warning(&events::failed_to(verb, noun), verb, note)] }
}
