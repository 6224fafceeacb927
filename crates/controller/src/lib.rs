//! The controller runtime that every operator shares.
//!
//! It owns everything between a plan and the API server: shared caches, the work queue, the
//! executor of plans, events, leader election, webhooks, metrics and health. It knows nothing of any
//! operator, and reads no configuration: settings are plain structs.
//!
//! ```text
//!   API server ── watch ──> caches ── changes ──> queue ── reconcile ──> observe ──> plan
//!       ^                     ^                                                  │
//!       └──────── writes ─────┴───────────── write-through ──── executor <──────┘
//! ```
//!
//! An operator gives the root kind, what else it watches, `observe` and `plan`, and gets the rest:
//!
//! ```no_run
//! use std::sync::Arc;
//! use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
//! use quintet_controller::{
//!     Action, ApiKind, Controller, Error, ObjectKey, NoCall, Plan, Runtime,
//!     cache::{Cache, Entry, WatchSpec},
//! };
//! use serde_json::json;
//!
//! /// Every namespace has a ConfigMap with its name in it.
//! struct Greeter {
//!     namespaces: Cache<Namespace>,
//! }
//!
//! impl Controller for Greeter {
//!     type Observed = Arc<Entry<Namespace>>;
//!     type Call = NoCall;
//!     const NAME: &'static str = "greeter";
//!
//!     async fn observe(&self, key: &ObjectKey) -> Result<Option<Self::Observed>, Error> {
//!         Ok(self.namespaces.get(key))
//!     }
//!
//!     fn plan(namespace: &Self::Observed) -> Plan {
//!         let name = namespace.key.name();
//!         let greeting = json!({
//!             "metadata": { "name": "greeting", "namespace": name },
//!             "data": { "text": format!("welcome to {name}") },
//!         });
//!         let apply = Action::apply(ApiKind::of::<ConfigMap>(), "greeter", &greeting);
//!         Plan { steps: vec![apply.into()], ..Plan::default() }
//!     }
//! }
//!
//! fn add_greeter(runtime: &Runtime) -> Result<(), Error> {
//!     let namespaces = runtime.caches().watch(WatchSpec::<Namespace>::typed())?;
//!     let greetings = runtime.caches().watch(WatchSpec::metadata(ApiKind::of::<ConfigMap>()))?;
//!     let greeter = Greeter { namespaces: namespaces.clone() };
//!     runtime
//!         .add(greeter, &namespaces, 4)
//!         .watches(&greetings, |entry| entry.key.namespace().map(ObjectKey::cluster).into_iter().collect())
//!         .done();
//!     Ok(())
//! }
//! ```

pub mod admin;
pub mod aggregated;
pub mod api;
pub mod cache;
pub mod contact;
pub mod controller;
pub mod discovery;
pub mod error;
pub mod events;
pub mod executor;
pub mod finalizers;
pub mod index;
pub mod leader;
pub mod limiter;
pub mod metrics;
pub mod object;
pub mod plan;
pub mod queue;
pub mod tasks;
pub mod webhook;

pub use quintet_foundation::{backoff, clock, rng};

pub use controller::{Controller, Explanation, Remote, Runtime, RuntimeParts, RuntimeSettings};
pub use error::{Class, Error};
pub use object::{ApiKind, ObjectKey};
pub use plan::{Action, AppliedStatus, Event, Next, NoCall, OnError, Plan, StatusPatch, Step};
