//! Removes the tracking finalizer of pods whose Job does not exist.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use quintet_controller::cache::{Cache, Entry};
use quintet_controller::{ApiKind, Controller, Error, NoCall, ObjectKey, Plan, Runtime};

use super::{labels, plan::scale::untrack};
use crate::Context;
use crate::claim::{BY_CONTROLLER, Claimable as _, is_kind};
use crate::pod::PodView;

/// The controller of pods that may have lost their Job.
struct OrphanController {
    pods: Cache<PodView>,
    jobs: Cache<Job>,
    context: Context,
}

pub(super) fn add(runtime: &Runtime, context: &Context, jobs: &Cache<Job>) {
    let pods = context.pods.clone();
    let controller = OrphanController { pods: pods.clone(), jobs: jobs.clone(), context: context.clone() };
    let children = pods.clone();
    runtime
        .add(controller, &pods, context.concurrency)
        .watches_changes(jobs, move |change| match (&change.old, &change.new) {
            (Some(old), new) if new.as_ref().is_none_or(|new| new.uid != old.uid) => {
                let pods = children.by_index(BY_CONTROLLER, old.uid.as_str());
                pods.iter().map(|pod| pod.key.clone()).collect()
            }
            _ => Vec::new(),
        })
        .done();
}

impl Controller for OrphanController {
    type Observed = Arc<Entry<PodView>>;
    type Call = NoCall;

    const NAME: &'static str = "job-orphan-controller";

    /// Only pods that hold the finalizer and whose Job is gone.
    async fn observe(&self, key: &ObjectKey) -> Result<Option<Self::Observed>, Error> {
        let is_tracked = |pod: &Arc<Entry<PodView>>| pod.object.has_finalizer(labels::TRACKING_FINALIZER);
        let Some(pod) = self.pods.get(key).filter(is_tracked) else { return Ok(None) };
        let kind = ApiKind::of::<Job>();
        let Some(owner) = pod.object.controller().filter(|owner| is_kind(owner, &kind)) else {
            return Ok(Some(pod));
        };
        let job = ObjectKey::new(key.namespace().unwrap_or_default(), &owner.name);
        if self.jobs.get(&job).is_some_and(|job| job.uid.as_str() == owner.uid) {
            return Ok(None);
        }
        // The cache of Jobs may be behind that of pods.
        let live = self.context.api.get(&kind, &job).await?;
        let live = live.and_then(|text| serde_json::from_str::<Job>(&text).ok());
        let exists = live.is_some_and(|live| live.metadata.uid.as_deref() == Some(owner.uid.as_str()));
        Ok((!exists).then_some(pod))
    }

    fn plan(pod: &Self::Observed) -> Plan {
        Plan { steps: vec![untrack(pod)], ..Plan::default() }
    }
}
