//! What a cluster says to a table of roles, bindings and requests, recorded so that it can be compared with what
//! another cluster says: escalation, `bind`, impersonation and aggregation.

mod table;

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use quintet_foundation::rng::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use table::{GROUP, Generator, PATH, Request, Requestor, Round};

use crate::world::{Answer, World, repeat};

/// Requests of a round. A round has roles and bindings of its own.
const REQUESTS_PER_ROUND: usize = 60;
const AT_A_TIME: usize = 8;

/// A request and what the cluster said to it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The request in words.
    pub request: String,
    /// The code, and the reason and message of a failure.
    pub verdict: String,
}

/// What a cluster says to the table of a seed.
pub async fn verdicts(client: kube::Client, seed: u64, rounds: usize) -> anyhow::Result<Vec<Verdict>> {
    let rng = Rng::seeded(seed);
    let mut verdicts = Vec::new();
    for index in 0..rounds {
        let namespace = format!("authorization-{seed}-{index}");
        let round = Generator::new(&rng, namespace.clone()).round(REQUESTS_PER_ROUND);
        let world = World { client: client.clone(), namespace, unique: String::new() };
        let outcome = judge(&world, &round).await;
        clean_up(&world, &round).await?;
        verdicts.extend(outcome?);
    }
    Ok(verdicts)
}

/// The differences between two recordings, as text. Fails if they are not of the same table.
pub fn differences(one: &[Verdict], other: &[Verdict]) -> anyhow::Result<Vec<String>> {
    ensure!(!one.is_empty(), "there is nothing to compare");
    ensure!(one.len() == other.len(), "{} cases against {}", one.len(), other.len());
    let mut found = Vec::new();
    for (one, other) in one.iter().zip(other) {
        ensure!(one.request == other.request, "not of the same table: {} and {}", one.request, other.request);
        if one.verdict != other.verdict {
            found.push(format!("{}\n  - {}\n  + {}", one.request, one.verdict, other.verdict));
        }
    }
    Ok(found)
}

async fn judge(world: &World, round: &Round) -> anyhow::Result<Vec<Verdict>> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": round.namespace}});
    world.post("/api/v1/namespaces", &namespace).await?.expect(201)?;
    for (path, object) in &round.objects {
        world.post(path, object).await?.expect(201)?;
    }
    for (name, rules) in &round.aggregated {
        let path = format!("{PATH}/clusterroles/{name}");
        world.eventually(&path, "an aggregated role", |answer| answer.body["rules"] == *rules).await?;
    }
    settle(world).await?;
    let mut tokens = BTreeMap::new();
    for name in ["s0", "s1"] {
        tokens.insert(name.to_owned(), token(world, name).await?);
    }
    let tokens = &tokens;
    let verdicts = futures::stream::iter(&round.requests)
        .map(|request| async move { verdict(world, request, tokens).await })
        .buffered(AT_A_TIME);
    verdicts.collect::<Vec<_>>().await.into_iter().collect()
}

/// Waits until the server acts on all roles and bindings so far: it reads each kind in order, so that it has read
/// everything when it acts on the last of each.
async fn settle(world: &World) -> anyhow::Result<()> {
    let last = format!("{}-last", world.namespace);
    let rules = json!([{"apiGroups": [""], "resources": ["last"], "verbs": ["get"]}]);
    let subjects = json!([{"kind": "User", "apiGroup": GROUP, "name": last}]);
    for (resource, kind) in [("roles", "Role"), ("clusterroles", "ClusterRole")] {
        let path = collection(world, resource);
        world.post(&path, &table::role(kind, &last, &rules)).await?.expect(201)?;
    }
    let review = |namespace: &str| {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": last,
            "resourceAttributes": {"verb": "get", "resource": "last", "namespace": namespace}}})
    };
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    // First in the namespace, which the binding of the whole cluster would allow too.
    for (resource, kind, role, namespace) in [
        ("rolebindings", "RoleBinding", "Role", world.namespace.as_str()),
        ("clusterrolebindings", "ClusterRoleBinding", "ClusterRole", ""),
    ] {
        let bound = table::binding(kind, &last, (role, &last), &subjects);
        world.post(&collection(world, resource), &bound).await?.expect(201)?;
        let is_allowed = |answer: &Answer| answer.body["status"]["allowed"] == true;
        let review = review(namespace);
        repeat("a binding", || world.post(path, &review), is_allowed).await?;
    }
    Ok(())
}

fn collection(world: &World, resource: &str) -> String {
    if resource.starts_with("cluster") {
        format!("{PATH}/{resource}")
    } else {
        world.path("rbac.authorization.k8s.io/v1", resource)
    }
}

async fn token(world: &World, account: &str) -> anyhow::Result<String> {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = world.post(&world.core(&format!("serviceaccounts/{account}/token")), &request).await?;
    answer.expect(201)?["status"]["token"].as_str().map(str::to_owned).context("no token")
}

async fn verdict(
    world: &World,
    request: &Request,
    tokens: &BTreeMap<String, String>,
) -> anyhow::Result<Verdict> {
    let (who, mut headers) = match &request.requestor {
        Requestor::User(headers) => ("the administrator".to_owned(), headers.clone()),
        Requestor::Account(name, headers) => {
            let mut headers = headers.clone();
            let token = tokens.get(name).context("an account without a token")?;
            headers.push(("authorization".to_owned(), format!("Bearer {token}")));
            (name.clone(), headers)
        }
    };
    let shown: Vec<String> = headers
        .iter()
        .filter(|(key, _)| key != "authorization")
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let text = format!("{who} {shown:?} {} {} {}", request.method, request.path, request.body);
    headers.push(("content-type".to_owned(), request.content_type.to_owned()));
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let body = if request.body.is_null() { String::new() } else { request.body.to_string() };
    let answer = world.send(request.method, &request.path, &headers, body).await?;
    Ok(Verdict { request: text, verdict: in_words(request, &answer) })
}

fn in_words(request: &Request, answer: &Answer) -> String {
    let (code, body) = (answer.code, &answer.body);
    if code < 300 {
        // Reviews tell what was found out. The reason names one binding of possibly several.
        let user = &body["status"]["userInfo"];
        // A node that is impersonated is a member or not, by what the server remembers of the requestor.
        let groups = user["groups"].as_array().into_iter().flatten();
        let groups: Vec<&Value> = groups.filter(|group| *group != "system:nodes").collect();
        let user = json!({"name": user["username"], "groups": groups, "uid": user["uid"]});
        return match body["kind"].as_str() {
            Some("SubjectAccessReview") => format!("{code} allowed: {}", body["status"]["allowed"]),
            Some("SelfSubjectReview") if !is_own(request) => format!("{code} {user}"),
            _ => code.to_string(),
        };
    }
    let reason = body["reason"].as_str().unwrap_or_default();
    // Which of several ways to impersonate is told to be forbidden depends on what the server remembers.
    let message = match &request.requestor {
        Requestor::Account(..) => "",
        Requestor::User(_) => body["message"].as_str().unwrap_or(&answer.text),
    };
    format!("{code} {reason} {message}")
}

/// Whether an account asks as itself, which has a uid of its own on every cluster.
fn is_own(request: &Request) -> bool {
    matches!(&request.requestor, Requestor::Account(_, headers) if headers.is_empty())
}

async fn clean_up(world: &World, round: &Round) -> anyhow::Result<()> {
    let last = format!("{}-last", world.namespace);
    let mut paths = vec![format!("{PATH}/clusterroles/{last}"), format!("{PATH}/clusterrolebindings/{last}")];
    let cluster_wide = round.objects.iter().filter(|(path, _)| !path.contains("/namespaces/"));
    paths.extend(cluster_wide.map(|(path, object)| format!("{path}/{}", name_of(object))));
    paths.push(format!("/api/v1/namespaces/{}", world.namespace));
    for path in paths {
        let answer = world.delete(&path, None).await?;
        ensure!(matches!(answer.code, 200 | 404), "DELETE {path}: {} {}", answer.code, answer.text);
    }
    Ok(())
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
