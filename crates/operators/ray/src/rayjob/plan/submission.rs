//! How far the submitter of a RayJob is.

use jiff::Timestamp;

use crate::{
    pod_view::{ContainerState, ContainerView},
    rayjob::{Observed, validation::Mode},
};

/// Name of the container that submits.
pub(crate) const CONTAINER: &str = "ray-job-submitter";

/// Restarts after which a submitter in the head pod is given up, as with `backoffLimit` of a submitter Job.
const SIDECAR_RESTARTS: i32 = 2;

/// How far the submitter is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Why it failed for good, if it did.
    pub failure: Option<String>,
    /// When it ended, well or badly.
    pub finished_at: Option<Timestamp>,
}

/// Whether a job with this status in Ray has ended.
pub(crate) fn is_terminal(job_status: &str) -> bool {
    matches!(job_status, "STOPPED" | "SUCCEEDED" | "FAILED")
}

/// Looks at the submitter. The error says that it is gone with all it ran on.
pub(crate) fn inspect(observed: &Observed) -> Result<Progress, String> {
    match Mode::of(&observed.object().spec) {
        Mode::K8sJob => Ok(of_job(observed)),
        Mode::Sidecar => of_sidecar(observed),
        Mode::Http | Mode::Interactive | Mode::Unknown => Ok(Progress::default()),
    }
}

/// Whether a submitter in the head pod has ended. A head pod with an ended container is not ready, and neither is its
/// cluster: a short job must not wait for that.
pub(crate) fn has_ended_in_head(observed: &Observed) -> bool {
    Mode::of(&observed.object().spec) == Mode::Sidecar
        && of_sidecar(observed).is_ok_and(|progress| progress.finished_at.is_some())
}

fn of_job(observed: &Observed) -> Progress {
    let Some(end) = observed.own_submitter().and_then(|job| job.object.end.as_ref()) else {
        return Progress::default();
    };
    let failure = end
        .failed
        .then(|| format!("Job submission has failed. Reason: {}. Message: {}", end.reason, end.message));
    Progress { failure, finished_at: end.at }
}

fn of_sidecar(observed: &Observed) -> Result<Progress, String> {
    let head = match observed.heads.as_slice() {
        [] if observed.cluster.is_some() => return Err("Ray head pod not found.".to_owned()),
        [head] => head,
        // The cluster is being made again, or one of two heads is about to go.
        _ => return Ok(Progress::default()),
    };
    let Some(container) = head.object.container(CONTAINER) else {
        return Ok(Progress::default());
    };
    let restarts = observed.settings.gates.sidecar_submitter_restart;
    Ok(of_container(container, restarts))
}

fn of_container(container: &ContainerView, restarts: bool) -> Progress {
    let ended = match &container.state {
        ContainerState::Terminated { exit_code, reason, finished_at, .. } => {
            Some((*exit_code, reason, *finished_at))
        }
        _ => None,
    };
    let is_given_up = if restarts {
        let ended_well = ended.as_ref().is_some_and(|(code, ..)| *code == 0);
        container.ended_before && !ended_well && container.restarts >= SIDECAR_RESTARTS
    } else {
        ended.as_ref().is_some_and(|(code, ..)| *code != 0)
    };
    let failure = is_given_up.then(|| match &ended {
        Some((code, reason, _)) => {
            format!("Ray head pod container {CONTAINER} terminated with exit code {code}: {reason}")
        }
        None => format!(
            "Ray head pod submitter container {CONTAINER} terminated after exceeding the maximum restart count"
        ),
    });
    Progress { failure, finished_at: ended.and_then(|(_, _, at)| at) }
}
