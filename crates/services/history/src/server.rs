//! The history server: its state, and the connections to it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use parking_lot::Mutex;
use quintet_foundation::http as http_server;
use tokio::net::TcpListener;

use crate::api::{self, Target};
use crate::cache::{Cache, CacheLimits};
use crate::kubernetes::{Failure, Kubernetes, RayCluster};
use crate::layout::{Cluster, MARKERS, StoredSession};
use crate::load;
use crate::store::{Http, Store, StoreError, cause};

/// How long the place of a dashboard is remembered, and how many are.
const HEAD_AGE: Duration = Duration::from_secs(30);
const HEADS: usize = 1024;

/// How long requests in progress may take when the server stops.
const GRACE: Duration = Duration::from_secs(5);

/// How the server works.
#[derive(Debug, Clone)]
pub struct HistoryOptions {
    /// Send requests to running clusters through the API server's service proxy.
    pub use_kubernetes_proxy: bool,
    /// Authenticate at dashboards with the tokens of their clusters.
    pub use_auth_token_mode: bool,
    /// How long a cold load may take.
    pub load_timeout: Duration,
    /// How many sessions are kept.
    pub cache: CacheLimits,
    /// The front end of an installed Ray.
    pub dashboard_directory: Option<PathBuf>,
    /// Ray's directory on the nodes, as it is shown.
    pub ray_root: String,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self {
            use_kubernetes_proxy: false,
            use_auth_token_mode: false,
            load_timeout: Duration::from_mins(2),
            cache: CacheLimits::default(),
            dashboard_directory: None,
            ray_root: "/tmp/ray".to_owned(),
        }
    }
}

/// A history server.
#[derive(Clone)]
pub struct History {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    kubernetes: Option<Kubernetes>,
    http: Http,
    options: HistoryOptions,
    sessions: Cache,
    loads: Mutex<HashMap<String, Load>>,
    heads: Mutex<HashMap<(String, String), (Instant, Target)>>,
    stop: Arc<AtomicBool>,
}

type Load = Shared<BoxFuture<'static, Result<Loaded, String>>>;

/// What entering a session came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// Its cluster runs.
    Live,
    /// It is in memory.
    Stored,
}

impl History {
    /// A server of what is stored, and of the clusters that run if there is a Kubernetes API.
    pub fn new(
        store: Store,
        kubernetes: Option<kube::Config>,
        options: HistoryOptions,
    ) -> Result<Self, StoreError> {
        let kubernetes = kubernetes.map(Kubernetes::new).transpose().map_err(|error| {
            StoreError(format!("cannot set up a client of the Kubernetes API: {}", cause(&error)))
        })?;
        let inner = Inner {
            store,
            kubernetes,
            http: Http::new()?,
            sessions: Cache::new(options.cache),
            options,
            loads: Mutex::default(),
            heads: Mutex::default(),
            stop: Arc::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Serves connections until `stop` completes. Loads in progress end then.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let stopping = Arc::clone(&self.inner.stop);
        let stop = async move {
            stop.await;
            stopping.store(true, Ordering::Relaxed);
        };
        let history = self;
        let service = |_| {
            let history = history.clone();
            service_fn(move |request: Request<Incoming>| {
                let history = history.clone();
                async move {
                    let (parts, _) = request.into_parts();
                    Ok::<_, Infallible>(api::answer(&history, &parts).await.into_http())
                }
            })
        };
        http_server::serve(listener, stop, GRACE, service).await;
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn http(&self) -> &Http {
        &self.inner.http
    }

    pub(crate) fn sessions(&self) -> &Cache {
        &self.inner.sessions
    }

    pub(crate) fn kubernetes(&self) -> Option<&Kubernetes> {
        self.inner.kubernetes.as_ref()
    }

    pub(crate) fn kubernetes_client(&self) -> Option<&kube::Client> {
        self.kubernetes().map(Kubernetes::client)
    }

    pub(crate) fn uses_kubernetes_proxy(&self) -> bool {
        self.inner.options.use_kubernetes_proxy
    }

    pub(crate) fn uses_tokens(&self) -> bool {
        self.inner.options.use_auth_token_mode
    }

    pub(crate) fn dashboard_directory(&self) -> Option<&Path> {
        self.inner.options.dashboard_directory.as_deref()
    }

    pub(crate) fn ray_root(&self) -> &str {
        &self.inner.options.ray_root
    }

    /// The running clusters. Without Kubernetes there are none.
    pub(crate) async fn live_clusters(&self) -> Vec<RayCluster> {
        let Some(kubernetes) = self.kubernetes() else { return Vec::new() };
        match kubernetes.clusters().await {
            Ok(clusters) => clusters,
            Err(failure) => {
                tracing::warn!(message = failure.into_message(), "running clusters cannot be listed");
                Vec::new()
            }
        }
    }

    /// All stored sessions, newest first.
    pub(crate) async fn stored_sessions(&self) -> Result<Vec<StoredSession>, StoreError> {
        let markers = self.store().list_all(MARKERS).await?;
        let mut sessions: Vec<_> = markers.iter().filter_map(|path| StoredSession::parse(path)).collect();
        sessions.sort_by(|left, right| {
            let older = right.created.cmp(&left.created);
            older.then_with(|| right.session.cmp(&left.session))
        });
        Ok(sessions)
    }

    /// The dashboard of a running cluster. The error is what to tell the client.
    pub(crate) async fn head(&self, namespace: &str, cluster: &str) -> Result<Target, String> {
        let key = (namespace.to_owned(), cluster.to_owned());
        if let Some((time, target)) = self.inner.heads.lock().get(&key)
            && time.elapsed() < HEAD_AGE
        {
            return Ok(target.clone());
        }
        let kubernetes = self.kubernetes().ok_or("there is no Kubernetes API to ask for running clusters")?;
        let found = kubernetes.cluster(namespace, cluster).await.map_err(Failure::into_message)?;
        let service = found.service().ok_or("RayCluster head service not ready")?;
        let target = Target {
            namespace: namespace.to_owned(),
            cluster: cluster.to_owned(),
            service: service.to_owned(),
            port: found.dashboard_port(),
        };
        let mut heads = self.inner.heads.lock();
        if heads.len() >= HEADS {
            heads.retain(|_, (time, _)| time.elapsed() < HEAD_AGE);
        }
        if heads.len() < HEADS {
            heads.insert(key, (Instant::now(), target.clone()));
        }
        Ok(target)
    }

    /// The token for a dashboard, read anew for every request.
    pub(crate) async fn token(&self, target: &Target) -> Result<Option<String>, String> {
        if !self.uses_tokens() {
            return Ok(None);
        }
        let Target { namespace, cluster, .. } = target;
        let failed = |message: String| {
            format!("failed to get auth token for cluster {namespace}/{cluster}: {message}")
        };
        let kubernetes = self.kubernetes().ok_or_else(|| failed("there is no Kubernetes API".to_owned()))?;
        let found = kubernetes.cluster(namespace, cluster).await;
        let found = found.map_err(|failure| failed(failure.into_message()))?;
        kubernetes.token(&found).await.map_err(failed)
    }

    /// Loads a stored session unless it is in memory. Requests for the same session share one load, which goes on when
    /// they leave.
    #[expect(clippy::disallowed_methods, reason = "a load goes on when those who asked leave")]
    pub(crate) async fn load(&self, cluster: &Cluster, session: &str) -> Result<Loaded, String> {
        let key = format!("{}_{}_{session}", cluster.name, cluster.namespace);
        if self.sessions().get(&key).is_some() {
            return Ok(Loaded::Stored);
        }
        let load = {
            let mut loads = self.inner.loads.lock();
            if let Some(load) = loads.get(&key) {
                load.clone()
            } else {
                let load = self.clone().cold_load(cluster.clone(), session.to_owned(), key.clone());
                let load = load.boxed().shared();
                loads.insert(key, load.clone());
                tokio::spawn(load.clone());
                load
            }
        };
        load.await
    }

    async fn cold_load(self, cluster: Cluster, session: String, key: String) -> Result<Loaded, String> {
        let timeout = self.inner.options.load_timeout;
        let loading = self.cold_load_now(&cluster, &session, &key);
        let loaded = match tokio::time::timeout(timeout, loading).await {
            Ok(loaded) => loaded,
            Err(_) => {
                Err(format!("loading session {session} took longer than {} seconds", timeout.as_secs()))
            }
        };
        self.inner.loads.lock().remove(&key);
        loaded
    }

    async fn cold_load_now(&self, cluster: &Cluster, session: &str, key: &str) -> Result<Loaded, String> {
        let Cluster { namespace, name, .. } = cluster;
        if let Some(kubernetes) = self.kubernetes() {
            match kubernetes.cluster(namespace, name).await {
                Ok(_) => return Ok(Loaded::Live),
                Err(Failure::NotFound(_)) => {}
                Err(Failure::Other(message)) => {
                    tracing::warn!(message, "Kubernetes cannot say whether {namespace}/{name} runs");
                }
            }
        }
        let directory = cluster.session(session);
        let snapshot = load::load(self.store(), &directory, key, Arc::clone(&self.inner.stop))
            .await
            .map_err(|error| format!("process events for {namespace}/{name}: {error}"))?;
        self.sessions().insert(key.to_owned(), Arc::new(snapshot));
        Ok(Loaded::Stored)
    }
}
