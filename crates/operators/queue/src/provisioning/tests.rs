use std::collections::BTreeMap;

use jiff::Timestamp;
use quintet_api::kueue::v1beta2::{AdmissionCheck, ResourceFlavor, Workload};
use quintet_controller::cache::{Entry, ObjectMetadata};
use quintet_controller::{Action, Plan};
use serde_json::{Value, json};

use super::observe::{Observed, ObservedCheck};
use super::plan::plan;
use super::request::ProvisioningRequest;
use super::{admission_check, names};
use crate::testing::entry;

const NOW: &str = "2026-01-01T01:00:00Z";
const BEFORE: &str = "2026-01-01T00:00:00Z";

fn condition(kind: &str, status: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": kind, "message": "", "lastTransitionTime": BEFORE })
}

/// A Workload with quota, and one check.
struct Case {
    workload: Value,
    config: Option<Value>,
    requests: Vec<Value>,
    templates: Vec<Value>,
    cleans_up: bool,
    is_served: bool,
}

impl Case {
    fn new() -> Self {
        let container = json!({ "name": "c", "resources": { "limits": { "cpu": "1" } } });
        let workload = json!({
            "metadata": { "name": "w", "namespace": "ns", "uid": "w-uid", "annotations": {
                "provreq.kueue.x-k8s.io/p1": "own", "other.example.com/p2": "x" } },
            "spec": { "podSets": [
                { "name": "main", "count": 2, "template": { "spec": { "containers": [container] } } }] },
            "status": {
                "conditions": [condition("QuotaReserved", "True")],
                "admissionChecks": [{ "name": "c", "state": "Pending", "message": "", "lastTransitionTime": BEFORE }],
                "admission": { "clusterQueue": "cq", "podSetAssignments": [
                    { "name": "main", "count": 1, "flavors": { "cpu": "red" } }] },
            },
        });
        let config = json!({ "provisioningClassName": "class", "parameters": { "p1": "1", "p2": "2" } });
        let (requests, templates) = (Vec::new(), Vec::new());
        Self { workload, config: Some(config), requests, templates, cleans_up: true, is_served: true }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Adds a request with conditions that are true, each with a message of its own name.
    fn request(self, attempt: i32, conditions: &[&str]) -> Self {
        let name = names::request("w", "c", attempt);
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|kind| json!({ "type": kind, "status": "True", "message": format!("{kind} it is") }))
            .collect();
        let owner = json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": "w",
            "uid": "w-uid", "controller": true });
        let template = names::template(&name, "main");
        self.with(|case| {
            case.requests.push(json!({
                "metadata": { "name": name, "namespace": "ns", "ownerReferences": [owner] },
                "spec": { "provisioningClassName": "class", "parameters": { "p1": "own", "p2": "2" },
                    "podSets": [{ "count": 1, "podTemplateRef": { "name": template } }] },
                "status": { "conditions": conditions } }));
        })
    }

    fn check(self, change: impl FnOnce(&mut Value)) -> Self {
        self.with(|case| change(&mut case.workload["status"]["admissionChecks"][0]))
    }

    fn condition(self, kind: &str) -> Self {
        self.with(|case| {
            let conditions = case.workload["status"]["conditions"].as_array_mut().unwrap();
            conditions.push(condition(kind, "True"));
        })
    }

    fn observed(&self) -> Observed {
        let flavor = json!({ "metadata": { "name": "red" }, "spec": { "nodeLabels": { "pool": "red" },
            "tolerations": [{ "key": "x", "operator": "Exists" }] } });
        let config = self.config.clone().map(|config| serde_json::from_value(config).unwrap());
        let templates = self.templates.iter().map(|template| {
            let metadata = entry::<Value>(template);
            let object: ObjectMetadata = serde_json::from_value(template["metadata"].clone()).unwrap();
            let mut own = Entry::new(metadata.key.clone(), object);
            own.uid = metadata.uid.clone();
            (metadata.key.name().to_owned(), std::sync::Arc::new(own))
        });
        Observed {
            workload: entry::<Workload>(&self.workload),
            checks: vec![ObservedCheck { name: "c".to_owned(), config }],
            requests: self.requests.iter().map(entry::<ProvisioningRequest>).collect(),
            templates: templates.collect(),
            flavors: BTreeMap::from([(
                "red".to_owned(),
                serde_json::from_value::<ResourceFlavor>(flavor).unwrap(),
            )]),
            cleans_up: self.cleans_up,
            is_served: self.is_served,
            now: NOW.parse::<Timestamp>().unwrap(),
        }
    }

    fn plan(&self) -> Plan {
        plan(&self.observed())
    }

    /// What the check becomes, as `State: message`.
    fn becomes(&self) -> String {
        let check = self.state();
        format!("{}: {}", check["state"].as_str().unwrap(), check["message"].as_str().unwrap())
    }

    fn state(&self) -> Value {
        let status = self.plan().status.map(|patch| patch.status).unwrap_or_default();
        let changed = &status["admissionChecks"][0];
        if changed.is_null() {
            self.workload["status"]["admissionChecks"][0].clone()
        } else {
            changed.clone()
        }
    }

    fn steps(&self) -> Vec<String> {
        self.plan().steps.iter().map(|step| step.action.to_string()).collect()
    }
}

const CREATED: [&str; 2] =
    ["create PodTemplate ns/ppt-w-c-1-main", "create ProvisioningRequest.autoscaling.x-k8s.io ns/w-c-1"];
const DELETED: &str = "delete ProvisioningRequest.autoscaling.x-k8s.io ns/w-c-1";

#[test]
fn a_workload_with_quota_gets_a_template_and_a_request() {
    let plan = Case::new().plan();
    let [Action::Create { object: template, .. }, Action::Create { object: request, .. }] =
        [&plan.steps[0].action, &plan.steps[1].action]
    else {
        panic!("{plan:?}")
    };
    let spec = &template["template"]["spec"];
    assert_eq!(spec["nodeSelector"], json!({ "pool": "red" }));
    assert_eq!(spec["tolerations"], json!([{ "key": "x", "operator": "Exists" }]));
    assert_eq!(spec["containers"][0]["resources"]["requests"], json!({ "cpu": "1" }));
    assert!(template["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"].is_null());
    for object in [template, request] {
        assert_eq!(object["metadata"]["labels"], json!({ "kueue.x-k8s.io/managed": "true" }));
        let owner = &object["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Workload"), &json!("w-uid")));
    }
    let expected = json!({ "provisioningClassName": "class", "parameters": { "p1": "own", "p2": "2" },
        "podSets": [{ "count": 1, "podTemplateRef": { "name": "ppt-w-c-1-main" } }] });
    assert_eq!(request["spec"], expected);
    let event = plan.steps[1].event.as_ref().unwrap();
    assert_eq!((&*event.reason, &*event.action), ("ProvisioningRequestCreated", "Created"));
    assert_eq!(event.note, "Created ProvisioningRequest: \"w-c-1\"");
    assert_eq!(plan.status, None);
}

#[test]
fn the_state_follows_the_conditions() {
    let table: [(&[&str], i32, &str, &str); 12] = [
        (&[], 0, "Pending: ", ""),
        (&["Accepted"], 0, "Pending: earlier", ""),
        (&["Accepted", "Provisioned"], 0, "Ready: Provisioned it is", ""),
        (&["Failed"], 0, "Retry: Retrying after failure: Failed it is", ""),
        (&["Provisioned", "Failed"], 0, "Retry: Retrying after failure: Failed it is", ""),
        (&["Failed"], 1, "Pending: Retrying after failure: Failed it is", ""),
        (&["BookingExpired"], 0, "Retry: Retrying after booking expired: BookingExpired it is", ""),
        (&["BookingExpired"], 0, "Pending: earlier", "Admitted"),
        (&["CapacityRevoked", "Provisioned"], 0, "Rejected: CapacityRevoked it is", ""),
        (&["CapacityRevoked", "Provisioned"], 0, "Rejected: CapacityRevoked it is", "Admitted"),
        (&["CapacityRevoked", "Failed"], 0, "Retry: Retrying after failure: Failed it is", ""),
        (&["Provisioned"], 0, "Ready: Provisioned it is", "Admitted"),
    ];
    for (conditions, retries, expected, more) in table {
        let mut case = Case::new().request(1, conditions).check(|check| {
            check["message"] = "earlier".into();
            check["retryCount"] = retries.into();
        });
        if !more.is_empty() {
            case = case.condition(more);
        }
        assert_eq!(case.becomes(), expected, "{conditions:?} {retries} {more}");
        let moved = case.state()["lastTransitionTime"] == NOW;
        assert_eq!(moved, !expected.starts_with("Pending"), "{conditions:?}");
    }
    let inactive = Case::new().request(1, &["CapacityRevoked"]);
    let inactive = inactive.with(|case| case.workload["spec"]["active"] = json!(false));
    assert_eq!(inactive.plan(), Plan::default());
}

#[test]
fn the_expected_time_is_passed_on() {
    let case = Case::new().request(1, &["Accepted"]).with(|case| {
        let conditions = case.requests[0]["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(json!({ "type": "Provisioned", "status": "False", "message": "ETA: noon" }));
    });
    assert_eq!(case.becomes(), "Pending: ETA: noon");
}

#[test]
fn attempts_are_limited_and_wait_twice_as_long_each_time() {
    let of = |attempt: i32, strategy: Value| {
        let case = Case::new().request(attempt, &["Failed"]);
        let case = case.check(|check| check["retryCount"] = (attempt - 1).into());
        let case = case.with(|case| case.config.as_mut().unwrap()["retryStrategy"] = strategy);
        let state = case.state();
        (state["state"].as_str().unwrap().to_owned(), state["requeueAfterSeconds"].as_i64())
    };
    let retry = |seconds| ("Retry".to_owned(), Some(seconds));
    let rejected = ("Rejected".to_owned(), None);
    assert_eq!([1, 2, 3].map(|attempt| of(attempt, Value::Null)), [retry(60), retry(120), retry(240)]);
    assert_eq!(of(4, Value::Null), rejected);
    let strategy = json!({ "backoffLimitCount": 50, "backoffBaseSeconds": 2, "backoffMaxSeconds": 5 });
    assert_eq!([1, 2, 3, 40].map(|attempt| of(attempt, strategy.clone())), [2, 4, 5, 5].map(retry));
    assert_eq!(of(1, json!({ "backoffLimitCount": 0 })), rejected);
}

#[test]
fn state_changes_are_events() {
    let plan = Case::new().request(1, &["Provisioned"]).plan();
    let notes: Vec<&str> = plan.events.iter().map(|event| event.note.as_str()).collect();
    let expected = "Admission check c updated state from Pending to Ready with message: Provisioned it is";
    assert_eq!((notes, &*plan.events[0].reason), (vec![expected], "AdmissionCheckUpdated"));
    let still = Case::new().request(1, &["Provisioned"]).check(|check| check["state"] = "Ready".into());
    assert_eq!(still.plan(), Plan::default(), "a check that is ready is not written again");
}

#[test]
fn pods_get_the_request_its_class_and_node_selectors_from_its_details() {
    let case = Case::new().request(1, &["Provisioned"]).with(|case| {
        case.config.as_mut().unwrap()["podSetUpdates"] = json!({ "nodeSelector": [
            { "key": "pool", "valueFromProvisioningClassDetail": "Pool" },
            { "key": "zone", "valueFromProvisioningClassDetail": "Zone" }] });
        case.requests[0]["status"]["provisioningClassDetails"] = json!({ "Pool": "p1" });
    });
    let updates = json!([{ "name": "main", "nodeSelector": { "pool": "p1" }, "annotations": {
        "autoscaling.x-k8s.io/consume-provisioning-request": "w-c-1",
        "autoscaling.x-k8s.io/provisioning-class-name": "class" } }]);
    assert_eq!(case.state()["podSetUpdates"], updates);
}

#[test]
fn all_pod_sets_that_are_requested_as_one_get_their_updates() {
    let case = Case::new().request(1, &["Provisioned"]).with(|case| {
        let mut second = case.workload["spec"]["podSets"][0].clone();
        second["name"] = "second".into();
        case.workload["spec"]["podSets"].as_array_mut().unwrap().push(second);
        case.config.as_mut().unwrap()["podSetMergePolicy"] = "IdenticalPodTemplates".into();
    });
    let updates = case.state()["podSetUpdates"].clone();
    let names: Vec<&Value> = updates.as_array().unwrap().iter().map(|update| &update["name"]).collect();
    assert_eq!(names, ["main", "second"]);
}

#[test]
fn a_workload_that_needs_nothing_passes() {
    let managed = json!(["example.com/gpu"]);
    let case = Case::new().with(|case| case.config.as_mut().unwrap()["managedResources"] = managed);
    assert_eq!(case.becomes(), "Ready: the provisioning request is not needed");
    assert_eq!(case.steps(), [""; 0]);
    let none = Case::new().with(|case| {
        case.workload["status"]["admission"]["podSetAssignments"][0]["count"] = 0.into();
    });
    assert_eq!(none.becomes(), "Ready: the provisioning request is not needed");
}

#[test]
fn without_its_configuration_a_check_waits_and_its_request_goes() {
    let case = Case::new().request(1, &[]).with(|case| case.config = None);
    assert_eq!(case.becomes(), "Pending: the check is not active");
    assert_eq!(case.steps(), [DELETED]);
}

#[test]
fn requests_go_with_the_end_and_with_evictions() {
    let with = |condition: &str| Case::new().request(1, &["Provisioned"]).condition(condition);
    assert_eq!(with("Finished").steps(), [DELETED]);
    assert_eq!(with("Evicted").steps(), [DELETED]);
    let kept = with("Evicted").with(|case| case.cleans_up = false);
    assert_eq!(kept.plan(), Plan::default());
    let released = Case::new().request(1, &[]).with(|case| {
        case.workload["status"]["conditions"] = json!([condition("QuotaReserved", "False")]);
    });
    assert_eq!(released.plan(), Plan::default(), "a reservation that was lost may come back");
    let going = with("Finished").with(|case| case.requests[0]["metadata"]["deletionTimestamp"] = NOW.into());
    assert_eq!(going.plan(), Plan::default());
}

#[test]
fn the_next_attempt_follows_the_retries_or_the_last_request() {
    let retried = Case::new().check(|check| check["retryCount"] = 2.into());
    assert_eq!(retried.steps()[1], "create ProvisioningRequest.autoscaling.x-k8s.io ns/w-c-3");
    // The request has outlived the eviction.
    let kept = Case::new().request(1, &["Failed"]).check(|check| check["retryCount"] = 1.into());
    assert_eq!(kept.steps()[1], "create ProvisioningRequest.autoscaling.x-k8s.io ns/w-c-2");
    // The older one is not needed any more.
    let both = Case::new().request(1, &["Failed"]).request(2, &[]);
    assert_eq!(both.steps(), [DELETED]);
    let waits = Case::new().request(1, &["Failed"]);
    assert_eq!(waits.steps(), [""; 0], "it is evicted first");
    let ready = Case::new().check(|check| check["state"] = "Ready".into());
    assert_eq!(ready.plan(), Plan::default(), "whatever became of its request");
}

#[test]
fn a_request_that_the_configuration_does_not_want_any_more_is_replaced() {
    let changes: [(&str, Value); 2] =
        [("provisioningClassName", json!("other")), ("parameters", json!({ "p2": "3" }))];
    for (field, value) in changes {
        let case = Case::new().request(1, &[]);
        let case = case.with(|case| case.config.as_mut().unwrap()[field] = value);
        assert_eq!(case.steps(), [DELETED], "{field}");
        assert_eq!(case.plan().awaits, ["the deletion of ProvisioningRequest w-c-1"]);
    }
    let replaced = Case::new().request(1, &[]);
    let replaced = replaced.with(|case| case.config.as_mut().unwrap()["parameters"] = json!({ "p1": "3" }));
    assert_eq!(replaced.plan(), Plan::default(), "the Workload has its own");
}

#[test]
fn templates_go_with_their_request() {
    let template = |owner: &str, uid: &str| {
        json!({ "metadata": { "name": "ppt-w-c-1-main", "namespace": "ns", "ownerReferences": [
            { "kind": owner, "name": "w", "uid": uid, "controller": true }] } })
    };
    let created = Case::new().with(|case| case.templates.push(template("Workload", "w-uid")));
    assert_eq!(created.steps(), CREATED[1..], "it was created before");
    let leftover = Case::new().with(|case| case.templates.push(template("ProvisioningRequest", "old")));
    let delete = "delete PodTemplate ns/ppt-w-c-1-main";
    assert_eq!(leftover.steps(), [&[delete], &CREATED[..]].concat());

    let requested = created.request(1, &[]);
    let plan = requested.plan();
    let Action::Patch { patch, .. } = &plan.steps[0].action else { panic!("{plan:?}") };
    let owners = &patch["metadata"]["ownerReferences"];
    assert_eq!(owners.as_array().unwrap().len(), 1);
    assert_eq!(
        (&owners[0]["kind"], &owners[0]["uid"], &owners[0]["apiVersion"]),
        (&json!("ProvisioningRequest"), &json!("w-c-1"), &json!("autoscaling.x-k8s.io/v1"))
    );
    let owned = requested.with(|case| case.templates = vec![template("ProvisioningRequest", "w-c-1")]);
    assert_eq!(owned.plan(), Plan::default());
}

#[test]
fn pods_that_contradict_their_flavor_are_reported_once() {
    let mut case = Case::new().with(|case| {
        case.workload["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = json!({ "pool": "blue" });
    });
    let plan = case.plan();
    assert_eq!((plan.steps.len(), &*plan.events[0].reason), (0, "FailedCreate"));
    let message = case.state()["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("Error creating PodTemplate \"ppt-w-c-1-main\": invalid"), "{message}");
    case = case.check(|check| check["message"] = message.into());
    assert_eq!(case.plan(), Plan::default());
}

#[test]
fn what_the_api_refuses_is_said_by_the_check() {
    let observed = Case::new().observed();
    let plan = plan(&observed);
    let action = &plan.steps[1].action;
    let refused: kube::core::Status = serde_json::from_value(json!({ "status": "Failure",
        "message": "provisioningrequests is forbidden", "reason": "Forbidden", "code": 403 }))
    .unwrap();
    let error = quintet_controller::Error::request(
        "create",
        action.kind().unwrap(),
        action.target().as_ref(),
        kube::Error::Api(Box::new(refused)),
    );
    let failed = super::plan::on_error(&observed, action, &error);
    let message = "Error creating ProvisioningRequest \"w-c-1\": provisioningrequests is forbidden";
    assert_eq!((&*failed.events[0].reason, &*failed.events[0].note), ("FailedCreate", message));
    assert_eq!(failed.status.unwrap().status["admissionChecks"][0]["message"], message);
    let down = quintet_controller::Error::new(quintet_controller::error::Class::Transient, "cannot", "down");
    let failed = super::plan::on_error(&observed, action, &down);
    assert_eq!((failed.events.len(), failed.status), (0, None), "the API server did not answer");
}

#[test]
fn nothing_is_requested_while_the_kind_is_not_served() {
    let plan = Case::new().with(|case| case.is_served = false).plan();
    assert_eq!((plan.is_empty(), &*plan.awaits[0]), (true, "the API autoscaling.x-k8s.io/v1"));
}

/// The condition that a check gets, as `True Reason: message`; empty if nothing is written.
#[allow(clippy::needless_pass_by_value, reason = "tables of tests are easier to read without references")]
fn activity(parameters: &Value, has_config: bool, known: Value, is_served: bool) -> String {
    let check = json!({ "metadata": { "name": "c", "generation": 3 },
        "spec": { "controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters },
        "status": { "conditions": known } });
    let observed = admission_check::Observed {
        check: entry::<AdmissionCheck>(&check),
        has_config,
        is_served,
        now: NOW.parse().unwrap(),
    };
    let status = admission_check::plan(&observed).status.map(|patch| patch.status).unwrap_or_default();
    let Some(own) = status["conditions"].get(0) else { return String::new() };
    assert_eq!((&own["type"], &own["observedGeneration"]), (&json!("Active"), &json!(3)));
    let text = |field: &str| own[field].as_str().unwrap();
    format!("{} {}: {}", text("status"), text("reason"), text("message"))
}

#[test]
fn a_check_is_active_while_its_configuration_exists() {
    let reference = |group: &str, kind: &str| json!({ "apiGroup": group, "kind": kind, "name": "prc" });
    let right = reference("kueue.x-k8s.io", "ProvisioningRequestConfig");
    let bad = |message: &str| format!("False BadParametersRef: {message}");
    let table = [
        (right.clone(), true, "True Active: The admission check is active".to_owned()),
        (right.clone(), false, bad("ProvisioningRequestConfig.kueue.x-k8s.io \"prc\" not found")),
        (Value::Null, false, bad("missing parameters reference")),
        (
            reference("example.com", "ProvisioningRequestConfig"),
            false,
            bad("wrong group \"example.com\", expecting \"kueue.x-k8s.io\": bad parameters reference"),
        ),
        (
            reference("kueue.x-k8s.io", "Other"),
            false,
            bad("wrong kind \"Other\", expecting \"ProvisioningRequestConfig\": bad parameters reference"),
        ),
    ];
    for (parameters, has_config, expected) in table {
        assert_eq!(activity(&parameters, has_config, Value::Null, true), expected);
        assert_eq!(activity(&parameters, has_config, Value::Null, false), "");
    }
    let known = json!([{ "type": "Active", "status": "True", "reason": "Active",
        "message": "The admission check is active", "lastTransitionTime": BEFORE }]);
    assert_eq!(activity(&right, true, known.clone(), true), "");
    let gone = bad("ProvisioningRequestConfig.kueue.x-k8s.io \"prc\" not found");
    assert_eq!(activity(&right, false, known, true), gone);
}
