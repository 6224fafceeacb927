//! The machinery every operator shares.
//!
//! It owns everything between a decision and the API server: shared caches, the work queue, the
//! executor of plans, events, leader election, webhooks, metrics and health. It knows nothing of any
//! operator, and reads no configuration: settings are plain structs.
//!
//! ```text
//!   API server ── watch ──> caches ── changes ──> queue ── turn ──> observe ──> plan
//!       ^                     ^                                                  │
//!       └──────── writes ─────┴───────────── write-through ──── executor <──────┘
//! ```

pub mod admin;
pub mod api;
pub mod backoff;
pub mod cache;
pub mod clock;
pub mod controller;
pub mod error;
pub mod events;
pub mod executor;
pub mod leader;
pub mod limiter;
pub mod metrics;
pub mod object;
pub mod plan;
pub mod queue;
pub mod tasks;
pub mod webhook;

pub use controller::{Controller, Runtime, RuntimeParts, RuntimeSettings};
pub use error::{Class, Error};
pub use object::{ApiKind, ObjectKey};
pub use plan::{Action, Event, Next, Plan, StatusPatch};
