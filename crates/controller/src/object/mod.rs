//! The words the machinery uses for Kubernetes objects: their kind, their key, their head.

mod head;
mod key;
mod kind;

pub use head::{Form, Head, ResourceVersion, Uid};
pub use key::ObjectKey;
pub use kind::{ApiKind, Scoped};

#[cfg(test)]
mod tests;
