//! Volumes and claims.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{born, items, joined, name, text};

fn modes(object: &Value, pointer: &str) -> Value {
    json!(joined(items(object, pointer), |mode| {
        match mode.as_str().unwrap_or_default() {
            "ReadWriteOnce" => "RWO",
            "ReadOnlyMany" => "ROX",
            "ReadWriteMany" => "RWX",
            "ReadWriteOncePod" => "RWOP",
            other => other,
        }
        .into()
    }))
}

fn unset_if_empty(text: &str) -> Value {
    json!(if text.is_empty() { "<unset>" } else { text })
}

pub(super) fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let is_going = object.pointer("/metadata/deletionTimestamp").is_some();
    let is_bound = !text(object, "/spec/volumeName").is_empty();
    vec![
        name(object),
        json!(if is_going { "Terminating" } else { text(object, "/status/phase") }),
        json!(text(object, "/spec/volumeName")),
        json!(if is_bound { text(object, "/status/capacity/storage") } else { "" }),
        if is_bound { modes(object, "/status/accessModes") } else { json!("") },
        json!(text(object, "/spec/storageClassName")),
        unset_if_empty(text(object, "/spec/volumeAttributesClassName")),
        born(object, now),
        json!(text(object, "/spec/volumeMode")),
    ]
}

pub(super) fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let is_going = object.pointer("/metadata/deletionTimestamp").is_some();
    let claimed = object
        .pointer("/spec/claimRef")
        .map_or_else(String::new, |claim| format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")));
    vec![
        name(object),
        json!(text(object, "/spec/capacity/storage")),
        modes(object, "/spec/accessModes"),
        json!(text(object, "/spec/persistentVolumeReclaimPolicy")),
        json!(if is_going { "Terminating" } else { text(object, "/status/phase") }),
        json!(claimed),
        json!(text(object, "/spec/storageClassName")),
        unset_if_empty(text(object, "/spec/volumeAttributesClassName")),
        json!(text(object, "/status/reason")),
        born(object, now),
        json!(text(object, "/spec/volumeMode")),
    ]
}
