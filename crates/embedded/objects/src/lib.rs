//! What can be done with a Kubernetes object without a server: pure functions over [`serde_json::Value`].
//!
//! This crate owns what objects mean; it does not own storage, HTTP, watches, authorization or admission. Everything
//! here is deterministic, takes the time as an argument, and never panics whatever it is given.
//!
//! ```text
//!  bytes ──protobuf::decode / JSON──►  Value
//!  built-in kinds                        custom resources
//!  types::decode      (shape, unknown)   schema: Structural::prune, apply_defaults
//!  Kind::apply_defaults                  (compiled once per definition)
//!           └──────── patch / apply ────────┘   merge, strategic merge, server-side apply, managed fields
//!  Kind::prepare_*    (status, generation)
//!  Kind::validate                        meta::validate, Structural::validate (schema, lists, CEL, ratcheting)
//!           └──────── table / openapi / protobuf::encode ────────►  responses
//! ```
//!
//! - [`builtin`]: the built-in kinds: names, defaults, validation, generations, field selectors, conversions.
//! - [`types`]: their fields, from one generated table, which also drives [`protobuf`], [`patch`], [`apply`] and
//!   [`openapi`].
//! - [`schema`] and [`cel`]: custom resources: structural schemas and validation rules; match conditions of webhooks.
//! - [`meta`], [`names`], [`field_selector`], [`byte_field`]: what all objects share.
//! - [`table`]: what `kubectl get` shows.
//! - [`error`]: field errors and the Status that carries them.

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "tests read better with `json!` written in place")
)]

pub mod apply;
pub mod builtin;
pub mod byte_field;
pub mod cel;
pub mod error;
pub mod field_selector;
pub mod meta;
pub mod names;
pub mod openapi;
pub mod patch;
pub mod path;
pub mod protobuf;
pub mod schema;
pub mod table;
pub mod types;

pub use error::{ErrorKind, FieldError};
pub use path::Path;
