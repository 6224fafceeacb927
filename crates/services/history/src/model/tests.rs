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
