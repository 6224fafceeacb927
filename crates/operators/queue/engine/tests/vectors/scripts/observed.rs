//! What a script expects in the end.

use std::collections::BTreeMap;

use quintet_queue_engine::internals::flavors::Progress;
use quintet_queue_engine::internals::queue::PendingQueue;
use quintet_queue_engine::model::{ShapeHash, Strategy};
use quintet_queue_engine::names::{ResourceId, WorkloadId};
use serde_json::{Value, json};

use super::{Machine, Step, unordered};
use crate::case::Case;
use crate::compare::differences;

impl Machine {
    /// Expectations on the final state and on what was returned.
    pub(super) fn check(&mut self, case: &Case<'_>) -> Vec<String> {
        let mut found = Vec::new();
        for (key, wanted) in case.want().as_object().into_iter().flatten() {
            match self.observed(key, wanted) {
                None => found.push(format!("{key}: an expectation this runner does not know")),
                Some(Step::Set(got)) => found.extend(unordered(key, &got, wanted)),
                Some(Step::Returns(got)) => found.extend(differences(key, &got, wanted)),
                Some(Step::Unknown) => {}
            }
        }
        found
    }

    /// What the last call of the first of these operations that was called returned.
    fn last(&self, ops: &[&str]) -> Value {
        ops.iter().find_map(|op| self.returned.get(*op)).cloned().unwrap_or_default()
    }

    /// What there is to compare with an expectation; `None` if it is not known, [`Step::Unknown`] if
    /// there is no counterpart.
    fn observed(&self, key: &str, wanted: &Value) -> Option<Step> {
        let empty = PendingQueue::new(Strategy::Unset, false);
        let queue = self.current.and_then(|id| self.world.engine.pending(id)).unwrap_or(&empty);
        let keys =
            |ids: Vec<WorkloadId>| json!(ids.into_iter().map(|id| self.key_of(id)).collect::<Vec<_>>());
        let (active, inadmissible) = queue.counts();
        let shapes = self.distinct_shapes(queue);
        let counts_shapes = self.returned.contains_key("ClusterQueue.PendingSchedulingHashes");
        let value = match key {
            // What calls returned.
            "err" => {
                let got = self.last(&["Manager.PendingWorkloads", "Manager.AddOrUpdateWorkload"]);
                if got.is_array() { got[1].clone() } else { got }
            }
            "status" => self.last(&["Manager.PendingWorkloads"])[0].clone(),
            "updated" => json!(self.last(&["Manager.AddOrUpdateWorkload"]).is_null()),
            "popped" => self.last(&["ClusterQueue.Pop"]),
            "result" => self.last(&["ClusterQueue.backoffWaitingTimeExpired"]),
            "ok" => self.last(&["ClusterQueue.GetNoFitReason"])[1].clone(),
            "reason" => self.last(&["ClusterQueue.GetNoFitReason"])[0].clone(),
            "requeued" => self.last(&["Manager.RequeueWorkload"]),
            "moved" | "movedCount" => {
                self.last(&["ClusterQueue.handleInadmissibleHash", "Manager.processFlushes"])
            }
            "pending" => self.last(&["ClusterQueue.PendingTotal"]),
            "inadmissibleWorkloadsRequeued" => match self.last(&["ClusterQueue.flushInadmissible"]) {
                Value::Null => json!(0),
                moved => moved,
            },
            "sticky" => self.last(&["ClusterQueue.preemptor.stickyMatches"]),
            "updateQueued" if wanted.is_null() => return Some(Step::Unknown),
            "updateQueued" => self.last(&["Manager.QueueSecondPassIfNeeded"]),
            "pendingWorkloadsInfo" | "pendingWorkloads" => self.last(&["Manager.PendingWorkloadsInfo"]),
            "heads" => return Some(Step::Set(self.last(&["Manager.Heads"]))),
            "ready" => return Some(Step::Set(self.last(&["Manager.takeSecondPassReady"]))),
            "workloads" => {
                let heads = self.last(&["Manager.Heads"]);
                let names = heads.as_array().into_iter().flatten().filter_map(Value::as_str);
                let names = names.map(|key| key.rsplit('/').next().unwrap_or(key));
                return Some(Step::Set(json!(names.collect::<Vec<_>>())));
            }
            "queueOrder" => json!(self.popped),
            // Which workloads are active or inadmissible.
            "assigned" => json!(self.assigned()),
            "queueMembers" => return Some(Step::Set(self.members())),
            "active" if wanted.is_object() => return Some(Step::Set(self.dump(true))),
            "inadmissible" if wanted.is_object() => return Some(Step::Set(self.dump(false))),
            "active" | "activeWorkloads" if wanted.is_null() => return Some(Step::Set(self.dump(true))),
            "inadmissible" if wanted.is_null() => return Some(Step::Set(self.dump(false))),
            "activeWorkloads" if wanted.is_array() => return Some(Step::Set(keys(queue.active_ids()))),
            "inadmissible" | "inadmissibleWorkloads" if wanted.is_array() => {
                return Some(Step::Set(keys(queue.inadmissible_ids())));
            }
            "inadmissible" if wanted.is_boolean() => json!(inadmissible > 0),
            "active" if counts_shapes => json!(shapes[0]),
            "inadmissible" if counts_shapes => json!(shapes[1]),
            "union" => json!(shapes[2]),
            "active" | "pendingActive" | "activeWorkloads" => json!(active),
            "inadmissible" | "inadmissibleWorkloads" => json!(inadmissible),
            "inHeap" => json!(!queue.active_ids().is_empty()),
            "inInadmissible" => json!(inadmissible > 0),
            "inInflight" => json!(active > queue.active_ids().len()),
            // Shapes.
            "activeCounts" => self.named_shapes(&queue.shapes().0),
            "inadmissibleCounts" => self.named_shapes(&queue.shapes().1),
            "hash" => json!(self.last_shape.is_some_and(|shape| queue.is_unfit(shape))),
            "cPU" => json!(queue.pending_requests().get(ResourceId::CPU) > 0),
            // How far flavor search came.
            "carried" => json!(self.progress(queue).is_some()),
            "lastAssignment" => self.progress(queue).map_or(Value::Null, |progress| {
                let names = &self.world.engine.state().names;
                let tried = progress.tried.iter().map(|of_set| {
                    let of_set = of_set.iter().map(|(resource, at)| (names.resource_name(*resource), *at));
                    of_set.collect::<BTreeMap<_, _>>()
                });
                json!({
                    "lastTriedFlavorIdx": tried.collect::<Vec<_>>(),
                    "clusterQueueGeneration": progress.generation,
                    "schedulingCycle": progress.cycle,
                })
            }),
            // How often Kueue logs.
            "moveWorkloadsLogCount" => return Some(Step::Unknown),
            _ => return None,
        };
        Some(Step::Returns(value))
    }

    fn named_shapes(&self, counts: &BTreeMap<ShapeHash, usize>) -> Value {
        let name = |shape: &ShapeHash| self.shape_names.get(shape).cloned().unwrap_or_default();
        let counts = counts.iter().map(|(shape, count)| (name(shape), *count));
        json!(counts.filter(|(name, _)| !name.is_empty()).collect::<BTreeMap<_, _>>())
    }

    /// The progress of the only workload that has one.
    fn progress<'q>(&self, queue: &'q PendingQueue) -> Option<&'q Progress> {
        self.ids.values().find_map(|id| queue.get(*id)?.progress.as_deref())
    }

    /// The LocalQueue of every workload that waits in one or was taken from it.
    fn assigned(&self) -> BTreeMap<String, String> {
        let state = self.world.engine.state();
        let mut assigned = BTreeMap::new();
        for (local_queue, feeds) in state.local_queues() {
            let pending = self.world.engine.pending(feeds.queue);
            let flying = state.workloads().filter(|(id, workload)| {
                workload.local_queue == local_queue
                    && pending.is_some_and(|pending| pending.is_in_flight(*id))
            });
            let all = self.world.engine.waiting_in(local_queue).chain(flying.map(|(id, _)| id));
            assigned.extend(
                all.map(|id| (self.key_of(id), state.names.local_queues.name(local_queue).to_owned())),
            );
        }
        assigned
    }

    /// The workloads of every LocalQueue.
    fn members(&self) -> Value {
        let state = self.world.engine.state();
        let mut members = json!({});
        for (local_queue, _) in state.local_queues() {
            let keys: Vec<String> =
                self.world.engine.waiting_in(local_queue).map(|id| self.key_of(id)).collect();
            members[state.names.local_queues.name(local_queue)] = json!(keys);
        }
        members
    }
}
