//! A cluster in memory for tests: workload controllers, a scheduler, simulated nodes, and Ray's operator. Time is
//! simulated. Every operator has no more rights than its descriptor asks for.
#![allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    dead_code,
    reason = "a test that cannot be set up stops, tables are easier to read so, and not every test uses all of it"
)]

use std::collections::BTreeMap;

use quintet_api::config::Schema;
use quintet_api::config::codeflare::CONFIG;
use quintet_golden::{Api, Caller, Setting, World, template_of};
use quintet_node::{NodeShape, Settings, Simulation};
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "team";

/// The API with all kinds, to fork worlds from.
pub(crate) async fn template() -> Api {
    let definitions = [quintet_api::appwrapper::definitions(), quintet_api::ray::definitions()].concat();
    let optional = ["JobSet", "PyTorchJob"].map(str::to_owned);
    template_of(&definitions, &optional).await.unwrap()
}

/// The operator with this configuration.
pub(crate) fn setting(configuration: &str) -> Setting {
    Setting { configuration: Schema(&[CONFIG]).read(configuration).unwrap(), ..Setting::default() }
}

pub(crate) fn admin() -> Caller {
    Caller::known("kubernetes-admin", ["system:masters".to_owned()])
}

/// A world with everything but our operator.
pub(crate) async fn world(template: &Api, seed: u64) -> World {
    let mut world = World::new(template, seed, &[NAMESPACE.to_owned()]).await.unwrap();
    let capacity = [("cpu", "32"), ("memory", "256Gi"), ("nvidia.com/gpu", "8"), ("pods", "110")];
    let capacity = capacity.map(|(name, amount)| (name.to_owned(), amount.parse().unwrap()));
    let nodes = NodeShape {
        name: "sim".to_owned(),
        count: 3,
        capacity: BTreeMap::from(capacity),
        labels: BTreeMap::new(),
        levels: Vec::new(),
    };
    let client = world.client(admin());
    let settings = Settings { nodes, schedule: false };
    let simulation =
        Simulation::start_at(client.clone(), settings, world.clock().clone(), Some(seed)).await.unwrap();
    world.at_stop(async move { simulation.leave().await });
    let settings =
        quintet_controllers::Settings { seed: Some(seed), ..quintet_controllers::Settings::default() };
    let controllers = quintet_controllers::start(client, world.clock(), &settings).await.unwrap();
    world.at_stop(async move { controllers.stop().await });
    world.accompany(&quintet_ray::component(), &Setting::default()).await.unwrap();
    world
}

pub(crate) fn pod_spec(annotations: Value) -> Value {
    let container = json!({"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}});
    json!({"metadata": {"annotations": annotations}, "spec": {"restartPolicy": "Never", "containers": [container]}})
}

pub(crate) fn pod(name: &str, annotations: Value) -> Value {
    let mut pod = pod_spec(annotations);
    (pod["apiVersion"], pod["kind"], pod["metadata"]["name"]) = (json!("v1"), json!("Pod"), json!(name));
    pod
}

pub(crate) fn job(name: &str, annotations: Value) -> Value {
    let spec = json!({"backoffLimit": 0, "template": pod_spec(annotations)});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
}

pub(crate) fn ray_cluster(name: &str) -> Value {
    let template =
        |name: &str| json!({"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.46.0"}]}});
    let group = json!({
        "groupName": "g", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {},
        "template": template("worker"),
    });
    let head = json!({"rayStartParams": {}, "template": template("head")});
    let spec = json!({"rayVersion": "2.46.0", "headGroupSpec": head, "workerGroupSpecs": [group]});
    json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}, "spec": spec})
}

/// An AppWrapper of these templates, with short periods.
pub(crate) fn appwrapper(name: &str, retries: u32, templates: &[Value]) -> Value {
    let option = |name: &str| format!("workload.codeflare.dev.appwrapper/{name}");
    let annotations = json!({
        option("admissionGracePeriodDuration"): "20s",
        option("warmupGracePeriodDuration"): "40s",
        option("failureGracePeriodDuration"): "2s",
        option("retryPausePeriodDuration"): "6s",
        option("forcefulDeletionGracePeriodDuration"): "30s",
        option("retryLimit"): retries.to_string(),
    });
    let components: Vec<_> = templates.iter().map(|template| json!({"template": template})).collect();
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {"components": components},
    })
}
