//! What the kubelet has to do with a pod at all: run it, end it, or wait for its removal. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;

use super::lifecycle::GRACE_PERIOD;
use super::status::{PodRecord, Verdict};

/// What the kubelet has to do with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Keep its containers as they should be.
    Run,
    /// End its containers within this time; the pod is done afterwards.
    Terminate(Duration),
    /// Its processes have ended and it is being deleted: remove it from the API.
    Remove,
    /// Its processes are gone; wait until it is deleted.
    Rest,
    /// It is gone from the API and its processes are gone: forget it.
    Forget,
}

/// Decides for a pod; `None` is one that is gone from the API.
pub fn stage(pod: Option<&core::Pod>, record: &PodRecord) -> Stage {
    let Some(pod) = pod else {
        // Deleted by force: it gets a second, as a kubelet gives it.
        return if record.is_over { Stage::Forget } else { Stage::Terminate(Duration::from_secs(1)) };
    };
    let is_deleting = pod.metadata.deletion_timestamp.is_some();
    if record.is_over {
        return if is_deleting { Stage::Remove } else { Stage::Rest };
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let must_end = is_deleting || record.verdict.is_some() || matches!(phase, Some("Succeeded" | "Failed"));
    if must_end { Stage::Terminate(grace(pod)) } else { Stage::Run }
}

/// How long the containers of a pod have to end.
pub fn grace(pod: &core::Pod) -> Duration {
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let seconds = pod.metadata.deletion_grace_period_seconds.or(own).unwrap_or(GRACE_PERIOD);
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default().max(1))
}

/// When a pod has been active for too long.
pub fn deadline(pod: &core::Pod, record: &PodRecord) -> Option<Timestamp> {
    let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
    let start = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    start.or(record.start_time)?.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// The verdict on a pod that has been active for too long.
pub fn deadline_exceeded() -> Verdict {
    Verdict {
        reason: "DeadlineExceeded".into(),
        message: "Pod was active on the node longer than the specified deadline".into(),
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(metadata: Value, spec: Value, status: Value) -> core::Pod {
        let mut spec = spec;
        spec["containers"] = json!([]);
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
    }

    fn deleting(grace: i64) -> Value {
        json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace })
    }

    #[test]
    fn stages() {
        let seconds = Duration::from_secs;
        let over = || PodRecord { is_over: true, ..PodRecord::default() };
        let condemned = || PodRecord { verdict: Some(deadline_exceeded()), ..PodRecord::default() };
        let own = json!({ "terminationGracePeriodSeconds": 7 });
        let cases = vec![
            ("new", Some(pod(json!({}), json!({}), json!({}))), PodRecord::default(), Stage::Run),
            (
                "deleted",
                Some(pod(deleting(5), own.clone(), json!({}))),
                PodRecord::default(),
                Stage::Terminate(seconds(5)),
            ),
            (
                "deleted without grace",
                Some(pod(deleting(0), own.clone(), json!({}))),
                PodRecord::default(),
                Stage::Terminate(seconds(1)),
            ),
            (
                "condemned",
                Some(pod(json!({}), own.clone(), json!({}))),
                condemned(),
                Stage::Terminate(seconds(7)),
            ),
            (
                "failed by others",
                Some(pod(json!({}), json!({}), json!({ "phase": "Failed" }))),
                PodRecord::default(),
                Stage::Terminate(seconds(30)),
            ),
            (
                "ended",
                Some(pod(json!({}), own.clone(), json!({ "phase": "Succeeded" }))),
                over(),
                Stage::Rest,
            ),
            ("ended and deleted", Some(pod(deleting(5), own, json!({}))), over(), Stage::Remove),
            ("removed by force", None, PodRecord::default(), Stage::Terminate(seconds(1))),
            ("removed", None, over(), Stage::Forget),
        ];
        for (case, pod, record, expected) in cases {
            assert_eq!(stage(pod.as_ref(), &record), expected, "{case}");
        }
    }

    #[test]
    fn a_deadline_counts_from_the_start() {
        let limited = pod(
            json!({}),
            json!({ "activeDeadlineSeconds": 10 }),
            json!({ "startTime": "2026-01-01T00:00:00Z" }),
        );
        let expected = "2026-01-01T00:00:10Z".parse::<Timestamp>().unwrap();
        assert_eq!(deadline(&limited, &PodRecord::default()), Some(expected));
        assert_eq!(deadline(&pod(json!({}), json!({}), json!({})), &PodRecord::default()), None);
    }
}
