//! Pods of this node: one task per pod observes its processes, plans by [`crate::pod`], and acts.
//!
//! ```text
//!   API ── watch ──> handle <── states ── shim        handle: the pod, and what is known of its processes
//!                     │   ^                           worker: sandbox, volumes, containers, hooks, termination
//!          changes    v   │ results                   publisher: status patches
//!                   worker, publisher, probes
//! ```

mod container;
mod context;
mod dial;
mod handle;
mod hooks;
mod image;
mod pods;
mod probe;
mod publish;
mod references;
mod resize;
mod sandbox;
mod stop;
mod storage;
mod sync;
mod usage;
mod volumes;

pub(crate) use context::Context;
pub(crate) use handle::PodHandle;
pub(crate) use pods::Pods;
pub(crate) use storage::{clear_pods, unmount_below};
