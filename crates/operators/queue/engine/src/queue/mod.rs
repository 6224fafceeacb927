//! Pending workloads of ClusterQueues: order, inadmissible workloads and second passes.

mod pending;
mod reason;
mod second_pass;
mod shape_group;
mod views;

pub use pending::{Pending, PendingQueue};
pub use reason::RequeueReason;
pub use second_pass::SecondPass;
