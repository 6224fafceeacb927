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
