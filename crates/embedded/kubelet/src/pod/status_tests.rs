use serde_json::{Value, json};

use super::*;
use crate::pod::lifecycle::{Backoff, Waiting};
use crate::shim::protocol::Exit;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pod(spec: Value) -> core::Pod {
    let metadata = json!({ "name": "p", "namespace": "team", "uid": "u-1", "generation": 3 });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

fn running(is_ready: bool) -> Record {
    let state = ContainerState { id: "c0".into(), attempt: 0, pid: 1, started_at: at(1), exit: None };
    Record { state: Some(state), is_started: true, is_ready, ..Record::default() }
}

fn exited(code: i32, times: u32) -> Record {
    let exit = Exit { code, signal: 0, finished_at: at(5), is_out_of_memory: false };
    let state =
        ContainerState { id: "c0".into(), attempt: times - 1, pid: 1, started_at: at(1), exit: Some(exit) };
    let mut backoff = Backoff::default();
    for _ in 0..times {
        backoff.ended(at(1), at(5));
    }
    Record { state: Some(state), backoff, ..Record::default() }
}

fn record(containers: impl IntoIterator<Item = (&'static str, Record)>) -> PodRecord {
    PodRecord {
        containers: containers.into_iter().map(|(name, one)| (name.to_owned(), one)).collect(),
        has_sandbox: true,
        ..PodRecord::default()
    }
}

fn over(containers: impl IntoIterator<Item = (&'static str, Record)>) -> PodRecord {
    PodRecord { is_over: true, ..record(containers) }
}

/// The status as JSON, for reading parts of it.
fn report(pod: &core::Pod, record: &PodRecord) -> Value {
    serde_json::to_value(status(pod, record, at(9))).unwrap()
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == kind).unwrap()
}

fn one() -> core::Pod {
    pod(json!({ "restartPolicy": "Never", "containers": [{ "name": "a", "image": "busybox" }] }))
}

#[test]
fn phases() {
    let always = pod(json!({ "containers": [{ "name": "a" }] }));
    let staged = pod(
        json!({ "restartPolicy": "Never", "initContainers": [{ "name": "i" }], "containers": [{ "name": "a" }] }),
    );
    let cases = vec![
        ("nothing started", one(), record([]), "Pending"),
        ("runs", one(), record([("a", running(true))]), "Running"),
        ("succeeded", one(), over([("a", exited(0, 1))]), "Succeeded"),
        ("failed", one(), over([("a", exited(2, 1))]), "Failed"),
        ("ended, processes remain", one(), record([("a", exited(0, 1))]), "Running"),
        ("crash loop", always, record([("a", exited(1, 4))]), "Running"),
        ("initializing", staged.clone(), record([("i", running(true))]), "Pending"),
        ("init crash loop", staged.clone(), record([("i", exited(1, 3))]), "Pending"),
        ("init failed", staged, over([("i", exited(1, 1))]), "Failed"),
        ("never started", one(), over([]), "Failed"),
    ];
    for (case, pod, record, expected) in cases {
        assert_eq!(report(&pod, &record)["phase"], expected, "{case}");
    }
}

#[test]
fn a_terminal_phase_never_changes() {
    let mut pod = one();
    pod.status = Some(core::PodStatus {
        phase: Some("Failed".into()),
        reason: Some("Evicted".into()),
        ..Default::default()
    });
    let status = report(&pod, &over([("a", exited(0, 1))]));
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("Evicted")));
}

#[test]
fn a_verdict_of_the_kubelet_fails_the_pod() {
    let verdict = Verdict { reason: "DeadlineExceeded".into(), message: "too long".into() };
    let record = PodRecord { verdict: Some(verdict), ..over([("a", exited(0, 1))]) };
    let status = report(&one(), &record);
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("DeadlineExceeded")));
}

#[test]
fn ready_follows_containers_and_gates() {
    let status = report(&one(), &record([("a", running(false))]));
    let ready = condition(&status, "Ready");
    assert_eq!(ready["reason"], "ContainersNotReady");
    assert_eq!(ready["message"], "containers with unready status: [a]");

    let status = report(&one(), &record([("a", running(true))]));
    assert_eq!(condition(&status, "Ready")["status"], "True");
    assert_eq!(condition(&status, "ContainersReady")["observedGeneration"], 3);

    let gated =
        pod(json!({ "containers": [{ "name": "a" }], "readinessGates": [{ "conditionType": "x/y" }] }));
    let status = report(&gated, &record([("a", running(true))]));
    assert_eq!(condition(&status, "ContainersReady")["status"], "True");
    let ready = condition(&status, "Ready");
    assert_eq!(ready["reason"], "ReadinessGatesNotReady");
    assert_eq!(ready["message"], "corresponding condition of pod readiness gate \"x/y\" does not exist.");
}

#[test]
fn conditions_of_others_are_kept_and_times_change_with_the_status() {
    let mut pod = one();
    let old = json!([
        { "type": "x/y", "status": "True" },
        { "type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:02Z" },
        { "type": "ContainersReady", "status": "False", "lastTransitionTime": "1970-01-01T00:00:02Z" },
    ]);
    pod.status =
        Some(core::PodStatus { conditions: serde_json::from_value(old).unwrap(), ..Default::default() });
    let status = report(&pod, &record([("a", running(true))]));
    assert_eq!(condition(&status, "x/y")["status"], "True");
    assert_eq!(condition(&status, "Ready")["lastTransitionTime"], "1970-01-01T00:00:02Z");
    assert_eq!(condition(&status, "ContainersReady")["lastTransitionTime"], "1970-01-01T00:00:09Z");
}

#[test]
fn init_containers_that_are_not_done_are_named() {
    let pod =
        pod(json!({ "initContainers": [{ "name": "i" }, { "name": "j" }], "containers": [{ "name": "a" }] }));
    let status = report(&pod, &record([("i", exited(0, 1))]));
    let initialized = condition(&status, "Initialized");
    assert_eq!(initialized["reason"], "ContainersNotInitialized");
    assert_eq!(initialized["message"], "containers with incomplete status: [j]");
    assert_eq!(status["initContainerStatuses"][0]["ready"], true);
    assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
}

#[test]
fn a_crash_loop_is_a_waiting_state_that_tells_the_last_exit() {
    let pod = pod(json!({ "containers": [{ "name": "a" }] }));
    let first = report(&pod, &record([("a", exited(1, 1))]));
    assert_eq!(first["containerStatuses"][0]["state"]["terminated"]["reason"], "Error");
    let later = report(&pod, &record([("a", exited(1, 5))]));
    let container = &later["containerStatuses"][0];
    let waiting = &container["state"]["waiting"];
    assert_eq!(waiting["reason"], "CrashLoopBackOff");
    assert_eq!(waiting["message"], "back-off 1m20s restarting failed container=a pod=p_team(u-1)");
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!(container["restartCount"], 4);
}

#[test]
fn a_problem_is_told_in_the_waiting_state() {
    let waiting = Waiting { reason: "ErrImagePull", message: "no such image".into(), until: at(20) };
    let status = report(&one(), &record([("a", Record { waiting: Some(waiting), ..Record::default() })]));
    let state = &status["containerStatuses"][0]["state"]["waiting"];
    assert_eq!((&state["reason"], &state["message"]), (&json!("ErrImagePull"), &json!("no such image")));
}

#[test]
fn reasons_of_exits() {
    let reason = |code, is_out_of_memory| {
        let mut one = exited(code, 1);
        one.state.as_mut().unwrap().exit.as_mut().unwrap().is_out_of_memory = is_out_of_memory;
        let status = report(&self::one(), &over([("a", one)]));
        status["containerStatuses"][0]["state"]["terminated"]["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason(0, false), "Completed");
    assert_eq!(reason(137, false), "Error");
    assert_eq!(reason(137, true), "OOMKilled");
}
