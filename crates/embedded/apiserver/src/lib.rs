//! The Kubernetes API, embedded: what kube-apiserver and etcd do, in one process, without either.
//!
//! It owns objects, their order, their schemas and who may touch them. It does not run anything: pods stay
//! where they are until something else (a scheduler, a node) writes to them like any other client.
//!
//! ```text
//! HTTPS (server) ─┐
//!                 ├─> api: authorize ─> verbs: decode, default, admit, check ─> store: log, watchers
//! kube::Client ───┘                                                               │
//!                       controllers: garbage, namespaces  <─────────────────────┘
//! ```
//!
//! Built-in kinds and custom resources take the same path; what a kind is comes from `quintet-objects`.
//!
//! # Simulation
//!
//! A test makes one API, installs the definitions it needs, and forks it for every seed: a fork begins with the same
//! objects and shares what does not change, so that it costs next to nothing. Its time is Tokio's, so that paused
//! time drives timestamps, deadlines and the age of events and tokens alike; what it makes up follows from the seed.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use quintet_apiserver::{Api, Rng, Clock, faults::{Fault, Met}};
//!
//! let template = Api::in_memory(&[/* CustomResourceDefinitions as JSON */]).await?;
//! for seed in 0..3 {
//!     let clock = Clock::simulated("2026-01-01T00:00:00Z".parse()?);
//!     let api = template.fork(clock, Rng::seeded(seed));
//!     // Every update meets a conflict; see `Fault` for what else can go wrong.
//!     api.faults().decide(|met: Met<'_>| (met.verb == "update").then_some(Fault::Conflict));
//!     let client: kube::Client = api.admin_client();
//!     // ... run controllers on `client`; `api.drop_watches()` cuts them off ...
//!     # drop(client);
//!     api.stop().await;
//! }
//! # Ok(())
//! # }
//! ```

mod admission;
mod aggregation;
pub mod api;
pub mod auth;
mod bootstrap;
mod client;
mod commit;
mod compression;
mod controllers;
pub mod crd;
mod decode;
mod discovery;
mod dispatch;
mod encoding;
pub mod faults;
mod index;
mod json;
pub mod kubelet;
mod model;
mod outbound;
pub mod request;
pub mod resources;
pub mod server;
pub mod status;
pub mod store;
mod verbs;

pub use admission::webhooks::InProcessWebhook;
pub use api::{Api, Converter, Parts};
pub use auth::{Caller, tokens::Tokens};
pub use client::InProcess;
pub use controllers::Controller;
pub use quintet_foundation::{clock::Clock, rng::Rng};
pub use server::cluster::{Cluster, Settings, StartError};
pub use store::Store;
