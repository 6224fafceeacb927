//! Why a migration Job failed, and whether repeating it can help.

use std::sync::Arc;

use quintet_api::job::JobEnd;
use quintet_api::mlflow::messages;
use quintet_controller::cache::Entry;

use crate::mlflow::objects::MIGRATION_CONTAINER;
use crate::watches::{JobView, PodView, Terminated};

/// A failure, with its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The user has to do something.
    Terminal(String),
    /// It may pass.
    Retryable(String),
}

/// Classifies the failure of a Job by the exit code of its last pod. Termination messages do not count.
pub(super) fn classify(
    job: &Entry<JobView>,
    failed: &JobEnd,
    pods: &[Arc<Entry<PodView>>],
    supported: &str,
) -> Failure {
    let of_job = pods.iter().filter(|pod| pod.object.job == job.key.name());
    let newest = of_job.max_by_key(|pod| (pod.object.created, pod.key.clone()));
    let ended = newest.and_then(|pod| {
        let terminated = &pod.object.terminated;
        terminated.iter().find(|one| one.container == MIGRATION_CONTAINER).or_else(|| terminated.first())
    });
    if let Some(ended) = ended {
        return by_exit_code(ended, supported);
    }
    let told = [&failed.message, &failed.reason].into_iter().find(|text| !text.is_empty());
    Failure::Retryable(told.map_or_else(|| messages::unknown_failure(job.object.failed_pods), Clone::clone))
}

/// The exit codes are those of `scripts/migrate.py`.
fn by_exit_code(ended: &Terminated, supported: &str) -> Failure {
    let terminal = match ended.exit_code {
        10 => return Failure::Terminal(messages::image_version_mismatch(supported)),
        11 => messages::BACKEND_NOT_SQL,
        12 => messages::REGISTRY_NOT_SQL,
        13 => messages::SCHEMA_NOT_AT_HEAD,
        14 => messages::REVISION_GRAPH_UNRESOLVED,
        15 => return Failure::Retryable(messages::RETRYABLE_FAILURE.to_owned()),
        _ if !ended.reason.is_empty() => return Failure::Retryable(ended.reason.clone()),
        code => return Failure::Retryable(format!("migration Job container exited with code {code}")),
    };
    Failure::Terminal(terminal.to_owned())
}

#[cfg(test)]
mod tests {
    use quintet_controller::ObjectKey;

    use super::*;

    fn pod(name: &str, second: i64, terminated: &[(&str, i32, &str)]) -> Arc<Entry<PodView>> {
        let ended = |(container, exit_code, reason): &(&str, i32, &str)| Terminated {
            container: (*container).to_owned(),
            exit_code: *exit_code,
            reason: (*reason).to_owned(),
        };
        let view = PodView {
            job: "j".to_owned(),
            created: jiff::Timestamp::from_second(second).ok(),
            terminated: terminated.iter().map(ended).collect(),
        };
        Arc::new(Entry::new(ObjectKey::new("ns", name), view))
    }

    fn classified(failed: &JobEnd, pods: &[Arc<Entry<PodView>>]) -> Failure {
        let job = Entry::new(ObjectKey::new("ns", "j"), JobView::default());
        classify(&job, failed, pods, "3.14.0")
    }

    #[test]
    fn exit_codes_say_whether_repeating_can_help() {
        let of =
            |code, reason| classified(&JobEnd::default(), &[pod("a", 1, &[("db-migrate", code, reason)])]);
        let version = "migration image reports an unexpected MLflow version; expected 3.14.0";
        assert_eq!(of(10, "Error"), Failure::Terminal(version.to_owned()));
        for code in [11, 12, 13, 14] {
            assert!(matches!(of(code, "Error"), Failure::Terminal(_)), "{code}");
        }
        assert_eq!(of(15, "Error"), Failure::Retryable(messages::RETRYABLE_FAILURE.to_owned()));
        assert_eq!(of(137, "OOMKilled"), Failure::Retryable("OOMKilled".to_owned()));
        assert_eq!(of(3, ""), Failure::Retryable("migration Job container exited with code 3".to_owned()));
    }

    #[test]
    fn the_newest_pod_and_in_it_the_migration_counts() {
        let pods = [
            pod("b", 1, &[("db-migrate", 11, "Error")]),
            pod("a", 2, &[("sidecar", 11, "Error"), ("db-migrate", 15, "Error")]),
        ];
        assert!(matches!(classified(&JobEnd::default(), &pods), Failure::Retryable(_)));
        let other = [pod("a", 1, &[("sidecar", 11, "Error")])];
        assert!(matches!(classified(&JobEnd::default(), &other), Failure::Terminal(_)));
    }

    #[test]
    fn without_a_pod_the_job_tells() {
        let of = |reason: &str, message: &str, failed_pods: i32| {
            let failed =
                JobEnd { failed: true, at: None, reason: reason.to_owned(), message: message.to_owned() };
            let view = JobView { failed_pods, ..JobView::default() };
            let job = Entry::new(ObjectKey::new("ns", "j"), view);
            match classify(&job, &failed, &[pod("other", 1, &[])], "3.14.0") {
                Failure::Retryable(cause) | Failure::Terminal(cause) => cause,
            }
        };
        assert_eq!(of("DeadlineExceeded", "too late", 0), "too late");
        assert_eq!(of("DeadlineExceeded", "", 2), "DeadlineExceeded");
        assert_eq!(of("", "", 2), "migration Job failed after 2 attempt(s)");
        assert_eq!(of("", "", 0), "migration Job failed");
    }
}
