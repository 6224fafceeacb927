//! The API server without a socket: its state.

mod lifecycle;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::RwLock;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use quintet_foundation::{clock::Clock, rng::Rng};

use crate::{
    admission, aggregation,
    auth::{self, rbac},
    controllers::Controller,
    discovery,
    faults::Faults,
    kubelet,
    resources::{Registry, Resource},
    server::certificates::FrontProxy,
    status::Failure,
    store::{Entry, Store, Write, WriteError},
};

/// Converts objects of custom kinds without a webhook: the object, and the API version wanted. `None` if
/// it does not know the kind.
pub type Converter = Arc<dyn Fn(&Value, &str) -> Option<Result<Value, String>> + Send + Sync>;

/// What an API is made of.
pub struct Parts {
    /// Where objects are.
    pub store: Store,
    /// Signs and checks tokens of service accounts.
    pub tokens: auth::tokens::Tokens,
    /// Converts custom kinds in process.
    pub converter: Option<Converter>,
    /// The certificates that clients trust, as PEM.
    pub ca: String,
    /// How aggregated API servers know this one; without it they do not.
    pub front_proxy: Option<Arc<FrontProxy>>,
    /// Controllers that are not started.
    pub disabled_controllers: BTreeSet<Controller>,
    /// Where clients reach the server, as `host:port`.
    pub address: String,
    /// What time it is.
    pub clock: Clock,
    /// What is made up.
    pub rng: Rng,
}

/// A Kubernetes API. Clones are the same one.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

struct Inner {
    parts: Parts,
    registry: RwLock<Arc<Registry>>,
    /// Held while the registry is made anew, so that an older one never replaces a newer one.
    renewal: parking_lot::Mutex<()>,
    faults: Faults,
    pub(crate) rbac: rbac::Cache,
    pub(crate) webhooks: admission::webhooks::Webhooks,
    pub(crate) documents: discovery::Documents,
    ledger: admission::Ledger,
    policies: admission::Policies,
    services: aggregation::Services,
    kubelets: kubelet::Kubelets,
    servers: aggregation::Servers,
    /// Whether what comes after the start is done, such as writing the kubeconfig.
    pub(crate) is_ready: AtomicBool,
    /// Ends every watch when the server stops.
    stop: CancellationToken,
    /// Ends every watch once, when a fault says so; then replaced.
    cut: RwLock<CancellationToken>,
    tasks: TaskTracker,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("store", &self.0.parts.store).finish_non_exhaustive()
    }
}

impl Api {
    /// Where objects are.
    pub fn store(&self) -> &Store {
        &self.0.parts.store
    }

    /// Says whether everything is done that `/readyz` waits for.
    pub fn set_ready(&self, is_done: bool) {
        self.0.is_ready.store(is_done, Ordering::Release);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.0.is_ready.load(Ordering::Acquire)
    }

    /// Ways to make it fail on purpose; none are on unless turned on here.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// What is served at the moment.
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.0.registry.read())
    }

    /// Ends all watches that are being read; clients resume.
    pub fn drop_watches(&self) {
        let fresh = self.0.stop.child_token();
        let old = std::mem::replace(&mut *self.0.cut.write(), fresh);
        old.cancel();
    }

    /// Replaces the registry by what `make` makes of it.
    pub(crate) fn renew_registry(&self, make: impl FnOnce(&Registry) -> Registry) {
        let _renewal = self.0.renewal.lock();
        let fresh = Arc::new(make(&self.registry()));
        *self.0.registry.write() = fresh;
        self.0.documents.forget();
    }

    /// What time it is for this API.
    pub fn now(&self) -> jiff::Timestamp {
        self.0.parts.clock.now()
    }

    pub(crate) fn rng(&self) -> &Rng {
        &self.0.parts.rng
    }

    pub(crate) fn watch_cut(&self) -> CancellationToken {
        self.0.cut.read().clone()
    }

    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.0.stop
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.0.stop.clone();
        self.0.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Work that ends by itself soon after the server stops.
    pub(crate) fn spawn_draining<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.0.tasks.spawn(task)
    }

    pub(crate) fn front_proxy(&self) -> Option<&FrontProxy> {
        self.0.parts.front_proxy.as_deref()
    }

    /// Whether a controller runs.
    pub(crate) fn runs(&self, controller: Controller) -> bool {
        !self.0.parts.disabled_controllers.contains(&controller)
    }

    pub(crate) fn rbac(&self) -> &rbac::Cache {
        &self.0.rbac
    }

    /// Answers the webhooks of a service by a function of this process, without a connection; `None` ends that.
    pub fn answer_webhooks(
        &self,
        namespace: &str,
        service: &str,
        webhook: Option<admission::webhooks::InProcessWebhook>,
    ) {
        self.0.webhooks.answer(namespace, service, webhook);
    }

    pub(crate) fn webhooks(&self) -> &admission::webhooks::Webhooks {
        &self.0.webhooks
    }

    pub(crate) fn ledger(&self) -> &admission::Ledger {
        &self.0.ledger
    }

    pub(crate) fn policies(&self) -> &admission::Policies {
        &self.0.policies
    }

    pub(crate) fn services(&self) -> &aggregation::Services {
        &self.0.services
    }

    /// The kubelets of this process.
    pub fn kubelets(&self) -> &kubelet::Kubelets {
        &self.0.kubelets
    }

    pub(crate) fn servers(&self) -> &aggregation::Servers {
        &self.0.servers
    }

    pub(crate) fn documents(&self) -> &discovery::Documents {
        &self.0.documents
    }

    pub(crate) fn tokens(&self) -> &auth::tokens::Tokens {
        &self.0.parts.tokens
    }

    pub(crate) fn converter(&self) -> Option<&Converter> {
        self.0.parts.converter.as_ref()
    }

    pub(crate) fn ca(&self) -> &str {
        &self.0.parts.ca
    }

    /// Where clients reach the server, as `host:port`.
    pub fn address(&self) -> &str {
        &self.0.parts.address
    }

    /// A resource that is always there.
    pub(crate) fn built_in(&self, group: &str, plural: &str) -> Result<Arc<Resource>, Failure> {
        let registry = self.registry();
        let found = registry.get(group, "v1", plural).cloned();
        found.ok_or_else(|| Failure::internal(format!("{plural} are not served")))
    }

    /// Carries out a change without follow-ups; see [`Self::commit`].
    pub(crate) async fn write(&self, write: Write) -> Result<Arc<Entry>, WriteError> {
        self.store().write(write).await
    }
}
