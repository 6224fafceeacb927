//! Decoding, defaults, preparation and validation of built-in kinds.

use std::collections::BTreeSet;

use quintet_objects::{builtin, types};
use serde_json::{Value, json};

use crate::{Differences, each_case, first_difference, without_zeros};

const UID: &str = "00000000-0000-0000-0000-000000000001";

fn compare(case: &Value, differences: &mut Differences) {
    let (version, name) = (case["apiVersion"].as_str().unwrap(), case["kind"].as_str().unwrap());
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = builtin::kind(group, version, name).unwrap();
    let mut object = case["object"].clone();
    let decoded = types::decode(kind.schema().unwrap(), &mut object);
    match (&decoded, case["undecodable"].as_str()) {
        (Err(_), Some(_)) => return,
        (Err(error), None) => {
            return differences.add(format!("{name}: we cannot decode"), || format!("{error}\n    {case}"));
        }
        (Ok(_), Some(error)) => {
            return differences
                .add(format!("{name}: they cannot decode"), || format!("{error}\n    {}", case["object"]));
        }
        (Ok(_), None) => {}
    }
    kind.apply_defaults(&mut object);
    let (ours, theirs) = (without_zeros(&object), without_zeros(&case["defaulted"]));
    if let Some((path, how)) = first_difference("", &ours, &theirs) {
        return differences
            .add(format!("{name}: default of {path}"), || format!("{how}\n    {}", case["object"]));
    }
    let old = case.get("old").map(|old| {
        let mut old = old.clone();
        types::decode(kind.schema().unwrap(), &mut old).unwrap();
        old
    });
    if let Some(old) = &old {
        kind.prepare_update(&mut object, old);
        if object.pointer("/metadata/uid").is_none() {
            object["metadata"]["uid"] = old["metadata"]["uid"].clone();
        }
    } else {
        object["metadata"]["uid"] = json!(UID);
        kind.prepare_create(&mut object);
    }
    compare_errors(kind, &object, old.as_ref(), case, differences);
}

fn compare_errors(
    kind: &builtin::Kind,
    object: &Value,
    old: Option<&Value>,
    case: &Value,
    differences: &mut Differences,
) {
    let name = kind.kind;
    let verb = if old.is_some() { "update" } else { "create" };
    let ours: BTreeSet<String> = kind.validate(object, old).iter().map(ToString::to_string).collect();
    let theirs: BTreeSet<String> =
        case["errors"].as_array().unwrap().iter().map(|error| field_error(error.as_str().unwrap())).collect();
    let example = || format!("ours {ours:?}\n    theirs {theirs:?}\n    {}", case["object"]);
    match (ours.is_empty(), theirs.is_empty()) {
        (true, false) => {
            for error in &theirs {
                differences.add(format!("{name} {verb}: accepted only by us: {}", topic(error)), example);
            }
        }
        (false, true) => {
            for error in &ours {
                differences.add(format!("{name} {verb}: rejected only by us: {}", topic(error)), example);
            }
        }
        // Which of several errors are reported matters less than that the object is rejected.
        (false, false) if ours != theirs => differences.add(format!("{name} {verb}: other errors"), example),
        _ => {}
    }
    if ours.is_empty() && theirs.is_empty() {
        let (ours, theirs) = (without_zeros(object), without_zeros(&case["stored"]));
        if let Some((path, how)) = first_difference("", &ours, &theirs) {
            differences
                .add(format!("{name} {verb}: stored {path}"), || format!("{how}\n    {}", case["object"]));
        }
    }
}

/// `type field: body` as a field error prints itself: `field: body`.
fn field_error(recorded: &str) -> String {
    let kinds = [
        "Required value",
        "Invalid value",
        "Unsupported value",
        "Duplicate value",
        "Forbidden",
        "Not found",
        "Too long",
        "Too many",
        "Internal error",
        "Not supported",
    ];
    let kind = kinds.iter().find(|kind| recorded.starts_with(*kind)).unwrap_or(&"");
    recorded[kind.len()..].trim_start().to_owned()
}

/// The field without indexes, and the kind of error.
fn topic(error: &str) -> String {
    let mut parts = error.splitn(3, ": ");
    let (field, kind) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let field: String = field.chars().filter(|c| !c.is_ascii_digit()).collect();
    format!("{field}: {kind}")
}

#[test]
fn every_object_gets_the_defaults_and_errors_of_kubernetes() {
    each_case("objects.jsonl", compare);
}
