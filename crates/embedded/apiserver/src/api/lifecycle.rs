//! Start, fork and stop of an API.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use parking_lot::RwLock;
use quintet_api::crd::Maker;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Api, Inner, Parts};
use quintet_foundation::{clock::Clock, rng::Rng};

use crate::{
    admission, aggregation,
    auth::{self, rbac},
    bootstrap, controllers, crd, discovery,
    faults::Faults,
    kubelet,
    resources::Registry,
    status::Failure,
    store::Store,
};

/// How long the end of the server waits for requests in progress.
const STOP_DEADLINE: Duration = Duration::from_secs(3);

impl Api {
    /// An API on a store, with the objects every cluster has. Needs a Tokio runtime for its background work.
    pub async fn start(parts: Parts) -> Result<Self, Failure> {
        let api = Self::new(parts, Arc::new(Registry::new(Vec::new())));
        crd::refresh(&api);
        bootstrap::install(&api).await?;
        aggregation::publish(&api).await?;
        api.catch_up().await;
        api.run();
        Ok(api)
    }

    /// An API that keeps nothing and listens nowhere, with definitions of custom kinds installed as they are: for
    /// tests, and for simulations to [fork](Self::fork) from.
    pub async fn in_memory(definitions: &[Value]) -> Result<Self, Failure> {
        let (tokens, _) = auth::tokens::Tokens::generate().map_err(Failure::internal)?;
        let parts = Parts {
            store: Store::in_memory(),
            tokens,
            converter: None,
            ca: String::new(),
            front_proxy: None,
            disabled_controllers: BTreeSet::new(),
            address: "127.0.0.1:6443".into(),
            clock: Clock::system(),
            rng: Rng::seeded(0),
        };
        let api = Self::start(parts).await?;
        let makers = definitions.iter().map(|definition| -> Maker {
            let definition = definition.clone();
            Box::new(|| Some(definition))
        });
        api.define("quintet", makers).await?;
        Ok(api)
    }

    fn new(parts: Parts, registry: Arc<Registry>) -> Self {
        let stop = CancellationToken::new();
        Self(Arc::new(Inner {
            parts,
            registry: RwLock::new(registry),
            renewal: parking_lot::Mutex::new(()),
            faults: Faults::default(),
            rbac: rbac::Cache::default(),
            webhooks: admission::webhooks::Webhooks::default(),
            documents: discovery::Documents::default(),
            ledger: admission::Ledger::default(),
            policies: admission::Policies::default(),
            services: aggregation::Services::default(),
            kubelets: kubelet::Kubelets::default(),
            servers: aggregation::Servers::default(),
            is_ready: AtomicBool::new(true),
            cut: RwLock::new(stop.child_token()),
            stop,
            tasks: TaskTracker::new(),
        }))
    }

    fn run(&self) {
        controllers::start(self);
        aggregation::start(self);
    }

    /// Another API that begins with the objects of this one, and has a clock and an rng of its own. It shares what
    /// does not change, so that a simulation can make thousands of them. What is written to one is not seen in the
    /// other, and the other is not written to disk.
    #[must_use]
    pub fn fork(&self, clock: Clock, rng: Rng) -> Self {
        let Parts { store, tokens, converter, ca, front_proxy, disabled_controllers, address, .. } =
            &self.0.parts;
        let parts = Parts {
            store: store.fork(),
            tokens: tokens.clone(),
            converter: converter.clone(),
            ca: ca.clone(),
            front_proxy: front_proxy.clone(),
            disabled_controllers: disabled_controllers.clone(),
            address: address.clone(),
            clock,
            rng,
        };
        let fork = Self::new(parts, self.registry());
        fork.run();
        fork
    }

    /// Ends watches and background work.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        // Requests in progress are completed, unless they take too long.
        let _ = tokio::time::timeout(STOP_DEADLINE, self.0.tasks.wait()).await;
    }
}
