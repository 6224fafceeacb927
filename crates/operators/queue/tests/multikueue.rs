//! A manager cluster and two worker clusters, each with its own API, operator, Job controller and nodes, connected by
//! HTTPS with the kubeconfigs of Secrets. Time is real.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

#[path = "bed/mod.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod bed;

use std::net::SocketAddr;
use std::time::Duration;

use bed::{Bed, condition, job, kueue_template, setting};
use quintet_golden::{Caller, ObjectId, Setting, template_with};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
/// Where the operator of the manager expects Secrets.
const OPERATOR_NAMESPACE: &str = "kueue-system";
/// Much longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(40);

/// A connection between clusters that can be cut.
struct Cable {
    address: SocketAddr,
    server: SocketAddr,
    carrier: Option<JoinHandle<()>>,
}

impl Cable {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let carrier = Some(carry(listener, server));
        Self { address, server, carrier }
    }

    async fn cut(&mut self) {
        if let Some(carrier) = self.carrier.take() {
            carrier.abort();
            let _ = carrier.await;
        }
    }

    async fn restore(&mut self) {
        self.carrier = Some(carry(TcpListener::bind(self.address).await.unwrap(), self.server));
    }
}

#[expect(clippy::disallowed_methods, reason = "aborted by its owner, with all connections")]
fn carry(listener: TcpListener, server: SocketAddr) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            connections.spawn(async move {
                let mut upstream = TcpStream::connect(server).await?;
                tokio::io::copy_bidirectional(&mut client, &mut upstream).await
            });
        }
    })
}

struct Clusters {
    manager: Bed,
    workers: [(Bed, Cable); 2],
}

const WORKERS: [&str; 2] = ["worker1", "worker2"];

/// Waits until something holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn cluster(template: &quintet_golden::Api, seed: u64, setting: Setting) -> Bed {
    let bed = Bed::new(template, seed, setting.clone()).await;
    // Requests of other clusters are admitted, too.
    bed.world.serve_webhooks(&quintet_queue::component(), &setting).await.unwrap();
    bed
}

impl Clusters {
    /// A manager with 10 CPUs, and workers with these.
    async fn new(cpus: [u32; 2]) -> Self {
        let template = kueue_template().await;
        let frameworks = "integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}";
        let worker = || setting(frameworks);
        let manager = setting(&format!("{frameworks}\nmultiKueue: {{workerLostTimeout: 1s}}"));
        let manager = cluster(&template, 1, manager).await;
        let mut workers = Vec::new();
        for (index, cpus) in cpus.into_iter().enumerate() {
            let bed = cluster(&template, 2 + index as u64, worker()).await;
            bed.add_queue(cpus, json!({})).await;
            let kubeconfig = bed.world.serve_https().await.unwrap();
            let server = server_of(&kubeconfig);
            let cable = Cable::to(server).await;
            let kubeconfig = kubeconfig.replace(&server.to_string(), &cable.address.to_string());
            workers.push((bed, cable));
            join(&manager, WORKERS[index], &kubeconfig, index == 0).await;
        }
        let config = json!({ "apiVersion": KUEUE, "kind": "MultiKueueConfig", "metadata": { "name": "workers" },
            "spec": { "clusters": WORKERS } });
        let check = json!({ "apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": { "name": "multikueue" },
            "spec": { "controllerName": "kueue.x-k8s.io/multikueue", "parameters": {
                "apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "workers" } } });
        for object in [config, check] {
            manager.create(&object).await;
        }
        let strategy = json!({ "admissionChecks": [{ "name": "multikueue" }] });
        manager.add_queue(10, json!({ "admissionChecksStrategy": strategy })).await;
        Self { manager, workers: workers.try_into().ok().unwrap() }
    }

    fn worker(&self, index: usize) -> &Bed {
        &self.workers[index].0
    }

    async fn await_check(&self, expected: &str) {
        until(expected, async || {
            let check = self.manager.get("AdmissionCheck", "multikueue").await.unwrap_or_default();
            condition(&check, "Active") == expected
        })
        .await;
    }
}

/// Where a kubeconfig leads.
fn server_of(kubeconfig: &str) -> SocketAddr {
    let (_, rest) = kubeconfig.split_once("https://").unwrap();
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).unwrap_or(rest.len());
    rest[..end].parse().unwrap()
}

/// Lets a manager know a worker.
async fn join(manager: &Bed, name: &str, kubeconfig: &str, is_first: bool) {
    if is_first {
        manager
            .create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": OPERATOR_NAMESPACE } }))
            .await;
    }
    let secret = json!({ "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": name, "namespace": OPERATOR_NAMESPACE }, "stringData": { "kubeconfig": kubeconfig } });
    let cluster = json!({ "apiVersion": KUEUE, "kind": "MultiKueueCluster", "metadata": { "name": name },
        "spec": { "clusterSource": { "kubeConfig": { "location": name, "locationType": "Secret" } } } });
    for object in [secret, cluster] {
        manager.create(&object).await;
    }
}

fn check_of(workload: &Value) -> (String, String) {
    let check = &workload["status"]["admissionChecks"][0];
    let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
    (text("state"), text("message"))
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test());
    runtime.shutdown_background();
}

#[test]
fn a_job_runs_on_the_cluster_that_admits_it_and_its_end_is_reported() {
    run(async || {
        let clusters = Clusters::new([1, 4]).await;
        let manager = &clusters.manager;
        clusters.await_check("True Active").await;
        manager.create(&job("a", 2, "3s", &[])).await;
        let created = manager.get("Job", "a").await.unwrap();
        assert_eq!(created["spec"]["managedBy"], "kueue.x-k8s.io/multikueue", "{created:#}");

        until("the Job runs on the second worker", async || clusters.worker(1).is_running("a").await).await;
        let remote = clusters.worker(1).get("Job", "a").await.unwrap();
        assert_eq!(remote["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"], "multikueue");
        assert!(remote["spec"]["managedBy"].is_null(), "{remote:#}");
        until("its status is reported", async || manager.is_running("a").await).await;
        let workload = manager.workload("a").await;
        let (state, message) = check_of(&workload);
        assert_eq!((state.as_str(), message.as_str()), ("Ready", "The workload was admitted on \"worker2\""));
        assert_eq!(workload["status"]["clusterName"], "worker2");
        let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
        until("the other copy is removed", async || {
            clusters.worker(0).get("Workload", &name).await.is_none()
        })
        .await;

        until("the Job ends here", async || {
            condition(&manager.get("Job", "a").await.unwrap(), "Complete").starts_with("True")
        })
        .await;
        until("so does its Workload", async || {
            condition(&manager.workload("a").await, "Finished") == "True Succeeded"
        })
        .await;
        until("nothing is left on the worker", async || {
            let worker = clusters.worker(1);
            worker.get("Job", "a").await.is_none() && worker.get("Workload", &name).await.is_none()
        })
        .await;
    });
}

#[test]
fn an_elastic_job_grows_and_shrinks_on_the_cluster_that_runs_it() {
    run(async || {
        let clusters = Clusters::new([1, 6]).await;
        let (manager, worker) = (&clusters.manager, clusters.worker(1));
        clusters.await_check("True Active").await;
        let mut elastic = job("a", 2, "", &[]);
        elastic["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/elastic-job": "true" });
        elastic["spec"]["completions"] = 9.into();
        manager.create(&elastic).await;
        until("the Job runs on the second worker", async || worker.is_running("a").await).await;
        until("its status is reported", async || manager.is_running("a").await).await;
        for size in [3, 1, 2] {
            manager.patch("Job", "a", &json!({ "spec": { "parallelism": size } })).await;
            until("it has its new size there, and so many pods", async || {
                let job = worker.get("Job", "a").await.unwrap();
                job["spec"]["parallelism"] == size && job["status"]["ready"] == size
            })
            .await;
        }
        for bed in [manager, worker] {
            for (id, workload) in bed.world.objects().await.unwrap() {
                let finished = condition(&workload, "Finished");
                let is_fine = finished.is_empty() || finished == "True WorkloadSliceReplaced";
                assert!(id.kind != "Workload" || is_fine, "{finished}: {workload:#}");
            }
        }
    });
}

#[test]
fn a_job_on_a_lost_cluster_is_sent_to_another_and_left_overs_are_removed() {
    run(async || {
        let mut clusters = Clusters::new([1, 4]).await;
        clusters.await_check("True Active").await;
        clusters.manager.create(&job("a", 2, "", &[])).await;
        until("the Job runs on the second worker", async || clusters.worker(1).is_running("a").await).await;
        until("its status is reported", async || clusters.manager.is_running("a").await).await;

        clusters.workers[1].1.cut().await;
        clusters.await_check("True SomeActiveClusters").await;
        let cluster = clusters.manager.get("MultiKueueCluster", "worker2").await.unwrap();
        assert_eq!(condition(&cluster, "Active"), "False ClientConnectionFailed", "{cluster:#}");
        let quota = json!({ "spec": { "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
            { "name": "default", "resources": [{ "name": "cpu", "nominalQuota": "4" }] }] }] } });
        clusters.worker(0).patch("ClusterQueue", "cq", &quota).await;
        until("the Job runs on the first worker", async || clusters.worker(0).is_running("a").await).await;
        until("its Workload says so", async || {
            clusters.manager.workload("a").await["status"]["clusterName"] == "worker1"
        })
        .await;

        clusters.workers[1].1.restore().await;
        clusters.await_check("True Active").await;
        until("the Job is removed from the second worker", async || {
            clusters.worker(1).get("Job", "a").await.is_none()
        })
        .await;
        assert!(clusters.worker(0).is_running("a").await);

        clusters.manager.delete("Job", "a").await;
        until("it is removed from the first worker, too", async || {
            clusters.worker(0).get("Job", "a").await.is_none()
        })
        .await;
    });
}

#[test]
fn a_kubeconfig_that_is_missing_or_insecure_is_reported_until_it_is_replaced() {
    run(async || {
        let clusters = Clusters::new([1, 1]).await;
        let manager = &clusters.manager;
        clusters.await_check("True Active").await;
        let secret = quintet_golden::ObjectId {
            kind: "Secret".to_owned(),
            namespace: OPERATOR_NAMESPACE.to_owned(),
            name: "worker1".to_owned(),
        };
        let good = manager.world.get(&secret).await.unwrap().unwrap()["data"].clone();
        let bad = json!({ "stringData": { "kubeconfig":
            "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: 'https://w', insecure-skip-tls-verify: true}}]}" } });
        manager.world.patch(&secret, None, &bad).await.unwrap();
        let reported = async |expected: &str| {
            until(expected, async || {
                let cluster = manager.get("MultiKueueCluster", "worker1").await.unwrap();
                condition(&cluster, "Active") == expected
            })
            .await;
        };
        reported("False InsecureKubeConfig").await;
        clusters.await_check("True SomeActiveClusters").await;
        manager.world.patch(&secret, None, &json!({ "data": good })).await.unwrap();
        reported("True Active").await;
        manager.world.delete(&secret).await.unwrap();
        reported("False BadKubeConfig").await;
    });
}

/// The kind of ClusterProfiles, which comes with an inventory of clusters.
fn cluster_profiles() -> Value {
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "clusterprofiles.multicluster.x-k8s.io" },
        "spec": { "group": "multicluster.x-k8s.io", "scope": "Namespaced",
            "names": { "kind": "ClusterProfile", "listKind": "ClusterProfileList", "plural": "clusterprofiles",
                "singular": "clusterprofile" },
            "versions": [{ "name": "v1alpha1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }] } })
}

/// A token for a cluster, of a ServiceAccount that may do everything there.
async fn token_for(cluster: &Bed) -> String {
    let rbac = "rbac.authorization.k8s.io";
    let everything = json!({ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] });
    for object in [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "manager", "namespace": "default" } }),
        json!({ "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": { "name": "manager" },
            "rules": [everything] }),
        json!({ "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "manager" },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "manager" },
            "subjects": [{ "kind": "ServiceAccount", "name": "manager", "namespace": "default" }] }),
    ] {
        cluster.create(&object).await;
    }
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let request = http::Request::post("/api/v1/namespaces/default/serviceaccounts/manager/token")
        .header("content-type", "application/json")
        .body(request.to_string().into_bytes())
        .unwrap();
    let administrator = Caller::known("kubernetes-admin", ["system:masters".to_owned()]);
    let response = cluster.world.client(administrator).request::<Value>(request).await.unwrap();
    response["status"]["token"].as_str().unwrap().to_owned()
}

/// An HTTP proxy whose tunnels all lead to one server.
async fn proxy_to(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async move {
        let mut tunnels = tokio::task::JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            tunnels.spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(client.read_u8().await?);
                }
                assert!(request.starts_with(b"CONNECT worker.invalid:443 "));
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
                let mut upstream = TcpStream::connect(server).await?;
                tokio::io::copy_bidirectional(&mut client, &mut upstream).await
            });
        }
    };
    #[expect(clippy::disallowed_methods, reason = "ends with the runtime of the test")]
    drop(tokio::spawn(serve));
    address
}

/// A program that prints the token of a file as an ExecCredential.
struct Plugin(std::path::PathBuf);

impl Plugin {
    fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("quintet-plugin-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let script = "#!/bin/sh\nset -e\ntoken=$(cat \"$TOKEN_FILE\")\n\
            echo '{\"kind\": \"ExecCredential\", \"apiVersion\": \"client.authentication.k8s.io/v1\",'\n\
            echo ' \"status\": {\"token\": \"'$token'\"}}'\n";
        std::fs::write(directory.join("plugin"), script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.join("plugin"), mode).unwrap();
        Self(directory)
    }

    fn configuration(&self) -> String {
        let config = json!({ "clusterProfile": { "accessProviders": [{ "name": "file", "execConfig": {
            "command": self.0.join("plugin"), "apiVersion": "client.authentication.k8s.io/v1",
            "interactiveMode": "Never", "provideClusterInfo": true,
            "env": [{ "name": "TOKEN_FILE", "value": self.0.join("token") }] } }] } });
        format!("featureGates: {{MultiKueueClusterProfile: true}}\nmultiKueue: {config}")
    }

    fn set_token(&self, token: &str) {
        std::fs::write(self.0.join("token"), token).unwrap();
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_cluster_of_a_cluster_profile_is_reached_with_the_credentials_of_a_program() {
    run(async || {
        let kueue = (quintet_queue::component().crds)();
        let template = template_with(&kueue, vec![cluster_profiles()]).await.unwrap();
        let worker = cluster(&template, 2, setting("")).await;
        let kubeconfig = worker.world.serve_https().await.unwrap();
        let authority =
            kubeconfig.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: "));
        let token = token_for(&worker).await;

        let plugin = Plugin::new();
        let manager = Bed::new(&template, 1, setting(&plugin.configuration())).await;
        for object in [
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": OPERATOR_NAMESPACE } }),
            json!({ "apiVersion": KUEUE, "kind": "MultiKueueCluster", "metadata": { "name": "worker1" },
                "spec": { "clusterSource": { "clusterProfileRef": { "name": "profile" } } } }),
        ] {
            manager.create(&object).await;
        }
        let reported = async |reason: &str, message: &str| {
            until(&format!("{reason}: {message}"), async || {
                let cluster = manager.get("MultiKueueCluster", "worker1").await.unwrap();
                let said =
                    cluster["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned();
                condition(&cluster, "Active") == reason && said.contains(message)
            })
            .await;
        };
        let bad = "False BadClusterProfile";
        reported(
            bad,
            "load client config failed: ClusterProfile.multicluster.x-k8s.io \"profile\" not found",
        )
        .await;

        let profile = ObjectId::parse(&format!("ClusterProfile {OPERATOR_NAMESPACE}/profile")).unwrap();
        let object = json!({ "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
            "metadata": { "name": "profile", "namespace": OPERATOR_NAMESPACE },
            "spec": { "clusterManager": { "name": "test" } } });
        manager.create(&object).await;
        reported(bad, "no matching cluster accessor found for cluster profile \"profile\"").await;

        let provide = async |mut cluster: Value| {
            cluster["certificate-authority-data"] = authority.unwrap().into();
            let status = json!({ "status": { "accessProviders": [{ "name": "file", "cluster": cluster }] } });
            let answer = manager.world.patch(&profile, Some("status"), &status).await.unwrap();
            assert_eq!(answer.code, 200, "{:?}", answer.message);
        };
        let server = server_of(&kubeconfig);
        provide(json!({ "server": format!("https://{server}") })).await;
        reported("False ClientConnectionFailed", "plugin failed with exit code 1").await;
        plugin.set_token(&token);
        reported("True Active", "Connected").await;

        provide(json!({ "server": "worker" })).await;
        reported("False BadRestConfig", "load client config failed: untrusted server endpoint").await;
        // Nothing but the proxy knows where this host is.
        let proxy = proxy_to(server).await;
        let behind = json!({ "server": "https://worker.invalid", "tls-server-name": server.ip().to_string(),
            "proxy-url": format!("http://{proxy}") });
        provide(behind).await;
        reported("True Active", "Connected").await;
        manager.world.delete(&profile).await.unwrap();
        reported(bad, "not found").await;
    });
}
