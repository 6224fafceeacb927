//! What can be done with a Kubernetes object without a server: schemas, patches, apply, CEL, protobuf, tables.

pub mod builtin;
pub mod error;
pub mod field_selector;
pub mod path;
pub mod types;

pub use error::{ErrorKind, FieldError};
pub use path::Path;
