//! Simulated nodes, for tests of everything that makes pods.
//!
//! They register with a cluster by the hundred and take the pods bound to them through the pod lifecycle as a
//! kubelet would report it, but run nothing: containers start, become ready, end, fail, are evicted or removed as
//! annotations of the pod say. A pod without annotations starts at once, is ready and runs until it is deleted.
//!
//! | annotation of the pod | meaning |
//! |---|---|
//! | `node.quintet.dev/start-after` | how long images are pulled and volumes mounted, like `2s` |
//! | `node.quintet.dev/init-for` | how long every init container runs |
//! | `node.quintet.dev/ready-after` | how long containers run before they are ready |
//! | `node.quintet.dev/run-for` | how long containers run before they end; without limit if absent |
//! | `node.quintet.dev/exit-code` | their exit code; 0 if absent |
//! | `node.quintet.dev/stop-for` | how long they take to end when deleted, at most the grace period |
//! | `node.quintet.dev/stuck` | the reason containers never start, like `ImagePullBackOff` |
//! | `node.quintet.dev/evict` | the pod is evicted with this message, now |
//!
//! Annotations may be set and changed while the pod runs. Times are never cut short; a pod's status keeps whole
//! seconds, so they may be up to a second longer.
//!
//! ```text
//!   pods ── one watch ──> cache ── changes, wake-up times ──> lifecycle (pure) ──> status patch, if it changed
//! ```
//!
//! [`lifecycle`] decides, [`Simulation`] does the rest. With [`Settings::schedule`] it also binds pending pods to its
//! nodes, for clusters that have no scheduler.

pub mod lifecycle;
pub mod nodes;
pub mod pod;

mod addresses;
mod options;
mod schedule;
mod simulation;
mod status;

pub use nodes::{Level, NodeShape};
pub use simulation::{Settings, Simulation, StartError};
