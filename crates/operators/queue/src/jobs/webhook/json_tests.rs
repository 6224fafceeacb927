use serde_json::{Value, json};

use super::tests::facts;
use super::{Facts, KINDS, Kind, SPARK};
use crate::settings::Settings;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const GROUP: &str = "kueue.x-k8s.io/podset-group-name";
const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";

fn kind(name: &str) -> &'static Kind {
    KINDS.into_iter().chain([SPARK]).find(|kind| kind.name == name).unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "calls are easier to read")]
fn job(name: &str, spec: Value) -> Value {
    json!({ "kind": name, "metadata": { "name": "a", "namespace": "ns", "labels": { QUEUE: "lq" } }, "spec": spec })
}

fn defaulted(name: &str, spec: Value) -> Value {
    let mut job = job(name, spec);
    (kind(name).default)(&mut job, &facts(), &Settings::default()).unwrap();
    job
}

/// What is said of a new job, or of a change.
fn denied_with(job: &Value, old: Option<&Value>, facts: &Facts) -> String {
    let kind = kind(job["kind"].as_str().unwrap());
    let verdict = (kind.validate)(job, old, kind, facts, &Settings::default());
    verdict.denials.join("; ")
}

fn denied(job: &Value) -> String {
    denied_with(job, None, &facts())
}

fn changed(old: &Value, new: &Value) -> String {
    denied_with(new, Some(old), &facts())
}

#[test]
fn every_kind_is_suspended_at_its_own_field() {
    let paths = [
        ("AppWrapper", "/spec/suspend"),
        ("JAXJob", "/spec/runPolicy/suspend"),
        ("JobSet", "/spec/suspend"),
        ("MPIJob", "/spec/runPolicy/suspend"),
        ("PaddleJob", "/spec/runPolicy/suspend"),
        ("PyTorchJob", "/spec/runPolicy/suspend"),
        ("RayCluster", "/spec/suspend"),
        ("RayJob", "/spec/suspend"),
        ("RayService", "/spec/rayClusterConfig/suspend"),
        ("SparkApplication", "/spec/suspend"),
        ("TFJob", "/spec/runPolicy/suspend"),
        ("TrainJob", "/spec/suspend"),
        ("XGBoostJob", "/spec/runPolicy/suspend"),
    ];
    for (name, path) in paths {
        let job = defaulted(name, json!({}));
        assert_eq!(job.pointer(path), Some(&json!(true)), "{name}: {job}");
        assert!((kind(name).is_suspended)(&job), "{name}");
    }
}

#[test]
fn names_and_paths_are_those_of_upstream() {
    let of = |name: &str| {
        let kind = kind(name);
        (kind.mutating, kind.validate_path, kind.resource)
    };
    assert_eq!(of("JobSet"), ("mjobset.kb.io", "/validate-jobset-x-k8s-io-v1alpha2-jobset", "jobsets"));
    assert_eq!(of("MPIJob"), ("mmpijob.kb.io", "/validate-kubeflow-org-v2beta1-mpijob", "mpijobs"));
    assert_eq!(
        of("AppWrapper"),
        ("mappwrapper.kb.io", "/validate-workload-codeflare-dev-v1beta2-appwrapper", "appwrappers")
    );
    assert_eq!(of("TrainJob").1, "/validate-trainer-kubeflow-org-v1alpha1-trainjob");
    assert_eq!(of("SparkApplication").1, "/validate-sparkoperator-k8s-io-v1beta2-sparkapplication");
}

#[test]
fn a_launcher_that_works_is_the_first_worker() {
    let template = |annotations: Value| json!({ "template": { "metadata": { "annotations": annotations } } });
    let offset = |launcher: Value, is_worker: bool| {
        let job = defaulted(
            "MPIJob",
            json!({ "runLauncherAsWorker": is_worker,
            "mpiReplicaSpecs": { "Launcher": launcher, "Worker": template(json!({})) } }),
        );
        job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/pod-index-offset"]
            .clone()
    };
    assert_eq!(offset(template(json!({})), true), "1");
    assert_eq!(offset(template(json!({})), false), Value::Null);
    assert_eq!(offset(template(json!({ GROUP: "g" })), true), Value::Null);
}

#[test]
fn elastic_ray_clusters_are_gated() {
    let mut job = job(
        "RayCluster",
        json!({ "headGroupSpec": { "template": { "spec": {} } }, "workerGroupSpecs": [
        { "groupName": "a", "template": { "spec": {} } }], "enableInTreeAutoscaling": true }),
    );
    job["metadata"]["annotations"] = json!({ ELASTIC: "true" });
    assert!(denied(&job).contains("spec.headGroupSpec.template.spec.schedulingGates"), "{}", denied(&job));
    (kind("RayCluster").default)(&mut job, &facts(), &Settings::default()).unwrap();
    assert_eq!(job["spec"]["workerGroupSpecs"][0]["template"]["spec"]["schedulingGates"][0]["name"], ELASTIC);
    assert_eq!(denied(&job), "");
    job["metadata"]["annotations"] = json!({});
    assert!(
        denied(&job)
            .starts_with("spec.enableInTreeAutoscaling: Invalid value: true: a kueue-managed RayCluster")
    );
    job["metadata"]["labels"] = json!({});
    assert_eq!(denied(&job), "", "it is not managed");
}

#[test]
fn clusters_have_as_many_groups_as_a_workload_has_pod_sets() {
    let groups =
        |count: usize| -> Value { (0..count).map(|one| json!({ "groupName": format!("g{one}") })).collect() };
    let of = |count| denied(&job("RayCluster", json!({ "workerGroupSpecs": groups(count) })));
    assert_eq!(of(17), "");
    assert_eq!(of(18), "spec.workerGroupSpecs: Too many: 19: must have at most 18 items");
    let head = json!({ "rayClusterConfig": { "workerGroupSpecs": [{ "groupName": "head" }] } });
    assert_eq!(
        denied(&job("RayService", head)),
        "spec.rayClusterSpec.workerGroupSpecs[0].groupName: Forbidden: \"head\" is reserved for the head group"
    );
}

#[test]
fn a_ray_job_brings_its_cluster_and_removes_it() {
    let cluster = json!({ "headGroupSpec": { "template": {} } });
    let of = |spec: Value| denied(&job("RayJob", spec));
    assert_eq!(of(json!({ "rayClusterSpec": cluster, "shutdownAfterJobFinishes": true })), "");
    assert_eq!(
        of(json!({ "rayClusterSpec": cluster })),
        "spec.shutdownAfterJobFinishes: Invalid value: false: a kueue managed job should delete the cluster after finishing"
    );
    assert!(of(json!({})).starts_with("spec.rayClusterSpec: Required value"));
    assert_eq!(of(json!({ "clusterSelector": { "a": "b" } })), "");
    let both = of(json!({ "rayClusterSpec": cluster, "clusterSelector": { "a": "b" } }));
    assert!(both.ends_with("a kueue managed job should not use an existing cluster"), "{both}");
}

#[test]
fn pod_sets_of_a_group_are_placed_alike() {
    let role = |replicas: i32, annotations: Value| json!({ "replicas": replicas, "template": { "metadata": { "annotations": annotations } } });
    let of = |launcher: Value, worker: Value| {
        denied(&job("MPIJob", json!({ "mpiReplicaSpecs": { "Launcher": launcher, "Worker": worker } })))
    };
    let group = |level: &str| json!({ GROUP: "g", REQUIRED: level });
    assert_eq!(of(role(1, group("rack")), role(2, group("rack"))), "");
    let path = |role: &str| format!("spec.mpiReplicaSpecs[{role}].template.metadata.annotations");
    assert_eq!(
        of(role(1, json!({})), role(2, group("rack"))),
        format!(
            "{}[{GROUP}]: Invalid value: \"g\": can only define groups of exactly 2 pod sets, got: 1 pod set(s)",
            path("Worker")
        )
    );
    assert!(
        of(role(2, group("rack")), role(2, group("rack")))
            .contains("at least one pod set has only 1 replica")
    );
    let differs = of(role(1, group("rack")), role(2, group("block")));
    assert!(differs.starts_with(&format!("[{}: Invalid value: must specify", path("Launcher"))), "{differs}");
}

#[test]
fn topology_requests_are_checked_where_the_templates_are() {
    let template = json!({ "metadata": { "annotations": { "kueue.x-k8s.io/podset-slice-required-topology": "rack",
        "kueue.x-k8s.io/podset-slice-size": "9" } } });
    let too_large = "Invalid value: \"9\": must not be greater than pod set count";
    let jobs = json!({ "replicatedJobs": [{ "name": "a", "replicas": 2, "template": { "spec": { "parallelism": 3,
        "template": template } } }] });
    assert_eq!(
        denied(&job("JobSet", jobs)),
        format!(
            "spec.replicatedJobs[0].template.spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]: {too_large} 6"
        )
    );
    let roles = json!({ "pytorchReplicaSpecs": { "Worker": { "replicas": 2, "template": template } } });
    assert_eq!(
        denied(&job("PyTorchJob", roles)),
        format!(
            "spec.pytorchReplicaSpecs[Worker].template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]: {too_large} 2"
        )
    );
    let runtime = json!({ "spec": { "template": { "spec": { "replicatedJobs": [{ "name": "node",
        "template": { "spec": { "template": template } } }] } } } });
    let train_job = job("TrainJob", json!({ "runtimeRef": { "name": "rt" } }));
    let found = denied_with(&train_job, None, &Facts { related: vec![runtime], ..facts() });
    assert!(found.starts_with("job[node].annotations[kueue.x-k8s.io/podset-slice-size]: "), "{found}");
    assert!(found.ends_with("annotations for the corresponding Job"), "{found}");
    assert_eq!(denied(&train_job), "runtime 'rt' not found");
}

#[test]
fn what_may_not_change_while_a_job_runs() {
    let with = |name: &str, queue: Option<&str>, is_suspended: bool| {
        let mut job = job(name, json!({ "suspend": is_suspended }));
        job["metadata"]["labels"] = queue.map_or_else(|| json!({}), |queue| json!({ QUEUE: queue }));
        job
    };
    let immutable = format!("metadata.labels[{QUEUE}]: Invalid value: \"other\": field is immutable");
    for name in ["AppWrapper", "JobSet", "RayCluster"] {
        let (old, new) = (with(name, Some("lq"), false), with(name, Some("other"), false));
        assert_eq!(changed(&old, &new), immutable, "{name}");
        assert_eq!(changed(&old, &with(name, Some("other"), true)), "", "{name}");
    }
    let dropped = changed(&with("RayCluster", Some("lq"), false), &with("RayCluster", None, false));
    assert!(dropped.contains("field is immutable"), "it was managed: {dropped}");
    assert_eq!(changed(&with("RayCluster", None, false), &with("RayCluster", None, true)), "");
    let default = Facts { has_default_queue: true, ..facts() };
    let found = denied_with(&with("JobSet", None, true), Some(&with("JobSet", Some("lq"), true)), &default);
    assert_eq!(
        found,
        format!(
            "metadata.labels[{QUEUE}]: Invalid value: \"\": queue-name must not be empty in namespace with default queue"
        )
    );
}

#[test]
fn what_a_kind_does_not_support_is_refused() {
    let annotated = |name: &str, key: &str, value: &str| {
        let mut job = job(name, json!({ "mode": "cluster" }));
        job["metadata"]["annotations"] = json!({ key: value });
        denied(&job)
    };
    let prebuilt = "kueue.x-k8s.io/prebuilt-workload-name";
    assert_eq!(
        annotated("JAXJob", prebuilt, "w"),
        format!(
            "metadata.annotations[{prebuilt}]: Forbidden: Is not supported for \"kubeflow.org/v1, Kind=JAXJob\""
        )
    );
    assert_eq!(annotated("TFJob", prebuilt, "w"), "");
    assert_eq!(
        annotated("JobSet", ELASTIC, "true"),
        format!(
            "metadata.annotations[{ELASTIC}]: Forbidden: elastic job is not supported for \"jobset.x-k8s.io/v1alpha2, Kind=JobSet\""
        )
    );
    let spark =
        job("SparkApplication", json!({ "mode": "client", "dynamicAllocation": { "enabled": true } }));
    let found = denied(&spark);
    assert!(found.starts_with("[spec.mode: Invalid value: \"client\": only Cluster mode"), "{found}");
    assert!(found.contains("spec.dynamicAllocation.enabled: Invalid value: true"), "{found}");
}

#[test]
fn pods_of_leader_worker_sets_wait_in_their_place() {
    let template = |annotations: Value| json!({ "metadata": { "annotations": annotations }, "spec": { "containers": [] } });
    let set = defaulted(
        "LeaderWorkerSet",
        json!({ "leaderWorkerTemplate": { "size": 3,
        "leaderTemplate": template(json!({})), "workerTemplate": template(json!({})) } }),
    );
    let templates = &set["spec"]["leaderWorkerTemplate"];
    let worker = &templates["workerTemplate"]["metadata"];
    assert_eq!(worker["labels"], json!({ QUEUE: "lq" }));
    assert_eq!(worker["annotations"]["kueue.x-k8s.io/pod-index-offset"], "1");
    let leader = &templates["leaderTemplate"]["metadata"]["annotations"];
    assert_eq!(leader["kueue.x-k8s.io/pod-group-serving"], "true");
    assert_eq!(leader["kueue.x-k8s.io/pod-index-offset"], Value::Null);
    let mut grown = set.clone();
    grown["spec"]["leaderWorkerTemplate"]["size"] = json!(4);
    assert_eq!(changed(&set, &grown), "spec.leaderWorkerTemplate.size: Invalid value: 4: field is immutable");
    let mut many = set.clone();
    many["spec"]["replicas"] = json!(1_000_001);
    assert!(denied(&many).contains("must be <= 1000000, got 1000001"), "{}", denied(&many));
}
