//! The job framework: a Workload for every job, and jobs that run while theirs is admitted.
//!
//! A kind of job implements [`JobKind`], which says how to read and write it. Everything else is shared: which jobs are
//! managed, how Workloads are made and compared, when jobs start and stop. As `pkg/controller/jobframework` of Kueue.

mod admission_gates;
pub(crate) mod ancestors;
mod batch_job;
mod compose;
mod equivalence;
pub mod import;
mod json;
mod leader_worker_set;
mod lifecycle;
mod observe;
mod plan;
mod pod;
pub(crate) mod pod_set_info;
mod priority;
mod related;
mod remote;
mod slices;
mod stateful_set;
#[cfg(test)]
mod tests;
mod topology_request;
mod webhook;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use quintet_api::kueue::v1beta2::{PodSet, ReclaimablePod};
use quintet_controller::cache::{Cause, Change, Entry, Selector};
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, Plan, Step};
use quintet_queue_engine::settings::Gates;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::Context;
use crate::settings::{BATCH_JOB, LEADER_WORKER_SET, STATEFUL_SET, Settings};
pub(crate) use ancestors::foreign_kinds;
pub(crate) use compose::max_name_prefix;
pub(crate) use equivalence::are_equivalent;
use json::{JsonJob, JsonKind};
pub use lifecycle::{Stop, StopReason};
use observe::JobCaches;
pub use observe::ObservedJob;
pub(crate) use observe::flavors_of;
pub use pod_set_info::PodSetInfo;
use related::Related;
pub(crate) use remote::{
    JobFacts, RemoteKind, external_kinds, is_sent_elsewhere, remote_kinds, spec_elsewhere,
};
pub use slices::Counts;
pub(crate) use slices::{SLICE_NAME, first_of as first_slice_of, is_slice};
pub use webhook::webhooks;

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// Whether it did what it should.
    pub succeeded: bool,
    /// What it says about it.
    pub message: String,
}

/// An object that a job refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Its kind.
    pub kind: ApiKind,
    /// Which.
    pub key: ObjectKey,
}

/// A kind of job: how to read and write it.
pub trait JobKind:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
    /// Its name in `integrations.frameworks`.
    const FRAMEWORK: &'static str;
    /// Its controller, as events call it.
    const CONTROLLER: &'static str;

    /// Whether it may not run.
    fn is_suspended(&self) -> bool;

    /// Whether pods of it exist that have not ended.
    fn is_active(&self) -> bool;

    /// How it ended, if it did.
    fn end(&self) -> Option<JobEnd>;

    /// Whether as many pods as there should be are ready or have succeeded.
    fn has_all_pods_ready(&self) -> bool;

    /// What it runs, given the objects that it refers to. The error is for users.
    fn pod_sets(&self, gates: &Gates, related: &[Value]) -> Result<Vec<PodSet>, String>;

    /// Pods that will not run any more, given the objects that it refers to.
    fn reclaimable_pods(&self, related: &[Value]) -> Vec<ReclaimablePod>;

    /// Lets it run, with what its pod sets were assigned. The error is for users, and final.
    fn start(&mut self, infos: &[PodSetInfo]) -> Result<(), String>;

    /// The writes that start it. The error is for users, and final.
    fn start_steps(entry: &Entry<Self>, infos: &[PodSetInfo]) -> Result<Vec<Step>, String> {
        let mut started = entry.object.clone();
        started.start(infos)?;
        let update = Action::update(ApiKind::of::<Self>(), entry, &started);
        Ok(update.map(Step::from).into_iter().collect())
    }

    /// The writes that stop it and undo what its start changed. `pod_sets` are those of its Workload.
    fn stop(entry: &Entry<Self>, pod_sets: &[PodSet], stop: &Stop<'_>) -> Vec<Step>;

    /// Whether there is nothing to stop.
    fn is_stopped(&self, reason: &StopReason) -> bool {
        let _ = reason;
        self.is_suspended() || self.end().is_some()
    }

    /// Whether the cluster may not serve the kind.
    const IS_OPTIONAL: bool = false;

    /// Kinds of objects that jobs refer to.
    fn related_kinds() -> Vec<ApiKind> {
        Vec::new()
    }

    /// The objects of these kinds that its pods depend on.
    fn references(&self) -> Vec<Reference> {
        Vec::new()
    }

    /// The PriorityClass that it names itself, before its pods do.
    fn priority_class(&self) -> Option<String> {
        None
    }

    /// Whether it cannot run until its user has changed it.
    fn is_on_hold(&self) -> bool {
        false
    }

    /// Whether it keeps its quota while it is deleted, because something runs until it is gone.
    fn outlives_deletion(&self, settings: &Settings) -> bool {
        let _ = settings;
        false
    }

    /// Whether a stop deletes the job, so that nothing is left of it that could give its quota back.
    const ENDS_WHEN_STOPPED: bool = false;

    /// Whether jobs of this kind are not started here while another cluster runs them: they have no `managedBy`.
    const WAITS_WHILE_ELSEWHERE: bool = false;

    /// Whether jobs of this kind never belong to another job, whoever owns them.
    const IS_TOP_LEVEL: bool = false;

    /// Whether jobs of this kind can be elastic: change their size while they run.
    const TAKES_SLICES: bool = false;

    /// What differs whenever the size of an elastic job does: every size has a slice of its own, by this name.
    fn revision(&self) -> String {
        self.meta().generation.unwrap_or_default().to_string()
    }

    /// The pod sets of an elastic job that can grow by less than they ask for, and how few pods are enough at its start.
    fn min_counts(&self) -> BTreeMap<String, i32> {
        BTreeMap::new()
    }

    /// Whether as many pods of every pod set as these are ready.
    fn has_ready(&self, counts: &Counts) -> bool {
        let _ = counts;
        self.has_all_pods_ready()
    }

    /// Annotations that an elastic job gets, given the objects that it refers to.
    fn annotations(&self, related: &[Value]) -> BTreeMap<String, String> {
        let _ = related;
        BTreeMap::new()
    }

    /// Whether it is a job of its own. Pods of a group are not.
    fn is_job(&self, settings: &Settings) -> bool {
        let _ = settings;
        true
    }

    /// Whether it is one of those that the integration manages, beyond what holds for all kinds.
    fn is_managed(&self, settings: &Settings) -> bool {
        let _ = settings;
        true
    }

    /// Removes the finalizer that the integration has given it, if there is one.
    fn finalize(entry: &Entry<Self>) -> Option<Action> {
        let _ = entry;
        None
    }

    /// What is watched of the kind.
    fn selector() -> Selector {
        Selector::all()
    }
}

/// The controller of a kind of job.
pub(crate) struct JobController<J: JobKind> {
    context: Context,
    caches: JobCaches<J>,
}

/// Adds the controllers of all enabled integrations.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    if context.settings.is_enabled(BATCH_JOB) {
        add_kind::<Job>(context)?;
    }
    if context.settings.scheduling.elastic_slices {
        slices::add_ungater(context)?;
    }
    if context.settings.manages_pods() {
        add_kind::<Pod>(context)?;
        pod::add_groups(context)?;
    }
    if context.settings.is_enabled(STATEFUL_SET) {
        stateful_set::add(context)?;
    }
    if context.settings.is_enabled(LEADER_WORKER_SET) {
        leader_worker_set::add(context)?;
    }
    add_json::<json::AppWrapper>(context)?;
    add_json::<json::JaxJob>(context)?;
    add_json::<json::JobSet>(context)?;
    add_json::<json::MpiJob>(context)?;
    add_json::<json::PaddleJob>(context)?;
    add_json::<json::PyTorchJob>(context)?;
    add_json::<json::RayCluster>(context)?;
    add_json::<json::RayJob>(context)?;
    add_json::<json::RayService>(context)?;
    add_json::<json::SparkApplication>(context)?;
    add_json::<json::TfJob>(context)?;
    add_json::<json::TrainJob>(context)?;
    add_json::<json::XgBoostJob>(context)
}

/// Adds the controller of a kind that is read and written as JSON, if its integration is enabled.
fn add_json<K: JsonKind>(context: &Context) -> Result<(), Error> {
    if context.settings.is_enabled(K::NAMES.framework) { add_kind::<JsonJob<K>>(context) } else { Ok(()) }
}

fn add_kind<J: JobKind>(context: &Context) -> Result<(), Error> {
    let caches = JobCaches::<J>::new(context.runtime.caches(), &context.settings)?;
    let (jobs, workloads, namespaces) =
        (caches.jobs.clone(), caches.workloads.clone(), caches.namespaces.clone());
    let (of_workload, of_namespace) = (caches.clone(), caches.clone());
    let (priority_classes, of_class) = (caches.classes.of_workloads.clone(), caches.clone());
    let (owners, metrics) = (caches.jobs.clone(), Arc::clone(&context.metrics));
    workloads.subscribe(move |change| {
        if let Some(workload) = created(change)
            && let Some(owner) = ancestors::controller_of(&workload.object.metadata)
            && *owner.kind == *J::kind(&())
            && let Some(job) =
                owners.get(&ObjectKey::new(workload.key.namespace().unwrap_or_default(), &owner.name))
        {
            metrics.created(&owner.kind, job.object.meta(), &workload.object);
        }
    });
    let (related, of_related) = (caches.related.clone(), caches.clone());
    let controller = JobController { context: context.clone(), caches };
    let mut added = context.runtime.add(controller, &jobs, context.concurrency);
    for cache in related {
        let (of_related, kind) = (of_related.clone(), cache.kind().clone());
        let jobs = move |key: &ObjectKey| of_related.jobs_that_refer(&kind, key);
        added = match cache {
            Related::Other(cache) => added.watches(&cache, move |entry| jobs(&entry.key)),
            Related::RayClusters(cache) => added.watches(&cache, move |entry| jobs(&entry.key)),
        };
    }
    added
        .watches(&workloads, move |entry| of_workload.jobs_of_workload(entry))
        .watches(&namespaces, move |entry| of_namespace.jobs_in(entry.key.name()))
        .watches(&priority_classes, move |entry| of_class.jobs_of_class(entry.key.name()))
        .done();
    Ok(())
}

/// An object that was created just now.
fn created<T>(change: &Change<T>) -> Option<&Arc<Entry<T>>> {
    let is_news = matches!(change.cause, Cause::Watch | Cause::Write) && change.old.is_none();
    change.new.as_ref().filter(|_| is_news)
}

impl<J: JobKind> Controller for JobController<J> {
    type Observed = ObservedJob<J>;
    type Call = NoCall;

    const NAME: &'static str = J::CONTROLLER;

    async fn observe(&self, key: &ObjectKey) -> Result<Option<ObservedJob<J>>, Error> {
        let Context { settings, clock, .. } = &self.context;
        Ok(self.caches.observe(key, settings, clock.now()))
    }

    fn plan(observed: &ObservedJob<J>) -> Plan {
        plan::plan(observed)
    }
}
