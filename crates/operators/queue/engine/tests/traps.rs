//! The traps of the specification: where a straightforward reading goes wrong. One test each, by number.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is wrong")]

mod common;

use std::sync::Arc;

use common::*;
use quintet_queue_engine::internals::amount::Amount;
use quintet_queue_engine::internals::cycle::{Outcome, reserved_without_targets};
use quintet_queue_engine::internals::flavors::{FlavorMode, Granular, Mode, Progress, Subject};
use quintet_queue_engine::internals::queue::{Pending, RequeueReason};
use quintet_queue_engine::names::ResourceId;
use quintet_queue_engine::settings::{AdmissionFairSharing, Settings};
use quintet_queue_engine::time::Span;
use serde_json::{Value, json};

#[test]
fn trap_01_strict_fifo_blocks_on_check_errors_but_not_on_a_foreign_namespace() {
    let mut failed = pending("first", "cq", 1000, 10);
    failed["status"]["admissionChecks"] = json!([{ "name": "check", "state": "Retry", "message": "",
        "lastTransitionTime": "2024-12-31T23:00:00Z" }]);
    let objects = [
        flavor("default"),
        strict(queue("cq", "", 9, json!({}))),
        local_queue("cq"),
        failed,
        pending("second", "cq", 1000, 0),
    ];
    let mut engine = engine(Settings::default(), &objects);
    for _ in 0..3 {
        engine.schedule(NOW);
    }
    assert!(!is_admitted(&engine, "second"), "the failed head stays in front");

    let mut foreign = strict(queue("cq", "", 9, json!({})));
    foreign["spec"]["namespaceSelector"] = json!({ "matchLabels": { "team": "a" } });
    let mut other = common::engine(
        Settings::default(),
        &[flavor("default"), foreign, local_queue("cq"), pending("w", "cq", 1000, 0)],
    );
    other.schedule(NOW);
    assert_eq!(pending_queue(&other, "cq").counts(), (0, 1), "a foreign namespace steps aside");
}

#[test]
fn trap_02_a_flush_reaches_the_whole_tree_and_what_is_in_flight() {
    let objects = [
        flavor("default"),
        queue("a", "all", 1, json!({})),
        queue("b", "all", 1, json!({})),
        local_queue("a"),
        local_queue("b"),
        admitted("holder", "a", 2000, 0),
        pending("wb", "b", 2000, 0),
    ];
    let mut engine = engine(Settings::default(), &objects);
    engine.process_flushes(NOW, false);
    engine.schedule(NOW);
    assert_eq!(pending_queue(&engine, "b").counts(), (0, 1));
    remove(&mut engine, "holder");
    assert_eq!(engine.process_flushes(NOW, true), 0, "not before a second has passed");
    assert_eq!(engine.process_flushes(NOW + Span::secs(1), true), 1, "an event of queue a flushes queue b");

    // Popped before the flush, requeued after it: back to the active ones.
    let heads = engine.take_heads(NOW, &|_, _| true);
    let queue = queue_id(&engine, "b");
    engine.flush(queue, NOW);
    let workload = Arc::clone(engine.state().workload(heads[0].id).unwrap());
    let settings = engine.state().settings.clone();
    let reason = quintet_queue_engine::internals::queue::RequeueReason::NoFit;
    let pending = engine.pending_mut(queue).unwrap();
    pending.requeue(heads[0].id, Pending::new(workload), reason, None, (&settings, NOW));
    assert_eq!(pending.counts(), (1, 0));
}

#[test]
fn trap_03_hashing_makes_arrivals_inadmissible_until_the_next_flush_and_never_in_strict_fifo() {
    for (make_strict, expected) in [(false, (0, 3)), (true, (3, 0))] {
        let cq = queue("cq", "", 1, json!({}));
        let cq = if make_strict { strict(cq) } else { cq };
        let objects = [
            flavor("default"),
            cq,
            local_queue("cq"),
            pending("a", "cq", 5000, 0),
            pending("b", "cq", 5000, 0),
        ];
        let mut engine = engine(Settings::default(), &objects);
        engine.schedule(NOW);
        add(&mut engine, &pending("c", "cq", 5000, 0));
        assert_eq!(pending_queue(&engine, "cq").counts(), expected);
        let queue = queue_id(&engine, "cq");
        engine.flush(queue, NOW);
        assert_eq!(pending_queue(&engine, "cq").counts(), (3, 0), "a flush forgets the shape");
    }
}

#[test]
fn trap_04_a_skipped_fit_resumes_at_the_next_flavor() {
    let objects = [
        flavor("one"),
        flavor("two"),
        flavored("a", "all", &[("one", 1), ("two", 1)]),
        flavored("b", "all", &[("one", 0), ("two", 1)]),
        local_queue("a"),
        local_queue("b"),
        pending("wa", "a", 1000, 10),
        pending("wb", "b", 1000, 0),
    ];
    let mut engine = engine(Settings::default(), &objects);
    let first = engine.schedule(NOW);
    assert_eq!(first.admitted(), 1, "both want flavor one and only one gets it");
    engine.schedule(NOW);
    let workload = engine.state().workload(id(&engine, "wb")).unwrap();
    let flavor = workload.admission.as_ref().unwrap().pod_sets[0].flavors[0].1;
    assert_eq!(engine.state().names.flavor_name(flavor), "two");
}

#[test]
fn trap_05_progress_is_the_last_attempted_flavor_and_the_last_of_all_is_minus_one() {
    let mut cq = flavored("cq", "", &[("one", 5), ("two", 0), ("three", 0)]);
    cq["spec"]["flavorFungibility"] =
        json!({ "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor" });
    let objects =
        [flavor("one"), flavor("two"), flavor("three"), cq, local_queue("cq"), pending("w", "cq", 5000, 0)];
    let mut engine = engine(Settings::default(), &objects);
    let (assignment, _) = evaluated(&mut engine, "w", "cq");
    assert_eq!(assignment.progress.tried, [[(ResourceId::CPU, 0)]]);
    assert!(assignment.progress.has_pending_flavors());
    let all = Progress { tried: vec![vec![(ResourceId::CPU, -1)]], ..Progress::default() };
    assert!(!all.has_pending_flavors(), "nothing left to try, nothing to hurry for");
}

#[test]
fn trap_06_no_candidates_is_preempt_mode_and_reserves() {
    let objects = [
        flavor("default"),
        queue("a", "all", 2, json!({ "reclaimWithinCohort": "LowerPriority" })),
        queue("b", "all", 0, json!({})),
        local_queue("a"),
        local_queue("b"),
        admitted("holder", "b", 1000, 100),
        pending("wa", "a", 2000, 0),
        pending("wb", "b", 1000, 0),
    ];
    let mut engine = engine(Settings::default(), &objects);
    let (assignment, targets) = evaluated(&mut engine, "wa", "a");
    assert_eq!((assignment.mode(), targets), (Mode::Preempt, 0));
    let report = engine.schedule(NOW);
    assert_eq!(unadmitted(&engine, &report, "wa").unwrap().0, "WaitingForQuota");
    assert!(!is_admitted(&engine, "wb"), "the reservation keeps the borrower out");
}

#[test]
fn trap_07_borrowing_over_preemption_ranks_the_preemption_mode_first() {
    let fits_borrowing = Granular { mode: FlavorMode::Fit, height: 1 };
    let preempts_at_home = Granular { mode: FlavorMode::Preempt, height: 0 };
    assert!(fits_borrowing.is_better_than(preempts_at_home, false));
    assert!(preempts_at_home.is_better_than(fits_borrowing, true));
}

#[test]
fn trap_08_victims_count_as_gone_for_fits_but_keep_their_usage() {
    let policy = json!({ "withinClusterQueue": "LowerPriority" });
    let objects = [
        flavor("default"),
        queue("cq", "", 2, policy),
        local_queue("cq"),
        admitted("low", "cq", 2000, 0),
        pending("high", "cq", 2000, 10),
    ];
    let mut engine = engine(Settings::default(), &objects);
    let report = engine.schedule(NOW);
    assert_eq!(preempted(&engine, &report), [("low".to_owned(), "InClusterQueue")]);
    let (node, fr) = (node(&engine, "cq"), fr(&mut engine, "cpu"));
    assert_eq!(engine.state().tree.usage(node, fr), 2000, "until the eviction has happened");
}

#[test]
fn trap_09_a_preempting_workload_takes_room_although_it_is_not_admitted() {
    let objects = [
        flavor("default"),
        queue("a", "all", 2, json!({ "withinClusterQueue": "LowerPriority" })),
        queue("b", "all", 0, json!({})),
        local_queue("a"),
        local_queue("b"),
        admitted("low", "a", 1000, 0),
        pending("high", "a", 2000, 10),
        pending("wb", "b", 1000, 0),
    ];
    let mut engine = engine(Settings::default(), &objects);
    engine.schedule(NOW);
    assert!(!is_admitted(&engine, "wb"), "the free core is spoken for");
}

#[test]
fn trap_10_a_reservation_over_the_borrowing_limit_is_negative() {
    let groups = json!([{ "coveredResources": ["cpu"], "flavors": [{ "name": "default", "resources": [
        { "name": "cpu", "nominalQuota": "1", "borrowingLimit": "1" }] }] }]);
    let objects = [
        flavor("default"),
        queue_with("cq", "all", &groups),
        queue("lender", "all", 9, json!({})),
        local_queue("cq"),
        admitted("over", "cq", 5000, 0),
        pending("w", "cq", 1000, 0),
    ];
    let mut engine = engine(Settings::default(), &objects);
    let (mut assignment, _) = evaluated(&mut engine, "w", "cq");
    assignment.borrowing = 1;
    assignment.set_mode(Mode::Preempt);
    assignment.usage = vec![(fr(&mut engine, "cpu"), Amount::new(1000))];
    let queue = Arc::clone(engine.state().queue(queue_id(&engine, "cq")).unwrap());
    assert_eq!(reserved_without_targets(&assignment, engine.state(), &queue)[0].1, -3000);
    assignment.borrowing = 0;
    assert_eq!(reserved_without_targets(&assignment, engine.state(), &queue)[0].1, 0);
}

#[test]
fn trap_11_the_search_for_targets_does_not_know_the_implicit_pods() {
    let groups = json!([{ "coveredResources": ["cpu", "pods"], "flavors": [{ "name": "default", "resources": [
        { "name": "cpu", "nominalQuota": "9" }, { "name": "pods", "nominalQuota": "1" }] }] }]);
    let mut engine = engine(
        Settings::default(),
        &[flavor("default"), queue_with("cq", "", &groups), local_queue("cq"), pending("w", "cq", 1000, 0)],
    );
    let (assignment, _) = evaluated(&mut engine, "w", "cq");
    assert_eq!(assignment.usage.len(), 2, "quota counts the pods");
    let workload = Arc::clone(engine.state().workload(id(&engine, "w")).unwrap());
    let subject = Subject::new(workload, queue_id(&engine, "cq"), 1);
    assert_eq!(assignment.total_requests(&subject, false).len(), 1, "the need does not");
}

#[test]
fn trap_12_affinity_counts_only_for_labels_the_flavor_has() {
    let mut spot = flavor("default");
    spot["spec"] = json!({ "nodeLabels": { "kind": "spot" } });
    for (key, value, fits) in [("kind", "spot", true), ("kind", "fixed", false), ("zone", "anywhere", true)] {
        let mut workload = pending("w", "cq", 1000, 0);
        workload["spec"]["podSets"][0]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"] =
            json!([{ "matchExpressions": [{ "key": key, "operator": "In", "values": [value] }] }]);
        let objects = [spot.clone(), queue("cq", "", 1, json!({})), local_queue("cq"), workload];
        let mut engine = engine(Settings::default(), &objects);
        assert_eq!(engine.schedule(NOW).admitted() == 1, fits, "{key}={value}");
    }
}

#[test]
fn trap_13_hierarchical_advantage_allows_any_priority_within_the_own_subtree() {
    let cohort = |name: &str, parent: &str| json!({ "kind": "Cohort", "metadata": { "name": name }, "spec": { "parentName": parent } });
    let objects = [
        flavor("default"),
        cohort("left", "root"),
        cohort("right", "root"),
        queue("a", "left", 2, json!({ "reclaimWithinCohort": "Any" })),
        queue("b", "right", 0, json!({})),
        local_queue("a"),
        local_queue("b"),
        admitted("high", "b", 2000, 1000),
        pending("low", "a", 2000, 0),
    ];
    let mut engine = engine(Settings::default(), &objects);
    let report = engine.schedule(NOW);
    assert_eq!(preempted(&engine, &report), [("high".to_owned(), "InCohortReclamation")]);
}

#[test]
fn trap_14_fill_back_gives_back_all_but_the_last_candidate() {
    let objects = [
        flavor("default"),
        queue("cq", "", 4, json!({ "withinClusterQueue": "LowerPriority" })),
        local_queue("cq"),
        admitted("small", "cq", 1000, 0),
        admitted("large", "cq", 3000, 1),
        pending("high", "cq", 3000, 10),
    ];
    let mut engine = engine(Settings::default(), &objects);
    let report = engine.schedule(NOW);
    assert_eq!(
        preempted(&engine, &report),
        [("large".to_owned(), "InClusterQueue")],
        "the first is not needed after all"
    );
}

#[test]
fn trap_15_shares_use_what_the_parent_can_lend_and_weightless_borrowers_come_last() {
    let mut weightless = queue("a", "all", 0, json!({}));
    weightless["spec"]["fairSharing"] = json!({ "weight": "0" });
    let objects =
        [flavor("default"), weightless, queue("b", "all", 0, json!({})), queue("c", "all", 10, json!({}))];
    let mut engine = engine(fair(), &objects);
    let fr = fr(&mut engine, "cpu");
    for (name, used) in [("a", 1000), ("b", 5000)] {
        let node = node(&engine, name);
        engine.state_mut().tree.add_all(node, &vec![(fr, Amount::new(used))]);
    }
    let (a, b) = (engine.state().share(node(&engine, "a")), engine.state().share(node(&engine, "b")));
    assert_eq!((a.rounded(), b.rounded()), (i64::MAX, 500));
    assert!(a.compare(&b).is_gt());
}

#[test]
fn trap_16_in_fair_order_the_head_of_a_queue_wins_over_its_second_pass() {
    let mut objects = cluster(&[HOST], &[("x1", 4), ("x2", 4)]);
    let mut broken = admitted("broken", "cq", 1000, 0);
    broken["spec"]["podSets"][0]["topologyRequest"] = json!({ "preferred": HOST });
    broken["status"]["unhealthyNodes"] = json!([{ "name": "x1" }]);
    broken["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = json!({
        "levels": [HOST], "slices": [{ "domainCount": 1, "podCounts": { "universal": 1 },
            "valuesPerLevel": [{ "universal": "x1" }] }] });
    objects.push(broken);
    objects.push(with_topology(1, json!({ "preferred": HOST })));
    let mut engine = engine(fair(), &objects);
    let second_pass = id(&engine, "broken");
    assert!(engine.queue_second_pass(second_pass, 0, NOW));
    engine.make_second_passes_due();
    let report = engine.schedule(NOW);
    assert_eq!((report.heads, report.admitted()), (2, 1));
    let decision = report.decisions.iter().find(|decision| decision.workload == second_pass).unwrap();
    assert!(matches!(&decision.outcome, Outcome::Unadmitted(unadmitted) if unadmitted.second_pass_failed));
}

#[test]
fn trap_17_local_queue_usage_goes_before_stickiness() {
    let settings = Settings {
        admission_fair_sharing: Some(AdmissionFairSharing {
            half_life: Span::secs(10),
            sampling_interval: Span::secs(1),
            resource_weights: std::collections::BTreeMap::new(),
        }),
        ..Settings::default()
    };
    let mut cq = queue("cq", "", 1, json!({}));
    cq["spec"]["admissionScope"] = json!({ "admissionMode": "UsageBasedAdmissionFairSharing" });
    let mut other = local_queue("cq");
    other["metadata"]["name"] = "idle".into();
    let mut idle = pending("idle", "cq", 1000, 0);
    idle["spec"]["queueName"] = "idle".into();
    let mut engine = engine(
        settings,
        &[flavor("default"), cq, local_queue("cq"), other, pending("busy", "cq", 1000, 100), idle],
    );
    let busy = engine.state_mut().names.local_queues.intern("ns/cq");
    let used = [(ResourceId::CPU, "5".parse().unwrap())].into_iter().collect();
    engine.state_mut().afs.set(busy, used, NOW);
    engine.schedule(NOW);
    assert!(is_admitted(&engine, "idle") && !is_admitted(&engine, "busy"));
}

#[test]
fn trap_18_an_eviction_is_issued_once() {
    let objects = [
        flavor("default"),
        queue("cq", "", 2, json!({ "withinClusterQueue": "LowerPriority" })),
        local_queue("cq"),
        admitted("low", "cq", 2000, 0),
        pending("high", "cq", 2000, 10),
    ];
    let mut engine = engine(Settings::default(), &objects);
    let first = engine.schedule(NOW);
    assert_eq!(preempted(&engine, &first).len(), 1);
    let second = engine.schedule(NOW);
    assert_eq!(preempted(&engine, &second), [], "it is in progress");
    let Outcome::Unadmitted(unadmitted) = &second.decisions[0].outcome else { panic!("still waits") };
    assert_eq!(unadmitted.already_evicted, 1);
    assert!(unadmitted.message.ends_with("Pending the preemption of 1 workload(s)"));
    let victim = id(&engine, "low");
    engine.preemption_failed(victim);
    let third = engine.schedule(NOW);
    assert_eq!(preempted(&engine, &third).len(), 1, "the write failed, so it is asked for again");
}

#[test]
fn trap_19_pods_that_are_not_ready_block_admission() {
    let settings = Settings { block_admission: true, ..Settings::default() };
    let objects = [
        flavor("default"),
        queue("cq", "", 9, json!({})),
        local_queue("cq"),
        admitted("starting", "cq", 1000, 0),
        pending("w", "cq", 1000, 0),
    ];
    let mut engine = engine(settings, &objects);
    let report = engine.schedule(NOW);
    assert_eq!(report.decisions[0].outcome, Outcome::WaitingForPodsReady);
    let mut ready = admitted("starting", "cq", 1000, 0);
    ready["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "type": "PodsReady", "status": "True",
        "lastTransitionTime": "2024-12-31T23:00:00Z" }));
    add(&mut engine, &ready);
    assert_eq!(engine.schedule(NOW).admitted(), 1);
}

#[test]
fn what_waited_for_pods_goes_first_once_they_are_gone() {
    let settings = Settings { block_admission: true, ..Settings::default() };
    let objects = [
        flavor("default"),
        queue("cq", "", 9, json!({})),
        local_queue("cq"),
        admitted("starting", "cq", 1000, 100),
        pending("w", "cq", 1000, 0),
    ];
    let mut engine = engine(settings, &objects);
    assert_eq!(engine.schedule(NOW).decisions[0].outcome, Outcome::WaitingForPodsReady);
    // It was evicted, and would be admitted again before the other.
    add(&mut engine, &pending("starting", "cq", 1000, 100));
    let report = engine.schedule(NOW);
    let outcome = |name: &str| {
        let id = id(&engine, name);
        &report.decisions.iter().find(|decision| decision.workload == id).unwrap().outcome
    };
    assert!(matches!(outcome("w"), Outcome::Admitted(_)), "{report:?}");
    assert_eq!(*outcome("starting"), Outcome::WaitingForPodsReady);
}

#[test]
fn trap_20_nodes_are_filled_by_what_pods_request() {
    // Quota ignores the resource the queue does not declare, nodes do not.
    let settings = Settings {
        quota_check: quintet_queue_engine::settings::QuotaCheck::IgnoreUndeclared,
        ..Settings::default()
    };
    let mut objects = cluster(&[HOST], &[("x1", 4)]);
    let mut workload = with_topology(1, json!({ "required": HOST }));
    workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["gpu"] =
        "1".into();
    objects.push(workload);
    let mut engine = engine(settings, &objects);
    assert_eq!(engine.schedule(NOW).admitted(), 0, "no node has a gpu");
}

#[test]
fn trap_21_unconstrained_takes_the_tightest_domain_and_implied_counts_as_unconstrained() {
    for request in [json!({ "unconstrained": true }), Value::Null] {
        let mut objects = cluster(&["block", HOST], &[("b1/x1", 8), ("b1/x2", 2), ("b2/x3", 3)]);
        objects.push(with_topology(2, request));
        let mut engine = engine(Settings::default(), &objects);
        engine.schedule(NOW);
        assert_eq!(places(&engine).unwrap(), [("x2".to_owned(), 2)]);
    }
}

#[test]
fn trap_22_above_the_slice_level_children_of_all_parents_compete() {
    let mut objects = cluster(&["block", HOST], &[("b1/x1", 3), ("b1/x3", 3), ("b1/x5", 3), ("b2/x6", 6)]);
    let request = json!({ "preferred": "block", "podSetSliceRequiredTopology": HOST, "podSetSliceSize": 3 });
    objects.push(with_topology(12, request));
    let mut engine = engine(Settings::default(), &objects);
    engine.schedule(NOW);
    assert_eq!(
        places(&engine).unwrap(),
        [("x1".to_owned(), 3), ("x3".to_owned(), 3), ("x6".to_owned(), 6)],
        "b1 alone would have taken nine"
    );
}

#[test]
fn trap_23_taints_do_not_count_where_leaves_are_not_hosts() {
    for (levels, path, fits) in [(&["block"][..], "b1", true), (&[HOST][..], "x1", false)] {
        let mut objects = cluster(levels, &[(path, 4)]);
        let node = objects.last_mut().unwrap();
        node["spec"]["taints"] = json!([{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }]);
        objects.push(with_topology(1, json!({ "required": levels[0] })));
        let mut engine = engine(Settings::default(), &objects);
        assert_eq!(engine.schedule(NOW).admitted() == 1, fits, "{levels:?}");
    }
}

#[test]
fn trap_24_a_stopped_queue_still_lends_and_its_usage_counts() {
    let mut stopped = queue("stopped", "all", 4, json!({}));
    stopped["spec"]["stopPolicy"] = "Hold".into();
    let objects = [
        flavor("default"),
        stopped,
        queue("a", "all", 0, json!({})),
        local_queue("a"),
        local_queue("stopped"),
        admitted("holder", "stopped", 2000, 0),
        pending("fits", "a", 2000, 10),
        pending("not", "a", 1000, 0),
    ];
    let mut engine = engine(Settings::default(), &objects);
    engine.schedule(NOW);
    engine.schedule(NOW);
    assert!(is_admitted(&engine, "fits") && !is_admitted(&engine, "not"));
}

#[test]
fn trap_25_updating_a_holder_is_removing_and_adding_it() {
    let mut objects = cluster(&[HOST], &[("x1", 4)]);
    objects.push(with_topology(2, json!({ "required": HOST })));
    let mut engine = engine(Settings::default(), &objects);
    engine.schedule(NOW);
    let generation = engine.state().tree.generation(node(&engine, "cq"));
    let workload = engine.state().workload(id(&engine, "w")).unwrap().as_ref().clone();
    for _ in 0..3 {
        engine.set_workload(workload.clone(), NOW);
    }
    assert_eq!(engine.state().tree.generation(node(&engine, "cq")), generation + 3);
    let flavor = engine.state().names.flavors.get("default").unwrap();
    let tas = engine.state().tas.flavor(flavor).unwrap();
    let used = engine.state().tas.leaf_usage(tas, 0).unwrap();
    assert_eq!((used.get(ResourceId::CPU), used.get(ResourceId::PODS)), (2000, 2), "counted once");
}

#[test]
fn trap_19_blocks_after_every_admission_whose_pods_are_not_ready() {
    let settings = Settings { block_admission: true, ..Settings::default() };
    let objects = [
        flavor("default"),
        queue("a", "", 9, json!({})),
        queue("b", "", 9, json!({})),
        local_queue("a"),
        local_queue("b"),
        pending("first", "a", 1000, 10),
        pending("second", "b", 1000, 0),
    ];
    let mut engine = engine(settings, &objects);
    let report = engine.schedule(NOW);
    assert_eq!(report.admitted(), 1, "what was just admitted is not ready yet");
    assert_eq!(report.decisions[1].outcome, Outcome::WaitingForPodsReady);
    assert_eq!(pending_queue(&engine, "b").counts(), (1, 0), "and the next one stays at the front");
}

#[test]
fn trap_19_counts_reservations_as_well_as_admissions() {
    let settings = Settings { block_admission: true, ..Settings::default() };
    let mut reserved = admitted("reserved", "cq", 1000, 0);
    reserved["status"]["conditions"].as_array_mut().unwrap().pop();
    let objects = [
        flavor("default"),
        queue("cq", "", 9, json!({})),
        local_queue("cq"),
        reserved,
        pending("w", "cq", 1000, 0),
    ];
    let mut engine = engine(settings, &objects);
    assert_eq!(engine.schedule(NOW).decisions[0].outcome, Outcome::WaitingForPodsReady);
    remove(&mut engine, "reserved");
    assert_eq!(engine.schedule(NOW).admitted(), 1);
}

#[test]
fn a_preemptor_whose_evictions_all_failed_does_not_wait_for_them() {
    let objects = [
        flavor("default"),
        queue("cq", "", 2, json!({ "withinClusterQueue": "LowerPriority" })),
        local_queue("cq"),
        admitted("one", "cq", 1000, 0),
        admitted("two", "cq", 1000, 0),
        pending("high", "cq", 2000, 10),
    ];
    for failing in [1, 2] {
        let mut engine = engine(Settings::default(), &objects);
        let mut report = engine.schedule(NOW);
        let preemptor = id(&engine, "high");
        let victims: Vec<_> = ["one", "two"].iter().map(|name| id(&engine, name)).take(failing).collect();
        engine.preemptions_failed(&mut report.decisions[0], &victims);
        let Outcome::Unadmitted(outcome) = &report.decisions[0].outcome else { panic!("it waits") };
        assert_eq!(outcome.evict.len(), 2 - failing);
        let (end, reason) = if failing == 2 {
            (". Preempting 2 workload(s) failed, will retry.", RequeueReason::PreemptionFailed)
        } else {
            (". Pending the preemption of 1 workload(s)", RequeueReason::PendingPreemption)
        };
        assert!(outcome.message.ends_with(end), "{}", outcome.message);
        assert_eq!(outcome.requeue, reason);
        assert_eq!(pending_queue(&engine, "cq").is_sticky(preemptor), failing == 1);
        assert_eq!(pending_queue(&engine, "cq").counts(), (1, 0));
        assert_eq!(preempted(&engine, &engine.clone().schedule(NOW)).len(), failing, "asked for again");
    }
}

#[test]
fn a_multikueue_check_that_lists_every_flavor_is_for_all() {
    let listed = |flavors: &[&str]| {
        let mut cq = flavored("cq", "", &[("one", 1), ("two", 1)]);
        cq["spec"]["admissionChecksStrategy"] =
            json!({ "admissionChecks": [{ "name": "remote", "onFlavors": flavors }] });
        let mut engine = engine(Settings::default(), &[flavor("one"), flavor("two"), cq]);
        let check = quintet_queue_engine::internals::state::CheckInfo {
            active: true,
            controller: quintet_api::kueue::metadata::MULTIKUEUE_CONTROLLER.into(),
        };
        engine.set_check("remote".into(), Some(check), NOW);
        engine.state().is_queue_active(queue_id(&engine, "cq"))
    };
    assert!(listed(&[]) && listed(&["two", "one"]));
    assert!(!listed(&["one"]));
}

#[test]
fn generations_change_only_where_something_could_be_allocated_differently() {
    let objects = [
        flavor("default"),
        queue("a", "left", 1, json!({})),
        queue("b", "left", 1, json!({})),
        queue("c", "right", 1, json!({})),
    ];
    let mut engine = engine(Settings::default(), &objects);
    let generations = |engine: &quintet_queue_engine::Engine| {
        ["a", "b", "c"].map(|name| engine.state().tree.generation(node(engine, name)))
    };
    let before = generations(&engine);
    add(&mut engine, &queue("a", "left", 1, json!({ "withinClusterQueue": "LowerPriority" })));
    assert_eq!(generations(&engine), before, "policies allocate nothing");
    add(&mut engine, &queue("a", "left", 2, json!({})));
    let after = generations(&engine);
    assert!(after[0] > before[0] && after[1] > before[1]);
    assert_eq!(after[2], before[2], "another tree");
    let cohort = json!({ "kind": "Cohort", "metadata": { "name": "right" }, "spec": {} });
    add(&mut engine, &cohort);
    let last = generations(&engine);
    assert_eq!(last[..2], after[..2]);
    assert!(last[2] > after[2]);
    add(&mut engine, &cohort);
    assert_eq!(generations(&engine), last, "the same again");
}

#[test]
fn a_replaced_slice_of_any_size_overflows_nothing() {
    use quintet_queue_engine::internals::flavors::Replaced;
    let objects =
        [flavor("default"), queue("cq", "", 9, json!({})), local_queue("cq"), pending("w", "cq", 1000, 0)];
    let mut engine = engine(Settings::default(), &objects);
    let (assignment, _) = evaluated(&mut engine, "w", "cq");
    let workload = Arc::clone(engine.state().workload(id(&engine, "w")).unwrap());
    for (own, replaced, total) in [(3, 1, 2), (i32::MAX, i32::MIN, 3), (i32::MIN, i32::MAX, 3)] {
        let mut subject = Subject::new(Arc::clone(&workload), queue_id(&engine, "cq"), 1);
        subject.demands[0].count = own;
        subject.demands[0].requests.set(ResourceId::CPU, 3000);
        let mut demands = subject.demands.clone();
        demands[0].count = replaced;
        subject.replaced = Some(Replaced { id: id(&engine, "w"), workload: Arc::clone(&workload), demands });
        let usage = assignment.total_requests(&subject, false);
        assert_eq!(usage.first().map_or(0, |(_, value)| value.get()), total * 1000, "{own} after {replaced}");
    }
}
