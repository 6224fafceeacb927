//! A stand-in for the Kubernetes API that records what it gets.
//!
//! - `GET` of ConfigMaps and lists of Services are answered from what there is; in the namespace `failing` Services are
//!   forbidden.
//! - `answer-N` in a path below rayjobs or a Service: status N; `answer-N-K`: N for the first K times, then 200.
//! - `hangup` in a path: the connection is closed.
//! - `watch=true` in a query: an event, and more when the test says so.
//! - Everything else is echoed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use regex::Regex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

type Response = http::Response<UnsyncBoxBody<Bytes, Infallible>>;

static ANSWER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:rayjobs|/proxy)/(?:.*/)?answer-(\d+)(?:-(\d+))?").expect("a pattern"));

/// A request that it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub method: String,
    pub uri: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn host(&self) -> &str {
        self.header("host").unwrap_or_default()
    }

    /// Whether it is about what the proxy has to know itself.
    pub fn is_lookup(&self) -> bool {
        self.uri.contains("/configmaps/") || self.uri.contains("/services?")
    }
}

#[derive(Default)]
struct State {
    config_maps: Vec<Value>,
    services: Vec<Value>,
    seen: Mutex<Vec<Seen>>,
    answered: Mutex<BTreeMap<String, usize>>,
    event: Notify,
}

/// The stand-in.
pub struct Kubernetes {
    address: SocketAddr,
    state: Arc<State>,
}

impl Kubernetes {
    /// Starts it with ConfigMaps and Services.
    pub async fn start(config_maps: &[Value], services: &[Value]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            config_maps: config_maps.to_vec(),
            services: services.to_vec(),
            ..State::default()
        });
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| respond(Arc::clone(&state), request));
                let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection.with_upgrades());
            }
        });
        Self { address, state }
    }

    /// How to reach it, without credentials.
    pub fn config(&self) -> kube::Config {
        let url = format!("http://{}", self.address);
        kube::Config::new(url.parse().expect("a URL"))
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().clone()
    }

    /// Sends another event on a watch.
    pub fn send_event(&self) {
        self.state.event.notify_one();
    }
}

async fn respond(state: Arc<State>, request: http::Request<Incoming>) -> Result<Response, std::io::Error> {
    let mut request = request;
    let upgrade = hyper::upgrade::on(&mut request);
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let headers = parts
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let uri = parts.uri.to_string();
    state.seen.lock().push(Seen { method: parts.method.to_string(), uri: uri.clone(), headers, body });
    let path = parts.uri.path();
    if path.contains("hangup") {
        return Err(std::io::Error::other("hang up"));
    }
    if path.contains("echo-socket") && parts.headers.contains_key(header::UPGRADE) {
        tokio::spawn(async move {
            let mut socket = TokioIo::new(upgrade.await.expect("it is upgraded"));
            let (mut read, mut write) = tokio::io::split(&mut socket);
            let _ = tokio::io::copy(&mut read, &mut write).await;
        });
        let mut response = json_response(101, &Value::Null);
        *response.body_mut() = UnsyncBoxBody::default();
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("echo"));
        return Ok(response);
    }
    let query = parts.uri.query().unwrap_or_default();
    if query.contains("watch=true") {
        return Ok(watch(state));
    }
    if parts.method == http::Method::GET
        && let Some(found) = lookup(&state, path, query)
    {
        return Ok(found);
    }
    if let Some(found) = ANSWER.captures(path) {
        let code: u16 = found[1].parse().expect("a code");
        let times = found.get(2).map_or(usize::MAX, |times| times.as_str().parse().expect("a number"));
        let mut answered = state.answered.lock();
        let before = answered.entry(path.to_owned()).or_default();
        *before += 1;
        if *before <= times {
            return Ok(status(code, "Some", &format!("answer {code}")));
        }
    }
    Ok(json_response(200, &json!({"echo": true, "uri": uri})))
}

fn lookup(state: &State, path: &str, query: &str) -> Option<Response> {
    let segments: Vec<&str> = path.split('/').collect();
    match segments.as_slice() {
        ["", "api", "v1", "namespaces", namespace, "configmaps", name] => {
            let name = decoded(name);
            let is_named = |map: &Value| {
                map["metadata"]["name"] == name.as_str() && map["metadata"]["namespace"] == *namespace
            };
            let found = state.config_maps.iter().find(|map| is_named(map));
            let missing = || status(404, "NotFound", &format!("configmaps \"{name}\" not found"));
            Some(found.map_or_else(missing, |found| json_response(200, found)))
        }
        ["", "api", "v1", "namespaces", "failing", "services"] => {
            Some(status(403, "Forbidden", "services is forbidden"))
        }
        ["", "api", "v1", "namespaces", namespace, "services"] => {
            let is_selected = |service: &&Value| {
                let name = service["name"].as_str().unwrap_or_default();
                service["namespace"] == *namespace
                    && query.contains(&format!("fieldSelector=metadata.name%3D{name}&"))
                    && service["labels"]["app.kubernetes.io/name"] == "kuberay"
            };
            let items: Vec<_> = state.services.iter().filter(is_selected).collect();
            Some(json_response(200, &json!({"kind": "ServiceList", "apiVersion": "v1", "items": items})))
        }
        _ => None,
    }
}

/// An event at once, and one more whenever the test wants.
fn watch(state: Arc<State>) -> Response {
    let frame = || Ok(Frame::data(Bytes::from_static(b"{\"type\":\"ADDED\"}\n")));
    let more = futures::stream::unfold((state, true), move |(state, is_first)| async move {
        if !is_first {
            state.event.notified().await;
        }
        Some((frame(), (state, false)))
    });
    let mut response = http::Response::new(StreamBody::new(more).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn status(code: u16, reason: &str, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    let mut response = json_response(code, &body);
    if code == 429 || code == 503 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("7"));
    }
    response
}

fn json_response(code: u16, body: &Value) -> Response {
    let body = if code == 204 { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut response = http::Response::new(Full::new(body).boxed_unsync());
    *response.status_mut() = http::StatusCode::from_u16(code).expect("a code");
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Resolves percent-encoding.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).expect("two digits"));
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).expect("text")
}
