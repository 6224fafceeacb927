//! The queue operator on a cluster in memory, with the controllers of Kubernetes and simulated nodes, in simulated time.

mod job_kinds;

use std::collections::BTreeMap;
use std::time::Duration;

use quintet_api::config::{Schema, kueue};
use quintet_golden::{Api, ObjectId, Setting, World, template_with};
use quintet_node::NodeShape;
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "ns";

/// A shape of nodes that is larger than any quota.
pub(crate) fn nodes(count: u32) -> NodeShape {
    let amount = |text: &str| text.parse().expect("a quantity");
    let capacity = [("cpu", "64"), ("memory", "256Gi"), ("pods", "110")];
    NodeShape {
        name: "simulated".to_owned(),
        count,
        capacity: capacity.iter().map(|(name, text)| ((*name).to_owned(), amount(text))).collect(),
        labels: BTreeMap::new(),
        levels: Vec::new(),
    }
}

/// A setting with this configuration of Kueue's format.
pub(crate) fn setting(configuration: &str) -> Setting {
    let text = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{configuration}");
    let configuration = Schema(&[kueue::CONFIG]).read(&text).expect("a valid configuration");
    Setting { configuration, ..Setting::default() }
}

/// The cluster of one test.
pub(crate) struct Bed {
    pub(crate) world: World,
    setting: Setting,
}

impl Bed {
    pub(crate) async fn new(template: &Api, seed: u64, setting: Setting) -> Self {
        Self::on(nodes(2), template, seed, setting).await
    }

    /// On nodes of another shape.
    pub(crate) async fn on(shape: NodeShape, template: &Api, seed: u64, setting: Setting) -> Self {
        let mut world = World::new(template, seed, &[NAMESPACE.to_owned()]).await.expect("a world");
        world.run_cluster(shape).await.expect("a cluster");
        let mut bed = Self { world, setting };
        bed.start().await;
        bed
    }

    pub(crate) async fn start(&mut self) {
        self.world.start(&quintet_queue::component(), &self.setting).await.expect("the operator");
        // Webhooks read caches: like a cluster, the test waits until the operator is ready.
        pass(2).await;
    }

    /// A queue `cq` with this many CPUs, and a LocalQueue `lq`.
    pub(crate) async fn add_queue(&self, cpus: u32, spec: Value) {
        let kueue = "kueue.x-k8s.io/v1beta2";
        let mut queue = json!({ "apiVersion": kueue, "kind": "ClusterQueue", "metadata": { "name": "cq" }, "spec": {
            "namespaceSelector": {}, "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
                { "name": "default", "resources": [{ "name": "cpu", "nominalQuota": cpus.to_string() }] }] }] } });
        for (name, value) in spec.as_object().expect("fields") {
            queue["spec"][name] = value.clone();
        }
        let objects = [
            json!({ "apiVersion": kueue, "kind": "ResourceFlavor", "metadata": { "name": "default" }, "spec": {} }),
            queue,
            json!({ "apiVersion": kueue, "kind": "LocalQueue", "metadata": { "name": "lq", "namespace": NAMESPACE },
                "spec": { "clusterQueue": "cq" } }),
        ];
        for object in objects {
            self.create(&object).await;
        }
    }

    pub(crate) async fn create(&self, object: &Value) {
        let answer = self.world.create(object).await.expect("an answer");
        assert_eq!(answer.code, 201, "{:?}", answer.message);
    }

    pub(crate) async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        self.world.get(&id(kind, name)).await.expect("an answer")
    }

    pub(crate) async fn patch(&self, kind: &str, name: &str, body: &Value) {
        let answer = self.world.patch(&id(kind, name), None, body).await.expect("an answer");
        assert_eq!(answer.code, 200, "{:?}", answer.message);
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) {
        let answer = self.world.delete(&id(kind, name)).await.expect("an answer");
        assert_eq!(answer.code, 200, "{:?}", answer.message);
    }

    pub(crate) async fn is_running(&self, job: &str) -> bool {
        self.get("Job", job).await.is_some_and(|job| job["status"]["active"].as_i64().unwrap_or(0) > 0)
    }

    /// The Workload of a Job.
    pub(crate) async fn workload(&self, job: &str) -> Value {
        let objects = self.world.objects().await.expect("objects");
        let of_job = |object: &&Value| object["metadata"]["ownerReferences"][0]["name"] == job;
        let workloads = objects.iter().filter(|(id, _)| id.kind == "Workload").map(|(_, object)| object);
        workloads.clone().find(of_job).cloned().unwrap_or_default()
    }
}

pub(crate) fn id(kind: &str, name: &str) -> ObjectId {
    let is_cluster = [
        "AdmissionCheck",
        "ClusterQueue",
        "Cohort",
        "Node",
        "ProvisioningRequestConfig",
        "ResourceFlavor",
        "WorkloadPriorityClass",
    ];
    let namespace = if is_cluster.contains(&kind) { "" } else { NAMESPACE };
    ObjectId { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
}

/// A Job in `lq` with one pod that asks for this many CPUs and runs for a time.
pub(crate) fn job(name: &str, cpus: u32, run_for: &str, labels: &[(&str, &str)]) -> Value {
    let mut labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    labels.insert("kueue.x-k8s.io/queue-name", "lq");
    let annotations =
        if run_for.is_empty() { json!({}) } else { json!({ "node.quintet.dev/run-for": run_for }) };
    json!({ "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels },
        "spec": { "parallelism": 1, "completions": 1, "backoffLimit": 0, "template": {
            "metadata": { "annotations": annotations },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "example.com/image:1",
                "resources": { "requests": { "cpu": cpus.to_string() } } }] } } } })
}

/// A JobSet in `lq` with a driver and a worker of one CPU each.
pub(crate) fn job_set(name: &str, class: &str) -> Value {
    let replicated = |name: &str| {
        json!({ "name": name, "replicas": 1, "template": { "spec": { "parallelism": 1, "completions": 1, "template": {
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "example.com/image:1",
                "resources": { "requests": { "cpu": "1" } } }] } } } } })
    };
    json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": {
            "kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/priority-class": class } },
        "spec": { "replicatedJobs": [replicated("driver"), replicated("workers")] } })
}

/// A pod in `lq` that asks for one CPU and runs for a time, alone or in a group of this name and size.
pub(crate) fn pod(name: &str, group: Option<(&str, u64)>, run_for: &str) -> Value {
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "kueue.x-k8s.io/queue-name": "lq" },
            "annotations": { "node.quintet.dev/run-for": run_for } },
        "spec": { "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [
            { "name": "c", "image": "example.com/image:1", "resources": { "requests": { "cpu": "1" } } }] } });
    if let Some((group, size)) = group {
        pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = group.into();
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = size.to_string().into();
    }
    pod
}

/// The condition of an object, as `True Reason` or `False Reason`; empty if it is not set.
pub(crate) fn condition(object: &Value, kind: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.map_or_else(String::new, |condition| {
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("status"), text("reason"))
    })
}

/// Lets simulated time pass.
pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// An API with Kueue's kinds, and those of all jobs.
pub(crate) async fn kueue_template() -> Api {
    let ours = [kueue_kinds(), quintet_api::ray::definitions(), quintet_api::appwrapper::definitions()];
    template_with(&ours.concat(), job_kinds::definitions()).await.expect("an API")
}

/// An API with Kueue's kinds, and those of Kubernetes.
pub(crate) async fn bare_template() -> Api {
    template_with(&kueue_kinds(), Vec::new()).await.expect("an API")
}

fn kueue_kinds() -> Vec<quintet_api::crd::Definition> {
    (quintet_queue::component().crds)()
}
