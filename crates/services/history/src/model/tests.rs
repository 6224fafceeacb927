//! Tables for the event model.

use super::snapshot::Snapshot;
use super::time::millis;

const TASK: &str = "1000000000000001ffffffffffffffffffffffff01000000";

fn definition(name: &str) -> String {
    format!(
        r#"{{"eventType":"TASK_DEFINITION_EVENT","taskDefinitionEvent":{{"taskId":"{TASK}","taskName":"{name}","jobId":"AQAAAA=="}}}}"#
    )
}

fn lifecycle(state: &str, second: u8, rest: &str) -> String {
    format!(
        r#"{{"eventType":"TASK_LIFECYCLE_EVENT","taskLifecycleEvent":{{"taskId":"{TASK}","stateTransitions":[{{"state":"{state}","timestamp":"1970-01-01T00:00:{second:02}Z"}}]{rest}}}}}"#
    )
}

/// Name, state, start and end of the task, after events that may be rejected.
fn task(events: &[String]) -> (String, String, Option<i64>, Option<i64>) {
    let mut snapshot = Snapshot::default();
    for event in events {
        let _ = snapshot.ingest(event.as_bytes());
    }
    snapshot.finish();
    let Some(task) = snapshot.attempts(TASK).first() else { return Default::default() };
    let text = |symbol| snapshot.text(symbol).to_owned();
    let lifecycle = &task.lifecycle;
    (
        text(task.definition.name),
        text(task.state()),
        lifecycle.started.map(millis),
        lifecycle.ended.map(millis),
    )
}

#[test]
fn events_merge_in_any_order() {
    let (early, late) = (lifecycle("RUNNING", 1, ""), lifecycle("FINISHED", 2, ""));
    let expected = ("f".to_owned(), "FINISHED".to_owned(), Some(1000), Some(2000));
    let orders = [
        vec![definition("f"), early.clone(), late.clone()],
        vec![late.clone(), early.clone(), definition("f")],
        vec![early.clone(), definition("old"), late.clone(), definition("f")],
    ];
    for order in orders {
        assert_eq!(task(&order), expected);
        let replayed: Vec<String> = order.iter().chain(&order).cloned().collect();
        assert_eq!(task(&replayed), expected, "replaying changes nothing");
    }
}

#[test]
fn malformed_events_change_nothing() {
    let good = [definition("f"), lifecycle("RUNNING", 1, "")];
    let expected = task(&good);
    let bad = [
        lifecycle("FINISHED", 2, r#","workerPid":"7""#),
        lifecycle("FINISHED", 99, ""),
        lifecycle("FINISHED", 2, "").replace("taskLifecycleEvent", "other"),
        definition("x").replace(r#""AQAAAA==""#, "7"),
        definition("x").replace(TASK, ""),
        "not json".to_owned(),
        "[".repeat(100_000),
    ];
    for event in bad {
        let events: Vec<String> = good.iter().cloned().chain([event.clone()]).collect();
        assert_eq!(task(&events), expected, "{}", &event[..event.len().min(200)]);
    }
}

#[test]
fn members_count_in_the_order_of_their_names() {
    let named = |members: &str| task(&[definition("f").replace(r#""taskName":"f""#, members)]).0;
    assert_eq!(named(r#""taskName":"a","TASKNAME":"b""#), "a");
    assert_eq!(named(r#""TASKNAME":"b","taskName":"a""#), "a");
    assert_eq!(named(r#""taskName":"a","taskName":"b""#), "b");
    assert_eq!(named(r#""TASKNAME":"b","taskName":null"#), "b");
    assert_eq!(named(r#""taskName":"a","taskName":null"#), "");
}

#[test]
fn events_are_whole_lines() {
    let two = format!("{} {}", definition("f"), definition("g"));
    assert_eq!(task(&[two]), task(&[]));
}

#[test]
fn definitions_may_tell_of_a_life_that_no_other_event_tells() {
    let told = definition("f").replace(
        r#""taskName""#,
        r#""state":"RUNNING","stateTransitions":[{"state":"FAILED","timestamp":"1970-01-01T00:00:09Z"}],
           "startTime":"1970-01-01T00:00:03Z","taskName""#,
    );
    let expected = |state: &str, start, end| ("f".to_owned(), state.to_owned(), Some(start), end);
    assert_eq!(task(std::slice::from_ref(&told)), expected("RUNNING", 3000, None));
    let later = lifecycle("FINISHED", 1, "");
    assert_eq!(task(&[told.clone(), later.clone()]), expected("FAILED", 3000, Some(9000)));
    let known = lifecycle("RUNNING", 1, "");
    assert_eq!(task(&[known, told]), expected("RUNNING", 1000, None));
    // The types of all members count, whichever event carries them.
    assert_eq!(task(&[definition("f").replace(r#""taskName""#, r#""workerPid":"7","taskName""#)]), task(&[]));
    assert_eq!(task(&[lifecycle("RUNNING", 1, r#","refIds":{"a":1}"#)]), task(&[]));
}

#[test]
fn nodes_are_found_by_the_address_of_definitions_that_are_otherwise_malformed() {
    let mut snapshot = Snapshot::default();
    for (id, ip, rest) in [
        ("AQAAAA==", "10.0.0.1", r#","labels":7"#),
        ("AgAAAA==", "10.0.0.1", ""),
        ("no id!", "10.0.0.2", ""),
        ("AwAAAA==", "10.0.0.2", ""),
    ] {
        let event = format!(
            r#"{{"eventType":"NODE_DEFINITION_EVENT","nodeDefinitionEvent":{{"nodeId":"{id}","nodeIpAddress":"{ip}"{rest}}}}}"#
        );
        let _ = snapshot.ingest(event.as_bytes());
    }
    snapshot.finish();
    assert_eq!(snapshot.node_at("10.0.0.1"), Some("01000000"));
    assert_eq!(snapshot.node_at("10.0.0.2"), Some("03000000"));
    assert_eq!(snapshot.node_at("10.0.0.3"), None);
}
