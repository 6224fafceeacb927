//! Kubernetes objects as all controllers see them: kind, key and metadata.

mod head;
mod key;
mod kind;

pub use head::{Form, Head, ResourceVersion, Uid};
pub use key::ObjectKey;
pub use kind::{ApiKind, Scoped};

#[cfg(test)]
mod tests;
