//! `quintet queue` on `quintet up`, with simulated nodes: every command as a user types it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

/// A running `quintet up`; killed if the test fails.
struct Up {
    process: Child,
    directory: PathBuf,
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Up {
    fn start() -> Self {
        let directory = std::env::temp_dir().join(format!("quintet-queue-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let config = directory.join("config.yaml");
        let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  frameworks: [batch/job, pod]\n";
        std::fs::write(&config, text).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_quintet"))
            .args(["up", "--in-memory", "--port", "0", "--simulate-nodes", "1", "--components", "queue"])
            .arg("--config")
            .arg(&config)
            .arg("--data-dir")
            .arg(&directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let is_up = lines.by_ref().map_while(Result::ok).any(|line| line.starts_with("Quintet is up"));
        let up = Self { process, directory };
        assert!(is_up);
        // Whoever prints into a closed pipe dies; this one is read to its end.
        std::thread::spawn(move || lines.for_each(drop));
        up
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig-in-memory")
    }

    /// What a command prints; it must succeed.
    fn queue(&self, arguments: &[&str]) -> String {
        let (succeeded, text) = self.try_queue(arguments);
        assert!(succeeded, "quintet queue {}: {text}", arguments.join(" "));
        text
    }

    /// Whether a command succeeds, and what it prints.
    fn try_queue(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_quintet"))
            .arg("queue")
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    /// Repeats a command until it prints what is expected.
    fn await_output(&self, arguments: &[&str], expected: impl Fn(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let text = self.queue(arguments);
            if expected(&text) {
                return text;
            }
            assert!(
                started.elapsed() < Duration::from_mins(2),
                "quintet queue {}: {text}",
                arguments.join(" ")
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

async fn client(kubeconfig: &Path) -> Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn template(cpus: &str) -> Value {
    json!({ "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [
        { "name": "c", "image": "example.com/image:1", "resources": { "requests": { "cpu": cpus } } }] })
}

async fn create_job(client: &Client, name: &str, cpus: &str) {
    let job = json!({ "metadata": { "name": name, "labels": { "kueue.x-k8s.io/queue-name": "team" } },
        "spec": { "template": { "metadata": { "annotations": { "node.quintet.dev/run-for": "1h" } },
            "spec": template(cpus) } } });
    let job: Job = serde_json::from_value(job).unwrap();
    Api::<Job>::default_namespaced(client.clone()).create(&PostParams::default(), &job).await.unwrap();
}

fn contains_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_made_watched_stopped_and_filled() {
    let up = Up::start();
    let client = client(&up.kubeconfig()).await;
    let created = up.queue(&["create", "rf", "default"]);
    assert_eq!(created, "resourceflavor.kueue.x-k8s.io/default created\n");
    for name in ["research", "sales"] {
        up.queue(&["create", "cq", name, "--cohort", "company", "--nominal-quota", "default:cpu=2"]);
    }
    let (succeeded, refused) = up.try_queue(&["create", "lq", "team", "-c", "reserch"]);
    assert!(!succeeded && refused.contains("ClusterQueue reserch does not exist"), "{refused}");
    up.queue(&["create", "lq", "team", "-c", "research"]);
    let (succeeded, refused) = up.try_queue(&["create", "lq", "team", "-c", "research"]);
    assert!(!succeeded && refused.contains("LocalQueue team already exists"), "{refused}");

    create_job(&client, "first", "3").await;
    up.await_output(&["list", "wl", "--for", "job/first"], |text| text.contains("ADMITTED"));
    create_job(&client, "second", "2").await;
    let listed = up.await_output(&["list", "wl", "--status", "pending"], |text| text.contains("PENDING"));
    contains_all(&listed, &["POSITION IN QUEUE", "job.batch", "second", "team", "research"]);
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[6], "0", "the visibility API says where: {listed}");
    up.await_output(&["list", "cq", "--active"], |text| text.contains("research   company   1 "));
    contains_all(&up.queue(&["list", "lq", "-A"]), &["NAMESPACE", "default     team   research"]);
    contains_all(&up.queue(&["list", "rf"]), &["NAME", "default"]);
    up.await_output(&["list", "pods", "--for", "job/first"], |text| text.contains("Running"));

    let pending = up.queue(&["pending"]);
    contains_all(&pending, &["research", "job-second-", "insufficient unused quota for cpu", "in 5"]);
    let pending: Value = serde_json::from_str(&up.queue(&["pending", "-o", "json"])).unwrap();
    let item = &pending["items"][0];
    assert_eq!((&item["position"], &item["job"]), (&json!(0), &json!("job/second")), "{pending}");
    assert!(item["expectedStart"].is_string(), "{pending}");
    let borrowing = up.queue(&["borrowing"]);
    contains_all(&borrowing, &["research borrows 1 cpu of default, from what sales did not use."]);
    let why = up.queue(&["explain", "job/second"]);
    contains_all(
        &why,
        &["1 cpu of default more needed", "held by: default/job-first-", "Expected start: in "],
    );
    let what_if = up.queue(&["what-if", "--finish", "job/first"]);
    contains_all(&what_if, &["Would start:\n- default/job-second-"]);
    let larger = up.directory.join("larger.yaml");
    let text = up.queue(&[
        "create",
        "cq",
        "research",
        "--cohort",
        "company",
        "--nominal-quota",
        "default:cpu=9",
        "--dry-run",
        "client",
        "-o",
        "yaml",
    ]);
    std::fs::write(&larger, text).unwrap();
    let what_if = up.queue(&["what-if", "-f", larger.to_str().unwrap(), "-o", "yaml"]);
    contains_all(&what_if, &["wouldStart:", "job-second-"]);

    let workload = item["name"].as_str().unwrap();
    assert_eq!(up.queue(&["stop", "wl", workload]), format!("workload.kueue.x-k8s.io/{workload} stopped\n"));
    up.await_output(&["pending"], |text| text.contains("the workload is not active"));
    up.queue(&["resume", "wl", workload]);
    assert_eq!(
        up.queue(&["stop", "cq", "sales", "--keep-already-running"]),
        "clusterqueue.kueue.x-k8s.io/sales stopped\n"
    );
    up.await_output(&["list", "cq", "--active=false"], |text| text.contains("sales"));
    up.queue(&["resume", "cq", "sales"]);
    up.await_output(&["list", "cq", "--active=false"], |text| !text.contains("sales"));
    let (succeeded, asked) = up.try_queue(&["delete", "wl", workload]);
    contains_all(&asked, &["- job.batch/second associated with the", "give --yes"]);
    assert!(!succeeded, "nobody answers");
    assert_eq!(up.queue(&["delete", "wl", workload, "--yes"]), "job.batch/second deleted\n");
    up.await_output(&["pending"], |text| text.contains("Nothing is pending in the namespace default."));

    let pod = json!({ "metadata": { "name": "plain", "labels": { "project": "a" },
        "annotations": { "node.quintet.dev/run-for": "1h" } }, "spec": template("1") });
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let import = ["import", "-n", "default", "--queuelabel", "project", "--queuemapping"];
    let (succeeded, wrong) = up.try_queue(&[&import[..], &["b=team"]].concat());
    assert!(!succeeded, "{wrong}");
    contains_all(&wrong, &["no --queuemapping for project=a: default/plain", "nothing was changed"]);
    let checked = up.queue(&[&import[..], &["a=team"]].concat());
    contains_all(&checked, &["1 to import", "give --dry-run=false"]);
    let (succeeded, denied) = up.try_queue(&[&import[..], &["a=team", "--dry-run=false"]].concat());
    assert!(!succeeded && denied.contains("field is immutable"), "the framework is enabled: {denied}");
}
