//! What can be done with a Kubernetes object without a server: schemas, patches, apply, CEL, protobuf, tables.

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "tests read better with `json!` written in place")
)]

pub mod apply;
pub mod builtin;
pub mod cel;
pub mod error;
pub mod field_selector;
pub mod meta;
pub mod names;
pub mod patch;
pub mod path;
pub mod protobuf;
pub mod schema;
pub mod table;
pub mod types;

pub use error::{ErrorKind, FieldError};
pub use path::Path;
