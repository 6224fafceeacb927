//! The Kubernetes API, embedded.

pub mod store;
