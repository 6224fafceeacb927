//! What the conditions of a `batch/v1` Job say. Kubeflow's training jobs use the same types.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What the conditions of a Job say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Vec<JobCondition>")]
pub struct JobConditions {
    /// How it ended, if it has.
    pub end: Option<JobEnd>,
    /// It is about to fail: its pods are being removed.
    pub is_failing: bool,
}

/// How a Job ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobEnd {
    /// It failed; otherwise it is complete.
    pub failed: bool,
    /// When.
    pub at: Option<Timestamp>,
    /// One word about it, or empty.
    pub reason: String,
    /// A sentence about it, or empty.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobCondition {
    #[serde(rename = "type")]
    type_: Box<str>,
    status: Box<str>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
    last_transition_time: Option<Timestamp>,
}

impl From<Vec<JobCondition>> for JobConditions {
    fn from(conditions: Vec<JobCondition>) -> Self {
        let mut found = Self::default();
        for condition in conditions.into_iter().filter(|one| &*one.status == "True") {
            match &*condition.type_ {
                kind @ ("Complete" | "Succeeded" | "Failed") => {
                    found.end = Some(JobEnd {
                        failed: kind == "Failed",
                        at: condition.last_transition_time,
                        reason: condition.reason.unwrap_or_default(),
                        message: condition.message.unwrap_or_default(),
                    });
                }
                "FailureTarget" => found.is_failing = true,
                _ => {}
            }
        }
        found
    }
}

impl JobConditions {
    /// Whether the Job has failed.
    pub fn has_failed(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.failed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conditions(conditions: serde_json::Value) -> JobConditions {
        serde_json::from_value(conditions).unwrap()
    }

    #[test]
    fn a_job_has_ended_when_a_condition_says_so() {
        assert_eq!(conditions(json!([])).end, None);
        assert_eq!(conditions(json!([{"type": "Complete", "status": "False"}])).end, None);
        let failing = conditions(json!([{"type": "FailureTarget", "status": "True"}]));
        assert!(failing.is_failing && failing.end.is_none());
        let failed =
            conditions(json!([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
                                        "message": null, "lastTransitionTime": "2026-01-01T00:00:00Z"}]));
        assert!(failed.has_failed());
        let end = failed.end.unwrap();
        assert!(end.at.is_some() && end.reason == "BackoffLimitExceeded" && end.message.is_empty());
        assert!(!conditions(json!([{"type": "Complete", "status": "True"}])).has_failed());
    }
}
