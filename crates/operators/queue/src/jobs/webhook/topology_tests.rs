//! Topology requests of jobs with several templates: what is said first, and of requests that cannot be read.

use serde_json::{Value, json};

use super::KINDS;
use super::tests::facts;
use crate::settings::Settings;

const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
const SLICE: &str = "kueue.x-k8s.io/podset-slice-required-topology";
const SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
const LAYERS: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
const GROUP: &str = "kueue.x-k8s.io/podset-group-name";

/// What the webhook of a kind says of a job with one pod of the first template and two of the second.
fn denied(kind: &str, first: &Value, second: &Value) -> String {
    let template = |annotations: &Value| json!({ "metadata": { "annotations": annotations }, "spec": {} });
    let role =
        |annotations: &Value, count: i64| json!({ "replicas": count, "template": template(annotations) });
    let cluster = || {
        json!({ "headGroupSpec": { "template": template(first) },
            "workerGroupSpecs": [{ "groupName": "w", "replicas": 2, "template": template(second) }] })
    };
    let replicated = |name: &str, annotations: &Value, count: i64| json!({ "name": name, "replicas": count, "template": { "spec": { "template": template(annotations) } } });
    let spec = match kind {
        "Job" => json!({ "parallelism": 2, "template": template(second) }),
        "JobSet" => json!({ "replicatedJobs": [replicated("a", first, 1), replicated("b", second, 2)] }),
        "PyTorchJob" => {
            json!({ "pytorchReplicaSpecs": { "Master": role(first, 1), "Worker": role(second, 2) } })
        }
        "MPIJob" => json!({ "mpiReplicaSpecs": { "Launcher": role(first, 1), "Worker": role(second, 2) } }),
        "LeaderWorkerSet" => json!({ "leaderWorkerTemplate": { "size": 3, "leaderTemplate": template(first),
            "workerTemplate": template(second) } }),
        "RayJob" => json!({ "shutdownAfterJobFinishes": true, "rayClusterSpec": cluster() }),
        "RayService" => json!({ "rayClusterConfig": cluster() }),
        _ => cluster(),
    };
    let kind = KINDS.into_iter().find(|own| own.name == kind).unwrap();
    let job = json!({ "kind": kind.name, "metadata": { "name": "a", "namespace": "ns",
        "labels": { "kueue.x-k8s.io/queue-name": "lq" } }, "spec": spec });
    (kind.validate)(&job, None, kind, &facts(), &Settings::default()).denials.join("; ")
}

#[test]
fn requests_that_cannot_be_read_are_told_as_go_does_or_by_their_field() {
    let wrong = json!({ UNCONSTRAINED: "maybe" });
    let as_go_does = "strconv.ParseBool: parsing \"maybe\": invalid syntax";
    let by_field =
        |path: &str| format!("{path}[{UNCONSTRAINED}]: Invalid value: \"maybe\": must be a boolean value");
    let table = [
        ("JobSet", as_go_does.to_owned()),
        ("MPIJob", as_go_does.to_owned()),
        ("RayCluster", as_go_does.to_owned()),
        ("RayJob", by_field("spec.rayClusterSpec.workerGroupSpecs[0].template.metadata.annotations")),
        ("RayService", by_field("spec.rayClusterSpec.workerGroupSpecs[0].template.metadata.annotations")),
        ("PyTorchJob", by_field("spec.pytorchReplicaSpecs[Worker].template.metadata.annotations")),
        ("LeaderWorkerSet", by_field("spec.leaderWorkerTemplate.workerTemplate.metadata.annotations")),
        ("Job", by_field("spec.template.metadata.annotations")),
    ];
    for (kind, expected) in table {
        assert_eq!(denied(kind, &json!({}), &wrong), expected, "{kind}");
    }
    let head = denied("RayCluster", &wrong, &json!({}));
    assert_eq!(head, by_field("spec.headGroupSpec.template.metadata.annotations"), "the head comes first");
    for (annotations, expected) in [
        (json!({ REQUIRED: "r", UNCONSTRAINED: "maybe" }), "[spec.replicatedJobs[1]"),
        (json!({ SLICE: "r", SIZE: "x" }), "strconv.ParseInt: parsing \"x\": invalid syntax"),
        (json!({ LAYERS: "[]" }), "topology constraints must contain between 1 and 3 entries: got 0"),
        (
            json!({ LAYERS: "x" }),
            "failed to parse multi-layer topology constraints annotation: invalid character 'x' looking for beginning of value",
        ),
        (
            json!({ LAYERS: "[1]" }),
            "failed to parse multi-layer topology constraints annotation: json: cannot unmarshal number into Go value of type v1beta2.PodsetSliceRequiredTopologyConstraint",
        ),
    ] {
        let found = denied("JobSet", &json!({}), &annotations);
        assert!(found.starts_with(expected), "{annotations}: {found}");
    }
}

#[test]
fn sizes_of_jobs_are_checked_when_nothing_else_is_wrong() {
    let alone = json!({ SIZE: "5" });
    let without = format!("may not be set when '{SLICE}' is not specified");
    let path = format!("spec.template.metadata.annotations[{SIZE}]");
    assert_eq!(denied("Job", &json!({}), &alone), format!("{path}: Forbidden: {without}"));
    let found = denied("JobSet", &json!({}), &alone);
    assert!(
        found.contains(&without) && found.contains("must not be greater than pod set count 2"),
        "{found}"
    );
}

#[test]
fn groups_of_ray_clusters_come_before_what_is_wrong_with_workers() {
    let (head, worker) = (json!({ GROUP: "g", PREFERRED: "r" }), json!({ GROUP: "1", PREFERRED: "r" }));
    let alone = "can only define groups of exactly 2 pod sets, got: 1 pod set(s)";
    for (kind, groups_first) in
        [("RayCluster", true), ("RayJob", true), ("RayService", true), ("JobSet", false)]
    {
        let found = denied(kind, &head, &worker);
        let (group, number) = (found.find(alone).unwrap(), found.find("must not be a number").unwrap());
        assert_eq!(group < number, groups_first, "{kind}: {found}");
    }
}
