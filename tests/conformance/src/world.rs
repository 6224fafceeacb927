//! What a case works with: a client and a namespace of its own.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use crate::Case;

/// How long any condition may take to come true; far more than any cluster needs.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often a condition is looked at that cannot be watched.
const LOOK: Duration = Duration::from_millis(50);

/// A client, and a namespace that belongs to one case.
#[derive(Clone)]
pub struct World {
    /// The client, with all permissions.
    pub client: kube::Client,
    /// The namespace.
    pub namespace: String,
    /// A word that no other case uses, for names of cluster-scoped objects.
    pub unique: String,
}

/// An answer of the API server.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub code: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as text.
    pub text: String,
    /// The body as JSON; null if it is not JSON.
    pub body: Value,
}

impl Answer {
    /// Fails unless the answer has this code.
    pub fn expect(self, code: u16) -> anyhow::Result<Value> {
        ensure!(self.code == code, "expected {code}, got {}: {}", self.code, self.text);
        Ok(self.body)
    }

    /// Fails unless the answer is a Status with this code, reason and (part of a) message.
    pub fn expect_status(self, code: u16, reason: &str, message: &str) -> anyhow::Result<Value> {
        let body = self.expect(code)?;
        ensure!(body["kind"] == "Status", "expected a Status, got {body}");
        ensure!(
            body["reason"].as_str().unwrap_or_default() == reason,
            "expected reason {reason}, got {body}"
        );
        let text = body["message"].as_str().unwrap_or_default();
        ensure!(text.contains(message), "expected a message with {message:?}, got {text:?}");
        Ok(body)
    }
}

impl World {
    /// Sends a request as it is.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> anyhow::Result<Answer> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.into())).context("cannot build the request")?;
        let response = self
            .client
            .clone()
            .send(request)
            .await
            .with_context(|| format!("{method} {path} was not answered"))?;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.context("the body ended early")?.to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Ok(Answer { code: parts.status.as_u16(), headers: parts.headers, text, body })
    }

    /// GET.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send("GET", path, &[], "").await
    }

    /// POST of JSON.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send("POST", path, &[("content-type", "application/json")], body.to_string()).await
    }

    /// PUT of JSON.
    pub async fn put(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send("PUT", path, &[("content-type", "application/json")], body.to_string()).await
    }

    /// DELETE, perhaps with options.
    pub async fn delete(&self, path: &str, options: Option<&Value>) -> anyhow::Result<Answer> {
        let body = options.map(ToString::to_string).unwrap_or_default();
        self.send("DELETE", path, &[("content-type", "application/json")], body).await
    }

    /// PATCH of a kind: `json-patch+json`, `merge-patch+json`, `strategic-merge-patch+json`, `apply-patch+yaml`.
    pub async fn patch(&self, path: &str, kind: &str, body: &Value) -> anyhow::Result<Answer> {
        let kind = format!("application/{kind}");
        self.send("PATCH", path, &[("content-type", &kind)], body.to_string()).await
    }

    /// Applies as a manager; `force` takes over what others own.
    pub async fn apply(
        &self,
        path: &str,
        manager: &str,
        force: bool,
        body: &Value,
    ) -> anyhow::Result<Answer> {
        let path = format!("{path}?fieldManager={manager}&force={force}");
        self.patch(&path, "apply-patch+yaml", body).await
    }

    /// The path of a core resource in this case's namespace.
    pub fn core(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    /// The path of a resource of a group and version in this case's namespace.
    pub fn path(&self, group_version: &str, resource: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{resource}", self.namespace)
    }

    /// A ConfigMap.
    pub fn config_map(&self, name: &str, data: &Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
    }

    /// Creates a ConfigMap.
    pub async fn create_config_map(&self, name: &str, data: &Value) -> anyhow::Result<Value> {
        self.post(&self.core("configmaps"), &self.config_map(name, data)).await?.expect(201)
    }

    /// Looks at a path until `holds` is true of the answer.
    pub async fn eventually(
        &self,
        path: &str,
        what: &str,
        holds: impl Fn(&Answer) -> bool,
    ) -> anyhow::Result<Answer> {
        repeat(what, || self.get(path), holds).await
    }

    /// Looks at a path until it is not found.
    pub async fn gone(&self, path: &str) -> anyhow::Result<()> {
        self.eventually(path, "deletion", |answer| answer.code == 404).await.map(drop)
    }
}

/// Asks again and again until `holds` is true of the answer: servers act on some objects only after a moment.
pub(crate) async fn repeat<F: Future<Output = anyhow::Result<Answer>>>(
    what: &str,
    ask: impl Fn() -> F,
    holds: impl Fn(&Answer) -> bool,
) -> anyhow::Result<Answer> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = ask().await?;
        if holds(&answer) {
            return Ok(answer);
        }
        if tokio::time::Instant::now() > deadline {
            bail!("{what} did not come true in {} s; last: {}", PATIENCE.as_secs(), answer.text);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Runs a case in a namespace of its own.
pub(crate) async fn check(client: kube::Client, case: Case) -> anyhow::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    /// Tells one run of the suite from another on the same cluster.
    static START: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish() >> 24);
    let unique = format!("c{:x}x{}", *START, NEXT.fetch_add(1, Ordering::Relaxed));
    let world = World { client, namespace: format!("conformance-{unique}"), unique };
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": world.namespace } });
    world.post("/api/v1/namespaces", &namespace).await?.expect(201).context("cannot make a namespace")?;
    let outcome = tokio::time::timeout(2 * PATIENCE, (case.check)(world.clone())).await;
    let path = format!("/api/v1/namespaces/{}", world.namespace);
    let deleted = world.delete(&path, None).await;
    outcome.unwrap_or_else(|_| bail!("it took more than {} s", 2 * PATIENCE.as_secs()))?;
    // What the case found out counts more than that nothing is left of it.
    deleted?.expect(200).map(drop)
}
