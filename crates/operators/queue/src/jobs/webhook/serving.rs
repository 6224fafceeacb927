//! What Deployments, StatefulSets and LeaderWorkerSets have in common: their pods wait, not they.

use quintet_api::kueue::metadata::{POD_SUSPENDING_PARENT, QUEUE_NAME};
use serde_json::Value;

use super::defaulting::{default_labels, label, put, waits};
use super::validation::{elastic, gates, label_path, priority_class, queue_name};
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
    default_labels(object, facts, settings);
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
pub(super) fn check(object: &Value, old: Option<&Value>, kind: &Kind) -> Errors {
    let mut errors = Errors::default();
    check_state(object, kind, &mut errors);
    if let Some(old) = old {
        check_change(object, old, &mut errors);
    }
    gates(object, old, &mut errors);
    errors
}

/// What is checked of every state.
pub(super) fn check_state(object: &Value, kind: &Kind, errors: &mut Errors) {
    queue_name(object, errors);
    elastic(object, kind, errors);
}

/// What may change only while no pod is ready.
pub(super) fn check_change(object: &Value, old: &Value, errors: &mut Errors) {
    let (new_queue, old_queue) = (label(object, QUEUE_NAME), label(old, QUEUE_NAME));
    if new_queue != old_queue && (!is_suspended(old) || new_queue.is_none()) {
        errors.invalid(label_path(QUEUE_NAME), new_queue.unwrap_or_default(), "field is immutable");
    }
    priority_class(object, old, is_suspended(old), errors);
}
