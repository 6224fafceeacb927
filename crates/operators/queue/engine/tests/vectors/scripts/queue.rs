//! Calls on one queue.

use quintet_api::kueue::reasons::QuotaReservedReason;
use quintet_queue_engine::ingest;
use quintet_queue_engine::internals::labels::Selector;
use quintet_queue_engine::model::{QueueSpec, Strategy};
use quintet_queue_engine::settings::RequeuingTimestamp;
use serde_json::{Value, json};

use super::{Machine, Step};
use crate::objects::{decode, unfit_reason};

impl Machine {
    pub(super) fn queue_step(&mut self, op: &str, step: &Value) -> Step {
        let args = &step["args"];
        let now = self.world.now;
        let settings = self.world.engine.state().settings.clone();
        let done = || Step::Returns(Value::Null);
        match op {
            "new" | "newBare" => {
                self.use_afs(args);
                if args["ordering"]["podsReadyRequeuingTimestamp"] == "Creation" {
                    self.world.engine.state_mut().settings.requeuing_timestamp = RequeuingTimestamp::Creation;
                }
                let object = &args["clusterQueue"];
                let name = object["metadata"]["name"].as_str().unwrap_or("").to_owned();
                let id = self.world.queue(&name);
                let mut spec = QueueSpec::new(id);
                (spec.strategy, spec.namespaces) = (Strategy::Unset, None);
                if !object.is_null() {
                    spec = ingest::cluster_queue(&decode(object), &mut self.world.engine.state_mut().names)
                        .expect("queue");
                    spec.id = id;
                }
                self.world.engine.set_queue(spec, now);
                self.queues.insert(name, id);
                self.current = Some(id);
                done()
            }
            "Update" => {
                let id = self.queue_id(&json!({}));
                let object = &args["clusterQueue"];
                let mut spec =
                    ingest::cluster_queue(&decode(object), &mut self.world.engine.state_mut().names)
                        .expect("queue");
                spec.id = id;
                self.queues.insert(object["metadata"]["name"].as_str().unwrap_or("").to_owned(), id);
                self.world.engine.set_queue(spec, now);
                done()
            }
            "setQueueingStrategy" => {
                let strategy = match args["strategy"].as_str().unwrap_or("") {
                    "StrictFIFO" => Strategy::StrictFifo,
                    "BestEffortFIFO" => Strategy::BestEffortFifo,
                    _ => Strategy::Unset,
                };
                self.pending(step).strategy = strategy;
                done()
            }
            "setNamespaceSelector" => {
                let id = self.queue_id(step);
                let mut spec = self.world.engine.state().queue(id).expect("queue").spec.clone();
                spec.strategy = self.pending(step).strategy;
                spec.namespaces = Some(Selector::default());
                self.world.engine.set_queue(spec, now);
                done()
            }
            "PushOrUpdate" => {
                let (id, pending) = self.info(&args["info"]);
                self.pending(step).push_or_update(id, pending, &settings, now);
                done()
            }
            "Pop" => {
                let id = self.queue_id(step);
                let engine = &self.world.engine;
                let mut pending = engine.pending(id).expect("queue").clone();
                let popped = pending.pop(&|local_queue| engine.local_queue_usage(local_queue));
                *self.world.engine.pending_mut(id).expect("queue") = pending;
                Step::Returns(popped.map_or(Value::Null, |(id, _)| json!(self.key_of(id))))
            }
            "Delete" => {
                let id = self.id(args["workload"].as_str().unwrap_or(""));
                self.pending(step).remove(id);
                done()
            }
            "Snapshot" => {
                let id = self.queue_id(step);
                self.ordered(id)
            }
            "Info" => {
                let key = args["key"].as_str().unwrap_or("").to_owned();
                let id = self.id(&key);
                let known = self.pending(step).is_active(id);
                Step::Returns(if known { json!(key) } else { Value::Null })
            }
            "Dump" | "DumpInadmissible" => {
                let pending = self.pending(step);
                let ids = if op == "Dump" { pending.active_ids() } else { pending.inadmissible_ids() };
                let keys: Vec<String> = ids.into_iter().map(|id| self.key_of(id)).collect();
                Step::Set(json!([keys, !keys.is_empty()]))
            }
            "Pending" => {
                let (active, inadmissible) = self.pending(step).counts();
                Step::Returns(json!([active, inadmissible]))
            }
            "PendingTotal" => {
                let (active, inadmissible) = self.pending(step).counts();
                Step::Returns(json!(active + inadmissible))
            }
            "PendingInLocalQueue" => {
                let local_queue = self.local_queue(args["localQueue"].as_str().unwrap_or(""));
                let (active, inadmissible) = self.pending(step).counts_of(local_queue);
                Step::Returns(json!([active, inadmissible]))
            }
            "PendingSchedulingHashes" => {
                let id = self.queue_id(step);
                let queue = self.world.engine.pending(id).expect("queue exists");
                let [active, inadmissible, _] = self.distinct_shapes(queue);
                Step::Returns(json!([active, inadmissible]))
            }
            "pendingResources" => {
                let requests = self.pending(step).pending_requests();
                let names = &mut self.world.engine.state_mut().names;
                let mut got = json!({});
                for (name, _) in step["ret"].as_object().into_iter().flatten() {
                    got[name] = requests.get(names.resource(name)).into();
                }
                Step::Returns(got)
            }
            "IsPreemptor" => {
                let (id, pending) = self.info(&args["info"]);
                let generation = pending.workload.generation;
                Step::Returns(json!(self.pending(step).is_preemptor(id, generation)))
            }
            "preemptor.stickyMatches" => {
                let id = self.id(args["workload"].as_str().unwrap_or(""));
                Step::Returns(json!(self.pending(step).is_sticky(id)))
            }
            "RequeueIfNotPresent" | "requeueIfNotPresent" => {
                let (id, pending) = self.info(&args["info"]);
                let reason = Self::reason(&args["reason"]);
                let unfit = unfit_reason(&args["quotaReservedReason"]);
                let context = (&settings, now);
                let queue = self.pending(step);
                let added = if op == "RequeueIfNotPresent" {
                    queue.requeue(id, pending, reason, unfit, context)
                } else {
                    queue.requeue_with(id, pending, args["immediate"] == true, reason, unfit, context)
                };
                Step::Returns(json!(added))
            }
            "flushInadmissible" => {
                let id = self.queue_id(step);
                Step::Returns(json!(self.world.engine.flush(id, now)))
            }
            "handleInadmissibleHash" => {
                let shape = self.shape(&args["hash"]).expect("known hash");
                Step::Returns(json!(
                    self.pending(step).set_shape_inadmissible(shape, unfit_reason(&args["reason"]))
                ))
            }
            "recordInadmissibleHash" => {
                let shape = self.shape(&args["hash"]).expect("known hash");
                self.pending(step).mark_unfit(shape, unfit_reason(&args["reason"]));
                done()
            }
            "GetNoFitReason" => {
                let id = self.id(args["workload"].as_str().unwrap_or(""));
                let reason = self.pending(step).unfit_reason(id).map(QuotaReservedReason::as_str);
                Step::Returns(json!([reason.unwrap_or_default(), reason.is_some()]))
            }
            "insertInadmissible" => {
                let (id, pending) = self.info(&args["info"]);
                self.pending(step).insert_inadmissible(id, pending, &settings);
                done()
            }
            "dropInadmissible" => {
                let named = args["key"].as_str().or_else(|| args["workload"].as_str());
                let id = self.id(named.expect("a workload to drop"));
                self.pending(step).remove(id);
                done()
            }
            "advancePopCycle" => {
                self.pending(step).advance_pop_cycle();
                done()
            }
            "setLastAssignment" => {
                let id = self.id(args["workload"].as_str().unwrap_or(""));
                let shape = self.pending(step).get(id).and_then(|pending| pending.shape);
                let progress = crate::flavors::progress(&mut self.world, &args["lastAssignment"], shape);
                self.pending(step).set_progress(id, progress);
                done()
            }
            "AddFromLocalQueue" => {
                let mut added = false;
                for (_, info) in args["localQueue"]["items"].as_object().into_iter().flatten() {
                    let (id, pending) = self.info(info);
                    added |= self.pending(step).push_if_absent(id, pending, &settings);
                }
                Step::Returns(if step["ret"].is_null() && !added { Value::Null } else { json!(added) })
            }
            "DeleteFromLocalQueue" => {
                for (key, _) in args["localQueue"]["items"].as_object().into_iter().flatten() {
                    let id = self.id(key);
                    self.pending(step).remove(id);
                }
                done()
            }
            "backoffWaitingTimeExpired" => {
                let (_, pending) = self.info(&args["info"]);
                Step::Returns(json!(pending.workload.backoff_expired(now)))
            }
            _ => Step::Unknown,
        }
    }
}
