//! Who may do what.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::cases;
use crate::World;
use crate::world::repeat;

cases! { "access":
    "a service account is bound in its own namespace if no other is named" => own_namespace,
    "nobody without credentials gets past health and version" => anonymous,
    "a service account's token works and is bounded by its roles" => token,
    "a token can be reviewed" => token_review,
    "a review tells what somebody may do" => access_review,
    "a review that asks nothing, or about nobody, is refused" => empty_review,
    "a local review is about its own namespace" => local_review,
    "one's own rules can be listed" => rules_review,
    "nobody can give more than they have" => escalation,
    "roles add up by aggregation" => aggregation,
    "the reference of a binding stays" => role_reference,
    "one can ask who one is" => who_am_i,
    "the roles of controllers exist and are bound" => controller_roles,
    "the default flow schemas and priority levels exist" => flow_control,
}

async fn account(world: &World, name: &str) -> anyhow::Result<String> {
    let body = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
    world.post(&world.core("serviceaccounts"), &body).await?.expect(201)?;
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": 3600 },
    });
    let path = world.core(&format!("serviceaccounts/{name}/token"));
    let answer = world.post(&path, &request).await?.expect(201)?;
    answer["status"]["token"].as_str().map(str::to_owned).context("a TokenRequest without a token")
}

fn role(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": name }, "rules": rules,
    })
}

fn binding(world: &World, name: &str, role: &str, account: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": world.namespace }],
    })
}

async fn grant(world: &World, account: &str, rules: &Value) -> anyhow::Result<()> {
    let rbac = "rbac.authorization.k8s.io/v1";
    world.post(&world.path(rbac, "roles"), &role(account, rules)).await?.expect(201)?;
    let body = binding(world, account, account, account);
    world.post(&world.path(rbac, "rolebindings"), &body).await?.expect(201)?;
    Ok(())
}

/// Headers that make a request the account's.
fn impersonate(world: &World, account: &str) -> Vec<(String, String)> {
    vec![("impersonate-user".into(), format!("system:serviceaccount:{}:{account}", world.namespace))]
}

fn headers(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

async fn anonymous(world: World) -> anyhow::Result<()> {
    let as_anonymous =
        [("impersonate-user", "system:anonymous"), ("impersonate-group", "system:unauthenticated")];
    for path in ["/version", "/healthz", "/livez", "/readyz"] {
        let answer = world.send("GET", path, &as_anonymous, "").await?;
        ensure!(answer.code == 200, "{path}: {} {}", answer.code, answer.text);
    }
    for path in ["/api/v1/namespaces", "/api", "/apis", "/openapi/v3", "/metrics"] {
        let answer = world.send("GET", path, &as_anonymous, "").await?;
        ensure!(answer.code == 403, "{path}: {} {}", answer.code, answer.text);
    }
    Ok(())
}

async fn token(world: World) -> anyhow::Result<()> {
    let token = account(&world, "worker").await?;
    ensure!(token.split('.').count() == 3, "no JWT: {token}");
    grant(
        &world,
        "worker",
        &json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"] }]),
    )
    .await?;
    let worker = impersonate(&world, "worker");
    let path = world.core("configmaps");
    let list = || async { world.send("GET", &path, &headers(&worker), "").await };
    repeat("a role", list, |answer| answer.code == 200).await?;
    let answer = world.send("GET", &world.core("secrets"), &headers(&worker), "").await?;
    let message = format!(
        "secrets is forbidden: User \"system:serviceaccount:{ns}:worker\" cannot list resource \"secrets\" in API group \"\" in the namespace \"{ns}\"",
        ns = world.namespace
    );
    answer.expect_status(403, "Forbidden", &message)?;
    let answer = world.send("GET", "/api/v1/nodes", &headers(&worker), "").await?;
    answer.expect_status(403, "Forbidden", "at the cluster scope")?;
    Ok(())
}

async fn token_review(world: World) -> anyhow::Result<()> {
    let token = account(&world, "worker").await?;
    let review = |token: &str| json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let good = world.post(path, &review(&token)).await?.expect(201)?;
    ensure!(good["status"]["authenticated"] == true, "{good}");
    let user = format!("system:serviceaccount:{}:worker", world.namespace);
    ensure!(good["status"]["user"]["username"] == user.as_str(), "{good}");
    let bad = world.post(path, &review("not.a.token")).await?.expect(201)?;
    ensure!(bad["status"]["authenticated"] != true, "{bad}");
    Ok(())
}

async fn access_review(world: World) -> anyhow::Result<()> {
    account(&world, "worker").await?;
    grant(&world, "worker", &json!([{ "apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"] }]))
        .await?;
    let review = |verb: &str| {
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": format!("system:serviceaccount:{}:worker", world.namespace),
                "resourceAttributes": { "namespace": world.namespace, "group": "batch", "resource": "jobs", "verb": verb },
            },
        })
    };
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let ask = || async { world.post(path, &review("create")).await };
    repeat("a role", ask, |answer| answer.body["status"]["allowed"] == true).await?;
    let answer = world.post(path, &review("delete")).await?.expect(201)?;
    ensure!(answer["status"]["allowed"] == false, "{answer}");
    let own = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": { "verb": "*", "group": "*", "resource": "*" } },
    });
    let answer =
        world.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &own).await?.expect(201)?;
    ensure!(answer["status"]["allowed"] == true, "{answer}");
    Ok(())
}

async fn empty_review(world: World) -> anyhow::Result<()> {
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let question = json!({ "verb": "get", "resource": "pods" });
    let page = json!({ "verb": "get", "path": "/metrics" });
    for (spec, message) in [
        (
            json!({ "resourceAttributes": question }),
            "spec.user: Invalid value: \"\": at least one of user or group must be specified",
        ),
        (
            json!({ "user": "a" }),
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (
            json!({ "user": "a", "resourceAttributes": question, "nonResourceAttributes": page }),
            "cannot be specified in combination with resourceAttributes",
        ),
    ] {
        let review =
            json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec });
        world.post(path, &review).await?.expect_status(422, "Invalid", message)?;
    }
    Ok(())
}

async fn local_review(world: World) -> anyhow::Result<()> {
    let path = world.path("authorization.k8s.io/v1", "localsubjectaccessreviews");
    let review = |namespace: &str| {
        json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "spec": {
            "user": "a", "resourceAttributes": { "verb": "get", "resource": "pods", "namespace": namespace } } })
    };
    let message =
        "spec.resourceAttributes.namespace: Invalid value: \"kube-system\": must match metadata.namespace";
    world.post(&path, &review("kube-system")).await?.expect_status(422, "Invalid", message)?;
    let answer = world.post(&path, &review(&world.namespace)).await?.expect(201)?;
    ensure!(answer["status"]["allowed"] == false, "{answer}");
    Ok(())
}

async fn rules_review(world: World) -> anyhow::Result<()> {
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": world.namespace },
    });
    let answer =
        world.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &body).await?.expect(201)?;
    ensure!(answer["status"]["resourceRules"].as_array().is_some_and(|rules| !rules.is_empty()), "{answer}");
    Ok(())
}

async fn escalation(world: World) -> anyhow::Result<()> {
    account(&world, "worker").await?;
    let rules = json!([
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create", "get"] },
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] },
    ]);
    grant(&world, "worker", &rules).await?;
    let worker = impersonate(&world, "worker");
    let mut all = headers(&worker);
    all.push(("content-type", "application/json"));
    let path = world.path("rbac.authorization.k8s.io/v1", "roles");
    let same = role("same", &json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] }]));
    let create = || async { world.send("POST", &path, &all, same.to_string()).await };
    repeat("a role", create, |answer| answer.code == 201).await?;
    let more = role("more", &json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }]));
    let answer = world.send("POST", &path, &all, more.to_string()).await?;
    let status = answer.expect_status(
        403,
        "Forbidden",
        "is attempting to grant RBAC permissions not currently held",
    )?;
    ensure!(status["message"].as_str().is_some_and(|text| text.contains("secrets")), "{status}");
    Ok(())
}

async fn aggregation(world: World) -> anyhow::Result<()> {
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let (whole, part) = (format!("whole-{}", world.unique), format!("part-{}", world.unique));
    let label = format!("aggregate-{}", world.unique);
    let body = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": whole },
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { label.clone(): "true" } }] },
    });
    world.post(path, &body).await?.expect(201)?;
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] }]);
    let body = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": part, "labels": { label: "true" } }, "rules": rules,
    });
    world.post(path, &body).await?.expect(201)?;
    let outcome = world
        .eventually(&format!("{path}/{whole}"), "an aggregated role", |answer| answer.body["rules"] == rules)
        .await;
    for name in [whole, part] {
        world.delete(&format!("{path}/{name}"), None).await?.expect(200)?;
    }
    outcome.map(drop)
}

async fn role_reference(world: World) -> anyhow::Result<()> {
    let path = world.path("rbac.authorization.k8s.io/v1", "rolebindings");
    let made = world.post(&path, &binding(&world, "b", "one", "worker")).await?.expect(201)?;
    let mut other = made;
    other["roleRef"]["name"] = json!("two");
    let answer = world.put(&format!("{path}/b"), &other).await?;
    answer.expect_status(422, "Invalid", "cannot change roleRef")?;
    Ok(())
}

async fn who_am_i(world: World) -> anyhow::Result<()> {
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let answer = world.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &body).await?.expect(201)?;
    ensure!(
        answer["status"]["userInfo"]["username"].as_str().is_some_and(|name| !name.is_empty()),
        "{answer}"
    );
    Ok(())
}

async fn own_namespace(world: World) -> anyhow::Result<()> {
    const RBAC: &str = "rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": RBAC, "kind": "Role", "metadata": { "name": "r" },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] }],
    });
    world.post(&world.path(RBAC, "roles"), &role).await?.expect(201)?;
    let binding = json!({
        "apiVersion": RBAC, "kind": "RoleBinding", "metadata": { "name": "b" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r" },
        "subjects": [{ "kind": "ServiceAccount", "name": "robot" }],
    });
    world.post(&world.path(RBAC, "rolebindings"), &binding).await?.expect(201)?;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{}:robot", world.namespace),
            "resourceAttributes": { "verb": "get", "resource": "configmaps", "namespace": world.namespace },
        },
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let is_allowed = |answer: &crate::Answer| answer.body["status"]["allowed"] == true;
    crate::world::repeat("permission", || world.post(path, &review), is_allowed).await?;
    Ok(())
}

async fn controller_roles(world: World) -> anyhow::Result<()> {
    let group = "/apis/rbac.authorization.k8s.io/v1";
    for (name, rule) in [
        (
            "cronjob-controller",
            json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["delete", "list", "watch"] }),
        ),
        (
            "clusterrole-aggregation-controller",
            json!({ "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
            "verbs": ["escalate", "get", "list", "patch", "update", "watch"] }),
        ),
        (
            "horizontal-pod-autoscaler",
            json!({ "apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["get", "update"] }),
        ),
    ] {
        let role = world.get(&format!("{group}/clusterroles/system:controller:{name}")).await?.expect(200)?;
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        ensure!(rules.contains(&rule), "{name} has {rules:?}");
        let binding =
            world.get(&format!("{group}/clusterrolebindings/system:controller:{name}")).await?.expect(200)?;
        let subject = json!([{ "kind": "ServiceAccount", "name": name, "namespace": "kube-system" }]);
        ensure!(binding["subjects"] == subject, "{binding}");
    }
    for name in
        ["system:node", "system:node-proxier", "system:persistent-volume-provisioner", "system:monitoring"]
    {
        world.get(&format!("{group}/clusterroles/{name}")).await?.expect(200)?;
    }
    Ok(())
}

async fn flow_control(world: World) -> anyhow::Result<()> {
    let names = async |plural: &str| -> anyhow::Result<Vec<String>> {
        let list =
            world.get(&format!("/apis/flowcontrol.apiserver.k8s.io/v1/{plural}")).await?.expect(200)?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        Ok(items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect())
    };
    let levels = names("prioritylevelconfigurations").await?;
    let expected = [
        "catch-all",
        "exempt",
        "global-default",
        "leader-election",
        "node-high",
        "system",
        "workload-high",
        "workload-low",
    ];
    ensure!(expected.iter().all(|name| levels.iter().any(|level| level == name)), "{levels:?}");
    let schemas = names("flowschemas").await?;
    let expected = [
        "catch-all",
        "exempt",
        "global-default",
        "probes",
        "service-accounts",
        "system-leader-election",
        "system-nodes",
    ];
    ensure!(expected.iter().all(|name| schemas.iter().any(|schema| schema == name)), "{schemas:?}");
    let schema =
        world.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/service-accounts").await?.expect(200)?;
    let spec = &schema["spec"];
    ensure!(spec["matchingPrecedence"] == 9000 && spec["distinguisherMethod"]["type"] == "ByUser", "{spec}");
    ensure!(spec["priorityLevelConfiguration"]["name"] == "workload-low", "{spec}");
    Ok(())
}
