//! Pods as real processes: the embedded API server and the kubelet in this process. These tests need root, as namespaces
//! without a user namespace do.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    clippy::print_stderr,
    reason = "tests stop at the first surprise"
)]

#[path = "pods/bed.rs"]
mod bed;
#[path = "pods/hostile.rs"]
mod hostile;
#[path = "pods/lifecycle.rs"]
mod lifecycle;
#[path = "pods/node.rs"]
mod node;
#[path = "pods/probes.rs"]
mod probes;
#[path = "pods/streams.rs"]
mod streams;
#[path = "pods/volumes.rs"]
mod volumes;

use bed::needs_root;
