//! What a RayJob waits for, in words for people.

use quintet_api::ray::v1::RayJobStatus;

use super::{cleanup, poll};
use crate::{
    raycluster,
    rayjob::{Observed, status::State, validation::Mode},
};

/// What a RayJob with a valid spec waits for.
pub(super) fn awaits(observed: &Observed) -> Vec<String> {
    let one = |text: String| vec![text];
    match State::of(observed.object()) {
        State::New | State::Unknown => Vec::new(),
        State::Initializing => one(cluster(observed)),
        State::Waiting => one("spec.jobId to be set".to_owned()),
        State::Running => running(observed),
        State::Suspending | State::Retrying => leftovers(observed),
        State::Suspended => one("spec.suspend to be false".to_owned()),
        State::Complete | State::Failed => cleanup::due_next(observed)
            .map(|time| format!("{time}, when it is cleaned up"))
            .into_iter()
            .collect(),
        State::ValidationFailed => one("a valid spec".to_owned()),
    }
}

fn cluster(observed: &Observed) -> String {
    let name = observed.status().and_then(|status| status.ray_cluster_name.as_deref()).unwrap_or_default();
    match &observed.cluster {
        None => format!("RayCluster {name} to be created"),
        Some(cluster) if cluster.deleting => format!("RayCluster {name} to be deleted"),
        Some(cluster) if raycluster::is_ready(&cluster.object) && observed.cluster_service.is_none() => {
            format!("head Service of RayCluster {name}")
        }
        Some(cluster) => raycluster::progress(&cluster.object),
    }
}

fn running(observed: &Observed) -> Vec<String> {
    if observed.cluster.is_none() {
        return vec![cluster(observed)];
    }
    let id = observed.status().and_then(|status: &RayJobStatus| status.job_id.as_deref()).unwrap_or_default();
    let Some(asked) = poll(observed.object(), observed.cluster.as_ref().map(|cluster| &cluster.object))
    else {
        return Vec::new();
    };
    let host = &asked.at.host;
    let mut awaits = match observed.ray_job.as_ref().map(|heard| &heard.response) {
        None => vec![format!("Ray dashboard at {host}: first response")],
        Some(Err(error)) => vec![format!("Ray dashboard at {host}: {error}")],
        Some(Ok(None)) => vec![format!("Ray job {id} to be submitted")],
        Some(Ok(Some(info))) => vec![format!("Ray job {id}: {}", info.status.as_str())],
    };
    let submitter_ended = observed.own_submitter().is_some_and(|job| job.object.end.is_some());
    if Mode::of(&observed.object().spec) == Mode::K8sJob && !submitter_ended {
        awaits.push(format!("submitter Job {} to end", observed.job.key.name()));
    }
    awaits
}

/// What the attempt has made and is not deleted yet.
fn leftovers(observed: &Observed) -> Vec<String> {
    let cluster =
        observed.own_cluster().map(|cluster| format!("RayCluster {} to be deleted", cluster.key.name()));
    let job = observed.own_submitter().map(|job| format!("submitter Job {} to be deleted", job.key.name()));
    cluster.into_iter().chain(job).collect()
}
