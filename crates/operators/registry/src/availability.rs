//! Whether a Deployment serves, as conditions of registries and the catalog say it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use quintet_api::modelregistry::{messages, reasons};
use serde::Deserialize;
use serde_json::Value;

/// How long a Deployment has to be available before it counts.
const COOLDOWN: SignedDuration = SignedDuration::from_secs(5);

/// Whether a server serves, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Availability {
    pub(crate) holds: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// When it has to be looked at again.
    pub(crate) next: Option<Duration>,
}

impl Availability {
    /// It does not serve, and this is why.
    pub(crate) fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { holds: false, reason, message: message.into(), next: None }
    }
}

/// What a Deployment's status says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentStatus {
    unavailable_replicas: i32,
    conditions: Vec<DeploymentCondition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    message: String,
    last_transition_time: Option<Timestamp>,
}

/// A server and what surrounds it. `Value`s are whole objects.
pub(crate) struct Server<'a> {
    pub(crate) name: &'a str,
    pub(crate) deployment: &'a Value,
    pub(crate) endpoints: Option<&'a Value>,
    pub(crate) now: Timestamp,
}

/// Whether the server serves. `details` looks at pods while replicas are unavailable.
pub(crate) fn of(server: &Server<'_>, details: impl FnOnce(i32) -> Option<Availability>) -> Availability {
    let status = DeploymentStatus::deserialize(&server.deployment["status"]).unwrap_or_default();
    let (since, problem) = read_conditions(&status.conditions);
    // During a rollout, replicas are missing while others serve.
    let Some(problem) = problem else { return of_endpoints(server, since) };
    let missing = status.unavailable_replicas;
    let details = if missing == 0 { None } else { details(missing) };
    details
        .unwrap_or_else(|| Availability::no(reasons::DEPLOYMENT_UNAVAILABLE, messages::unavailable(&problem)))
}

/// Since when the Deployment is available, and otherwise why it is not. As upstream, conditions count in their order.
fn read_conditions(conditions: &[DeploymentCondition]) -> (Option<Timestamp>, Option<String>) {
    let (mut available, mut progressing, mut failed) = (false, true, false);
    let (mut since, mut message) = (None, String::new());
    for condition in conditions {
        match (condition.type_.as_str(), condition.status.as_str()) {
            ("Available", status) if !failed && progressing => {
                available = status == "True";
                if available {
                    since = condition.last_transition_time;
                } else {
                    message.clone_from(&condition.message);
                }
            }
            ("Progressing", "False") if !failed => {
                (available, progressing) = (false, false);
                message.clone_from(&condition.message);
            }
            ("ReplicaFailure", "True") => {
                (available, failed) = (false, true);
                message.clone_from(&condition.message);
            }
            _ => {}
        }
    }
    (since, (!available).then_some(message))
}

fn of_endpoints(server: &Server<'_>, since: Option<Timestamp>) -> Availability {
    let unavailable = |message: String| Availability::no(reasons::DEPLOYMENT_UNAVAILABLE, message);
    let Some(endpoints) = server.endpoints else {
        return unavailable(messages::endpoints_not_found(server.name));
    };
    let subsets = endpoints["subsets"].as_array().into_iter().flatten();
    let mut addresses = subsets.filter_map(|subset| subset["addresses"].as_array());
    if !addresses.any(|addresses| !addresses.is_empty()) {
        return unavailable(messages::NO_READY_ADDRESSES.to_owned());
    }
    let left = since.map(|since| COOLDOWN - server.now.duration_since(since)).unwrap_or_default();
    if left > SignedDuration::ZERO {
        let next = Some(left.unsigned_abs());
        let cooldown = Availability::no(reasons::DEPLOYMENT_COOLDOWN, messages::COOLDOWN);
        return Availability { next, ..cooldown };
    }
    Availability {
        holds: true,
        reason: reasons::DEPLOYMENT_AVAILABLE,
        message: messages::AVAILABLE.to_owned(),
        next: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-01T00:01:00Z";

    fn availability(conditions: &Value, endpoints: Option<&Value>) -> Availability {
        let deployment = json!({"status": {"conditions": conditions}});
        let now = NOW.parse().unwrap();
        of(&Server { name: "n", deployment: &deployment, endpoints, now }, |_| None)
    }

    fn condition(type_: &str, status: &str, at: &str) -> Value {
        json!({"type": type_, "status": status, "message": format!("{type_} is {status}"), "lastTransitionTime": at})
    }

    #[test]
    fn conditions_count_in_their_order() {
        let at = "2026-01-01T00:00:00Z";
        let ready = json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]});
        let available = condition("Available", "True", at);
        let cases = [
            (json!([]), "Deployment is unavailable: "),
            (json!([condition("Available", "False", at)]), "Deployment is unavailable: Available is False"),
            (
                json!([condition("Progressing", "False", at), available]),
                "Deployment is unavailable: Progressing is False",
            ),
            (
                json!([available, condition("ReplicaFailure", "True", at)]),
                "Deployment is unavailable: ReplicaFailure is True",
            ),
            (json!([available, condition("Progressing", "True", at)]), "Deployment is available"),
        ];
        for (conditions, message) in cases {
            assert_eq!(availability(&conditions, Some(&ready)).message, message, "{conditions}");
        }
    }

    #[test]
    fn pods_are_asked_only_while_a_deployment_is_unavailable() {
        let long_ago = "2026-01-01T00:00:00Z";
        let ready = json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]});
        for (status, message) in [("True", "Deployment is available"), ("False", "pods say so")] {
            let conditions = json!([condition("Available", status, long_ago)]);
            let deployment = json!({"status": {"unavailableReplicas": 1, "conditions": conditions}});
            let now = NOW.parse().unwrap();
            let server = Server { name: "n", deployment: &deployment, endpoints: Some(&ready), now };
            let found = of(&server, |missing| {
                assert_eq!(missing, 1);
                Some(Availability::no(reasons::DEPLOYMENT_UNAVAILABLE, "pods say so"))
            });
            assert_eq!(found.message, message);
        }
    }

    #[test]
    fn addresses_are_needed_and_five_seconds() {
        let long_ago = json!([condition("Available", "True", "2026-01-01T00:00:00Z")]);
        let message = |endpoints: Option<&Value>| availability(&long_ago, endpoints).message;
        assert_eq!(message(None), r#"Service endpoints not found: Endpoints "n" not found"#);
        assert_eq!(message(Some(&json!({}))), messages::NO_READY_ADDRESSES);
        let unready = json!({"subsets": [{"notReadyAddresses": [{"ip": "10.0.0.1"}]}]});
        assert_eq!(message(Some(&unready)), messages::NO_READY_ADDRESSES);
        let ready = json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]});
        assert!(availability(&long_ago, Some(&ready)).holds);
        let recently = json!([condition("Available", "True", "2026-01-01T00:00:57Z")]);
        let cooldown = availability(&recently, Some(&ready));
        assert_eq!(cooldown.reason, reasons::DEPLOYMENT_COOLDOWN);
        assert_eq!(cooldown.next, Some(Duration::from_secs(2)));
    }
}
