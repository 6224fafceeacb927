//! The decision about one MultiKueueCluster. Pure.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::conditions::{self, Finding};
use quintet_api::kueue::conditions::ACTIVE;
use quintet_api::kueue::events::OtherEvent;
use quintet_api::kueue::reasons::MultiKueueClusterActiveReason as Reason;
use quintet_controller::{Action, Class, Error, Event, Next, OnError, Plan, StatusPatch, Step};

use super::super::connections::ConnectionState;
use super::super::kubeconfig::Problem;
use super::{Call, Observed, Present};

/// The plan for a cluster.
pub(super) fn plan(observed: &Observed) -> Plan<Call> {
    match observed {
        Observed::Gone(cluster) => one(Call::Disconnect { cluster: cluster.clone() }),
        Observed::Present(present) => of_present(present),
    }
}

fn one(call: Call) -> Plan<Call> {
    Plan { steps: vec![Step::from(Action::Call(call))], ..Plan::default() }
}

fn of_present(present: &Present) -> Plan<Call> {
    let cluster = || present.cluster.key.name().to_owned();
    let known = present.connection.as_ref();
    let mut plan = match &present.access {
        Err(problem) => {
            let mut plan =
                if known.is_some() { one(Call::Disconnect { cluster: cluster() }) } else { Plan::default() };
            plan.status = inactive(present, problem);
            plan
        }
        Ok(digest) => match known.filter(|(own, _)| own == digest) {
            None => one(Call::Connect { cluster: cluster(), digest: *digest }),
            // Until it is known how it ends, what was said before holds.
            Some((_, ConnectionState::Connecting)) => Plan::awaiting("the first lists of the cluster"),
            Some((_, ConnectionState::Connected)) => Plan {
                status: status(present, true, Reason::Active.as_str(), "Connected"),
                ..Plan::default()
            },
            Some((_, ConnectionState::Failed(why))) => {
                let problem = Problem::new(Reason::ClientConnectionFailed, why);
                Plan { status: inactive(present, &problem), ..Plan::awaiting("a response of the cluster") }
            }
        },
    };
    plan.next = present.again.map_or(Next::AwaitChange, Next::After);
    if plan.status.is_some()
        && let Some(path) = &present.deprecated_path
        && present.access.is_ok()
    {
        let reason = OtherEvent::DeprecatedPathUsage.as_str();
        let note = format!("the kubeconfig {path:?} is outside of the directory for kubeconfigs");
        plan.events.push(Event::warning(reason, reason, note));
    }
    plan
}

/// A kubeconfig of which no connection can be made.
pub(super) fn on_error(observed: &Observed, action: &Action<Call>, error: &Error) -> OnError {
    match (observed, action) {
        (Observed::Present(present), Action::Call(Call::Connect { .. }))
            if error.class() == Class::Invalid =>
        {
            let status = inactive(present, &Problem::new(Reason::BadRestConfig, error.cause()));
            // A new kubeconfig is another one.
            OnError { status, requeue: Some(Next::AwaitChange), ..OnError::default() }
        }
        _ => OnError::default(),
    }
}

fn inactive(present: &Present, problem: &Problem) -> Option<StatusPatch> {
    status(present, false, &problem.reason, &problem.message)
}

fn status(present: &Present, holds: bool, reason: &str, message: &str) -> Option<StatusPatch> {
    let cluster = &present.cluster;
    let before = cluster.object.status.clone().unwrap_or_default();
    let mut after = before.clone();
    let finding = Finding {
        type_: ACTIVE,
        holds: Some(holds),
        reason,
        message,
        observed_generation: cluster.object.metadata.generation,
    };
    conditions::set(after.conditions.get_or_insert_default(), &finding, &Time(present.now));
    StatusPatch::between(cluster, &before, &after)
}

/// The clusters that are active.
pub(in super::super) fn active<'c>(
    clusters: impl IntoIterator<Item = &'c quintet_api::kueue::v1beta2::MultiKueueCluster>,
) -> BTreeSet<String> {
    let is_active = |cluster: &&quintet_api::kueue::v1beta2::MultiKueueCluster| {
        let conditions = cluster.status.as_ref().and_then(|status| status.conditions.as_deref());
        conditions::is_true(conditions.unwrap_or_default(), ACTIVE)
    };
    clusters.into_iter().filter(is_active).filter_map(|cluster| cluster.metadata.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::testing::entry;

    fn present(access: Result<u64, Problem>, connection: Option<(u64, ConnectionState)>) -> Present {
        let object = json!({ "metadata": { "name": "w", "generation": 1 },
            "spec": { "clusterSource": { "kubeConfig": { "location": "w" } } } });
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let (again, deprecated_path) = (None, None);
        Present { cluster: entry(&object), access, connection, again, deprecated_path, now }
    }

    /// The calls of a plan, and what the condition says afterwards.
    fn planned(present: Present) -> (Vec<String>, Value) {
        let plan = plan(&Observed::Present(Box::new(present)));
        let calls = plan.steps.iter().map(|step| step.action.to_string()).collect();
        let condition = plan.status.map(|status| status.status["conditions"][0].clone()).unwrap_or_default();
        (calls, json!([condition["status"], condition["reason"], condition["message"]]))
    }

    #[test]
    fn the_connection_follows_the_way_to_the_cluster_and_the_condition_the_connection() {
        let bad = || Err(Problem::new(Reason::BadKubeConfig, "no"));
        let failed = || ConnectionState::Failed("refused".to_owned());
        let (connect, disconnect) = ("connect to MultiKueueCluster w", "disconnect from MultiKueueCluster w");
        let unsaid = json!([null, null, null]);
        let table = [
            (Ok(1), None, vec![connect], unsaid.clone()),
            (Ok(2), Some((1, ConnectionState::Connected)), vec![connect], unsaid.clone()),
            (Ok(1), Some((1, ConnectionState::Connecting)), vec![], unsaid),
            (Ok(1), Some((1, ConnectionState::Connected)), vec![], json!(["True", "Active", "Connected"])),
            (Ok(1), Some((1, failed())), vec![], json!(["False", "ClientConnectionFailed", "refused"])),
            (bad(), None, vec![], json!(["False", "BadKubeConfig", "no"])),
            (
                bad(),
                Some((1, ConnectionState::Connected)),
                vec![disconnect],
                json!(["False", "BadKubeConfig", "no"]),
            ),
        ];
        for (access, connection, calls, condition) in table {
            let case = format!("{access:?} {connection:?}");
            let found = planned(present(access, connection));
            assert_eq!(found, (calls.into_iter().map(str::to_owned).collect(), condition), "{case}");
        }
    }

    #[test]
    fn a_cluster_that_is_gone_is_disconnected() {
        let plan = plan(&Observed::Gone("w".to_owned()));
        assert_eq!(plan.steps[0].action, Action::Call(Call::Disconnect { cluster: "w".to_owned() }));
    }

    #[test]
    fn a_kubeconfig_without_a_usable_context_is_reported() {
        let observed = Observed::Present(Box::new(present(Ok(1), None)));
        let action = Action::Call(Call::Connect { cluster: "w".to_owned(), digest: 1 });
        let error = Error::new(Class::Invalid, "cannot connect", "no context");
        let followed = on_error(&observed, &action, &error);
        assert_eq!(followed.status.unwrap().status["conditions"][0]["reason"], "BadRestConfig");
        assert_eq!(followed.requeue, Some(Next::AwaitChange));
    }

    #[test]
    fn files_are_read_again() {
        let mut present = present(Ok(1), Some((1, ConnectionState::Connected)));
        present.again = Some(Duration::from_secs(10));
        present.deprecated_path = Some("/tmp/k".to_owned());
        let plan = plan(&Observed::Present(Box::new(present)));
        assert_eq!(plan.next, Next::After(Duration::from_secs(10)));
        assert_eq!(plan.events[0].reason, "DeprecatedPathUsage");
    }
}
