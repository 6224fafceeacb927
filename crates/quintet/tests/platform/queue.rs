//! Queues: what waits for quota, with real processes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::ray::{alive, cluster, dashboard, image, job, pods, python, ray_cluster, ray_job, succeeds, sum};
use crate::support::{Platform, eventually, resource};

pub(crate) const API: &str = "kueue.x-k8s.io/v1beta2";
/// The label that names the queue of a job.
pub(crate) const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";

/// Makes a LocalQueue with this much CPU in the namespace of the case, and the ClusterQueue behind it.
pub(crate) async fn make_queue(platform: &Platform, name: &str, cpu: &str) {
    make_queue_with(platform, name, cpu, json!({})).await;
}

/// The same, with further fields of the ClusterQueue.
pub(crate) async fn make_queue_with(platform: &Platform, name: &str, cpu: &str, fields: Value) {
    let flavor = json!({ "apiVersion": API, "kind": "ResourceFlavor", "metadata": { "name": "machine" } });
    platform.apply_to_cluster(&flavor).await;
    let quota = [("cpu", cpu), ("memory", "64Gi")]
        .map(|(name, amount)| json!({ "name": name, "nominalQuota": amount }));
    let mut spec = json!({
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": platform.namespace() } },
        "resourceGroups": [{
            "coveredResources": ["cpu", "memory"], "flavors": [{ "name": "machine", "resources": quota }],
        }],
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
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
    eventually(&format!("a Workload of {owner} that is {what}"), async || {
        let found = workloads.list(&ListParams::default()).await.unwrap().items;
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

/// A ConfigMap that pods see as a directory: their work ends when there is a file in it.
async fn set_switch(platform: &Platform, is_finished: bool) {
    let data = if is_finished { json!({ "finish": "" }) } else { json!({}) };
    platform
        .apply(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "switch" }, "data": data }))
        .await;
}

/// Lets a pod see the switch.
fn mount_switch(template: &mut Value) {
    let pod = &mut template["spec"];
    pod["volumes"] = json!([{ "name": "switch", "configMap": { "name": "switch" } }]);
    pod["containers"][0]["volumeMounts"] = json!([{ "name": "switch", "mountPath": "/switch" }]);
}

/// A RayJob in a queue that asks for half a CPU: its head, its worker and its submitter.
pub(crate) fn queued_ray_job(name: &str, queue: &str, entrypoint: &str) -> Value {
    let mut object = job(name, entrypoint);
    object["metadata"]["labels"] = json!({ QUEUE_NAME: queue });
    let cluster = &mut object["spec"]["rayClusterSpec"];
    for template in ["/headGroupSpec/template", "/workerGroupSpecs/0/template"] {
        let template = cluster.pointer_mut(template).unwrap();
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("200m");
    }
    let requests = json!({ "cpu": "100m", "memory": "64Mi" });
    let submitter =
        json!({ "name": "ray-job-submitter", "image": image(), "resources": { "requests": requests } });
    object["spec"]["submitterPodTemplate"] =
        json!({ "spec": { "restartPolicy": "Never", "containers": [submitter] } });
    object
}

/// A RayJob that works until the switch is set.
fn patient_ray_job(name: &str, queue: &str) -> Value {
    let work = python(
        "import os, ray, time
ray.init()
work = ray.remote(num_cpus=1)(lambda: 1)
while not os.path.exists(\"/switch/finish\"):
    ray.get(work.remote())
    time.sleep(0.2)
print(\"finished\")",
    );
    let mut object = queued_ray_job(name, queue, &work);
    mount_switch(&mut object["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]);
    object
}

/// How much CPU of a ClusterQueue is reserved, and how much of that is borrowed.
async fn reserved(platform: &Platform, queue: &str) -> (String, String) {
    let queues: Api<DynamicObject> = Api::all_with(platform.client().await, &resource(API, "ClusterQueue"));
    let queue = serde_json::to_value(queues.get(queue).await.unwrap()).unwrap();
    let resources =
        queue["status"]["flavorsReservation"][0]["resources"].as_array().cloned().unwrap_or_default();
    let cpu = resources.into_iter().find(|one| one["name"] == "cpu").unwrap_or_default();
    let amount = |field: &str| cpu[field].as_str().unwrap_or("0").to_owned();
    (amount("total"), amount("borrowed"))
}

async fn await_reservation(platform: &Platform, queue: &str, total: &str, borrowed: &str) {
    eventually(&format!("{total} of {queue} to be reserved, {borrowed} of it borrowed"), async || {
        (reserved(platform, queue).await == (total.to_owned(), borrowed.to_owned())).then_some(())
    })
    .await;
}

/// Which of two came first is known if their times differ, which are whole seconds.
#[expect(clippy::disallowed_methods, reason = "the platform lives in real time")]
async fn await_another_second(time: &Value) {
    let time: Timestamp = time.as_str().unwrap().parse().unwrap();
    let is_over = async || (Timestamp::now().as_second() > time.as_second()).then_some(());
    eventually("another second", is_over).await;
}

pub(crate) async fn two_teams_share_ray_quota_and_the_owner_takes_it_back(platform: &Platform) {
    set_switch(platform, false).await;
    for team in ["red", "blue"] {
        let cohort = json!({ "cohortName": "teams", "preemption": { "reclaimWithinCohort": "Any" } });
        make_queue_with(platform, team, "600m", cohort).await;
    }
    let is_running = |job: &Value| job["status"]["jobStatus"] == "RUNNING";
    for name in ["first", "second"] {
        platform.apply(&patient_ray_job(name, "red")).await;
        let is_admitted = |own: &Value| condition(own, "Admitted")["status"] == "True";
        let own = workload(platform, name, "admitted", is_admitted).await;
        await_another_second(&condition(&own, "QuotaReserved")["lastTransitionTime"]).await;
    }
    for name in ["first", "second"] {
        platform.wait(ray_job(name), "running", is_running).await;
    }
    await_reservation(platform, "red", "1", "400m").await;
    // Blue wants its quota back: of red's jobs the one that came last has to go.
    platform.apply(&queued_ray_job("owner", "blue", &sum())).await;
    let evicted = workload(platform, "second", "preempted", |own| {
        condition(own, "Preempted")["status"] == "True"
            && condition(own, "QuotaReserved")["status"] == "False"
    })
    .await;
    assert_eq!(condition(&evicted, "Preempted")["reason"], "InCohortReclamation");
    let is_suspended = |job: &Value| job["spec"]["suspend"] == true;
    platform.wait(ray_job("second"), "suspended", is_suspended).await;
    succeeds(platform, "owner").await;
    let first = platform.wait(ray_job("first"), "there", |_| true).await;
    assert_eq!(first["status"]["jobStatus"], "RUNNING", "it goes on within red's own quota");
    // It starts again, from its beginning, and both finish.
    platform.wait(ray_job("second"), "running again", is_running).await;
    set_switch(platform, true).await;
    for name in ["first", "second"] {
        succeeds(platform, name).await;
    }
    await_reservation(platform, "red", "0", "0").await;
}

pub(crate) async fn an_autoscaling_cluster_grows_as_far_as_there_is_quota(platform: &Platform) {
    set_switch(platform, false).await;
    // The head, its autoscaler, and two workers.
    make_queue(platform, "growing", "350m").await;
    let mut object = cluster("elastic");
    object["metadata"]["labels"] = json!({ QUEUE_NAME: "growing" });
    object["metadata"]["annotations"] =
        json!({ "kueue.x-k8s.io/elastic-job": "true", "queue.quintet.dev/partial-scale-up": "true" });
    let spec = &mut object["spec"];
    spec["enableInTreeAutoscaling"] = json!(true);
    spec["autoscalerOptions"] = json!({ "idleTimeoutSeconds": 5,
        "resources": { "requests": { "cpu": "50m", "memory": "128Mi" }, "limits": { "memory": "1Gi" } } });
    spec["headGroupSpec"]["rayStartParams"]["num-cpus"] = json!("0");
    spec["workerGroupSpecs"][0]["replicas"] = json!(0);
    for template in ["/headGroupSpec/template", "/workerGroupSpecs/0/template"] {
        let template = spec.pointer_mut(template).unwrap();
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("100m");
    }
    mount_switch(&mut spec["headGroupSpec"]["template"]);
    platform.apply(&object).await;
    let address = dashboard(platform, "elastic").await;
    await_nodes(&address, 1).await;
    // Three actors, of which each needs a worker.
    let work = python(
        "import os, ray, time
ray.init()
@ray.remote(num_cpus=1)
class Holder:
    pass
holders = [Holder.remote() for _ in range(3)]
while not os.path.exists(\"/switch/finish\"):
    time.sleep(0.2)",
    );
    let submit = format!(
        "from ray.job_submission import JobSubmissionClient
JobSubmissionClient('{address}').submit_job(entrypoint={work:?})"
    );
    platform.ray_python(&submit).await;
    // It asks for three workers and gets two; the third pod waits.
    await_nodes(&address, 3).await;
    eventually("a worker that waits", async || (gated(platform).await == 1).then_some(())).await;
    let own = platform.wait(ray_cluster("elastic"), "there", |_| true).await;
    assert_eq!(own["spec"]["workerGroupSpecs"][0]["replicas"], 3);
    await_reservation(platform, "growing", "350m", "0").await;
    assert_eq!(alive(&address).await, Some(3));
    // With more quota it gets the third, beside the two that run.
    let before = pods(platform, "ray.io/node-type=worker").await;
    make_queue(platform, "growing", "450m").await;
    await_nodes(&address, 4).await;
    assert_eq!(gated(platform).await, 0);
    assert_eq!(pods(platform, "ray.io/node-type=worker").await, before);
    // Without work it gives the quota back.
    set_switch(platform, true).await;
    await_nodes(&address, 1).await;
    await_reservation(platform, "growing", "150m", "0").await;
}

/// Waits until the dashboard of a cluster counts this many nodes.
async fn await_nodes(dashboard: &str, count: usize) {
    eventually(&format!("{count} nodes on the dashboard"), async || {
        alive(dashboard).await.filter(|alive| *alive == count)
    })
    .await;
}

/// How many workers wait behind a scheduling gate.
async fn gated(platform: &Platform) -> usize {
    let pods = platform.pods().await.list(&ListParams::default()).await.unwrap();
    let is_gated = |pod: &&Pod| {
        pod.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.iter().flatten().next().is_some())
    };
    pods.items.iter().filter(is_gated).count()
}
