//! The state of a RayJob, in upstream's words.

use quintet_api::ray::v1::{RayJob, RayJobStatus};

/// `status.jobDeploymentStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing has been decided.
    New,
    /// The cluster comes up.
    Initializing,
    /// The user has to submit the job.
    Waiting,
    /// The job was handed to Ray.
    Running,
    /// It is over and did not fail.
    Complete,
    /// It is over and failed.
    Failed,
    /// The spec has to be fixed.
    ValidationFailed,
    /// What was made is being deleted, to be suspended.
    Suspending,
    /// Nothing runs until it is resumed.
    Suspended,
    /// What was made is being deleted, for another attempt.
    Retrying,
    /// A word of another operator.
    Unknown,
}

const WORDS: [(State, &str); 10] = [
    (State::New, ""),
    (State::Initializing, "Initializing"),
    (State::Waiting, "Waiting"),
    (State::Running, "Running"),
    (State::Complete, "Complete"),
    (State::Failed, "Failed"),
    (State::ValidationFailed, "ValidationFailed"),
    (State::Suspending, "Suspending"),
    (State::Suspended, "Suspended"),
    (State::Retrying, "Retrying"),
];

impl State {
    /// The state of a RayJob.
    pub fn of(job: &RayJob) -> Self {
        Self::of_status(job.status.as_ref())
    }

    /// The state in a status.
    pub fn of_status(status: Option<&RayJobStatus>) -> Self {
        let word = status.and_then(|status| status.job_deployment_status.as_deref()).unwrap_or_default();
        WORDS.iter().find(|(_, known)| *known == word).map_or(Self::Unknown, |(state, _)| *state)
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        WORDS.iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }

    /// Whether the RayJob has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }
}
