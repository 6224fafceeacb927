//! Mechanisms that the controller runtime and the embedded API server share.
//!
//! Each exists once: wall-clock time ([`clock`]), random numbers ([`rng`]), exponential backoff
//! ([`backoff`]), a keyed work queue ([`workqueue`]), an HTTPS accept loop ([`tls`]) and the limit of open files ([`files`]). Nothing
//! here knows Kubernetes.

pub mod backoff;
pub mod clock;
pub mod files;
pub mod rng;
pub mod tls;
pub mod workqueue;
