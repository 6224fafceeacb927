//! Ray's dashboard over HTTP, directly or through the API server.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;
use quintet_controller::{ApiKind, ObjectKey, api::Api};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Address, Application, Applications, Dashboard, DashboardError, DashboardResult, JobInfo, JobStatus,
    ProxyAddress, Submission,
};

/// Ray's dashboard answers from memory. The timeout of KubeRay's `dashboardclient`.
const DIRECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The API server is one more hop, with its own limits. The timeout of KubeRay's `dashboardclient` for proxies.
const PROXIED_TIMEOUT: Duration = Duration::from_secs(10);
/// Responses grow with the number of Serve deployments; thousands of them fit.
const MAX_BODY: usize = 8 << 20;
/// What is shown of a response that means no.
const SHOWN_BODY: usize = 160;
/// How much of it is logged at debug level.
const LOGGED_BODY: usize = 512;
/// A changed token is noticed after this long at the latest.
const TOKEN_AGE: Duration = Duration::from_mins(1);
/// The header by which Ray takes its token even behind proxies that use `Authorization` themselves.
pub(crate) const AUTHORIZATION: &str = "x-ray-authorization";
/// What Ray says about a submission id that is taken.
const TAKEN: &str = "Please use a different submission_id";

/// How a dashboard is reached.
#[derive(Clone)]
pub enum Route {
    /// By its own address.
    Direct,
    /// Through the API server, with our credentials for it.
    Proxied(kube::Client),
}

/// Where the tokens that Ray demands come from.
pub trait Tokens: Send + Sync + 'static {
    /// The token in a Secret.
    fn token<'a>(&'a self, namespace: &'a str, secret: &'a str) -> DashboardResult<'a, String>;
}

/// One token for everything.
#[derive(Clone, Debug, Default)]
pub struct FixedToken(pub String);

impl Tokens for FixedToken {
    fn token<'a>(&'a self, _namespace: &'a str, _secret: &'a str) -> DashboardResult<'a, String> {
        std::future::ready(Ok(self.0.clone())).boxed()
    }
}

/// Tokens from Secrets, remembered for a minute.
pub struct SecretTokens {
    api: Api,
    known: Mutex<HashMap<ObjectKey, (Instant, String)>>,
}

impl SecretTokens {
    /// Reads Secrets through `api`.
    pub fn new(api: Api) -> Self {
        Self { api, known: Mutex::default() }
    }
}

impl Tokens for SecretTokens {
    fn token<'a>(&'a self, namespace: &'a str, secret: &'a str) -> DashboardResult<'a, String> {
        async move {
            let key = ObjectKey::new(namespace, secret);
            let now = Instant::now();
            {
                let mut known = self.known.lock();
                known.retain(|_, (read, _)| now.duration_since(*read) < TOKEN_AGE);
                if let Some((_, token)) = known.get(&key) {
                    return Ok(token.clone());
                }
            }
            let wrong = |cause: String| DashboardError::NoToken { secret: key.to_string(), cause };
            let text = self.api.get(&ApiKind::of::<Secret>(), &key).await;
            let text = text.map_err(|error| wrong(error.to_string()))?;
            let text = text.ok_or_else(|| wrong("it does not exist".to_owned()))?;
            let object: Secret = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
            let token = object.data.and_then(|mut data| data.remove("auth_token"));
            let token = token.ok_or_else(|| wrong("it has no key auth_token".to_owned()))?;
            let token = String::from_utf8(token.0).map_err(|_| wrong("the token is no text".to_owned()))?;
            self.known.lock().insert(key, (now, token.clone()));
            Ok(token)
        }
        .boxed()
    }
}

/// The real dashboard.
pub struct HttpDashboard {
    route: Route,
    timeout: Duration,
    tokens: Box<dyn Tokens>,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// A response with its body.
struct Reply {
    url: String,
    status: StatusCode,
    body: Bytes,
}

impl HttpDashboard {
    /// Asks by `route`, with `tokens` where Ray demands them.
    pub fn new(route: Route, tokens: impl Tokens) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(DIRECT_TIMEOUT));
        // One connection per dashboard is enough, and an idle one is closed soon: clusters come and go.
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(15))
            .pool_max_idle_per_host(1)
            .build(connector);
        let timeout = match route {
            Route::Direct => DIRECT_TIMEOUT,
            Route::Proxied(_) => PROXIED_TIMEOUT,
        };
        Self { route, timeout, tokens: Box::new(tokens), client }
    }

    /// The same, but waiting this long for a response.
    #[must_use]
    pub fn waiting(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    async fn ask(
        &self,
        at: &Address,
        method: Method,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<Reply, DashboardError> {
        let url = match &self.route {
            Route::Direct if at.host.contains("://") => format!("{}{path}", at.host),
            Route::Direct => format!("http://{}{path}", at.host),
            Route::Proxied(_) => {
                format!("/api/v1/namespaces/{}/services/{}:dashboard/proxy{path}", at.namespace, at.service)
            }
        };
        let mut request = Request::builder().method(method).uri(&url);
        if let Some(secret) = &at.token_secret {
            let token = self.tokens.token(&at.namespace, secret).await?;
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.trim()));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let bytes = body.map(Bytes::copy_from_slice).unwrap_or_default();
        let unreachable = |cause: String| DashboardError::Unreachable { url: url.clone(), cause };
        let request = request.body(bytes).map_err(|error| unreachable(error.to_string()))?;
        let (status, body) = self.send(request).await.map_err(unreachable)?;
        if matches!(self.route, Route::Proxied(_))
            && let Some(message) = refusal_of_api_server(status, &body)
        {
            return Err(unreachable(message));
        }
        Ok(Reply { url, status, body })
    }

    async fn send(&self, request: Request<Bytes>) -> Result<(StatusCode, Bytes), String> {
        let timeout = self.timeout;
        let exchange = async {
            match &self.route {
                Route::Direct => {
                    let response = self.client.request(request.map(Full::new)).await;
                    collect(response.map_err(|error| whole(&error))?).await
                }
                Route::Proxied(client) => {
                    let response = client.send(request.map(kube::client::Body::from)).await;
                    collect(response.map_err(|error| whole(&error))?).await
                }
            }
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(response) => response,
            Err(_) => Err(format!("timed out after {timeout:?}")),
        }
    }
}

/// What the API server says if it did not bring the poll to Ray: its 404 is about a Service, not about a job.
fn refusal_of_api_server(status: StatusCode, body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        kind: String,
        #[serde(default)]
        message: String,
    }
    if status.is_success() {
        return None;
    }
    let response: Answer = serde_json::from_slice(body).ok()?;
    (response.kind == "Status")
        .then(|| format!("the API server answered {}: {}", status.as_u16(), response.message))
}

async fn collect<B>(response: Response<B>) -> Result<(StatusCode, Bytes), String>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
    Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
}

/// An error with its causes: hyper's own words alone say little.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

impl Reply {
    fn success(self) -> Result<Self, DashboardError> {
        if self.status.is_success() { Ok(self) } else { Err(self.refusal()) }
    }

    fn refusal(self) -> DashboardError {
        let text = String::from_utf8_lossy(&self.body);
        let code = self.status.as_u16();
        // Ray quotes what it was given, secrets in environments included: events and logs get its gist only.
        tracing::debug!(url = self.url, code, "Ray refused: {}", beginning(&text, LOGGED_BODY));
        let body = beginning(gist(&text), SHOWN_BODY).to_owned();
        DashboardError::Refused { url: self.url, code, body }
    }

    fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, DashboardError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| DashboardError::Garbage { url: self.url.clone(), cause: error.to_string() })
    }
}

/// The first line of a text, or the name of the exception and what it says first in one of Python's traces.
fn gist(text: &str) -> &str {
    let mut lines = text.trim().lines();
    let first = lines.next().unwrap_or_default();
    if !first.starts_with("Traceback") {
        return first;
    }
    let is_frame = |line: &&str| line.is_empty() || line.starts_with(char::is_whitespace);
    lines.find(|line| !is_frame(line)).unwrap_or(first)
}

fn beginning(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default().trim()
}

/// A job as Ray writes it; times are milliseconds since 1970.
#[derive(Deserialize)]
struct RawJob {
    status: JobStatus,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    start_time: Option<f64>,
    #[serde(default)]
    end_time: Option<f64>,
}

#[expect(clippy::cast_possible_truncation, reason = "saturates, and no time is that far away")]
fn time(milliseconds: Option<f64>) -> Option<Timestamp> {
    let milliseconds = milliseconds.filter(|time| *time > 0.0)?;
    Timestamp::from_millisecond(milliseconds as i64).ok()
}

#[derive(Deserialize)]
struct Stopped {
    #[serde(default)]
    stopped: bool,
}

impl Dashboard for HttpDashboard {
    fn job<'a>(&'a self, at: &'a Address, id: &'a str) -> DashboardResult<'a, Option<JobInfo>> {
        async move {
            let reply = self.ask(at, Method::GET, &format!("/api/jobs/{}", segment(id)), None).await?;
            if reply.status == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            let reply = reply.success()?;
            let raw: RawJob = reply.read()?;
            Ok(Some(JobInfo {
                status: raw.status,
                message: raw.message.unwrap_or_default(),
                start_time: time(raw.start_time),
                end_time: time(raw.end_time),
            }))
        }
        .boxed()
    }

    fn submit<'a>(&'a self, at: &'a Address, job: &'a Submission) -> DashboardResult<'a, ()> {
        async move {
            let body = serde_json::to_vec(job).unwrap_or_default();
            let reply = self.ask(at, Method::POST, "/api/jobs/", Some(&body)).await?;
            if reply.status == StatusCode::INTERNAL_SERVER_ERROR
                && String::from_utf8_lossy(&reply.body).contains(TAKEN)
            {
                return Err(DashboardError::AlreadyUsed(job.submission_id.clone()));
            }
            reply.success().map(|_| ())
        }
        .boxed()
    }

    fn stop<'a>(&'a self, at: &'a Address, id: &'a str) -> DashboardResult<'a, ()> {
        async move {
            let path = format!("/api/jobs/{}/stop", segment(id));
            let reply = self.ask(at, Method::POST, &path, Some(b"")).await?;
            if reply.status == StatusCode::NOT_FOUND {
                return Ok(());
            }
            let reply = reply.success()?;
            if reply.read::<Stopped>()?.stopped {
                return Ok(());
            }
            match self.job(at, id).await? {
                Some(info) if !info.status.is_terminal() => Err(reply.refusal()),
                _ => Ok(()),
            }
        }
        .boxed()
    }

    fn applications<'a>(&'a self, at: &'a Address) -> DashboardResult<'a, Applications> {
        async move {
            let path = "/api/serve/applications/?api_type=declarative";
            let reply = self.ask(at, Method::GET, path, None).await?.success()?;
            let mut response: Applications = reply.read()?;
            if let Some(nameless) = response.applications.remove("") {
                let _: Option<Application> = response.applications.insert("default".to_owned(), nameless);
            }
            Ok(response)
        }
        .boxed()
    }

    fn deploy<'a>(&'a self, at: &'a Address, config: &'a Value) -> DashboardResult<'a, ()> {
        async move {
            let body = serde_json::to_vec(config).unwrap_or_default();
            let reply = self.ask(at, Method::PUT, "/api/serve/applications/", Some(&body)).await?;
            reply.success().map(|_| ())
        }
        .boxed()
    }

    fn is_healthy<'a>(&'a self, at: &'a ProxyAddress) -> BoxFuture<'a, bool> {
        async move {
            let ProxyAddress { namespace, pod, ip, port } = at;
            let uri = match &self.route {
                Route::Direct if ip.contains(':') => format!("http://[{ip}]:{port}/-/healthz"),
                Route::Direct => format!("http://{ip}:{port}/-/healthz"),
                Route::Proxied(_) => {
                    format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/-/healthz")
                }
            };
            let Ok(request) = Request::get(uri).body(Bytes::new()) else { return false };
            self.send(request).await.is_ok_and(|(status, _)| status == StatusCode::OK)
        }
        .boxed()
    }
}

/// A text as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            for digit in [byte >> 4, byte & 15] {
                encoded.extend(char::from_digit(digit.into(), 16).map(|digit| digit.to_ascii_uppercase()));
            }
        }
    }
    encoded
}
