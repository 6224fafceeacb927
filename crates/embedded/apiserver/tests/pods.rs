//! Pods: defaults, binding, eviction, deletion.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod support;

use quintet_apiserver::{Clock, Rng};
use serde_json::{Value, json};
use support::{api, send, send_typed};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MERGE: &str = "application/merge-patch+json";

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}})
}

#[tokio::test]
async fn a_pod_is_completed_and_bound() {
    let api = api().await;
    let made = send(&api, "POST", PODS, pod("a")).await.expect(201);
    assert_eq!(
        (&made["spec"]["serviceAccountName"], &made["spec"]["priority"]),
        (&json!("default"), &json!(0))
    );
    assert_eq!(
        (&made["status"]["phase"], &made["status"]["qosClass"]),
        (&json!("Pending"), &json!("BestEffort"))
    );
    assert_eq!(made["spec"]["tolerations"].as_array().unwrap().len(), 2);
    assert!(made["spec"]["volumes"][0]["name"].as_str().unwrap().starts_with("kube-api-access-"));
    let binding = json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}});
    let done = send(&api, "POST", &format!("{PODS}/a/binding"), binding.clone()).await.expect(201);
    assert_eq!(done["status"], "Success");
    let bound = send(&api, "GET", &format!("{PODS}/a"), None).await.expect(200);
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    let again = send(&api, "POST", &format!("{PODS}/a/binding"), binding).await;
    assert_eq!(
        again.message(),
        "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n1\""
    );
    let list = send(&api, "GET", &format!("{PODS}?fieldSelector=spec.nodeName%3Dn1"), None).await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);

    // A pod on a node gets its time; a second deletion may only shorten it.
    let going = send(&api, "DELETE", &format!("{PODS}/a"), None).await.expect(200);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    let gone = send(&api, "DELETE", &format!("{PODS}/a?gracePeriodSeconds=0"), None).await.expect(200);
    assert_eq!(gone["kind"], "Pod");
    send(&api, "GET", &format!("{PODS}/a"), None).await.expect(404);
}

#[tokio::test]
async fn pods_are_refused_for_good_reasons() {
    let api = api().await;
    for (change, message) in [
        (
            json!({"serviceAccountName": "nope"}),
            "pods \"a\" is forbidden: error looking up service account default/nope: serviceaccount \"nope\" not found",
        ),
        (
            json!({"priorityClassName": "nope"}),
            "pods \"a\" is forbidden: no PriorityClass with name nope was found",
        ),
        (
            json!({"runtimeClassName": "nope"}),
            "pods \"a\" is forbidden: pod rejected: RuntimeClass \"nope\" not found",
        ),
        (json!({"containers": []}), "Pod \"a\" is invalid: spec.containers: Required value"),
    ] {
        let mut object = pod("a");
        object["spec"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let reply = send(&api, "POST", PODS, object).await;
        assert_eq!(reply.message(), message);
    }
    send(&api, "POST", PODS, pod("a")).await.expect(201);
    let patch = json!({"spec": {"containers": [{"name": "c", "command": ["x"]}]}});
    let reply =
        send_typed(&api, "PATCH", &format!("{PODS}/a"), "application/strategic-merge-patch+json", patch)
            .await;
    assert_eq!(reply.code, 422);
    assert!(reply.message().contains("pod updates may not change fields other than"), "{}", reply.message());
}

#[tokio::test]
async fn pods_that_nothing_runs_say_so() {
    let api = api().await;
    send(&api, "POST", PODS, pod("a")).await.expect(201);
    let nothing = "pod a does not have a host assigned: nothing runs it; ";
    let log = send(&api, "GET", &format!("{PODS}/a/log"), None).await;
    assert_eq!((log.code, log.bytes.len()), (204, 0), "empty, as Kubernetes responds");
    let warning = log.headers["warning"].to_str().unwrap();
    assert!(
        warning.contains(nothing) && warning.contains("'quintet simulate-nodes --schedule'"),
        "{warning}"
    );
    for stream in ["exec?command=ls", "attach", "portforward?ports=80"] {
        let reply = send(&api, "POST", &format!("{PODS}/a/{stream}"), None).await;
        assert_eq!(reply.code, 400, "{stream}");
        assert!(reply.message().starts_with(nothing), "{stream}: {}", reply.message());
    }
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "simulated-0"}});
    send(&api, "POST", &format!("{PODS}/a/binding"), binding).await.expect(201);
    let simulated = "node simulated-0 runs no containers of pod a: nodes of this cluster are simulated";
    let reply = send(&api, "POST", &format!("{PODS}/a/exec?command=ls"), None).await;
    assert_eq!((reply.code, reply.message()), (400, simulated));
    let log = send(&api, "GET", &format!("{PODS}/a/log"), None).await;
    assert!(log.message().ends_with(simulated), "{}", log.message());
}

#[tokio::test]
async fn budgets_protect_running_pods() {
    let api = api().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "pdb"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    send(&api, "POST", budgets, budget).await.expect(201);
    send(&api, "POST", PODS, pod("a")).await.expect(201);
    let merge = "application/merge-patch+json";
    set_status(&api, "a", "True").await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
    let path = format!("{PODS}/a/eviction");
    let early = send(&api, "POST", &path, eviction.clone()).await;
    assert_eq!((early.code, early.headers["retry-after"].to_str().unwrap()), (429, "10"));
    let status = |allowed: i64| json!({"status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "desiredHealthy": 1, "currentHealthy": 1, "expectedPods": 1}});
    send_typed(&api, "PATCH", &format!("{budgets}/pdb/status"), merge, status(0)).await.expect(200);
    let refused = send(&api, "POST", &path, eviction.clone()).await;
    assert_eq!(
        (refused.code, refused.message()),
        (429, "Cannot evict pod as it would violate the pod's disruption budget.")
    );
    assert_eq!(
        refused.body["details"]["causes"][0]["message"],
        "The disruption budget pdb needs 1 healthy pods and has 1 currently"
    );
    send_typed(&api, "PATCH", &format!("{budgets}/pdb/status"), merge, status(1)).await.expect(200);
    send(&api, "POST", &path, eviction).await.expect(201);
    send(&api, "GET", &format!("{PODS}/a"), None).await.expect(404);
}

/// A pod that runs, and is ready or not.
async fn set_status(api: &quintet_apiserver::Api, name: &str, ready: &str) {
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
    let merge = "application/merge-patch+json";
    send_typed(api, "PATCH", &format!("{PODS}/{name}/status"), merge, json!({"status": status}))
        .await
        .expect(200);
}

#[tokio::test]
async fn an_evicted_pod_says_why_it_goes() {
    let api = api().await;
    let mut held = pod("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let made = send(&api, "POST", PODS, held).await.expect(201);
    let path = format!("{PODS}/a/eviction");
    let other = json!({"metadata": {"name": "a"}, "deleteOptions": {"preconditions": {"uid": "other"}}});
    send(&api, "POST", &path, other).await.expect(409);
    let dry = json!({"metadata": {"name": "a"}, "deleteOptions": {"dryRun": ["All"]}});
    send(&api, "POST", &path, dry).await.expect(201);
    let same = send(&api, "GET", &format!("{PODS}/a"), None).await.expect(200);
    assert_eq!(
        same["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"],
        "nothing was written"
    );
    let version = &made["metadata"]["resourceVersion"];
    let right =
        json!({"metadata": {"name": "a"}, "deleteOptions": {"preconditions": {"resourceVersion": version}}});
    send(&api, "POST", &path, right).await.expect(201);
    let going = send(&api, "GET", &format!("{PODS}/a"), None).await.expect(200);
    assert!(going["metadata"]["deletionTimestamp"].is_string(), "{going}");
    let conditions = going["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|one| one["type"] == "DisruptionTarget").unwrap();
    assert_eq!(
        (&target["status"], &target["reason"], &target["message"]),
        (&json!("True"), &json!("EvictionByEvictionAPI"), &json!("Eviction API: evicting"))
    );
}

#[tokio::test]
async fn pods_that_are_not_ready_are_evicted_if_enough_others_are() {
    let api = api().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let mut budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "pdb"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    send(&api, "POST", budgets, budget.clone()).await.expect(201);
    let merge = "application/merge-patch+json";
    let healthy = async |count: i64| {
        let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1,
            "currentHealthy": count, "expectedPods": 2}});
        send_typed(&api, "PATCH", &format!("{budgets}/pdb/status"), merge, status).await.expect(200);
    };
    let evict = async |name: &str| {
        send(&api, "POST", &format!("{PODS}/{name}/eviction"), json!({"metadata": {"name": name}})).await.code
    };
    for (name, ready) in [("sick", "False"), ("ready", "True"), ("sicker", "False")] {
        send(&api, "POST", PODS, pod(name)).await.expect(201);
        set_status(&api, name, ready).await;
    }
    healthy(0).await;
    assert_eq!(evict("sick").await, 429, "too few others are healthy");
    healthy(1).await;
    assert_eq!((evict("ready").await, evict("sick").await), (429, 201));
    healthy(0).await;
    budget["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
    send_typed(&api, "PATCH", &format!("{budgets}/pdb"), merge, budget).await.expect(200);
    assert_eq!(evict("sicker").await, 201);
}

#[tokio::test]
async fn jobs_orphan_their_pods_by_default() {
    let api = api().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}});
    let made = send(&api, "POST", jobs, job).await.expect(201);
    let uid = &made["metadata"]["uid"];
    assert_eq!(&made["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], uid);
    let mut child = pod("a");
    child["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": true}]);
    send(&api, "POST", PODS, child).await.expect(201);
    let going = send(&api, "DELETE", &format!("{jobs}/j"), None).await.expect(200);
    assert_eq!(going["metadata"]["finalizers"], json!(["orphan"]));
    support::eventually(async || send(&api, "GET", &format!("{jobs}/j"), None).await.code == 404).await;
    let orphan = send(&api, "GET", &format!("{PODS}/a"), None).await.expect(200);
    assert!(orphan["metadata"].get("ownerReferences").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_goes_in_time_if_its_node_does_not_exist() {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let api = api().await.fork(Clock::simulated(start), Rng::seeded(1));
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}});
    send(&api, "POST", "/api/v1/nodes", node).await.expect(201);
    for (name, node) in [("lost", "nowhere"), ("kept", "here")] {
        let mut pod = pod(name);
        pod["spec"]["nodeName"] = json!(node);
        pod["spec"]["terminationGracePeriodSeconds"] = json!(1);
        send(&api, "POST", PODS, pod).await.expect(201);
        send(&api, "DELETE", &format!("{PODS}/{name}"), None).await.expect(200);
    }
    until_gone(&api, "lost").await;
    // This one waits for the agent of its node, until there is no such node any more.
    send(&api, "GET", &format!("{PODS}/kept"), None).await.expect(200);
    send(&api, "DELETE", "/api/v1/nodes/here", None).await.expect(200);
    until_gone(&api, "kept").await;
}

async fn until_gone(api: &quintet_apiserver::Api, name: &str) {
    let pods: std::sync::Arc<str> = "core/pods".into();
    let mut changes = api.store().follow(&pods);
    while api.store().get(&pods, &format!("default/{name}")).is_some() {
        changes.changed().await.unwrap();
    }
}

#[tokio::test]
async fn a_claim_goes_when_no_pod_uses_it_any_more() {
    let api = api().await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    send(&api, "POST", claims, claim).await.expect(201);
    let mut pod = pod("user");
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    send(&api, "POST", PODS, pod).await.expect(201);
    let going = send(&api, "DELETE", &format!("{claims}/c"), None).await.expect(200);
    assert_eq!(going["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    // What is too large by now can still go.
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Mi"}}]}});
    send(&api, "POST", "/api/v1/namespaces/default/limitranges", range).await.expect(201);
    let bucket: std::sync::Arc<str> = "core/persistentvolumeclaims".into();
    let mut changes = api.store().follow(&bucket);
    send(&api, "GET", &format!("{claims}/c"), None).await.expect(200);
    send(&api, "DELETE", &format!("{PODS}/user"), None).await.expect(200);
    while api.store().get(&bucket, "default/c").is_some() {
        changes.changed().await.unwrap();
    }
}

#[tokio::test]
async fn a_claim_grows_only_where_its_class_allows_it() {
    let api = api().await;
    for (name, allows) in [("fixed", false), ("elastic", true)] {
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "example.com/disks", "allowVolumeExpansion": allows});
        send(&api, "POST", "/apis/storage.k8s.io/v1/storageclasses", class).await.expect(201);
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
            "storageClassName": name, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}});
        send(&api, "POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim).await.expect(201);
    }
    let resize = async |name: &str, storage: &str| {
        let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}");
        let patch = json!({"spec": {"resources": {"requests": {"storage": storage}}}});
        send_typed(&api, "PATCH", &path, MERGE, patch).await
    };
    let refused = resize("elastic", "3Gi").await.expect(422);
    assert!(refused["message"].as_str().unwrap().contains("spec is immutable after creation"), "{refused}");
    for name in ["fixed", "elastic"] {
        let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}/status");
        let status = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
        send_typed(&api, "PATCH", &path, MERGE, status).await.expect(200);
    }
    let refused = resize("fixed", "3Gi").await.expect(403);
    let expected = "persistentvolumeclaims \"fixed\" is forbidden: only dynamically provisioned pvc can be resized and \
                    the storageclass that provisions the pvc must support resize";
    assert_eq!(refused["message"], expected);
    resize("elastic", "3Gi").await.expect(200);
    // A growth that failed is taken back, but not below what there is.
    resize("elastic", "2Gi").await.expect(200);
    let refused = resize("elastic", "1Gi").await.expect(422);
    assert!(
        refused["message"].as_str().unwrap().contains("field can not be less than status.capacity"),
        "{refused}"
    );
}
