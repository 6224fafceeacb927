//! AppWrappers in queues with real processes.

use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::queue::{
    API, QUEUE_NAME, condition, is_complete, make_queue, queued_job, waits_for_quota, workload,
};
use crate::support::{Platform, eventually, resource};

const WRAPPED: (&str, &str, &str) = ("workload.codeflare.dev/v1beta2", "AppWrapper", "wrapped");
/// Which AppWrapper an object belongs to.
const LABEL: &str = "workload.codeflare.dev/appwrapper=wrapped";

/// An AppWrapper of these objects in a queue.
fn wrapped(queue: &str, objects: &[Value]) -> Value {
    let components: Vec<Value> = objects.iter().map(|template| json!({ "template": template })).collect();
    json!({ "apiVersion": WRAPPED.0, "kind": WRAPPED.1,
        "metadata": { "name": WRAPPED.2, "labels": { QUEUE_NAME: queue } }, "spec": { "components": components } })
}

/// A Job that no queue holds back by itself.
fn plain_job(name: &str, command: &str) -> Value {
    let mut job = queued_job(name, "", command);
    job["metadata"]["labels"] = json!({});
    job
}

/// Applies the AppWrapper while another Job uses the quota of its queue, and waits until that has ended.
async fn is_admitted_after_another_job(platform: &Platform, queue: &str, object: &Value) {
    platform.apply(&queued_job("before", queue, "sleep 5")).await;
    let before = ("batch/v1", "Job", "before");
    platform.wait(before, "running", |job| job["status"]["active"] == 1).await;
    platform.apply(object).await;
    workload(platform, WRAPPED.2, "waiting", waits_for_quota).await;
    platform.wait(WRAPPED, "suspended", |wrapper| wrapper["status"]["phase"] == "Suspended").await;
    assert_eq!(count_of_components(platform).await, 0, "nothing is created before there is quota");
    platform.wait(before, "complete", is_complete).await;
    platform
        .wait(WRAPPED, "admitted", |wrapper| condition(wrapper, "QuotaReserved")["status"] == "True")
        .await;
}

/// How many objects there are of the AppWrapper.
async fn count_of_components(platform: &Platform) -> usize {
    let mut count = 0;
    for (api_version, kind) in [("v1", "Pod"), ("batch/v1", "Job"), ("ray.io/v1", "RayCluster")] {
        let objects = platform.objects(api_version, kind).await;
        count += objects.list(&ListParams::default().labels(LABEL)).await.unwrap().items.len();
    }
    count
}

/// An AppWrapper that is deleted takes its components and its Workload with it, and gives its quota back.
async fn leaves_nothing(platform: &Platform, queue: &str) {
    let wrappers = platform.objects(WRAPPED.0, WRAPPED.1).await;
    let _ = wrappers.delete(WRAPPED.2, &DeleteParams::default()).await.unwrap();
    eventually("the end of the AppWrapper", async || {
        let is_gone = wrappers.get_opt(WRAPPED.2).await.unwrap().is_none();
        (is_gone && count_of_components(platform).await == 0).then_some(())
    })
    .await;
    let workloads = platform.objects(API, "Workload").await;
    eventually("the end of its Workload", async || {
        let left = workloads.list(&ListParams::default()).await.unwrap().items;
        let is_of = |one: &DynamicObject| {
            one.metadata.owner_references.iter().flatten().any(|owner| owner.name == WRAPPED.2)
        };
        (!left.iter().any(is_of)).then_some(())
    })
    .await;
    let queues: Api<DynamicObject> = Api::all_with(platform.client().await, &resource(API, "ClusterQueue"));
    let is_unused = |queue: &Value| queue["status"]["flavorsUsage"][0]["resources"][0]["total"] == "0";
    platform.wait_for(&queues, queue, "unused", is_unused).await;
}

pub(crate) async fn wrapped_jobs_wait_for_quota_together(platform: &Platform) {
    make_queue(platform, "wrapping", "500m").await;
    let jobs = ["one", "two"].map(|name| plain_job(name, "echo done"));
    is_admitted_after_another_job(platform, "wrapping", &wrapped("wrapping", &jobs)).await;
    let succeeded = platform
        .wait(WRAPPED, "over", |wrapper| {
            matches!(wrapper["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
        })
        .await;
    assert_eq!(succeeded["status"]["phase"], "Succeeded", "{}", succeeded["status"]);
    workload(platform, WRAPPED.2, "finished", |workload| condition(workload, "Finished")["status"] == "True")
        .await;
    leaves_nothing(platform, "wrapping").await;
}

/// A cluster does not end by itself, so the AppWrapper runs until it is deleted.
pub(crate) async fn a_ray_cluster_and_a_job_wait_for_quota_together(platform: &Platform) {
    make_queue(platform, "wrapping", "1100m").await;
    let objects = [crate::ray::cluster("ray"), plain_job("job", "echo done")];
    is_admitted_after_another_job(platform, "wrapping", &wrapped("wrapping", &objects)).await;
    platform.wait(("batch/v1", "Job", "job"), "complete", is_complete).await;
    crate::ray::dashboard(platform, "ray").await;
    platform
        .wait(WRAPPED, "ready", |wrapper| {
            wrapper["status"]["phase"] == "Running" && condition(wrapper, "PodsReady")["status"] == "True"
        })
        .await;
    leaves_nothing(platform, "wrapping").await;
}

/// The image of CodeFlare's SDK, which the configuration of the platform maps to a Python environment.
pub(crate) const SDK_IMAGE: &str = "codeflare-sdk";

/// What a user of the SDK does: a cluster in a queue, its details, a job, and the same in an AppWrapper.
const SDK_PROGRAM: &str = r#"
import time
from codeflare_sdk import Cluster, ClusterConfiguration, RayJobClient

def run(name, **options):
    cluster = Cluster(ClusterConfiguration(
        name=name, namespace="NAMESPACE", image="IMAGE", local_queue="sdk", num_workers=1,
        head_cpu_requests="200m", head_cpu_limits=2, head_memory_requests=1, head_memory_limits=4,
        worker_cpu_requests="200m", worker_cpu_limits=2, worker_memory_requests=1, worker_memory_limits=4, **options))
    cluster.apply()
    cluster.wait_ready(timeout=400, dashboard_check=False)
    details = cluster.details()
    print(f"{name}: {details.status.value}, {details.num_workers} worker")
    jobs = RayJobClient(address=f"http://{name}-head-svc.NAMESPACE.svc:8265")
    job = jobs.submit_job(entrypoint="python -c 'import ray; ray.init(); print(\"nodes:\", len(ray.nodes()))'")
    while not jobs.get_job_status(job).is_terminal():
        time.sleep(1)
    print(f"{name}: job {jobs.get_job_status(job)}, {jobs.get_job_logs(job)}")
    cluster.down()
    while cluster.status(print_to_console=False)[1]:
        time.sleep(1)
    print(f"{name}: down")

run("plain")
run("wrapped", appwrapper=True)
"#;

/// Lets pods of the case's namespace do what the SDK does.
async fn allow_sdk(platform: &Platform) {
    let rbac = "rbac.authorization.k8s.io";
    let metadata = json!({ "name": "sdk" });
    let groups = ["ray.io", "workload.codeflare.dev", "kueue.x-k8s.io", "networking.k8s.io"];
    let rules = json!([{ "apiGroups": groups, "resources": ["*"], "verbs": ["*"] }]);
    platform
        .apply(&json!({ "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata, "rules": rules }))
        .await;
    let subject = json!({ "kind": "ServiceAccount", "name": "default", "namespace": platform.namespace() });
    platform
        .apply(&json!({ "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": rbac, "kind": "Role", "name": "sdk" }, "subjects": [subject] }))
        .await;
}

pub(crate) async fn the_sdk_runs_clusters_and_jobs(platform: &Platform) {
    make_queue(platform, "sdk", "2").await;
    allow_sdk(platform).await;
    let program =
        SDK_PROGRAM.replace("NAMESPACE", &platform.namespace()).replace("IMAGE", &crate::ray::image());
    let container = json!({ "name": "main", "image": SDK_IMAGE, "command": ["python", "-u", "-c", program] });
    let spec = json!({ "restartPolicy": "Never", "containers": [container] });
    let pod = ("v1", "Pod", "sdk");
    platform
        .apply(&json!({ "apiVersion": pod.0, "kind": pod.1, "metadata": { "name": pod.2 }, "spec": spec }))
        .await;
    let is_over = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let over = platform.wait(pod, "over", is_over).await;
    let log = platform.log(pod.2, None).await;
    assert_eq!(over["status"]["phase"], "Succeeded", "{log}");
    for name in ["plain", "wrapped"] {
        for line in ["ready, 1 worker", "job SUCCEEDED", "down"] {
            assert!(log.contains(&format!("{name}: {line}")), "{name}: {line}: {log}");
        }
    }
    assert_eq!(log.matches("nodes: 2").count(), 2, "{log}");
    // To the SDK, a cluster is down when its deletion has begun.
    let are_gone = async || (count_of_components(platform).await == 0).then_some(());
    eventually("the end of all components", are_gone).await;
}
