use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pod(spec: Value) -> core::Pod {
    serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap()
}

fn running(started: bool) -> Record {
    let state = ContainerState { id: "x".into(), attempt: 0, pid: 1, started_at: at(0), exit: None };
    Record { state: Some(state), is_started: started, ..Record::default() }
}

fn exited(code: i32, second: i64, times: u32) -> Record {
    let exit = Exit { code, signal: 0, finished_at: at(second), is_out_of_memory: false };
    let state = ContainerState {
        id: "x".into(),
        attempt: times - 1,
        pid: 1,
        started_at: at(second - 1),
        exit: Some(exit),
    };
    let mut backoff = Backoff::default();
    for _ in 0..times {
        backoff.ended(at(second - 1), at(second));
    }
    Record { state: Some(state), backoff, ..Record::default() }
}

fn decide(pod: &core::Pod, records: impl IntoIterator<Item = (&'static str, Record)>, second: i64) -> Steps {
    let records = records.into_iter().map(|(name, record)| (name.to_owned(), record)).collect();
    steps(pod, &records, at(second))
}

fn starts(names: &[(&str, u32)]) -> Steps {
    let step =
        |(name, attempt): &(&str, u32)| Step::Start { container: (*name).to_owned(), attempt: *attempt };
    Steps { steps: names.iter().map(step).collect(), ..Steps::default() }
}

fn stops(name: &str) -> Steps {
    Steps { steps: vec![Step::Stop { container: name.into() }], ..Steps::default() }
}

fn over() -> Steps {
    Steps { is_over: true, ..Steps::default() }
}

fn wakes(second: i64) -> Steps {
    Steps { wake: Some(at(second)), ..Steps::default() }
}

fn two() -> core::Pod {
    pod(json!({ "restartPolicy": "Never", "containers": [{ "name": "a" }, { "name": "b" }] }))
}

fn staged() -> core::Pod {
    pod(json!({
        "restartPolicy": "Never",
        "initContainers": [
            { "name": "i1" },
            { "name": "side1", "restartPolicy": "Always" },
            { "name": "i2" },
            { "name": "side2", "restartPolicy": "Always" },
        ],
        "containers": [{ "name": "main" }],
    }))
}

#[test]
fn regular_containers_start_together() {
    assert_eq!(decide(&two(), [], 0), starts(&[("a", 0), ("b", 0)]));
    assert_eq!(decide(&two(), [("a", running(true))], 0), starts(&[("b", 0)]));
}

#[test]
fn a_pod_is_over_when_all_its_containers_have_ended() {
    assert_eq!(decide(&two(), [("a", exited(0, 5, 1)), ("b", running(true))], 9), Steps::default());
    assert_eq!(decide(&two(), [("a", exited(1, 5, 1)), ("b", exited(0, 6, 1))], 9), over());
}

#[test]
fn init_containers_and_sidecars_start_in_order() {
    let done = || exited(0, 1, 1);
    assert_eq!(decide(&staged(), [], 2), starts(&[("i1", 0)]));
    assert_eq!(decide(&staged(), [("i1", running(true))], 2), Steps::default());
    assert_eq!(decide(&staged(), [("i1", done())], 2), starts(&[("side1", 0)]));
    assert_eq!(decide(&staged(), [("i1", done()), ("side1", running(false))], 2), Steps::default());
    assert_eq!(decide(&staged(), [("i1", done()), ("side1", running(true))], 2), starts(&[("i2", 0)]));
    let all = [("i1", done()), ("side1", running(true)), ("i2", done()), ("side2", running(true))];
    assert_eq!(decide(&staged(), all, 2), starts(&[("main", 0)]));
}

#[test]
fn a_failed_init_container_fails_the_pod_or_is_tried_again() {
    assert_eq!(decide(&staged(), [("i1", exited(1, 1, 1))], 2), over());
    let mut again = staged();
    again.spec.as_mut().unwrap().restart_policy = Some("OnFailure".into());
    assert_eq!(decide(&again, [("i1", exited(1, 1, 1))], 2), starts(&[("i1", 1)]));
    assert_eq!(decide(&again, [("i1", exited(1, 1, 2))], 2), wakes(11));
}

#[test]
fn sidecars_are_restarted_whatever_the_pod_says_and_stopped_last() {
    let run = |side1, side2, main| {
        let done = || exited(0, 1, 1);
        decide(
            &staged(),
            [("i1", done()), ("side1", side1), ("i2", done()), ("side2", side2), ("main", main)],
            100,
        )
    };
    assert_eq!(run(exited(0, 50, 1), running(true), running(true)), starts(&[("side1", 1)]));
    assert_eq!(run(running(true), running(true), exited(0, 60, 1)), stops("side2"));
    assert_eq!(run(running(true), exited(143, 70, 1), exited(0, 60, 1)), stops("side1"));
    assert_eq!(run(exited(143, 71, 1), exited(143, 70, 1), exited(0, 60, 1)), over());
}

#[test]
fn init_containers_are_not_run_again_once_the_pod_runs() {
    let records = [("i1", exited(0, 1, 1)), ("side1", exited(0, 99, 1)), ("main", running(true))];
    let found = decide(&staged(), records, 100);
    assert_eq!(found, starts(&[("side1", 1), ("side2", 0)]));
}

#[test]
fn restart_policies() {
    let case = |policy: &str, code| {
        let pod = pod(json!({ "restartPolicy": policy, "containers": [{ "name": "a" }] }));
        decide(&pod, [("a", exited(code, 5, 1))], 6)
    };
    for (policy, code, expected) in [
        ("Always", 0, starts(&[("a", 1)])),
        ("Always", 1, starts(&[("a", 1)])),
        ("OnFailure", 0, over()),
        ("OnFailure", 1, starts(&[("a", 1)])),
        ("Never", 0, over()),
        ("Never", 1, over()),
    ] {
        assert_eq!(case(policy, code), expected, "{policy} {code}");
    }
}

#[test]
fn rules_of_a_container_come_before_its_policy() {
    let rule = |action: &str, code: i32| json!({ "action": action, "exitCodes": { "operator": "In", "values": [code] } });
    let pod = pod(json!({ "restartPolicy": "Never", "containers": [{
        "name": "a",
        "restartPolicy": "Never",
        "restartPolicyRules": [rule("Restart", 42), rule("RestartAllContainers", 43)],
    }]}));
    for code in [42, 43] {
        assert_eq!(decide(&pod, [("a", exited(code, 5, 1))], 6), starts(&[("a", 1)]));
    }
    assert_eq!(decide(&pod, [("a", exited(1, 5, 1))], 6), over());
}

#[test]
fn restarts_wait_longer_every_time_up_to_five_minutes() {
    let pod = pod(json!({ "containers": [{ "name": "a" }] }));
    let wait =
        |times| decide(&pod, [("a", exited(1, 1000, times))], 1000).wake.map(|wake| wake.as_second() - 1000);
    let waits: Vec<Option<i64>> = (1..=8).map(wait).collect();
    let expected = [None, Some(10), Some(20), Some(40), Some(80), Some(160), Some(300), Some(300)];
    assert_eq!(waits, expected);
}

#[test]
fn a_long_run_resets_the_wait() {
    let mut backoff = Backoff::default();
    for second in [1, 2, 3] {
        backoff.ended(at(second), at(second));
    }
    assert_eq!(backoff.wait(), Duration::from_secs(20));
    backoff.ended(at(10), at(10 + 601));
    assert_eq!(backoff.wait(), Duration::ZERO);
}

#[test]
fn nothing_is_started_while_a_problem_is_waited_out() {
    let waiting = Waiting { reason: "ErrImagePull", message: "no such image".into(), until: at(20) };
    let record = Record { waiting: Some(waiting), ..Record::default() };
    assert_eq!(
        decide(&pod(json!({ "containers": [{ "name": "a" }] })), [("a", record.clone())], 10),
        wakes(20)
    );
    assert_eq!(
        decide(&pod(json!({ "containers": [{ "name": "a" }] })), [("a", record)], 20),
        starts(&[("a", 0)])
    );
}

#[test]
fn nothing_is_restarted_in_a_pod_that_is_being_deleted() {
    let mut pod = pod(json!({ "containers": [{ "name": "a" }] }));
    pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1)));
    assert_eq!(decide(&pod, [("a", exited(1, 5, 1))], 6), over());
}
