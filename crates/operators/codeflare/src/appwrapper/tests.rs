//! The state machine, row by row.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use quintet_api::appwrapper::metadata::FINALIZER;
use quintet_api::appwrapper::reasons;
use quintet_controller::cache::Entry;
use quintet_controller::object::Uid;
use quintet_controller::{Class, Next};
use serde_json::{Value, json};

use super::observe::{Live, LiveObject, ObservedComponent, name_of};
use super::*;

const UID: &str = "u";

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> String {
    (now() - SignedDuration::from_secs(seconds)).to_string()
}

/// A condition that changed so many seconds ago.
fn condition(type_: &str, status: &str, reason: &str, seconds: i64) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": ago(seconds)})
}

/// An AppWrapper with one pod in a world of its own.
struct World {
    object: Value,
    live: Live,
    kind: Option<ApiKind>,
    pods: Vec<(&'static str, Vec<i32>)>,
    unhealthy_nodes: BTreeMap<String, BTreeSet<String>>,
    deleting: bool,
}

fn world(phase: &str) -> World {
    let template = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    });
    let component = json!({
        "name": "p", "kind": "Pod", "apiVersion": "v1", "podSets": [{"path": "template", "replicas": 1}],
        "conditions": [condition("ResourcesDeployed", "True", reasons::COMPONENT_CREATED, 10)],
    });
    World {
        object: json!({
            "metadata": {"name": "w", "namespace": "ns", "uid": UID, "finalizers": [FINALIZER], "annotations": {}},
            "spec": {"components": [{"template": template}]},
            "status": {
                "phase": phase,
                "componentStatus": [component],
                "conditions": [
                    condition("QuotaReserved", "True", "Resuming", 10),
                    condition("ResourcesDeployed", "True", "Resuming", 10),
                    condition("PodsReady", "False", "Resuming", 10),
                    condition("Unhealthy", "False", "Resuming", 10),
                ],
            },
        }),
        live: ours(),
        kind: Some(ApiKind::of::<k8s_openapi::api::core::v1::Pod>()),
        pods: Vec::new(),
        unhealthy_nodes: BTreeMap::new(),
        deleting: false,
    }
}

fn ours() -> Live {
    Live::Present(LiveObject {
        uid: Uid::from("c"),
        controller: Some(UID.to_owned()),
        ..LiveObject::default()
    })
}

fn present(change: impl FnOnce(&mut LiveObject)) -> Live {
    let Live::Present(mut live) = ours() else { unreachable!() };
    change(&mut live);
    Live::Present(live)
}

impl World {
    fn set(mut self, path: &str, value: Value) -> Self {
        *self.object.pointer_mut(path).unwrap() = value;
        self
    }

    fn option(mut self, name: &str, value: &str) -> Self {
        self.object["metadata"]["annotations"][format!("workload.codeflare.dev.appwrapper/{name}")] =
            json!(value);
        self
    }

    fn condition(mut self, type_: &str, status: &str, reason: &str, seconds: i64) -> Self {
        let all = self.object["status"]["conditions"].as_array_mut().unwrap();
        all.retain(|one| one["type"] != type_);
        all.push(condition(type_, status, reason, seconds));
        self
    }

    /// Its components were deployed so many seconds ago, and no pod has been ready since.
    fn deployed(self, seconds: i64) -> Self {
        let deployed = self.condition("ResourcesDeployed", "True", "Resuming", seconds);
        deployed.condition("PodsReady", "False", "Resuming", seconds)
    }

    fn suspended(mut self) -> Self {
        self.object["spec"]["suspend"] = json!(true);
        self
    }

    fn live(self, live: Live) -> Self {
        Self { live, ..self }
    }

    fn pods(self, pods: &[(&'static str, &[i32])]) -> Self {
        Self { pods: pods.iter().map(|(phase, codes)| (*phase, codes.to_vec())).collect(), ..self }
    }

    fn observed(&self) -> Observed {
        let mut entry =
            Entry::new(ObjectKey::new("ns", "w"), serde_json::from_value(self.object.clone()).unwrap());
        (entry.uid, entry.deleting) = (Uid::from(UID), self.deleting);
        let pods = self.pods.iter().enumerate().map(|(number, (phase, codes))| {
            let view = json!({
                "appwrapper": "w", "phase": phase, "node": "n", "exitCodes": codes, "resources": ["nvidia.com/gpu"],
            });
            let view = serde_json::from_value(view).unwrap();
            Arc::new(Entry::new(ObjectKey::new("ns", &format!("p{number}")), view))
        });
        let component =
            ObservedComponent { kind: self.kind.clone(), name: "p".to_owned(), live: self.live.clone() };
        let observed = Observed {
            appwrapper: Arc::new(entry),
            config: Arc::default(),
            now: now(),
            components: vec![component],
            pods: pods.collect(),
            unhealthy_nodes: self.unhealthy_nodes.clone(),
        };
        let text = serde_json::to_string(&observed).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn outcome(&self) -> Outcome {
        Outcome::of(&self.observed(), plan::plan(&self.observed()))
    }
}

/// What follows: steps, the patch of the status, events, and when to requeue.
struct Outcome {
    steps: Vec<String>,
    status: Value,
    events: Vec<String>,
    next: Next,
}

impl Outcome {
    fn of(_: &Observed, plan: Plan) -> Self {
        Self {
            steps: plan.steps.iter().map(|step| step.action.to_string()).collect(),
            status: plan.status.map(|patch| patch.status).unwrap_or_default(),
            events: plan.events.into_iter().map(|event| event.note).collect(),
            next: plan.next,
        }
    }

    fn phase(&self) -> &str {
        self.status["phase"].as_str().unwrap_or_default()
    }

    /// `True/Reason` of a condition that changes.
    fn condition(&self, type_: &str) -> String {
        let all = self.status["conditions"].as_array().into_iter().flatten();
        let mut found = all
            .filter(|one| one["type"] == type_)
            .map(|one| format!("{}/{}", one["status"].as_str().unwrap(), one["reason"].as_str().unwrap()));
        found.next_back().unwrap_or_default()
    }

    fn component(&self) -> String {
        let component = &self.status["componentStatus"][0]["conditions"][0];
        format!(
            "{}/{}",
            component["status"].as_str().unwrap_or_default(),
            component["reason"].as_str().unwrap_or_default()
        )
    }
}

fn after(seconds: u64) -> Next {
    Next::After(Duration::from_secs(seconds))
}

#[test]
fn an_appwrapper_of_another_manager_is_left_alone() {
    let other = world("").set("/spec/components", json!([]));
    let mut other = other;
    other.object["spec"]["managedBy"] = json!("example.com/other");
    let plan = plan::plan(&other.observed());
    assert!(plan.is_empty() && plan.awaits[0].contains("example.com/other"));
    other.object["spec"]["managedBy"] = json!("workload.codeflare.dev/appwrapper-controller");
    assert_eq!(other.outcome().phase(), "Suspended");
}

#[test]
fn a_new_one_is_suspended_until_it_may_run() {
    let new = world("").set("/status", json!({}));
    let outcome = new.outcome();
    assert_eq!(outcome.phase(), "Suspended");
    assert_eq!(outcome.status["componentStatus"][0]["podSets"], json!([{"path": "template", "replicas": 1}]));
    let waiting = world("Suspended").suspended();
    assert!(plan::plan(&waiting.observed()).is_empty());
    let resumed = world("Suspended").set("/metadata/finalizers", json!([])).outcome();
    assert_eq!(resumed.steps, ["patch AppWrapper.workload.codeflare.dev ns/w"], "the finalizer comes first");
    assert_eq!(resumed.phase(), "Resuming");
}

#[test]
fn components_are_recorded_before_they_are_created() {
    let fresh = |conditions: Value| {
        world("Resuming").set("/status/componentStatus/0/conditions", conditions).live(Live::Absent)
    };
    let recorded = fresh(json!([])).outcome();
    assert!(recorded.steps.is_empty());
    assert_eq!(recorded.component(), "Unknown/ComponentCreationInitiated");
    let again =
        fresh(json!([condition("ResourcesDeployed", "False", reasons::COMPONENT_DELETED, 5)])).outcome();
    assert!(again.steps.is_empty(), "also when it was created and deleted before");
    assert_eq!(again.component(), "Unknown/ComponentCreationInitiated");
    let initiated =
        json!([condition("ResourcesDeployed", "Unknown", reasons::COMPONENT_CREATION_INITIATED, 0)]);
    let created = fresh(initiated.clone()).outcome();
    assert_eq!(
        (created.steps.as_slice(), created.phase()),
        (["create Pod ns/p".to_owned()].as_slice(), "Running")
    );
    let adopted = fresh(initiated.clone()).live(ours()).outcome();
    assert_eq!((adopted.steps.len(), adopted.phase()), (0, "Running"), "the response was lost");
    let foreign = fresh(initiated.clone()).live(present(|live| live.controller = None)).outcome();
    assert_eq!(foreign.phase(), "Failed");
    assert_eq!(
        foreign.events,
        ["CreateFailed: error creating components: resource p exists, but is not controlled by appwrapper"]
    );
    let dying = fresh(initiated.clone()).live(present(|live| live.deleting = true)).outcome();
    assert_eq!((dying.steps.len(), dying.phase(), dying.next), (0, "", after(1)));
    let mut unknown = fresh(initiated);
    unknown.kind = None;
    let outcome = unknown.outcome();
    assert_eq!(outcome.phase(), "Failed");
    assert_eq!(outcome.condition("Unhealthy"), "True/CreateFailed");
    assert!(outcome.events[0].ends_with("no matches for kind \"Pod\" in version \"v1\""));
    assert_eq!(outcome.component(), "False/ComponentCreationErrored", "as if its creation had been tried");
}

/// Two components that are to be created, in these states.
fn two(conditions: [Value; 2], lives: [Live; 2]) -> Observed {
    two_in(world("Resuming"), conditions, lives)
}

fn two_in(mut world: World, conditions: [Value; 2], lives: [Live; 2]) -> Observed {
    let mut second = world.object["spec"]["components"][0].clone();
    second["template"]["metadata"]["name"] = json!("q");
    world.object["spec"]["components"].as_array_mut().unwrap().push(second);
    let mut status = world.object["status"]["componentStatus"][0].clone();
    status["name"] = json!("q");
    world.object["status"]["componentStatus"].as_array_mut().unwrap().push(status);
    for (number, conditions) in conditions.into_iter().enumerate() {
        world.object["status"]["componentStatus"][number]["conditions"] = conditions;
    }
    let mut observed = world.observed();
    let [first, second] = lives;
    observed.components[0].live = first;
    observed.components.push(ObservedComponent {
        name: "q".into(),
        live: second,
        ..observed.components[0].clone()
    });
    observed
}

fn initiated() -> Value {
    json!([condition("ResourcesDeployed", "Unknown", reasons::COMPONENT_CREATION_INITIATED, 0)])
}

/// What follows if the first step is answered by this code.
fn refused(observed: &Observed, code: u16) -> Outcome {
    let plan = plan::plan(observed);
    let kind = ApiKind::of::<k8s_openapi::api::core::v1::Pod>();
    let status = kube::core::Status::failure("no", "Reason").with_code(code);
    let error = Error::request("create", &kind, None, kube::Error::Api(Box::new(status)));
    let on_error = plan::on_error(observed, &plan.steps[0].action, &error);
    let next = on_error.requeue.expect("the state machine accounts for it");
    Outcome::of(observed, Plan { status: on_error.status, events: on_error.events, next, ..Plan::default() })
}

#[test]
fn components_after_one_that_cannot_be_created_are_not_touched() {
    let both = two([initiated(), initiated()], [Live::Absent, Live::Absent]);
    assert_eq!(Outcome::of(&both, plan::plan(&both)).steps, ["create Pod ns/p", "create Pod ns/q"]);
    let refused = refused(&both, 403);
    assert_eq!(refused.component(), "False/ComponentCreationErrored");
    let second =
        json!({"name": "", "kind": "", "apiVersion": "", "podSets": [{"path": "template", "replicas": 1}]});
    assert_eq!(refused.status["componentStatus"][1], second, "as if it had not been recorded");

    let errored = json!([condition("ResourcesDeployed", "False", reasons::COMPONENT_CREATION_ERRORED, 1)]);
    let again = two([errored.clone(), json!([])], [Live::Absent, Live::Absent]);
    let again = Outcome::of(&again, plan::plan(&again));
    assert_eq!(again.steps, ["create Pod ns/p"], "one after the other from now on");
    assert_eq!((again.phase(), again.component().as_str()), ("", "True/ComponentCreatedSuccessfully"));
    let exists = two([errored, initiated()], [Live::Absent, ours()]);
    assert_eq!(Outcome::of(&exists, plan::plan(&exists)).steps, ["create Pod ns/p"]);

    let foreign = present(|live| live.controller = None);
    let in_the_way = two([initiated(), initiated()], [foreign.clone(), Live::Absent]);
    let failed = Outcome::of(&in_the_way, plan::plan(&in_the_way));
    assert_eq!((failed.phase(), &failed.status["componentStatus"][1]), ("Failed", &second));
    let later = two([initiated(), initiated()], [Live::Absent, foreign]);
    let later = Outcome::of(&later, plan::plan(&later));
    assert_eq!((later.steps.as_slice(), later.phase()), (["create Pod ns/p".to_owned()].as_slice(), ""));
}

#[test]
fn a_component_that_was_deleted_for_a_retry_stays_so_when_the_one_before_it_cannot_be_created() {
    let world = world("Resuming").condition("DeletingResources", "False", reasons::DELETION_COMPLETE, 5);
    let both = two_in(world, [initiated(), initiated()], [Live::Absent, Live::Absent]);
    let second = &refused(&both, 403).status["componentStatus"][1];
    assert_eq!(
        (&second["name"], &second["conditions"][0]["reason"]),
        (&json!("q"), &json!("CompononetDeleted"))
    );
}

#[test]
fn failed_creations_are_retried_within_the_grace_period() {
    let initiated =
        json!([condition("ResourcesDeployed", "Unknown", reasons::COMPONENT_CREATION_INITIATED, 0)]);
    let failed = |code: u16, since: i64, limit: &str| {
        let world = world("Resuming")
            .set("/status/componentStatus/0/conditions", initiated.clone())
            .live(Live::Absent)
            .condition("ResourcesDeployed", "True", "Resuming", since)
            .option("retryLimit", limit);
        let observed = world.observed();
        let plan = plan::plan(&observed);
        let status = kube::core::Status::failure("no", "Reason").with_code(code);
        let error = Error::request(
            "create",
            &ApiKind::of::<k8s_openapi::api::core::v1::Pod>(),
            None,
            kube::Error::Api(Box::new(status)),
        );
        assert_ne!(error.class(), Class::Bug);
        let on_error = plan::on_error(&observed, &plan.steps[0].action, &error);
        let requeue = on_error.requeue.expect("the state machine accounts for it");
        let plan =
            Plan { status: on_error.status, events: on_error.events, next: requeue, ..Plan::default() };
        Outcome::of(&observed, plan)
    };
    let retried = failed(403, 10, "3");
    assert_eq!((retried.phase(), retried.next, retried.events.len()), ("", after(1), 0));
    assert_eq!(retried.component(), "False/ComponentCreationErrored");
    let reset = failed(403, 61, "3");
    assert_eq!((reset.phase(), &reset.status["resettingCount"]), ("Resetting", &json!(1)));
    assert_eq!(failed(503, 61, "0").phase(), "Failed");
    assert_eq!(failed(422, 0, "3").phase(), "Failed", "the object is wrong");
}

#[test]
fn running_rows() {
    let gpu = BTreeMap::from([("n".to_owned(), BTreeSet::from(["nvidia.com/gpu".to_owned()]))]);
    let running = || world("Running");
    let rows: Vec<(&str, World, &str, &str, &str)> = vec![
        (
            "suspended",
            running().suspended(),
            "Suspending",
            "",
            "Externally suspended while in the Running phase",
        ),
        (
            "component gone",
            running().live(Live::Absent),
            "Failed",
            "Unhealthy True/MissingComponent",
            "MissingComponent: Only found 0 deployed components, but was expecting 1",
        ),
        (
            "component being deleted",
            running().live(present(|live| live.deleting = true)),
            "Failed",
            "Unhealthy True/MissingComponent",
            "MissingComponent: Only found 0 deployed components, but was expecting 1",
        ),
        (
            "component failed",
            running().live(present(|live| live.has_failed = true)),
            "Resetting",
            "Unhealthy True/FailedComponent",
            "FailedComponent: Found 1 failed components",
        ),
        (
            "succeeded",
            running().pods(&[("Succeeded", &[0])]),
            "Succeeded",
            "QuotaReserved False/Succeeded",
            "",
        ),
        (
            "succeeded, one still runs",
            running().pods(&[("Succeeded", &[0]), ("Running", &[])]),
            "",
            "PodsReady True/SufficientPodsReady",
            "",
        ),
        ("failed pod", running().pods(&[("Failed", &[1])]), "", "Unhealthy True/FoundFailedPods", ""),
        (
            "failed pod, grace over",
            running().pods(&[("Failed", &[1])]).condition(
                "Unhealthy",
                "True",
                reasons::FOUND_FAILED_PODS,
                60,
            ),
            "Resetting",
            "",
            "FoundFailedPods: 1 failed pods",
        ),
        (
            "failed pod, replaced",
            running().pods(&[("Running", &[])]).condition(
                "Unhealthy",
                "True",
                reasons::FOUND_FAILED_PODS,
                20,
            ),
            "",
            "Unhealthy False/FoundNoFailedPods",
            "",
        ),
        (
            "terminal exit code",
            running()
                .pods(&[("Failed", &[42])])
                .option("terminalExitCodes", "3,42")
                .option("failureGracePeriodDuration", "0s"),
            "Failed",
            "",
            "FoundFailedPods: 1 failed pods",
        ),
        (
            "other exit code",
            running()
                .pods(&[("Failed", &[1])])
                .option("terminalExitCodes", "3,42")
                .option("failureGracePeriodDuration", "0s"),
            "Resetting",
            "",
            "FoundFailedPods: 1 failed pods",
        ),
        (
            "code that is not retryable",
            running()
                .pods(&[("Failed", &[1])])
                .option("retryableExitCodes", "10")
                .option("failureGracePeriodDuration", "0s"),
            "Failed",
            "",
            "FoundFailedPods: 1 failed pods",
        ),
        (
            "unhealthy node",
            World { unhealthy_nodes: gpu.clone(), ..running().pods(&[("Running", &[])]) },
            "Resetting",
            "Unhealthy True/AutopilotNoExecute",
            "Workload contains pods using NoExecute resources on Nodes: map[n:{}]",
        ),
        ("a component cannot be read", running().deployed(300).live(Live::Unreadable), "", "", ""),
        ("no pod yet", running(), "", "", ""),
        (
            "no pod in time",
            running().deployed(60),
            "Resetting",
            "Unhealthy True/InsufficientPodsReady",
            "InsufficientPodsReady: 0 pods pending; 0 pods running; 0 pods succeeded",
        ),
        ("pod pending, within warmup", running().pods(&[("Pending", &[])]).deployed(60), "", "", ""),
        (
            "pod pending, warmup over",
            running().pods(&[("Pending", &[])]).deployed(300),
            "Resetting",
            "Unhealthy True/InsufficientPodsReady",
            "InsufficientPodsReady: 1 pods pending; 0 pods running; 0 pods succeeded",
        ),
        (
            "ready before, and a pod is replaced",
            running().condition("ResourcesDeployed", "True", "Resuming", 300).condition(
                "PodsReady",
                "True",
                reasons::SUFFICIENT_PODS_READY,
                200,
            ),
            "",
            "PodsReady False/InsufficientPodsReady",
            "",
        ),
        (
            "ready before, and a pod is not replaced",
            running().condition("ResourcesDeployed", "True", "Resuming", 300).condition(
                "PodsReady",
                "False",
                reasons::INSUFFICIENT_PODS_READY,
                60,
            ),
            "Resetting",
            "Unhealthy True/InsufficientPodsReady",
            "InsufficientPodsReady: 0 pods pending; 0 pods running; 0 pods succeeded",
        ),
        (
            "no retry left",
            running().live(present(|live| live.has_failed = true)).option("retryLimit", "0"),
            "Failed",
            "",
            "FailedComponent: Found 1 failed components",
        ),
    ];
    for (name, world, phase, condition, event) in rows {
        let outcome = world.outcome();
        assert_eq!(outcome.phase(), phase, "{name}");
        assert_eq!(outcome.events.first().map_or("", String::as_str), event, "{name}");
        if let Some((type_, expected)) = condition.split_once(' ') {
            assert_eq!(outcome.condition(type_), expected, "{name}");
        }
        assert!(outcome.steps.is_empty(), "{name}");
    }
}

#[test]
fn a_node_is_not_the_fault_of_the_workload() {
    let gpu = BTreeMap::from([("n".to_owned(), BTreeSet::from(["nvidia.com/gpu".to_owned()]))]);
    let moved = World { unhealthy_nodes: gpu, ..world("Running").pods(&[("Running", &[])]) };
    let outcome = moved.outcome();
    assert_eq!((outcome.phase(), &outcome.status["resettingCount"]), ("Resetting", &Value::Null));
    let moved = moved.option("retryLimit", "0");
    assert_eq!(moved.outcome().phase(), "Failed", "but the limit holds");
}

#[test]
fn deletion_rows() {
    let deleted = |world: World| world.outcome();
    let first = deleted(world("Resetting"));
    assert_eq!((first.steps.as_slice(), first.next), (["delete Pod ns/p".to_owned()].as_slice(), after(5)));
    assert_eq!(first.condition("DeletingResources"), "True/DeletionInitiated");
    let waiting = world("Resetting").live(present(|live| live.deleting = true)).condition(
        "DeletingResources",
        "True",
        reasons::DELETION_INITIATED,
        10,
    );
    assert!(deleted(waiting).steps.is_empty(), "it is being deleted");
    let overdue =
        || world("Resetting").condition("DeletingResources", "True", reasons::DELETION_INITIATED, 600);
    assert_eq!(deleted(overdue().pods(&[("Running", &[])])).steps, ["delete Pod ns/p0"]);
    assert_eq!(deleted(overdue()).steps, ["delete Pod ns/p"]);
    let pods_left = world("Resetting").live(Live::Absent).pods(&[("Running", &[])]);
    let pods_left = deleted(pods_left);
    assert_eq!((pods_left.component(), pods_left.phase()), ("False/CompononetDeleted".to_owned(), ""));
    let foreign = world("Suspending").live(present(|live| live.controller = Some("x".into())));
    assert!(deleted(foreign).steps.is_empty(), "what has our name and another owner stays");
    let errored = json!([condition("ResourcesDeployed", "False", reasons::COMPONENT_CREATION_ERRORED, 5)]);
    let maybe = world("Suspending").set("/status/componentStatus/0/conditions", errored);
    assert_eq!(deleted(maybe).steps, ["delete Pod ns/p"], "the response may have been lost");
}

#[test]
fn a_retry_chooses_another_generated_name() {
    let named = |status: &str, reason: &str, resets: i32| {
        let mut world = world("Resuming").set(
            "/status/componentStatus/0/conditions",
            json!([condition("ResourcesDeployed", status, reason, 5)]),
        );
        world.object["spec"]["components"][0]["template"]["metadata"] = json!({"generateName": "p-"});
        world.object["status"]["componentStatus"][0]["name"] = json!("p-1");
        world.object["status"]["resettingCount"] = json!(resets);
        name_of(&serde_json::from_value(world.object).unwrap(), 0)
    };
    assert_eq!(named("Unknown", reasons::COMPONENT_CREATION_INITIATED, 1), "p-1");
    let [first, second] = [1, 2].map(|resets| named("False", reasons::COMPONENT_DELETED, resets));
    assert!(first.starts_with("p-") && first != "p-1" && first != second, "{first}, {second}");
}

#[test]
fn phases_after_deletion() {
    let gone = |phase: &str| world(phase).live(Live::Absent);
    let suspended =
        gone("Suspending").condition("PodsReady", "True", reasons::SUFFICIENT_PODS_READY, 5).outcome();
    assert_eq!(suspended.phase(), "Suspended");
    for type_ in ["ResourcesDeployed", "QuotaReserved", "PodsReady"] {
        assert_eq!(suspended.condition(type_), "False/Suspended");
    }
    let paused = gone("Resetting").condition("Unhealthy", "True", reasons::FOUND_FAILED_PODS, 60).outcome();
    assert_eq!((paused.phase(), paused.next), ("", after(30)));
    assert_eq!(paused.condition("ResourcesDeployed"), "False/Resetting");
    let retried = gone("Resetting").condition("Unhealthy", "True", reasons::FOUND_FAILED_PODS, 90).outcome();
    assert_eq!(
        (retried.phase(), retried.condition("ResourcesDeployed").as_str()),
        ("Resuming", "True/Resuming")
    );
    let failed = gone("Failed").outcome();
    assert_eq!((failed.phase(), failed.condition("QuotaReserved").as_str()), ("", "False/Failed"));
    let alive = world("Succeeded").outcome();
    assert_eq!((alive.steps.len(), alive.next), (0, after(168 * 3600 - 10)));
    let expired = gone("Succeeded").option("successTTLDuration", "5s").outcome();
    assert_eq!(expired.condition("ResourcesDeployed"), "False/Succeeded");
}

#[test]
fn components_of_a_failed_one_may_be_kept() {
    let kept = || world("Failed").option("deletionOnFailureGracePeriodDuration", "8s");
    let first = kept().outcome();
    assert_eq!((first.steps.len(), first.next), (0, after(8)));
    assert_eq!(first.condition("DeletingResources"), "False/DeletionPaused");
    let over = kept().condition("DeletingResources", "False", reasons::DELETION_PAUSED, 8).outcome();
    assert_eq!(over.steps, ["delete Pod ns/p"]);
    let begun =
        kept().condition("DeletingResources", "True", reasons::DELETION_INITIATED, 5).live(Live::Absent);
    assert_eq!(begun.outcome().condition("ResourcesDeployed"), "False/Failed", "it is not paused twice");
    let forced = kept().suspended().outcome();
    assert_eq!(forced.steps, ["delete Pod ns/p"], "Kueue needs the quota");
}

#[test]
fn a_deleted_one_goes_after_its_components() {
    let deleted = |world: World| World { deleting: true, ..world }.outcome();
    let first = deleted(world("Running"));
    assert_eq!(
        (first.phase(), first.steps.as_slice()),
        ("Terminating", ["delete Pod ns/p".to_owned()].as_slice())
    );
    let gone = deleted(world("Terminating").live(Live::Absent));
    assert_eq!((gone.steps.len(), gone.condition("QuotaReserved").as_str()), (0, "False/Terminating"));
    let reported = world("Terminating").condition("ResourcesDeployed", "False", "Terminating", 0).condition(
        "QuotaReserved",
        "False",
        "Terminating",
        0,
    );
    assert_eq!(deleted(reported).steps, ["patch AppWrapper.workload.codeflare.dev ns/w"]);
    let released = world("Terminating").set("/metadata/finalizers", json!([]));
    let outcome = deleted(released);
    assert!(outcome.steps.is_empty() && outcome.status.is_null());
}
