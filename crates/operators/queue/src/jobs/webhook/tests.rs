use quintet_controller::object::Uid;
use quintet_controller::webhook::Verdict;
use serde_json::{Value, json};

use super::super::ancestors::Ancestor;
use super::{Facts, KINDS, defaulting};
use crate::settings::Settings;

#[expect(clippy::needless_pass_by_value, reason = "calls are easier to read")]
fn job(metadata: Value, spec: Value) -> Value {
    let mut job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec });
    if job["spec"]["template"].is_null() {
        job["spec"]["template"] = json!({ "spec": { "containers": [] } });
    }
    job
}

pub(super) fn facts() -> Facts {
    Facts {
        has_default_queue: false,
        has_default_class: false,
        is_namespace_managed: true,
        ancestor: Ancestor::None,
        has_integrated_owner: false,
        has_workload: false,
        runs_elsewhere: false,
        related: Vec::new(),
    }
}

const QUEUED: &str = "kueue.x-k8s.io/queue-name";

#[test]
fn who_is_queued_is_suspended() {
    let queued = json!({ "labels": { QUEUED: "lq" } });
    let all = |settings: &mut Settings| settings.configuration.manage_jobs_without_queue_name = true;
    let managed = Ancestor::Managed(Uid::from("u"));
    let table: [(&str, Value, Facts, bool, bool); 6] = [
        ("with a queue", queued.clone(), facts(), false, true),
        ("without one", json!({}), facts(), false, false),
        ("where all are managed", json!({}), facts(), true, true),
        ("of a managed ancestor", queued.clone(), Facts { ancestor: managed, ..facts() }, false, false),
        (
            "in another namespace",
            queued.clone(),
            Facts { is_namespace_managed: false, ..facts() },
            false,
            false,
        ),
        ("with the default queue", json!({}), Facts { has_default_queue: true, ..facts() }, false, true),
    ];
    for (what, metadata, facts, manages_all, expected) in table {
        let mut settings = Settings::default();
        if manages_all {
            all(&mut settings);
        }
        let mut job = job(metadata, json!({}));
        defaulting::default(&mut job, "/spec/suspend", &facts, &settings).unwrap();
        assert_eq!(job["spec"]["suspend"] == true, expected, "{what}");
    }
    let missing = Facts { ancestor: Ancestor::Missing("JobSet.jobset.x-k8s.io \"x\"".to_owned()), ..facts() };
    let refused =
        defaulting::default(&mut job(queued, json!({})), "/spec/suspend", &missing, &Settings::default());
    assert_eq!(refused.unwrap_err(), "JobSet.jobset.x-k8s.io \"x\" not found");
}

#[test]
fn the_default_class_is_for_jobs_without_one() {
    let with_class = Facts { has_default_class: true, ..facts() };
    let class = |metadata: Value, facts: &Facts| {
        let mut job = job(metadata, json!({}));
        defaulting::default(&mut job, "/spec/suspend", facts, &Settings::default()).unwrap();
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"].clone()
    };
    assert_eq!(class(json!({ "labels": { QUEUED: "lq" } }), &with_class), "default");
    assert_eq!(class(json!({}), &with_class), "default", "it may get a queue later");
    let own = json!({ "labels": { QUEUED: "lq", "kueue.x-k8s.io/priority-class": "own" } });
    assert_eq!(class(own, &with_class), "own");
    assert_eq!(class(json!({}), &Facts { has_integrated_owner: true, ..with_class.clone() }), Value::Null);
    let elsewhere = Facts { is_namespace_managed: false, ..with_class };
    assert_eq!(class(json!({}), &elsewhere), Value::Null);
}

#[test]
fn the_default_queue_is_for_those_whose_owners_are_not_queued() {
    let queue = |metadata: Value, facts: Facts| {
        let mut job = job(metadata, json!({}));
        let facts = Facts { has_default_queue: true, ..facts };
        defaulting::default(&mut job, "/spec/suspend", &facts, &Settings::default()).unwrap();
        (job["metadata"]["labels"][QUEUED].clone(), job["spec"]["suspend"] == true)
    };
    assert_eq!(queue(json!({}), facts()), (json!("default"), true));
    assert_eq!(
        queue(json!({ "labels": { QUEUED: "" } }), facts()),
        (json!("default"), true),
        "empty is none"
    );
    let owned = Facts { has_integrated_owner: true, ..facts() };
    assert_eq!(queue(json!({}), owned), (Value::Null, false), "though its owner has no queue either");
    let below = Facts { ancestor: Ancestor::Managed(Uid::from("u")), ..facts() };
    assert_eq!(
        queue(json!({}), below),
        (json!("default"), false),
        "an owner of another kind is between them"
    );
    let leaving = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
    assert_eq!(queue(leaving, facts()), (json!("default"), false), "it is being deleted");
}

fn created(metadata: Value, spec: Value) -> Verdict {
    (KINDS[0].validate)(&job(metadata, spec), None, KINDS[0], &facts(), &Settings::default())
}

#[test]
fn values_of_labels_and_annotations_are_checked() {
    let table = [
        (
            json!({ "labels": { "kueue.x-k8s.io/max-exec-time-seconds": "0" } }),
            json!({}),
            "should be greater than 0",
        ),
        (json!({ "labels": { "kueue.x-k8s.io/max-exec-time-seconds": "x" } }), json!({}), "strconv.Atoi"),
        (json!({ "labels": { QUEUED: "Q_" } }), json!({}), "metadata.labels[kueue.x-k8s.io/queue-name]"),
        (
            json!({ "annotations": { "kueue.x-k8s.io/job-min-parallelism": "5" } }),
            json!({ "parallelism": 5 }),
            "should be between 0 and 4",
        ),
        (
            json!({ "annotations": { "kueue.x-k8s.io/job-completions-equal-parallelism": "true" } }),
            json!({ "parallelism": 5, "completions": 5 }),
            "should not be enabled for NonIndexed jobs",
        ),
        (
            json!({ "annotations": { "kueue.x-k8s.io/admission-gated-by": "x" } }),
            json!({}),
            "domain-prefixed path",
        ),
    ];
    for (metadata, spec, expected) in table {
        let verdict = created(metadata.clone(), spec);
        assert!(verdict.denials.iter().any(|denial| denial.contains(expected)), "{metadata}: {verdict:?}");
    }
    assert_eq!(created(json!({ "labels": { QUEUED: "lq" } }), json!({ "parallelism": 5 })), Verdict::allow());
}

#[test]
fn topology_annotations_of_templates_are_checked() {
    let name = |suffix: &str| format!("kueue.x-k8s.io/podset-{suffix}");
    let with = |annotations: &[(&str, &str)]| {
        let annotations: serde_json::Map<String, Value> =
            annotations.iter().map(|(suffix, value)| (name(suffix), json!(value))).collect();
        created(
            json!({}),
            json!({ "parallelism": 4, "template": { "metadata": { "annotations": annotations } } }),
        )
    };
    assert_eq!(with(&[("required-topology", "cloud/rack")]), Verdict::allow());
    let table: [(&[(&str, &str)], &str); 6] = [
        (&[("required-topology", "a"), ("preferred-topology", "b")], "more than one topology annotation"),
        (&[("required-topology", "a"), ("slice-size", "2")], "may not be set when"),
        (&[("required-topology", "a"), ("slice-required-topology", "b")], "must be set when"),
        (
            &[("slice-required-topology", "b"), ("slice-size", "5")],
            "must not be greater than pod set count 4",
        ),
        (&[("required-topology", "a"), ("group-name", "1")], "must not be a number"),
        (
            &[("slice-required-topology-constraints", "{")],
            "must be a valid JSON array: unexpected end of JSON input",
        ),
    ];
    for (annotations, expected) in table {
        let verdict = with(annotations);
        assert!(
            verdict.denials.iter().any(|denial| denial.contains(expected)),
            "{annotations:?}: {verdict:?}"
        );
    }
}

#[test]
fn what_a_running_job_may_not_change() {
    let state =
        |labels: Value, suspend: bool| job(json!({ "labels": labels }), json!({ "suspend": suspend }));
    let (lq, other) = (json!({ QUEUED: "lq" }), json!({ QUEUED: "other" }));
    let class = |name: &str| json!({ QUEUED: "lq", "kueue.x-k8s.io/priority-class": name });
    let changed = |old: &Value, new: &Value| {
        (KINDS[0].validate)(new, Some(old), KINDS[0], &facts(), &Settings::default())
    };
    let is_allowed = |old: &Value, new: &Value| changed(old, new) == Verdict::allow();
    assert!(!is_allowed(&state(lq.clone(), false), &state(other.clone(), false)));
    assert!(is_allowed(&state(lq.clone(), false), &state(other, true)), "while it is suspended");
    assert!(is_allowed(&state(class("x"), false), &state(class("y"), false)), "a class may change");
    assert!(!is_allowed(&state(lq.clone(), false), &state(class("y"), false)), "and not be added");
    assert!(is_allowed(&state(lq.clone(), true), &state(class("y"), true)));
    assert!(!is_allowed(&state(class("x"), true), &state(lq.clone(), true)), "or removed");
    let elastic = job(
        json!({ "labels": lq, "annotations": { "kueue.x-k8s.io/elastic-job": "true" } }),
        json!({ "suspend": true }),
    );
    let denied = changed(&state(json!({ QUEUED: "lq" }), true), &elastic);
    assert_eq!(
        denied.denials,
        ["metadata.annotations[kueue.x-k8s.io/elastic-job]: Invalid value: true: field is immutable"]
    );
}

#[test]
fn elastic_jobs_are_gated_and_neither_partial_nor_bound_to_a_domain() {
    let settings = Settings::default();
    let elastic = |annotations: Value, template: Value| {
        let mut job = job(json!({ "labels": { QUEUED: "lq" }, "annotations": annotations }), json!({}));
        job["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] = json!("true");
        job["spec"]["parallelism"] = json!(3);
        job["spec"]["template"]["metadata"] = json!({ "annotations": template });
        job
    };
    let mut gated = elastic(json!({}), json!({}));
    (KINDS[0].default)(&mut gated, &facts(), &settings).unwrap();
    let gates = json!([{ "name": "kueue.x-k8s.io/elastic-job" }]);
    assert_eq!(gated["spec"]["template"]["spec"]["schedulingGates"], gates);
    (KINDS[0].default)(&mut gated, &facts(), &settings).unwrap();
    assert_eq!(gated["spec"]["template"]["spec"]["schedulingGates"], gates, "once");

    let denied = |job: &Value| (KINDS[0].validate)(job, None, KINDS[0], &facts(), &settings).denials;
    assert!(denied(&gated).is_empty());
    let least = "kueue.x-k8s.io/job-min-parallelism";
    assert_eq!(
        denied(&elastic(json!({ least: "1" }), json!({}))),
        [format!(
            "metadata.annotations[{least}]: Invalid value: \"1\": partial admission and elastic job cannot be used together"
        )]
    );
    let required = "kueue.x-k8s.io/podset-required-topology";
    assert_eq!(
        denied(&elastic(json!({}), json!({ required: "rack" }))),
        [format!(
            "spec.template.metadata.annotations.{required}: Forbidden: required topology is not supported with elastic jobs"
        )]
    );
}

#[test]
fn the_minimum_of_a_job_is_checked_when_it_changes() {
    let job = |least: &str, parallelism: i64, suspend: bool| {
        json!({ "kind": "Job", "metadata": { "name": "j", "namespace": "ns",
            "labels": { "kueue.x-k8s.io/queue-name": "q" },
            "annotations": { "kueue.x-k8s.io/job-min-parallelism": least } },
            "spec": { "parallelism": parallelism, "completions": 6, "suspend": suspend,
                "template": { "spec": {} } } })
    };
    let settings = Settings::default();
    let denied = |old: &Value, new: &Value| {
        (KINDS[0].validate)(new, Some(old), KINDS[0], &facts(), &settings).denials.len()
    };
    let waiting = job("4", 6, true);
    assert_eq!(denied(&waiting, &job("4", 4, false)), 0, "it starts with its minimum");
    assert_eq!(denied(&waiting, &job("4", 3, false)), 0, "some of its pods have ended before");
    assert_eq!(denied(&waiting, &job("6", 6, true)), 1);
}
