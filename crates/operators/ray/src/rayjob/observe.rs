//! Everything that a decision about one RayJob needs.

use std::sync::Arc;

use jiff::Timestamp;
use quintet_api::{
    owners,
    ray::v1::{RayCluster, RayJob, RayJobStatus},
};
use quintet_controller::{ObjectKey, cache::Entry};
use serde::{Deserialize, Serialize};

use super::{
    JobController,
    plan::{self, submission},
};
use crate::{
    dashboard::{JobInfo, Observation},
    k8s_service, names,
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
    pub(super) fn object(&self) -> &RayJob {
        &self.job.object
    }

    pub(super) fn status(&self) -> Option<&RayJobStatus> {
        self.job.object.status.as_ref()
    }

    /// The cluster, if it was made for this RayJob: any other is not its to delete or change.
    pub(super) fn own_cluster(&self) -> Option<&Arc<Entry<RayCluster>>> {
        let is_ours = |cluster: &&Arc<Entry<RayCluster>>| {
            owners::is_controlled_by(&cluster.object.metadata, self.job.uid.as_str())
        };
        self.cluster.as_ref().filter(is_ours)
    }

    /// The Job that submits. One of an earlier RayJob of the same name, which is about to go, is none.
    pub(super) fn own_submitter(&self) -> Option<&Arc<Entry<JobView>>> {
        self.submitter.as_ref().filter(|job| job.object.controller.as_deref() == Some(self.job.uid.as_str()))
    }
}

impl JobController {
    /// Reads the caches, and has the poller poll what the RayJob needs from Ray.
    pub(super) fn read(&self, key: &ObjectKey) -> Option<Observed> {
        let Some(job) = self.jobs.get(key) else {
            self.poller.forget(key);
            return None;
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
        Some(observed)
    }
}
