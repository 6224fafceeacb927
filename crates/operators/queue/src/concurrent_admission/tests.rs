use std::sync::Arc;

use jiff::Timestamp;
use quintet_api::kueue::v1beta2::{ClusterQueue, Workload};
use quintet_controller::{Action, Next, Plan};
use serde_json::{Value, json};

use super::Observed;
use super::plan::plan;
use crate::settings::Settings;
use crate::testing::entry;

const NOW: &str = "2026-01-01T01:00:00Z";

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": format!("because of {reason}"),
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn admission(flavor: &str) -> Value {
    json!({ "clusterQueue": "cq", "podSetAssignments": [{ "name": "main", "flavors": { "cpu": flavor }, "count": 1 }] })
}

fn parent(conditions: &[Value]) -> Value {
    json!({ "metadata": { "name": "job-a-12345", "namespace": "ns", "uid": "parent",
            "labels": { "kueue.x-k8s.io/concurrent-admission-parent": "true", "kueue.x-k8s.io/job-uid": "j" },
            "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "j", "controller": true }],
            "finalizers": ["kueue.x-k8s.io/resource-in-use"] },
        "spec": { "queueName": "lq", "active": true, "podSets": [] },
        "status": { "conditions": conditions } })
}

fn variant(flavor: &str, conditions: &[Value]) -> Value {
    json!({ "metadata": { "name": flavor, "namespace": "ns",
            "annotations": { "kueue.x-k8s.io/workload-allowed-resource-flavors": flavor },
            "ownerReferences": [{ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": "job-a-12345",
                "uid": "parent", "controller": true }] },
        "spec": { "queueName": "lq", "active": true, "podSets": [],
            "preemptionGates": [{ "name": "kueue.x-k8s.io/concurrent-admission" }] },
        "status": { "conditions": conditions } })
}

/// A variant or a parent that has quota of a flavor.
fn with_quota(mut workload: Value, flavor: &str, more: &[Value]) -> Value {
    let mut conditions =
        vec![condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted")];
    conditions.extend_from_slice(more);
    workload["status"]["conditions"] = conditions.into();
    workload["status"]["admission"] = admission(flavor);
    workload
}

fn inactive(mut workload: Value) -> Value {
    workload["spec"]["active"] = false.into();
    workload
}

fn blocked(flavor: &str) -> Value {
    let reserved = condition("QuotaReserved", "False", "AdmissionGated");
    variant(flavor, &[reserved, condition("BlockedOnPreemptionGates", "True", "PreemptionGated")])
}

fn with_open_gate(mut workload: Value, since: &str) -> Value {
    workload["status"]["preemptionGates"] = json!([{ "name": "kueue.x-k8s.io/concurrent-admission",
        "position": "Open", "lastTransitionTime": since }]);
    workload
}

fn policy(mode: &str) -> Value {
    json!({ "migration": { "mode": mode } })
}

fn planned(parent: &Value, variants: &[Value], policy: &Value) -> Plan {
    let flavors = ["one", "two", "three"].map(|name| json!({ "name": name, "resources": [] }));
    let queue = json!({ "metadata": { "name": "cq" }, "spec": { "concurrentAdmissionPolicy": policy,
        "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": flavors }] } });
    plan(&Observed {
        parent: entry::<Workload>(parent),
        variants: variants.iter().map(entry::<Workload>).collect(),
        cluster_queue: entry::<ClusterQueue>(&queue),
        settings: Arc::new(Settings::default()),
        now: NOW.parse::<Timestamp>().unwrap(),
    })
}

/// What is written, one line each.
fn written(plan: &Plan) -> Vec<String> {
    let mut lines: Vec<String> = plan
        .steps
        .iter()
        .map(|step| {
            let key = step.action.target().unwrap();
            let name = key.name();
            match &step.action {
                Action::Create { .. } => format!("create {}", name.rsplit_once('-').unwrap().0),
                Action::Delete { .. } => format!("delete {name}"),
                Action::Patch { patch, .. } if !patch["spec"]["active"].is_null() => {
                    format!("{name} active={}", patch["spec"]["active"])
                }
                Action::Status { patch, .. } => format!("{name} {}", said(&patch.status)),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    if let Some(status) = &plan.status {
        lines.push(format!("parent {}", said(&status.status)));
    }
    lines
}

/// The conditions of a status that changed at [`NOW`], and gates.
fn said(status: &Value) -> String {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let new = conditions.iter().filter(|own| own["lastTransitionTime"] == NOW);
    let mut texts: Vec<String> = new
        .map(|own| format!("{}={} {}", own["type"], own["status"], own["reason"]).replace('"', ""))
        .collect();
    texts.extend(
        status["preemptionGates"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|gate| format!("gate {}", gate["position"].as_str().unwrap())),
    );
    texts.join(", ")
}

fn notes(plan: &Plan) -> Vec<&str> {
    let of_steps = plan.steps.iter().filter_map(|step| step.event.as_ref());
    of_steps.map(|event| event.note.as_str()).collect()
}

fn all(active: [bool; 3]) -> Vec<Value> {
    let variants = ["one", "two", "three"].into_iter().zip(active);
    variants
        .map(|(flavor, active)| if active { variant(flavor, &[]) } else { inactive(variant(flavor, &[])) })
        .collect()
}

#[test]
fn every_flavor_has_a_variant_and_no_other() {
    let plan =
        planned(&parent(&[]), &[variant("two", &[]), variant("old", &[])], &policy("TryPreferredFlavors"));
    assert_eq!(written(&plan), ["create job-a-variant-one", "create job-a-variant-three", "delete old"]);
    let created = |plan: &Plan| match &plan.steps[0].action {
        Action::Create { object, .. } => object.clone(),
        other => panic!("{other:?}"),
    };
    let object = created(&plan);
    assert_eq!(object["metadata"]["labels"], json!({ "kueue.x-k8s.io/job-uid": "j" }));
    assert_eq!(
        object["metadata"]["annotations"],
        json!({ "kueue.x-k8s.io/workload-allowed-resource-flavors": "one" })
    );
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "parent");
    assert!(object["metadata"]["finalizers"].is_null());
    assert_eq!(object["spec"]["preemptionGates"], json!([{ "name": "kueue.x-k8s.io/concurrent-admission" }]));
    // The first digits of the hash of kind, group, name, uid and flavor.
    let name = object["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("job-a-variant-one-") && name.len() == "job-a-variant-one-".len() + 5, "{name}");
    assert!(notes(&plan)[0].starts_with("Variant Workload \"ns/job-a-variant-one-"), "{:?}", notes(&plan));
    assert_eq!(
        notes(&plan)[2],
        "Variant Workload \"ns/old\" deleted; flavor \"old\" no longer in ClusterQueue"
    );
}

#[test]
fn the_parent_gets_the_admission_of_its_variant_and_worse_variants_stop() {
    let [one, _, three] = <[Value; 3]>::try_from(all([true; 3])).unwrap();
    let two = with_quota(variant("two", &[]), "two", &[]);
    let ready = parent(&[condition("PodsReady", "False", "WaitForStart")]);
    let plan = planned(&ready, &[one, two, three], &policy("TryPreferredFlavors"));
    assert_eq!(
        written(&plan),
        ["three active=false", "two ", "parent QuotaReserved=True QuotaReserved, Admitted=True Admitted"]
    );
    let status = &plan.status.as_ref().unwrap().status;
    assert_eq!(status["admission"], admission("two"));
    assert_eq!(status["conditions"][2]["message"], "The variant two is admitted");
    assert_eq!(
        notes(&plan),
        ["Variant Workload deactivated due to being lower priority than admitted Variant \"ns/two\""]
    );
}

#[test]
fn which_variants_go_on_depends_on_the_policy() {
    let admitted = |active: [bool; 3]| {
        let mut variants = all(active);
        variants[1] = with_quota(variants[1].clone(), "two", &[]);
        variants
    };
    let parent = with_quota(parent(&[]), "two", &[]);
    let limited = json!({ "migration": { "mode": "TryPreferredFlavors",
        "constraints": { "lastAcceptableFlavorName": "one" } } });
    let table: [(&str, [bool; 3], Value, &[&str]); 5] = [
        ("better ones try", [false, true, false], policy("TryPreferredFlavors"), &["one active=true"]),
        ("worse ones do not", [true, true, true], policy("TryPreferredFlavors"), &["three active=false"]),
        (
            "the first is kept",
            [true, true, true],
            policy("RetainFirstAdmission"),
            &["one active=false", "three active=false"],
        ),
        ("nothing is activated", [false, true, false], policy("RetainFirstAdmission"), &[]),
        ("as far as acceptable", [false, true, true], limited, &["three active=false", "one active=true"]),
    ];
    for (what, active, policy, expected) in table {
        assert_eq!(written(&planned(&parent, &admitted(active), &policy)), expected, "{what}");
    }
    let none = planned(&self::parent(&[]), &all([true, false, false]), &policy("RetainFirstAdmission"));
    assert_eq!(written(&none), ["two active=true", "three active=true"], "no variant is admitted");
    let stopped =
        planned(&inactive(self::parent(&[])), &all([true, false, true]), &policy("TryPreferredFlavors"));
    assert_eq!(written(&stopped), ["one active=false", "three active=false"], "the parent is not active");
}

#[test]
fn the_job_stops_before_an_evicted_variant_gives_its_quota_back() {
    let evicted = || {
        let mut variants = all([true; 3]);
        let migrated = condition("Evicted", "True", "FlavorMigration");
        variants[1] = with_quota(variants[1].clone(), "two", &[migrated]);
        variants
    };
    let policy = policy("TryPreferredFlavors");
    let running = with_quota(parent(&[]), "two", &[]);
    assert_eq!(written(&planned(&running, &evicted(), &policy)), ["parent Evicted=True VariantEvicted"]);
    let stopping = with_quota(parent(&[]), "two", &[condition("Evicted", "True", "VariantEvicted")]);
    assert_eq!(written(&planned(&stopping, &evicted(), &policy)), [""; 0], "its job stops");
    let stopped = parent(&[condition("QuotaReserved", "False", "PendingEvaluation")]);
    assert_eq!(
        written(&planned(&stopped, &evicted(), &policy)),
        [
            "two QuotaReserved=False PendingEvaluation, Admitted=False NoReservation, Requeued=False FlavorMigration"
        ]
    );
    let elsewhere = with_quota(parent(&[]), "one", &[]);
    let lines = written(&planned(&elsewhere, &evicted(), &policy));
    assert!(lines[0].starts_with("two QuotaReserved=False"), "the job runs with another variant: {lines:?}");
}

#[test]
fn a_parent_without_a_variant_is_evicted_and_ends_with_them() {
    let policy = policy("TryPreferredFlavors");
    let running = with_quota(parent(&[]), "two", &[]);
    assert_eq!(
        written(&planned(&running, &all([true; 3]), &policy)),
        ["parent Evicted=True ConcurrentAdmission"]
    );
    let finished = parent(&[condition("Finished", "True", "Succeeded")]);
    assert_eq!(
        written(&planned(&finished, &all([true; 3]), &policy)),
        ["one Finished=True Succeeded", "two Finished=True Succeeded", "three Finished=True Succeeded"]
    );
}

#[test]
fn one_variant_at_a_time_may_preempt() {
    let policy = policy("TryPreferredFlavors");
    let open = |variants: &[Value]| {
        let plan = planned(&parent(&[]), variants, &policy);
        let wait = match plan.next {
            Next::After(wait) => wait.as_secs(),
            Next::AwaitChange => 0,
        };
        (written(&plan), wait)
    };
    let waiting = |flavor: &str| variant(flavor, &[condition("QuotaReserved", "False", "WaitingForQuota")]);
    let opened = |flavor: &str| (vec![format!("{flavor} gate Open")], 300);
    assert_eq!(open(&[blocked("one"), blocked("two"), waiting("three")]), opened("one"));
    assert_eq!(open(&[waiting("one"), blocked("two"), blocked("three")]), opened("two"));
    let (unknown, wait) = open(&[variant("one", &[]), blocked("two"), blocked("three")]);
    assert_eq!((unknown, wait), (Vec::new(), 0), "the first was not evaluated yet");
    let recent = with_open_gate(blocked("one"), "2026-01-01T00:58:00Z");
    assert_eq!(open(&[recent, blocked("two"), blocked("three")]), (Vec::new(), 180));
    let old = with_open_gate(blocked("one"), "2026-01-01T00:50:00Z");
    assert_eq!(open(&[old, blocked("two"), blocked("three")]), opened("two"));
}
