//! What Deployments, StatefulSets and LeaderWorkerSets have in common: their pods wait, not they.

use quintet_api::kueue::metadata::{POD_SUSPENDING_PARENT, QUEUE_NAME};
use serde_json::Value;

use super::defaulting::{default_labels, put, queue_of, waits};
use super::validation::{changed_gates, elastic, gates, label_path, priority_class, queue_name};
use super::{Facts, Kind};
use crate::settings::Settings;
use crate::validation::Errors;

/// Sets the default labels, and lets the pods know who waits for them. Whether they have to wait at all.
pub(super) fn default(
    object: &mut Value,
    framework: &str,
    facts: &Facts,
    settings: &Settings,
) -> Result<bool, String> {
    default_labels(object, facts);
    let waits = waits(object, facts, settings)?;
    if waits {
        put(&mut object["spec"]["template"]["metadata"]["annotations"], POD_SUSPENDING_PARENT, framework);
    }
    Ok(waits)
}

/// Whether no pod is ready, so that another queue can have them.
fn is_suspended(object: &Value) -> bool {
    object["status"]["readyReplicas"].as_i64().unwrap_or_default() == 0
}

/// What is checked of Deployments and StatefulSets.
pub(super) fn check(object: &Value, old: Option<&Value>, kind: &Kind, settings: &Settings) -> Errors {
    let mut errors = Errors::default();
    check_state(object, kind, settings, &mut errors);
    match old {
        Some(old) => check_change(object, old, settings, &mut errors),
        None => gates(object, settings, &mut errors),
    }
    errors
}

/// What is checked of every state.
pub(super) fn check_state(object: &Value, kind: &Kind, settings: &Settings, errors: &mut Errors) {
    queue_name(object, errors);
    elastic(object, kind, settings, errors);
}

/// What may change only while no pod is ready.
pub(super) fn check_change(object: &Value, old: &Value, settings: &Settings, errors: &mut Errors) {
    let (new_queue, old_queue) = (queue_of(object), queue_of(old));
    if new_queue != old_queue && (!is_suspended(old) || new_queue.is_empty()) {
        errors.invalid(label_path(QUEUE_NAME), new_queue, "field is immutable");
    }
    priority_class(object, old, is_suspended(old), errors);
    changed_gates(object, old, settings, errors);
}
