//! The API client: paths, deadlines, rate limiting and leader fencing of every request.

use std::{
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use futures::AsyncBufRead;
use http::{Method, Request, header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    contact::Contact,
    error::{Class, Error},
    leader::Leadership,
    limiter::{Limiter, RequestOutcome},
    metrics::Metrics,
    object::{ApiKind, Form, ObjectKey, Uid},
};

/// Settings of the API client.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// The deadline of a request.
    pub deadline: Duration,
    /// Where outages of the API server are noted. Connections to the same server share it.
    pub contact: Contact,
}

impl Default for ApiSettings {
    /// API servers end ordinary requests after 60 seconds and admission webhooks after at most 30; a request that
    /// takes longer than that rarely succeeds.
    fn default() -> Self {
        Self { deadline: Duration::from_secs(30), contact: Contact::default() }
    }
}

/// A client for the cluster of `config`.
///
/// It does not retry requests: the rate limiter needs to see every 429, and the work queue does the backoff.
pub fn connect(mut config: kube::Config) -> Result<kube::Client, Error> {
    let server = config.cluster_url.to_string();
    config.default_retry = false;
    kube::Client::try_from(config).map_err(|error| {
        let cause = format!("{error}; check the kubeconfig");
        Error::new(Class::Invalid, format!("cannot set up a connection to {server}"), cause)
    })
}

/// A connection to the API server.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    limiter: Limiter,
    settings: ApiSettings,
    metrics: Arc<Metrics>,
    fence: Option<Leadership>,
}

/// The format of a patch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PatchKind {
    /// RFC 7386: give the fields to change, `null` to remove.
    Merge,
    /// RFC 6902: a list of operations.
    Json,
    /// Kubernetes' own merge that knows list keys; built-in kinds only.
    Strategic,
    /// Server-side apply in the name of `manager`; `force` takes fields over from others.
    Apply {
        /// The field manager.
        manager: String,
        /// Take over fields that other managers own.
        force: bool,
    },
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// They are deleted after the object.
    #[default]
    Background,
    /// They are deleted before the object.
    Foreground,
    /// They stay.
    Orphan,
}

/// One page of a list request.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Namespace, or all of them.
    pub namespace: Option<&'a str>,
    /// Label selector.
    pub labels: &'a str,
    /// Field selector.
    pub fields: &'a str,
    /// Whole objects or metadata.
    pub form: Form,
    /// Objects per page.
    pub limit: u32,
    /// Where the last page ended.
    pub token: Option<&'a str>,
}

impl Api {
    /// Requests through `client`.
    pub fn new(client: kube::Client, limiter: Limiter, settings: ApiSettings, metrics: Arc<Metrics>) -> Self {
        Self { client, limiter, settings, metrics, fence: None }
    }

    /// The same connection, but writes fail unless `leadership` is held.
    #[must_use]
    pub fn fenced(&self, leadership: Leadership) -> Self {
        Self { fence: Some(leadership), ..self.clone() }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether the API server responds.
    pub fn contact(&self) -> &Contact {
        &self.settings.contact
    }

    /// The limiter, for debug state.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Reads one object.
    pub async fn get(&self, kind: &ApiKind, key: &ObjectKey) -> Result<Option<String>, Error> {
        let request = Call::new(Method::GET, kind.object_path(key));
        match self.send("get", kind, Some(key), request).await {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The resources that the server has in a group and version, such as `apps/v1`; `None` if it does not serve it.
    pub(crate) async fn resources(&self, api_version: &str) -> Result<Option<String>, Error> {
        let root = if api_version.contains('/') { "/apis/" } else { "/api/" };
        let kind = ApiKind::cluster_scoped("", "v1", "APIResourceList", "");
        let key = ObjectKey::cluster(api_version);
        match self
            .send("get", &kind, Some(&key), Call::new(Method::GET, format!("{root}{api_version}")))
            .await
        {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads one page of a collection.
    pub async fn list(&self, kind: &ApiKind, page: Page<'_>) -> Result<String, Error> {
        let mut request = Call::new(Method::GET, kind.collection_path(page.namespace));
        request.parameter("limit", &page.limit.to_string());
        request.parameter("labelSelector", page.labels);
        request.parameter("fieldSelector", page.fields);
        request.parameter("continue", page.token.unwrap_or_default());
        if page.form == Form::Metadata {
            request.accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        }
        self.send("list", kind, None, request).await
    }

    /// Opens a watch from `version` on. Watches are not rate limited: there are few, and they last.
    pub async fn watch(
        &self,
        kind: &ApiKind,
        page: Page<'_>,
        version: &str,
        timeout: Duration,
    ) -> Result<impl AsyncBufRead + use<>, Error> {
        let mut request = Call::new(Method::GET, kind.collection_path(page.namespace));
        request.parameter("watch", "true");
        request.parameter("allowWatchBookmarks", "true");
        request.parameter("resourceVersion", version);
        request.parameter("timeoutSeconds", &timeout.as_secs().to_string());
        request.parameter("labelSelector", page.labels);
        request.parameter("fieldSelector", page.fields);
        if page.form == Form::Metadata {
            request.accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        }
        let deadline = self.settings.deadline;
        let request = request.build("watch", kind, None)?;
        let sent = Instant::now();
        let opened = match tokio::time::timeout(deadline, self.client.request_stream(request)).await {
            Ok(answer) => answer.map_err(|error| Error::request("watch", kind, None, error)),
            Err(_) => Err(Error::deadline("watch", kind, None, deadline)),
        };
        self.contact().record(sent, opened)
    }

    /// Creates an object.
    pub async fn create(&self, kind: &ApiKind, key: &ObjectKey, object: &Value) -> Result<String, Error> {
        let mut request = Call::new(Method::POST, kind.collection_path(key.namespace()));
        request.parameter("fieldManager", FIELD_MANAGER);
        request.body(object, "application/json");
        self.send("create", kind, Some(key), request).await
    }

    /// Creates a subresource of an object, such as the binding of a pod.
    pub async fn create_subresource(
        &self,
        kind: &ApiKind,
        key: &ObjectKey,
        subresource: &str,
        body: &Value,
    ) -> Result<String, Error> {
        let mut request = Call::new(Method::POST, format!("{}/{subresource}", kind.object_path(key)));
        request.parameter("fieldManager", FIELD_MANAGER);
        request.body(body, "application/json");
        self.send("create", kind, Some(key), request).await
    }

    /// Patches an object or one of its subresources.
    pub async fn patch(
        &self,
        kind: &ApiKind,
        key: &ObjectKey,
        subresource: Option<&str>,
        patch_kind: &PatchKind,
        body: &Value,
    ) -> Result<String, Error> {
        let mut path = kind.object_path(key);
        if let Some(subresource) = subresource {
            path.push('/');
            path.push_str(subresource);
        }
        let mut request = Call::new(Method::PATCH, path);
        match patch_kind {
            PatchKind::Apply { manager, force } => {
                request.parameter("fieldManager", manager);
                request.parameter("force", if *force { "true" } else { "false" });
            }
            _ => request.parameter("fieldManager", FIELD_MANAGER),
        }
        let content_type = match patch_kind {
            PatchKind::Merge => "application/merge-patch+json",
            PatchKind::Json => "application/json-patch+json",
            PatchKind::Strategic => "application/strategic-merge-patch+json",
            // JSON is YAML.
            PatchKind::Apply { .. } => "application/apply-patch+yaml",
        };
        request.body(body, content_type);
        let verb = if matches!(patch_kind, PatchKind::Apply { .. }) { "apply" } else { "patch" };
        self.send(verb, kind, Some(key), request).await
    }

    /// Replaces an object as a whole; `object` carries the resource version it was read at.
    pub async fn replace(&self, kind: &ApiKind, key: &ObjectKey, object: &Value) -> Result<String, Error> {
        let mut request = Call::new(Method::PUT, kind.object_path(key));
        request.parameter("fieldManager", FIELD_MANAGER);
        request.body(object, "application/json");
        self.send("replace", kind, Some(key), request).await
    }

    /// Deletes an object, if it still is the one of `uid`.
    pub async fn delete(
        &self,
        kind: &ApiKind,
        key: &ObjectKey,
        uid: Option<&Uid>,
        propagation: Propagation,
        grace_seconds: Option<i64>,
    ) -> Result<String, Error> {
        let mut options =
            json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation });
        if let Some(uid) = uid {
            options["preconditions"] = json!({ "uid": uid });
        }
        if let Some(seconds) = grace_seconds {
            options["gracePeriodSeconds"] = json!(seconds);
        }
        let mut request = Call::new(Method::DELETE, kind.object_path(key));
        request.body(&options, "application/json");
        self.send("delete", kind, Some(key), request).await
    }

    async fn send(
        &self,
        verb: &'static str,
        kind: &ApiKind,
        key: Option<&ObjectKey>,
        call: Call,
    ) -> Result<String, Error> {
        let writes = call.method != Method::GET;
        let request = call.build(verb, kind, key)?;
        let permit = self.limiter.acquire().await;
        // Leadership is checked after the wait for the rate limiter, which may outlast the lease.
        let mut deadline = self.settings.deadline;
        if let (true, Some(leadership)) = (writes, &self.fence) {
            let left = leadership.time_left(Instant::now());
            if left.is_zero() {
                return Err(Error::new(
                    Class::Transient,
                    format!("cannot {verb} {kind}"),
                    "this replica does not hold the lease",
                ));
            }
            deadline = deadline.min(left);
        }
        let (started, sent) = (StdInstant::now(), Instant::now());
        let answer = tokio::time::timeout(deadline, self.client.request_text(request)).await;
        let result = match answer {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(error)) => Err(Error::request(verb, kind, key, error)),
            Err(_) => Err(Error::deadline(verb, kind, key, deadline)),
        };
        let result = self.contact().record(sent, result);
        permit.finish(match &result {
            Err(error) if error.class() == Class::Throttled => RequestOutcome::Throttled(error.retry_after()),
            Err(error) if error.class() == Class::Transient && !error.is_not_found() => {
                RequestOutcome::Overloaded
            }
            _ => RequestOutcome::Served,
        });
        self.metrics.request(verb, result.as_ref().err().map(Error::class), started.elapsed());
        result
    }
}

/// The default field manager; applies may name another.
pub const FIELD_MANAGER: &str = "quintet";

/// A request to be built.
struct Call {
    method: Method,
    uri: String,
    accept: &'static str,
    content_type: &'static str,
    body: Vec<u8>,
}

impl Call {
    fn new(method: Method, path: String) -> Self {
        Self { method, uri: path, accept: "application/json", content_type: "", body: Vec::new() }
    }

    /// Adds a query parameter, if it has a value.
    fn parameter(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        self.uri.push(if self.uri.contains('?') { '&' } else { '?' });
        self.uri.push_str(name);
        self.uri.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                self.uri.push(char::from(byte));
            } else {
                self.uri.push('%');
                for digit in [byte >> 4, byte & 15] {
                    self.uri.extend(char::from_digit(digit.into(), 16));
                }
            }
        }
    }

    fn body(&mut self, body: &Value, content_type: &'static str) {
        self.body = body.to_string().into_bytes();
        self.content_type = content_type;
    }

    fn build(self, verb: &str, kind: &ApiKind, key: Option<&ObjectKey>) -> Result<Request<Vec<u8>>, Error> {
        let mut request =
            Request::builder().method(self.method).uri(self.uri).header(header::ACCEPT, self.accept);
        if !self.content_type.is_empty() {
            request = request.header(header::CONTENT_TYPE, self.content_type);
        }
        request
            .body(self.body)
            .map_err(|error| Error::request(verb, kind, key, kube::Error::HttpError(error)))
    }
}
