//! Pending workloads: what waits in each ClusterQueue, in which order, and what wakes it.

mod pending;
mod second_pass;

pub use pending::{Pending, PendingQueue, RequeueReason};
pub use second_pass::SecondPass;
