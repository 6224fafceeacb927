//! PodDisruptionBudget: how many pods may be evicted.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use quintet_api::conditions::{self, Finding};
use quintet_api::selector::Selector;
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{Controller, Error, Event, NoCall, ObjectKey, Plan, Runtime, StatusPatch};
use serde::{Deserialize, Serialize};

use crate::claim::{self, BY_NAMESPACE, Claimable as _, index_by_namespace};
use crate::deployment::scaled;
use crate::pod::PodView;
use crate::{Context, replicaset, time};

/// A pod that was to be evicted and still exists after this many seconds counts as healthy again; upstream's
/// `DeletionTimeout`.
const DELETION_TIMEOUT: i64 = 120;
const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";
const SUFFICIENT_PODS: &str = "SufficientPods";
const INSUFFICIENT_PODS: &str = "InsufficientPods";
const UNMANAGED_PODS: &str = "UnmanagedPods";

/// Everything that a decision about a budget needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    budget: Arc<Entry<PodDisruptionBudget>>,
    /// The pods that it protects.
    pods: Vec<Arc<Entry<PodView>>>,
    /// The replicas of the controllers of these pods, by uid.
    scales: BTreeMap<String, i32>,
    now: Timestamp,
}

/// The controller of PodDisruptionBudgets.
struct BudgetController {
    budgets: Cache<PodDisruptionBudget>,
    replica_sets: Cache<ReplicaSet>,
    deployments: Cache<Deployment>,
    stateful_sets: Cache<StatefulSet>,
    context: Context,
}

/// Adds the controller of PodDisruptionBudgets.
pub(crate) fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let caches = runtime.caches();
    let spec = WatchSpec::<PodDisruptionBudget>::typed().index(BY_NAMESPACE, index_by_namespace);
    let budgets = caches.watch(spec)?;
    let controller = BudgetController {
        budgets: budgets.clone(),
        replica_sets: caches.watch(replicaset::watch())?,
        deployments: caches.watch(WatchSpec::typed())?,
        stateful_sets: caches.watch(WatchSpec::typed())?,
        context: context.clone(),
    };
    let (of_pods, replica_sets) = (budgets.clone(), controller.replica_sets.clone());
    let (of_sets, pods) = (budgets.clone(), context.pods.clone());
    runtime
        .add(controller, &budgets, context.concurrency)
        .watches(&context.pods, move |pod| budgets_of(pod, &of_pods))
        // The number of expected pods follows the scale of their controller.
        .watches(&replica_sets, move |set| {
            let pods = pods.by_index(claim::BY_CONTROLLER, set.uid.as_str());
            pods.iter().take(1).flat_map(|pod| budgets_of(pod, &of_sets)).collect()
        })
        .done();
    Ok(())
}

fn budgets_of(pod: &Entry<PodView>, budgets: &Cache<PodDisruptionBudget>) -> Vec<ObjectKey> {
    let budgets = budgets.by_index(BY_NAMESPACE, pod.key.namespace().unwrap_or_default());
    let protects = |budget: &PodDisruptionBudget| {
        selector(budget).is_some_and(|selector| selector.matches(&pod.object.metadata.labels))
    };
    budgets.iter().filter(|budget| protects(&budget.object)).map(|budget| budget.key.clone()).collect()
}

/// Which pods a budget protects: none without a selector, all with an empty one.
fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    Selector::try_from(budget.spec.as_ref()?.selector.as_ref()?).ok()
}

impl Controller for BudgetController {
    type Observed = Observed;
    type Call = NoCall;

    // Upstream's component name of this controller.
    const NAME: &'static str = "controllermanager";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(budget) = self.budgets.get(key) else { return Ok(None) };
        let selector = selector(&budget.object);
        let mut pods = self.context.pods.by_index(BY_NAMESPACE, key.namespace().unwrap_or_default());
        let matches = |pod: &Entry<PodView>| {
            selector.as_ref().is_some_and(|selector| selector.matches(&pod.object.metadata.labels))
        };
        pods.retain(|pod| matches(pod) && !pod.object.is_terminal());
        let scales = pods.iter().filter_map(|pod| self.scale_of(pod)).collect();
        Ok(Some(Observed { budget, pods, scales, now: self.context.clock.now() }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan(observed)
    }
}

impl BudgetController {
    /// The replicas of the controller of a pod: those of the Deployment where a ReplicaSet has one.
    fn scale_of(&self, pod: &Entry<PodView>) -> Option<(String, i32)> {
        let owner = pod.object.controller()?;
        let namespace = pod.key.namespace().unwrap_or_default();
        let key = ObjectKey::new(namespace, &owner.name);
        let replicas = match owner.kind.as_str() {
            "ReplicaSet" => {
                let set = self.replica_sets.get(&key)?;
                let of_set = set.object.spec.as_ref()?.replicas?;
                let deployment = set.object.controller().filter(|owner| owner.kind == "Deployment");
                let deployment = deployment
                    .and_then(|owner| self.deployments.get(&ObjectKey::new(namespace, &owner.name)));
                deployment.and_then(|deployment| deployment.object.spec.as_ref()?.replicas).unwrap_or(of_set)
            }
            "StatefulSet" => self.stateful_sets.get(&key)?.object.spec.as_ref()?.replicas?,
            _ => return None,
        };
        Some((owner.uid.clone(), replicas))
    }
}

/// Computes the plan.
fn plan(observed: &Observed) -> Plan {
    let budget = &observed.budget;
    let Some(spec) = budget.object.spec.as_ref().filter(|_| !budget.deleting) else { return Plan::nothing() };
    let current = budget.object.status.clone().unwrap_or_default();
    let (disrupted, due) = disrupted_pods(observed, &current);
    let is_healthy = |pod: &Entry<PodView>| {
        pod.object.is_ready() && !pod.object.is_deleting() && !disrupted.contains_key(pod.key.name())
    };
    let healthy = count(observed.pods.iter().filter(|pod| is_healthy(pod)));
    let (expected, wanted, unmanaged) =
        expectation(observed, spec.max_unavailable.as_ref(), spec.min_available.as_ref());
    let allowed = if expected == 0 { 0 } else { (healthy - wanted).max(0) };
    let mut desired = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(wanted),
        expected_pods: Some(expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: budget.object.metadata.generation,
        conditions: current.conditions.clone(),
    };
    let finding = Finding {
        type_: DISRUPTION_ALLOWED,
        holds: Some(allowed > 0),
        reason: if allowed > 0 { SUFFICIENT_PODS } else { INSUFFICIENT_PODS },
        message: "",
        observed_generation: budget.object.metadata.generation,
    };
    conditions::set(desired.conditions.get_or_insert_default(), &finding, &time::second(observed.now));
    let events = if unmanaged.is_empty() {
        Vec::new()
    } else {
        let note = format!(
            "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged: {}. Use minAvailable with a number",
            selector(&budget.object).unwrap_or_default(),
            unmanaged.join(", ")
        );
        vec![Event::warning(UNMANAGED_PODS, "Count", note)]
    };
    Plan {
        status: StatusPatch::between(budget, &current, &desired),
        events,
        next: time::earliest(observed.now, due),
        ..Plan::default()
    }
}

fn count<T>(all: impl Iterator<Item = T>) -> i32 {
    i32::try_from(all.count()).unwrap_or(i32::MAX)
}

/// Pods whose eviction was allowed and that do not show it yet, and when the next of them is no longer believed in.
fn disrupted_pods(
    observed: &Observed,
    current: &PodDisruptionBudgetStatus,
) -> (BTreeMap<String, Time>, Option<Timestamp>) {
    let mut due = None;
    let mut disrupted = current.disrupted_pods.clone().unwrap_or_default();
    disrupted.retain(|name, since| {
        let ends = time::after(since.0, DELETION_TIMEOUT);
        let is_awaited = observed.pods.iter().any(|pod| pod.key.name() == name && !pod.object.is_deleting());
        if is_awaited && ends > observed.now {
            due = Some(due.map_or(ends, |other: Timestamp| other.min(ends)));
        }
        is_awaited && ends > observed.now
    });
    (disrupted, due)
}

/// How many pods there should be, how many of them healthy, and which pods have no controller that says so.
fn expectation(
    observed: &Observed,
    max_unavailable: Option<&IntOrString>,
    min_available: Option<&IntOrString>,
) -> (i32, i32, Vec<String>) {
    if let Some(IntOrString::Int(number)) = min_available {
        return (count(observed.pods.iter()), *number, Vec::new());
    }
    let is_unmanaged = |pod: &Entry<PodView>| {
        pod.object.controller().is_none_or(|owner| !observed.scales.contains_key(&owner.uid))
    };
    let unmanaged = observed.pods.iter().filter(|pod| is_unmanaged(pod)).map(|pod| pod.key.name().to_owned());
    let expected: i32 = observed.scales.values().sum();
    let wanted = match (max_unavailable, min_available) {
        (Some(max), _) => (expected - scaled(max, expected, true)).max(0),
        (None, Some(min)) => scaled(min, expected, true),
        (None, None) => 0,
    };
    (expected, wanted, unmanaged.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, stored};
    use serde_json::{Value, json};

    fn bench(spec: &Value, pods: &[(&str, bool)]) -> Bench {
        let mut bench = Bench::new();
        let mut budget = json!({ "metadata": { "name": "budget" }, "spec": { "selector": { "matchLabels": { "app": "web" } } } });
        budget["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        bench.create("PodDisruptionBudget", budget);
        for (name, is_ready) in pods {
            let status = if *is_ready { "True" } else { "False" };
            let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web-uid", "controller": true }]);
            bench.create("Pod", json!({
                "metadata": { "name": name, "labels": { "app": "web" }, "ownerReferences": owner },
                "spec": {}, "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": status }] },
            }));
        }
        bench
    }

    fn reconcile(bench: &mut Bench, replicas: i32) -> Value {
        let scales = BTreeMap::from([("web-uid".to_owned(), replicas)]);
        let observed = stored(&Observed {
            budget: bench.entry("PodDisruptionBudget", "budget"),
            pods: bench.entries("Pod"),
            scales,
            now: bench.now,
        });
        let plan = BudgetController::plan(&observed);
        bench.act("PodDisruptionBudget", "budget", &plan);
        bench.get("PodDisruptionBudget", "budget")["status"].clone()
    }

    #[test]
    fn a_budget_allows_what_is_healthy_beyond_what_is_needed() {
        let three = [("a", true), ("b", true), ("c", false)];
        // The budget; expected, desired and allowed.
        let cases = [
            (json!({ "minAvailable": 1 }), (3, 1, 1)),
            (json!({ "minAvailable": 2 }), (3, 2, 0)),
            (json!({ "minAvailable": "50%" }), (4, 2, 0)),
            (json!({ "maxUnavailable": 3 }), (4, 1, 1)),
            (json!({ "maxUnavailable": "30%" }), (4, 2, 0)),
        ];
        for (spec, (expected, desired, allowed)) in cases {
            let status = reconcile(&mut bench(&spec, &three), 4);
            let numbers = ["expectedPods", "desiredHealthy", "disruptionsAllowed"]
                .map(|name| status[name].as_i64().unwrap());
            assert_eq!(numbers, [expected, desired, allowed], "{spec}");
            let reason = if allowed > 0 { SUFFICIENT_PODS } else { INSUFFICIENT_PODS };
            assert_eq!(status["conditions"][0]["reason"], reason);
            assert_eq!(status["currentHealthy"], 2);
        }
    }

    #[test]
    fn a_pod_that_is_being_evicted_is_not_healthy_for_two_minutes() {
        let mut bench = bench(&json!({ "minAvailable": 1 }), &[("a", true), ("b", true)]);
        let disrupted = json!({ "status": { "disruptedPods": { "a": bench.now } } });
        bench.patch("PodDisruptionBudget", "budget", &disrupted);
        assert_eq!(reconcile(&mut bench, 2)["disruptionsAllowed"], 0);
        bench.wait(120);
        let status = reconcile(&mut bench, 2);
        assert_eq!((&status["disruptionsAllowed"], status.get("disruptedPods")), (&json!(1), None));
    }

    #[test]
    fn percentages_need_pods_with_a_controller() {
        let mut bench = bench(&json!({ "maxUnavailable": "10%" }), &[("a", true)]);
        bench.patch("Pod", "a", &json!({ "metadata": { "ownerReferences": [] } }));
        reconcile(&mut bench, 0);
        assert_eq!(bench.take_reasons(), [UNMANAGED_PODS]);
    }
}
