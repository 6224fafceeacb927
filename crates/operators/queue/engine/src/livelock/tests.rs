//! Two queues whose policies cause a livelock.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::LivelockDetector;
use crate::cycle::Outcome;
use crate::engine::Engine;
use crate::settings::Settings;
use crate::testing;
use crate::time::{Span, Time};
use crate::virtual_time::VirtualRun;
use crate::what_if::Change;

const NOW: Time = Time::from_secs(1_735_689_600);

/// An arriving workload: its queue, cores and priority.
type Job = (&'static str, i64, i32);

/// The last one preempts the third, which is of its own queue, but would borrow. One of the other queue is ordered
/// before it because of its priority, and the third reclaims from that.
const JOBS: [Job; 8] = [
    ("lent", 6, 2),
    ("owner", 2, 0),
    ("owner", 4, 0),
    ("owner", 1, 1),
    ("lent", 5, 2),
    ("owner", 1, 1),
    ("owner", 2, 2),
    ("owner", 5, 1),
];

fn groups(default: &Value, spot: i64) -> Value {
    let mut first = json!({ "name": "cpu" });
    first.as_object_mut().unwrap().extend(default.as_object().unwrap().clone());
    json!([{ "coveredResources": ["cpu"], "flavors": [
        { "name": "default", "resources": [first] },
        { "name": "spot", "resources": [{ "name": "cpu", "nominalQuota": spot.to_string() }] }] }])
}

fn queue(name: &str, default: i64, spot: i64, preemption: &Value) -> Value {
    json!({ "kind": "ClusterQueue", "metadata": { "name": name }, "spec": {
        "cohortName": "company", "namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO",
        "resourceGroups": groups(&json!({ "nominalQuota": default.to_string() }), spot), "preemption": preemption } })
}

fn owner(reclaim: &str) -> Value {
    queue("owner", 0, 6, &json!({ "withinClusterQueue": "LowerPriority", "reclaimWithinCohort": reclaim }))
}

/// The two queues with these jobs: some run already when the last ones come.
fn scene(settings: Settings, reclaim: &str, jobs: &[Job]) -> Engine {
    let local_queue = |name: &str| json!({ "kind": "LocalQueue", "metadata": { "namespace": "ns", "name": name }, "spec": { "clusterQueue": name } });
    let mut engine = testing::engine_with(
        settings,
        &[
            json!({ "kind": "ResourceFlavor", "metadata": { "name": "default" } }),
            json!({ "kind": "ResourceFlavor", "metadata": { "name": "spot" } }),
            json!({ "kind": "Cohort", "metadata": { "name": "company" }, "spec": {
                "resourceGroups": groups(&json!({ "nominalQuota": "2", "lendingLimit": "5" }), 4) } }),
            owner(reclaim),
            queue("lent", 3, 0, &json!({})),
            local_queue("owner"),
            local_queue("lent"),
        ],
    );
    for (number, (queue, cpu, priority)) in jobs.iter().enumerate() {
        let mut workload = testing::workload("ns", &format!("w{number}"), queue, *cpu);
        workload["spec"]["priority"] = (*priority).into();
        workload["metadata"]["creationTimestamp"] = format!("2024-12-01T00:00:{number:02}Z").into();
        testing::add(&mut engine, &workload);
        for _ in 0..[0, 0, 0, 1, 0, 2].get(number).copied().unwrap_or(0) {
            cycle(&mut engine);
        }
    }
    engine
}

/// One cycle whose evictions happen at once; returns whether there were any.
fn cycle(engine: &mut Engine) -> bool {
    let mut evicted = false;
    for decision in engine.schedule(NOW).decisions {
        if let Outcome::Unadmitted(unadmitted) = decision.outcome {
            for target in unadmitted.evict {
                evicted = true;
                engine.return_to_queue(target.workload, NOW);
            }
        }
    }
    engine.process_flushes(NOW, false);
    evicted
}

fn with_gate() -> Settings {
    let mut settings = Settings::default();
    settings.gates.prioritize_preemptors = true;
    settings
}

fn hour(engine: &Engine) -> crate::forecast::Forecast {
    engine.forecast(NOW, Span::secs(3600), &|_, _| None)
}

#[test]
fn a_forecast_reports_a_livelock_and_what_ends_it() {
    let engine = scene(Settings::default(), "Any", &JOBS);
    let forecast = hour(&engine);
    let livelock = forecast.livelock.unwrap();
    assert_eq!((livelock.since, livelock.occurrences), (NOW, 1));
    assert_eq!(
        livelock.message(&engine),
        "the preemption policies of owner, lent cause a livelock: ns/w0, ns/w2 would be preempted and admitted \
         repeatedly until another workload ends or arrives; the feature gate PrioritizePreemptorWorkloads, or another preemption policy \
         (withinClusterQueue, reclaimWithinCohort) of one of these queues can end it"
    );
    assert_eq!(forecast.starts[&testing::id(&engine, "ns", "w6")], Some(NOW), "not concerned");

    assert_eq!(hour(&scene(with_gate(), "Any", &JOBS)).livelock, None, "the feature gate ends it");
    assert_eq!(hour(&scene(Settings::default(), "Never", &JOBS)).livelock, None, "another policy ends it");
    let mut gated = scene(Settings::default(), "Any", &JOBS);
    gated.state.settings = with_gate();
    assert!(!livelock.message(&gated).contains("feature gate"), "which is on already");
}

#[test]
fn a_dry_run_reports_whether_a_change_causes_or_ends_a_livelock() {
    let livelocks = |now: &str, then: &str| {
        let mut engine = scene(Settings::default(), now, &JOBS);
        let changed = testing::queue(&mut engine, &owner(then));
        engine.what_if(&[Change::SetQueue(changed)], NOW).livelock.is_some()
    };
    assert!(livelocks("Never", "Any"), "the change causes it");
    assert!(!livelocks("Any", "Never"), "the change ends it");
}

/// As in a simulation, where inadmissible workloads are flushed a second after the event: they alternate by the second.
#[test]
fn virtual_time_goes_on_after_a_livelock() {
    let run_of = |length: Option<Span>| {
        let mut run = VirtualRun::new(scene(Settings::default(), "Any", &JOBS), NOW, false);
        run.engine.request_flush_all(NOW);
        let mut occurrences = 0;
        run.run_until_idle(&|_, _| length, &mut |_, _, _| {});
        while let Some(next) = run.next_at() {
            assert!(next > run.now && occurrences < 100, "{occurrences} occurrences until {next:?}");
            run.advance_to(next, &mut |_, _, _| {});
            run.run_until_idle(&|_, _| length, &mut |_, _, _| {});
            occurrences += 1;
        }
        run
    };
    let run = run_of(None);
    let livelock = run.livelock.unwrap();
    assert!(livelock.since > NOW, "it takes several periods to be detected");
    assert_eq!(livelock.occurrences, 1, "and nothing happens after that");
    let run = run_of(Some(Span::secs(60)));
    assert!(run.livelock.is_some());
    // Only those are left that ran at the beginning: they run forever.
    let left: Vec<&str> = run.engine.state.workloads().map(|(_, workload)| &*workload.key.name).collect();
    assert_eq!(left, ["w1", "w3", "w5"]);
}

/// No state returns, but there are more preemptions than a state of this size can need.
#[test]
fn too_many_preemptions_are_a_livelock() {
    let engine = scene(Settings::default(), "Any", &JOBS);
    let id = |name| testing::id(&engine, "ns", name);
    let mut detector = LivelockDetector::new(NOW);
    assert_eq!(detector.detect(&engine, true), None, "nothing was preempted");
    detector.preempted(&engine, id("w0"));
    for _ in 0..super::FEWEST_PREEMPTIONS - 1 {
        detector.preempted(&engine, id("w1"));
    }
    assert_eq!(detector.detect(&engine, false), None);
    detector.preempted(&engine, id("w1"));
    assert_eq!(detector.detect(&engine, false), Some([id("w1")].into()));
}

/// The same holders are not the same state: an inadmissible workload is not tried.
#[test]
fn the_fingerprint_contains_which_workloads_are_inadmissible() {
    let mut engine = scene(Settings::default(), "Never", &[("owner", 100, 0)]);
    engine.process_flushes(NOW, false);
    for _ in 0..3 {
        engine.schedule(NOW);
    }
    let inadmissible = engine.fingerprint(NOW);
    engine.schedule(NOW);
    assert_eq!(engine.fingerprint(NOW), inadmissible, "nothing is active");
    let id = engine.state.names.queues.get("owner").unwrap();
    engine.request_flush(id, NOW);
    assert_eq!(engine.process_flushes(NOW, false), 1);
    assert_ne!(engine.fingerprint(NOW), inadmissible, "now it is active");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Variations of the scene: a livelock is reported if and only if preemptions go on, cycle by cycle.
    #[test]
    fn a_livelock_is_reported_if_and_only_if_preemptions_never_end(
        changes in prop::collection::vec((0..JOBS.len(), 1i64..7, 0i32..3), 0..3),
    ) {
        let mut jobs = JOBS;
        for (at, cpu, priority) in changes {
            jobs[at] = (jobs[at].0, cpu, priority);
        }
        let mut engine = scene(Settings::default(), "Any", &jobs);
        let reported = hour(&engine).livelock.is_some();
        engine.request_flush_all(NOW);
        engine.process_flushes(NOW, false);
        let last = (0..120).filter(|_| cycle(&mut engine)).count();
        let goes_on = (0..30).any(|_| cycle(&mut engine));
        prop_assert_eq!(reported, goes_on, "after {} cycles that preempted", last);
    }
}
