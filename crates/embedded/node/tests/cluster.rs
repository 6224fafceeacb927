//! Simulated nodes on a cluster: the embedded API, or the one of `KUBECONFIG_UNDER_TEST`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up should stop")]

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use quintet_apiserver::{Cluster, Settings as ApiSettings};
use quintet_node::{Level, NodeShape, Settings, Simulation};
use serde_json::{Value, json};

/// The timeout of every wait.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A cluster, a namespace for the test, and simulated nodes.
struct Bed {
    client: kube::Client,
    namespace: String,
    simulation: Simulation,
    /// Ends with the test.
    _embedded: Option<Cluster>,
}

impl Bed {
    async fn new(name: &str, count: u32) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let real = std::env::var_os("KUBECONFIG_UNDER_TEST").filter(|path| !path.is_empty());
        let (client, embedded) = if let Some(path) = &real {
            let kubeconfig = Kubeconfig::read_from(path).unwrap();
            let options = KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
            (kube::Client::try_from(config).unwrap(), None)
        } else {
            let settings = ApiSettings::default();
            let cluster = Cluster::start(settings).await.unwrap();
            (cluster.api().admin_client(), Some(cluster))
        };
        let amount = |text: &str| text.parse().unwrap();
        let nodes = NodeShape {
            name: format!("{name}-{}", std::process::id()),
            count,
            capacity: BTreeMap::from([
                ("cpu".to_owned(), amount("4")),
                ("memory".to_owned(), amount("16Gi")),
                ("pods".to_owned(), amount("110")),
            ]),
            labels: BTreeMap::new(),
            levels: vec![Level { label: "example.com/rack".to_owned(), parts: 2 }],
        };
        let namespace = nodes.name.clone();
        let object = json!({ "metadata": { "name": namespace } });
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&PostParams::default(), &typed(object)).await.unwrap();
        let settings = Settings { nodes, schedule: real.is_none() };
        let simulation = Simulation::start(client.clone(), settings).await.unwrap();
        Self { client, namespace, simulation, _embedded: embedded }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A pod that only simulated nodes accept.
    async fn create(&self, name: &str, annotations: &Value, spec: &Value) {
        let mut pod = json!({
            "metadata": { "name": name, "annotations": annotations },
            "spec": {
                "nodeSelector": { "node.quintet.dev/simulated": self.namespace },
                "containers": [{
                    "name": "main", "image": "example.invalid/none",
                    "resources": { "requests": { "cpu": "1" } },
                }],
            },
        });
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.pods().create(&PostParams::default(), &typed(pod)).await.unwrap();
    }

    async fn until(&self, what: &str, holds: impl Fn(&[Pod]) -> bool) -> Vec<Pod> {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let pods = self.pods().list(&ListParams::default()).await.unwrap().items;
            if holds(&pods) {
                return pods;
            }
            assert!(tokio::time::Instant::now() < deadline, "{what} did not come true: {pods:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Stops; the nodes are gone then.
    async fn end(self) {
        let Self { client, namespace, simulation, .. } = self;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
        simulation.stop().await.unwrap();
        let nodes: Api<Node> = Api::all(client);
        let ours = ListParams::default().labels(&format!("node.quintet.dev/simulated={namespace}"));
        assert_eq!(nodes.list(&ours).await.unwrap().items.len(), 0);
    }
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn phase(pods: &[Pod], name: &str) -> String {
    let pod = pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(name));
    let status = pod.and_then(|pod| pod.status.as_ref());
    let ready = status.and_then(|status| status.conditions.as_ref()).is_some_and(|conditions| {
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    let phase = status.and_then(|status| status.phase.clone()).unwrap_or_else(|| "gone".to_owned());
    if ready { format!("{phase} ready") } else { phase }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_follow_their_annotations() {
    let bed = Bed::new("lifecycle", 4).await;
    let never = json!({ "restartPolicy": "Never" });
    bed.create("service", &json!({}), &json!({})).await;
    bed.create("job", &json!({ "node.quintet.dev/run-for": "1s" }), &never).await;
    let fails = json!({ "node.quintet.dev/run-for": "0s", "node.quintet.dev/exit-code": "7" });
    bed.create("broken", &fails, &never).await;
    bed.create("gated", &json!({}), &json!({ "schedulingGates": [{ "name": "example.com/wait" }] })).await;
    let pods = bed
        .until("the lifecycles", |pods| {
            phase(pods, "service") == "Running ready"
                && phase(pods, "job") == "Succeeded"
                && phase(pods, "broken") == "Failed"
        })
        .await;
    assert_eq!(phase(&pods, "gated"), "Pending");
    let service = pods.iter().find(|pod| pod.metadata.name.as_deref() == Some("service")).unwrap();
    let status = service.status.as_ref().unwrap();
    assert!(status.pod_ip.is_some() && status.host_ip.is_some(), "{status:?}");
    let broken = pods.iter().find(|pod| pod.metadata.name.as_deref() == Some("broken")).unwrap();
    let containers = broken.status.as_ref().unwrap().container_statuses.as_ref().unwrap();
    assert_eq!(containers[0].state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 7);

    let evict = json!({ "metadata": { "annotations": { "node.quintet.dev/evict": "too much" } } });
    bed.pods().patch("service", &PatchParams::default(), &Patch::Merge(&evict)).await.unwrap();
    let pods = bed.until("the eviction", |pods| phase(pods, "service") == "Failed").await;
    let service = pods.iter().find(|pod| pod.metadata.name.as_deref() == Some("service")).unwrap();
    assert_eq!(service.status.as_ref().unwrap().reason.as_deref(), Some("Evicted"));

    bed.create("deleted", &json!({}), &json!({})).await;
    bed.until("the start", |pods| phase(pods, "deleted") == "Running ready").await;
    bed.pods().delete("deleted", &DeleteParams::default()).await.unwrap();
    bed.until("the removal", |pods| phase(pods, "deleted") == "gone").await;
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_nodes_are_not_tainted() {
    let bed = Bed::new("taints", 3).await;
    let nodes: Api<Node> = Api::all(bed.client.clone());
    let selector = format!("node.quintet.dev/simulated={}", bed.namespace);
    let nodes = nodes.list(&ListParams::default().labels(&selector)).await.unwrap().items;
    assert_eq!(nodes.len(), 3);
    for node in nodes {
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        assert!(taints.is_empty(), "{taints:?}");
    }
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_wait_for_room_and_follow_their_node_selector() {
    let bed = Bed::new("room", 2).await;
    for number in 0..9 {
        bed.create(&format!("p{number}"), &json!({}), &json!({})).await;
    }
    let running =
        |pods: &[Pod]| (0..9).filter(|number| phase(pods, &format!("p{number}")) == "Running ready").count();
    let pods = bed
        .until("eight run and one waits", |pods| {
            let waits = |pod: &Pod| {
                let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
                conditions.is_some_and(|all| {
                    all.iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
                })
            };
            running(pods) == 8 && pods.iter().any(waits)
        })
        .await;
    let addresses: std::collections::BTreeSet<_> =
        pods.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.clone()).collect();
    assert_eq!(addresses.len(), 8, "every pod has an address of its own");
    let first =
        pods.iter().find(|pod| phase(&pods, pod.metadata.name.as_deref().unwrap()) == "Running ready");
    bed.pods()
        .delete(first.unwrap().metadata.name.as_deref().unwrap(), &DeleteParams::default())
        .await
        .unwrap();
    bed.until("the waiting one runs", |pods| pods.len() == 8 && running(pods) == 8).await;
    let selector = json!({ "nodeSelector": { "example.com/rack": "rack-7" } });
    bed.create("nowhere", &json!({}), &selector).await;
    bed.until("nowhere to go", |pods| phase(pods, "nowhere") == "Pending").await;
    bed.end().await;
}
