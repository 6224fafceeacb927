//! `kill -9` of `quintet up` at random moments, under a running RayJob.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kube::api::{Api, DeleteParams, ListParams};
use quintet_controller::rng::Rng;
use serde_json::{Value, json};

use crate::ray::{job, python, ray_job, succeeds};
use crate::support::{Platform, eventually, processes};

/// The longest time between two kills. A start takes about a second, so some kills hit a start and some do not.
const LONGEST: u64 = 6000;
/// Kills where nothing else is asked for; `make platform-faults` asks for 50.
const KILLS: u64 = 4;

/// A number of the environment.
fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

pub(crate) async fn a_job_finishes_although_the_platform_is_killed(platform: &Platform) {
    let kills = variable("QUINTET_PLATFORM_KILLS").unwrap_or(KILLS);
    let seed = variable("QUINTET_PLATFORM_SEED").unwrap_or(1);
    println!("QUINTET_PLATFORM_KILLS={kills} QUINTET_PLATFORM_SEED={seed}");
    let rng = Rng::seeded(seed);
    let mut containers = Containers::default();
    platform.apply(&claim()).await;
    platform.apply(&endless_job()).await;
    // While the cluster starts.
    kill(platform, &rng, kills / 4).await;
    let is_running = |job: &Value| job["status"]["jobStatus"] == "RUNNING";
    platform.wait(ray_job("endless"), "running", is_running).await;
    containers.observe(platform).await;
    // While the job runs.
    kill(platform, &rng, kills / 2).await;
    containers.observe(platform).await;
    // While the job ends and its cluster is removed.
    let shared = shared_directory(platform).await;
    std::fs::write(shared.join("finish"), "").unwrap();
    kill(platform, &rng, kills - kills / 4 - kills / 2).await;
    let job = succeeds(platform, "endless").await;
    assert_eq!(job["status"]["failed"], 0, "{}", job["status"]);
    containers.observe(platform).await;
    containers.check(&shared);
    leaves_nothing(platform).await;
}

/// Kills `quintet up` this often, and starts it again each time. It runs afterwards.
async fn kill(platform: &Platform, rng: &Rng, kills: u64) {
    for left in (0..kills).rev() {
        tokio::time::sleep(Duration::from_millis(rng.below(LONGEST))).await;
        platform.kill();
        if left == 0 {
            platform.up();
        } else {
            platform.launch();
        }
    }
}

fn claim() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "shared" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } },
    })
}

/// Works until it finds a file. Every start of a container and of the job leaves a file with its name.
fn endless_job() -> Value {
    let work = python(
        "import os, ray, tempfile, time
tempfile.mkstemp(prefix=\"job.\", dir=\"/shared\")
ray.init()
work = ray.remote(num_cpus=1, max_retries=-1)(lambda: 1)
while not os.path.exists(\"/shared/finish\"):
    ray.get(work.remote())
    time.sleep(0.2)
print(\"finished\")",
    );
    let mut object = job("endless", &work);
    let cluster = &mut object["spec"]["rayClusterSpec"];
    for template in ["/headGroupSpec/template", "/workerGroupSpecs/0/template"] {
        let pod = &mut cluster.pointer_mut(template).unwrap()["spec"];
        pod["securityContext"] = json!({ "fsGroup": 2000 });
        pod["volumes"] = json!([{ "name": "shared", "persistentVolumeClaim": { "claimName": "shared" } }]);
        let container = &mut pod["containers"][0];
        container["volumeMounts"] = json!([{ "name": "shared", "mountPath": "/shared" }]);
        let note = ["sh", "-c", "mktemp /shared/$HOSTNAME.XXXXXX"];
        container["lifecycle"] = json!({ "postStart": { "exec": { "command": note } } });
    }
    object
}

/// Where the volume of the pods is on this machine.
async fn shared_directory(platform: &Platform) -> PathBuf {
    let is_bound = |claim: &Value| claim["status"]["phase"] == "Bound";
    let claim = platform.wait(("v1", "PersistentVolumeClaim", "shared"), "bound", is_bound).await;
    let volumes: Api<PersistentVolume> = Api::all(platform.client().await);
    let volume = volumes.get(claim["spec"]["volumeName"].as_str().unwrap()).await.unwrap();
    volume.spec.unwrap().host_path.unwrap().path.into()
}

/// How often containers were started, by pod and name.
#[derive(Default)]
struct Containers(BTreeMap<(String, String), u64>);

impl Containers {
    /// Counts the starts of all containers. One is started again only when it has ended by itself, with an exit code that
    /// is known: names are not resolved while `quintet up` does not run, and Ray gives up when that lasts.
    async fn observe(&mut self, platform: &Platform) {
        let pods: Api<Pod> = platform.pods().await;
        for pod in pods.list(&ListParams::default()).await.unwrap() {
            let pod = serde_json::to_value(pod).unwrap();
            let name = pod["metadata"]["name"].as_str().unwrap();
            for status in pod["status"]["containerStatuses"].as_array().into_iter().flatten() {
                for end in [&status["state"]["terminated"], &status["lastState"]["terminated"]] {
                    let code = end["exitCode"].as_i64().unwrap_or_default();
                    assert!(code == 0 || (end["reason"] == "Error" && code == 1), "{name}: {status}");
                    if code != 0 {
                        println!("{name}: {} failed by itself: {end}", status["name"]);
                    }
                }
                let key = (name.to_owned(), status["name"].as_str().unwrap().to_owned());
                self.0.insert(key, 1 + status["restartCount"].as_u64().unwrap());
            }
        }
    }

    /// There was one head and one worker, and nothing else was started than what is known of.
    fn check(&self, shared: &Path) {
        let count = |name: &str| self.0.keys().filter(|(_, container)| container == name).count();
        assert_eq!(["ray-head", "ray-worker"].map(count), [1, 1], "{:?}", self.0);
        let mut starts: BTreeMap<String, u64> = BTreeMap::new();
        for entry in std::fs::read_dir(shared).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            *starts.entry(name.split('.').next().unwrap().to_owned()).or_default() += 1;
        }
        println!("starts: {starts:?}, known: {:?}", self.0);
        assert_eq!(starts.get("job"), Some(&1), "the job ran once");
        // A kubelet that dies between the start of a container and its hook leaves no file.
        for (pod, count) in starts.iter().filter(|(name, _)| !["job", "finish"].contains(&name.as_str())) {
            let known = self.0.iter().find(|((one, _), _)| one == pod).map(|(_, known)| known);
            assert!(known.is_some_and(|known| count <= known), "{pod} ran more often than is known");
        }
    }
}

/// Pods that are deleted leave neither processes nor files.
async fn leaves_nothing(platform: &Platform) {
    let jobs = platform.objects("ray.io/v1", "RayJob").await;
    let _ = jobs.delete("endless", &DeleteParams::default()).await.unwrap();
    let pods = platform.directory().join("node/pods");
    let place = pods.display().to_string();
    eventually("the end of all pods", async || {
        let is_empty = std::fs::read_dir(&pods).unwrap().next().is_none();
        (is_empty && !processes().contains(&place)).then_some(())
    })
    .await;
}
