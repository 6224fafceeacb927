//! AppWrappers on a cluster whose nodes are simulated.

use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use crate::bed::{Bed, TEAM, eventually};

const API: &str = "workload.codeflare.dev/v1beta2";
const LABEL: &str = "workload.codeflare.dev/appwrapper";

pub(crate) async fn check(bed: &Bed) {
    for (name, templates, outcome) in wrapped() {
        runs_and_leaves_nothing(bed, name, &templates, outcome).await;
    }
    retries_and_gives_up(bed).await;
    creates_what_its_user_may_create(bed).await;
    rejects_what_upstream_rejects(bed).await;
}

fn pod_template(annotations: &Value) -> Value {
    let container =
        json!({ "name": "c", "image": "example.invalid/c", "resources": { "requests": { "cpu": "100m" } } });
    json!({ "metadata": { "annotations": annotations, "labels": { "app": "x" } },
        "spec": { "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container] } })
}

fn pod(name: &str, annotations: &Value) -> Value {
    let mut pod = pod_template(annotations);
    (pod["apiVersion"], pod["kind"], pod["metadata"]["name"]) = (json!("v1"), json!("Pod"), json!(name));
    pod
}

fn replicated(kind: &str) -> Value {
    let mut template = pod_template(&json!({}));
    template["spec"]["restartPolicy"] = json!("Always");
    let mut spec =
        json!({ "replicas": 2, "selector": { "matchLabels": { "app": "x" } }, "template": template });
    if kind == "StatefulSet" {
        spec["serviceName"] = json!("x");
    }
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": "x" }, "spec": spec })
}

fn ray_cluster_spec() -> Value {
    let template = |name: &str| {
        json!({ "spec": { "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": name, "image": "example.invalid/ray" }] } })
    };
    let group = json!({ "groupName": "g", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {},
        "template": template("worker") });
    json!({ "rayVersion": "2.46.0", "headGroupSpec": { "rayStartParams": {}, "template": template("head") },
        "workerGroupSpecs": [group] })
}

/// Names, components, and the phase that they reach.
fn wrapped() -> Vec<(&'static str, Vec<Value>, &'static str)> {
    let ends = json!({ "node.quintet.dev/run-for": "2s" });
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j" },
        "spec": { "backoffLimit": 0, "template": pod_template(&ends) } });
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" },
        "spec": { "ports": [{ "port": 80 }], "selector": { "app": "x" } } });
    let config =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" }, "data": { "a": "b" } });
    let pytorch = json!({ "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": { "name": "p" },
        "spec": { "pytorchReplicaSpecs": { "Master": { "replicas": 1, "template": pod_template(&json!({})) } } } });
    let replicated_job =
        json!({ "name": "r", "template": { "spec": { "template": pod_template(&json!({})) } } });
    let job_set = json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": { "name": "p" },
        "spec": { "replicatedJobs": [replicated_job] } });
    let ray = |kind: &str, spec: Value| json!({ "apiVersion": "ray.io/v1", "kind": kind, "metadata": { "name": "ray" }, "spec": spec });
    let ray_job = json!({ "entrypoint": "true", "rayClusterSpec": ray_cluster_spec() });
    vec![
        ("job", vec![job], "Succeeded"),
        ("pods", vec![pod("a", &json!({})), pod("b", &json!({})), service, config], "Running"),
        ("deployment", vec![replicated("Deployment")], "Running"),
        ("statefulset", vec![replicated("StatefulSet")], "Running"),
        ("raycluster", vec![ray("RayCluster", ray_cluster_spec())], "Running"),
        ("rayjob", vec![ray("RayJob", ray_job)], "Running"),
        // Only their definitions are here: nothing makes their pods.
        ("pytorchjob", vec![pytorch], "Running"),
        ("jobset", vec![job_set], "Running"),
    ]
}

/// An AppWrapper with short periods.
fn appwrapper(name: &str, retries: u32, templates: &[Value]) -> Value {
    let option = |name: &str| format!("workload.codeflare.dev.appwrapper/{name}");
    let annotations = json!({
        option("failureGracePeriodDuration"): "1s", option("retryPausePeriodDuration"): "1s",
        option("retryLimit"): retries.to_string(),
    });
    let components: Vec<_> = templates.iter().map(|template| json!({ "template": template })).collect();
    json!({ "apiVersion": API, "kind": "AppWrapper", "metadata": { "name": name, "annotations": annotations },
        "spec": { "components": components } })
}

async fn reaches(bed: &Bed, name: &str, phase: &str) -> Value {
    bed.until((API, "AppWrapper", TEAM, name), |object| object["status"]["phase"] == phase).await
}

async fn runs_and_leaves_nothing(bed: &Bed, name: &str, templates: &[Value], phase: &str) {
    bed.create(TEAM, &appwrapper(name, 0, templates)).await.unwrap();
    reaches(bed, name, phase).await;
    let has_pods = !matches!(name, "pytorchjob" | "jobset");
    let is_ready = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "PodsReady" && one["status"] == "True")
    };
    if phase == "Running" && has_pods {
        bed.until((API, "AppWrapper", TEAM, name), is_ready).await;
    }
    for template in templates {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (api_version, kind) = (text(&template["apiVersion"]), text(&template["kind"]));
        let component = text(&template["metadata"]["name"]);
        let owned = |object: &Value| object["metadata"]["labels"][LABEL] == name;
        bed.until((&api_version, &kind, TEAM, &component), owned).await;
    }
    bed.objects(API, "AppWrapper", TEAM).delete(name, &DeleteParams::default()).await.unwrap();
    bed.gone((API, "AppWrapper", TEAM, name)).await;
    let pods = bed.objects("v1", "Pod", TEAM);
    let gone =
        eventually(async || pods.list(&ListParams::default()).await.unwrap().items.is_empty().then_some(()));
    assert!(gone.await.is_some(), "pods of {name} are left");
    for template in templates {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let component = text(&template["metadata"]["name"]);
        bed.gone((&text(&template["apiVersion"]), &text(&template["kind"]), TEAM, &component)).await;
    }
}

async fn retries_and_gives_up(bed: &Bed) {
    let fails = json!({ "node.quintet.dev/run-for": "1s", "node.quintet.dev/exit-code": "1" });
    bed.create(TEAM, &appwrapper("failing", 2, &[pod("p", &fails)])).await.unwrap();
    let failed = reaches(bed, "failing", "Failed").await;
    assert_eq!(failed["status"]["resettingCount"], 2, "{failed:#}");
    bed.gone(("v1", "Pod", TEAM, "p")).await;
    bed.objects(API, "AppWrapper", TEAM).delete("failing", &DeleteParams::default()).await.unwrap();
    bed.gone((API, "AppWrapper", TEAM, "failing")).await;
}

/// Lets a user create resources in the namespace of the team.
async fn allow(bed: &Bed, user: &str, resources: &[&str]) {
    let (rbac, metadata) = ("rbac.authorization.k8s.io", json!({ "name": user }));
    let api_version = format!("{rbac}/v1");
    let rules =
        json!([{ "apiGroups": ["", "workload.codeflare.dev"], "resources": resources, "verbs": ["create"] }]);
    let role = json!({ "apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": rules });
    let binding = json!({ "apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": rbac, "kind": "Role", "name": user },
        "subjects": [{ "apiGroup": rbac, "kind": "User", "name": user }] });
    for object in [role, binding] {
        bed.create(TEAM, &object).await.unwrap();
    }
}

async fn creates_what_its_user_may_create(bed: &Bed) {
    allow(bed, "bob", &["appwrappers", "pods"]).await;
    allow(bed, "alice", &["appwrappers", "pods", "secrets"]).await;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": {} });
    let object = appwrapper("smuggler", 0, &[pod("p", &json!({})), secret]);
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let denied = bed.objects_as("bob", API, "AppWrapper").create(&PostParams::default(), &object).await;
    let kube::Error::Api(denied) = denied.unwrap_err() else { panic!("bob is not denied") };
    assert_eq!(
        denied.message,
        "admission webhook \"vappwrapper.kb.io\" denied the request: spec.components[1].template: Forbidden: User bob \
         is not authorized to create secrets in installed-team"
    );
    let allowed = bed.objects_as("alice", API, "AppWrapper").create(&PostParams::default(), &object).await;
    assert_eq!(allowed.unwrap().metadata.labels.unwrap()["workload.codeflare.dev/user"], "alice");
    reaches(bed, "smuggler", "Running").await;
    bed.until(("v1", "Secret", TEAM, "s"), |_| true).await;
    bed.objects(API, "AppWrapper", TEAM).delete("smuggler", &DeleteParams::default()).await.unwrap();
    bed.gone((API, "AppWrapper", TEAM, "smuggler")).await;
}

/// Components that are rejected, and what the error says.
fn rejected() -> Vec<(&'static str, Value, &'static str)> {
    let component = |template: Value| json!([{ "template": template }]);
    let with_pod_sets = |pod_sets: Value| json!([{ "template": pod("p", &json!({})), "podSets": pod_sets }]);
    let mut elsewhere = pod("p", &json!({}));
    elsewhere["metadata"]["namespace"] = json!("default");
    let without = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" } });
    let cluster_role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "c" } });
    let unknown = json!({ "apiVersion": "example.com/v1", "kind": "Unknown", "metadata": { "name": "u" } });
    let nested = appwrapper("inner", 0, &[pod("p", &json!({}))]);
    vec![
        ("no components", json!([]), "components"),
        ("nothing with pods", component(without), "podspecs"),
        ("a nested AppWrapper", component(nested), "Nested AppWrappers are forbidden"),
        ("another namespace", component(elsewhere), "AppWrappers cannot create objects in other namespaces"),
        ("an unknown kind", component(unknown), "Unknown"),
        ("a kind of the whole cluster", component(cluster_role), "components contains no podspecs"),
        (
            "a path that does not exist",
            with_pod_sets(json!([{ "path": "template.nowhere" }])),
            "template.nowhere",
        ),
        ("a wrong count", with_pod_sets(json!([{ "path": "template", "replicas": 2 }])), "replicas"),
    ]
}

async fn rejects_what_upstream_rejects(bed: &Bed) {
    for (what, components, reason) in rejected() {
        let mut object = appwrapper("bad", 0, &[]);
        object["spec"]["components"] = components;
        let error = bed.create(TEAM, &object).await.map(drop).expect_err(what).to_string();
        assert!(error.contains(reason), "{what}: {error}");
    }
}
