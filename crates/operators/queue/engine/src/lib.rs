//! The scheduling engine of the queue operator: a pure library without I/O, clock or Kubernetes client.
//!
//! The engine holds ClusterQueues, LocalQueues, hierarchical Cohorts, ResourceFlavors, Topologies, nodes
//! and Workloads, and decides about admission, placement and preemption as Kueue does. Because it is pure it can
//! also [explain] why a workload is pending, [forecast] when it starts, tell who [borrows](borrowing), [try out](what_if)
//! changes and be [simulated](simulate) in virtual time, which detects preemption [livelocks](livelock).
//!
//! ```text
//!   API objects ──ingest──▶ model ──▶ Engine ──schedule(now)──▶ decisions ──status──▶ status, events
//!                                       │
//!              queue      pending workloads: order, inadmissible ones, shapes, second passes
//!              cycle      heads → nominate → order → process one by one → assume or requeue
//!              flavors    which flavor of every resource; fits now, after preemption, or not
//!              preemption which workloads to evict: classical, or by fair share
//!              tas        topology aware scheduling: count leaves, sum up, choose domains, descend
//!              state      quota tree, node usage, holders of quota
//! ```
//!
//! # Design
//! - **Interned names.** [`names`] turns every name into a small id at ingestion.
//! - **One live state, no snapshots.** Usage is kept incrementally up the cohort tree. A trial (a preemption, a
//!   fair share) changes usage and rolls it back from a journal; a cycle copies nothing and costs what its heads
//!   cost, not what exists.
//! - **Shape groups.** Pending workloads of the same shape form one group. When one does not fit the whole
//!   group becomes inadmissible, and a flush makes the whole group active, whatever its size.
//! - **Many admissions per cycle.** A cycle takes the head of every queue. Entries are decided one after
//!   another, each after those before it took their quota; trees of cohorts share nothing and are independent.
//! - **Determinism.** Everything that decides is ordered by ids, names or explicit keys; hash maps are never
//!   iterated. The same history makes the same decisions, byte for byte.
//!
//! # Left to the caller
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

pub mod borrowing;
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
pub use engine::{Engine, FlavorReport, QueueReport, ResourceReport};
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
