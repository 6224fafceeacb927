//! The history of Ray clusters: a collector beside every Ray node stores what happens, and a server answers with it when
//! the cluster is gone.
//!
//! Both speak the formats of KubeRay's history server: the same storage layout, the same HTTP API.
//!
//! ```text
//! server     the history server: sessions, loads
//! api        its routes and answers
//! collector  the collector: events, logs and endpoints into the storage
//! load       events streamed from the storage into the model
//! model      tasks, actors, jobs, nodes: what events say about them
//! client     what commands ask a history server
//! store      object storage
//! layout     where things are in the storage
//! json       reading and writing JSON without building values of it
//! ```

mod api;
mod cache;
mod client;
mod collector;
mod json;
mod kubernetes;
mod layout;
mod load;
mod model;
mod server;
mod store;

pub use cache::CacheLimits;
pub use client::{EnteredSession, LogFile};
pub use collector::{Collector, CollectorSettings, Role, parse_duration};
pub use server::{History, HistoryOptions};
pub use store::{StorageConfig, Store, StoreError};
