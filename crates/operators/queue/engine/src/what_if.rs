//! Dry runs: the decisions that would follow from a change, without making it.
//!
//! ```
//! use quintet_queue_engine::testing;
//! use quintet_queue_engine::time::Time;
//! use quintet_queue_engine::what_if::Change;
//! use serde_json::json;
//!
//! let queue = |nominal: &str| json!({"kind": "ClusterQueue", "metadata": {"name": "research"}, "spec": {
//!     "namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO",
//!     "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
//!         {"name": "default", "resources": [{"name": "cpu", "nominalQuota": nominal}]}]}]}});
//! let mut engine = testing::engine(&[
//!     json!({"kind": "ResourceFlavor", "metadata": {"name": "default"}}),
//!     queue("4"),
//!     json!({"kind": "LocalQueue", "metadata": {"name": "main", "namespace": "team"},
//!         "spec": {"clusterQueue": "research"}}),
//!     testing::workload("team", "first", "main", 3),
//!     testing::workload("team", "second", "main", 2),
//! ]);
//!
//! let larger = testing::queue(&mut engine, &queue("5"));
//! let answer = engine.what_if(&[Change::SetQueue(larger)], Time::from_secs(1));
//! assert_eq!(answer.admitted, [testing::id(&engine, "team", "second")]);
//! assert!(answer.preempted.is_empty() && answer.delayed.is_empty());
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::engine::Engine;
use crate::ingest::{self, IngestError, decode};
use crate::livelock::Livelock;
use crate::model::{CohortSpec, QueueSpec, Workload};
use crate::names::{CohortId, WorkloadId};
use crate::state::State;
use crate::tas::NodeInfo;
use crate::time::Time;
use crate::virtual_time::{Transition, VirtualRun};

/// A change to try.
#[derive(Clone, Debug)]
pub enum Change {
    /// Another queue, or other quotas, policies or another cohort for one that exists.
    SetQueue(QueueSpec),
    /// Another cohort, or none.
    SetCohort(CohortId, Option<CohortSpec>),
    /// Another priority for a workload.
    SetPriority(WorkloadId, i32),
    /// A workload ends.
    Finish(WorkloadId),
    /// A workload arrives.
    Submit(Box<Workload>),
    /// Nodes come, change, or (without information) go.
    SetNodes(Vec<(Arc<str>, Option<NodeInfo>)>),
}

/// What would be different.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhatIf {
    /// Workloads that would run with the change and would not without.
    pub admitted: Vec<WorkloadId>,
    /// Workloads that would be preempted with the change and would not without.
    pub preempted: Vec<WorkloadId>,
    /// Workloads that would run without the change and would wait with it.
    pub delayed: Vec<WorkloadId>,
    /// Workloads that would preempt each other forever with the change: which of them run cannot be known.
    pub livelock: Option<Livelock>,
}

impl Engine {
    /// The change that creating or replacing an object would be: a ClusterQueue, Cohort, Workload or Node, as JSON.
    pub fn change_by(&mut self, object: &Value) -> Result<Change, IngestError> {
        let State { names, settings, .. } = &mut self.state;
        Ok(match object.get("kind").and_then(Value::as_str).unwrap_or("") {
            "ClusterQueue" => {
                Change::SetQueue(ingest::cluster_queue(&decode("ClusterQueue", object)?, names)?)
            }
            "Cohort" => {
                let spec = ingest::cohort(&decode("Cohort", object)?, names)?;
                Change::SetCohort(spec.id, Some(spec))
            }
            "Workload" => {
                let workload = self.pod_defaults.workload(&decode("Workload", object)?, settings, names)?;
                Change::Submit(Box::new(workload))
            }
            "Node" => {
                let node = ingest::node(&decode("Node", object)?, names)?;
                Change::SetNodes(vec![(Arc::clone(&node.name), Some(node))])
            }
            other => return Err(IngestError::new("a change by an object of kind", other)),
        })
    }

    /// What the engine would decide, until nothing moves, with the changes and without. Works on copies:
    /// it costs memory in proportion to the state, and changes nothing.
    pub fn what_if(&self, changes: &[Change], now: Time) -> WhatIf {
        let mut different = self.clone();
        for change in changes {
            different.apply(change, now);
        }
        different.request_flush_all(now);
        let mut same = self.clone();
        same.request_flush_all(now);
        let without = outcome(same, now);
        let with = outcome(different, now);
        let only = |a: &BTreeSet<WorkloadId>, b| a.difference(b).copied().collect();
        WhatIf {
            admitted: only(&with.holding, &without.holding),
            preempted: only(&with.lost, &without.lost),
            delayed: only(&without.holding, &with.holding),
            livelock: with.livelock,
        }
    }

    fn apply(&mut self, change: &Change, now: Time) {
        match change {
            Change::SetQueue(spec) => self.set_queue(spec.clone(), now),
            Change::SetCohort(id, spec) => self.set_cohort(*id, spec.clone(), now),
            Change::SetPriority(id, priority) => {
                if let Some(workload) = self.state.workload(*id) {
                    let mut workload = Workload::clone(workload);
                    workload.priority = *priority;
                    workload.spec_fingerprint = workload.spec_fingerprint.wrapping_add(1);
                    self.set_workload(workload, now);
                }
            }
            Change::Finish(id) => {
                if let Some(key) = self.state.workload(*id).map(|workload| workload.key.clone()) {
                    self.remove_workload(&key, now);
                }
            }
            Change::Submit(workload) => {
                self.set_workload(Workload::clone(workload), now);
            }
            Change::SetNodes(nodes) => self.set_nodes(nodes.clone(), now),
        }
    }
}

/// Where it ends.
struct Outcome {
    /// Holders of quota at the end.
    holding: BTreeSet<WorkloadId>,
    /// Workloads that lost it in between.
    lost: BTreeSet<WorkloadId>,
    livelock: Option<Livelock>,
}

fn outcome(engine: Engine, now: Time) -> Outcome {
    let mut run = VirtualRun::new(engine, now, true);
    let mut lost = BTreeSet::new();
    run.run_until_idle(&|_, _| None, &mut |_, _, transition| {
        if let Transition::Preempted(id) = transition {
            lost.insert(id);
        }
    });
    let holding =
        run.engine.state.workloads().map(|(id, _)| id).filter(|id| run.engine.state.held(*id).is_some());
    Outcome { holding: holding.collect(), lost, livelock: run.livelock }
}
