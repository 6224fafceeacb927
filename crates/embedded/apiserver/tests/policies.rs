//! ValidatingAdmissionPolicies.

mod support;

use serde_json::{Value, json};
use support::{api, send, send_typed};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

fn policy(spec: Value) -> Value {
    let mut spec = spec;
    spec["matchConstraints"] = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]});
    json!({"metadata": {"name": "vap"}, "spec": spec})
}

fn binding(actions: &[&str]) -> Value {
    json!({"metadata": {"name": "vapb"}, "spec": {"policyName": "vap", "validationActions": actions}})
}

fn map(name: &str, size: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"size": size}})
}

#[tokio::test]
async fn a_bound_policy_denies_warns_and_compares() {
    let api = api().await;
    let spec = json!({"validations": [
        {"expression": "object.data.size != 'bad'", "message": "no bad"},
        {"expression": "oldObject == null || oldObject.data.size == object.data.size",
         "messageExpression": "'was ' + oldObject.data.size", "reason": "Forbidden"}]});
    send(&api, "POST", POLICIES, policy(spec)).await.expect(201);
    send(&api, "POST", MAPS, map("unbound", "bad")).await.expect(201);
    send(&api, "POST", BINDINGS, binding(&["Deny"])).await.expect(201);
    let denied = send(&api, "POST", MAPS, map("x", "bad")).await;
    assert_eq!(
        (denied.code, denied.message(), &denied.body["reason"]),
        (
            422,
            "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'vap' with binding 'vapb' denied request: no bad",
            &json!("Invalid")
        )
    );
    assert_eq!(denied.body["details"]["causes"], json!([{"message": "no bad"}]));
    send(&api, "POST", MAPS, map("x", "good")).await.expect(201);
    let patch = json!({"data": {"size": "other"}});
    let path = format!("{MAPS}/x");
    let denied = send_typed(&api, "PATCH", &path, "application/merge-patch+json", patch.clone()).await;
    assert_eq!((denied.code, &denied.body["reason"]), (403, &json!("Forbidden")));
    assert!(denied.message().ends_with("denied request: was good"), "{}", denied.message());
    // A policy cannot lock anybody out of policies, and another kind is none of its business.
    send(&api, "POST", "/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}}))
        .await
        .expect(201);

    send(&api, "DELETE", &format!("{BINDINGS}/vapb"), None).await.expect(200);
    send(&api, "POST", BINDINGS, binding(&["Warn", "Audit"])).await.expect(201);
    let warned = send_typed(&api, "PATCH", &path, "application/merge-patch+json", patch).await;
    assert_eq!(warned.code, 200);
    assert_eq!(
        warned.warnings(),
        ["299 - \"Validation failed for ValidatingAdmissionPolicy 'vap' with binding 'vapb': was good\""]
    );
}

#[tokio::test]
async fn params_namespaces_and_failure_policies_count() {
    let api = api().await;
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "failurePolicy": "Fail",
        "matchConditions": [{"name": "not-limits", "expression": "object.metadata.name != 'limits'"}],
        "variables": [{"name": "size", "expression": "int(object.data.size)"}],
        "validations": [{"expression": "variables.size <= int(params.data.most)", "message": "too much"},
            {"expression": "namespaceObject.metadata.name == request.namespace"}]});
    send(&api, "POST", POLICIES, policy(spec)).await.expect(201);
    let mut bound = binding(&["Deny"]);
    bound["spec"]["paramRef"] = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
    bound["spec"]["matchResources"] =
        json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}});
    send(&api, "POST", BINDINGS, bound.clone()).await.expect(201);
    let missing = send(&api, "POST", MAPS, map("a", "1")).await;
    assert!(missing.message().contains("no params found for policy binding"), "{}", missing.message());
    send(&api, "POST", "/api/v1/namespaces/kube-public/configmaps", map("a", "99")).await.expect(201);
    send(&api, "DELETE", &format!("{BINDINGS}/vapb"), None).await.expect(200);
    send(&api, "POST", MAPS, json!({"metadata": {"name": "limits"}, "data": {"most": "5"}}))
        .await
        .expect(201);
    send(&api, "POST", BINDINGS, bound).await.expect(201);
    send(&api, "POST", MAPS, map("a", "5")).await.expect(201);
    let refused = send(&api, "POST", MAPS, map("b", "6")).await;
    assert!(refused.message().ends_with("denied request: too much"), "{}", refused.message());
    let broken = send(&api, "POST", MAPS, map("b", "many")).await;
    assert_eq!(broken.code, 422, "what cannot be evaluated is refused: {}", broken.message());
    let ignore = json!({"spec": {"failurePolicy": "Ignore"}});
    send_typed(&api, "PATCH", &format!("{POLICIES}/vap"), "application/merge-patch+json", ignore)
        .await
        .expect(200);
    send(&api, "POST", MAPS, map("b", "many")).await.expect(201);
}

#[tokio::test]
async fn a_policy_that_does_not_compile_is_refused() {
    let api = api().await;
    let reply =
        send(&api, "POST", POLICIES, policy(json!({"validations": [{"expression": "object.data."}]}))).await;
    assert_eq!(reply.code, 422);
    assert_eq!(reply.body["details"]["causes"][0]["field"], "spec.validations[0].expression");
    let reply = send(&api, "POST", BINDINGS, binding(&["Deny", "Warn"])).await;
    assert_eq!(reply.code, 422, "{}", reply.message());
}
