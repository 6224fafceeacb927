//! Rules of the webhooks of jobs that only some kinds have, or that depend on a feature gate.

use serde_json::{Value, json};

use super::tests::facts;
use super::{Facts, KINDS};
use crate::settings::Settings;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
const GATES: &str = "kueue.x-k8s.io/admission-gated-by";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
const SYNC: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
const LEAST: &str = "kueue.x-k8s.io/job-min-parallelism";

#[expect(clippy::needless_pass_by_value, reason = "tables are easier to read")]
fn object(kind: &str, annotations: Value, spec: Value) -> Value {
    json!({ "kind": kind, "metadata": { "name": "a", "namespace": "ns", "labels": { QUEUE: "lq" },
        "annotations": annotations }, "spec": spec })
}

fn denied_with(object: &Value, old: Option<&Value>, facts: &Facts, settings: &Settings) -> String {
    let kind = KINDS.into_iter().find(|kind| object["kind"] == kind.name).unwrap();
    (kind.validate)(object, old, kind, facts, settings).denials.join("; ")
}

fn denied(object: &Value) -> String {
    denied_with(object, None, &facts(), &Settings::default())
}

fn changed(old: &Value, new: &Value) -> String {
    denied_with(new, Some(old), &facts(), &Settings::default())
}

fn with_gates(switch: impl Fn(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    switch(&mut settings);
    settings
}

#[test]
fn completions_follow_the_parallelism_of_indexed_jobs() {
    let sync = |text: &str, spec: Value| denied(&object("Job", json!({ SYNC: text }), spec));
    let path = format!("metadata.annotations[{SYNC}]");
    assert_eq!(
        sync("maybe", json!({})),
        format!("{path}: Invalid value: \"maybe\": strconv.ParseBool: parsing \"maybe\": invalid syntax")
    );
    assert_eq!(sync("f", json!({ "parallelism": 2 })), "", "a boolean of Go");
    let indexed = |completions: Value| json!({ "completionMode": "Indexed", "parallelism": 3, "completions": completions });
    assert_eq!(sync("1", indexed(json!(3))), "");
    let differs = format!("should be equal to parallelism when {SYNC} annotation is true");
    assert_eq!(
        sync("true", indexed(Value::Null)),
        format!("spec.completions: Invalid value: null: {differs}"),
        "one completion, if nothing is said"
    );
}

#[test]
fn what_follows_the_parallelism_of_a_job_is_not_changed_while_it_runs() {
    let job = |annotations: Value, suspend: bool, parallelism: i64| {
        let spec = json!({ "suspend": suspend, "completionMode": "Indexed", "parallelism": parallelism,
            "completions": parallelism });
        object("Job", annotations, spec)
    };
    let (on, off) = (json!({ SYNC: "true" }), json!({}));
    assert_eq!(
        changed(&job(on.clone(), false, 3), &job(off.clone(), false, 3)),
        format!("metadata.annotations[{SYNC}]: Forbidden: field is immutable while the job is not suspended")
    );
    assert_eq!(changed(&job(on.clone(), true, 3), &job(off.clone(), true, 3)), "");
    assert_eq!(changed(&job(on, true, 3), &job(off, false, 3)), "", "as it starts");

    let partial = json!({ LEAST: "1" });
    let locked = "spec.parallelism: Forbidden: cannot change when partial admission is enabled and the job is not suspended";
    assert_eq!(
        changed(&job(partial.clone(), false, 3), &job(partial.clone(), true, 2)),
        locked,
        "also as it stops"
    );
    assert_eq!(changed(&job(partial.clone(), false, 3), &job(json!({}), false, 2)), locked);
    assert_eq!(changed(&job(partial.clone(), true, 3), &job(partial, false, 2)), "", "as it starts");
}

#[test]
fn a_job_that_is_being_stopped_is_not_suspended_yet() {
    let job = |annotations: Value, queue: &str| {
        let mut job = object("Job", annotations, json!({ "suspend": true }));
        job["metadata"]["labels"][QUEUE] = queue.into();
        job
    };
    let stopping = json!({ "kueue.x-k8s.io/stopping": "true" });
    assert_eq!(changed(&job(json!({}), "lq"), &job(json!({}), "other")), "");
    let found = changed(&job(stopping.clone(), "lq"), &job(stopping, "other"));
    assert_eq!(found, format!("metadata.labels[{QUEUE}]: Invalid value: \"other\": field is immutable"));
}

#[test]
fn a_prebuilt_workload_is_named_where_the_gate_says() {
    let job = |annotation: &str, label: &str, suspend: bool| {
        let mut job =
            object("JAXJob", json!({ PREBUILT: annotation }), json!({ "runPolicy": { "suspend": suspend } }));
        if !label.is_empty() {
            job["metadata"]["labels"][PREBUILT] = label.into();
        }
        job
    };
    let refused = |place: &str| {
        format!(
            "metadata.{place}[{PREBUILT}]: Forbidden: Is not supported for \"kubeflow.org/v1, Kind=JAXJob\""
        )
    };
    assert_eq!(denied(&job("a", "", true)), refused("annotations"));
    assert_eq!(denied(&job("", "l", true)), refused("labels"), "an empty annotation names none");
    assert_eq!(denied(&job("", "", true)), "");
    let by_label = with_gates(|settings| settings.gates.identifier_annotations = false);
    let found = |job: &Value| denied_with(job, None, &facts(), &by_label);
    assert_eq!(found(&job("a", "", true)), "", "the annotation is for names that are too long");
    assert_eq!(found(&job(&"a".repeat(64), "", true)), refused("annotations"));

    let named =
        |name: &str| object("TFJob", json!({ PREBUILT: name }), json!({ "runPolicy": { "suspend": false } }));
    let mut none = named("a");
    none["metadata"]["annotations"] = json!({});
    assert_eq!(
        changed(&named("a"), &none),
        format!("metadata.labels[{PREBUILT}]: Invalid value: \"\": field is immutable"),
        "what is removed is told at the label"
    );
    let expected = format!("metadata.annotations[{PREBUILT}]: Invalid value: \"b\": field is immutable");
    assert_eq!(changed(&named("a"), &named("b")), expected);
}

#[test]
fn gates_that_are_off_check_nothing() {
    let without = with_gates(|settings| {
        settings.scheduling.elastic_slices = false;
        settings.scheduling.admission_gated_by = false;
    });
    let spec = || json!({ "replicatedJobs": [] });
    let (plain, elastic) =
        (object("JobSet", json!({}), spec()), object("JobSet", json!({ ELASTIC: "true" }), spec()));
    assert_eq!(denied_with(&elastic, Some(&plain), &facts(), &without), "");
    for kind in ["JobSet", "Deployment", "StatefulSet", "LeaderWorkerSet", "Job"] {
        let gated = object(kind, json!({ GATES: "a" }), spec());
        assert_eq!(denied_with(&gated, None, &facts(), &without), "", "{kind}");
        assert_ne!(denied(&gated), "", "{kind}");
        let plain = object(kind, json!({}), spec());
        assert_eq!(denied_with(&gated, Some(&plain), &facts(), &without), "", "{kind}");
    }
    let cluster = json!({ "enableInTreeAutoscaling": true, "headGroupSpec": {} });
    let service = object("RayService", json!({ ELASTIC: "true" }), json!({ "rayClusterConfig": cluster }));
    assert!(denied_with(&service, None, &facts(), &without).contains("enableInTreeAutoscaling"));
    assert_eq!(denied(&service), "");
}

#[test]
fn added_gates_are_told_before_wrong_ones() {
    let spec = || json!({ "replicas": 1, "template": { "spec": {} } });
    let (old, new) =
        (object("Deployment", json!({}), spec()), object("Deployment", json!({ GATES: "a" }), spec()));
    let found = changed(&old, &new);
    let path = format!("metadata.annotations[{GATES}]");
    assert!(
        found.starts_with(&format!("[{path}: Forbidden: cannot add admission gate after creation, ")),
        "{found}"
    );
}

#[test]
fn elastic_ray_clusters_of_other_clusters_do_not_scale_themselves() {
    let spec = json!({ "enableInTreeAutoscaling": true, "managedBy": "kueue.x-k8s.io/multikueue",
        "headGroupSpec": { "template": { "spec": { "schedulingGates": [{ "name": ELASTIC }] } } } });
    assert_eq!(
        denied(&object("RayCluster", json!({ ELASTIC: "true" }), spec)),
        "spec.enableInTreeAutoscaling: Forbidden: in-tree autoscaling is not supported for a MultiKueue-managed elastic RayCluster"
    );
}

#[test]
fn changes_of_pods_are_checked_and_not_what_they_were_before() {
    let pod = |labels: Value| {
        json!({ "kind": "Pod", "metadata": { "labels": labels },
            "spec": { "schedulingGates": [{ "name": "kueue.x-k8s.io/admission" }] } })
    };
    let old = pod(json!({ QUEUE: "lq" }));
    let new = pod(json!({ QUEUE: "UPPER" }));
    assert_eq!(changed(&old, &new), "", "a queue that cannot exist");
    assert!(denied(&new).contains("Invalid value: \"UPPER\""));
    let warned = |has_integrated_owner: bool| {
        let kind = KINDS.into_iter().find(|kind| kind.name == "Pod").unwrap();
        let managed = pod(json!({ "kueue.x-k8s.io/managed": "true" }));
        let facts = Facts { has_integrated_owner, ..facts() };
        !(kind.validate)(&managed, None, kind, &facts, &Settings::default()).warnings.is_empty()
    };
    assert!(warned(true) && !warned(false));
}

#[test]
fn the_resources_of_pods_of_a_stateful_set_are_not_removed() {
    let set = |spec: Value| {
        object("StatefulSet", json!({}), json!({ "replicas": 1, "template": { "spec": spec } }))
    };
    let found = changed(&set(json!({ "resources": { "requests": { "cpu": "1" } } })), &set(json!({})));
    assert_eq!(found, "spec.template.spec.resources: Invalid value: null: field is immutable");
}
