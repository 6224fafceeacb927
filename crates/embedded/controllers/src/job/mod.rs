//! Job: pods that run to completion.

mod indexes;
pub(crate) mod labels;
mod objects;
mod observe;
mod orphans;
mod plan;
mod settings;
pub(crate) mod status;
#[cfg(test)]
mod tests;

use k8s_openapi::api::batch::v1::Job;
use quintet_api::selector::Selector;
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, OnError, Plan, Runtime};

pub(crate) use observe::Observed;

use crate::pod::PodView;
use crate::{Context, claim, pod_events, time};

/// The controller of Jobs.
struct JobController {
    jobs: Cache<Job>,
    context: Context,
}

/// Adds the controllers of Jobs.
pub(crate) fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let jobs = runtime.caches().watch(watch())?;
    context.names.forget_owners(&jobs);
    let controller = JobController { jobs: jobs.clone(), context: context.clone() };
    let (kind, roots) = (ApiKind::of::<Job>(), jobs.clone());
    let owners = move |pod: &Entry<PodView>| claim::roots_of(pod, &kind, &roots, selector);
    runtime.add(controller, &jobs, context.concurrency).watches(&context.pods, owners).done();
    orphans::add(runtime, context, &jobs);
    Ok(())
}

/// The watch that all controllers share.
pub(crate) fn watch() -> WatchSpec<Job> {
    WatchSpec::typed()
        .index(claim::BY_NAMESPACE, claim::index_by_namespace)
        .index(claim::BY_CONTROLLER, claim::index_by_controller)
}

fn selector(job: &Job) -> Option<Selector> {
    job.spec.as_ref()?.selector.as_ref().and_then(claim::selector)
}

impl Controller for JobController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "job-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(job) = self.jobs.get(key) else { return Ok(None) };
        let Context { api, pods, names, clock, .. } = &self.context;
        let kind = ApiKind::of::<Job>();
        let pods = claim::candidates(pods, &job, &kind, selector(&job.object).as_ref(), api).await?;
        let now = clock.now();
        let ttl_is_current = match time_to_live(&job.object).filter(|due| *due <= now) {
            Some(due) => time_to_live_of_live(api, &kind, &job).await? == Some(due),
            None => false,
        };
        let entropy = names.entropy(&job.uid);
        Ok(Some(Observed { job, pods, ttl_is_current, entropy, now }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }

    fn on_error(_: &Observed, action: &Action, error: &Error) -> OnError {
        pod_events::on_error(action, error)
    }
}

/// When the time to live of a finished Job is over.
fn time_to_live(job: &Job) -> Option<jiff::Timestamp> {
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    Some(time::after(status::finished_at(job.status.as_ref()?)?, ttl.into()))
}

/// The same by an uncached read: the time to live may have been extended.
async fn time_to_live_of_live(
    api: &quintet_controller::api::Api,
    kind: &ApiKind,
    job: &Entry<Job>,
) -> Result<Option<jiff::Timestamp>, Error> {
    let live = api.get(kind, &job.key).await?.and_then(|text| serde_json::from_str::<Job>(&text).ok());
    Ok(live
        .filter(|live| live.metadata.uid.as_deref() == Some(job.uid.as_str()))
        .as_ref()
        .and_then(time_to_live))
}
