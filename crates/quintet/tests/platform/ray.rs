//! Real Ray.

use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::{Platform, eventually};

/// The version of Ray that is tested.
const RAY: &str = "2.53.0";

/// The image of that version.
pub(crate) fn image() -> String {
    format!("rayproject/ray:{RAY}")
}

/// What that image installs.
pub(crate) fn requirement() -> String {
    format!("ray[default,serve]=={RAY}")
}

pub(crate) fn ray_cluster(name: &str) -> (&str, &str, &str) {
    ("ray.io/v1", "RayCluster", name)
}

pub(crate) fn ray_job(name: &str) -> (&str, &str, &str) {
    ("ray.io/v1", "RayJob", name)
}

/// The spec of a cluster of one head and one worker, small enough for any machine.
fn cluster_spec() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": image(),
            "resources": { "requests": { "cpu": "400m", "memory": "512Mi" }, "limits": { "memory": "4Gi" } },
        })
    };
    let template = |name: &str| json!({ "spec": { "containers": [container(name)] } });
    json!({
        "rayVersion": RAY,
        "headGroupSpec": { "rayStartParams": { "num-cpus": "1" }, "template": template("ray-head") },
        "workerGroupSpecs": [{
            "groupName": "workers", "replicas": 1, "minReplicas": 0, "maxReplicas": 3,
            "rayStartParams": { "num-cpus": "1" }, "template": template("ray-worker"),
        }],
    })
}

pub(crate) fn cluster(name: &str) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": { "name": name }, "spec": cluster_spec(),
    })
}

pub(crate) fn job(name: &str, entrypoint: &str) -> Value {
    let spec = json!({
        "entrypoint": entrypoint, "shutdownAfterJobFinishes": true, "rayClusterSpec": cluster_spec(),
    });
    json!({ "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": { "name": name }, "spec": spec })
}

/// An entry point that runs a Python program.
pub(crate) fn python(program: &str) -> String {
    format!("python -c {}", quoted(program))
}

/// A word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Adds up numbers in tasks.
pub(crate) fn sum() -> String {
    python(
        "import ray
ray.init()
tasks = [ray.remote(lambda i=i: i).remote() for i in range(4)]
print(\"the answer is\", sum(ray.get(tasks)))",
    )
}

fn is_over(job: &Value) -> bool {
    matches!(job["status"]["jobDeploymentStatus"].as_str(), Some("Complete" | "Failed"))
}

fn is_ready(cluster: &Value) -> bool {
    cluster["status"]["state"] == "ready"
}

/// Waits for the end of a job, which has to be a good one.
pub(crate) async fn succeeds(platform: &Platform, name: &str) -> Value {
    let job = platform.wait(ray_job(name), "complete", is_over).await;
    assert_eq!(job["status"]["jobStatus"], "SUCCEEDED", "{name}: {}", job["status"]);
    job
}

/// Waits until the log of a container says something: a job can be over before its submitter has printed all of it.
pub(crate) async fn logs(platform: &Platform, pod: &str, container: Option<&str>, text: &str) {
    eventually(&format!("{text:?} in the log of {pod}"), async || {
        platform.log(pod, container).await.contains(text).then_some(())
    })
    .await;
}

/// The address of a cluster's dashboard, once that responds: a head can be ready before.
pub(crate) async fn dashboard(platform: &Platform, cluster: &str) -> String {
    let cluster = platform.wait(ray_cluster(cluster), "ready", is_ready).await;
    let dashboard = format!("http://{}:8265", cluster["status"]["head"]["podIP"].as_str().unwrap());
    let version = format!("{dashboard}/api/version");
    eventually("a response of the dashboard", async || match curl(&[&version]).await {
        // One that refuses requests without a token responds, too.
        Err(error) if !error.contains("returned error: 40") => None,
        Ok(_) | Err(_) => Some(()),
    })
    .await;
    dashboard
}

pub(crate) async fn curl(arguments: &[&str]) -> Result<String, String> {
    let output = tokio::process::Command::new("curl").args(["-sSf", "-m", "20"]).args(arguments).output();
    let output = output.await.unwrap();
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// How many nodes a cluster has by its dashboard, once that knows.
pub(crate) async fn alive(dashboard: &str) -> Option<usize> {
    let response = curl(&[&format!("{dashboard}/api/v0/nodes")]).await.ok()?;
    let nodes: Value = serde_json::from_str(&response).unwrap();
    let listed = nodes["data"]["result"]["result"].as_array()?;
    Some(listed.iter().filter(|node| node["state"] == "ALIVE").count())
}

/// The names of pods by a label.
pub(crate) async fn pods(platform: &Platform, selector: &str) -> Vec<String> {
    let pods = platform.pods().await.list(&ListParams::default().labels(selector)).await.unwrap();
    pods.items.into_iter().filter_map(|pod| pod.metadata.name).collect()
}

pub(crate) async fn patch(platform: &Platform, (api_version, kind, name): (&str, &str, &str), patch: Value) {
    let api = platform.objects(api_version, kind).await;
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

/// Why Ray cannot be tested here: what keeps its environment from being made, such as a machine without a package index.
pub(crate) async fn obstacle(platform: &Platform) -> Option<String> {
    platform.image_obstacle(&image()).await
}

pub(crate) async fn a_cluster_of_head_and_worker_lists_both(platform: &Platform) {
    platform.apply(&cluster("small")).await;
    let dashboard = dashboard(platform, "small").await;
    eventually("two nodes on the dashboard", async || alive(&dashboard).await.filter(|alive| *alive == 2))
        .await;
}

pub(crate) async fn a_job_in_k8s_job_mode_gives_its_result(platform: &Platform) {
    platform.apply(&job("sum", &sum())).await;
    succeeds(platform, "sum").await;
    let submitter = pods(platform, "job-name=sum").await;
    logs(platform, &submitter[0], None, "the answer is 6").await;
}

pub(crate) async fn a_job_in_http_mode_gives_its_result(platform: &Platform) {
    let mut job = job("sum", &sum());
    job["spec"]["submissionMode"] = json!("HTTPMode");
    platform.apply(&job).await;
    succeeds(platform, "sum").await;
    assert_eq!(pods(platform, "job-name=sum").await, Vec::<String>::new(), "there is no submitter");
}

pub(crate) async fn a_job_in_sidecar_mode_gives_its_result(platform: &Platform) {
    let mut job = job("sum", &sum());
    job["spec"]["submissionMode"] = json!("SidecarMode");
    job["spec"]["shutdownAfterJobFinishes"] = json!(false);
    platform.apply(&job).await;
    succeeds(platform, "sum").await;
    let head = pods(platform, "ray.io/node-type=head").await;
    logs(platform, &head[0], Some("ray-job-submitter"), "the answer is 6").await;
}

pub(crate) async fn a_job_in_interactive_mode_is_submitted_by_rays_own_client(platform: &Platform) {
    let mut job = job("typed", "");
    job["spec"]["submissionMode"] = json!("InteractiveMode");
    job["spec"].as_object_mut().unwrap().remove("entrypoint");
    platform.apply(&job).await;
    let is_waiting = |job: &Value| job["status"]["jobDeploymentStatus"] == "Waiting";
    let waiting = platform.wait(ray_job("typed"), "waiting", is_waiting).await;
    let cluster = waiting["status"]["rayClusterName"].as_str().unwrap().to_owned();
    let address = dashboard(platform, &cluster).await;
    let submit = format!(
        "from ray.job_submission import JobSubmissionClient
print(JobSubmissionClient('{address}').submit_job(entrypoint={entrypoint:?}))",
        entrypoint = "python -c 'import ray; ray.init(); print(40 + 2)'"
    );
    let id = platform.ray_python(&submit).await.trim().to_owned();
    patch(platform, ray_job("typed"), json!({ "spec": { "jobId": id } })).await;
    succeeds(platform, "typed").await;
}

pub(crate) async fn quintets_own_submitter_works_with_real_ray(platform: &Platform) {
    let mut job = job("own", "echo unused");
    // It fails while the dashboard does not respond, and its Job makes another.
    job["spec"]["submitterConfig"] = json!({ "backoffLimit": 8 });
    job["spec"]["submitterPodTemplate"] = json!({ "spec": { "restartPolicy": "Never", "containers": [{
        "name": "submitter", "image": "quintet",
        "command": ["quintet", "submitter", "--", "python", "-c", "'import ray; ray.init(); print(40 + 2)'"],
    }] } });
    platform.apply(&job).await;
    succeeds(platform, "own").await;
    logs(platform, &pods(platform, "job-name=own").await[0], None, "42").await;
}

/// The client submits a program from a directory of its own, follows its log, and stops, lists and deletes jobs.
const CLIENT: &str = "import asyncio, os, sys, tempfile, time
from ray.job_submission import JobStatus, JobSubmissionClient

client = JobSubmissionClient(sys.argv[1])

def until(job, *wanted):
    while client.get_job_status(job) not in wanted:
        assert not client.get_job_status(job).is_terminal(), client.get_job_info(job)
        time.sleep(0.2)

with tempfile.TemporaryDirectory() as directory:
    with open(os.path.join(directory, 'program.py'), 'w') as file:
        file.write('import os, ray; ray.init(); print(ray.get(ray.remote(lambda: 6 * 7).remote()), os.environ[\"WORD\"])')
    runtime = {'working_dir': directory, 'env_vars': {'WORD': 'apples'}}
    job = client.submit_job(entrypoint='python program.py', runtime_env=runtime, metadata={'team': 'red'})

async def follow():
    return ''.join([lines async for lines in client.tail_job_logs(job)])

assert '42 apples' in asyncio.run(follow())
until(job, JobStatus.SUCCEEDED)
assert client.get_job_info(job).metadata['team'] == 'red'
assert '42 apples' in client.get_job_logs(job)
endless = client.submit_job(entrypoint='sleep 1000')
until(endless, JobStatus.RUNNING)
client.stop_job(endless)
until(endless, JobStatus.STOPPED)
assert {job, endless} <= {entry.submission_id for entry in client.list_jobs()}
client.delete_job(endless)
assert endless not in {entry.submission_id for entry in client.list_jobs()}
print('done')
";

pub(crate) async fn rays_own_client_submits_follows_and_stops_jobs(platform: &Platform) {
    platform.apply(&cluster("served")).await;
    let address = dashboard(platform, "served").await;
    let program = format!("import sys; sys.argv = ['client', '{address}']\n{CLIENT}");
    assert_eq!(platform.ray_python(&program).await.lines().last(), Some("done"));
}

/// Two tasks, one on each node, that end when a node has died: one of them has to be done again.
fn outlives_a_node() -> String {
    python(
        "import ray, time
ray.init()
@ray.remote(num_cpus=1, max_retries=-1)
def work():
    while all(node[\"Alive\"] for node in ray.nodes()):
        time.sleep(0.2)
    return 1
print(\"finished\", sum(ray.get([work.remote() for _ in range(2)])))",
    )
}

pub(crate) async fn a_killed_worker_is_replaced_and_the_job_finishes(platform: &Platform) {
    platform.apply(&job("long", &outlives_a_node())).await;
    let is_running = |job: &Value| job["status"]["jobStatus"] == "RUNNING";
    platform.wait(ray_job("long"), "running", is_running).await;
    let workers = pods(platform, "ray.io/node-type=worker").await;
    platform.kill_processes_of(&workers[0]).await;
    succeeds(platform, "long").await;
}

/// The driver of the job runs on the worker, so it outlives the head; what the head knew is in Redis.
pub(crate) async fn a_job_outlives_a_killed_head_whose_state_is_in_redis(platform: &Platform) {
    if std::process::Command::new("redis-server").arg("--version").output().is_err() {
        println!("skipped: there is no redis-server");
        return;
    }
    let container = json!({ "name": "main", "image": "redis", "command": ["redis-server", "--bind", "0.0.0.0",
        "--protected-mode", "no", "--save", ""] });
    platform
        .apply(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "redis", "labels": { "app": "redis" } },
            "spec": { "containers": [container] } }))
        .await;
    platform
        .apply(&json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "redis" },
            "spec": { "selector": { "app": "redis" }, "ports": [{ "port": 6379 }] } }))
        .await;
    let mut object = job(
        "steady",
        &python(
            "import ray, time
ray.init()
for second in range(40):
    time.sleep(1)
print(\"finished\")",
        ),
    );
    object["spec"]["entrypointNumCpus"] = json!(0.5);
    object["spec"]["backoffLimit"] = json!(0);
    let cluster = &mut object["spec"]["rayClusterSpec"];
    cluster["gcsFaultToleranceOptions"] = json!({ "redisAddress": "redis:6379" });
    cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] = json!("0");
    platform.apply(&object).await;
    let is_running = |job: &Value| job["status"]["jobStatus"] == "RUNNING";
    platform.wait(ray_job("steady"), "running", is_running).await;
    let head = pods(platform, "ray.io/node-type=head").await;
    platform.kill_processes_of(&head[0]).await;
    succeeds(platform, "steady").await;
}

pub(crate) async fn a_suspended_cluster_has_no_pods_and_resumes(platform: &Platform) {
    platform.apply(&cluster("pausing")).await;
    dashboard(platform, "pausing").await;
    patch(platform, ray_cluster("pausing"), json!({ "spec": { "suspend": true } })).await;
    let is_suspended = |cluster: &Value| cluster["status"]["state"] == "suspended";
    platform.wait(ray_cluster("pausing"), "suspended", is_suspended).await;
    eventually("the end of all pods", async || {
        pods(platform, "ray.io/cluster=pausing").await.is_empty().then_some(())
    })
    .await;
    patch(platform, ray_cluster("pausing"), json!({ "spec": { "suspend": false } })).await;
    dashboard(platform, "pausing").await;
}

pub(crate) async fn a_cluster_with_tokens_refuses_requests_without_one(platform: &Platform) {
    let mut object = job("secret", &sum());
    object["spec"]["rayClusterSpec"]["authOptions"] = json!({ "mode": "token" });
    object["spec"]["shutdownAfterJobFinishes"] = json!(false);
    platform.apply(&object).await;
    let job = succeeds(platform, "secret").await;
    let cluster = job["status"]["rayClusterName"].as_str().unwrap().to_owned();
    let dashboard = dashboard(platform, &cluster).await;
    let refused = curl(&[&format!("{dashboard}/api/jobs/")]).await.unwrap_err();
    assert!(refused.contains("401") || refused.contains("403"), "{refused}");
}

pub(crate) async fn the_autoscaler_adds_and_removes_workers(platform: &Platform) {
    let mut object = cluster("elastic");
    object["spec"]["enableInTreeAutoscaling"] = json!(true);
    object["spec"]["autoscalerOptions"] = json!({ "idleTimeoutSeconds": 5,
        "resources": { "requests": { "cpu": "50m", "memory": "128Mi" }, "limits": { "memory": "1Gi" } } });
    object["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = json!("0");
    object["spec"]["workerGroupSpecs"][0]["replicas"] = json!(0);
    platform.apply(&object).await;
    let address = dashboard(platform, "elastic").await;
    let submit = format!(
        "from ray.job_submission import JobSubmissionClient
JobSubmissionClient('{address}').submit_job(entrypoint={:?})",
        python("import ray, time; ray.init(); ray.get(ray.remote(lambda: time.sleep(5)).remote())")
    );
    platform.ray_python(&submit).await;
    let workers = async || pods(platform, "ray.io/node-type=worker").await.len();
    eventually("a worker", async || (workers().await > 0).then_some(())).await;
    eventually("no worker", async || (workers().await == 0).then_some(())).await;
}

const GREETER: &str = "from ray import serve

@serve.deployment
class Greeter:
    def __init__(self):
        self.greeting = 'hello'

    def reconfigure(self, config):
        self.greeting = config['greeting']

    async def __call__(self, request):
        return self.greeting

app = Greeter.bind()
";

fn serve_config(greeting: &str) -> String {
    json!({ "applications": [{
        "name": "greeter", "import_path": "greeter:app", "route_prefix": "/",
        "deployments": [{ "name": "Greeter", "user_config": { "greeting": greeting }, "ray_actor_options": { "num_cpus": 0.1 } }],
    }] })
    .to_string()
}

pub(crate) async fn a_service_answers_through_changes_and_upgrades(platform: &Platform) {
    platform
        .apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "greeter" }, "data": { "greeter.py": GREETER },
        }))
        .await;
    let mut spec = cluster_spec();
    spec.as_object_mut().unwrap().remove("workerGroupSpecs");
    let pod = &mut spec["headGroupSpec"]["template"]["spec"];
    pod["volumes"] = json!([{ "name": "code", "configMap": { "name": "greeter" } }]);
    pod["containers"][0]["volumeMounts"] = json!([{ "name": "code", "mountPath": "/code" }]);
    pod["containers"][0]["env"] = json!([{ "name": "PYTHONPATH", "value": "/code" }]);
    let service = ("ray.io/v1", "RayService", "greeter");
    platform
        .apply(&json!({
            "apiVersion": service.0, "kind": service.1, "metadata": { "name": service.2 },
            "spec": {
                "serveConfigV2": serve_config("hello"), "rayClusterConfig": spec, "rayClusterDeletionDelaySeconds": 10,
            },
        }))
        .await;
    let is_ready = |service: &Value| {
        let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let ready = platform.wait(service, "ready", is_ready).await;
    let first = ready["status"]["activeServiceStatus"]["rayClusterName"].clone();
    let serving = ("v1", "Service", "greeter-serve-svc");
    let object = platform.wait(serving, "there", |_| true).await;
    let url = format!("http://{}:8000/", object["spec"]["clusterIP"].as_str().unwrap());
    let says = async |greeting: &str| {
        eventually(&format!("the answer {greeting}"), async || {
            let answer = curl(&[&url]).await.expect("no request fails");
            (answer == greeting).then_some(())
        })
        .await;
    };
    eventually("a first answer", async || curl(&[&url]).await.ok().map(drop)).await;
    says("hello").await;
    let changes = async {
        patch(platform, service, json!({ "spec": { "serveConfigV2": serve_config("good morning") } })).await;
        says("good morning").await;
        let upgraded = json!({ "spec": {
            "serveConfigV2": serve_config("good evening"),
            "rayClusterConfig": { "headGroupSpec": { "template": { "metadata": { "labels": { "upgraded": "yes" } } } } },
        } });
        patch(platform, service, upgraded).await;
        says("good evening").await;
        let is_upgraded =
            |service: &Value| service["status"]["activeServiceStatus"]["rayClusterName"] != first;
        platform.wait(service, "upgraded", is_upgraded).await;
        let clusters = platform.objects("ray.io/v1", "RayCluster").await;
        eventually("the end of the first cluster", async || {
            let old = pods(platform, &format!("ray.io/cluster={}", first.as_str().unwrap())).await;
            let is_gone = clusters.get_opt(first.as_str().unwrap()).await.unwrap().is_none();
            (is_gone && old.is_empty()).then_some(())
        })
        .await;
        says("good evening").await;
    };
    no_request_fails_during(&url, changes).await;
}

/// Sends requests, one after the other, until `changes` are over.
async fn no_request_fails_during(url: &str, changes: impl Future<Output = ()>) {
    let mut count = 0;
    let requests = async {
        loop {
            curl(&[url]).await.unwrap_or_else(|error| panic!("request {count} failed: {error}"));
            count += 1;
        }
    };
    tokio::select! {
        () = requests => {}
        () = changes => {}
    }
    println!("{count} requests");
}
