//! Privilege escalation is prevented.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bytes::Bytes;
use http::Request;
use quintet_apiserver::{Api, Caller};
use serde_json::{Value, json};
use support::{Reply, api, send, send_as};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn as_user(api: &Api, user: &str, method: &str, path: &str, kind: &str, body: Value) -> Reply {
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let caller = Caller::known(user, []);
    send_as(api, caller, request.body(Bytes::from(body.to_string())).unwrap()).await
}

/// Lets a user do something in the whole cluster.
async fn grant(api: &Api, user: &str, rules: Value) {
    let role = json!({"metadata": {"name": user}, "rules": rules});
    send(api, "POST", &format!("{RBAC}/clusterroles"), role).await.expect(201);
    let binding = json!({"metadata": {"name": user}, "subjects": [{"kind": "User", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}});
    send(api, "POST", &format!("{RBAC}/clusterrolebindings"), binding).await.expect(201);
}

#[tokio::test]
async fn a_selector_names_a_request_only_where_it_selects() {
    let api = api().await;
    let rule = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"], "resourceNames": ["x"]}]);
    grant(&api, "eve", rule).await;
    let path = "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dx";
    let json = "application/json";
    as_user(&api, "eve", "GET", path, json, Value::Null).await.expect(200);
    as_user(&api, "eve", "POST", path, json, json!({"metadata": {"name": "y"}})).await.expect(403);
    as_user(&api, "eve", "DELETE", path, json, Value::Null).await.expect(403);
}

#[tokio::test]
async fn patch_and_update_do_not_create_without_the_right_to() {
    let api = api().await;
    let rule = json!([{"apiGroups": ["", "coordination.k8s.io"], "resources": ["configmaps", "leases"], "verbs": ["patch", "update"]}]);
    grant(&api, "eve", rule).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    let path = "/api/v1/namespaces/default/configmaps/m?fieldManager=eve";
    let apply = "application/apply-patch+yaml";
    as_user(&api, "eve", "PATCH", path, apply, map.clone()).await.expect(403);
    let lease = json!({"metadata": {"name": "l"}, "spec": {}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    as_user(&api, "eve", "PUT", &format!("{leases}/l"), "application/json", lease).await.expect(403);
    send(&api, "POST", "/api/v1/namespaces/default/configmaps", map.clone()).await.expect(201);
    as_user(&api, "eve", "PATCH", path, apply, map).await.expect(200);
}

#[tokio::test]
async fn nobody_gathers_rights_they_do_not_have() {
    let api = api().await;
    let rule = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["create", "update", "patch"]}]);
    grant(&api, "eve", rule).await;
    let gathering = json!({"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors":
        [{"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}]}});
    as_user(&api, "eve", "POST", &format!("{RBAC}/clusterroles"), "application/json", gathering.clone())
        .await
        .expect(403);
    let labels = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    let path = format!("{RBAC}/clusterroles/cluster-admin");
    as_user(&api, "eve", "PATCH", &path, "application/merge-patch+json", labels).await.expect(403);
    send(&api, "POST", &format!("{RBAC}/clusterroles"), gathering).await.expect(201);
}

#[tokio::test]
async fn an_unreadable_impersonation_is_refused() {
    let api = api().await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let impersonate = |value: &[u8]| {
        Request::post(path)
            .header("content-type", "application/json")
            .header("impersonate-user", http::HeaderValue::from_bytes(value).unwrap())
            .body(Bytes::from_static(b"{}"))
            .unwrap()
    };
    let review = send_as(&api, support::admin(), impersonate("jürgen".as_bytes())).await.expect(201);
    assert_eq!(review["status"]["userInfo"]["username"], "jürgen");
    assert_eq!(send_as(&api, support::admin(), impersonate(b"j\xfcrgen")).await.code, 400);
}

#[tokio::test]
async fn ephemeral_containers_and_resize_change_nothing_else() {
    let api = api().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "good"}]}});
    let pod = send(&api, "POST", pods, pod).await.expect(201);
    let mut wanted = pod.clone();
    wanted["spec"]["containers"][0]["image"] = "bad".into();
    wanted["metadata"]["labels"] = json!({"a": "b"});
    wanted["spec"]["ephemeralContainers"] = json!([{"name": "debug", "image": "shell"}]);
    wanted["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}});
    let debugged =
        send(&api, "PUT", &format!("{pods}/p/ephemeralcontainers"), wanted.clone()).await.expect(200);
    assert_eq!(debugged["spec"]["containers"], pod["spec"]["containers"]);
    assert!(debugged["metadata"].get("labels").is_none());
    assert_eq!(debugged["spec"]["ephemeralContainers"][0]["image"], "shell");
    let mut changed = debugged.clone();
    changed["spec"]["ephemeralContainers"][0]["image"] = "other".into();
    send(&api, "PUT", &format!("{pods}/p/ephemeralcontainers"), changed).await.expect(422);
    wanted["metadata"]["resourceVersion"] = debugged["metadata"]["resourceVersion"].clone();
    let resized = send(&api, "PUT", &format!("{pods}/p/resize"), wanted).await.expect(200);
    assert_eq!(resized["spec"]["containers"][0]["image"], "good");
    assert_eq!(resized["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
}

/// Rights to write roles and bindings, and nothing else.
fn writer() -> Value {
    json!([{"apiGroups": ["rbac.authorization.k8s.io"], "verbs": ["create", "update", "patch"],
        "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"]}])
}

fn binding_to(kind: &str, name: &str) -> Value {
    json!({"metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "eve"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}})
}

#[tokio::test]
async fn a_role_that_does_not_exist_is_bound_only_with_the_right_to_bind() {
    let api = api().await;
    grant(&api, "eve", writer()).await;
    let local = format!("{RBAC}/namespaces/default/rolebindings");
    let global = format!("{RBAC}/clusterrolebindings");
    for (path, kind) in [(&local, "Role"), (&local, "ClusterRole"), (&global, "ClusterRole")] {
        let reply = as_user(&api, "eve", "POST", path, "application/json", binding_to(kind, "later")).await;
        assert_eq!((reply.code, &reply.body["reason"]), (404, &json!("NotFound")), "{}", reply.message());
        let path = format!("{path}/b");
        as_user(&api, "eve", "PUT", &path, "application/json", binding_to(kind, "later")).await.expect(404);
    }
    let bind = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "verbs": ["bind", "create"],
        "resources": ["clusterroles", "clusterrolebindings"]}]);
    grant(&api, "bob", bind).await;
    as_user(&api, "bob", "POST", &global, "application/json", binding_to("ClusterRole", "later"))
        .await
        .expect(201);
}

#[tokio::test]
async fn a_binding_is_checked_again_whenever_it_changes() {
    let api = api().await;
    grant(&api, "eve", writer()).await;
    let path = format!("{RBAC}/clusterrolebindings");
    let mut binding = binding_to("ClusterRole", "cluster-admin");
    binding["subjects"][0]["name"] = "bob".into();
    send(&api, "POST", &path, binding).await.expect(201);
    let patch = "application/merge-patch+json";
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    as_user(&api, "eve", "PATCH", &format!("{path}/b"), patch, label).await.expect(403);
    let finalizer = json!({"metadata": {"finalizers": ["example.com/wait"]}});
    as_user(&api, "eve", "PATCH", &format!("{path}/b"), patch, finalizer).await.expect(200);
}

#[tokio::test]
async fn the_right_to_escalate_one_role_is_not_one_to_create_it() {
    let api = api().await;
    let mut rules = writer();
    let escalate = json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["escalate"],
        "resourceNames": ["r"]});
    rules.as_array_mut().unwrap().push(escalate);
    grant(&api, "eve", rules).await;
    let roles = format!("{RBAC}/namespaces/default/roles");
    let role = json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
    as_user(&api, "eve", "POST", &roles, "application/json", role.clone()).await.expect(403);
    as_user(&api, "eve", "PUT", &format!("{roles}/r"), "application/json", role).await.expect(201);
}

#[tokio::test]
async fn a_refusal_names_the_roles_that_are_missing() {
    let api = api().await;
    let mut binding = binding_to("ClusterRole", "later");
    binding["metadata"]["name"] = "eve".into();
    send(&api, "POST", &format!("{RBAC}/clusterrolebindings"), binding).await.expect(201);
    let reply = as_user(&api, "eve", "GET", "/api/v1/pods", "", Value::Null).await;
    let expected = "pods is forbidden: User \"eve\" cannot list resource \"pods\" in API group \"\" at the cluster \
                    scope: RBAC: clusterrole.rbac.authorization.k8s.io \"later\" not found";
    assert_eq!(reply.message(), expected);
}

#[tokio::test]
async fn impersonation_can_be_allowed_for_one_verb_only() {
    let api = api().await;
    let rules = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "verbs": ["impersonate:user-info"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:user-info:list"]},
    ]);
    grant(&api, "eve", rules).await;
    grant(&api, "bob", json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "delete"]}]))
        .await;
    let request = |method: &str, path: &str, group: Option<&str>| {
        let mut request = Request::builder().method(method).uri(path).header("impersonate-user", "bob");
        if let Some(group) = group {
            request = request.header("impersonate-group", group);
        }
        request.body(Bytes::new()).unwrap()
    };
    let eve = || Caller::known("eve", []);
    let pods = "/api/v1/namespaces/default/pods";
    send_as(&api, eve(), request("GET", pods, None)).await.expect(200);
    send_as(&api, eve(), request("DELETE", &format!("{pods}/p"), None)).await.expect(403);
    send_as(&api, eve(), request("GET", pods, Some("system:masters"))).await.expect(403);
}
