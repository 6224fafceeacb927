//! When probes run and what their results mean. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Whether the container has started; the others wait for it.
    Startup,
    /// Whether it has to be restarted.
    Liveness,
    /// Whether it takes requests.
    Readiness,
}

impl Purpose {
    /// As events write it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// What one run of a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Success,
    /// It succeeded with something that people should know.
    Warning(String),
    /// It failed, and why.
    Failure(String),
    /// It could not be run; this counts as neither.
    Unknown(String),
}

/// How a probe is run, with all defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Before the first run, counted from the start of the container.
    pub initial_delay: Duration,
    /// Between runs.
    pub period: Duration,
    /// For one run.
    pub timeout: Duration,
    success_threshold: u32,
    failure_threshold: u32,
}

impl Timing {
    /// The timing of a probe.
    pub fn of(probe: &core::Probe) -> Self {
        let positive = |value: Option<i32>, default: u32| {
            value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0).unwrap_or(default)
        };
        let seconds = |value, default| Duration::from_secs(positive(value, default).into());
        Self {
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            success_threshold: positive(probe.success_threshold, 1),
            failure_threshold: positive(probe.failure_threshold, 3),
        }
    }

    /// When the probe runs for the first time.
    pub fn first(&self, started_at: Timestamp) -> Timestamp {
        let delay = SignedDuration::try_from(self.initial_delay).unwrap_or(SignedDuration::ZERO);
        started_at.saturating_add(delay).unwrap_or(started_at)
    }
}

/// Counts results of a probe: a verdict changes when enough of them in a row say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    timing: Timing,
    last: Option<bool>,
    in_a_row: u32,
    current: Option<bool>,
}

impl Verdict {
    /// Before the first result: alive, not ready, not started.
    pub fn new(purpose: Purpose, timing: Timing) -> Self {
        let current = match purpose {
            Purpose::Startup => None,
            Purpose::Liveness => Some(true),
            Purpose::Readiness => Some(false),
        };
        Self { timing, last: None, in_a_row: 0, current }
    }

    /// Counts a result; returns the verdict if it changed.
    pub fn count(&mut self, outcome: &Outcome) -> Option<bool> {
        let is_success = match outcome {
            Outcome::Success | Outcome::Warning(_) => true,
            Outcome::Failure(_) => false,
            Outcome::Unknown(_) => return None,
        };
        self.in_a_row = if self.last == Some(is_success) { self.in_a_row.saturating_add(1) } else { 1 };
        self.last = Some(is_success);
        let needed = if is_success { self.timing.success_threshold } else { self.timing.failure_threshold };
        if self.in_a_row < needed || self.current == Some(is_success) {
            return None;
        }
        self.current = Some(is_success);
        Some(is_success)
    }
}

/// The number of a port that a probe names.
pub fn port(port: &IntOrString, container: &core::Container) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_deref() == Some(name.as_str()));
            named.map(|port| port.container_port).or_else(|| name.parse().ok())
        }
    };
    number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0)
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
mod tests {
    use serde_json::json;

    use super::*;

    fn timing(probe: serde_json::Value) -> Timing {
        Timing::of(&serde_json::from_value(probe).unwrap())
    }

    fn verdicts(purpose: Purpose, probe: serde_json::Value, results: &str) -> Vec<Option<bool>> {
        let mut verdict = Verdict::new(purpose, timing(probe));
        let outcome = |letter| match letter {
            'y' => Outcome::Success,
            'n' => Outcome::Failure("no".into()),
            _ => Outcome::Unknown("?".into()),
        };
        results.chars().map(|letter| verdict.count(&outcome(letter))).collect()
    }

    #[test]
    fn defaults() {
        let found = timing(json!({}));
        assert_eq!((found.period, found.timeout), (Duration::from_secs(10), Duration::from_secs(1)));
        assert_eq!((found.success_threshold, found.failure_threshold), (1, 3));
        let start = Timestamp::from_second(100).unwrap();
        assert_eq!(timing(json!({ "initialDelaySeconds": 7 })).first(start).as_second(), 107);
    }

    #[test]
    fn three_failures_in_a_row_end_a_container() {
        let found = verdicts(Purpose::Liveness, json!({}), "nnynn?n");
        assert_eq!(found, [None, None, None, None, None, None, Some(false)]);
    }

    #[test]
    fn a_container_is_not_ready_before_enough_successes() {
        let found = verdicts(Purpose::Readiness, json!({ "successThreshold": 2 }), "yyy");
        assert_eq!(found, [None, Some(true), None]);
        let found = verdicts(Purpose::Readiness, json!({ "failureThreshold": 1 }), "nyny");
        assert_eq!(found, [None, Some(true), Some(false), Some(true)]);
    }

    #[test]
    fn a_startup_probe_says_yes_or_no_once() {
        assert_eq!(verdicts(Purpose::Startup, json!({}), "nny"), [None, None, Some(true)]);
        assert_eq!(verdicts(Purpose::Startup, json!({ "failureThreshold": 1 }), "n"), [Some(false)]);
    }

    #[test]
    fn ports_are_numbers_or_names() {
        let container = serde_json::from_value(
            json!({ "name": "c", "ports": [{ "name": "http", "containerPort": 8080 }] }),
        )
        .unwrap();
        assert_eq!(port(&IntOrString::Int(80), &container), Some(80));
        assert_eq!(port(&IntOrString::String("http".into()), &container), Some(8080));
        assert_eq!(port(&IntOrString::String("none".into()), &container), None);
        assert_eq!(port(&IntOrString::Int(70_000), &container), None);
    }
}
