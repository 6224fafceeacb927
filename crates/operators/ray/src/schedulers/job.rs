//! RayJobs under batch schedulers: the submitter belongs to the gang of the cluster it submits to.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use quintet_api::ray::events;
use quintet_api::ray::v1::{RayCluster, RayJob};
use quintet_controller::{Event, Step};

use super::{mark, volcano, yunikorn};
use crate::{
    rayjob::validation::Mode,
    settings::{BatchScheduler, Settings},
};

/// The group of the submitter.
const SUBMITTER_GROUP: &str = "submittergroup";

/// What has to be there before the cluster of a RayJob is. `cluster` is the one it would make, `submitter` the
/// template of its submitter. The error is for the user to fix.
pub fn prepare_job<C>(
    job: &RayJob,
    cluster: Option<&RayCluster>,
    submitter: Option<&PodTemplateSpec>,
    settings: &Settings,
) -> Result<Vec<Step<C>>, String> {
    match settings.batch_scheduler {
        Some(BatchScheduler::Volcano) => {
            let Some(cluster) = cluster else {
                return Err(
                    "Volcano cannot schedule a RayJob with clusterSelector; use rayClusterSpec".to_owned()
                );
            };
            Ok(vec![volcano::pod_group_of_job(job, Some(cluster), submitter)?.into()])
        }
        Some(BatchScheduler::Kai) if Mode::of(&job.spec) == Mode::K8sJob => {
            Err("the KAI scheduler does not support K8sJobMode; use another submissionMode".to_owned())
        }
        _ => Ok(Vec::new()),
    }
}

/// What is left to do once a RayJob has ended or is torn down: what its submitter asked for is free again, and
/// so is all the rest if the cluster is gone.
pub fn release_job<C>(job: &RayJob, cluster: Option<&RayCluster>, settings: &Settings) -> Option<Step<C>> {
    if settings.batch_scheduler != Some(BatchScheduler::Volcano) || job.spec.ray_cluster_spec.is_none() {
        return None;
    }
    let action = volcano::pod_group_of_job(job, cluster, None).ok()?;
    let (namespace, name) = (job.metadata.namespace.as_deref()?, job.metadata.name.as_deref()?);
    let note = format!("Cleaned up batch scheduler resources for RayJob {namespace}/{name}");
    Some(action.with_event(Event::normal(events::BATCH_SCHEDULER_CLEANED_UP, "Cleanup", note)))
}

/// Tells the pods of a RayJob's cluster that the submitter is one of their gang.
pub fn mark_cluster(cluster: &mut RayCluster, submitter: &PodTemplateSpec, settings: &Settings) {
    if settings.batch_scheduler == Some(BatchScheduler::Yunikorn) {
        yunikorn::add_submitter(cluster, SUBMITTER_GROUP, submitter);
    }
}

/// Hands the submitter to the scheduler.
pub fn mark_submitter(template: &mut PodTemplateSpec, cluster: &RayCluster, settings: &Settings) {
    if settings.batch_scheduler.is_none() {
        return;
    }
    let mut pod = Pod {
        metadata: template.metadata.take().unwrap_or_default(),
        spec: template.spec.take(),
        status: None,
    };
    mark(&mut pod, SUBMITTER_GROUP, cluster, settings);
    template.metadata = Some(pod.metadata);
    template.spec = pod.spec;
}
