//! Scripts: calls in order, each with what it returns.

mod observed;
mod queue;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quintet_queue_engine::internals::afs;
use quintet_queue_engine::internals::queue::{Pending, PendingQueue, RequeueReason};
use quintet_queue_engine::model::{ShapeHash, WorkloadKey};
use quintet_queue_engine::names::{LocalQueueId, Names, QueueId, WorkloadId};
use quintet_queue_engine::settings::RequeuingTimestamp;
use quintet_queue_engine::time::Span;
use serde_json::{Value, json};

use crate::case::{Case, Verdict};
use crate::compare::{differences, set_differences};
use crate::objects::{time, time_text, unfit_reason};
use crate::util::{consumed, consumed_json};
use crate::world::{World, configuration, key};

pub fn run(case: &Case<'_>) -> Verdict {
    let steps: Vec<&Value> = case.calls()["steps"].as_array().into_iter().flatten().collect();
    let is =
        |prefix: &str| steps.iter().all(|step| step["op"].as_str().is_some_and(|op| op.starts_with(prefix)));
    if is("Calculate") {
        return calculations(&steps);
    }
    if crate::cohorts::TABLES.contains(&case.table_name()) {
        return crate::cohorts::script(case, &steps);
    }
    match case.table_name().split('/').next() {
        Some("queue") => queue_script(case, &steps),
        Some("cache") => cache_script(case, &steps),
        _ => Verdict::Unsupported,
    }
}

fn calculations(steps: &[&Value]) -> Verdict {
    let mut names = Names::default();
    let mut found = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let args = &step["args"];
        let got = if step["op"] == "CalculateDecayedConsumed" {
            let (old, new) =
                (consumed(&args["oldUsage"], &mut names), consumed(&args["newUsage"], &mut names));
            let number = |key: &str| args[key].as_f64().unwrap_or(0.0);
            afs::decayed(&old, &new, number("elapsed"), number("halfLifeTime"))
        } else {
            let config = json!({ "admissionFairSharing": args["admissionFairSharing"] });
            let settings = configuration(&config, &mut names);
            let requests = consumed(&args["totalRequests"], &mut names);
            afs::entry_penalty(&requests, &settings.admission_fair_sharing.expect("afs"))
        };
        found.extend(differences(&format!("step {index}"), &consumed_json(&got, &names), &step["ret"]));
    }
    Verdict::from_differences(found)
}

/// The wait for ready pods, call by call.
fn cache_script(case: &Case<'_>, steps: &[&Value]) -> Verdict {
    let ends = "Cache.PodsReadyForAllAdmittedWorkloads";
    if steps.last().is_none_or(|step| step["op"] != ends) {
        return Verdict::Unsupported;
    }
    let mut world = World::without_workloads(case);
    let mut found = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let args = &step["args"];
        let op = step["op"].as_str().unwrap_or("");
        let got = match op {
            "Cache.new" => Value::Null,
            "Cache.AddClusterQueue" => {
                world.add(&args["clusterQueue"]);
                Value::Null
            }
            "Cache.AddOrUpdateWorkload" => {
                let id = world.add_workload(&args["workload"]);
                json!(world.engine.state().held(id).is_some())
            }
            "Cache.DeleteWorkload" | "Cache.ForgetWorkload" => {
                let known = world.api.iter().find(|(own, object)| {
                    args["workload"] == own.as_str() || key(&args["workload"]) == key(object)
                });
                let Some(object) = known.map(|(_, object)| object.clone()) else {
                    return Verdict::Unsupported;
                };
                let workload = world.read_workload(&object);
                world.engine.remove_workload(&workload.key, world.now);
                step["ret"].clone()
            }
            _ if op == ends => json!(world.engine.state().all_pods_ready()),
            _ => return Verdict::Unsupported,
        };
        found.extend(differences(&format!("step {index} {op}"), &got, &step["ret"]));
    }
    found.extend(differences("ready", &json!(world.engine.state().all_pods_ready()), &case.want()["ready"]));
    Verdict::from_differences(found)
}

/// Queues driven call by call.
struct Machine {
    world: World,
    /// Queues by name, and the one steps without a name mean.
    current: Option<QueueId>,
    queues: BTreeMap<String, QueueId>,
    active: Option<Vec<String>>,
    ids: BTreeMap<String, WorkloadId>,
    local_items: BTreeMap<String, Value>,
    /// What the last call of every operation returned.
    returned: BTreeMap<String, Value>,
    /// Everything popped, per queue.
    popped: BTreeMap<String, Vec<Value>>,
    /// The names of forced shapes.
    shape_names: BTreeMap<ShapeHash, String>,
    last_shape: Option<ShapeHash>,
}

enum Step {
    Returns(Value),
    /// A list in no order.
    Set(Value),
    Unknown,
}

fn queue_script(case: &Case<'_>, steps: &[&Value]) -> Verdict {
    let names = case.config["activeClusterQueues"].as_array();
    let active = names.map(|names| names.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect());
    let mut machine = Machine {
        world: World::without_workloads(case),
        current: None,
        queues: BTreeMap::new(),
        active,
        ids: BTreeMap::new(),
        local_items: BTreeMap::new(),
        returned: BTreeMap::new(),
        popped: BTreeMap::new(),
        shape_names: BTreeMap::new(),
        last_shape: None,
    };
    // Most scripts begin empty; where a table shares its queues, they are objects of the case.
    for object in case.objects("queues") {
        machine.world.add(object);
    }
    for object in case.objects("workloads") {
        machine.add_workload(object);
    }
    let mut found = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let op = step["op"].as_str().unwrap_or("");
        let what = format!("step {index} {op}");
        let got = match machine.step(step) {
            Step::Unknown => return Verdict::Unsupported,
            Step::Returns(got) => {
                found.extend(differences(&what, &got, &step["ret"]));
                got
            }
            Step::Set(got) => {
                found.extend(unordered(&what, &got, &step["ret"]));
                got
            }
        };
        if op == "ClusterQueue.Pop" {
            let queue = machine.popped.entry(step["on"].as_str().unwrap_or("").to_owned()).or_default();
            queue.extend((!got.is_null()).then(|| got.clone()));
        }
        machine.returned.insert(op.to_owned(), got);
    }
    found.extend(machine.check(case));
    Verdict::from_differences(found)
}

/// Lists in no order, also inside maps and pairs.
fn unordered(what: &str, got: &Value, want: &Value) -> Vec<String> {
    match (got, want) {
        (Value::Object(a), _) if !a.is_empty() || want.is_object() => {
            let mut keys: Vec<&String> =
                a.keys().chain(want.as_object().into_iter().flat_map(|b| b.keys())).collect();
            keys.sort();
            keys.dedup();
            keys.into_iter()
                .flat_map(|key| set_differences(&format!("{what}.{key}"), &got[key], &want[key]))
                .collect()
        }
        (Value::Array(a), Value::Array(b))
            if a.first().is_some_and(Value::is_array) || b.first().is_some_and(Value::is_array) =>
        {
            let mut found = set_differences(what, &got[0], &want[0]);
            found.extend(differences(what, &got[1], &want[1]));
            found
        }
        _ => set_differences(what, got, want),
    }
}

impl Machine {
    /// The queue a step names, which may not exist; the current one if it names none.
    fn queue_id(&mut self, step: &Value) -> QueueId {
        let named = step["on"].as_str().or_else(|| step["args"]["clusterQueue"].as_str());
        match named {
            Some(name) => self.queues.get(name).copied().unwrap_or_else(|| self.world.queue(name)),
            None => self.current.unwrap_or_else(|| self.world.queue("")),
        }
    }

    fn pending(&mut self, step: &Value) -> &mut PendingQueue {
        let id = self.queue_id(step);
        self.world.engine.pending_mut(id).expect("queue exists")
    }

    fn id(&mut self, key: &str) -> WorkloadId {
        if let Some(id) = self.ids.get(key) {
            return *id;
        }
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let object = json!({ "metadata": { "namespace": namespace, "name": name } });
        let workload = self.world.read_workload(&object);
        let id = self.world.engine.state_mut().set_workload(workload).0;
        self.ids.insert(key.to_owned(), id);
        id
    }

    fn key_of(&self, id: WorkloadId) -> String {
        self.world.key_of(id)
    }

    fn shape(&mut self, value: &Value) -> Option<ShapeHash> {
        let text = value.as_str().unwrap_or("");
        if text == "unknown" {
            return None;
        }
        let hash = |hash: u128, byte| hash.wrapping_mul(257).wrapping_add(u128::from(byte));
        let shape = ShapeHash::new(text.bytes().fold(1, hash));
        self.shape_names.insert(shape, text.to_owned());
        Some(shape)
    }

    /// Whether a shape counts; an empty text is none.
    fn is_counted(&self, shape: ShapeHash) -> bool {
        self.shape_names.get(&shape).is_none_or(|name| !name.is_empty())
    }

    /// Distinct shapes that are active or in flight, inadmissible, and any of these.
    fn distinct_shapes(&self, queue: &PendingQueue) -> [usize; 3] {
        let (active, inadmissible) = queue.shapes();
        let counted = |shape: &ShapeHash| self.is_counted(*shape);
        let active: BTreeSet<ShapeHash> =
            active.into_keys().chain(queue.shape_in_flight()).filter(counted).collect();
        let inadmissible: BTreeSet<ShapeHash> = inadmissible.into_keys().filter(counted).collect();
        [active.len(), inadmissible.len(), active.union(&inadmissible).count()]
    }

    /// A workload info as it waits in a queue.
    fn info(&mut self, info: &Value) -> (WorkloadId, Pending) {
        let object = if info["workload"].is_null() { info } else { &info["workload"] };
        let id = self.id(&key(object));
        let workload = self.world.read_workload(object);
        self.world.engine.state_mut().set_workload(workload);
        let workload = Arc::clone(self.world.engine.state().workload(id).expect("workload"));
        let mut pending = Pending::new(workload);
        if !info["schedulingHash"].is_null() {
            pending.shape = self.shape(&info["schedulingHash"]);
        }
        self.last_shape = pending.shape;
        pending.evaluated_generation = info["lastEvaluatedGeneration"].as_i64().unwrap_or(0);
        if !info["lastAssignment"].is_null() {
            let progress = crate::flavors::progress(&mut self.world, &info["lastAssignment"], pending.shape);
            pending.progress = Some(Box::new(progress));
        }
        (id, pending)
    }

    fn local_queue(&mut self, name: &str) -> LocalQueueId {
        self.world.engine.state_mut().names.local_queues.intern(name)
    }

    fn store(&mut self, object: &Value) {
        let kind = object["kind"].as_str().unwrap_or("");
        match kind {
            "Workload" => {
                self.world.api.insert(key(object), object.clone());
            }
            "LocalQueue" => {
                self.local_items.insert(key(object), object.clone());
            }
            "Namespace" => self.world.add(object),
            _ => {}
        }
    }

    /// A new LocalQueue finds its workloads in the API.
    fn load_workloads(&mut self, local_queue: LocalQueueId) {
        for object in self.world.api.values().cloned().collect::<Vec<_>>() {
            let workload = self.world.read_workload(&object);
            if workload.local_queue == local_queue {
                let id = self.id(&key(&object));
                let known = self.world.engine.set_workload(workload, self.world.now);
                assert_eq!(id, known, "one id per workload");
            }
        }
    }

    fn reason(value: &Value) -> RequeueReason {
        RequeueReason::parse(value.as_str().unwrap_or(""))
    }

    fn step(&mut self, step: &Value) -> Step {
        let op = step["op"].as_str().unwrap_or("");
        let args = &step["args"];
        let done = || Step::Returns(Value::Null);
        if let Some(op) = op.strip_prefix("ClusterQueue.") {
            return self.queue_step(op, step);
        }
        if let Some(op) = op.strip_prefix("AfsUsageLedger.") {
            return self.ledger_step(op, args);
        }
        let now = self.world.now;
        match op {
            "client.init" => {
                for object in args["objects"].as_array().into_iter().flatten() {
                    self.store(object);
                }
                done()
            }
            "client.Create" | "client.Update" => {
                self.store(&args["object"]);
                done()
            }
            "clock.step" => {
                let text = args["duration"].as_str().unwrap_or("0s");
                let step = duration(text).unwrap_or_else(|| panic!("not a duration: {text:?}"));
                self.world.now = now + step;
                done()
            }
            "Manager.new" => {
                if args["podsReadyRequeuingTimestamp"] == "Creation" {
                    self.world.engine.state_mut().settings.requeuing_timestamp = RequeuingTimestamp::Creation;
                }
                self.use_afs(args);
                done()
            }
            "Manager.AddClusterQueue" | "Manager.UpdateClusterQueue" => {
                let object = &args["clusterQueue"];
                self.world.add(object);
                let name = object["metadata"]["name"].as_str().unwrap_or("").to_owned();
                let id = self.world.queue(&name);
                self.queues.insert(name, id);
                self.current.get_or_insert(id);
                if args["specUpdated"] == true {
                    self.world.engine.request_flush(id, now);
                }
                done()
            }
            "Manager.DeleteClusterQueue" => {
                let name =
                    args["name"].as_str().or_else(|| args["clusterQueue"]["metadata"]["name"].as_str());
                let id = self.world.queue(name.unwrap_or(""));
                self.world.engine.remove_queue(id);
                done()
            }
            "Manager.AddLocalQueue" | "Manager.UpdateLocalQueue" => {
                let object = &args["localQueue"];
                let name = key(object);
                let id = self.local_queue(&name);
                let exists = self.world.engine.state().local_queue(id).is_some();
                if op == "Manager.UpdateLocalQueue" && !exists {
                    return Step::Returns(json!({ "error": "localQueue doesn't exist or inactive" }));
                }
                self.world.add(object);
                if op == "Manager.AddLocalQueue" {
                    self.load_workloads(id);
                }
                done()
            }
            "Manager.DeleteLocalQueue" => {
                let id = self.local_queue(&key(&args["localQueue"]));
                self.world.engine.set_local_queue(id, None);
                done()
            }
            "Manager.AddOrUpdateCohort" => {
                self.world.add(&args["cohort"]);
                done()
            }
            "Manager.AddOrUpdateWorkload" => self.add_workload(&args["workload"]),
            "Manager.PendingWorkloadsInfo" => {
                let id = self.queue_id(step);
                self.ordered(id)
            }
            "Manager.Pending" => {
                let name = args["clusterQueue"]["metadata"]["name"].as_str().unwrap_or("");
                let id = self.world.queue(name);
                match self.world.engine.pending(id) {
                    None => Step::Returns(json!([0, { "error": "clusterQueue doesn't exist" }])),
                    Some(pending) => {
                        let (active, inadmissible) = pending.counts();
                        Step::Returns(json!([active + inadmissible, null]))
                    }
                }
            }
            "Manager.QueueForWorkloadExists" => {
                let workload = self.world.read_workload(&args["workload"]);
                Step::Returns(json!(self.world.engine.state().local_queue(workload.local_queue).is_some()))
            }
            "Manager.DeleteWorkload" | "Manager.DeleteAndForgetWorkload" => {
                let id = self.id(args["workload"].as_str().unwrap_or(""));
                let key = self.world.engine.state().workload(id).map(|workload| workload.key.clone());
                self.world.engine.remove_workload(&key.expect("workload"), now);
                self.ids.remove(args["workload"].as_str().unwrap_or(""));
                done()
            }
            "Manager.RequeueWorkload" => self.requeue(args),
            "Manager.requestFlush" => {
                for name in args["clusterQueues"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                    let id = self.world.queue(name);
                    self.world.engine.request_flush(id, now);
                }
                done()
            }
            "Manager.processFlushes" => Step::Returns(json!(self.world.engine.process_flushes(now, false))),
            "Manager.Heads" => {
                let active = self.active.clone();
                let heads = self.world.engine.take_heads(now, &|state, queue| {
                    active
                        .as_ref()
                        .is_none_or(|names| names.iter().any(|name| name == state.names.queue_name(queue)))
                });
                Step::Set(json!(heads.iter().map(|head| self.key_of(head.id)).collect::<Vec<_>>()))
            }
            "Manager.Dump" | "Manager.DumpInadmissible" => Step::Set(self.dump(op == "Manager.Dump")),
            "Manager.PendingWorkloads" => {
                let id = self.local_queue(&key(&args["localQueue"]));
                if self.world.engine.state().local_queue(id).is_none() {
                    return Step::Returns(json!([0, { "error": "localQueue doesn't exist or inactive" }]));
                }
                let count = self.world.engine.waiting_in(id).count();
                Step::Returns(json!([count, null]))
            }
            "Manager.QueueSecondPassIfNeeded" => {
                let object = &args["workload"];
                let id = self.id(&key(object));
                let workload = self.world.read_workload(object);
                self.world.engine.state_mut().set_workload(workload);
                let iteration = u32::try_from(args["iteration"].as_u64().unwrap_or(0)).expect("iteration");
                let queued = self.world.engine.queue_second_pass(id, iteration, now);
                Step::Returns(if step["ret"].is_null() && !queued { Value::Null } else { json!(queued) })
            }
            "Manager.takeSecondPassReady" => {
                let ids = self.world.engine.take_second_passes(now);
                Step::Set(json!(ids.into_iter().map(|id| self.key_of(id)).collect::<Vec<_>>()))
            }
            "LocalQueue.new" => done(),
            "LocalQueue.AddOrUpdate" => {
                self.info(&args["info"]);
                done()
            }
            _ => Step::Unknown,
        }
    }

    fn use_afs(&mut self, args: &Value) {
        if !args["admissionFairSharing"].is_null() {
            let config = json!({ "admissionFairSharing": args["admissionFairSharing"] });
            let settings = configuration(&config, &mut self.world.engine.state_mut().names);
            self.world.engine.state_mut().settings.admission_fair_sharing = settings.admission_fair_sharing;
        }
    }

    fn add_workload(&mut self, object: &Value) -> Step {
        let workload = self.world.read_workload(object);
        let state = self.world.engine.state();
        let local_queue = state.local_queue(workload.local_queue).cloned();
        let error = if workload.is_admissible(&state.settings.gates) {
            match &local_queue {
                None => Some("localQueue doesn't exist or inactive"),
                Some(feeds) if state.queue(feeds.queue).is_none() => Some("clusterQueue doesn't exist"),
                Some(_) => None,
            }
        } else {
            Some("workload is inadmissible and can't be added to a LocalQueue")
        };
        let id = self.id(&key(object));
        let known = self.world.engine.set_workload(workload, self.world.now);
        assert_eq!(id, known, "one id per workload");
        Step::Returns(error.map_or(Value::Null, |error| json!({ "error": error })))
    }

    fn requeue(&mut self, args: &Value) -> Step {
        let info = &args["info"];
        let object = if info["workload"].is_null() { info } else { &info["workload"] };
        let Some(newest) = self.world.api.get(&key(object)).cloned() else {
            return Step::Returns(json!(false));
        };
        let mut with_newest = info.clone();
        with_newest["workload"] = newest;
        let (id, pending) = self.info(&with_newest);
        let state = self.world.engine.state();
        let admissible = pending.workload.is_admissible(&state.settings.gates);
        let feeds = state.local_queue(pending.workload.local_queue).map(|local_queue| local_queue.queue);
        let settings = state.settings.clone();
        let reason = Self::reason(&args["reason"]);
        let unfit = unfit_reason(&args["quotaReservedReason"]);
        let now = self.world.now;
        let queue = feeds.filter(|_| admissible).and_then(|queue| self.world.engine.pending_mut(queue));
        let added = queue.is_some_and(|queue| queue.requeue(id, pending, reason, unfit, (&settings, now)));
        Step::Returns(json!(added))
    }

    /// All workloads of a queue in order, the one in flight among them.
    fn ordered(&self, id: QueueId) -> Step {
        let engine = &self.world.engine;
        let Some(pending) = engine.pending(id) else {
            return Step::Returns(Value::Null);
        };
        let ids =
            pending.ordered(&|local_queue| engine.local_queue_usage(local_queue), &engine.state().settings);
        Step::Returns(json!(ids.into_iter().map(|id| self.key_of(id)).collect::<Vec<_>>()))
    }

    fn dump(&self, active: bool) -> Value {
        let mut result = json!({});
        for (queue, _) in self.world.engine.state().queues() {
            let Some(pending) = self.world.engine.pending(queue) else {
                continue;
            };
            let ids = if active { pending.active_ids() } else { pending.inadmissible_ids() };
            let keys: Vec<String> = ids.into_iter().map(|id| self.key_of(id)).collect();
            if !keys.is_empty() {
                result[self.world.engine.state().names.queue_name(queue)] = json!(keys);
            }
        }
        result
    }

    fn workload_key(&mut self, key: &str) -> WorkloadKey {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        WorkloadKey {
            namespace: self.world.engine.state_mut().names.namespaces.intern(namespace),
            name: name.into(),
        }
    }

    fn ledger_step(&mut self, op: &str, args: &Value) -> Step {
        let local_queue = self.local_queue(args["localQueue"].as_str().unwrap_or(""));
        let workload = self.workload_key(args["workload"].as_str().unwrap_or(""));
        let state = self.world.engine.state_mut();
        match op {
            "Set" => {
                let used = consumed(&args["resources"], &mut state.names);
                state.afs.set(local_queue, used, time(&args["lastUpdate"]));
                Step::Returns(Value::Null)
            }
            "PushPenalty" => {
                let penalty = consumed(&args["penalty"], &mut state.names);
                state.afs.push_penalty(local_queue, workload, penalty, time(&args["now"]));
                Step::Returns(Value::Null)
            }
            "SubPenalty" => {
                let removed = state.afs.drop_penalty(local_queue, &workload);
                Step::Returns(removed.map_or(Value::Null, |removed| consumed_json(&removed, &state.names)))
            }
            "PeekPenalty" => {
                let pending = state
                    .afs
                    .get(local_queue)
                    .map(quintet_queue_engine::internals::afs::LedgerEntry::pending)
                    .unwrap_or_default();
                Step::Returns(consumed_json(&pending, &state.names))
            }
            "Get" => {
                let Some(entry) = state.afs.get(local_queue) else {
                    return Step::Returns(json!([{ "statusAccounted": false }, false]));
                };
                let mut records = json!({});
                for (key, penalty) in &entry.penalties {
                    records[state.key_text(key)] = consumed_json(penalty, &state.names);
                }
                let value = json!({
                    "lastUpdate": time_text(entry.last_update),
                    "penaltyRecords": records,
                    "pendingPenalty": consumed_json(&entry.pending(), &state.names),
                    "resources": consumed_json(&entry.consumed, &state.names),
                    "statusAccounted": entry.status_accounted,
                });
                Step::Returns(json!([value, true]))
            }
            _ => Step::Unknown,
        }
    }
}

/// A duration as Go writes it: `1h0m1s`, `1.5s`, `500ms`, `-2m`.
fn duration(text: &str) -> Option<Span> {
    let (sign, mut rest) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    if rest == "0" {
        return Some(Span::nanos(0));
    }
    let mut nanos = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest.get(..end)?.parse().ok()?;
        rest = rest.get(end..)?;
        let units =
            [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
        let (unit, factor) = units.into_iter().find(|(unit, _)| rest.starts_with(unit))?;
        rest = rest.get(unit.len()..)?;
        nanos += number * factor;
    }
    #[expect(clippy::cast_possible_truncation, reason = "test clock")]
    (!text.is_empty()).then(|| Span::nanos((sign * nanos) as i64))
}

pub fn entry_penalties(case: &Case<'_>) -> Verdict {
    let mut names = Names::default();
    let mut ledger = afs::UsageLedger::default();
    let calls = case.calls();
    let local_queue = names.local_queues.intern(calls["localQueue"].as_str().unwrap_or(""));
    for step in calls["ops"].as_array().into_iter().flatten() {
        let name = step["workload"].as_str().unwrap_or("");
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let workload = WorkloadKey { namespace: names.namespaces.intern(namespace), name: name.into() };
        match step["op"].as_str().unwrap_or("") {
            "push" => {
                let penalty = consumed(&step["penalty"], &mut names);
                let now = time(&case.raw["now"]);
                ledger.push_penalty(local_queue, workload, penalty, now);
            }
            "subtract" => {
                ledger.drop_penalty(local_queue, &workload);
            }
            _ => return Verdict::Unsupported,
        }
    }
    let pending = ledger
        .get(local_queue)
        .map(quintet_queue_engine::internals::afs::LedgerEntry::pending)
        .unwrap_or_default();
    let mut found = differences("pending", &json!(!pending.is_empty()), &case.want()["pending"]);
    for (name, wanted) in case.want()["milli"].as_object().into_iter().flatten() {
        let got = pending.get(&names.resource(name)).map_or(0, |quantity| quantity.millis());
        found.extend(differences(name, &json!(got), wanted));
    }
    Verdict::from_differences(found)
}
