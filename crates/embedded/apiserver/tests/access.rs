//! Authorization.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "a test that cannot go on has failed"
)]

mod support;

use bytes::Bytes;
use http::Request;
use quintet_apiserver::{Api, Caller};
use serde_json::{Value, json};
use support::{Reply, api, send, send_as};

async fn send_by(api: &Api, caller: &Caller, method: &str, path: &str, body: Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    send_as(api, caller.clone(), request.body(Bytes::from(body)).unwrap()).await
}

#[tokio::test]
async fn nobody_without_credentials_gets_past_health() {
    let api = api().await;
    let anonymous = Caller::anonymous();
    for path in ["/version", "/healthz", "/livez", "/readyz"] {
        assert_eq!(send_by(&api, &anonymous, "GET", path, Value::Null).await.code, 200, "{path}");
    }
    for path in
        ["/", "/api", "/apis", "/openapi/v3", "/metrics", "/api/v1/namespaces", "/apis/apps/v1/nonsense"]
    {
        let reply = send_by(&api, &anonymous, "GET", path, Value::Null).await;
        assert_eq!(reply.code, 403, "{path}: {:?}", reply.body);
    }
    let reply = send_by(&api, &anonymous, "GET", "/api/v1/namespaces/default/pods", Value::Null).await;
    assert_eq!(
        reply.message(),
        "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
}

#[tokio::test]
async fn roles_grant_and_do_not_escalate() {
    let api = api().await;
    let alice = Caller::known("alice", ["devs".to_owned()]);
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(send_by(&api, &alice, "GET", pods, Value::Null).await.code, 403);
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let binding = |name: &str, role: &str, user: &str| {
        json!({"metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})
    };
    send(&api, "POST", bindings, binding("alice", "admin", "alice")).await.expect(201);
    assert_eq!(
        send_by(&api, &alice, "GET", pods, Value::Null).await.code,
        200,
        "admin gathers the rules of view"
    );
    assert_eq!(
        send_by(&api, &alice, "GET", "/api/v1/namespaces/kube-system/pods", Value::Null).await.code,
        403
    );
    send_by(&api, &alice, "POST", bindings, binding("bob", "edit", "bob")).await.expect(201);
    let reply = send_by(&api, &alice, "POST", bindings, binding("root", "cluster-admin", "alice")).await;
    assert_eq!(reply.code, 403);
    assert!(reply.message().contains("user \"alice\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}"), "{}", reply.message());
    let review = json!({"spec": {"user": "alice", "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}});
    let answer =
        send(&api, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review).await.expect(201);
    assert_eq!(answer["status"]["allowed"], true);
    assert_eq!(
        answer["status"]["reason"],
        "RBAC: allowed by RoleBinding \"alice/default\" of ClusterRole \"admin\" to User \"alice\""
    );
}

#[tokio::test]
async fn tokens_are_made_and_checked() {
    let api = api().await;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let short = send(&api, "POST", path, json!({"spec": {"expirationSeconds": 10}})).await;
    assert!(
        short.message().ends_with("may not specify a duration less than 10 minutes"),
        "{}",
        short.message()
    );
    let made = send(&api, "POST", path, json!({"spec": {}})).await.expect(201);
    let token = made["status"]["token"].as_str().unwrap();
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let good = send(&api, "POST", reviews, json!({"spec": {"token": token}})).await.expect(201);
    assert_eq!(good["status"]["user"]["username"], "system:serviceaccount:default:default");
    let mut bad = token.to_owned();
    bad.replace_range(20..21, if &token[20..21] == "A" { "B" } else { "A" });
    let bad = send(&api, "POST", reviews, json!({"spec": {"token": bad}})).await.expect(201);
    assert_eq!(bad["status"], json!({"user": {}, "error": "invalid bearer token"}));
    send(&api, "DELETE", "/api/v1/namespaces/default/serviceaccounts/default", None).await.expect(200);
    let late = send(&api, "POST", reviews, json!({"spec": {"token": token}})).await.expect(201);
    assert_eq!(late["status"]["error"], "invalid bearer token", "the account is gone");
}

#[tokio::test]
async fn impersonation_needs_the_right_to_it() {
    let api = api().await;
    let request = |user: &str| {
        Request::get("/api/v1/namespaces/default/pods")
            .header("impersonate-user", user)
            .body(Bytes::new())
            .unwrap()
    };
    let reply = send_as(&api, support::admin(), request("alice")).await;
    assert_eq!((reply.code, reply.message().contains("User \"alice\" cannot list")), (403, true));
    let reply = send_as(&api, Caller::known("bob", []), request("alice")).await;
    assert!(
        reply.message().contains("User \"bob\" cannot impersonate-on:user-info:list resource \"pods\""),
        "{}",
        reply.message()
    );
}
