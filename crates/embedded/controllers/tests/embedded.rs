//! The controllers with the embedded API and simulated nodes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up should stop")]

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Endpoints, Event, Namespace, PersistentVolumeClaim, Pod, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use quintet_apiserver::{Clock, Cluster, Settings as ApiSettings};
use quintet_controllers::{Controllers, Settings};
use quintet_node::{NodeShape, Settings as NodeSettings, Simulation};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The timeout of every wait.
const TIMEOUT: Duration = Duration::from_secs(45);
const NAMESPACE: &str = "work";

/// A cluster with controllers and simulated nodes.
struct Bed {
    client: kube::Client,
    controllers: Controllers,
    simulation: Simulation,
    /// Ends with the test.
    _cluster: Cluster,
}

impl Bed {
    async fn new(nodes: u32) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let settings = ApiSettings::default();
        let cluster = Cluster::start(settings).await.unwrap();
        let client = cluster.api().admin_client();
        let amount = |text: &str| text.parse().unwrap();
        let shape = NodeShape {
            name: "sim".to_owned(),
            count: nodes,
            capacity: BTreeMap::from([
                ("cpu".to_owned(), amount("4")),
                ("memory".to_owned(), amount("16Gi")),
                ("pods".to_owned(), amount("110")),
            ]),
            labels: BTreeMap::new(),
            levels: Vec::new(),
        };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = json!({ "metadata": { "name": NAMESPACE } });
        namespaces.create(&PostParams::default(), &typed(namespace)).await.unwrap();
        let volumes = std::env::temp_dir().join(format!("quintet-volumes-{}", std::process::id()));
        let settings = Settings { volumes: Some(volumes), ..Settings::default() };
        let controllers =
            quintet_controllers::start(client.clone(), &Clock::system(), &settings).await.unwrap();
        let settings = NodeSettings { nodes: shape, schedule: false };
        let simulation = Simulation::start(client.clone(), settings).await.unwrap();
        Self { client, controllers, simulation, _cluster: cluster }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + serde::Serialize
            + Clone
            + std::fmt::Debug,
    {
        self.api::<K>().create(&PostParams::default(), &typed(object)).await.unwrap();
    }

    /// Waits until an object is as expected, and returns it.
    async fn until<K>(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + serde::Serialize
            + Clone
            + Send
            + std::fmt::Debug
            + 'static,
    {
        let waited = tokio::time::timeout(TIMEOUT, self.watch::<K>(name, &holds)).await;
        let Ok(found) = waited else {
            let last = self.api::<K>().get_opt(name).await.unwrap();
            panic!("{name}: {what} did not come true: {last:#?}\nevents: {:#?}", self.events().await)
        };
        found
    }

    /// Watches an object until it is as expected; one that does not exist is null.
    async fn watch<K>(&self, name: &str, holds: &impl Fn(&Value) -> bool) -> Value
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + serde::Serialize
            + Clone
            + std::fmt::Debug,
    {
        let api = self.api::<K>();
        let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
        loop {
            let now = serde_json::to_value(api.get_opt(name).await.unwrap()).unwrap();
            if holds(&now) {
                return now;
            }
            let version = now["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
            let events = api.watch(&parameters, &version).await.unwrap();
            pin_mut!(events);
            while let Some(Ok(event)) = events.next().await {
                let state = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        serde_json::to_value(object).unwrap()
                    }
                    WatchEvent::Deleted(_) => Value::Null,
                    WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
                };
                if holds(&state) {
                    return state;
                }
            }
        }
    }

    async fn events(&self) -> Vec<String> {
        let events = self.api::<Event>().list(&ListParams::default()).await.unwrap();
        events.items.iter().map(text_of).collect()
    }

    /// Events are recorded after what they are about.
    async fn until_event(&self, wanted: &str) {
        let found = async {
            let events = self.api::<Event>().watch(&WatchParams::default(), "0").await.unwrap();
            pin_mut!(events);
            while let Some(Ok(event)) = events.next().await {
                if let WatchEvent::Added(event) | WatchEvent::Modified(event) = event
                    && text_of(&event) == wanted
                {
                    return true;
                }
            }
            false
        };
        let found = tokio::time::timeout(TIMEOUT, found).await;
        assert_eq!(found, Ok(true), "{wanted}: not among {:#?}", self.events().await);
    }

    async fn end(self) {
        self.controllers.stop().await;
        self.simulation.leave().await;
    }
}

fn text_of(event: &Event) -> String {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    format!("{} {} {}", text(&event.involved_object.name), text(&event.reason), text(&event.message))
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn template(app: &str, image: &str, annotations: &Value) -> Value {
    json!({
        "metadata": { "labels": { "app": app }, "annotations": annotations },
        "spec": { "containers": [{ "name": "main", "image": image, "resources": { "requests": { "cpu": "100m" } } }] },
    })
}

fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == condition && one["status"] == "True"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_to_completion() {
    let bed = Bed::new(1).await;
    let mut template = template("job", "busybox", &json!({ "node.quintet.dev/run-for": "0s" }));
    template["spec"]["restartPolicy"] = json!("Never");
    let spec =
        json!({ "completions": 3, "parallelism": 2, "completionMode": "Indexed", "template": template });
    bed.create::<Job>(json!({ "metadata": { "name": "count" }, "spec": spec })).await;
    let job = bed.until::<Job>("count", "completion", |job| is_true(job, "Complete")).await;
    let status = &job["status"];
    assert_eq!((&status["succeeded"], &status["completedIndexes"]), (&json!(3), &json!("0-2")));
    assert_eq!(
        (&status["active"], &status["ready"], &status["terminating"]),
        (&Value::Null, &json!(0), &json!(0))
    );
    let pods = bed.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(pods.len(), 3);
    assert!(pods.iter().all(|pod| pod.metadata.finalizers.is_none()), "no finalizer is left");
    let background = DeleteParams::background();
    bed.api::<Job>().delete("count", &background).await.unwrap();
    bed.until::<Job>("count", "deletion", Value::is_null).await;
    for pod in pods {
        bed.until::<Pod>(pod.metadata.name.as_deref().unwrap(), "garbage collection", Value::is_null).await;
    }
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_job_reaches_its_backoff_limit() {
    let bed = Bed::new(1).await;
    let failing = json!({ "node.quintet.dev/run-for": "0s", "node.quintet.dev/exit-code": "3" });
    let mut template = template("job", "busybox", &failing);
    template["spec"]["restartPolicy"] = json!("Never");
    let spec = json!({ "backoffLimit": 0, "template": template });
    bed.create::<Job>(json!({ "metadata": { "name": "broken" }, "spec": spec })).await;
    let job = bed.until::<Job>("broken", "failure", |job| is_true(job, "Failed")).await;
    assert_eq!(job["status"]["failed"], 1);
    let conditions = job["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions.iter().all(|condition| condition["reason"] == "BackoffLimitExceeded"),
        "{conditions:?}"
    );
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_rolls_out_and_back() {
    let bed = Bed::new(2).await;
    let spec = |image: &str| {
        json!({
            "replicas": 3, "selector": { "matchLabels": { "app": "web" } },
            "template": template("web", image, &json!({})),
        })
    };
    bed.create::<Deployment>(json!({ "metadata": { "name": "web" }, "spec": spec("v1") })).await;
    let is_complete = |revision: &'static str| {
        move |deployment: &Value| {
            let status = &deployment["status"];
            let annotation = &deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
            annotation == revision
                && status["observedGeneration"] == deployment["metadata"]["generation"]
                && ["replicas", "updatedReplicas", "availableReplicas"]
                    .iter()
                    .all(|field| status[*field] == 3)
        }
    };
    bed.until::<Deployment>("web", "the first rollout", is_complete("1")).await;
    let deployments = bed.api::<Deployment>();
    for (image, revision) in [("v2", "2"), ("v1", "3")] {
        let patch = Patch::Merge(json!({ "spec": spec(image) }));
        deployments.patch("web", &PatchParams::default(), &patch).await.unwrap();
        bed.until::<Deployment>("web", "the rollout", is_complete(revision)).await;
    }
    let sets = bed.api::<ReplicaSet>().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(sets.len(), 2, "the ReplicaSet of the first revision is used again");
    let pods = bed.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
    let running = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let images: Vec<_> =
        running.map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap()).collect();
    assert_eq!(images, ["v1"; 3]);
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_has_claims_names_and_endpoints_and_rolls() {
    let bed = Bed::new(1).await;
    let claims = json!([{ "metadata": { "name": "data" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }]);
    let service = json!({ "clusterIP": "None", "selector": { "app": "db" }, "ports": [{ "port": 5432 }] });
    bed.create::<Service>(json!({ "metadata": { "name": "db" }, "spec": service })).await;
    let spec = json!({
        "replicas": 2, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
        "template": template("db", "v1", &json!({})), "volumeClaimTemplates": claims,
    });
    bed.create::<StatefulSet>(json!({ "metadata": { "name": "db" }, "spec": spec })).await;
    let is_complete = |set: &Value| {
        let status = &set["status"];
        status["readyReplicas"] == 2
            && status["updatedReplicas"] == 2
            && status["observedGeneration"] == set["metadata"]["generation"]
            && status["currentRevision"] == status["updateRevision"]
    };
    bed.until::<StatefulSet>("db", "the first rollout", is_complete).await;
    let claim = bed
        .until::<PersistentVolumeClaim>("data-db-1", "binding", |claim| claim["status"]["phase"] == "Bound")
        .await;
    assert_eq!(claim["spec"]["storageClassName"], "standard");
    let has_both = |endpoints: &Value| {
        endpoints["subsets"][0]["addresses"].as_array().is_some_and(|addresses| addresses.len() == 2)
    };
    let endpoints = bed.until::<Endpoints>("db", "endpoints", has_both).await;
    assert_eq!(endpoints["subsets"][0]["addresses"][0]["hostname"], "db-0");
    let patch = Patch::Merge(json!({ "spec": { "template": template("db", "v2", &json!({})) } }));
    bed.api::<StatefulSet>().patch("db", &PatchParams::default(), &patch).await.unwrap();
    bed.until::<StatefulSet>("db", "the second rollout", is_complete).await;
    let pods = bed.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
    let images: Vec<_> =
        pods.iter().map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap()).collect();
    assert_eq!(images, ["v2"; 2]);
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fits_nowhere_says_why_and_runs_when_there_is_room() {
    let bed = Bed::new(1).await;
    let pod = |name: &str, cpu: &str| {
        let container = json!({ "name": "main", "image": "i", "resources": { "requests": { "cpu": cpu } } });
        json!({ "metadata": { "name": name }, "spec": { "containers": [container] } })
    };
    bed.create::<Pod>(pod("first", "3")).await;
    bed.until::<Pod>("first", "start", |pod| is_true(pod, "Ready")).await;
    bed.create::<Pod>(pod("second", "2")).await;
    let message = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let scheduled =
            conditions.iter().find(|one| one["type"] == "PodScheduled" && one["status"] == "False");
        scheduled.map(|one| one["message"].as_str().unwrap().to_owned())
    };
    let second = bed.until::<Pod>("second", "report", |pod| message(pod).is_some()).await;
    let expected = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: \
                    0/1 nodes are available: 1 No preemption \
                    victims found for incoming pod.";
    assert_eq!(message(&second).as_deref(), Some(expected));
    bed.api::<Pod>().delete("first", &DeleteParams::default()).await.unwrap();
    bed.until::<Pod>("second", "start", |pod| is_true(pod, "Ready")).await;
    bed.until_event("second Scheduled Successfully assigned work/second to sim-0").await;
    bed.until_event(&format!("second FailedScheduling {expected}")).await;
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_a_claim_for_its_ephemeral_volume_as_long_as_it_lives() {
    let bed = Bed::new(1).await;
    let template = json!({ "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    let container =
        json!({ "name": "main", "image": "i", "volumeMounts": [{ "name": "scratch", "mountPath": "/s" }] });
    let volume = json!({ "name": "scratch", "ephemeral": { "volumeClaimTemplate": template } });
    let spec = json!({ "containers": [container], "volumes": [volume] });
    bed.create::<Pod>(json!({ "metadata": { "name": "worker" }, "spec": spec })).await;
    bed.until::<Pod>("worker", "start", |pod| is_true(pod, "Ready")).await;
    let is_bound = |claim: &Value| claim["status"]["phase"] == "Bound";
    let claim = bed.until::<PersistentVolumeClaim>("worker-scratch", "binding", is_bound).await;
    assert_eq!(claim["metadata"]["ownerReferences"][0]["kind"], "Pod");
    // It is in use: whoever deletes it waits for the pod.
    bed.api::<PersistentVolumeClaim>().delete("worker-scratch", &DeleteParams::default()).await.unwrap();
    let claim = bed.api::<PersistentVolumeClaim>().get("worker-scratch").await.unwrap();
    assert!(claim.metadata.deletion_timestamp.is_some());
    bed.api::<Pod>().delete("worker", &DeleteParams::default()).await.unwrap();
    bed.until::<PersistentVolumeClaim>("worker-scratch", "deletion", Value::is_null).await;
    bed.end().await;
}
