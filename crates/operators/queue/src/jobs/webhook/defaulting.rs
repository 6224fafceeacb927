//! Defaults of jobs: their queue, their priority class, and that they wait for admission. Pure.

use quintet_api::kueue::metadata::{PRIORITY_CLASS, QUEUE_NAME};
use serde_json::{Value, json};

use super::super::ancestors::Ancestor;
use super::{DEFAULT, Facts};
use crate::settings::Settings;

/// Sets the defaults of a job that the field at this JSON pointer suspends. The error is why the job is refused.
pub(super) fn default(
    job: &mut Value,
    suspend: &str,
    facts: &Facts,
    settings: &Settings,
) -> Result<(), String> {
    let is_deleting = !job["metadata"]["deletionTimestamp"].is_null();
    if is_deleting && settings.gates.skip_ancestors_of_deleted {
        return Ok(());
    }
    default_labels(job, facts, settings);
    if waits(job, facts, settings)? {
        set(job, suspend, json!(true));
    }
    Ok(())
}

/// The default queue and priority class, for those who name none.
pub(in super::super) fn default_labels(job: &mut Value, facts: &Facts, settings: &Settings) {
    let is_free = facts.is_namespace_managed && facts.ancestor == Ancestor::None;
    if facts.has_default_queue && is_free && label(job, QUEUE_NAME).is_none() {
        set_label(job, QUEUE_NAME, DEFAULT);
    }
    let is_managed =
        label(job, QUEUE_NAME).is_some() || settings.configuration.manage_jobs_without_queue_name;
    if facts.has_default_class && is_free && is_managed && label(job, PRIORITY_CLASS).is_none() {
        set_label(job, PRIORITY_CLASS, DEFAULT);
    }
}

/// Whether a job has to wait for its own Workload.
pub(in super::super) fn waits(job: &Value, facts: &Facts, settings: &Settings) -> Result<bool, String> {
    let manages_all = settings.configuration.manage_jobs_without_queue_name;
    if !facts.is_namespace_managed || !(manages_all || label(job, QUEUE_NAME).is_some()) {
        return Ok(false);
    }
    facts.ancestor.lets_wait()
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
