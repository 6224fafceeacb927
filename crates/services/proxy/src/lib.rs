//! The Ray API proxy: a part of the Kubernetes API over plain HTTP.
//!
//! It does what KubeRay's API server V2 does. Requests for Ray resources, their events and the Services of Ray
//! clusters are forwarded to the Kubernetes API; compute templates are filled into Ray resources on the way.
//!
//! ```text
//! server    connections, and what a request goes through
//! route     what a request is for; path: clean and decoded paths
//! headers   what is forwarded of a request, and with whose credentials
//! cors      which pages of other origins may read responses
//! template  compute templates: read, decoded and applied
//! query     the field selector of events
//! forward   attempts, deadline, streams, upgraded connections
//! backend   clients of the Kubernetes API
//! ```
//!
//! `server`, `forward` and `backend` do the I/O. Everything else is pure.

mod backend;
mod body;
mod cors;
mod forward;
mod headers;
mod lookup;
mod metrics;
mod path;
mod query;
mod response;
mod route;
mod server;
mod template;

pub use backend::BackendError;
pub use server::{Server, Settings};
