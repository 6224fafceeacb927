//! A cluster with one real node.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, DeleteParams, ListParams, LogParams, PostParams, WatchEvent, WatchParams};
use quintet_apiserver::{Clock, Cluster};
use quintet_kubelet::{Kubelet, Settings};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The timeout of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
const NAMESPACE: &str = "default";

/// Skips a test where namespaces cannot be made.
macro_rules! needs_root {
    () => {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: pods as processes need root");
            return;
        }
    };
}
pub(crate) use needs_root;

/// A cluster with one real node.
pub(crate) struct Bed {
    pub(crate) client: kube::Client,
    pub(crate) cluster: Cluster,
    pub(crate) node: String,
    pub(crate) data: tempfile::TempDir,
    kubelet: Option<Kubelet>,
    change: fn(&mut Settings),
}

impl Bed {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: fn(&mut Settings)) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let settings = quintet_apiserver::Settings::default();
        let cluster = Cluster::start(settings).await.unwrap();
        let client = cluster.api().admin_client();
        let node = format!("node-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut bed =
            Self { client, cluster, node, data: tempfile::tempdir().unwrap(), kubelet: None, change };
        let account = json!({ "metadata": { "name": "default" } });
        // The controller that makes it is not part of this cluster.
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(bed.client.clone(), NAMESPACE);
        let _ = accounts.create(&PostParams::default(), &typed(account)).await;
        bed.start_kubelet().await;
        bed
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.data.path().join("node")
    }

    /// Starts the kubelet, as after a crash or an upgrade.
    pub(crate) async fn start_kubelet(&mut self) {
        let program = Path::new(env!("CARGO_BIN_EXE_quintet-kubelet-shim")).to_owned();
        let mut settings = Settings::new(&self.node, self.directory(), program);
        settings.private = vec![self.data.path().to_owned()];
        settings.offline = true;
        (self.change)(&mut settings);
        let kubelet = quintet_kubelet::start(self.client.clone(), &Clock::system(), settings).await.unwrap();
        self.cluster.api().kubelets().register(&self.node, kubelet.handler());
        let metrics = ("metrics.k8s.io", "v1beta1");
        self.cluster.api().serve_group(metrics, "metrics-server", kubelet.handler()).await.unwrap();
        self.kubelet = Some(kubelet);
    }

    /// Stops the kubelet and leaves its pods running.
    pub(crate) async fn stop_kubelet(&mut self) {
        if let Some(kubelet) = self.kubelet.take() {
            kubelet.stop().await;
        }
    }

    /// Ends everything.
    pub(crate) async fn end(mut self) {
        if let Some(kubelet) = self.kubelet.take() {
            kubelet.shut_down().await.unwrap();
        }
        let left: Vec<_> = self.directory().join("pods").read_dir().into_iter().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + Serialize
            + Clone
            + Debug,
    {
        self.api::<K>().create(&PostParams::default(), &typed(object)).await.unwrap()
    }

    /// Creates a pod on the node.
    pub(crate) async fn pod(&self, name: &str, mut spec: Value) -> Pod {
        spec["nodeName"] = json!(self.node);
        self.create(json!({ "metadata": { "name": name }, "spec": spec })).await
    }

    /// A pod of one container that runs a script.
    pub(crate) async fn script(&self, name: &str, script: &str) -> Pod {
        self.pod(name, json!({ "restartPolicy": "Never", "containers": [shell("main", script)] })).await
    }

    /// Waits until an object fulfils a condition.
    pub(crate) async fn until<K>(&self, name: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + Serialize
            + Clone
            + Debug,
    {
        let api = self.api::<K>();
        let mut last = Value::Null;
        let wait = async {
            loop {
                let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
                let events = api.watch(&parameters, "0").await.unwrap();
                pin_mut!(events);
                while let Some(Ok(event)) = events.next().await {
                    if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                        last = serde_json::to_value(object).unwrap();
                        if condition(&last) {
                            return;
                        }
                    }
                }
            }
        };
        if tokio::time::timeout(TIMEOUT, wait).await.is_err() {
            let events = self.events().await;
            panic!("{name} never {what}; it is {last:#}\nevents: {events:#?}");
        }
        last
    }

    pub(crate) async fn phase(&self, name: &str, phase: &str) -> Value {
        self.until::<Pod>(name, &format!("had the phase {phase}"), |pod| pod["status"]["phase"] == phase)
            .await
    }

    pub(crate) async fn ready(&self, name: &str) -> Value {
        self.until::<Pod>(name, "was ready", |pod| condition(pod, "Ready") == "True").await
    }

    /// Waits until an object is gone.
    pub(crate) async fn gone(&self, name: &str) {
        let pods = self.api::<Pod>();
        let wait = async {
            loop {
                let list =
                    pods.list(&ListParams::default().fields(&format!("metadata.name={name}"))).await.unwrap();
                if list.items.is_empty() {
                    return;
                }
                let version = list.metadata.resource_version.unwrap();
                let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
                let events = pods.watch(&parameters, &version).await.unwrap();
                pin_mut!(events);
                while let Some(Ok(event)) = events.next().await {
                    if matches!(event, WatchEvent::Deleted(_)) {
                        return;
                    }
                }
            }
        };
        assert!(tokio::time::timeout(TIMEOUT, wait).await.is_ok(), "{name} was never removed");
    }

    pub(crate) async fn delete(&self, name: &str, grace: Option<u32>) {
        let parameters = DeleteParams { grace_period_seconds: grace, ..DeleteParams::default() };
        self.api::<Pod>().delete(name, &parameters).await.unwrap();
    }

    pub(crate) async fn logs(&self, name: &str) -> String {
        self.api::<Pod>().logs(name, &LogParams::default()).await.unwrap()
    }

    /// The log of a pod that runs to its end.
    pub(crate) async fn output(&self, name: &str) -> String {
        let ended = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        self.until::<Pod>(name, "ended", ended).await;
        self.logs(name).await
    }

    /// Reasons and messages of all events.
    pub(crate) async fn events(&self) -> Vec<String> {
        let events = self.api::<Event>().list(&ListParams::default()).await.unwrap();
        let text = |event: Event| {
            let name = event.involved_object.name.unwrap_or_default();
            format!("{name} {} {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default())
        };
        events.items.into_iter().map(text).collect()
    }

    /// Waits for an event that contains a text.
    pub(crate) async fn event(&self, text: &str) {
        let api = self.api::<Event>();
        let wait = async {
            loop {
                let events = api.watch(&WatchParams::default(), "0").await.unwrap();
                pin_mut!(events);
                while let Some(Ok(event)) = events.next().await {
                    if let WatchEvent::Added(event) | WatchEvent::Modified(event) = event {
                        let shown = format!(
                            "{} {}",
                            event.reason.unwrap_or_default(),
                            event.message.unwrap_or_default()
                        );
                        if shown.contains(text) {
                            return;
                        }
                    }
                }
            }
        };
        let is_seen = tokio::time::timeout(TIMEOUT, wait).await.is_ok();
        assert!(is_seen, "no event says {text:?}: {:#?}", self.events().await);
    }
}

impl Drop for Bed {
    /// A test that fails leaves nothing on the machine.
    fn drop(&mut self) {
        let directory = self.directory();
        let clear = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(quintet_kubelet::clear(&directory))
        };
        let cleared = std::thread::spawn(clear).join();
        assert!(std::thread::panicking() || matches!(cleared, Ok(Ok(0))), "{cleared:?}");
    }
}

/// A container that runs a script.
pub(crate) fn shell(name: &str, script: &str) -> Value {
    json!({ "name": name, "image": "busybox", "command": ["sh", "-c", script] })
}

pub(crate) fn condition<'a>(pod: &'a Value, kind: &str) -> &'a str {
    let conditions = pod["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|one| one["type"] == kind);
    found.and_then(|one| one["status"].as_str()).unwrap_or_default()
}

/// The status of a container of a pod.
pub(crate) fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let all = ["containerStatuses", "initContainerStatuses"];
    let mut statuses = all.iter().filter_map(|list| pod["status"][list].as_array()).flatten();
    statuses.find(|one| one["name"] == name).unwrap_or(&Value::Null)
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}
