//! Aggregated APIs: groups that this process serves itself, behind APIServices.
//!
//! ```text
//!   client ──> API server ── front proxy ──> server ── authenticate ── authorize ──> handler
//!                │  X-Remote-User, -Group      │ ConfigMap extension-apiserver-authentication
//!                └── client certificate        └ TokenReview, SubjectAccessReview
//! ```
//!
//! As every aggregated API server, it trusts the API server about who a request is from, and decides with it what they
//! may do. Handlers see requests that are allowed.

mod access;
mod authentication;
mod server;
mod status;

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Response, request::Parts};

pub use access::Access;
pub use server::ApiServer;
pub use status::{StatusError, json_response};

/// Handles the requests of a group. They have no body: what is served is read only.
pub type ApiHandler = Arc<dyn Fn(Parts) -> BoxFuture<'static, Response<Vec<u8>>> + Send + Sync>;
