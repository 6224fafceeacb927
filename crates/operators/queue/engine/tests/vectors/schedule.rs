//! Whole scheduling cycles.

use std::collections::BTreeMap;

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::reasons::QuotaReservedReason;
use quintet_api::kueue::v1beta2::Workload;
use quintet_queue_engine::internals::cycle::{
    CycleReport, Decision, Entry, EntryStatus, Fits, Outcome, Victims, compare_classical, compare_fair, fits,
    reserved_without_targets,
};
use quintet_queue_engine::internals::engine::charged_by;
use quintet_queue_engine::internals::fair::Share;
use quintet_queue_engine::internals::flavors::{Assignment, Progress, Subject};
use quintet_queue_engine::internals::preemption::Target;
use quintet_queue_engine::internals::queue::RequeueReason;
use quintet_queue_engine::internals::state::State;
use quintet_queue_engine::model::{QueueSpec, ShapeHash};
use quintet_queue_engine::settings::RequeuingTimestamp;
use quintet_queue_engine::status::{self, Event, Write};
use serde_json::{Value, json};

use crate::case::{Case, Verdict};
use crate::compare::{comparable_status, differences, set_differences};
use crate::objects::{change_status, decode, unfit_reason};
use crate::world::{World, configuration};

pub const OPS: [&str; 9] = [
    "fits",
    "requeueAndUpdate",
    "shouldApplyEntryPenalty",
    "orderEntries",
    "entryLess",
    "lastAssignmentOutdated",
    "markPreemptionOutcome",
    "markSkipped",
    "resourcesToReserve",
];

#[derive(Default)]
struct Log {
    events: Vec<Event>,
    status_writes: usize,
    skipped: BTreeMap<String, u32>,
    recomputations: BTreeMap<(String, &'static str), u32>,
}

fn apply(world: &mut World, report: &CycleReport, case: &Case<'_>, log: &mut Log) {
    let error = &case.calls()["statusPatchError"];
    let now = world.now;
    let mut requeue_events = Vec::new();
    for decision in &report.decisions {
        let mut decision = decision.clone();
        let mut eviction_failed = false;
        let failed = !error.is_null();
        if failed && let Outcome::Unadmitted(outcome) = &decision.outcome {
            let victims: Vec<_> = outcome.evict.iter().map(|target| target.workload).collect();
            log.status_writes += victims.len();
            world.engine.preemptions_failed(&mut decision, &victims);
        }
        let decision = &decision;
        for write in status::writes(decision, &world.engine) {
            let key = world.key_of(write.workload());
            let object = world.api.entry(key).or_insert(Value::Null);
            if case.calls()[CONCURRENT] == true && log.status_writes == 0 && object.is_object() {
                object["metadata"]["labels"]["vector.example/changed"] = "meanwhile".into();
            }
            let before = object.clone();
            let changed = !failed && change_status(object, |object| write.apply(object, &world.engine, now));
            log.status_writes += usize::from(changed || failed);
            if failed {
                let gone = error["reason"] == "NotFound";
                if let Write::Admit(id, _) = write {
                    world.engine.admission_failed(id, gone, now);
                    continue;
                }
                if !matches!(write, Write::Unadmit(..)) {
                    if let Write::Evict { workload, .. } = write {
                        eviction_failed |= world.engine.eviction_failed(workload, gone, now);
                    }
                    continue;
                }
            }
            let had_admission = before.pointer("/status/admission").is_some();
            if matches!(write, Write::Evict { .. }) && !had_admission {
                continue;
            }
            let events = status::events(decision, &write, &decode(object), &world.engine, now);
            if matches!(write, Write::Unadmit(..)) {
                requeue_events.extend(events);
            } else {
                log.events.extend(events);
            }
        }
        requeue_events.extend(status::second_pass_event(decision, eviction_failed));
    }
    log.events.extend(requeue_events);
    for (queue, count) in &report.skipped_preemptions {
        log.skipped.insert(world.engine.state().names.queue_name(*queue).to_owned(), *count);
    }
    for ((queue, result), count) in &report.recomputations {
        let name = world.engine.state().names.queue_name(*queue).to_owned();
        *log.recomputations.entry((name, result)).or_default() += count;
    }
}

/// Another writer changes a label just before the first status write.
const CONCURRENT: &str = "concurrentLabelUpdateBeforeFirstStatusPatch";

/// Flags of `schedule`. `deleteLocalQueueFromApi` has no effect: the engine does not read the API.
const FLAGS: [&str; 7] = [
    "op",
    "cycles",
    "queueSecondPass",
    "statusPatchError",
    "initialLocalQueueUsage",
    "deleteLocalQueueFromApi",
    CONCURRENT,
];

/// What `schedule` may expect.
const EXPECTATIONS: [&str; 10] = [
    "workloads",
    "assignments",
    "newAssignments",
    "left",
    "inadmissibleLeft",
    "events",
    "skippedPreemptions",
    "preemptionTargetRecomputations",
    "statusPatches",
    "pendingPenalty",
];

fn unknown_keys(what: &str, value: &Value, known: &[&str]) -> Vec<String> {
    let keys = value.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    keys.filter(|key| !known.contains(key))
        .map(|key| format!("{what}.{key}: not known to this runner"))
        .collect()
}

fn prepare(case: &Case<'_>) -> World {
    let mut world = World::new(case);
    for (name, usage) in case.calls()["initialLocalQueueUsage"].as_object().into_iter().flatten() {
        let id = world.engine.state_mut().names.local_queues.intern(name);
        let quantities = crate::objects::quantities(usage);
        let names = &mut world.engine.state_mut().names;
        let consumed = quantities.iter().map(|(name, quantity)| (names.resource(name), *quantity)).collect();
        world.engine.state_mut().afs.set(id, consumed, world.now);
    }
    if case.calls()["queueSecondPass"] == true {
        let ids: Vec<_> = world.engine.state().workloads().map(|(id, _)| id).collect();
        let mut taken = false;
        for id in ids {
            taken |= world.engine.queue_second_pass(id, 0, world.now);
        }
        if taken {
            world.engine.make_second_passes_due();
        }
    }
    world
}

pub fn schedule(case: &Case<'_>) -> Verdict {
    let mut world = prepare(case);
    let admitted_before: Vec<String> = case
        .objects("workloads")
        .iter()
        .filter(|object| decode::<Workload>(object).is_admitted())
        .filter(|object| {
            !(case.calls()["queueSecondPass"] == true && object.pointer("/status/unhealthyNodes").is_some())
        })
        .map(|object| crate::world::key(object))
        .collect();
    let mut log = Log::default();
    for _ in 0..case.calls()["cycles"].as_u64().unwrap_or(1) {
        let report = world.engine.schedule(world.now);
        apply(&mut world, &report, case, &mut log);
    }
    let mut found = unknown_keys("calls", case.calls(), &FLAGS);
    found.extend(unknown_keys("want", case.want(), &EXPECTATIONS));
    found.extend(check(case, &world, &log, &admitted_before));
    Verdict::from_differences(found)
}

fn check(case: &Case<'_>, world: &World, log: &Log, admitted_before: &[String]) -> Vec<String> {
    let want = case.want();
    let mut found = Vec::new();
    if !want["workloads"].is_null() {
        found.extend(check_workloads(case, world, &want["workloads"]));
    }
    if !want["assignments"].is_null() {
        found.extend(differences("assignments", &assignments(world, &[]), &want["assignments"]));
    }
    if !want["newAssignments"].is_null() {
        found.extend(differences(
            "newAssignments",
            &assignments(world, admitted_before),
            &want["newAssignments"],
        ));
    }
    if !want["left"].is_null() {
        found.extend(check_left("left", &left(world, true), &want["left"]));
    }
    if !want["inadmissibleLeft"].is_null() {
        found.extend(check_left("inadmissibleLeft", &left(world, false), &want["inadmissibleLeft"]));
    }
    if !want["events"].is_null() {
        found.extend(check_events(world, log, &want["events"]));
    }
    if !want["skippedPreemptions"].is_null() {
        let got = json!(log.skipped);
        let mut wanted = want["skippedPreemptions"].clone();
        if let Some(entries) = wanted.as_object_mut() {
            entries.retain(|_, count| *count != 0);
        }
        found.extend(differences("skippedPreemptions", &got, &wanted));
    }
    if !want["preemptionTargetRecomputations"].is_null() {
        // Upstream's test reads only the counters that a case names.
        for (queue, wanted) in want["preemptionTargetRecomputations"].as_object().into_iter().flatten() {
            for (result, wanted) in wanted.as_object().into_iter().flatten() {
                let counted = log.recomputations.iter().find(|((own, of), _)| own == queue && of == result);
                let got = counted.map_or(0, |(_, count)| *count);
                found.extend(differences(&format!("recomputations {queue} {result}"), &json!(got), wanted));
            }
        }
    }
    if let Some(wanted) = want["statusPatches"].as_u64()
        && wanted != log.status_writes as u64
    {
        found.push(format!("statusPatches: got {}, want {wanted}", log.status_writes));
    }
    if !want["pendingPenalty"].is_null() {
        let mut got = json!({});
        for (name, _) in want["pendingPenalty"].as_object().into_iter().flatten() {
            let names = &world.engine.state().names;
            let entry = names.local_queues.get(name).and_then(|id| world.engine.state().afs.get(id));
            let pending =
                entry.map(quintet_queue_engine::internals::afs::LedgerEntry::pending).unwrap_or_default();
            let pending =
                pending.iter().map(|(id, quantity)| (names.resource_name(*id), quantity.to_string()));
            got[name] = json!(pending.collect::<BTreeMap<_, _>>());
        }
        found.extend(differences("pendingPenalty", &got, &want["pendingPenalty"]));
    }
    found
}

fn check_workloads(case: &Case<'_>, world: &World, want: &Value) -> Vec<String> {
    let untimed = [
        "second_pass_entry_penalty",
        "second_pass_skips_pods_ready_block",
        "tas_workload_modified_concurrently",
    ];
    let table = case.table_name();
    let is_second_pass = table.contains("second_pass");
    let ignore_times = untimed.iter().any(|name| table.ends_with(name));
    let mut found = Vec::new();
    for key in world.api.keys().filter(|key| want.get(key.as_str()).is_none()) {
        found.push(format!("{key}: not expected in the API"));
    }
    for (key, wanted) in want.as_object().into_iter().flatten() {
        let Some(object) = world.api.get(key) else {
            found.push(format!("{key}: not in the API"));
            continue;
        };
        // What is not mentioned is as it was.
        let input = case.objects("workloads").into_iter().find(|input| crate::world::key(input) == *key);
        for part in ["spec", "metadata"] {
            let known = input.map_or(&Value::Null, |input| &input[part]);
            if !wanted[part].is_null() {
                found.extend(differences(&format!("{key}.{part}"), &object[part], &wanted[part]));
            } else if case.calls()[CONCURRENT] != true {
                found.extend(differences(&format!("{key}.{part}"), &object[part], known));
            }
        }
        if case.calls()[CONCURRENT] == true
            && object["metadata"]["labels"]["vector.example/changed"] != "meanwhile"
        {
            found.push(format!("{key}: the label another writer set is gone"));
        }
        let got = object["status"].clone();
        let (mut got, mut wanted) = comparable_status(&got, &wanted["status"], ignore_times);
        if is_second_pass {
            for value in [&mut got, &mut wanted] {
                value.as_object_mut().map(|fields| fields.remove("unhealthyNodes"));
            }
        }
        found.extend(differences(key, &got, &wanted));
    }
    found
}

fn assignments(world: &World, without: &[String]) -> Value {
    let state = world.engine.state();
    let mut result = json!({});
    for (id, workload) in state.workloads() {
        let key = state.key_text(&workload.key);
        if state.held(id).is_some()
            && !without.contains(&key)
            && let Some(admission) = &workload.admission
        {
            result[key] = json!(status::admission(admission, &state.names, &state.settings.gates));
        }
    }
    result
}

fn left(world: &World, active: bool) -> BTreeMap<String, Vec<String>> {
    let mut result = BTreeMap::new();
    for (queue, _) in world.engine.state().queues() {
        let Some(pending) = world.engine.pending(queue) else {
            continue;
        };
        let ids = if active { pending.active_ids() } else { pending.inadmissible_ids() };
        let keys: Vec<String> = ids.into_iter().map(|id| world.key_of(id)).collect();
        if !keys.is_empty() {
            result.insert(world.engine.state().names.queue_name(queue).to_owned(), keys);
        }
    }
    result
}

fn check_left(what: &str, got: &BTreeMap<String, Vec<String>>, want: &Value) -> Vec<String> {
    let mut queues: Vec<&str> = got.keys().map(String::as_str).collect();
    queues.extend(want.as_object().into_iter().flatten().map(|(queue, _)| queue.as_str()));
    queues.sort_unstable();
    queues.dedup();
    queues
        .into_iter()
        .flat_map(|queue| set_differences(&format!("{what}.{queue}"), &json!(got.get(queue)), &want[queue]))
        .collect()
}

fn check_events(world: &World, log: &Log, want: &Value) -> Vec<String> {
    let with_message = want["ignoreMessage"] != true;
    let got: Vec<Value> = log
        .events
        .iter()
        .map(|event| {
            let mut value = json!({
                "object": world.key_of(event.workload),
                "type": if event.is_warning { "Warning" } else { "Normal" },
                "reason": event.reason,
            });
            if with_message {
                value["message"] = event.message.clone().into();
            }
            value
        })
        .collect();
    let wanted: Vec<Value> = want["list"]
        .as_array()
        .cloned()
        .unwrap_or_default()
        .into_iter()
        .map(|mut event| {
            if !with_message {
                event.as_object_mut().map(|fields| fields.remove("message"));
            }
            event
        })
        .collect();
    let compare = if want["ordered"] == true { differences } else { set_differences };
    compare("events", &Value::Array(got), &Value::Array(wanted))
}

pub fn steps(case: &Case<'_>) -> Verdict {
    let mut world = prepare(case);
    let mut log = Log::default();
    let mut found = Vec::new();
    for round in 0..case.calls()["repeat"].as_u64().unwrap_or(1) {
        for step in case.calls()["steps"].as_array().into_iter().flatten() {
            match step["op"].as_str().unwrap_or("") {
                "schedule" => {
                    let report = world.engine.schedule(world.now);
                    apply(&mut world, &report, case, &mut log);
                }
                "checkWorkloads" => {
                    if !case.want()["workloadsAfterFirst"].is_null() {
                        found.extend(check_workloads(case, &world, &case.want()["workloadsAfterFirst"]));
                    }
                }
                "deleteWorkloads" => {
                    for key in step["workloads"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                        let object = world.api.remove(key).unwrap_or_default();
                        let workload = world.read_workload(&object);
                        world.engine.remove_workload(&workload.key, world.now);
                    }
                }
                "flushInadmissible" => {
                    world.engine.process_flushes(world.now, false);
                }
                "setNominalQuota" => {
                    let value = step["perCycle"][usize::try_from(round).unwrap()].clone();
                    let name = step["clusterQueue"].as_str().unwrap_or("");
                    let mut object = case
                        .objects("clusterQueues")
                        .into_iter()
                        .find(|object| object["metadata"]["name"] == name)
                        .cloned()
                        .expect("queue");
                    for group in object["spec"]["resourceGroups"].as_array_mut().into_iter().flatten() {
                        for flavor in group["flavors"].as_array_mut().into_iter().flatten() {
                            if flavor["name"] == step["flavor"] {
                                for resource in flavor["resources"].as_array_mut().into_iter().flatten() {
                                    if resource["name"] == step["resource"] {
                                        resource["nominalQuota"] = value.clone();
                                    }
                                }
                            }
                        }
                    }
                    world.add(&object);
                }
                "checkAssignments" => {
                    let want = &case.want()["assignmentsAfterSecond"];
                    if !want.is_null() {
                        found.extend(differences("assignmentsAfterSecond", &assignments(&world, &[]), want));
                    }
                }
                other => found.push(format!("unknown step {other}")),
            }
        }
    }
    if !case.want()["flavors"].is_null() {
        let mut got = json!({});
        for (key, _) in case.want()["flavors"].as_object().into_iter().flatten() {
            let flavor = assignments(&world, &[])[key]["podSetAssignments"][0]["flavors"]
                .as_object()
                .and_then(|flavors| flavors.values().next().cloned())
                .unwrap_or_default();
            got[key] = flavor;
        }
        found.extend(differences("flavors", &got, &case.want()["flavors"]));
    }
    Verdict::from_differences(found)
}

fn entry(world: &mut World, value: &Value) -> Entry {
    let workload = std::sync::Arc::new(world.read_workload(&value["workload"]));
    let id = world.engine.state_mut().set_workload(workload.as_ref().clone()).0;
    let mut entry = Entry::new(id, Subject::new(workload, world.queue("cq"), 0));
    entry.is_preemptor = value["isPreemptor"] == true;
    entry.assignment.borrowing = u32::try_from(value["borrowing"].as_u64().unwrap_or(0)).expect("borrowing");
    entry
}

/// Parts of a cycle.
pub fn single(case: &Case<'_>) -> Verdict {
    let mut world = World::without_workloads(case);
    let (calls, args, want) = (case.calls(), case.args(), case.want());
    match case.op() {
        "orderEntries" => {
            if calls["ordering"]["podsReadyRequeuingTimestamp"] == "Creation" {
                world.engine.state_mut().settings.requeuing_timestamp = RequeuingTimestamp::Creation;
            }
            let mut entries: Vec<Entry> = calls["entries"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|value| entry(&mut world, value))
                .collect();
            entries.sort_by(|a, b| compare_classical(&world.engine.state().settings, a, b));
            let names: Vec<String> =
                entries.iter().map(|entry| entry.subject.workload.key.name.to_string()).collect();
            Verdict::equal("order", &json!(names), &want["order"])
        }
        "entryLess" => {
            let (a, b) = (entry(&mut world, &calls["a"]), entry(&mut world, &calls["b"]));
            let mut side = |entry: &Entry| {
                let key = world.engine.state().key_text(&entry.subject.workload.key);
                let drs =
                    calls["drs"].as_array().into_iter().flatten().find(|drs| drs["workload"] == key.as_str());
                let drs = drs.map_or(Value::Null, |drs| drs["drs"].clone());
                let borrowed = drs["borrowedFlavorResources"].as_array().cloned().unwrap_or_default();
                let share = Share {
                    weight: drs["fairWeight"].as_f64().unwrap_or(0.0),
                    ratio: drs["unweightedRatio"].as_f64().unwrap_or(0.0),
                    dominant: None,
                    borrowed: borrowed
                        .iter()
                        .map(|fr| {
                            world.fr(
                                fr["flavor"].as_str().unwrap_or(""),
                                fr["resource"].as_str().unwrap_or(""),
                            )
                        })
                        .collect(),
                };
                (share, world.usage(&calls["requested"][&key]))
            };
            let ((share_a, usage_a), (share_b, usage_b)) = (side(&a), side(&b));
            let settings = &world.engine.state().settings;
            let less = compare_fair(settings, (&a, &share_a, &usage_a), (&b, &share_b, &usage_b)).is_lt();
            Verdict::equal("less", &json!(less), &want["less"])
        }
        "lastAssignmentOutdated" => {
            let shape = |value: &Value| {
                let text = value.as_str().unwrap_or("");
                let known = !text.is_empty() && text != "unknown";
                known
                    .then(|| ShapeHash::new(text.bytes().fold(0, |hash, byte| hash * 257 + u128::from(byte))))
            };
            let last = Progress {
                tried: Vec::new(),
                generation: args["last"]["clusterQueueGeneration"].as_i64().unwrap_or(0),
                cycle: args["last"]["schedulingCycle"].as_i64().unwrap_or(0),
                shape: shape(&args["last"]["schedulingHash"]),
            };
            let got = last.is_outdated(
                args["currentClusterQueueGeneration"].as_i64().unwrap_or(0),
                args["currentSchedulingCycle"].as_i64().unwrap_or(0),
                shape(&args["currentSchedulingHash"]),
                world.engine.state().settings.gates.preserve_scan_progress,
            );
            Verdict::equal("outdated", &json!(got), &want["outdated"])
        }
        "markPreemptionOutcome" => {
            let mut entry = entry(&mut world, &json!({ "workload": {} }));
            args["inadmissibleMessage"].as_str().unwrap_or("").clone_into(&mut entry.message);
            entry.subject.progress = Some(Progress::default());
            let number = |key: &str| usize::try_from(args[key].as_u64().unwrap_or(0)).expect("count");
            entry.preempted(number("preempted"), number("errors"));
            let wanted = RequeueReason::parse(want["requeueReason"].as_str().unwrap_or(""));
            let got = json!({
                "message": entry.message,
                "same": entry.requeue == wanted,
                "lastAssignmentCleared": entry.subject.progress.is_none(),
            });
            let want = json!({
                "message": want["message"],
                "same": true,
                "lastAssignmentCleared": want["lastAssignmentCleared"],
            });
            Verdict::equal("outcome", &got, &want)
        }
        "resourcesToReserve" => {
            let mut world = World::new(case);
            let name = calls["clusterQueue"].as_str().unwrap_or("");
            let id = world.queue(name);
            let queue = std::sync::Arc::clone(world.engine.state().queue(id).expect("queue"));
            let used = world.usage(&calls["clusterQueueUsage"]);
            world.engine.state_mut().tree.add_all(queue.node, &used);
            let mut assignment = Assignment::default();
            assignment.usage = world.usage(&calls["assignmentUsage"]);
            assignment.borrowing =
                u32::try_from(calls["borrowing"].as_u64().unwrap_or(0)).expect("borrowing");
            let subject = Subject::new(std::sync::Arc::new(world.read_workload(&json!({}))), id, 0);
            assignment.pod_sets = crate::preemption::assignment(
                &mut world,
                &json!({ "podSets": [{ "name": "main" }] }),
                &subject,
            )
            .pod_sets;
            assignment.set_mode(crate::preemption::mode(&calls["mode"]));
            let got = reserved_without_targets(&assignment, world.engine.state(), &queue);
            Verdict::equal("reserved", &world.usage_json(&got), &want["reserved"])
        }
        "markSkipped" => {
            let mut entry = entry(&mut world, &json!({ "workload": {} }));
            let message = [&args["message"], &args["msg"], &args["inadmissibleMessage"], &want["message"]]
                .into_iter()
                .find_map(Value::as_str);
            entry.subject.progress = Some(Progress::default());
            let preserve = world.engine.state().settings.gates.preserve_scan_progress;
            entry.skip(message.unwrap_or(""), QuotaReservedReason::WaitingForQuota, preserve);
            let cleared = entry.subject.progress.is_none();
            let got = json!({
                "status": if entry.status == EntryStatus::Skipped { "skipped" } else { "" },
                "message": entry.message,
                "lastAssignmentCleared": cleared,
                "lastAssignmentNil": cleared,
            });
            known_fields(&got, want)
        }
        "shouldApplyEntryPenalty" => {
            if !args["admissionFairSharing"].is_null() {
                let config = json!({ "admissionFairSharing": args["admissionFairSharing"] });
                let settings = configuration(&config, &mut world.engine.state_mut().names);
                world.engine.state_mut().settings.admission_fair_sharing = settings.admission_fair_sharing;
            }
            let mut queue = QueueSpec::new(world.queue("cq"));
            queue.usage_based_admission = args["admissionMode"] == "UsageBasedAdmissionFairSharing"
                || args["admissionScope"]["admissionMode"] == "UsageBasedAdmissionFairSharing";
            let workload = world.read_workload(&args["workload"]);
            let charged =
                charged_by(&world.engine.state().settings, &queue, workload.has_quota_reservation());
            Verdict::equal("result", &json!(charged.is_some()), &want["result"])
        }
        "requeueAndUpdate" => requeue_and_update(case),
        "fits" => check_fits(case),
        _ => Verdict::Unsupported,
    }
}

/// Compares the fields that are wanted; a field that is not there to compare is unsupported.
fn known_fields(got: &Value, want: &Value) -> Verdict {
    let mut found = Vec::new();
    for (key, wanted) in want.as_object().into_iter().flatten() {
        if got.get(key).is_none() {
            return Verdict::Unsupported;
        }
        found.extend(differences(key, &got[key], wanted));
    }
    Verdict::from_differences(found)
}

/// Puts the popped head back with the given outcome, twice, and looks at what was written.
fn requeue_and_update(case: &Case<'_>) -> Verdict {
    let mut world = World::new(case);
    let value = &case.calls()["entry"];
    let now = world.now;
    let Some(mut entry) = world.engine.take_heads(now, &State::is_queue_active).into_iter().next() else {
        return Verdict::Differs("no head".to_owned());
    };
    entry.status = match value["status"].as_str().unwrap_or("") {
        "nominated" => EntryStatus::Nominated,
        "skipped" => EntryStatus::Skipped,
        "preemptionGated" => EntryStatus::PreemptionGated,
        "evicted" => EntryStatus::Evicted,
        "assumed" => EntryStatus::Assumed,
        "" | "notNominated" => EntryStatus::NotNominated,
        _ => return Verdict::Unsupported,
    };
    value["inadmissibleMsg"].as_str().unwrap_or("").clone_into(&mut entry.message);
    entry.reason = unfit_reason(&value["quotaReservedReason"]);
    entry.requeue = RequeueReason::parse(value["requeueReason"].as_str().unwrap_or(""));
    let (workload, queue) = (entry.id, entry.subject.queue);
    let key = world.key_of(workload);
    let mut updates = 0;
    for _ in 0..2 {
        let outcome = world.engine.requeue_and_update(entry.clone(), now);
        let decision = Decision { workload, queue, outcome };
        for write in status::writes(&decision, &world.engine) {
            let object = world.api.entry(key.clone()).or_insert(Value::Null);
            updates += usize::from(change_status(object, |object| write.apply(object, &world.engine, now)));
        }
    }
    let want = case.want();
    let status = world.api.get(&key).map_or(Value::Null, |object| object["status"].clone());
    let (got, wanted) = comparable_status(&status, &want["status"], false);
    let mut found = unknown_keys("want", want, &["left", "inadmissibleLeft", "status", "statusUpdates"]);
    found.extend(differences("status", &got, &wanted));
    found.extend(differences("statusUpdates", &json!(updates), &want["statusUpdates"]));
    found.extend(check_left("left", &left(&world, true), &want["left"]));
    found.extend(check_left("inadmissibleLeft", &left(&world, false), &want["inadmissibleLeft"]));
    Verdict::from_differences(found)
}

/// Whether usage fits with the preempted and the targets gone.
fn check_fits(case: &Case<'_>) -> Verdict {
    let mut world = World::new(case);
    let calls = if case.args().is_null() { case.calls() } else { case.args() };
    let usage = &calls["usage"];
    let quota = world.usage(if usage["quota"].is_null() { usage } else { &usage["quota"] });
    let id = world.queue(calls["clusterQueue"].as_str().unwrap_or("cq"));
    let wanted = [&case.want()["result"], &case.want()["fits"]].into_iter().find_map(Value::as_str);
    let (Some(queue), Some(wanted)) = (world.engine.state().queue(id).cloned(), wanted) else {
        return Verdict::Unsupported;
    };
    let targets = |list: &Value| -> Option<Vec<Target>> {
        let keys = list.as_array().cloned().unwrap_or_default();
        let find = |key: &Value| {
            let key = key.as_str().or_else(|| key["workload"].as_str())?;
            let state = world.engine.state();
            let found = state.workloads().find(|(_, workload)| state.key_text(&workload.key) == key)?;
            Some(Target { workload: found.0, reason: None })
        };
        keys.iter().map(find).collect()
    };
    let (Some(preempted), Some(targets)) = (targets(&calls["preempted"]), targets(&calls["targets"])) else {
        return Verdict::Unsupported;
    };
    let mut victims = Victims::default();
    victims.add(&preempted, world.engine.state());
    let got = fits(world.engine.state_mut(), &queue, (&quota, &[]), &victims, &targets);
    let got = match got {
        Fits::Ok => "Ok",
        Fits::NoQuota => "NoQuota",
        Fits::NoTas => "NoTAS",
    };
    Verdict::equal("fits", &json!(got), &json!(wanted))
}
