use std::collections::BTreeMap;

use quintet_api::kueue::v1beta2::{PodSet, ResourceFlavor, Workload};
use quintet_controller::Action;
use quintet_objects::patch::merge_patch;

use super::*;
use crate::testing::entry;

fn pod(image: &str) -> Value {
    json!({ "metadata": { "labels": { "own": "label" }, "annotations": { "own": "annotation" } },
        "spec": { "containers": [{ "name": "c", "image": image, "newField": 1 }], "nodeSelector": { "own": "node" },
            "tolerations": [{ "key": "own", "operator": "Exists" }] } })
}

#[expect(clippy::needless_pass_by_value, reason = "calls are easier to read")]
fn object<K: JsonKind>(spec: Value) -> Value {
    let mut object = json!({ "apiVersion": format!("{}/{}", K::NAMES.group, K::NAMES.version), "kind": K::NAMES.kind,
        "metadata": { "name": "a", "namespace": "ns" }, "spec": spec });
    set(&mut object, K::SUSPEND, json!(true));
    object
}

fn job_set() -> Value {
    let jobs = |name: &str, replicas: i32, spec: Value| {
        let mut spec = spec;
        spec["template"] = pod(name);
        json!({ "name": name, "replicas": replicas, "template": { "spec": spec } })
    };
    object::<JobSet>(json!({ "replicatedJobs": [
        jobs("driver", 1, json!({})), jobs("workers", 2, json!({ "parallelism": 3, "completions": 2 }))] }))
}

fn replicas(field: &str, roles: &[(&str, i32)]) -> Value {
    let roles: Map<String, Value> = roles
        .iter()
        .map(|(name, count)| ((*name).to_owned(), json!({ "replicas": count, "template": pod(name) })))
        .collect();
    json!({ field: roles, "runPolicy": {} })
}

fn cluster() -> Value {
    json!({ "headGroupSpec": { "template": pod("head") }, "workerGroupSpecs": [
        { "groupName": "Small", "template": pod("small") },
        { "groupName": "slices", "replicas": 2, "numOfHosts": 4, "template": pod("slices") }] })
}

fn ray_job() -> Value {
    object::<RayJob>(json!({ "submissionMode": "K8sJobMode", "rayClusterSpec": cluster(),
        "submitterPodTemplate": pod("submitter"), "shutdownAfterJobFinishes": true }))
}

fn app_wrapper() -> Value {
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "spec": { "replicas": 2, "template": pod("a:1") } });
    let other = json!({ "apiVersion": "example.com/v1", "kind": "Other", "pods": pod("b:1") });
    object::<AppWrapper>(json!({ "components": [{ "template": deployment },
        { "template": other, "podSets": [{ "path": "template.pods", "replicas": 3 }] }] }))
}

fn spark_application() -> Value {
    object::<SparkApplication>(json!({ "mode": "cluster",
        "driver": { "coreRequest": "500m", "memory": "512m", "labels": { "own": "label" } },
        "executor": { "instances": 3, "memory": "1g", "nodeSelector": { "own": "node" },
            "gpu": { "name": "example.com/gpu", "quantity": 2 } } }))
}

fn train_job() -> Value {
    let mut job = object::<TrainJob>(json!({ "trainer": { "image": "mine", "numNodes": 4,
            "resourcesPerNode": { "requests": { "cpu": "2" } }, "env": [{ "name": "A", "value": "1" }] },
        "runtimeRef": { "kind": "TrainingRuntime", "name": "rt" } }));
    TrainJob::default(&mut job, &Settings::default());
    job
}

fn runtime() -> Value {
    let job = |name: &str, step: &str| {
        json!({ "name": name, "template": { "metadata": { "labels": { "trainer.kubeflow.org/trainjob-ancestor-step": step } },
            "spec": { "template": { "spec": { "containers": [{ "name": name, "image": "runtime" }] } } } } })
    };
    json!({ "spec": { "mlPolicy": { "numNodes": 1 }, "template": { "spec": { "replicatedJobs": [
        job("dataset-initializer", "dataset-initializer"), job("node", "trainer")] } } } })
}

fn sets_of<K: JsonKind>(job: &Value) -> Vec<PodSet> {
    K::pod_sets(job, &[runtime()], &Gates::default()).unwrap()
}

fn counts<K: JsonKind>(job: &Value) -> Vec<(String, i32)> {
    sets_of::<K>(job).into_iter().map(|set| (set.name.unwrap(), set.count.unwrap())).collect()
}

fn expect_counts<K: JsonKind>(job: &Value, expected: &[(&str, i32)]) {
    let expected: Vec<(String, i32)> =
        expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    assert_eq!(counts::<K>(job), expected, "{}", K::NAMES.kind);
}

#[test]
fn every_kind_has_the_pod_sets_of_its_roles() {
    expect_counts::<JobSet>(&job_set(), &[("driver", 1), ("workers", 4)]);
    let of = |field, roles: &[(&str, i32)]| replicas(field, roles);
    let two = [("Worker", 2), ("Master", 1)];
    expect_counts::<PyTorchJob>(
        &object::<PyTorchJob>(of("pytorchReplicaSpecs", &two)),
        &[("master", 1), ("worker", 2)],
    );
    expect_counts::<XgBoostJob>(
        &object::<XgBoostJob>(of("xgbReplicaSpecs", &two)),
        &[("master", 1), ("worker", 2)],
    );
    expect_counts::<PaddleJob>(&object::<PaddleJob>(of("paddleReplicaSpecs", &two[..1])), &[("worker", 2)]);
    expect_counts::<JaxJob>(&object::<JaxJob>(of("jaxReplicaSpecs", &two)), &[("worker", 2)]);
    let all = [("Evaluator", 5), ("Worker", 4), ("PS", 3), ("Master", 2), ("Chief", 1)];
    expect_counts::<TfJob>(
        &object::<TfJob>(of("tfReplicaSpecs", &all)),
        &[("chief", 1), ("master", 2), ("ps", 3), ("worker", 4), ("evaluator", 5)],
    );
    let mpi = [("Worker", 2), ("Launcher", 1)];
    expect_counts::<MpiJob>(
        &object::<MpiJob>(of("mpiReplicaSpecs", &mpi)),
        &[("launcher", 1), ("worker", 2)],
    );
    let ray = [("head", 1), ("small", 1), ("slices", 8)];
    expect_counts::<RayCluster>(&object::<RayCluster>(cluster()), &ray);
    expect_counts::<RayService>(&object::<RayService>(json!({ "rayClusterConfig": cluster() })), &ray);
    expect_counts::<RayJob>(&ray_job(), &[&ray[..], &[("submitter", 1)]].concat());
    expect_counts::<AppWrapper>(&app_wrapper(), &[("a-0", 2), ("a-1", 3)]);
    expect_counts::<SparkApplication>(&spark_application(), &[("driver", 1), ("executor", 3)]);
    expect_counts::<TrainJob>(&train_job(), &[("dataset-initializer", 1), ("node", 4)]);
}

/// What pod sets of a Workload with these sets are assigned.
fn infos(sets: &[PodSet]) -> Vec<PodSetInfo> {
    let assignments: Vec<Value> = sets
        .iter()
        .map(|set| json!({ "name": set.name, "count": set.count, "flavors": { "cpu": "f" } }))
        .collect();
    let mut workload: Workload = serde_json::from_value(json!({ "metadata": { "name": "w" },
        "spec": { "queueName": "lq" },
        "status": { "admission": { "clusterQueue": "cq", "podSetAssignments": assignments } } }))
    .unwrap();
    workload.spec.pod_sets = Some(sets.to_vec());
    let flavor = json!({ "metadata": { "name": "f" }, "spec": { "nodeLabels": { "disk": "ssd" },
        "tolerations": [{ "key": "spot", "operator": "Exists" }] } });
    let flavor: ResourceFlavor = serde_json::from_value(flavor).unwrap();
    let flavors = BTreeMap::from([("f".to_owned(), flavor)]);
    pod_set_info::of_workload(&workload, &flavors, &Settings::default()).unwrap()
}

fn apply(object: &mut Value, steps: &[Step]) {
    for step in steps {
        let Action::Patch { patch, .. } = &step.action else { panic!("{step:?}") };
        let mut patch = patch.clone();
        patch.as_object_mut().unwrap().remove("metadata");
        merge_patch(object, &patch);
    }
}

/// Starts and stops a job, and checks that it runs in between as `is_started` says.
fn round_trip<K: JsonKind>(original: &Value, is_started: fn(&Value) -> bool) {
    let sets = sets_of::<K>(original);
    let mut object = original.clone();
    let started = JsonJob::<K>::start_steps(&entry(&object), &infos(&sets)).unwrap();
    apply(&mut object, &started);
    assert!(!is_suspended::<K>(&object), "{object:#}");
    assert!(is_started(&object), "{object:#}");
    assert!(object.to_string().contains("\"disk\":\"ssd\""), "{object:#}");
    let stop = Stop { reason: StopReason::NotAdmitted, note: "", now: jiff::Timestamp::UNIX_EPOCH };
    for _ in 0..2 {
        let job = entry::<JsonJob<K>>(&object);
        if !job.object.is_stopped(&stop.reason) {
            apply(&mut object, &JsonJob::<K>::stop(&job, &sets, &stop));
        }
    }
    assert_eq!(object["spec"], original["spec"], "{}", K::NAMES.kind);
}

#[test]
fn a_stop_restores_exactly_what_a_start_has_changed() {
    fn is_labelled(template: &Value) -> bool {
        template["metadata"]["labels"]["kueue.x-k8s.io/cluster-queue-name"] == "cq"
            && template["metadata"]["labels"]["own"] == "label"
            && template["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == "w"
            && template["spec"]["tolerations"].as_array().is_some_and(|all| all.len() == 2)
            && template["spec"]["containers"][0]["newField"] == 1
    }
    round_trip::<JobSet>(&job_set(), |job| {
        is_labelled(&job["spec"]["replicatedJobs"][1]["template"]["spec"]["template"])
    });
    let roles = [("Master", 1), ("Worker", 2)];
    round_trip::<PyTorchJob>(&object::<PyTorchJob>(replicas("pytorchReplicaSpecs", &roles)), |job| {
        is_labelled(&job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"])
    });
    let roles = [("Launcher", 1), ("Worker", 2)];
    round_trip::<MpiJob>(&object::<MpiJob>(replicas("mpiReplicaSpecs", &roles)), |job| {
        is_labelled(&job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"])
    });
    round_trip::<RayCluster>(&object::<RayCluster>(cluster()), |job| {
        is_labelled(&job["spec"]["workerGroupSpecs"][1]["template"])
    });
    round_trip::<RayService>(&object::<RayService>(json!({ "rayClusterConfig": cluster() })), |job| {
        is_labelled(&job["spec"]["rayClusterConfig"]["headGroupSpec"]["template"])
    });
    round_trip::<RayJob>(&ray_job(), |job| is_labelled(&job["spec"]["submitterPodTemplate"]));
    round_trip::<AppWrapper>(&app_wrapper(), |job| {
        job["spec"]["components"][1]["podSetInfos"][0]["labels"]["kueue.x-k8s.io/podset"] == "a-1"
    });
    round_trip::<SparkApplication>(&spark_application(), |job| {
        job["spec"]["driver"]["labels"]["kueue.x-k8s.io/podset"] == "driver"
            && job["spec"]["executor"]["nodeSelector"] == json!({ "own": "node", "disk": "ssd" })
    });
    round_trip::<TrainJob>(&train_job(), |job| {
        let patch =
            &job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][1];
        patch["name"] == "node"
            && patch["template"]["spec"]["template"]["spec"]["nodeSelector"]["disk"] == "ssd"
    });
}

#[test]
fn a_train_job_is_changed_while_it_is_suspended_and_has_no_pods() {
    let mut job = train_job();
    let steps = JsonJob::<TrainJob>::start_steps(&entry(&job), &infos(&sets_of::<TrainJob>(&job))).unwrap();
    assert_eq!(steps.len(), 2, "patches first, then it is resumed");
    apply(&mut job, &steps);
    let stop = Stop { reason: StopReason::NotAdmitted, note: "", now: jiff::Timestamp::UNIX_EPOCH };
    let suspend = JsonJob::<TrainJob>::stop(&entry(&job), &[], &stop);
    apply(&mut job, &suspend);
    assert!(is_suspended::<TrainJob>(&job) && !TrainJob::is_restored(&job));
    job["status"] = json!({ "jobsStatus": [{ "name": "node", "active": 1 }] });
    assert!(entry::<JsonJob<TrainJob>>(&job).object.is_stopped(&stop.reason), "its pods end first");
    job["status"] = json!({});
    assert!(!entry::<JsonJob<TrainJob>>(&job).object.is_stopped(&stop.reason));
}

#[test]
fn a_conflict_with_a_template_is_final() {
    let mut job = job_set();
    job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"] =
        json!({ "disk": "hdd" });
    let sets = sets_of::<JobSet>(&job);
    let error = JsonJob::<JobSet>::start_steps(&entry(&job), &infos(&sets)).unwrap_err();
    assert!(error.contains("conflict for key=disk"), "{error}");
    let error = JobSet::inject(&mut job, &[]).unwrap_err();
    assert_eq!(error, "invalid podset infos: expecting 2 podset, got 0");
}

#[expect(clippy::needless_pass_by_value, reason = "calls are easier to read")]
/// A kind, its status, and whether it is active, ready, and how it ended.
fn expect_state<K: JsonKind>(
    spec: &Value,
    status: Value,
    is_active: bool,
    is_ready: bool,
    end: Option<(bool, &str)>,
) {
    let mut job = object::<K>(spec.clone());
    job["status"] = status.clone();
    assert_eq!(K::is_active(&job), is_active, "{} {status}", K::NAMES.kind);
    assert_eq!(K::is_ready(&job), is_ready, "{} {status}", K::NAMES.kind);
    let found = K::end(&job);
    let found = found.as_ref().map(|end| (end.succeeded, end.message.as_str()));
    assert_eq!(found, end, "{} {status}", K::NAMES.kind);
}

fn condition(kind: &str) -> Value {
    json!({ "conditions": [{ "type": kind, "status": "True", "message": "m" }] })
}

#[test]
fn every_kind_says_whether_it_runs_and_how_it_ended() {
    let spec = job_set()["spec"].clone();
    let jobs = |active: i32, ready: i32| {
        json!({ "replicatedJobsStatus": [{ "name": "driver", "active": active, "ready": 1 },
            { "name": "workers", "ready": ready, "succeeded": 1 }] })
    };
    expect_state::<JobSet>(&spec, jobs(1, 1), true, true, None);
    expect_state::<JobSet>(&spec, jobs(0, 0), false, false, None);
    expect_state::<JobSet>(&spec, condition("Completed"), false, false, Some((true, "m")));
    expect_state::<JobSet>(&spec, condition("Failed"), false, false, Some((false, "m")));

    let none = json!({});
    let active = json!({ "replicaStatuses": { "Worker": { "active": 1 } } });
    expect_state::<PyTorchJob>(&none, active.clone(), true, false, None);
    expect_state::<TfJob>(&none, condition("Running"), false, true, None);
    expect_state::<MpiJob>(&none, active, true, false, None);
    expect_state::<MpiJob>(&none, condition("Succeeded"), false, false, Some((true, "m")));
    expect_state::<XgBoostJob>(&none, condition("Failed"), false, false, Some((false, "m")));

    expect_state::<RayCluster>(&none, json!({ "state": "ready" }), true, true, None);
    expect_state::<RayCluster>(&none, json!({ "state": "failed" }), false, false, None);
    let ready = json!({ "jobDeploymentStatus": "Running", "rayClusterStatus": { "state": "ready" } });
    expect_state::<RayJob>(&none, ready, true, true, None);
    expect_state::<RayJob>(&none, json!({ "jobDeploymentStatus": "Suspended" }), false, false, None);
    let complete = json!({ "jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "m" });
    expect_state::<RayJob>(&none, complete, true, false, Some((true, "m")));
    let failed = json!({ "jobDeploymentStatus": "Failed", "jobStatus": "STOPPED", "message": "m" });
    expect_state::<RayJob>(&none, failed, true, false, Some((false, "m")));
    expect_state::<RayService>(&none, condition("Ready"), true, true, None);

    expect_state::<AppWrapper>(&none, condition("QuotaReserved"), true, false, None);
    expect_state::<AppWrapper>(&none, condition("PodsReady"), false, true, None);
    let mut deleting = condition("ResourcesDeployed");
    deleting["phase"] = "Failed".into();
    expect_state::<AppWrapper>(&none, deleting, false, false, None);
    expect_state::<AppWrapper>(
        &none,
        json!({ "phase": "Failed" }),
        false,
        false,
        Some((false, "AppWrapper failed")),
    );
    let end = Some((true, "AppWrapper finished successfully"));
    expect_state::<AppWrapper>(&none, json!({ "phase": "Succeeded" }), false, false, end);

    let spec = spark_application()["spec"].clone();
    let running = |executors: i32| {
        let states: Map<String, Value> =
            (0..executors).map(|one| (one.to_string(), json!("RUNNING"))).collect();
        json!({ "applicationState": { "state": "RUNNING" }, "executorState": states })
    };
    expect_state::<SparkApplication>(&spec, running(2), true, false, None);
    expect_state::<SparkApplication>(&spec, running(3), true, true, None);
    let failed = json!({ "applicationState": { "state": "SUBMISSION_FAILED", "errorMessage": "m" } });
    expect_state::<SparkApplication>(&spec, failed, false, false, Some((false, "m")));

    let jobs = |ready: i32| json!({ "jobsStatus": [{ "name": "node", "active": 1, "ready": ready }] });
    expect_state::<TrainJob>(&none, jobs(0), true, false, None);
    expect_state::<TrainJob>(&none, jobs(1), true, true, None);
    expect_state::<TrainJob>(&none, condition("Complete"), false, false, Some((true, "m")));
}

#[test]
fn pods_of_jobs_that_have_succeeded_are_reclaimable() {
    let mut job = job_set();
    job["status"] = json!({ "replicatedJobsStatus": [{ "name": "driver", "succeeded": 0 },
        { "name": "workers", "succeeded": 1 }] });
    let found = JobSet::reclaimable_pods(&job, &[]);
    assert_eq!((found.len(), found[0].name.as_str(), found[0].count), (1, "workers", 2));
    let mut job = train_job();
    job["status"] = json!({ "jobsStatus": [{ "name": "dataset-initializer", "succeeded": 1 },
        { "name": "other", "succeeded": 2 }] });
    let mut runtime = runtime();
    let other = json!({ "name": "other", "replicas": 3,
        "template": { "spec": { "parallelism": 4, "completions": 8, "template": { "spec": {} } } } });
    runtime["spec"]["template"]["spec"]["replicatedJobs"].as_array_mut().unwrap().push(other);
    let found = TrainJob::reclaimable_pods(&job, &[runtime]);
    let found: Vec<(&str, i32)> = found.iter().map(|own| (own.name.as_str(), own.count)).collect();
    assert_eq!(found, [("dataset-initializer", 1), ("other", 8)]);
}

#[test]
fn jobs_of_a_runtime_without_pods_have_one() {
    let mut runtime = runtime();
    let empty = json!({ "name": "empty",
        "template": { "spec": { "parallelism": 0, "completions": 0, "template": { "spec": {} } } } });
    runtime["spec"]["template"]["spec"]["replicatedJobs"].as_array_mut().unwrap().push(empty);
    let sets = TrainJob::pod_sets(&train_job(), &[runtime], &Gates::default()).unwrap();
    assert_eq!(sets.last().unwrap().count, Some(1));
}

#[test]
fn ray_heads_have_what_kuberay_adds_to_them() {
    let requests = |job: &Value, container: usize| {
        let head = RayCluster::pod_sets(job, &[], &Gates::default()).unwrap().remove(0);
        let container = head.template.spec.unwrap().containers.remove(container);
        serde_json::to_value(container).unwrap()
    };
    let mut job = object::<RayCluster>(cluster());
    job["spec"]["enableInTreeAutoscaling"] = json!(true);
    let autoscaler = requests(&job, 1);
    assert_eq!(
        (&autoscaler["name"], &autoscaler["resources"]["requests"]["cpu"]),
        (&json!("autoscaler"), &json!("500m"))
    );
    job["spec"]["autoscalerOptions"] = json!({ "resources": { "requests": { "cpu": "1" } } });
    assert_eq!(requests(&job, 1)["resources"], json!({ "requests": { "cpu": "1" } }));
    job["spec"]["gcsFaultToleranceOptions"] = json!({ "redisAddress": "redis" });
    assert_eq!(requests(&job, 0)["resources"]["requests"], json!({ "cpu": "200m", "memory": "256Mi" }));
    let container = job.pointer_mut("/spec/headGroupSpec/template/spec/containers/0").unwrap();
    container["resources"] = json!({ "requests": { "cpu": "4" } });
    assert_eq!(requests(&job, 0)["resources"]["requests"], json!({ "cpu": "4", "memory": "256Mi" }));
}

#[test]
fn a_ray_job_without_a_submitter_template_gets_that_of_kuberay() {
    let mut job = ray_job();
    job["spec"]["submitterPodTemplate"].take();
    let sets = sets_of::<RayJob>(&job);
    RayJob::inject(&mut job, &infos(&sets)).unwrap();
    let template = &job["spec"]["submitterPodTemplate"];
    assert_eq!(template["spec"]["containers"][0]["image"], "head");
    assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/podset"], "submitter");
    assert_eq!(counts::<RayJob>(&job), counts::<RayJob>(&ray_job()), "it is still the same job");
    job["spec"]["submissionMode"] = "SidecarMode".into();
    let head = sets_of::<RayJob>(&job).remove(0);
    assert_eq!(head.template.spec.unwrap().containers.last().unwrap().name, "ray-job-submitter");
    job["spec"] = json!({ "clusterSelector": { "a": "b" } });
    assert!(!RayJob::is_managed(&job));
}

#[test]
fn a_runtime_is_rendered_with_what_its_train_job_asks_for() {
    let mut job = train_job();
    job["spec"]["initializer"] =
        json!({ "dataset": { "storageUri": "hf://data", "secretRef": { "name": "s" } } });
    job["spec"]["runtimePatches"].as_array_mut().unwrap().push(json!({ "manager": "user",
        "trainingRuntimeSpec": { "template": { "spec": { "replicatedJobs": [{ "name": "node", "template": { "spec": {
            "template": { "spec": { "nodeSelector": { "a": "b" }, "containers": [
                { "name": "node", "env": [{ "name": "B", "value": "2" }] }] } } } } }] } } } }));
    let sets = serde_json::to_value(sets_of::<TrainJob>(&job)).unwrap();
    let dataset = &sets[0]["template"]["spec"]["containers"][0];
    assert_eq!(dataset["env"], json!([{ "name": "STORAGE_URI", "value": "hf://data" }]));
    assert_eq!(dataset["envFrom"][0]["secretRef"]["name"], "s");
    let node = &sets[1]["template"]["spec"];
    assert_eq!(node["nodeSelector"], json!({ "a": "b" }));
    let container = &node["containers"][0];
    assert_eq!(
        (&container["image"], &container["resources"]["requests"]["cpu"]),
        (&json!("mine"), &json!("2"))
    );
    assert_eq!(container["env"], json!([{ "name": "B", "value": "2" }, { "name": "A", "value": "1" }]));
    let error = TrainJob::pod_sets(&job, &[], &Gates::default()).unwrap_err();
    assert_eq!(error, "runtime 'rt' not found");
}

#[test]
fn a_spark_pod_is_made_of_the_fields_of_its_role() {
    let sets = serde_json::to_value(sets_of::<SparkApplication>(&spark_application())).unwrap();
    let of = |set: usize| &sets[set]["template"]["spec"]["containers"][0];
    assert_eq!(of(0)["resources"], json!({ "requests": { "cpu": "500m", "memory": "512Mi" } }));
    let executor = json!({ "limits": { "example.com/gpu": "2" }, "requests": { "memory": "1Gi" } });
    assert_eq!(of(1)["resources"], executor);
    assert_eq!(sets[1]["template"]["spec"]["nodeSelector"], json!({ "own": "node" }));
}

#[test]
fn templates_of_app_wrappers_are_defaulted() {
    let sets = serde_json::to_value(sets_of::<AppWrapper>(&app_wrapper())).unwrap();
    let spec = &sets[0]["template"]["spec"];
    assert_eq!(
        (&spec["restartPolicy"], &spec["containers"][0]["imagePullPolicy"]),
        (&json!("Always"), &json!("IfNotPresent"))
    );
}
