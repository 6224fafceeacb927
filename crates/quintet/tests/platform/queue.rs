//! Queues: what waits for quota, with real processes.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::Platform;

pub(crate) const API: &str = "kueue.x-k8s.io/v1beta2";
/// The label that names the queue of a job.
pub(crate) const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";

/// Makes a LocalQueue with this much CPU in the namespace of the case, and the ClusterQueue behind it.
pub(crate) async fn make_queue(platform: &Platform, name: &str, cpu: &str) {
    let flavor = json!({ "apiVersion": API, "kind": "ResourceFlavor", "metadata": { "name": "machine" } });
    platform.apply_to_cluster(&flavor).await;
    let quota = [("cpu", cpu), ("memory", "64Gi")]
        .map(|(name, amount)| json!({ "name": name, "nominalQuota": amount }));
    let spec = json!({
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": platform.namespace() } },
        "resourceGroups": [{
            "coveredResources": ["cpu", "memory"], "flavors": [{ "name": "machine", "resources": quota }],
        }],
    });
    let cluster_queue =
        json!({ "apiVersion": API, "kind": "ClusterQueue", "metadata": { "name": name }, "spec": spec });
    platform.apply_to_cluster(&cluster_queue).await;
    platform
        .apply(&json!({ "apiVersion": API, "kind": "LocalQueue", "metadata": { "name": name },
            "spec": { "clusterQueue": name } }))
        .await;
}

/// A Job of one pod in a queue.
pub(crate) fn queued_job(name: &str, queue: &str, command: &str) -> Value {
    let container = json!({ "name": "main", "image": "busybox", "command": ["sh", "-c", command],
        "resources": { "requests": { "cpu": "200m", "memory": "16Mi" } } });
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name, "labels": { QUEUE_NAME: queue } },
        "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [container] } } },
    })
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

pub(crate) fn is_complete(job: &Value) -> bool {
    condition(job, "Complete")["status"] == "True"
}

/// The Workload of an object, once it is as it should be.
pub(crate) async fn workload(
    platform: &Platform,
    owner: &str,
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    let workloads = platform.objects(API, "Workload").await;
    let is_of =
        |workload: &Value| workload["metadata"]["ownerReferences"][0]["name"] == owner && holds(workload);
    crate::support::eventually(&format!("a Workload of {owner} that is {what}"), async || {
        let found = workloads.list(&kube::api::ListParams::default()).await.unwrap().items;
        found.into_iter().map(|one| serde_json::to_value(one).unwrap()).find(is_of)
    })
    .await
}

/// Whether a Workload waits because there is not enough quota.
pub(crate) fn waits_for_quota(workload: &Value) -> bool {
    let reserved = condition(workload, "QuotaReserved");
    let message = reserved["message"].as_str().unwrap_or_default();
    reserved["status"] == "False" && message.contains("insufficient unused quota for cpu")
}

pub(crate) async fn a_job_waits_for_quota_until_another_ends(platform: &Platform) {
    make_queue(platform, "team", "300m").await;
    let job = |name: &'static str| ("batch/v1", "Job", name);
    platform.apply(&queued_job("first", "team", "sleep 5")).await;
    platform.wait(job("first"), "running", |job| job["status"]["active"] == 1).await;
    platform.apply(&queued_job("second", "team", "echo my turn")).await;
    workload(platform, "second", "waiting", waits_for_quota).await;
    let second = platform.wait(job("second"), "there", |_| true).await;
    assert_eq!(second["spec"]["suspend"], true);
    let first = platform.wait(job("first"), "complete", is_complete).await;
    let second = platform.wait(job("second"), "complete", is_complete).await;
    let time = |text: &Value| text.as_str().unwrap().parse::<Timestamp>().unwrap();
    assert!(
        time(&second["status"]["startTime"]) >= time(&first["status"]["completionTime"]),
        "{first} {second}"
    );
}
