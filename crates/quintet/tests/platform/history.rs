//! The past of real Ray clusters: what their dashboards said is read from the history when they are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::ray::{curl, dashboard, job, pods, python, succeeds};
use crate::support::{Platform, Program, eventually};

/// Tasks of one function, an actor with two calls, and output of all of them.
fn entrypoint() -> String {
    python(
        "import ray
ray.init()
@ray.remote(num_cpus=0.1)
def double(number):
    print(\"doubling\", number)
    return 2 * number
@ray.remote(num_cpus=0.1)
class Counter:
    def __init__(self):
        self.count = 0
    def add(self, number):
        self.count += number
        return self.count
counter = Counter.options(name=\"sum\").remote()
for number in ray.get([double.remote(number) for number in range(4)]):
    total = ray.get(counter.add.remote(number))
print(\"the total is\", total)",
    )
}

/// What a history server says, and before it a dashboard.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    /// Fields of tasks by identifier and attempt.
    tasks: BTreeMap<String, Vec<Value>>,
    actors: BTreeMap<String, Vec<Value>>,
    /// Identifiers of jobs with those of their submissions.
    jobs: BTreeMap<String, Value>,
    /// Categories and names in the timeline.
    timeline: BTreeSet<String>,
    /// What programs have printed: logs of drivers and workers by node and name.
    logs: BTreeMap<String, String>,
}

/// Asks a dashboard or a history server.
struct Server {
    address: String,
    cookies: String,
}

/// Fields of an object. What a dashboard does not know is null, and in the history an empty text.
fn fields(object: &Value, names: &[&str]) -> Vec<Value> {
    let field = |name: &&str| if object[name].is_null() { json!("") } else { object[name].clone() };
    names.iter().map(field).collect()
}

impl Server {
    async fn get(&self, path: &str) -> Result<String, String> {
        let cookies = format!("Cookie: {}", self.cookies);
        let url = format!("{}{path}", self.address);
        curl(&["-g", "-H", &cookies, &url]).await.map_err(|error| format!("{url}: {error}"))
    }

    async fn text(&self, path: &str) -> String {
        self.get(path).await.unwrap_or_else(|error| panic!("{error}"))
    }

    async fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.text(path).await).unwrap()
    }

    async fn told(&self) -> Told {
        let tasks = self.json("/api/v0/tasks?detail=1&limit=10000").await;
        let tasks = tasks["data"]["result"]["result"].as_array().unwrap().iter().map(|task| {
            let key = format!("{} {}", task["task_id"].as_str().unwrap(), task["attempt_number"]);
            let mut names = vec!["name", "state", "job_id", "type", "func_or_class_name"];
            // Events do not say which actor a task creates, nor where.
            if task["type"] != "ACTOR_CREATION_TASK" {
                names.extend(["actor_id", "node_id", "worker_id"]);
            }
            (key, fields(task, &names))
        });
        let actors = self.json("/logical/actors").await;
        let actors = actors["data"]["actors"].as_object().unwrap().iter();
        let actors =
            actors.map(|(id, actor)| (id.clone(), fields(actor, &["jobId", "state", "name", "actorClass"])));
        let jobs = self.json("/api/jobs/").await;
        let jobs = jobs
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|job| Some((job["job_id"].as_str()?.to_owned(), job["submission_id"].clone())));
        let timeline = self.json("/api/v0/tasks/timeline").await;
        let timeline = timeline.as_array().unwrap().iter().filter(|event| event["ph"] == "X");
        let timeline = timeline.map(|event| format!("{} {}", event["cat"], event["name"]));
        Told {
            tasks: tasks.collect(),
            actors: actors.collect(),
            jobs: jobs.collect(),
            timeline: timeline.collect(),
            logs: self.logs().await,
        }
    }

    async fn logs(&self) -> BTreeMap<String, String> {
        let nodes = self.json("/nodes?view=summary").await;
        let nodes = nodes["data"]["summary"].as_array().unwrap().clone();
        let mut logs = BTreeMap::new();
        for node in nodes.iter().map(|node| node["raylet"]["nodeId"].as_str().unwrap()) {
            for pattern in ["job-driver-*.log", "worker-*.out"] {
                let listed = self.json(&format!("/api/v0/logs?node_id={node}&glob={pattern}")).await;
                let listed = listed["data"]["result"].as_object().unwrap();
                for name in listed.values().flat_map(|names| names.as_array().unwrap()) {
                    let name = name.as_str().unwrap();
                    let path = format!("/api/v0/logs/file?node_id={node}&filename={name}&lines=-1");
                    // Ray's dashboard responds 500 for a log without a line.
                    let text = match self.get(&path).await {
                        Err(error) if error.contains("500") => String::new(),
                        text => text.unwrap(),
                    };
                    // Only text of the program: Ray goes on with writing when the dashboard is asked.
                    let own = text
                        .lines()
                        .filter(|line| line.contains("doubling") || line.contains("the total is"));
                    logs.insert(format!("{node}/{name}"), own.collect::<Vec<_>>().join("\n"));
                }
            }
        }
        logs.retain(|_, text| !text.is_empty());
        logs
    }
}

/// A running `quintet history-server`.
struct HistoryServer {
    child: Child,
    address: String,
}

impl Drop for HistoryServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl HistoryServer {
    fn start(platform: &Platform, arguments: &[&str], variables: &[(&str, String)]) -> Self {
        let mut command = Program::built().command();
        command.args(["history-server", "--port", "0", "--use-kubernetes-proxy", "--kubeconfig"]);
        command.arg(platform.kubeconfig()).args(arguments).stdout(Stdio::piped());
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("it says where it is").unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        let address = first.split("is at ").nth(1).unwrap_or_else(|| panic!("{first}")).to_owned();
        Self { child, address }
    }

    /// Chooses the newest session of a RayJob; returns its name, too.
    async fn enter(&self, platform: &Platform, job: &str) -> (Server, String) {
        let url = format!("{}/enter_cluster/{}/rayjob/{job}", self.address, platform.namespace());
        let response = curl(&["-D", "-", &url]).await.unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let cookies = head.lines().filter_map(|line| line.split_once(": "));
        let cookies = cookies.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        let cookies: Vec<&str> = cookies.map(|(_, value)| value.split(';').next().unwrap()).collect();
        let entered: Value = serde_json::from_str(body).unwrap();
        let server = Server { address: self.address.clone(), cookies: cookies.join("; ") };
        (server, entered["session"].as_str().unwrap().to_owned())
    }
}

fn has_profile(timeline: &BTreeSet<String>, name: &str) -> bool {
    timeline.iter().any(|told| told.starts_with(name))
}

/// Waits until the collectors have events for the ends of all tasks and for something in the timeline: Ray does not export
/// all profiles. Returns the names of those that it has.
async fn events_arrive(platform: &Platform, told: &Told) -> BTreeSet<String> {
    eventually("events for what the dashboard has told", async || {
        let (mut ended, mut profiled) = (BTreeSet::new(), BTreeSet::new());
        for pod in pods(platform, "ray.io/is-ray-node=yes").await {
            let namespace = platform.namespace();
            let exec =
                platform.kubectl(&["exec", "-n", &namespace, &pod, "-c", "ray-history-collector", "--"]);
            let mut exec = tokio::process::Command::from(exec);
            let output =
                exec.args(["sh", "-c", "cat $(find /tmp/ray/event-data -name '*.jsonl')"]).output().await;
            for line in String::from_utf8_lossy(&output.unwrap().stdout).lines() {
                let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
                let lifecycle = &event["taskLifecycleEvent"];
                let mut states = lifecycle["stateTransitions"].as_array().into_iter().flatten();
                if states.any(|it| matches!(it["state"].as_str(), Some("FINISHED" | "FAILED"))) {
                    ended.insert(lifecycle["taskId"].to_string());
                }
                let profiles = event["taskProfileEvents"]["profileEvents"]["events"].as_array();
                profiled.extend(profiles.into_iter().flatten().map(|it| it["eventName"].to_string()));
            }
        }
        let is_profiled = profiled.iter().any(|name| has_profile(&told.timeline, name));
        (ended.len() >= told.tasks.len() && is_profiled).then_some(profiled)
    })
    .await
}

/// Runs a job, asks its dashboard, deletes the job with its cluster, and asks the history.
async fn is_read_back(platform: &Platform, mut object: Value, history: &HistoryServer) {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    object["spec"]["shutdownAfterJobFinishes"] = json!(false);
    platform.apply(&object).await;
    let job = succeeds(platform, &name).await;
    let cluster = job["status"]["rayClusterName"].as_str().unwrap().to_owned();
    let direct = Server { address: dashboard(platform, &cluster).await, cookies: String::new() };
    let before = eventually("the ends of all tasks on the dashboard", async || {
        let told = direct.told().await;
        let are_over = told.tasks.values().all(|task| task[1] == "FINISHED");
        (are_over && !told.timeline.is_empty() && !told.logs.is_empty()).then_some(told)
    })
    .await;
    assert!(before.tasks.len() >= 9, "{before:?}");
    // While the cluster runs, the history server asks its dashboard.
    let (live, session) = history.enter(platform, &name).await;
    assert_eq!(session, "live");
    assert_eq!(live.json("/api/jobs/").await, direct.json("/api/jobs/").await);
    let exported = events_arrive(platform, &before).await;

    let jobs = platform.objects("ray.io/v1", "RayJob").await;
    let _ = jobs.delete(&name, &DeleteParams::default()).await.unwrap();
    eventually("the end of all pods", async || {
        let listed =
            platform.pods().await.list(&ListParams::default().labels("ray.io/is-ray-node=yes")).await;
        listed.unwrap().items.is_empty().then_some(())
    })
    .await;
    let (stored, session) = history.enter(platform, &name).await;
    assert!(session.starts_with("session_"), "{session}");
    let after = stored.told().await;
    assert_eq!(after.tasks, before.tasks);
    assert_eq!(after.actors, before.actors);
    assert_eq!(after.jobs, before.jobs);
    assert_eq!(after.logs, before.logs);
    let has_all = exported.iter().all(|name| has_profile(&after.timeline, name));
    assert!(has_all, "{:?} {exported:?}", after.timeline);

    let mut logs = Program::built().command();
    logs.args([
        "logs",
        &format!("rayjob/{name}"),
        "--history",
        &history.address,
        "-n",
        &platform.namespace(),
    ]);
    let output = logs.env("KUBECONFIG", platform.kubeconfig()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("the total is 12"), "{text} {}", String::from_utf8_lossy(&output.stderr));
}

/// The specs of pods in a RayJob.
fn pod_specs(job: &mut Value) -> Vec<&mut Value> {
    let Value::Object(spec) = &mut job["spec"]["rayClusterSpec"] else { panic!("no cluster") };
    let groups = spec.iter_mut().filter_map(|(name, value)| match name.as_str() {
        "headGroupSpec" => Some(value),
        "workerGroupSpecs" => Some(&mut value[0]),
        _ => None,
    });
    groups.map(|group| &mut group["template"]["spec"]).collect()
}

/// What Ray exports: by default it leaves out profiles, which the timeline is made of.
const EVENTS: &str = "TASK_DEFINITION_EVENT,TASK_LIFECYCLE_EVENT,ACTOR_TASK_DEFINITION_EVENT,TASK_PROFILE_EVENT,\
    DRIVER_JOB_DEFINITION_EVENT,DRIVER_JOB_LIFECYCLE_EVENT,ACTOR_DEFINITION_EVENT,ACTOR_LIFECYCLE_EVENT,\
    NODE_DEFINITION_EVENT,NODE_LIFECYCLE_EVENT";

pub(crate) async fn a_job_is_read_back_from_a_directory(platform: &Platform) {
    let shared = SharedDirectory::new();
    let directory = shared.0.display().to_string();
    let mut object = job("remembered", &entrypoint());
    for (index, pod) in pod_specs(&mut object).into_iter().enumerate() {
        let is_head = index == 0;
        let field = |path: &str| json!({ "fieldRef": { "fieldPath": path } });
        let variables = json!([
            { "name": "POD_IP", "valueFrom": field("status.podIP") },
            { "name": "RAY_CLUSTER_NAME", "valueFrom": field("metadata.labels['ray.io/cluster']") },
            { "name": "RAY_CLUSTER_NAMESPACE", "valueFrom": field("metadata.namespace") },
            { "name": "FQ_RAY_IP", "value": "$(RAY_CLUSTER_NAME)-head-svc" },
            { "name": "OWNER_KIND", "value": "RayJob" }, { "name": "OWNER_NAME", "value": "remembered" },
            { "name": "RAY_ROLE", "value": if is_head { "Head" } else { "Worker" } },
            { "name": "STORAGE_BACKEND", "value": "local" }, { "name": "STORAGE_DIR", "value": "/history" },
        ]);
        let mounts = json!([{ "name": "ray", "mountPath": "/tmp/ray" }, { "name": "history", "mountPath": "/history" }]);
        let exported = [
            ("RAY_enable_ray_event", "true"),
            ("RAY_enable_core_worker_ray_event_to_aggregator", "true"),
            ("RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR", "http://localhost:8084/v1/events"),
            ("RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES", EVENTS),
        ];
        let exported: Vec<Value> =
            exported.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        pod["containers"][0]["env"] = json!(exported);
        pod["containers"][0]["volumeMounts"] = json!([mounts[0]]);
        pod["containers"].as_array_mut().unwrap().push(json!({ "name": "ray-history-collector",
            "image": "quintet-collector", "env": variables, "volumeMounts": mounts }));
        pod["volumes"] = json!([{ "name": "ray", "emptyDir": {} },
            { "name": "history", "hostPath": { "path": directory, "type": "Directory" } }]);
    }
    let arguments = ["--storage-backend", "local", "--storage-dir", &directory];
    let history = HistoryServer::start(platform, &arguments, &[]);
    is_read_back(platform, object, &history).await;
}

/// A directory that pods may write to: in the home of the user, because that of the platform has its keys.
struct SharedDirectory(PathBuf);

impl SharedDirectory {
    fn new() -> Self {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap());
        let path = home.join(format!("quintet-history-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        Self(path)
    }
}

impl Drop for SharedDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Serves S3 in a pod.
const S3: &str = "
import threading
from moto.server import ThreadedMotoServer

ThreadedMotoServer(ip_address='0.0.0.0', port=9000).start()
threading.Event().wait()
";

pub(crate) async fn a_job_is_read_back_from_s3(platform: &Platform) {
    if let Some(reason) = platform.image_obstacle("moto").await {
        println!("skipped: no S3 server can be installed: {reason}");
        return;
    }
    let container = json!({ "name": "main", "image": "moto", "command": ["python", "-c", S3],
        "readinessProbe": { "tcpSocket": { "port": 9000 }, "periodSeconds": 1 } });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "s3", "labels": { "app": "s3" } },
        "spec": { "containers": [container] } });
    platform.apply(&pod).await;
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s3" },
        "spec": { "selector": { "app": "s3" }, "ports": [{ "port": 9000 }] } });
    platform.apply(&service).await;
    let is_ready = |pod: &Value| pod["status"]["containerStatuses"][0]["ready"] == true;
    let pod = platform.wait(("v1", "Pod", "s3"), "ready", is_ready).await;
    let credentials = [
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("S3_REGION", "us-east-1"),
        ("S3FORCE_PATH_STYLE", "true"),
        ("STORAGE_BACKEND", "s3"),
    ];
    let mut variables: Vec<Value> =
        credentials.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    variables.push(json!({ "name": "S3_ENDPOINT", "value": "http://s3:9000" }));
    let mut object = job("distant", &entrypoint());
    object["spec"]["rayClusterSpec"]["historyServerOptions"] =
        json!({ "collectorOptions": { "image": "quintet-collector", "env": variables } });
    let mut own: Vec<(&str, String)> =
        credentials.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    own.push(("S3_ENDPOINT", format!("http://{}:9000", pod["status"]["podIP"].as_str().unwrap())));
    let history = HistoryServer::start(platform, &[], &own);
    is_read_back(platform, object, &history).await;
}
