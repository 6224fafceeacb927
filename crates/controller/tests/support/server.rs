//! A Kubernetes API in memory, with fault injection.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes};
use futures::{FutureExt, Stream, future::BoxFuture, stream};
use http::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    faults::{Faults, Treatment},
    store::{Place, Refusal, Served, Store, WatchEvent, merge, refuse},
};

/// The server, outliving the processes that talk to it.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// The newest version: wakes watches and those who wait for a state.
    version: watch::Sender<u64>,
}

struct State {
    store: Store,
    faults: Faults,
    clients: u64,
    /// Requests of these are swallowed: their process is dead.
    dead: BTreeSet<u64>,
    requests: Vec<String>,
    accepts: Vec<String>,
    page: usize,
}

impl State {
    fn is_quota_exceeded(&self, collection: &str) -> bool {
        let used = self.store.objects.keys().filter(|place| place.0 == collection).count();
        self.faults.quota.is_some_and(|quota| used >= quota)
    }
}

/// One process's connection.
#[derive(Clone)]
pub struct Connection {
    server: Server,
    client: u64,
}

impl Server {
    pub fn new(seed: u64) -> Self {
        let state = State {
            store: Store::default(),
            faults: Faults::new(seed),
            clients: 0,
            dead: BTreeSet::new(),
            requests: Vec::new(),
            accepts: Vec::new(),
            page: usize::MAX,
        };
        let server = Self(Arc::new(Shared { state: Mutex::new(state), version: watch::Sender::new(0) }));
        server.serve("v1", "configmaps", "ConfigMap", false);
        server.serve("test.quintet.dev/v1", "gardens", "Garden", true);
        server.serve("coordination.k8s.io/v1", "leases", "Lease", false);
        server.serve("events.k8s.io/v1", "events", "Event", false);
        server.serve("v1", "secrets", "Secret", false);
        server
    }

    pub fn serve(&self, api_version: &'static str, plural: &str, kind: &'static str, has_status: bool) {
        let served = Served { kind, api_version, has_status };
        self.0.state.lock().store.served.insert(format!("{api_version}/{plural}"), served);
    }

    /// A client of its own, which is served until it is killed.
    pub fn client(&self) -> (kube::Client, Connection) {
        let mut state = self.0.state.lock();
        state.clients += 1;
        let connection = Connection { server: self.clone(), client: state.clients };
        drop(state);
        (kube::Client::new(connection.clone(), "default"), connection)
    }

    pub fn with_faults<R>(&self, change: impl FnOnce(&mut Faults) -> R) -> R {
        change(&mut self.0.state.lock().faults)
    }

    /// Reads or changes objects as another client would.
    pub fn store<R>(&self, change: impl FnOnce(&mut Store) -> R) -> R {
        let result = change(&mut self.0.state.lock().store);
        self.wake();
        result
    }

    pub fn set_page(&self, objects: usize) {
        self.0.state.lock().page = objects;
    }

    /// Takes the writes seen since the last time.
    pub fn take_writes(&self) -> Vec<String> {
        let requests = std::mem::take(&mut self.0.state.lock().requests);
        requests.into_iter().filter(|request| !request.starts_with("GET")).collect()
    }

    /// What clients said they accept.
    pub fn accepted(&self) -> Vec<String> {
        self.0.state.lock().accepts.clone()
    }

    /// Takes all requests seen since the last time.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.0.state.lock().requests)
    }

    /// Resolves when the objects satisfy `condition`.
    pub async fn until(&self, what: &str, mut condition: impl FnMut(&Store) -> bool) {
        let mut version = self.0.version.subscribe();
        let reached = async {
            loop {
                version.mark_unchanged();
                if condition(&self.0.state.lock().store) {
                    return;
                }
                version.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(Duration::from_hours(6), reached).await.is_err() {
            let state = self.0.state.lock();
            let objects: Vec<_> = state.store.objects.values().map(ToString::to_string).collect();
            let requests = state.requests.iter().rev().take(10).collect::<Vec<_>>();
            panic!("never: {what}; objects: {objects:#?}; last requests: {requests:#?}");
        }
    }

    /// Resolves when the client has crashed as it was told to.
    pub async fn crashed(&self) {
        let mut version = self.0.version.subscribe();
        while !self.with_faults(|faults| faults.crashed) {
            version.changed().await.unwrap();
        }
    }

    /// Forgets the history, and breaks off every watch that has not seen it yet at its next event.
    pub fn compact(&self) {
        let mut state = self.0.state.lock();
        state.store.compacted = state.store.version;
    }

    fn wake(&self) {
        let version = self.0.state.lock().store.version;
        self.0.version.send_replace(version);
    }
}

impl tower::Service<Request<kube::client::Body>> for Connection {
    type Response = Response<Body>;
    type Error = tower::BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let connection = self.clone();
        async move { connection.answer(request).await }.boxed()
    }
}

impl Connection {
    /// From now on nothing that this client sends has an effect.
    pub fn kill(&self) {
        self.server.0.state.lock().dead.insert(self.client);
        self.server.wake();
    }

    fn is_dead(&self) -> bool {
        self.server.0.state.lock().dead.contains(&self.client)
    }

    async fn answer(self, request: Request<kube::client::Body>) -> Result<Response<Body>, tower::BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let writes = parts.method != Method::GET;
        let (latency, treatment) = self.server.with_faults(|faults| faults.request(writes));
        tokio::time::sleep(latency).await;
        if self.is_dead() {
            return std::future::pending().await;
        }
        match treatment {
            Treatment::Served | Treatment::AnswerLost | Treatment::CrashAfter => {}
            Treatment::Swallowed => return std::future::pending().await,
            Treatment::CrashBefore => {
                self.kill();
                return std::future::pending().await;
            }
            Treatment::Refused(code) => return Ok(status(code, "InternalError", "injected")),
            Treatment::Conflict => return Ok(status(409, "Conflict", "injected")),
            Treatment::Late(wait) => {
                self.serve_late(parts, body, wait);
                return Err("connection reset by peer".into());
            }
        }
        let accept = parts.headers.get("accept").map_or("", |value| value.to_str().unwrap()).to_owned();
        self.server.0.state.lock().accepts.push(accept);
        let content_type = parts.headers.get("content-type").map_or("", |value| value.to_str().unwrap());
        let answer = self.serve(&parts.method, &parts.uri, content_type, &body);
        self.server.wake();
        match treatment {
            Treatment::CrashAfter => {
                self.kill();
                std::future::pending().await
            }
            Treatment::AnswerLost => Err("connection reset by peer".into()),
            _ => Ok(answer),
        }
    }

    /// The request takes effect although its client has given it up.
    #[expect(clippy::disallowed_methods, reason = "it ends with the simulation")]
    fn serve_late(self, parts: http::request::Parts, body: Bytes, wait: Duration) {
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            if !self.is_dead() {
                let content_type =
                    parts.headers.get("content-type").map_or("", |value| value.to_str().unwrap());
                self.serve(&parts.method, &parts.uri, content_type, &body);
                self.server.wake();
            }
        });
    }

    fn serve(&self, method: &Method, uri: &http::Uri, content_type: &str, body: &Bytes) -> Response<Body> {
        let query = Query::parse(uri.query().unwrap_or_default());
        let mut state = self.server.0.state.lock();
        state.requests.push(format!("{method} {uri}"));
        let Some(path) = Path::parse(uri.path()) else {
            return status(404, "NotFound", "no such path");
        };
        if !state.store.served.contains_key(&path.collection) {
            return status(404, "NotFound", "the server could not find the requested resource");
        }
        if state.faults.forbidden.is_some_and(|text| uri.path().contains(text)) {
            return status(403, "Forbidden", &format!("{} is forbidden", path.collection));
        }
        if method == Method::GET && path.name.is_empty() {
            if let Some((text, code)) = state.faults.unreadable
                && uri.path().contains(text)
            {
                return status(code, "Injected", "not to be read");
            }
            if query.get("watch") == Some("true") {
                return self.watch(&mut state, path, &query);
            }
            return list(&state, &path, &query);
        }
        let json = || serde_json::from_slice::<Value>(body).unwrap_or_default();
        let result = match *method {
            Method::GET => match state.store.objects.get(&path.place()) {
                Some(object) => Ok(object.clone()),
                None => refuse(404, "NotFound", format!("\"{}\" not found", path.name)),
            },
            Method::POST if state.is_quota_exceeded(&path.collection) => {
                refuse(403, "Forbidden", format!("{} is forbidden: exceeded quota", path.collection))
            }
            // An action on an object, answered as the API server answers a binding.
            Method::POST if !path.subresource.is_empty() => state
                .store
                .update(&path.place(), false, |live| {
                    merge(live, &json());
                    Ok(())
                })
                .map(|_| serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})),
            Method::POST => {
                let object = json();
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let place = Path { name, ..path }.place();
                state.store.create(&place, object)
            }
            Method::PUT => {
                let object = json();
                state.store.update(&path.place(), false, |live| {
                    *live = object;
                    Ok(())
                })
            }
            Method::PATCH if content_type.contains("apply-patch") => {
                state.store.apply(&path.place(), query.get("fieldManager").unwrap(), &json())
            }
            Method::PATCH if content_type.contains("json-patch") => {
                let operations: json_patch::Patch = serde_json::from_slice(body).unwrap();
                state.store.update(&path.place(), false, |live| {
                    json_patch::patch(live, &operations)
                        .or_else(|error| refuse(422, "Invalid", error.to_string()))
                })
            }
            Method::PATCH => state.store.update(&path.place(), path.subresource == "status", |live| {
                merge(live, &json());
                Ok(())
            }),
            Method::DELETE => {
                let options = json();
                state.store.delete(&path.place(), options["preconditions"]["uid"].as_str())
            }
            _ => refuse(405, "MethodNotAllowed", "no such method"),
        };
        match result {
            Ok(object) => answer(200, &object),
            Err(Refusal { code, reason, message }) => status(code, reason, &message),
        }
    }

    fn watch(&self, state: &mut State, path: Path, query: &Query) -> Response<Body> {
        let from: u64 = query.get("resourceVersion").unwrap_or("0").parse().unwrap();
        if state.faults.history_is_gone() {
            state.store.compacted = state.store.version;
        }
        let watch = Watch {
            connection: self.clone(),
            path,
            labels: query.get("labelSelector").unwrap_or_default().to_owned(),
            at: from,
            version: self.server.0.version.subscribe(),
            // Idle watches see a bookmark now and then.
            bookmark: Duration::from_mins(1),
        };
        if from < state.store.compacted {
            let gone = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "status": "Failure", "reason": "Expired", "message": "too old resource version"}});
            let line = Bytes::from(format!("{gone}\n"));
            return Response::new(Body::from_stream(stream::once(async move { Ok::<_, Infallible>(line) })));
        }
        let length = Duration::from_secs(query.get("timeoutSeconds").unwrap().parse().unwrap());
        Response::new(Body::from_stream(watch.lines(length)))
    }
}

struct Watch {
    connection: Connection,
    path: Path,
    labels: String,
    at: u64,
    version: watch::Receiver<u64>,
    bookmark: Duration,
}

impl Watch {
    fn lines(self, length: Duration) -> impl Stream<Item = Result<Bytes, Infallible>> {
        let end = tokio::time::Instant::now() + length;
        stream::unfold(self, move |mut watch| async move {
            let line = tokio::time::timeout_at(end, watch.next()).await.ok()??;
            Some((Ok(Bytes::from(format!("{line}\n"))), watch))
        })
    }

    /// The next line, or `None` when the watch breaks off.
    async fn next(&mut self) -> Option<Value> {
        loop {
            self.version.mark_unchanged();
            if self.connection.is_dead() {
                return None;
            }
            let (event, newest) = {
                let state = self.connection.server.0.state.lock();
                let log = &state.store.log;
                let start = log.partition_point(|event| event.version <= self.at);
                (log[start..].iter().find(|event| self.sees(event)).cloned(), state.store.version)
            };
            if let Some(event) = event {
                let late = self.connection.server.with_faults(Faults::watch_event)?;
                tokio::time::sleep(late).await;
                self.at = event.version;
                return Some(self.line(&event));
            }
            if tokio::time::timeout(self.bookmark, self.version.changed()).await.is_err() {
                self.at = newest;
                let version = newest.to_string();
                return Some(
                    json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}),
                );
            }
        }
    }

    fn sees(&self, event: &WatchEvent) -> bool {
        let selected = |object: &Value| is_selected(object, &self.labels);
        self.path.contains(&event.place)
            && (selected(&event.object) || event.before.as_ref().is_some_and(selected))
    }

    /// Leaving the selection looks like a deletion, entering it like a creation.
    fn line(&self, event: &WatchEvent) -> Value {
        let before = event.before.as_ref().is_some_and(|object| is_selected(object, &self.labels));
        let kind = match (before, is_selected(&event.object, &self.labels)) {
            (true, false) => "DELETED",
            (false, true) if event.kind != "DELETED" => "ADDED",
            _ => event.kind,
        };
        json!({"type": kind, "object": event.object})
    }
}

/// Lists a page. All pages of a list show the state of the first one, as those of a real server do.
fn list(state: &State, path: &Path, query: &Query) -> Response<Body> {
    let labels = query.get("labelSelector").unwrap_or_default();
    let (version, skip) = match query.get("continue").and_then(|token| token.split_once('.')) {
        Some((version, skip)) => (version.parse().unwrap(), skip.parse().unwrap()),
        None => (state.store.version, 0),
    };
    let objects = state.store.objects_at(version);
    let limit = query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap()).min(state.page);
    let found = objects.into_iter().filter(|(place, _)| path.contains(place));
    let found = found.map(|(_, object)| object).filter(|object| is_selected(object, labels));
    let mut found = found.skip(skip);
    let items: Vec<_> = found.by_ref().take(limit).cloned().collect();
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if found.next().is_some() {
        metadata["continue"] = format!("{version}.{}", skip + limit).into();
    }
    answer(200, &json!({"kind": "List", "metadata": metadata, "items": items}))
}

fn is_selected(object: &Value, labels: &str) -> bool {
    labels.split(',').filter(|rule| !rule.is_empty()).all(|rule| match rule.split_once('=') {
        Some((name, value)) => object["metadata"]["labels"][name] == value,
        None => object["metadata"]["labels"].get(rule).is_some(),
    })
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn status(code: u16, reason: &str, message: &str) -> Response<Body> {
    answer(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}),
    )
}

/// `/api/v1/namespaces/n/configmaps/a/status`, taken apart.
struct Path {
    collection: String,
    namespace: String,
    name: String,
    subresource: String,
}

impl Path {
    fn parse(path: &str) -> Option<Self> {
        let mut parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let api_version = match parts.remove(0) {
            "api" => parts.remove(0).to_owned(),
            "apis" => format!("{}/{}", parts.remove(0), parts.remove(0)),
            _ => return None,
        };
        let mut namespace = String::new();
        if parts.first() == Some(&"namespaces") && parts.len() > 2 {
            parts[1].clone_into(&mut namespace);
            parts.drain(..2);
        }
        let part = |index: usize| parts.get(index).copied().unwrap_or_default();
        let collection = format!("{api_version}/{}", part(0));
        Some(Self { collection, namespace, name: part(1).to_owned(), subresource: part(2).to_owned() })
    }

    fn place(&self) -> Place {
        (self.collection.clone(), self.namespace.clone(), self.name.clone())
    }

    fn contains(&self, place: &Place) -> bool {
        place.0 == self.collection && (self.namespace.is_empty() || place.1 == self.namespace)
    }
}

struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Self {
        let decode = |text: &str| {
            let mut bytes = Vec::new();
            let mut rest = text.bytes();
            while let Some(byte) = rest.next() {
                bytes.push(if byte == b'%' {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                } else {
                    byte
                });
            }
            String::from_utf8(bytes).unwrap()
        };
        let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (decode(name), decode(value)));
        Self(text.split('&').filter_map(pair).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| &**value)
    }
}
