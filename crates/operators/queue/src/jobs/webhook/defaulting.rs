//! Defaults of jobs: their queue, their priority class, and that they wait for admission. Pure.

use quintet_api::kueue::metadata::{PRIORITY_CLASS, QUEUE_NAME};
use serde_json::{Value, json};

use super::{DEFAULT, Facts};
use crate::settings::Settings;

/// Sets the defaults of a job that the field at this JSON pointer suspends. The error is why the job is refused.
pub(super) fn default(
    job: &mut Value,
    suspend: &str,
    facts: &Facts,
    settings: &Settings,
) -> Result<(), String> {
    default_labels(job, facts);
    if waits(job, facts, settings)? {
        set(job, suspend, json!(true));
    }
    Ok(())
}

/// The default queue and priority class, for those who name none.
pub(in super::super) fn default_labels(job: &mut Value, facts: &Facts) {
    if !facts.has_integrated_owner {
        default_queue(job, facts);
    }
    default_class(job, facts);
}

pub(super) fn default_queue(job: &mut Value, facts: &Facts) {
    if facts.has_default_queue && facts.is_namespace_managed && queue_of(job).is_empty() {
        set_label(job, QUEUE_NAME, DEFAULT);
    }
}

/// A class is also of use to jobs that get a queue later.
pub(super) fn default_class(job: &mut Value, facts: &Facts) {
    let has_class = label(job, PRIORITY_CLASS).is_some_and(|class| !class.is_empty());
    let is_free = facts.is_namespace_managed && !facts.has_integrated_owner;
    if facts.has_default_class && is_free && !has_class {
        set_label(job, PRIORITY_CLASS, DEFAULT);
    }
}

/// Whether a job has to wait for its own Workload. Owners of one that is being deleted may be gone.
pub(in super::super) fn waits(job: &Value, facts: &Facts, settings: &Settings) -> Result<bool, String> {
    let is_deleting = !job["metadata"]["deletionTimestamp"].is_null();
    let is_skipped = is_deleting && settings.gates.skip_ancestors_of_deleted;
    let is_queued = settings.configuration.manage_jobs_without_queue_name || !queue_of(job).is_empty();
    if is_skipped || !facts.is_namespace_managed || !is_queued {
        return Ok(false);
    }
    facts.ancestor.lets_wait()
}

/// The queue that a job names; empty if it names none.
pub(in super::super) fn queue_of(job: &Value) -> &str {
    label(job, QUEUE_NAME).unwrap_or_default()
}

pub(in super::super) fn label<'j>(job: &'j Value, name: &str) -> Option<&'j str> {
    job["metadata"]["labels"][name].as_str()
}

pub(in super::super) fn annotation<'j>(job: &'j Value, name: &str) -> Option<&'j str> {
    job["metadata"]["annotations"][name].as_str()
}

pub(in super::super) fn set_label(job: &mut Value, name: &str, value: &str) {
    put(&mut job["metadata"]["labels"], name, value);
}

/// Sets an entry of a map that may not exist.
pub(in super::super) fn put(map: &mut Value, name: &str, value: &str) {
    if !map.is_object() {
        *map = json!({});
    }
    map[name] = value.into();
}

/// Sets a field by its JSON pointer.
fn set(job: &mut Value, pointer: &str, value: Value) {
    let mut place = job;
    for name in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[name];
    }
    *place = value;
}
