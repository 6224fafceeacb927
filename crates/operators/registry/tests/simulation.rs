//! Whatever goes wrong, the end is the right one.
//!
//! In every world users change their minds and the operator's objects, sources of the catalog come and go, requests fail or
//! lose their responses, kinds begin to be served, and the operator dies and comes back. Then all is well: the objects must
//! be those of a world in which nothing ever went wrong, and nothing is written any more.
//!
//! `QUINTET_SEEDS` says how many worlds to try; `QUINTET_SEED` tries one again.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use quintet_golden::simulation::{self, expect_no_writes, expect_same, inject};
use quintet_golden::{Api, ObjectId, Rng, Setting, World, normalized, template};
use serde_json::{Value, json};

const NAMESPACE: &str = "registries";
/// Where HTTPRoutes are.
const APPLICATIONS: &str = "redhat-ods-applications";
const OPTIONAL: [&str; 5] = ["Route", "Group", "HTTPRoute", "ReferenceGrant", "Auth"];

/// What goes wrong, in thousandths.
#[derive(Clone, Copy, Default)]
struct FaultRates {
    /// Of requests: rejected, or carried out without a response.
    requests: u64,
    /// Of rounds: the operator dies.
    crashes: u64,
}

const ROUGH: FaultRates = FaultRates { requests: 60, crashes: 200 };

fn setting() -> Setting {
    let variables = [("GATEWAY_DOMAIN", "gw.example.com"), ("DEFAULT_DOMAIN", "apps.example.com")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Setting { variables, ..Setting::default() }
}

/// A registry whose database is somebody else's, and one whose database the operator runs.
fn registries() -> [Value; 2] {
    let registry = |name: &str, postgres: Value| {
        json!({
            "apiVersion": "modelregistry.opendatahub.io/v1beta1", "kind": "ModelRegistry",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"rest": {}, "postgres": postgres},
        })
    };
    [
        registry("own", json!({"host": "db", "username": "u", "database": "d"})),
        registry("generated", json!({"generateDeployment": true})),
    ]
}

fn catalog() -> Value {
    json!({
        "apiVersion": "aihub.opendatahub.io/v1alpha1", "kind": "Catalog",
        "metadata": {"name": "catalog", "namespace": NAMESPACE}, "spec": {},
    })
}

fn one_of<T: Clone>(rng: &Rng, choices: &[T]) -> T {
    choices[usize::try_from(rng.below(choices.len() as u64)).unwrap()].clone()
}

/// A change of a registry that is allowed at any time.
fn new_mind(rng: &Rng) -> Value {
    let secret = json!({"name": "s", "key": "k"});
    let changes = [
        json!({"spec": {"rest": {"port": 8000 + rng.below(9)}}}),
        json!({"spec": {"rest": {"serviceRoute": one_of(rng, &["enabled", "disabled"])}}}),
        json!({"spec": {"rest": {"resources": {"requests": {"cpu": format!("{}m", 100 + rng.below(9))}}}}}),
        json!({"spec": {"rest": {"image": one_of(rng, &["rest:1", "rest:2"])}}}),
        json!({"spec": {"kubeRBACProxy": null, "oauthProxy": {"port": 9000 + rng.below(9)}}}),
        json!({"spec": {"kubeRBACProxy": {"serviceRoute": one_of(rng, &["enabled", "disabled"])}, "oauthProxy": null}}),
        json!({"spec": {"kubeRBACProxy": null, "oauthProxy": null}}),
        json!({"spec": {"postgres": {"sslRootCertificateSecret": secret}}}),
        json!({"spec": {"postgres": {"sslRootCertificateSecret": null, "passwordSecret": secret}}}),
        json!({"metadata": {"annotations": {"openshift.io/display-name": rng.below(9).to_string()}}}),
        json!({"metadata": {"annotations": {"openshift.io/display-name": null}}}),
    ];
    one_of(rng, &changes)
}

/// What the Deployment controller, the endpoints controller and the router do, without faults of their own.
async fn run_workloads(world: &World) {
    let now = world.now().to_string();
    let objects = world.objects().await.unwrap();
    for (id, object) in &objects {
        match id.kind.as_str() {
            "Deployment" if object["status"]["conditions"].is_null() => {
                let available = json!({"type": "Available", "status": "True", "lastTransitionTime": now});
                let status =
                    json!({"status": {"replicas": 1, "readyReplicas": 1, "conditions": [available]}});
                world.patch(id, Some("status"), &status).await.unwrap();
            }
            "Deployment" => run_pod(world, id, object, &objects).await,
            "Service" => {
                let endpoints = ObjectId { kind: "Endpoints".to_owned(), ..id.clone() };
                if !objects.contains_key(&endpoints) {
                    let metadata = json!({"name": id.name, "namespace": id.namespace, "labels": object["metadata"]["labels"]});
                    let subsets = json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}]);
                    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets});
                    world.create(&endpoints).await.unwrap();
                }
            }
            "Route" if object["status"].is_null() => {
                let admitted = json!({"conditions": [{"type": "Admitted", "status": "True"}]});
                world.patch(id, None, &json!({"status": {"ingress": [admitted]}})).await.unwrap();
            }
            _ => {}
        }
    }
}

/// A pod with the containers of its Deployment.
async fn run_pod(world: &World, deployment: &ObjectId, object: &Value, objects: &BTreeMap<ObjectId, Value>) {
    let template = &object["spec"]["template"];
    let name = format!("{}-pod", deployment.name);
    let id = ObjectId { kind: "Pod".to_owned(), name: name.clone(), namespace: deployment.namespace.clone() };
    let names = |object: &Value| -> Vec<Value> {
        let containers = object["spec"]["containers"].as_array().cloned().unwrap_or_default();
        containers.iter().map(|container| container["name"].clone()).collect()
    };
    if objects.get(&id).is_some_and(|pod| names(pod) == names(template)) {
        return;
    }
    if objects.contains_key(&id) {
        world.delete(&id).await.unwrap();
        return;
    }
    let containers: Vec<_> = names(template).iter().map(|name| json!({"name": name, "image": "i"})).collect();
    let metadata = json!({"name": name, "namespace": id.namespace, "labels": template["metadata"]["labels"]});
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}});
    if world.create(&pod).await.unwrap().code != 201 {
        return;
    }
    let status = |container: &Value| json!({"name": container["name"], "image": "i", "imageID": "", "ready": true, "restartCount": 0});
    let statuses: Vec<_> = containers.iter().map(status).collect();
    world.patch(&id, Some("status"), &json!({"status": {"containerStatuses": statuses}})).await.unwrap();
}

fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"]["app.kubernetes.io/created-by"] == "model-registry-operator"
}

/// Another client deletes or changes an object of the operator.
async fn tamper(world: &World, rng: &Rng) {
    let objects = world.objects().await.unwrap();
    let ours: Vec<_> = objects
        .iter()
        .filter(|(id, object)| {
            // Secrets are not watched, a claim is protected, and Endpoints are not the operator's.
            is_ours(object)
                && !matches!(
                    id.kind.as_str(),
                    "Secret" | "PersistentVolumeClaim" | "Endpoints" | "EndpointSlice"
                )
        })
        .collect();
    if ours.is_empty() {
        return;
    }
    let (id, object) = one_of(rng, &ours);
    let is_of_users = matches!(id.kind.as_str(), "ConfigMap" | "ReferenceGrant")
        && id.name != "default-catalog-sources"
        && id.name != "model-catalog-kube-rbac-proxy-config";
    let patch = match id.kind.as_str() {
        _ if is_of_users || rng.happens(400) => {
            world.delete(id).await.unwrap();
            return;
        }
        "Deployment" => json!({"spec": {"replicas": 7, "template": {"spec": {"containers": []}}}}),
        "ConfigMap" => json!({"data": {"sources.yaml": "tampered", "more": "x"}}),
        "Role" => json!({"rules": []}),
        "RoleBinding" => json!({"subjects": []}),
        _ => {
            let labels = object["metadata"]["labels"].as_object().unwrap();
            let names = labels.keys().filter(|name| name.starts_with("app.kubernetes.io/part"));
            json!({"metadata": {"labels": names.map(|name| (name.clone(), "tampered")).collect::<BTreeMap<_, _>>()}})
        }
    };
    world.patch(id, None, &patch).await.unwrap();
}

/// Sources of the catalog come and go, and so do administrators.
async fn change_sources(world: &World, rng: &Rng) {
    let name = one_of(rng, &["a", "b", "c"]);
    let labels = json!({"opendatahub.io/catalog-source": "true"});
    let source = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "data": {"sources.yaml": "catalogs: []"},
    });
    if world.create(&source).await.unwrap().code != 201 {
        world.delete(&ObjectId::of(&source)).await.unwrap();
    }
    let groups: Vec<_> = (0..rng.below(3)).map(|number| format!("group-{number}")).collect();
    let auth = ObjectId::parse("Auth auth").unwrap();
    if world.objects().await.unwrap().contains_key(&auth) {
        world.patch(&auth, None, &json!({"spec": {"adminGroups": groups}})).await.unwrap();
    }
}

/// Everything that the operator made, and the status of its own kinds.
async fn made(world: &World) -> BTreeMap<String, Value> {
    let objects = world.objects().await.unwrap();
    let made = objects.into_iter().filter_map(|(id, object)| {
        let is_own = matches!(id.kind.as_str(), "ModelRegistry" | "Catalog");
        let is_compared =
            is_own || (is_ours(&object) && id.kind != "Endpoints" && id.kind != "EndpointSlice");
        let mut object = normalized(object, is_own);
        if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
            conditions.sort_by_key(|condition| condition["type"].to_string());
        }
        if let Some(status) = object["status"].as_object_mut() {
            status.remove("observedGeneration");
        }
        // Its password is made up.
        if id.kind == "Secret" {
            object["data"].take();
        }
        is_compared.then(|| (id.to_string(), object))
    });
    made.collect()
}

/// Lets the workloads run until all is well.
async fn settle(world: &World, seed: u64) {
    let mut states = Vec::new();
    for _ in 0..60 {
        run_workloads(world).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let objects = world.objects().await.unwrap();
        states = objects
            .values()
            .filter(|object| matches!(object["kind"].as_str(), Some("ModelRegistry" | "Catalog")))
            .map(|object| object["status"].clone())
            .collect();
        let holds = |status: &Value| {
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Available" && one["status"] == "True")
        };
        if states.len() == 3 && states.iter().all(holds) && world.settle().await.unwrap() {
            return;
        }
    }
    panic!("seed {seed}: never comes to rest: {states:#?}");
}

async fn serve(world: &mut World, kind: &str) {
    world.serve(kind).await.unwrap();
    if kind == "Auth" {
        let auth = json!({"apiVersion": "services.platform.opendatahub.io/v1alpha1", "kind": "Auth",
                          "metadata": {"name": "auth"}, "spec": {"adminGroups": ["admins"]}});
        assert_eq!(world.create(&auth).await.unwrap().code, 201);
    }
}

fn namespaces() -> [String; 2] {
    [NAMESPACE.to_owned(), APPLICATIONS.to_owned()]
}

/// What the operator makes of what users have, where nothing goes wrong.
async fn expected(template: &Api, live: &World, seed: u64) -> BTreeMap<String, Value> {
    let mut world = World::new(template, seed, &namespaces()).await.unwrap();
    for kind in OPTIONAL {
        world.serve(kind).await.unwrap();
    }
    world.start(&quintet_registry::component(), &setting()).await.unwrap();
    for (id, object) in live.objects().await.unwrap() {
        let is_source = object["metadata"]["labels"]["opendatahub.io/catalog-source"] == "true";
        if !is_source && !matches!(id.kind.as_str(), "ModelRegistry" | "Catalog" | "Auth") {
            continue;
        }
        let old = &object["metadata"];
        let metadata = json!({"name": old["name"], "namespace": old["namespace"], "labels": old["labels"],
                              "annotations": old["annotations"]});
        let mut copy =
            json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata});
        for field in ["spec", "data"] {
            if !object[field].is_null() {
                copy[field] = object[field].clone();
            }
        }
        assert_eq!(world.create(&copy).await.unwrap().code, 201, "{copy}");
    }
    settle(&world, seed).await;
    let made = made(&world).await;
    world.stop().await;
    made
}

async fn live(template: &Api, rates: FaultRates, seed: u64) {
    let (component, setting, rng) = (quintet_registry::component(), setting(), Rng::seeded(seed));
    let mut world = World::new(template, seed, &namespaces()).await.unwrap();
    world.start(&component, &setting).await.unwrap();
    let [own, generated] = registries();
    for object in [&own, &generated, &catalog()] {
        assert_eq!(world.create(object).await.unwrap().code, 201);
    }
    let mut unserved = OPTIONAL.to_vec();
    for _ in 0..12 {
        inject(&world, rates.requests, &rng);
        tokio::time::sleep(Duration::from_secs(rng.below(90))).await;
        if rng.happens(rates.crashes) {
            world.kill();
        }
        world.faults().clear();
        run_workloads(&world).await;
        match rng.below(6) {
            0 | 1 => tamper(&world, &rng).await,
            2 => change_sources(&world, &rng).await,
            3 => match unserved.pop() {
                Some(kind) => serve(&mut world, kind).await,
                None => world.kill(),
            },
            _ => {
                let registry = ObjectId::of(&one_of(&rng, &[own.clone(), generated.clone()]));
                world.patch(&registry, None, &new_mind(&rng)).await.unwrap();
            }
        }
        if !world.is_running() {
            world.start(&component, &setting).await.unwrap();
        }
    }
    for kind in unserved {
        serve(&mut world, kind).await;
    }
    settle(&world, seed).await;
    let (is, should_be) = (made(&world).await, expected(template, &world, seed).await);
    expect_same(&is, &should_be, seed);
    expect_no_writes(&mut world, &component, &setting, seed).await;
    expect_nothing_left(&world, seed).await;
    world.stop().await;
}

/// Nothing of a deleted registry stays behind that the garbage collector would not find.
async fn expect_nothing_left(world: &World, seed: u64) {
    for object in registries().iter().chain([&catalog()]) {
        world.delete(&ObjectId::of(object)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_mins(10)).await;
    let objects = world.objects().await.unwrap();
    let left = objects.iter().filter(|(id, object)| {
        let is_of_users = matches!(
            id.name.as_str(),
            "model-catalog-sources" | "mcp-catalog-sources" | "agent-catalog-sources"
        );
        // Without its controllers, a cluster does not release claims, and Endpoints are not the operator's.
        let is_of_others =
            matches!(id.kind.as_str(), "PersistentVolumeClaim" | "Endpoints" | "EndpointSlice");
        is_ours(object) && !is_of_users && !is_of_others
    });
    let left: Vec<_> = left.map(|(id, _)| id.to_string()).collect();
    assert!(left.is_empty(), "seed {seed}: {left:?} should be gone");
}

fn try_worlds(rates: FaultRates, default: u64) {
    let template = async { template(&quintet_registry::component(), &[]).await };
    simulation::try_worlds(default, template, &async |template, seed| live(template, rates, seed).await);
}

#[test]
fn a_world_without_faults_ends_right() {
    try_worlds(FaultRates::default(), 4);
}

#[test]
fn a_rough_world_ends_right() {
    try_worlds(ROUGH, 12);
}

#[test]
fn a_world_whose_operator_dies_ends_right() {
    try_worlds(FaultRates { crashes: 600, ..FaultRates::default() }, 6);
}
