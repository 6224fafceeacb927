//! The collector: it runs beside every Ray node and stores events, logs and answers of the dashboard.
//!
//! An event that was acknowledged is on the local disk, and from there goes to the storage, however often the collector
//! is killed or the storage is away. When the disk is nearly full, events are refused until there is room.

mod dashboard;
mod events;
mod files;
mod logs;
mod settings;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{self, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use parking_lot::Mutex;
use quintet_foundation::http as http_server;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::api::response::Reply;
use crate::api::{query, route};
use crate::model::{ids, time};
use crate::store::{Http, Store, StoreError};
use dashboard::{Dashboard, Failure, Poller};
use files::{EventFiles, Limits};
pub use settings::{CollectorSettings, Role, parse_duration};

/// Larger batches are refused.
const LARGEST_BATCH: usize = 64 * 1024 * 1024;

/// How often the node, the session and the files are looked at.
const CHECK: Duration = Duration::from_secs(5);

/// The pause before an upload is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Attempts to find out which node this is, and which session.
const ATTEMPTS: usize = 12;

/// How long the last poll of the dashboard may take.
const LAST_POLL: Duration = Duration::from_secs(10);

/// How long requests in progress may take when the collector stops: the last uploads need the rest of the time.
const GRACE: Duration = Duration::from_secs(5);

/// A collector that knows its node and session.
pub struct Collector {
    settings: CollectorSettings,
    store: Store,
    dashboard: Dashboard,
    files: Mutex<EventFiles>,
    /// Files were closed.
    closed: Notify,
    is_stopping: AtomicBool,
}

impl Collector {
    /// Finds out which node and session this is. Waits for Ray for up to a minute.
    pub async fn start(settings: CollectorSettings, store: Store) -> Result<Arc<Self>, String> {
        let http = Http::new().map_err(|StoreError(message)| message)?;
        let dashboard = Dashboard::new(http, &settings);
        let node = find_node(&settings, &dashboard)
            .await
            .map_err(|message| format!("Failed to get ray node id via HTTP endpoint: {message}"))?;
        let node = ids::checked(&node)
            .map_err(|message| format!("Failed to normalize ray node id to hex: {message}"))?;
        let session = find_session(&settings).await.map_err(|message| {
            format!("Failed to get active session dir after discovering node id: {message}")
        })?;
        if settings.has_logs {
            logs::set_aside(&settings.ray_root, &session, &node);
        }
        store.prepare().await.map_err(|error| format!("Failed to create the storage writer: {error}"))?;
        let cluster = &settings.cluster;
        let directory = settings.event_directory.join(format!("{}_{}", cluster.name, cluster.namespace));
        let limits = Limits { age: settings.rotation_interval, bytes: settings.max_file_bytes };
        let mut files = EventFiles::new(directory, limits, node);
        files.recover();
        Ok(Arc::new(Self {
            settings,
            store,
            dashboard,
            files: Mutex::new(files),
            closed: Notify::new(),
            is_stopping: AtomicBool::new(false),
        }))
    }

    /// Collects until `stop` completes, then stores what is left.
    pub async fn run(self: Arc<Self>, listener: Option<TcpListener>, stop: impl Future<Output = ()>) {
        let mut tasks = tokio::task::JoinSet::new();
        let uploader = Arc::clone(&self);
        #[expect(clippy::disallowed_methods, reason = "it is awaited at the end")]
        let uploads = tokio::spawn(async move { uploader.upload().await });
        let checker = Arc::clone(&self);
        tasks.spawn(async move { checker.check().await });
        let is_polling = self.settings.role == Role::Head && self.settings.has_logs;
        let poller = Poller::new(self.dashboard.clone(), self.store.clone(), &self.settings);
        let poller = Arc::new(tokio::sync::Mutex::new(poller));
        if is_polling {
            if let Some(directory) = self.session_directory() {
                tasks.spawn(Poller::keep_once(self.dashboard.clone(), self.store.clone(), directory));
            }
            let (collector, poller) = (Arc::clone(&self), Arc::clone(&poller));
            tasks.spawn(async move {
                loop {
                    if let Some(directory) = collector.session_directory() {
                        poller.lock().await.poll(&directory, false).await;
                    }
                    tokio::time::sleep(collector.settings.poll_interval).await;
                }
            });
        }
        match listener.filter(|_| self.settings.has_events) {
            Some(listener) => {
                let service = |_| {
                    let collector = Arc::clone(&self);
                    service_fn(move |request| {
                        let collector = Arc::clone(&collector);
                        async move { Ok::<_, Infallible>(collector.answer(request).await.into_http()) }
                    })
                };
                http_server::serve(listener, stop, GRACE, service).await;
            }
            None => stop.await,
        }
        self.is_stopping.store(true, Ordering::Relaxed);
        tasks.shutdown().await;
        self.files.lock().rotate_all();
        let last_poll = async {
            if let Some(directory) = self.session_directory().filter(|_| is_polling) {
                let mut poller = poller.lock().await;
                let poll = poller.poll(&directory, true);
                if tokio::time::timeout(LAST_POLL, poll).await.is_err() {
                    tracing::warn!("the dashboard did not answer the last poll");
                }
            }
        };
        futures::join!(last_poll, self.store_logs());
        self.closed.notify_one();
        // The uploader ends by itself: it tries every file once more.
        let _ = uploads.await;
    }

    fn session(&self) -> Option<String> {
        logs::current_session(&self.settings.ray_root)
    }

    fn session_directory(&self) -> Option<String> {
        self.session().map(|session| self.settings.cluster.session(&session))
    }

    /// The last logs, and the markers that make sessions listable.
    async fn store_logs(&self) {
        let node = self.files.lock().node().to_owned();
        let session = self.session();
        if self.settings.has_logs {
            self.store_earlier_logs().await;
            if let Some(session) = &session {
                let settings = &self.settings;
                logs::store_current(&self.store, &settings.cluster, &settings.ray_root, session, &node).await;
            }
        }
        if let Some(session) = &session {
            self.mark(session).await;
        }
    }

    async fn store_earlier_logs(&self) {
        let settings = &self.settings;
        for session in logs::store_earlier(&self.store, &settings.cluster, &settings.ray_root).await {
            self.mark(&session).await;
        }
    }

    /// Makes a session listable. Only the head does, so that a session without its head's data is not shown.
    async fn mark(&self, session: &str) {
        if self.settings.role != Role::Head {
            return;
        }
        if let Err(error) = self.store.put(&self.settings.cluster.marker(session), Bytes::new()).await {
            tracing::warn!(%error, session, "the session cannot be marked yet");
        }
    }

    /// Looks at the session, the node and the files again and again.
    async fn check(&self) {
        let mut session = None;
        loop {
            let found = self.session();
            if found != session
                && let Some(current) = &found
            {
                if self.settings.has_logs {
                    let node = self.files.lock().node().to_owned();
                    logs::set_aside(&self.settings.ray_root, current, &node);
                }
                self.mark(current).await;
                session = found;
            }
            if self.settings.has_logs {
                self.store_earlier_logs().await;
            }
            tokio::time::sleep(CHECK).await;
            let (Some(head), Some(ip)) = (&self.settings.head_address, &self.settings.pod_ip) else {
                continue;
            };
            let node = self.dashboard.node_id(head, ip).await;
            let mut files = self.files.lock();
            if let Some(Ok(node)) = node.ok().map(|node| ids::checked(&node)) {
                files.set_node(&node);
            }
            files.rotate_due();
            drop(files);
            self.closed.notify_one();
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Reply {
        let path = request.uri().path();
        let cleaned = query::clean(path);
        if cleaned != path {
            return route::redirect(request.method(), &cleaned, request.uri().query());
        }
        let Some(path) = query::decode(path, false) else { return Reply::bad_request("400 Bad Request") };
        match path.trim_end_matches('/') {
            "/v1/events" => {}
            other if other == "/v1" || other.starts_with("/v1/") => return route::no_route(),
            _ => return route::no_page(),
        }
        if request.method() != Method::POST {
            let body = if request.method() == Method::HEAD { "" } else { "405: Method Not Allowed" };
            let reply = Reply::text(StatusCode::METHOD_NOT_ALLOWED, body);
            return reply.with(header::ALLOW, HeaderValue::from_static("POST"));
        }
        if !route::consumes_json(request.headers(), false) {
            return route::unsupported_media_type();
        }
        if !route::accepts(request.headers(), &["application/json"]) {
            return route::not_acceptable(&["application/json"]);
        }
        if self.is_stopping.load(Ordering::Relaxed) {
            return unavailable("event collector is shutting down", "5");
        }
        if self.files.lock().used() >= self.settings.max_disk_bytes / 5 * 4 {
            return unavailable("event collector under disk pressure", "10");
        }
        let body = match Limited::new(request.into_body(), LARGEST_BATCH).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => {
                return Reply::text(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    format!("a batch of events has at most {LARGEST_BATCH} bytes"),
                );
            }
        };
        self.take(&body)
    }

    fn take(&self, body: &[u8]) -> Reply {
        let events = match events::parse(body) {
            Ok(events) => events,
            Err(message) => return Reply::bad_request(message),
        };
        let mut files = self.files.lock();
        let written = files.append(&events);
        let has_closed = files.has_closed();
        drop(files);
        if has_closed {
            self.closed.notify_one();
        }
        match written {
            Ok(()) => Reply::empty(StatusCode::OK),
            Err(error) => {
                // The path stays in the log.
                tracing::error!(%error, "events cannot be written");
                Reply::failed(format!("events cannot be written to the local disk: {}", error.kind()))
            }
        }
    }

    /// Uploads closed files, one after the other, until the collector stops.
    async fn upload(&self) {
        loop {
            let next = self.files.lock().next_closed();
            let Some(mut path) = next else {
                if self.is_stopping.load(Ordering::Relaxed) {
                    return;
                }
                self.closed.notified().await;
                continue;
            };
            match self.upload_file(&mut path).await {
                Ok(()) => {}
                Err(StoreError(message)) if self.is_stopping.load(Ordering::Relaxed) => {
                    tracing::warn!(message, file = %path.display(), "events stay on the local disk");
                }
                Err(StoreError(message)) => {
                    tracing::warn!(message, file = %path.display(), "events cannot be stored yet");
                    self.files.lock().put_back(path);
                    let pause = tokio::time::sleep(RETRY);
                    let mut pause = std::pin::pin!(pause);
                    loop {
                        tokio::select! {
                            () = &mut pause => break,
                            () = self.closed.notified() => {
                                if self.is_stopping.load(Ordering::Relaxed) { break; }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Stores an event file and removes it. A file that is compressed for that has another path from then on.
    async fn upload_file(&self, path: &mut PathBuf) -> Result<(), StoreError> {
        let local = |path: &Path, error: std::io::Error| StoreError(format!("{}: {error}", path.display()));
        if self.settings.is_compressed && path.extension().is_some_and(|it| it == "jsonl") {
            let plain = files::size(path);
            let compressed = compress(path).map_err(|error| local(path, error))?;
            self.files.lock().replaced(plain, files::size(&compressed));
            *path = compressed;
        }
        let key = self.key(path).ok_or_else(|| StoreError(format!("{} is no event file", path.display())))?;
        let bytes = files::size(path);
        self.store.put_file(&key, path).await?;
        std::fs::remove_file(&*path).map_err(|error| local(path, error))?;
        self.files.lock().replaced(bytes, 0);
        Ok(())
    }

    /// The key of an event file: its directory names session and category, its name the node and the time. A name
    /// without them gets this node and the time of its last change.
    fn key(&self, path: &Path) -> Option<String> {
        let cluster = &self.settings.cluster;
        let base = self.settings.event_directory.join(format!("{}_{}", cluster.name, cluster.namespace));
        let relative = path.strip_prefix(&base).ok()?;
        let (session, below) = relative.to_str()?.split_once('/')?;
        let (category, name) = below.rsplit_once('/')?;
        let (stem, extension) = match name.strip_suffix(".gz") {
            Some(name) => (name.strip_suffix(".jsonl")?, "jsonl.gz"),
            None => (name.strip_suffix(".jsonl")?, "jsonl"),
        };
        let (node, number) = stem.rsplit_once('_').unwrap_or(("", stem));
        let number = number.parse().unwrap_or_else(|_| files::changed(path));
        let node = if node.is_empty() { self.files.lock().node().to_owned() } else { node.to_owned() };
        let hour = time::format(number / 1_000_000_000, "%Y-%m-%d-%H");
        Some(format!("{}/{node}/{category}/{node}-{hour}-{number}.{extension}", cluster.session(session)))
    }
}

fn unavailable(text: &'static str, seconds: &'static str) -> Reply {
    Reply::text(StatusCode::SERVICE_UNAVAILABLE, text)
        .with(header::RETRY_AFTER, HeaderValue::from_static(seconds))
}

/// Compresses a file beside itself. The plain file goes when the compressed one is complete.
fn compress(path: &Path) -> std::io::Result<PathBuf> {
    let compressed = PathBuf::from(format!("{}.gz", path.display()));
    let temporary = PathBuf::from(format!("{}.tmp", compressed.display()));
    let mut encoder = GzEncoder::new(std::fs::File::create(&temporary)?, Compression::fast());
    std::io::copy(&mut std::fs::File::open(path)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    std::fs::rename(&temporary, &compressed)?;
    std::fs::remove_file(path)?;
    Ok(compressed)
}

async fn find_node(settings: &CollectorSettings, dashboard: &Dashboard) -> Result<String, String> {
    let missing = |name: &str| format!("{name} environment variable is not set");
    let ip = settings.pod_ip.as_ref().ok_or_else(|| missing("POD_IP"))?;
    let head = settings.head_address.as_ref().ok_or_else(|| missing("FQ_RAY_IP"))?;
    let mut last = String::new();
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(CHECK).await;
        }
        match dashboard.node_id(head, ip).await {
            Ok(node) => return Ok(node),
            Err(Failure::Refused(message)) => return Err(message),
            Err(Failure::Other(message)) => last = message,
        }
    }
    Err(format!("timeout: failed to discover Ray NodeID via HTTP endpoint for Pod IP {ip}: {last}"))
}

/// Waits until the raylet of the current session accepts connections.
async fn find_session(settings: &CollectorSettings) -> Result<String, String> {
    let mut last = String::new();
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(CHECK).await;
        }
        let Some(session) = logs::current_session(&settings.ray_root) else {
            last =
                format!("{} does not lead to a session", settings.ray_root.join("session_latest").display());
            continue;
        };
        let socket = settings.ray_root.join(&session).join("sockets/raylet");
        match tokio::net::UnixStream::connect(&socket).await {
            Ok(_) => return Ok(session),
            Err(error) => last = format!("{}: {error}", socket.display()),
        }
    }
    Err(format!("timeout waiting for active Ray session: {last}"))
}
