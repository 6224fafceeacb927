//! The Kubernetes API, embedded: what kube-apiserver and etcd do, in one process, without either.
//!
//! It owns objects, their order, their schemas and who may touch them. It does not run anything: pods stay
//! where they are until something else (a scheduler, a node) writes to them like any other client.
//!
//! ```text
//! HTTPS (server) ─┐
//!                 ├─> api: authorize ─> verbs: decode, default, admit, check ─> store: log, watchers
//! kube::Client ───┘                                                               │
//!                       collector: dependents, namespaces  <─────────────────────┘
//! ```
//!
//! Built-in kinds and custom resources take the same path; what a kind is comes from `quintet-objects`.

mod admission;
mod aggregation;
pub mod api;
pub mod auth;
mod chance;
mod client;
mod clock;
mod collector;
mod compression;
pub mod crd;
mod decode;
mod discovery;
pub mod faults;
mod json;
mod model;
mod outbound;
pub mod request;
pub mod resources;
pub mod server;
mod show;
pub mod status;
pub mod store;
mod verbs;

pub use api::{Api, Converter, Parts};
pub use auth::{Caller, tokens::Tokens};
pub use chance::Chance;
pub use client::InProcess;
pub use clock::Clock;
pub use server::cluster::{Cluster, Settings, StartError};
pub use store::Store;
