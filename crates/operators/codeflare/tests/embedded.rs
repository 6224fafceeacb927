//! The operator on a cluster in memory, with real workload controllers, Ray's operator, simulated nodes, and no more rights
//! than its descriptor asks for. Its webhooks are asked by the API server.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod bed;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bed::NAMESPACE;
use quintet_golden::{Caller, ObjectId, World, simulate};
use serde_json::{Value, json};

const CONFIGURATION: &str =
    "kuberay: {rayDashboardOAuthEnabled: false, ingressDomain: kind}\nappwrapper: {enabled: true}";

fn id(kind: &str, name: &str) -> ObjectId {
    ObjectId::parse(&format!("{kind} {NAMESPACE}/{name}")).unwrap()
}

async fn started(seed: u64) -> World {
    let template = bed::template().await;
    let mut world = bed::world(&template, seed).await;
    let (component, setting) = (quintet_codeflare::component(), bed::setting(CONFIGURATION));
    world.start(&component, &setting).await.unwrap();
    world.serve_webhooks(&component, &setting).await.unwrap();
    world
}

fn run(test: impl Future<Output = ()>) {
    simulate(async {
        test.await;
        Ok(())
    })
    .unwrap();
}

/// Waits for a phase of an AppWrapper, at most some minutes.
async fn reaches(world: &World, name: &str, phase: &str) -> Value {
    let mut last = Value::Null;
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        last = world.get(&id("AppWrapper", name)).await.unwrap().unwrap_or_default();
        if last["status"]["phase"] == phase {
            return last;
        }
    }
    panic!("{name} is not {phase}: {last:#}");
}

/// Everything in the namespace that has an owner or the label of an AppWrapper.
async fn leftovers(world: &World) -> Vec<String> {
    let objects = world.objects().await.unwrap();
    let is_left = |object: &Value| {
        !object["metadata"]["ownerReferences"].is_null()
            || !object["metadata"]["labels"]["workload.codeflare.dev/appwrapper"].is_null()
    };
    let of_namespace = objects.iter().filter(|(id, object)| id.namespace == NAMESPACE && is_left(object));
    of_namespace.map(|(id, _)| id.to_string()).collect()
}

fn deployment(kind: &str) -> Value {
    let mut template = bed::pod_spec(json!({}));
    (template["metadata"], template["spec"]["restartPolicy"]) =
        (json!({"labels": {"app": "x"}}), json!("Always"));
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template, "serviceName": "x"});
    let mut object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec});
    if kind == "Deployment" {
        object["spec"].as_object_mut().unwrap().remove("serviceName");
    }
    object
}

#[test]
fn wrapped_kinds_run_and_leave_nothing() {
    run(async {
        let world = started(1).await;
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
                             "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}});
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}});
        let rows = [
            ("job", vec![bed::job("j", json!({"node.quintet.dev/run-for": "3s"}))], "Succeeded"),
            ("pods", vec![bed::pod("a", json!({})), bed::pod("b", json!({})), service, config], "Running"),
            ("deployment", vec![deployment("Deployment")], "Running"),
            ("statefulset", vec![deployment("StatefulSet")], "Running"),
            ("raycluster", vec![bed::ray_cluster("ray")], "Running"),
        ];
        for (name, templates, phase) in rows {
            let answer = world.create(&bed::appwrapper(name, 0, &templates)).await.unwrap();
            assert_eq!(answer.code, 201, "{name}: {answer:?}");
            reaches(&world, name, phase).await;
            // Ready, unless it is done: nothing is reset later.
            tokio::time::sleep(Duration::from_mins(2)).await;
            let object = reaches(&world, name, phase).await;
            let conditions = object["status"]["conditions"].as_array().unwrap().clone();
            let is_ready = conditions.iter().any(|one| one["type"] == "PodsReady" && one["status"] == "True");
            assert!(is_ready || phase == "Succeeded", "{name}: {conditions:?}");
            world.delete(&id("AppWrapper", name)).await.unwrap();
            tokio::time::sleep(Duration::from_mins(2)).await;
            assert_eq!(world.get(&id("AppWrapper", name)).await.unwrap(), None, "{name}");
            assert_eq!(leftovers(&world).await, Vec::<String>::new(), "{name}");
        }
        world.stop().await;
    });
}

#[test]
fn kinds_without_a_controller_here_are_created_and_deleted() {
    run(async {
        let world = started(2).await;
        let template = bed::pod_spec(json!({}));
        let replicas = json!({"Master": {"replicas": 1, "template": template}});
        let pytorch = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "p"},
                             "spec": {"pytorchReplicaSpecs": replicas}});
        let job = json!({"name": "r", "template": {"spec": {"template": template}}});
        let job_set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "p"},
                             "spec": {"replicatedJobs": [job]}});
        for (name, kind, object) in [("pytorch", "PyTorchJob", pytorch), ("jobset", "JobSet", job_set)] {
            assert_eq!(world.create(&bed::appwrapper(name, 0, &[object])).await.unwrap().code, 201);
            reaches(&world, name, "Running").await;
            assert!(world.get(&id(kind, "p")).await.unwrap().is_some());
            world.delete(&id("AppWrapper", name)).await.unwrap();
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert_eq!(world.get(&id(kind, "p")).await.unwrap(), None);
            assert_eq!(world.get(&id("AppWrapper", name)).await.unwrap(), None);
        }
        world.stop().await;
    });
}

#[test]
fn a_failing_one_is_retried_and_then_gives_up() {
    run(async {
        let world = started(3).await;
        let failing =
            bed::pod("p", json!({"node.quintet.dev/run-for": "5s", "node.quintet.dev/exit-code": "1"}));
        world.create(&bed::appwrapper("w", 2, &[failing])).await.unwrap();
        let failed = reaches(&world, "w", "Failed").await;
        assert_eq!(failed["status"]["resettingCount"], 2);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(leftovers(&world).await, Vec::<String>::new());
        world.stop().await;
    });
}

/// Lets a user create resources in the namespace.
async fn allow(world: &World, user: &str, resources: &[&str]) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let (api_version, metadata) = (format!("{GROUP}/v1"), json!({"name": user, "namespace": NAMESPACE}));
    let rules =
        json!([{"apiGroups": ["", "workload.codeflare.dev"], "resources": resources, "verbs": ["create"]}]);
    let role = json!({"apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": rules});
    let binding = json!({
        "apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": user},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
    });
    for object in [role, binding] {
        assert_eq!(world.create(&object).await.unwrap().code, 201);
    }
}

#[test]
fn a_user_cannot_smuggle_in_what_the_user_may_not_create() {
    run(async {
        let world = started(4).await;
        allow(&world, "bob", &["appwrappers", "pods"]).await;
        allow(&world, "alice", &["appwrappers", "pods", "secrets"]).await;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {}});
        let object = bed::appwrapper("w", 0, &[bed::pod("p", json!({})), secret]);
        let (denied, _) = world.create_as(Caller::known("bob", []), &object).await.unwrap();
        assert_eq!(denied.code, 403);
        assert_eq!(
            denied.message.unwrap(),
            "admission webhook \"vappwrapper.kb.io\" denied the request: spec.components[1].template: Forbidden: \
             User bob is not authorized to create secrets in team"
        );
        let (allowed, stored) = world.create_as(Caller::known("alice", []), &object).await.unwrap();
        assert_eq!(allowed.code, 201, "{allowed:?}");
        assert_eq!(stored["metadata"]["labels"]["workload.codeflare.dev/user"], "alice");
        reaches(&world, "w", "Running").await;
        assert!(world.get(&id("Secret", "s")).await.unwrap().is_some());
        world.stop().await;
    });
}

/// Writes from now on, but for the leases and states of nodes.
fn writes(world: &World) -> Arc<Mutex<Vec<String>>> {
    let writes = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&writes);
    world.faults().decide(move |met| {
        let is_read = matches!(met.verb, "get" | "list" | "watch");
        if !is_read && !matches!(met.resource, "leases" | "nodes") {
            seen.lock().unwrap().push(format!("{} {} {}", met.verb, met.resource, met.name));
        }
        None
    });
    writes
}

#[test]
fn two_controllers_leave_a_ray_cluster_in_peace() {
    run(async {
        let mut world = started(5).await;
        let mut cluster = bed::ray_cluster("ray");
        cluster["metadata"]["namespace"] = json!(NAMESPACE);
        assert_eq!(world.create(&cluster).await.unwrap().code, 201);
        tokio::time::sleep(Duration::from_mins(5)).await;
        let cluster = world.get(&id("RayCluster", "ray")).await.unwrap().unwrap();
        assert_eq!(cluster["status"]["state"], "ready", "{:#}", cluster["status"]);
        assert_eq!(cluster["metadata"]["finalizers"], json!(["ray.openshift.ai/oauth-finalizer"]));
        assert!(world.get(&id("Ingress", "ray-dashboard-ray")).await.unwrap().is_some());
        let quiet = writes(&world);
        tokio::time::sleep(Duration::from_mins(30)).await;
        assert_eq!(*quiet.lock().unwrap(), Vec::<String>::new());
        world.kill();
        let (component, setting) = (quintet_codeflare::component(), bed::setting(CONFIGURATION));
        world.start(&component, &setting).await.unwrap();
        world.serve_webhooks(&component, &setting).await.unwrap();
        quiet.lock().unwrap().clear();
        tokio::time::sleep(Duration::from_mins(30)).await;
        assert_eq!(*quiet.lock().unwrap(), Vec::<String>::new(), "also after a restart");
        world.faults().clear();
        world.delete(&id("RayCluster", "ray")).await.unwrap();
        tokio::time::sleep(Duration::from_mins(3)).await;
        assert_eq!(leftovers(&world).await, Vec::<String>::new());
        world.stop().await;
    });
}
