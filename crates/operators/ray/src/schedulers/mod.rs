//! Batch schedulers, which start the pods of a cluster together or not at all.

mod job;
pub(crate) mod native;
mod scheduler_plugins;
#[cfg(test)]
mod tests;
mod volcano;
mod yunikorn;

pub use job::{mark_cluster, mark_submitter, prepare_job, release_job};

use k8s_openapi::api::core::v1::Pod;
use quintet_api::ray::v1::RayCluster;
use quintet_controller::{ApiKind, Step};

use crate::{
    labels,
    settings::{BatchScheduler, Settings},
};

/// What has to be there before the first pod is. The error is for the user to fix.
pub fn prepare(cluster: &RayCluster, settings: &Settings) -> Result<Vec<Step>, String> {
    match settings.batch_scheduler {
        Some(BatchScheduler::Volcano) => volcano::pod_group(cluster).map(|step| step.into_iter().collect()),
        Some(BatchScheduler::SchedulerPlugins) => {
            Ok(scheduler_plugins::pod_group(cluster).into_iter().collect())
        }
        Some(BatchScheduler::Yunikorn | BatchScheduler::Kai) | None => Ok(Vec::new()),
    }
}

/// The kind that [`prepare`] makes, to be watched: what is known to be there need not be asked about in every reconcile.
pub(crate) fn pod_group_kind(settings: &Settings) -> Option<ApiKind> {
    match settings.batch_scheduler? {
        BatchScheduler::Volcano => Some(volcano::kind()),
        BatchScheduler::SchedulerPlugins => Some(scheduler_plugins::kind()),
        BatchScheduler::Yunikorn | BatchScheduler::Kai => None,
    }
}

/// Hands a pod of a group to the scheduler.
pub fn mark(pod: &mut Pod, group: &str, cluster: &RayCluster, settings: &Settings) {
    if settings.gates.native_gang_scheduling {
        return native::mark(pod, cluster);
    }
    let Some(scheduler) = settings.batch_scheduler else {
        return;
    };
    let name = match scheduler {
        BatchScheduler::Volcano => {
            volcano::mark(pod, group, cluster);
            "volcano"
        }
        BatchScheduler::Yunikorn => {
            yunikorn::mark(pod, group, cluster);
            "yunikorn"
        }
        BatchScheduler::Kai => {
            copy_label(pod, cluster, "kai.scheduler/queue", "kai.scheduler/queue");
            "kai-scheduler"
        }
        BatchScheduler::SchedulerPlugins => {
            scheduler_plugins::mark(pod, cluster);
            "scheduler-plugins-scheduler"
        }
    };
    pod.spec.get_or_insert_default().scheduler_name = Some(name.to_owned());
}

/// A label of the cluster.
fn label<'a>(cluster: &'a RayCluster, name: &str) -> Option<&'a String> {
    cluster.metadata.labels.as_ref()?.get(name)
}

/// Whether the cluster asks for all of its pods at once.
fn is_gang(cluster: &RayCluster) -> bool {
    label(cluster, labels::GANG_SCHEDULING).is_some()
}

/// Gives a pod a label of its cluster, under another name.
fn copy_label(pod: &mut Pod, cluster: &RayCluster, from: &str, to: &str) {
    if let Some(value) = label(cluster, from) {
        pod.metadata.labels.get_or_insert_default().insert(to.to_owned(), value.clone());
    }
}

fn annotate(pod: &mut Pod, name: &str, value: impl Into<String>) {
    pod.metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.into());
}
