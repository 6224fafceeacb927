//! What may be changed of a job, for every kind: the same rules, at the field by which the kind is suspended.

use serde_json::{Value, json};

use super::tests::facts;
use super::{Facts, KINDS, Kind};
use crate::settings::Settings;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
const MAX_TIME: &str = "kueue.x-k8s.io/max-exec-time-seconds";
const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
const GATES: &str = "kueue.x-k8s.io/admission-gated-by";

const IMMUTABLE_QUEUE: &str =
    "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"other\": field is immutable";

/// Kinds that are suspended by a field, each with a spec that its webhook accepts.
fn specs() -> Vec<(&'static str, &'static str, Value)> {
    let pod = || json!({ "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let replicas = |roles: &[&str]| -> Value {
        roles.iter().map(|role| ((*role).to_owned(), json!({ "replicas": 1, "template": pod() }))).collect()
    };
    let kubeflow = |field: &str, roles: &[&str]| json!({ "runPolicy": {}, field: replicas(roles) });
    let ray = || {
        json!({ "headGroupSpec": { "rayStartParams": {}, "template": pod() },
        "workerGroupSpecs": [{ "groupName": "small", "replicas": 1, "template": pod() }] })
    };
    let in_policy = "/spec/runPolicy/suspend";
    vec![
        ("AppWrapper", "/spec/suspend", json!({ "components": [] })),
        ("JAXJob", in_policy, kubeflow("jaxReplicaSpecs", &["Worker"])),
        ("Job", "/spec/suspend", json!({ "parallelism": 1, "completions": 1, "template": pod() })),
        (
            "JobSet",
            "/spec/suspend",
            json!({ "replicatedJobs": [{ "name": "r", "template": { "spec": { "template": pod() } } }] }),
        ),
        ("MPIJob", in_policy, kubeflow("mpiReplicaSpecs", &["Launcher", "Worker"])),
        ("PaddleJob", in_policy, kubeflow("paddleReplicaSpecs", &["Master", "Worker"])),
        ("PyTorchJob", in_policy, kubeflow("pytorchReplicaSpecs", &["Master", "Worker"])),
        ("RayCluster", "/spec/suspend", ray()),
        ("RayJob", "/spec/suspend", json!({ "shutdownAfterJobFinishes": true, "rayClusterSpec": ray() })),
        ("RayService", "/spec/rayClusterConfig/suspend", json!({ "rayClusterConfig": ray() })),
        ("TFJob", in_policy, kubeflow("tfReplicaSpecs", &["Chief", "Worker"])),
        ("XGBoostJob", in_policy, kubeflow("xgbReplicaSpecs", &["Master", "Worker"])),
    ]
}

fn kind(name: &str) -> &'static Kind {
    KINDS.into_iter().find(|kind| kind.name == name).unwrap()
}

/// A job with these labels.
fn job(name: &str, spec: &Value, labels: &[(&str, &str)]) -> Value {
    let Kind { group, version, .. } = kind(name);
    let labels: Value = labels.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
    json!({ "apiVersion": format!("{group}/{version}"), "kind": name,
        "metadata": { "name": "a", "namespace": "ns", "labels": labels }, "spec": spec })
}

fn suspended(job: &Value, path: &str, is_suspended: bool) -> Value {
    let mut job = job.clone();
    let (parent, field) = path.rsplit_once('/').unwrap();
    job.pointer_mut(parent).unwrap()[field] = is_suspended.into();
    job
}

fn verdict(job: &Value, old: Option<&Value>, facts: &Facts) -> String {
    let kind = kind(job["kind"].as_str().unwrap());
    (kind.validate)(job, old, kind, facts, &Settings::default()).denials.join("; ")
}

#[test]
fn the_queue_may_be_changed_while_the_job_waits() {
    for (name, path, spec) in specs() {
        let (old, new) = (job(name, &spec, &[(QUEUE, "lq")]), job(name, &spec, &[(QUEUE, "other")]));
        for (was_suspended, is_suspended, expected) in [
            (true, true, ""),
            (false, true, ""),
            (false, false, IMMUTABLE_QUEUE),
            (true, false, IMMUTABLE_QUEUE),
        ] {
            let (old, new) = (suspended(&old, path, was_suspended), suspended(&new, path, is_suspended));
            assert_eq!(
                verdict(&new, Some(&old), &facts()),
                expected,
                "{name} {was_suspended} {is_suspended}"
            );
        }
    }
}

#[test]
fn the_queue_is_added_and_removed_while_the_job_waits() {
    let immutable = |queue: &str| {
        format!("metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"{queue}\": field is immutable")
    };
    let in_default = Facts { has_default_queue: true, ..facts() };
    for (name, path, spec) in specs() {
        let (without, with) = (job(name, &spec, &[]), job(name, &spec, &[(QUEUE, "lq")]));
        for (is_suspended, added, removed) in
            [(true, String::new(), String::new()), (false, immutable("lq"), immutable(""))]
        {
            let (without, with) =
                (suspended(&without, path, is_suspended), suspended(&with, path, is_suspended));
            assert_eq!(verdict(&with, Some(&without), &facts()), added, "{name} {is_suspended}");
            assert_eq!(verdict(&without, Some(&with), &facts()), removed, "{name} {is_suspended}");
            let kept = verdict(&without, Some(&with), &in_default);
            assert!(
                kept.contains("queue-name must not be empty in namespace with default queue"),
                "{name}: {kept}"
            );
        }
    }
}

#[test]
fn the_priority_class_may_be_changed_and_not_be_removed() {
    let of = |what: &str, value: &str| {
        format!(
            "metadata.labels[kueue.x-k8s.io/priority-class]: Invalid value: \"{value}\": WorkloadPriorityClass {what}"
        )
    };
    for (name, path, spec) in specs() {
        let (plain, one) =
            (job(name, &spec, &[(QUEUE, "lq")]), job(name, &spec, &[(QUEUE, "lq"), (CLASS, "x")]));
        let other = job(name, &spec, &[(QUEUE, "lq"), (CLASS, "y")]);
        for is_suspended in [true, false] {
            let at = |job: &Value| suspended(job, path, is_suspended);
            assert_eq!(verdict(&at(&other), Some(&at(&one)), &facts()), "", "{name}");
            let removed = verdict(&at(&plain), Some(&at(&one)), &facts());
            assert_eq!(removed, of("cannot be removed from a workload", ""), "{name}");
            let added = verdict(&at(&other), Some(&at(&plain)), &facts());
            let expected = if is_suspended {
                String::new()
            } else {
                of("cannot be added to a non-suspended workload", "y")
            };
            assert_eq!(added, expected, "{name}");
        }
    }
}

#[test]
fn new_jobs_are_checked_alike() {
    for (name, _, spec) in specs() {
        let Kind { group, version, takes_prebuilt, takes_elastic, .. } = kind(name);
        let gvk = format!("\"{group}/{version}, Kind={name}\"");
        let with = |labels: &[(&str, &str)]| job(name, &spec, &[&[(QUEUE, "lq")][..], labels].concat());
        assert_eq!(verdict(&with(&[]), None, &facts()), "", "{name}");
        for (seconds, expected) in [
            ("1", ""),
            ("0", "Invalid value: 0: should be greater than 0"),
            ("-5", "Invalid value: -5: should be greater than 0"),
            ("x", "Invalid value: \"x\": strconv.Atoi: parsing \"x\": invalid syntax"),
        ] {
            let found = verdict(&with(&[(MAX_TIME, seconds)]), None, &facts());
            let path = "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: ";
            let expected = if expected.is_empty() { String::new() } else { format!("{path}{expected}") };
            assert_eq!(found, expected, "{name}");
        }
        let prebuilt = verdict(&with(&[(PREBUILT, "w")]), None, &facts());
        let refused = format!(
            "metadata.labels[kueue.x-k8s.io/prebuilt-workload-name]: Forbidden: Is not supported for {gvk}"
        );
        assert_eq!(prebuilt, if *takes_prebuilt { "" } else { &refused }, "{name}");
        let mut elastic = with(&[]);
        elastic["metadata"]["annotations"] = json!({ ELASTIC: "true" });
        let refused = format!(
            "metadata.annotations[kueue.x-k8s.io/elastic-job]: Forbidden: elastic job is not supported for {gvk}"
        );
        let found = verdict(&elastic, None, &facts());
        assert_eq!(found.contains(&refused), !takes_elastic, "{name}: {found}");
        let mut gated = with(&[]);
        gated["metadata"]["annotations"] = json!({ GATES: "a" });
        assert!(verdict(&gated, None, &facts()).starts_with("metadata.annotations["), "{name}");
    }
}

#[test]
fn limits_and_prebuilt_workloads_stay_while_the_job_runs() {
    for (name, path, spec) in specs() {
        let with = |labels: &[(&str, &str)]| job(name, &spec, &[&[(QUEUE, "lq")][..], labels].concat());
        let (plain, limited) = (with(&[]), with(&[(MAX_TIME, "9")]));
        for (was_suspended, is_suspended, is_allowed) in
            [(true, true, true), (true, false, false), (false, true, false), (false, false, false)]
        {
            let (old, new) =
                (suspended(&plain, path, was_suspended), suspended(&limited, path, is_suspended));
            let found = verdict(&new, Some(&old), &facts());
            let expected = "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: \"9\": field is immutable";
            assert_eq!(
                found,
                if is_allowed { "" } else { expected },
                "{name} {was_suspended} {is_suspended}"
            );
        }
        if kind(name).takes_prebuilt {
            let prebuilt = with(&[(PREBUILT, "w")]);
            let at = |job: &Value, is_suspended: bool| suspended(job, path, is_suspended);
            assert_eq!(verdict(&at(&prebuilt, true), Some(&at(&plain, true)), &facts()), "", "{name}");
            let found = verdict(&at(&prebuilt, false), Some(&at(&plain, false)), &facts());
            let expected = "metadata.labels[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: \"w\": field is immutable";
            assert_eq!(found, expected, "{name}");
        }
    }
}
