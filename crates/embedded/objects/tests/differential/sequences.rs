//! Sequences of writes by several managers: apply, update and all kinds of patches.

use quintet_objects::apply::{self, Node, Writer};
use quintet_objects::schema::Structural;
use quintet_objects::{Path, patch, types};
use serde_json::Value;

use crate::{Differences, comparable, each_case, first_difference};

/// The schema of one sequence.
enum Schema {
    Builtin(&'static types::Type),
    Custom(Box<Structural>),
}

impl Schema {
    fn of(case: &Value) -> Self {
        if case["schema"].is_null() {
            let (version, kind) = (case["apiVersion"].as_str().unwrap(), case["kind"].as_str().unwrap());
            return Self::Builtin(types::kind(version, kind).unwrap());
        }
        Self::Custom(Box::new(Structural::parse(&case["schema"], &Path::new("schema")).unwrap()))
    }

    fn node(&self) -> Node<'_> {
        match self {
            Self::Builtin(kind) => Node::builtin(kind),
            Self::Custom(schema) => Node::custom(schema),
        }
    }

    fn decode(&self, object: &mut Value) -> Result<(), String> {
        match self {
            Self::Builtin(kind) => types::decode(kind, object).map(drop).map_err(|error| error.to_string()),
            Self::Custom(_) => Ok(()),
        }
    }
}

/// One write; what it leaves behind, or why it fails.
fn write(live: Option<&Value>, step: &Value, schema: &Schema, api_version: &str) -> Result<Value, String> {
    let writer = Writer {
        manager: step["manager"].as_str().unwrap(),
        api_version,
        subresource: "",
        now: "2026-01-02T03:04:05Z",
        ignored: &[],
    };
    let sent = &step["object"];
    let mut object = match step["op"].as_str().unwrap() {
        "apply" => {
            let applied = apply::apply(live, sent, schema.node(), &writer, step["force"] == true);
            let mut applied = applied.map_err(|error| error.to_string())?;
            schema.decode(&mut applied)?;
            return Ok(applied);
        }
        "update" => {
            let mut object = sent.clone();
            if let Some(managed) = live.and_then(|live| live.pointer("/metadata/managedFields")) {
                object["metadata"]["managedFields"] = managed.clone();
            }
            object
        }
        kind => {
            let mut object = live.cloned().unwrap();
            match (kind, schema) {
                ("strategic", Schema::Builtin(kind)) => {
                    patch::strategic_merge(&mut object, sent, kind).map_err(|error| error.to_string())?;
                }
                ("json", _) => patch::json_patch(&mut object, sent).map_err(|error| error.to_string())?,
                _ => patch::merge_patch(&mut object, sent),
            }
            object
        }
    };
    schema.decode(&mut object).map_err(|error| format!("decode: {error}"))?;
    apply::update(live, &mut object, schema.node(), &writer);
    Ok(object)
}

/// The order of entries depends on times, which a recording does not have.
fn without_order(mut object: Value) -> Value {
    if let Some(Value::Array(entries)) = object.pointer_mut("/metadata/managedFields") {
        entries.sort_by_key(|entry| format!("{} {}", entry["manager"], entry["operation"]));
    }
    object
}

/// Compares one write; whether the sequence can go on.
fn compare(kind: &str, step: &Value, ours: &Result<Value, String>, differences: &mut Differences) -> bool {
    let op = step["op"].as_str().unwrap();
    let theirs = step["error"].as_str();
    match (ours, theirs) {
        (Ok(ours), None) => {
            let mut ours = without_order(comparable(ours));
            ours["metadata"]["uid"] = "1".into();
            let theirs = without_order(comparable(&step["result"]));
            let Some((path, how)) = first_difference("", &ours, &theirs) else { return true };
            // Whoever owns one place or another: one topic.
            let path = if path.starts_with(".metadata.managedFields") { "managed fields" } else { &path };
            differences
                .add(format!("{kind} {op}: {path}"), || format!("{how}\n    step {step}\n    ours {ours}"));
            false
        }
        (Err(ours), Some(theirs)) => {
            // Texts of patch libraries and decoders are their own.
            let has_our_words = op == "json" || theirs.starts_with("decode: ");
            // Several errors come in the order of Go's maps: any.
            let sorted = |text: &str| {
                let mut lines: Vec<_> = text.split("\n  ").map(str::to_owned).collect();
                lines.sort();
                lines
            };
            if !has_our_words && sorted(ours) != sorted(theirs) {
                differences.add(format!("{kind} {op}: text of an error"), || {
                    format!("ours {ours:?}, theirs {theirs:?}\n    {step}")
                });
            }
            true
        }
        (Err(ours), None) => {
            differences.add(format!("{kind} {op}: we fail"), || format!("{ours}\n    {step}"));
            false
        }
        (Ok(_), Some(theirs)) => {
            let cause: String = theirs.chars().take(40).collect();
            differences.add(format!("{kind} {op}: they fail: {cause}"), || format!("{theirs}\n    {step}"));
            false
        }
    }
}

#[test]
fn every_write_leaves_the_object_and_owners_that_kubernetes_leaves() {
    each_case("sequences.jsonl", |case, differences| {
        let schema = Schema::of(case);
        let (version, kind) = (case["apiVersion"].as_str().unwrap(), case["kind"].as_str().unwrap());
        let mut live: Option<Value> = None;
        for step in case["steps"].as_array().into_iter().flatten() {
            let ours = write(live.as_ref(), step, &schema, version);
            if !compare(kind, step, &ours, differences) {
                return;
            }
            if let Ok(mut object) = ours {
                object["metadata"]["uid"] = "1".into();
                live = Some(object);
            }
        }
    });
}
