//! Mechanisms that the controller runtime, the embedded API server and the services share.
//!
//! Each exists once: wall-clock time ([`clock`]), random numbers ([`rng`]), exponential backoff
//! ([`backoff`]), a keyed work queue ([`workqueue`]), accept loops for HTTPS ([`tls`]) and HTTP ([`http`]), and the limit of open files ([`files`]). Nothing
//! here knows Kubernetes.

pub mod backoff;
pub mod clock;
pub mod files;
pub mod http;
pub mod rng;
pub mod tls;
pub mod workqueue;
