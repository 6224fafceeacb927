//! Scheduling decisions of the queue as a pure library: no I/O, no clock, no Kubernetes client.
//!
//! The engine holds ClusterQueues, LocalQueues, hierarchical Cohorts, ResourceFlavors, Topologies, nodes
//! and Workloads, and decides who gets which quota, where, and at whose expense, as Kueue does. Because
//! it is pure it can also be asked [why not yet](explain), [what if](what_if) and [when](forecast), and
//! be run [in virtual time](simulate), which tells of policies that [never come to rest](livelock).
//!
//! ```text
//!   API objects ──intake──▶ model ──▶ Engine ──schedule(now)──▶ decisions ──outlet──▶ status, events
//!                                       │
//!              queue   who is next: order, parking, shapes, second passes
//!              cycle   heads → evaluate → order → decide one by one
//!              flavors which flavor of every resource; fits now, after preemption, or not
//!              preemption whom to take: classical, or by fair share
//!              tas     where the pods go: count leaves, sum up, choose domains, descend
//!              state   the live truth: quota tree, node usage, who holds what
//! ```
//!
//! # What it relies on
//! - **Names are integers.** [`names`] turns every name into a small id at the border.
//! - **One live state, no snapshots.** [`quota`] keeps usage incrementally up the cohort tree. Trying
//!   something out (a preemption, a fair share) changes usage and rolls it back from a journal; a cycle
//!   copies nothing and costs what its heads cost, not what exists.
//! - **Shapes share a fate.** Pending workloads of the same shape wait in one lane. When one does not fit
//!   the lane is parked as a whole, and an event wakes it as a whole, whatever its length ([`queue`]).
//! - **Many admissions per cycle.** A cycle takes the head of every queue. Entries are decided one after
//!   another and each sees what those before it took, so a cycle decides as if they had come alone in
//!   that order; and trees of cohorts share nothing, so they decide as if each was alone.
//! - **Determinism.** Everything that decides is ordered by ids, names or explicit keys; hash maps are
//!   only looked up. The same history makes the same decisions, byte for byte.
//!
//! # What it leaves to its caller
//! Reading and writing the API, the time, and retries. A write that fails is reported back with
//! [`Engine::admission_failed`], [`Engine::preemptions_failed`] or [`Engine::eviction_failed`]. A victim
//! keeps its quota until its update arrives without an admission.
//!
//! # Example
//! ```
//! use quintet_queue_engine::testing;
//! use quintet_queue_engine::time::Time;
//! use serde_json::json;
//!
//! let mut engine = testing::engine(&[
//!     json!({"kind": "ResourceFlavor", "metadata": {"name": "default"}}),
//!     json!({"kind": "ClusterQueue", "metadata": {"name": "research"}, "spec": {
//!         "namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO",
//!         "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
//!             {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]}}),
//!     json!({"kind": "LocalQueue", "metadata": {"name": "main", "namespace": "team"},
//!         "spec": {"clusterQueue": "research"}}),
//!     testing::workload("team", "job", "main", 3),
//! ]);
//! let report = engine.schedule(Time::from_secs(1));
//! assert_eq!(report.admitted(), 1);
//! ```

mod afs;
mod amount;
mod cycle;
mod engine;
mod fair;
mod flavors;
mod float;
mod labels;
mod preemption;
mod queue;
mod quota;
mod requests;
mod state;
mod tas;
mod virtual_time;

pub mod explain;
pub mod forecast;
pub mod ingest;
pub mod livelock;
pub mod model;
pub mod names;
pub mod settings;
pub mod simulate;
pub mod status;
pub mod testing;
pub mod time;
pub mod what_if;

pub use amount::Amount;
pub use cycle::{Admitted, CycleReport, Decision, Outcome, Unadmitted};
pub use engine::Engine;
pub use flavors::Mode;
pub use labels::Labels;
pub use preemption::Target;
pub use queue::{PendingQueue, RequeueReason};
pub use requests::Requests;
pub use state::{CheckInfo, InactiveReason};
pub use tas::NodeInfo;

/// The mechanisms behind the engine, for this crate's tests and benchmarks. Not part of the API.
#[doc(hidden)]
pub mod internals {
    macro_rules! modules {
        ($($module:ident),+ $(,)?) => {
            $(#[allow(missing_docs, reason = "as in the module itself")]
            pub mod $module {
                pub use crate::$module::*;
            })+
        };
    }
    modules!(afs, amount, cycle, engine, fair, flavors, float, labels, preemption, queue, quota);
    modules!(requests, state, tas);
}
