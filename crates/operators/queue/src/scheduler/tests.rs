use quintet_api::config::kueue::WaitForPodsReady;
use quintet_controller::Action;
use quintet_controller::index::Refusal;
use quintet_controller::plan::EventKind;
use serde_json::{Value, json};

use super::*;
use crate::testing::entry_at;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const ROOM: usize = 100;

fn event(object: &Value, version: u64) -> SchedulerEvent {
    match object["kind"].as_str().unwrap() {
        "ClusterQueue" => SchedulerEvent::ClusterQueue(Update::Applied(entry_at(object, version))),
        "DeviceClass" => SchedulerEvent::DeviceClass(Update::Applied(entry_at(object, version))),
        "ResourceClaimTemplate" => {
            SchedulerEvent::ResourceClaimTemplate(Update::Applied(entry_at(object, version)))
        }
        "ResourceSlice" => SchedulerEvent::ResourceSlice(Update::Applied(entry_at(object, version))),
        "LimitRange" => SchedulerEvent::LimitRange(Update::Applied(entry_at(object, version))),
        "LocalQueue" => SchedulerEvent::LocalQueue(Update::Applied(entry_at(object, version))),
        "Namespace" => SchedulerEvent::Namespace(Update::Applied(entry_at(object, version))),
        "ResourceFlavor" => SchedulerEvent::ResourceFlavor(Update::Applied(entry_at(object, version))),
        "Topology" => SchedulerEvent::Topology(Update::Applied(entry_at(object, version))),
        "Workload" => SchedulerEvent::Workload(Update::Applied(entry_at(object, version))),
        other => panic!("{other} is not fed"),
    }
}

/// A queue of 4 CPUs in which higher priorities preempt lower ones.
fn queue() -> [Value; 4] {
    [
        json!({ "kind": "Namespace", "metadata": { "name": "ns" } }),
        json!({ "kind": "ResourceFlavor", "metadata": { "name": "default" } }),
        json!({ "kind": "ClusterQueue", "metadata": { "name": "cq" }, "spec": {
            "namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO",
            "preemption": { "withinClusterQueue": "LowerPriority" },
            "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [{ "name": "default", "resources": [
                { "name": "cpu", "nominalQuota": "4" }] }] }] } }),
        json!({ "kind": "LocalQueue", "metadata": { "name": "lq", "namespace": "ns" },
            "spec": { "clusterQueue": "cq" } }),
    ]
}

fn workload(name: &str, cpu: &str, priority: i32) -> Value {
    json!({ "kind": "Workload",
        "metadata": { "name": name, "namespace": "ns", "uid": name, "generation": 1 },
        "spec": { "queueName": "lq", "priority": priority, "podSets": [{ "name": "main", "count": 1,
            "template": { "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] } } }] } })
}

/// A scheduler that was fed these objects, each in version 1.
fn fed(objects: &[Value]) -> Scheduler {
    let mut scheduler = Scheduler::new(Arc::default(), Gates::default());
    for object in queue().iter().chain(objects) {
        scheduler.apply(event(object, 1), NOW);
    }
    scheduler
}

/// The Workload and the status that a write patches.
fn patched(write: &Write<Decided>) -> (&str, &Value) {
    match &write.action {
        Action::Status { key, patch, .. } => (key.name(), &patch.status),
        other => panic!("not a patch: {other:?}"),
    }
}

/// Decisions about Workloads; statuses of queues have tests of their own.
fn decide(scheduler: &mut Scheduler, now: Timestamp) -> Vec<Write<Decided>> {
    let writes = scheduler.decide(now, ROOM).into_iter();
    writes.filter(|write| matches!(write.decision, Decided::Workload(_))).collect()
}

/// What a write decides about a Workload.
fn decision(write: &Write<Decided>) -> &WorkloadDecision {
    match &write.decision {
        Decided::Workload(decision) => decision,
        Decided::Status(of) => panic!("the status of {of:?}"),
    }
}

fn admitted(writes: &[Write<Decided>]) -> Vec<&str> {
    let of_admission = writes.iter().filter(|write| decision(write).effect == Effect::Admission);
    of_admission.map(|write| patched(write).0).collect()
}

/// The object after a write, as the API server has it.
fn after(mut object: Value, write: &Write<Decided>) -> Value {
    let status = patched(write).1.as_object().unwrap().clone();
    for (field, value) in status {
        object["status"][field] = value;
    }
    object
}

fn refusal(code: u16) -> WriteOutcome {
    WriteOutcome::Refused(Refusal { code, ..Refusal::default() })
}

#[test]
fn an_admission_is_one_write_on_the_observed_version_and_counts_at_once() {
    let mut scheduler = fed(&[workload("a", "3", 1), workload("b", "3", 0)]);
    let writes = decide(&mut scheduler, NOW);
    assert_eq!(writes.len(), 2, "one per Workload");
    let (name, status) = patched(&writes[0]);
    assert_eq!((name, &status["admission"]["clusterQueue"]), ("a", &json!("cq")));
    let Action::Status { patch, .. } = &writes[0].action else { panic!() };
    assert_eq!((patch.uid.as_str(), patch.version), ("a", 1));
    let reasons: Vec<&str> = writes[0].events.iter().map(|event| event.reason.as_str()).collect();
    assert_eq!(reasons, ["QuotaReserved", "Admitted"]);

    let (name, status) = patched(&writes[1]);
    assert_eq!((name, &status["conditions"][0]["reason"]), ("b", &json!("WaitingForQuota")));
    assert!(decide(&mut scheduler, NOW).is_empty(), "nothing changed, nothing is written");
}

#[test]
fn the_written_state_replaces_what_was_assumed() {
    let a = workload("a", "3", 0);
    let mut scheduler = fed(std::slice::from_ref(&a));
    let writes = decide(&mut scheduler, NOW);
    let assumed = scheduler.fingerprint();
    scheduler.apply(event(&after(a, &writes[0]), 2), NOW);
    let written = WriteOutcome::Written { version: Some(ResourceVersion(2)) };
    scheduler.outcome(writes[0].decision.clone(), written, NOW);
    assert!(scheduler.assumed.is_empty());
    assert_eq!(scheduler.fingerprint(), assumed, "it is what was assumed");
    assert!(decide(&mut scheduler, NOW).is_empty());
}

#[test]
fn an_old_state_does_not_give_assumed_quota_back() {
    let (a, b) = (workload("a", "3", 1), workload("b", "3", 0));
    let mut scheduler = fed(std::slice::from_ref(&a));
    assert_eq!(admitted(&decide(&mut scheduler, NOW)), ["a"]);
    scheduler.apply(event(&a, 1), NOW);
    scheduler.apply(event(&b, 1), NOW);
    assert_eq!(admitted(&decide(&mut scheduler, NOW)), [""; 0], "the quota is taken");
}

#[test]
fn a_newer_state_wins_over_what_was_assumed() {
    let a = workload("a", "3", 0);
    let mut scheduler = fed(std::slice::from_ref(&a));
    let first = decide(&mut scheduler, NOW);
    let mut changed = a;
    changed["metadata"]["labels"] = json!({ "changed": "meanwhile" });
    scheduler.apply(event(&changed, 2), NOW);
    scheduler.outcome(first[0].decision.clone(), WriteOutcome::Conflict, NOW);
    let second = decide(&mut scheduler, NOW);
    assert_eq!(admitted(&second), ["a"]);
    assert_eq!(decision(&second[0]).base, ResourceVersion(2));
}

#[test]
fn while_others_wait_for_its_pods_an_overtaken_admission_is_made_again_first() {
    let ready = WaitForPodsReady { block_admission: true, ..WaitForPodsReady::default() };
    let configuration =
        QueueConfiguration { wait_for_pods_ready: Some(ready), ..QueueConfiguration::default() };
    let mut scheduler = Scheduler::new(Arc::new(configuration), Gates::default());
    let created = |name: &str, second: u32| {
        let mut object = workload(name, "1", 0);
        object["metadata"]["creationTimestamp"] = format!("1970-01-01T00:00:0{second}Z").into();
        object
    };
    let (first, second) = (created("first", 1), created("second", 2));
    for object in queue().iter().chain([&first, &second]) {
        scheduler.apply(event(object, 1), NOW);
    }
    let writes = decide(&mut scheduler, NOW);
    assert_eq!(admitted(&writes), ["first"]);
    let mut changed = first;
    changed["metadata"]["labels"] = json!({ "changed": "meanwhile" });
    scheduler.apply(event(&changed, 2), NOW);
    scheduler.outcome(writes[0].decision.clone(), WriteOutcome::Conflict, NOW);
    assert_eq!(admitted(&decide(&mut scheduler, NOW)), ["first"]);
}

#[test]
fn an_admission_keeps_its_quota_while_a_report_about_it_is_on_its_way() {
    // The report was sent: the admission comes too late, which is known before or after the report is seen.
    for is_conflict_first in [true, false] {
        let running = workload("running", "3", 0);
        let mut scheduler = fed(std::slice::from_ref(&running));
        let writes = decide(&mut scheduler, NOW);
        scheduler.apply(event(&after(running, &writes[0]), 2), NOW);
        let first = workload("first", "3", 2);
        for waiting in [&first, &workload("second", "3", 1)] {
            scheduler.apply(event(waiting, 1), NOW);
        }
        let reports = decide(&mut scheduler, NOW);
        let of_first = |writes: &[Write<Decided>]| {
            writes.iter().find(|write| patched(write).0 == "first").expect("a write").clone()
        };
        let report = of_first(&reports);
        scheduler.apply(SchedulerEvent::Workload(Update::Deleted(ObjectKey::new("ns", "running"))), NOW);
        let writes = decide(&mut scheduler, NOW);
        assert_eq!(admitted(&writes), ["first"]);

        let conflict = |scheduler: &mut Scheduler| {
            scheduler.outcome(of_first(&writes).decision, WriteOutcome::Conflict, NOW);
            assert_eq!(decide(scheduler, NOW), [], "nobody else gets the quota");
        };
        if is_conflict_first {
            conflict(&mut scheduler);
        }
        let reported = after(first, &report);
        scheduler.apply(event(&reported, 2), NOW);
        let again = decide(&mut scheduler, NOW);
        assert_eq!(admitted(&again), ["first"], "{again:?}");
        assert_eq!(decision(&again[0]).base, ResourceVersion(2));
        let reasons: Vec<&str> = again[0].events.iter().map(|event| event.reason.as_str()).collect();
        assert_eq!(reasons, ["QuotaReserved", "Admitted"], "the report has told its own");
        if !is_conflict_first {
            conflict(&mut scheduler);
        }
        scheduler.apply(event(&after(reported, &again[0]), 3), NOW);
        assert_eq!(decide(&mut scheduler, NOW), []);
    }
}

#[test]
fn a_lost_write_keeps_its_quota_and_is_sent_again_as_it_was() {
    let mut scheduler = fed(&[workload("a", "3", 1), workload("b", "3", 0)]);
    let first = decide(&mut scheduler, NOW);
    scheduler.outcome(first[0].decision.clone(), WriteOutcome::Lost, NOW);
    let again = decide(&mut scheduler, NOW);
    assert_eq!(again, [first[0].clone()], "the same write, and nothing for the other Workload");
}

#[test]
fn a_refused_admission_gives_its_quota_to_others_and_is_tried_again_later() {
    let mut scheduler = fed(&[workload("a", "3", 1), workload("b", "3", 0)]);
    let writes = decide(&mut scheduler, NOW);
    assert_eq!(admitted(&writes), ["a"]);
    scheduler.outcome(writes[0].decision.clone(), refusal(422), NOW);
    let soon = NOW + SignedDuration::from_secs(2);
    assert_eq!(admitted(&decide(&mut scheduler, soon)), ["b"], "a is left out, its quota is free");
    assert_eq!(admitted(&decide(&mut scheduler, soon)), [""; 0], "a is not tried again at once");
    assert!(scheduler.next_deadline().is_some_and(|due| due <= NOW + REFUSED_FOR));
    scheduler.apply(SchedulerEvent::Workload(Update::Deleted(ObjectKey::new("ns", "b"))), soon);
    let later = NOW + REFUSED_FOR + REFUSED_FOR;
    assert_eq!(admitted(&decide(&mut scheduler, later)), ["a"]);
}

#[test]
fn the_outcome_of_an_older_write_does_not_end_a_newer_assumption() {
    let mut scheduler = fed(&[workload("a", "3", 1), workload("b", "3", 0)]);
    let writes = decide(&mut scheduler, NOW);
    let report = writes[1].decision.clone();
    assert_eq!((patched(&writes[1]).0, decision(&writes[1]).effect), ("b", Effect::Report));
    scheduler.apply(SchedulerEvent::Workload(Update::Deleted(ObjectKey::new("ns", "a"))), NOW);
    let later = NOW + SignedDuration::from_secs(2);
    assert_eq!(admitted(&decide(&mut scheduler, later)), ["b"]);
    scheduler.outcome(report, refusal(422), later);
    scheduler.apply(event(&workload("c", "3", 0), 1), later);
    assert_eq!(admitted(&decide(&mut scheduler, later)), [""; 0], "b holds the quota");
}

#[test]
fn a_refused_placement_leaves_the_reservation_as_it_was() {
    let a = workload("a", "3", 0);
    let mut scheduler = fed(std::slice::from_ref(&a));
    let writes = decide(&mut scheduler, NOW);
    scheduler.apply(event(&after(a, &writes[0]), 2), NOW);
    let holding = scheduler.fingerprint();
    scheduler.hold_back(&ObjectKey::new("ns", "a"), Effect::Admission, NOW);
    assert_eq!(scheduler.fingerprint(), holding);
    scheduler.undo(&ObjectKey::new("ns", "a"), Effect::Admission, false, engine_time(NOW));
    assert_eq!(scheduler.fingerprint(), holding);
}

#[test]
fn a_report_that_others_overtake_is_written_again() {
    let mut scheduler = fed(&[workload("a", "5", 0)]);
    let writes = decide(&mut scheduler, NOW);
    assert_eq!(decision(&writes[0]).effect, Effect::Report);
    let mut changed = workload("a", "5", 0);
    changed["status"] = json!({ "conditions": [{ "type": "PodsReady", "status": "False", "reason": "WaitForStart",
        "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z" }] });
    scheduler.apply(event(&changed, 2), NOW);
    scheduler.outcome(writes[0].decision.clone(), WriteOutcome::Conflict, NOW);
    let again = decide(&mut scheduler, NOW);
    assert_eq!(decision(&again[0]).base, ResourceVersion(2));
    let written = after(changed, &again[0]);
    let types: Vec<&str> = written["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|own| own["type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["PodsReady", "QuotaReserved", "Admitted"]);
    scheduler.apply(event(&written, 3), NOW);
    assert_eq!(decide(&mut scheduler, NOW).len(), 0, "it is written once");
}

#[test]
fn a_workload_whose_obstacle_is_gone_says_why_it_waits_although_it_is_not_evaluated() {
    let mut scheduler = fed(&[workload("a", "5", 0), workload("b", "5", 0)]);
    for write in decide(&mut scheduler, NOW) {
        let name = patched(&write).0.to_owned();
        scheduler.apply(event(&after(workload(&name, "5", 0), &write), 2), NOW);
    }
    let mut activated = workload("b", "5", 0);
    activated["status"] = json!({ "conditions": [{ "type": "QuotaReserved", "status": "False", "observedGeneration": 1,
        "reason": "PendingEvaluation", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z" }] });
    scheduler.apply(event(&activated, 3), NOW);
    let writes = decide(&mut scheduler, NOW);
    let of_b = writes.iter().find(|write| patched(write).0 == "b").expect("a report");
    assert_eq!(patched(of_b).1["conditions"][0]["reason"], "ExceedsMaxQuota");
}

#[test]
fn a_second_pass_that_finds_no_place_is_told_each_time() {
    const HOST: &str = "kubernetes.io/hostname";
    let [_, mut flavor, ..] = queue();
    flavor["spec"] = json!({ "nodeLabels": { "pool": "tas" }, "topologyName": "hosts" });
    let topology = json!({ "kind": "Topology", "metadata": { "name": "hosts" },
        "spec": { "levels": [{ "nodeLabel": HOST }] } });
    let mut provisioned = workload("a", "1", 0);
    provisioned["spec"]["podSets"][0]["topologyRequest"] = json!({ "required": HOST });
    let time = "1970-01-01T00:00:00Z";
    provisioned["status"] = json!({
        "admission": { "clusterQueue": "cq", "podSetAssignments": [{ "name": "main", "count": 1,
            "flavors": { "cpu": "default" }, "resourceUsage": { "cpu": "1" }, "delayedTopologyRequest": "Pending" }] },
        "admissionChecks": [{ "name": "provisioning", "state": "Ready", "message": "", "lastTransitionTime": time }],
        "conditions": [{ "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
            "lastTransitionTime": time }] });
    let mut scheduler = fed(&[flavor, topology, provisioned]);
    for (seconds, expected) in [(0, 0), (1, 1), (2, 0), (3, 1), (6, 0), (7, 1)] {
        let writes = decide(&mut scheduler, NOW + SignedDuration::from_secs(seconds));
        assert!(writes.is_empty(), "it keeps its quota: {writes:?}");
        let events = scheduler.take_events();
        assert_eq!(events.len(), expected, "after {seconds} seconds: {events:?}");
        for (regarding, event) in events {
            assert_eq!((regarding.key.name(), regarding.uid.as_str()), ("a", "a"));
            assert_eq!((event.kind, event.reason.as_str()), (EventKind::Warning, "SecondPassFailed"));
            assert!(!event.note.is_empty());
        }
    }
}

#[test]
fn a_workload_that_is_gone_gives_its_quota_back() {
    let mut scheduler = fed(&[workload("a", "3", 1), workload("b", "3", 0)]);
    let writes = decide(&mut scheduler, NOW);
    scheduler.outcome(writes[0].decision.clone(), refusal(NOT_FOUND), NOW);
    scheduler.apply(SchedulerEvent::Workload(Update::Deleted(ObjectKey::new("ns", "a"))), NOW);
    let later = NOW + SignedDuration::from_secs(2);
    assert_eq!(admitted(&decide(&mut scheduler, later)), ["b"]);
}

#[test]
fn a_preemption_evicts_first_and_reports_both_sides() {
    let low = workload("low", "3", 0);
    let mut scheduler = fed(std::slice::from_ref(&low));
    let writes = decide(&mut scheduler, NOW);
    scheduler.apply(event(&after(low, &writes[0]), 2), NOW);
    let written = WriteOutcome::Written { version: Some(ResourceVersion(2)) };
    scheduler.outcome(writes[0].decision.clone(), written, NOW);

    scheduler.apply(event(&workload("high", "3", 10), 1), NOW);
    let writes = decide(&mut scheduler, NOW);
    let effects: Vec<(&str, Effect)> =
        writes.iter().map(|write| (patched(write).0, decision(write).effect)).collect();
    assert_eq!(effects, [("low", Effect::Preemption), ("high", Effect::Report)]);
    let reasons = |write: &Write<Decided>| -> Vec<String> {
        write.events.iter().map(|event| event.reason.clone()).collect()
    };
    assert!(reasons(&writes[0]).contains(&"Preempted".to_owned()), "{:?}", reasons(&writes[0]));
    assert!(reasons(&writes[1]).contains(&"PreemptedWorkload".to_owned()), "{:?}", reasons(&writes[1]));
    assert!(decide(&mut scheduler, NOW).is_empty(), "the victim is evicted once");

    scheduler.outcome(writes[0].decision.clone(), refusal(422), NOW);
    assert!(decide(&mut scheduler, NOW).is_empty(), "a refused eviction is not repeated at once");
    let again = decide(&mut scheduler, NOW + REFUSED_FOR);
    assert_eq!(again.iter().map(|write| patched(write).0).collect::<Vec<_>>(), ["low"]);
}

#[test]
fn an_eviction_that_others_overtake_is_decided_again() {
    let low = workload("low", "3", 0);
    let mut scheduler = fed(std::slice::from_ref(&low));
    let writes = decide(&mut scheduler, NOW);
    let mut running = after(low, &writes[0]);
    scheduler.apply(event(&running, 2), NOW);
    scheduler.apply(event(&workload("high", "3", 10), 1), NOW);
    let writes = decide(&mut scheduler, NOW);
    assert_eq!((patched(&writes[0]).0, decision(&writes[0]).effect), ("low", Effect::Preemption));

    // Its pods become ready, which is seen before the eviction is known to have failed.
    running["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "type": "PodsReady", "status": "True",
        "reason": "Started", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z" }));
    scheduler.apply(event(&running, 3), NOW);
    scheduler.outcome(writes[0].decision.clone(), WriteOutcome::Conflict, NOW);
    let again = decide(&mut scheduler, NOW);
    let of_low = again.iter().find(|write| patched(write).0 == "low").expect("an eviction");
    assert_eq!((decision(of_low).base, decision(of_low).effect), (ResourceVersion(3), Effect::Preemption));
}

#[test]
fn preemptions_for_one_workload_are_a_series_of_events() {
    let low = [workload("a", "2", 0), workload("b", "2", 0)];
    let mut scheduler = fed(&low);
    for write in decide(&mut scheduler, NOW) {
        let object = low.iter().find(|own| own["metadata"]["name"] == patched(&write).0).unwrap();
        scheduler.apply(event(&after(object.clone(), &write), 2), NOW);
    }
    scheduler.apply(event(&workload("high", "4", 10), 1), NOW);
    let writes = decide(&mut scheduler, NOW);
    let of_preemptor = writes.iter().find(|write| patched(write).0 == "high").unwrap().events.iter();
    let preempted: Vec<&Event> = of_preemptor.filter(|event| event.reason == "PreemptedWorkload").collect();
    assert_eq!(preempted.len(), 2);
    assert_eq!(preempted[0], preempted[1], "as in client-go, with the text of the first");
}

#[test]
fn a_decision_that_replaces_an_earlier_one_has_its_events() {
    let low = workload("low", "3", 0);
    let mut scheduler = fed(std::slice::from_ref(&low));
    let writes = decide(&mut scheduler, NOW);
    scheduler.apply(event(&after(low, &writes[0]), 2), NOW);
    scheduler.apply(event(&workload("high", "3", 10), 1), NOW);
    let writes = decide(&mut scheduler, NOW);
    let waiting = &writes.iter().find(|write| patched(write).0 == "high").unwrap().events;
    assert!(!waiting.is_empty());

    // The victim is gone before that is written.
    scheduler.apply(SchedulerEvent::Workload(Update::Deleted(ObjectKey::new("ns", "low"))), NOW);
    let writes = decide(&mut scheduler, NOW);
    assert_eq!(admitted(&writes), ["high"]);
    assert_eq!(decision(&writes[0]).base, ResourceVersion(1));
    assert_eq!(writes[0].events[..waiting.len()], waiting[..]);
    assert!(writes[0].events.len() > waiting.len());
}

#[test]
fn limits_of_a_namespace_change_what_pending_workloads_request() {
    let mut plain = workload("a", "1", 0);
    plain["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] = json!({});
    let mut scheduler = fed(&[]);
    let range = json!({ "kind": "LimitRange", "metadata": { "name": "l", "namespace": "ns" }, "spec": { "limits": [
        { "type": "Container", "defaultRequest": { "cpu": "9" } }] } });
    scheduler.apply(event(&plain, 1), NOW);
    scheduler.apply(event(&range, 1), NOW);
    let writes = decide(&mut scheduler, NOW);
    assert_eq!(admitted(&writes), [""; 0]);
    assert_eq!(patched(&writes[0]).1["conditions"][0]["reason"], "ExceedsMaxQuota");
    scheduler.apply(SchedulerEvent::LimitRange(Update::Deleted(ObjectKey::new("ns", "l"))), NOW);
    let later = NOW + SignedDuration::from_secs(2);
    assert_eq!(admitted(&decide(&mut scheduler, later)), ["a"]);
}

#[test]
fn claims_of_devices_count_as_soon_as_their_template_is_there() {
    let claiming = |name: &str| {
        let mut object = workload(name, "1", 0);
        let spec = &mut object["spec"]["podSets"][0]["template"]["spec"];
        spec["resourceClaims"] = json!([{ "name": "c", "resourceClaimTemplateName": "t" }]);
        object
    };
    let mut configuration = QueueConfiguration::default();
    configuration.resources.device_class_mappings =
        vec![json!({ "name": "gpus", "deviceClassNames": ["gpu.example.com"] })];
    let mut scheduler = Scheduler::new(Arc::new(configuration), Gates::default());
    let mut queue = queue();
    let group = &mut queue[2]["spec"]["resourceGroups"][0];
    group["coveredResources"] = json!(["cpu", "gpus"]);
    group["flavors"][0]["resources"] =
        json!([{ "name": "cpu", "nominalQuota": "4" }, { "name": "gpus", "nominalQuota": "3" }]);
    for object in queue.iter().chain(&[claiming("a"), claiming("b")]) {
        scheduler.apply(event(object, 1), NOW);
    }
    let writes = decide(&mut scheduler, NOW);
    assert_eq!(admitted(&writes), [""; 0]);
    let reported = &patched(&writes[0]).1["conditions"][0];
    assert_eq!(reported["reason"], "Misconfigured");
    assert!(reported["message"].as_str().unwrap().contains("ResourceClaimTemplate t"), "{reported}");
    let template = json!({ "kind": "ResourceClaimTemplate", "metadata": { "name": "t", "namespace": "ns" },
        "spec": { "spec": { "devices": { "requests": [
            { "name": "r", "exactly": { "deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 2 } }] } } } });
    scheduler.apply(event(&template, 1), NOW);
    let later = NOW + SignedDuration::from_secs(2);
    assert_eq!(admitted(&decide(&mut scheduler, later)), ["a"], "there are devices for one of them");
}

#[test]
fn counters_of_devices_count_as_soon_as_their_pool_is_complete() {
    let mut configuration = QueueConfiguration::default();
    configuration.resources.device_class_mappings = vec![json!({ "name": "gpu.memory",
        "deviceClassNames": ["slice.example.com"], "sources": [{ "counter": {
            "name": "memory", "driver": "gpu.example.com", "deviceSelector": { "cel": { "expression": "true" } } } }] })];
    let mut scheduler = Scheduler::new(Arc::new(configuration), Gates::default());
    let mut queue = queue();
    let group = &mut queue[2]["spec"]["resourceGroups"][0];
    group["coveredResources"] = json!(["cpu", "gpu.memory"]);
    group["flavors"][0]["resources"] =
        json!([{ "name": "cpu", "nominalQuota": "4" }, { "name": "gpu.memory", "nominalQuota": "40Gi" }]);
    let mut claiming = workload("a", "1", 0);
    let spec = &mut claiming["spec"]["podSets"][0]["template"]["spec"];
    spec["resourceClaims"] = json!([{ "name": "c", "resourceClaimTemplateName": "t" }]);
    let template = json!({ "kind": "ResourceClaimTemplate", "metadata": { "name": "t", "namespace": "ns" },
        "spec": { "spec": { "devices": { "requests": [
            { "name": "r", "exactly": { "deviceClassName": "slice.example.com", "count": 2 } }] } } } });
    let slice = |name: &str| {
        json!({ "kind": "ResourceSlice", "metadata": { "name": name }, "spec": { "driver": "gpu.example.com",
            "pool": { "name": "p", "generation": 1, "resourceSliceCount": 2 }, "devices": [
                { "name": name, "consumesCounters": [
                    { "counterSet": "s", "counters": { "memory": { "value": "4864Mi" } } }] }] } })
    };
    let class = json!({ "kind": "DeviceClass", "metadata": { "name": "slice.example.com" }, "spec": {} });
    for object in queue.iter().chain(&[template, claiming, slice("one")]) {
        scheduler.apply(event(object, 1), NOW);
    }
    let writes = decide(&mut scheduler, NOW);
    assert!(
        patched(&writes[0]).1["conditions"][0]["message"]
            .as_str()
            .unwrap()
            .contains("failed to get DeviceClass")
    );
    scheduler.apply(event(&class, 1), NOW);
    let later = |seconds| NOW + SignedDuration::from_secs(seconds);
    assert_eq!(admitted(&decide(&mut scheduler, later(2))), [""; 0], "a slice of the pool is missing");
    scheduler.apply(event(&slice("two"), 1), NOW);
    let writes = decide(&mut scheduler, later(4));
    assert_eq!(admitted(&writes), ["a"]);
    let usage = &patched(&writes[0]).1["admission"]["podSetAssignments"][0]["resourceUsage"];
    assert_eq!(usage["gpu.memory"], "9728Mi", "{usage}");
}

#[test]
fn parents_of_variants_are_not_queued_and_use_no_quota() {
    let gates = Gates { concurrent_admission: true, ..Gates::default() };
    let mut scheduler = Scheduler::new(Arc::default(), gates);
    let mut queue = queue();
    queue[2]["spec"]["concurrentAdmissionPolicy"] = json!({ "migration": { "mode": "TryPreferredFlavors" } });
    let (mut parent, mut variant) = (workload("parent", "3", 0), workload("variant", "3", 0));
    variant["metadata"]["ownerReferences"] = json!([{ "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload", "name": "parent", "uid": "parent", "controller": true }]);
    // It is not labeled yet, and was there before the queue.
    scheduler.apply(event(&parent, 1), NOW);
    for object in &queue {
        scheduler.apply(event(object, 1), NOW);
    }
    assert_eq!(admitted(&decide(&mut scheduler, NOW)), [""; 0]);
    parent["metadata"]["labels"] = json!({ "kueue.x-k8s.io/concurrent-admission-parent": "true" });
    parent["status"] = json!({ "admission": { "clusterQueue": "cq", "podSetAssignments": [
            { "name": "main", "flavors": { "cpu": "default" }, "count": 1, "resourceUsage": { "cpu": "3" } }] },
        "conditions": [{ "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }] });
    scheduler.apply(event(&parent, 2), NOW);
    scheduler.apply(event(&variant, 1), NOW);
    assert_eq!(admitted(&decide(&mut scheduler, NOW)), ["variant"]);
}

#[test]
fn another_incarnation_starts_anew() {
    let mut scheduler = fed(&[workload("a", "3", 0)]);
    decide(&mut scheduler, NOW);
    let mut other = workload("a", "2", 0);
    other["metadata"]["uid"] = "another".into();
    scheduler.apply(event(&other, 7), NOW);
    let writes = decide(&mut scheduler, NOW);
    assert_eq!(admitted(&writes), ["a"]);
    let Action::Status { patch, .. } = &writes[0].action else { panic!() };
    assert_eq!((patch.uid.as_str(), patch.version), ("another", 7));
}

#[test]
fn decisions_stop_where_the_writer_has_no_room_and_go_on_later() {
    let workloads: Vec<Value> = (0..8).map(|number| workload(&format!("w{number}"), "500m", 0)).collect();
    let mut scheduler = fed(&workloads);
    assert_eq!(scheduler.decide(NOW, 3).len(), 3);
    assert_eq!(decide(&mut scheduler, NOW).len(), 5);
}

#[test]
fn a_rebuilt_index_is_the_same_whatever_the_order() {
    let mut objects = vec![workload("a", "3", 0), workload("b", "3", 0)];
    let mut scheduler = fed(&objects);
    for write in decide(&mut scheduler, NOW) {
        let object =
            objects.iter_mut().find(|object| object["metadata"]["name"] == patched(&write).0).unwrap();
        *object = after(object.clone(), &write);
        scheduler.apply(event(object, 2), NOW);
    }
    let mut rebuilt = scheduler.empty();
    for object in objects.iter().rev().chain(queue().iter().rev()) {
        rebuilt.apply(event(object, 2), NOW);
    }
    assert_eq!(rebuilt.fingerprint(), scheduler.fingerprint());
    let mut without = scheduler.empty();
    for object in &queue() {
        without.apply(event(object, 2), NOW);
    }
    assert_ne!(without.fingerprint(), scheduler.fingerprint());
}

/// A Workload of an elastic job with this many pods of one CPU.
fn slice(name: &str, count: i32, replaces: Option<&str>) -> Value {
    let mut slice = workload(name, "1", 0);
    slice["metadata"]["annotations"] = json!({ "kueue.x-k8s.io/elastic-job": "true" });
    if let Some(replaced) = replaces {
        slice["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-replacement-for"] =
            format!("ns/{replaced}").into();
    }
    slice["spec"]["podSets"][0]["count"] = count.into();
    slice
}

/// A scheduler with an admitted slice, and that.
fn with_admitted(slice: &Value) -> (Scheduler, Value) {
    let mut scheduler = fed(std::slice::from_ref(slice));
    let writes = decide(&mut scheduler, NOW);
    let held = after(slice.clone(), &writes[0]);
    scheduler.apply(event(&held, 2), NOW);
    (scheduler, held)
}

#[test]
fn a_slice_ends_after_the_admission_of_the_one_that_replaces_it_is_written() {
    let (mut scheduler, _) = with_admitted(&slice("first", 3, None));
    let second = slice("second", 4, Some("first"));
    scheduler.apply(event(&second, 1), NOW);
    let writes = decide(&mut scheduler, NOW);
    assert_eq!(writes.iter().map(|write| patched(write).0).collect::<Vec<_>>(), ["second"]);
    assert!(decide(&mut scheduler, NOW).is_empty(), "it is on its way");
    scheduler.apply(event(&after(second, &writes[0]), 2), NOW);
    let writes = decide(&mut scheduler, NOW);
    let (name, status) = patched(&writes[0]);
    let finished = status["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!((name, &finished["reason"]), ("first", &json!("WorkloadSliceReplaced")));
    assert_eq!(writes.len(), 1);
    assert!(decide(&mut scheduler, NOW).is_empty(), "once");
}

#[test]
fn others_are_tried_when_a_slice_shrinks() {
    let (mut scheduler, mut held) = with_admitted(&slice("first", 3, None));
    scheduler.apply(event(&workload("other", "2", 0), 1), NOW);
    assert_eq!(admitted(&decide(&mut scheduler, NOW)), [""; 0]);
    held["spec"]["podSets"][0]["count"] = json!(2);
    scheduler.apply(event(&held, 3), NOW);
    let later = NOW + SignedDuration::from_secs(2);
    assert_eq!(admitted(&decide(&mut scheduler, later)), ["other"]);
}

/// A slice of a job with a head and workers of one CPU each.
fn ray_slice(name: &str, replaces: Option<&str>, workers: i32, least: Option<i32>) -> Value {
    let set = |name: &str, count: i32| {
        json!({ "name": name, "count": count, "template": { "spec": { "containers": [
            { "name": "c", "resources": { "requests": { "cpu": "1" } } }] } } })
    };
    let mut slice = workload(name, "1", 0);
    slice["spec"]["podSets"] = json!([set("head", 1), set("workers", workers)]);
    let annotations = &mut slice["metadata"]["annotations"];
    *annotations = json!({ "kueue.x-k8s.io/elastic-job": "true" });
    if let Some(replaced) = replaces {
        annotations["kueue.x-k8s.io/workload-slice-replacement-for"] = format!("ns/{replaced}").into();
    }
    if let Some(least) = least {
        annotations["queue.quintet.dev/min-counts"] = format!("workers={least}").into();
    }
    slice
}

fn reserved(mut slice: Value, workers: i32) -> Value {
    let held = |name: &str, count: i32| {
        json!({ "name": name, "count": count, "flavors": { "cpu": "default" },
            "resourceUsage": { "cpu": count.to_string() } })
    };
    slice["status"] = json!({
        "conditions": [{ "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
            "lastTransitionTime": "1970-01-01T00:00:00Z" }],
        "admission": { "clusterQueue": "cq", "podSetAssignments": [held("head", 1), held("workers", workers)] } });
    slice
}

/// Who is admitted, with how many workers.
fn grants(scheduler: &mut Scheduler) -> Vec<(String, i64)> {
    let writes = decide(scheduler, NOW);
    let of_admission = writes.iter().filter(|write| decision(write).effect == Effect::Admission);
    of_admission
        .map(|write| {
            let (name, status) = patched(write);
            let sets = status["admission"]["podSetAssignments"].as_array().unwrap();
            let workers = sets.iter().find(|set| set["name"] == "workers").unwrap();
            assert_eq!(workers["resourceUsage"]["cpu"], workers["count"].to_string());
            (name.to_owned(), workers["count"].as_i64().unwrap())
        })
        .collect()
}

#[test]
fn a_slice_that_can_grow_partially_gets_what_there_is_quota_for() {
    let least = Some(0);
    // What there is, and who gets how many of 4 CPUs.
    let table = [
        (
            "as a whole or not at all",
            vec![reserved(ray_slice("a", None, 1, None), 1), ray_slice("b", Some("a"), 5, None)],
            None,
        ),
        (
            "as many as fit",
            vec![reserved(ray_slice("a", None, 1, least), 1), ray_slice("b", Some("a"), 5, least)],
            Some(("b", 3)),
        ),
        (
            "not what it has already",
            vec![reserved(ray_slice("a", None, 5, least), 3), ray_slice("b", Some("a"), 5, least)],
            None,
        ),
        ("at its start", vec![ray_slice("a", None, 5, Some(2))], Some(("a", 3))),
        ("not too few at its start", vec![ray_slice("a", None, 5, Some(4))], None),
        (
            "all of it",
            vec![reserved(ray_slice("a", None, 1, least), 1), ray_slice("b", Some("a"), 3, least)],
            Some(("b", 3)),
        ),
        (
            "nothing is free",
            vec![
                reserved(ray_slice("a", None, 1, least), 1),
                reserved(ray_slice("c", None, 1, least), 1),
                ray_slice("b", Some("a"), 5, least),
            ],
            None,
        ),
    ];
    for (what, objects, expected) in table {
        let found = grants(&mut fed(&objects));
        let expected: Vec<(String, i64)> =
            expected.into_iter().map(|(name, workers)| (name.to_owned(), workers)).collect();
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn the_rest_is_granted_when_quota_becomes_free() {
    let held = reserved(ray_slice("a", None, 5, Some(0)), 1);
    let mut scheduler =
        fed(&[held, reserved(ray_slice("c", None, 1, None), 1), ray_slice("b", Some("a"), 5, Some(0))]);
    assert!(grants(&mut scheduler).is_empty());
    scheduler.apply(SchedulerEvent::Workload(Update::Deleted(ObjectKey::new("ns", "c"))), NOW);
    assert_eq!(grants(&mut scheduler), [("b".to_owned(), 3)]);
}

/// A scheduler of LocalQueues that share by usage, which is sampled every minute and halves in ten.
fn sharing_by_usage(local_queue: &Value, version: u64) -> Scheduler {
    let configuration = json!({ "admissionFairSharing": {
        "usageHalfLifeTime": "10m", "usageSamplingInterval": "1m" } });
    let configuration = Arc::new(serde_json::from_value(configuration).unwrap());
    let mut scheduler = Scheduler::new(configuration, Gates::default());
    let [namespace, flavor, mut cluster_queue, _] = queue();
    cluster_queue["spec"]["admissionScope"] = json!({ "admissionMode": "UsageBasedAdmissionFairSharing" });
    for object in [namespace, flavor, cluster_queue] {
        scheduler.apply(event(&object, 1), NOW);
    }
    scheduler.apply(event(local_queue, version), NOW);
    scheduler
}

/// The status of the LocalQueue that is written now.
fn written_usage(scheduler: &mut Scheduler, now: Timestamp) -> Option<Value> {
    let writes = scheduler.decide(now, ROOM);
    let of_queue =
        |write: &&Write<Decided>| matches!(write.decision, Decided::Status(StatusOf::LocalQueue(_)));
    let write = writes.iter().find(of_queue)?;
    let status = patched(write).1["fairSharing"].clone();
    scheduler.outcome(write.decision.clone(), WriteOutcome::Written { version: None }, now);
    Some(status)
}

#[test]
fn usage_of_local_queues_is_sampled_and_recorded() {
    let mut local_queue = queue()[3].clone();
    let mut scheduler = sharing_by_usage(&local_queue, 1);
    let mut now = NOW + SignedDuration::from_secs(1);
    assert!(scheduler.decide(NOW, ROOM).is_empty());
    let recorded = written_usage(&mut scheduler, now).unwrap();
    let expected = json!({ "admissionFairSharingStatus": { "consumedResources": {},
        "lastUpdate": "1970-01-01T00:00:00Z" }, "weightedShare": 0 });
    assert_eq!(recorded, expected);
    local_queue["status"] = json!({ "fairSharing": recorded });

    let pending = workload("a", "3", 0);
    scheduler.apply(event(&local_queue, 2), now);
    scheduler.apply(event(&pending, 2), now);
    let writes = decide(&mut scheduler, now);
    scheduler.apply(event(&after(pending, &writes[0]), 3), now);
    for _ in 0..10 {
        now += SignedDuration::from_secs(60);
        written_usage(&mut scheduler, now);
    }
    let recorded = written_usage(&mut scheduler, now + SignedDuration::from_secs(1)).unwrap();
    let consumed = recorded["admissionFairSharingStatus"]["consumedResources"]["cpu"].as_str().unwrap();
    let consumed: quintet_api::Quantity = consumed.parse().unwrap();
    let least = |text: &str| text.parse::<quintet_api::Quantity>().unwrap();
    assert!(consumed > least("1500m") && consumed < least("1800m"), "half of 3, and the penalty: {consumed}");

    let sharing = &mut local_queue["status"]["fairSharing"];
    sharing["admissionFairSharingStatus"] = recorded["admissionFairSharingStatus"].clone();
    let mut restarted = sharing_by_usage(&local_queue, 4);
    restarted.decide(now, ROOM);
    let of = |scheduler: &Scheduler| scheduler.engine().consumed_by("ns", "lq").unwrap().0;
    assert_eq!(of(&restarted), of(&scheduler), "another process knows it");
}
