//! Why a migration Job failed, and whether repeating it can help.

use std::sync::Arc;

use quintet_api::job::JobEnd;
use quintet_api::mlflow::messages;
use quintet_controller::cache::Entry;

use crate::mlflow::objects::MIGRATION_CONTAINER;
use crate::watches::{PodView, Terminated};

/// A failure, with its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The user has to do something.
    Terminal(String),
    /// It may pass.
    Retryable(String),
}

/// Classifies the failure of a Job by the exit code of its last pod. Termination messages do not count.
pub(super) fn classify(job: &str, failed: &JobEnd, pods: &[Arc<Entry<PodView>>]) -> Failure {
    let of_job = pods.iter().filter(|pod| pod.object.job == job);
    let newest = of_job.max_by_key(|pod| (pod.object.created, pod.key.clone()));
    let ended = newest.and_then(|pod| {
        let terminated = &pod.object.terminated;
        terminated.iter().find(|one| one.container == MIGRATION_CONTAINER).or_else(|| terminated.first())
    });
    if let Some(ended) = ended {
        return by_exit_code(ended);
    }
    let told = [&failed.message, &failed.reason].into_iter().find(|text| !text.is_empty());
    Failure::Retryable(told.map_or_else(|| messages::UNKNOWN_FAILURE.to_owned(), Clone::clone))
}

/// The exit codes are those of `scripts/migrate.py`.
fn by_exit_code(ended: &Terminated) -> Failure {
    let terminal = match ended.exit_code {
        10 => messages::IMAGE_VERSION_MISMATCH,
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

    #[test]
    fn exit_codes_say_whether_repeating_can_help() {
        for code in [10, 11, 12, 13, 14] {
            let failure = classify("j", &JobEnd::default(), &[pod("a", 1, &[("db-migrate", code, "Error")])]);
            assert!(matches!(failure, Failure::Terminal(_)), "{code}");
        }
        let of =
            |code, reason| classify("j", &JobEnd::default(), &[pod("a", 1, &[("db-migrate", code, reason)])]);
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
        assert!(matches!(classify("j", &JobEnd::default(), &pods), Failure::Retryable(_)));
        let other = [pod("a", 1, &[("sidecar", 11, "Error")])];
        assert!(matches!(classify("j", &JobEnd::default(), &other), Failure::Terminal(_)));
    }

    #[test]
    fn without_a_pod_the_job_tells() {
        let failed = |reason: &str, message: &str| JobEnd {
            failed: true,
            at: None,
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        let of = |failed| match classify("j", &failed, &[pod("other", 1, &[])]) {
            Failure::Retryable(cause) | Failure::Terminal(cause) => cause,
        };
        assert_eq!(of(failed("DeadlineExceeded", "too late")), "too late");
        assert_eq!(of(failed("DeadlineExceeded", "")), "DeadlineExceeded");
        assert_eq!(of(failed("", "")), messages::UNKNOWN_FAILURE);
    }
}
