//! An explanation for people: what is awaited, what is decided, and a digest of what was observed.

use std::fmt::Write as _;

use quintet_controller::{Explanation, Next, ObjectKey};
use serde_json::Value;

/// How deep the digest of an observed state goes; deeper values are counted.
const DEPTH: usize = 3;
/// Longer texts are cut.
const WIDTH: usize = 96;

pub(super) fn report(kind: &str, key: &ObjectKey, explanations: &[Explanation]) -> String {
    let mut text = format!("{kind} {key}\n");
    for explanation in explanations {
        section(&mut text, explanation);
    }
    text
}

fn section(text: &mut String, explanation: &Explanation) {
    let Explanation { controller, observed, plan, actions, awaits, next } = explanation;
    let _ = writeln!(text, "\nController {controller}");
    list(text, "Waits for", awaits, "nothing");
    let mut decided = actions.clone();
    if let Some(status) = plan.pointer("/status/status").filter(|status| !status.is_null()) {
        decided.push(format!("set status {}", cut(&status.to_string())));
    }
    decided.extend(plan["events"].as_array().into_iter().flatten().map(event));
    list(text, "Decides", &decided, "to change nothing");
    let requeue = match next {
        Next::AwaitChange => "when something changes".to_owned(),
        Next::After(wait) => format!("after {:.0} s, or when something changes", wait.as_secs_f64()),
    };
    let _ = writeln!(text, "  Next reconcile: {requeue}");
    text.push_str("  Observes:\n");
    digest(text, observed, 2);
}

fn list(text: &mut String, title: &str, lines: &[String], none: &str) {
    match lines {
        [] => {
            let _ = writeln!(text, "  {title}: {none}");
        }
        lines => {
            let _ = writeln!(text, "  {title}:");
            for line in lines {
                let _ = writeln!(text, "  - {line}");
            }
        }
    }
}

fn event(event: &Value) -> String {
    let field = |name: &str| event[name].as_str().unwrap_or_default();
    format!("record event {}: {}", field("reason"), cut(field("note")))
}

/// The fields of an observed state: objects by key and status, other values down to [`DEPTH`]. Empty ones are left out.
fn digest(text: &mut String, value: &Value, depth: usize) {
    let Value::Object(fields) = value else {
        let _ = writeln!(text, "{}{}", "  ".repeat(depth), scalar(value));
        return;
    };
    for (name, value) in fields.iter().filter(|(_, value)| !is_empty(value)) {
        let indent = "  ".repeat(depth);
        if let Some(key) = cached_key(value) {
            let deleting = if value["deleting"] == true { ", being deleted" } else { "" };
            let _ = writeln!(text, "{indent}{name}: {key}{deleting}");
            if value["object"]["status"].is_object() {
                digest(text, &value["object"]["status"], depth + 1);
            }
        } else if value.is_object() && depth < DEPTH {
            let _ = writeln!(text, "{indent}{name}:");
            digest(text, value, depth + 1);
        } else {
            let _ = writeln!(text, "{indent}{name}: {}", scalar(value));
        }
    }
}

/// The key of an object from a cache.
fn cached_key(value: &Value) -> Option<&str> {
    let fields = value.as_object()?;
    let is_entry = ["uid", "version", "object"].iter().all(|name| fields.contains_key(*name));
    fields.get("key").and_then(Value::as_str).filter(|_| is_entry)
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Object(fields) => format!("{{{} fields}}", fields.len()),
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            cut(&items.iter().map(scalar).collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => match items.iter().map(cached_key).collect::<Option<Vec<_>>>() {
            Some(keys) => cut(&keys.join(", ")),
            None => format!("[{} items]", items.len()),
        },
        Value::String(text) => cut(text),
        other => other.to_string(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn cut(text: &str) -> String {
    let line = text.replace('\n', " ");
    if line.chars().count() <= WIDTH {
        return line;
    }
    line.chars().take(WIDTH - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn says_what_is_awaited_decided_and_observed() {
        let explanation = Explanation {
            controller: "rayjob",
            observed: json!({
                "job": {
                    "key": "team/train", "uid": "1", "version": 2, "deleting": true,
                    "object": { "spec": { "a": 1 }, "status": { "state": "Running" } },
                },
                "heads": [
                    { "key": "team/a", "uid": "1", "version": 2, "object": {} },
                    { "key": "team/b", "uid": "1", "version": 2, "object": {} },
                ],
                "pods": [{ "name": "x" }, { "name": "y" }], "finalizers": ["a", "b"], "cluster": null, "now": "2026",
            }),
            plan: json!({
                "status": { "status": { "state": "Waiting" } },
                "events": [{ "reason": "Waiting", "note": "x".repeat(200) }],
            }),
            actions: vec!["create Pod team/train-head".into()],
            awaits: vec!["RayCluster train-abc12: 1 of 3 workers ready".into()],
            next: Next::After(Duration::from_secs(3)),
        };
        let text = report("rayjob", &ObjectKey::new("team", "train"), &[explanation]);
        for expected in [
            "rayjob team/train\n\nController rayjob\n  Waits for:\n  - RayCluster train-abc12: 1 of 3 workers ready\n",
            "  Decides:\n  - create Pod team/train-head\n  - set status {\"state\":\"Waiting\"}\n  - record event Waiting: xxx",
            "  Next reconcile: after 3 s, or when something changes\n  Observes:\n",
            "    finalizers: a, b\n",
            "    now: 2026\n    pods: [2 items]\n",
            "    job: team/train, being deleted\n      state: Running\n",
            "    heads: team/a, team/b\n",
        ] {
            assert!(text.contains(expected), "{expected}\n---\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() < 130), "{text}");
        assert!(!text.contains("cluster: null"), "{text}");
    }

    #[test]
    fn says_when_there_is_nothing_to_do() {
        let explanation = Explanation {
            controller: "raycluster",
            observed: json!({}),
            plan: json!({}),
            actions: Vec::new(),
            awaits: Vec::new(),
            next: Next::AwaitChange,
        };
        let text = report("raycluster", &ObjectKey::new("team", "big"), &[explanation]);
        assert!(text.contains("Waits for: nothing\n  Decides: to change nothing\n"), "{text}");
        assert!(text.contains("Next reconcile: when something changes"), "{text}");
    }
}
