//! Validation of jobs. Pure. Messages are those of Kueue's `jobframework/validation.go`.

use quintet_api::kueue::metadata::{
    ADMISSION_GATED_BY, ELASTIC_JOB, MAX_EXEC_TIME_SECONDS, PREBUILT_WORKLOAD_NAME, PRIORITY_CLASS,
    QUEUE_NAME,
};
use quintet_api::names::problems;
use quintet_controller::webhook::Verdict;
use serde_json::Value;

use super::super::slices::PARTIAL_SCALE_UP;
use super::defaulting::{annotation, label};
use super::{Facts, Kind, topology};
use crate::settings::Settings;
use crate::validation::{Errors, admission_gates};

pub(in super::super) fn label_path(name: &str) -> String {
    format!("metadata.labels[{name}]")
}

pub(in super::super) fn annotation_path(name: &str) -> String {
    format!("metadata.annotations[{name}]")
}

/// Decides about a new job, or the change of one.
pub(super) fn of_job(
    job: &Value,
    old: Option<&Value>,
    kind: &Kind,
    facts: &Facts,
    settings: &Settings,
) -> Verdict {
    match old {
        None => of_create(job, kind, settings).verdict(),
        Some(old) => of_update(job, old, kind, facts, settings).verdict(),
    }
}

/// What is wrong with a new job.
pub(super) fn of_create(job: &Value, kind: &Kind, settings: &Settings) -> Errors {
    let mut errors = Errors::default();
    state(job, kind, &mut errors);
    (kind.check)(job, None, &mut errors);
    topology_requests(job, kind, settings, &mut errors);
    errors
}

/// Admission gates, which may only be removed later.
pub(super) fn gates(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let of = |job| annotation(job, ADMISSION_GATED_BY).unwrap_or_default();
    admission_gates::validate(of(new), errors);
    if let Some(old) = old {
        admission_gates::validate_update(of(new), of(old), errors);
    }
}

/// What is wrong with a change of a job.
pub(super) fn of_update(new: &Value, old: &Value, kind: &Kind, facts: &Facts, settings: &Settings) -> Errors {
    let mut errors = Errors::default();
    state(new, kind, &mut errors);
    (kind.check)(new, Some(old), &mut errors);
    change(new, old, kind, facts, &mut errors);
    topology_requests(new, kind, settings, &mut errors);
    errors
}

/// What may not change, or only while a job is suspended. As `ValidateJobOnUpdate` of Kueue.
pub(super) fn change(new: &Value, old: &Value, kind: &Kind, facts: &Facts, errors: &mut Errors) {
    let is_suspended = kind.is_suspended;
    let (new_queue, old_queue) = (label(new, QUEUE_NAME), label(old, QUEUE_NAME));
    let (new_queue, old_queue) = (new_queue.unwrap_or_default(), old_queue.unwrap_or_default());
    if new_queue != old_queue && !is_suspended(new) {
        errors.invalid(label_path(QUEUE_NAME), new_queue, "field is immutable");
    }
    if facts.has_default_queue && !old_queue.is_empty() && new_queue.is_empty() {
        let why = "queue-name must not be empty in namespace with default queue";
        errors.invalid(label_path(QUEUE_NAME), "", why);
    }
    let name_of = |job| prebuilt(job).map(|(_, name)| name);
    if is_suspended(new) {
        prebuilt_name(new, kind, errors);
    } else if name_of(new) != name_of(old) && annotation(old, ELASTIC_JOB) != Some("true") {
        let path = prebuilt(new).or_else(|| prebuilt(old)).map(|(path, _)| path).unwrap_or_default();
        errors.invalid(path, name_of(new).unwrap_or_default(), "field is immutable");
    }
    let (new_time, old_time) = (label(new, MAX_EXEC_TIME_SECONDS), label(old, MAX_EXEC_TIME_SECONDS));
    if new_time != old_time && !(is_suspended(new) && is_suspended(old)) {
        let path = label_path(MAX_EXEC_TIME_SECONDS);
        errors.invalid(path, new_time.unwrap_or_default(), "field is immutable");
    }
    priority_class(new, old, is_suspended(new), errors);
    let is_elastic = |job: &Value| annotation(job, ELASTIC_JOB) == Some("true");
    if is_elastic(new) != is_elastic(old) {
        errors.invalid(annotation_path(ELASTIC_JOB), is_elastic(new), "field is immutable");
    }
    let is_partial = |job: &Value| annotation(job, PARTIAL_SCALE_UP) == Some("true");
    if is_partial(new) != is_partial(old) {
        errors.invalid(annotation_path(PARTIAL_SCALE_UP), is_partial(new), "field is immutable");
    }
    gates(new, Some(old), errors);
}

/// What is checked of every state of a job. As `ValidateJobOnCreate` of Kueue.
pub(super) fn state(job: &Value, kind: &Kind, errors: &mut Errors) {
    queue_name(job, errors);
    prebuilt_name(job, kind, errors);
    max_execution_time(job, errors);
    elastic(job, kind, errors);
    gates(job, None, errors);
}

fn prebuilt_name(job: &Value, kind: &Kind, errors: &mut Errors) {
    let Kind { group, version, name, .. } = kind;
    let Some((path, workload)) = prebuilt(job) else { return };
    errors.each(&path, workload, problems::dns_subdomain(workload));
    if !kind.takes_prebuilt && !workload.is_empty() {
        errors.forbidden(path, format!("Is not supported for \"{group}/{version}, Kind={name}\""));
    }
}

fn topology_requests(job: &Value, kind: &Kind, settings: &Settings, errors: &mut Errors) {
    if settings.scheduling.tas {
        for template in (kind.templates)(job) {
            topology::check(&template, &settings.scheduling, errors);
        }
    }
}

pub(super) fn queue_name(job: &Value, errors: &mut Errors) {
    if let Some(queue) = label(job, QUEUE_NAME) {
        errors.each(&label_path(QUEUE_NAME), queue, problems::dns_subdomain(queue));
    }
}

/// Whether a job may change its size while it runs.
pub(in super::super) fn is_elastic(job: &Value, settings: &Settings) -> bool {
    settings.scheduling.elastic_slices && annotation(job, ELASTIC_JOB) == Some("true")
}

/// Few kinds can change their size while they run.
pub(super) fn elastic(job: &Value, kind: &Kind, errors: &mut Errors) {
    let Kind { group, version, name, .. } = kind;
    if annotation(job, ELASTIC_JOB) == Some("true") && !kind.takes_elastic {
        let why = format!("elastic job is not supported for \"{group}/{version}, Kind={name}\"");
        errors.forbidden(annotation_path(ELASTIC_JOB), why);
    }
}

/// The Workload that a job names, with the path of the name.
pub(super) fn prebuilt(job: &Value) -> Option<(String, &str)> {
    let by_annotation = annotation(job, PREBUILT_WORKLOAD_NAME);
    let by_label =
        || label(job, PREBUILT_WORKLOAD_NAME).map(|name| (label_path(PREBUILT_WORKLOAD_NAME), name));
    by_annotation.map(|name| (annotation_path(PREBUILT_WORKLOAD_NAME), name)).or_else(by_label)
}

fn max_execution_time(job: &Value, errors: &mut Errors) {
    let Some(text) = label(job, MAX_EXEC_TIME_SECONDS) else { return };
    let path = label_path(MAX_EXEC_TIME_SECONDS);
    match text.parse::<i64>() {
        Ok(seconds) if seconds <= 0 => errors.invalid(path, seconds, "should be greater than 0"),
        Ok(_) => {}
        Err(_) => errors.invalid(path, text, not_a_number(text)),
    }
}

/// What Go says of a text that is not a number.
pub(in super::super) fn not_a_number(text: &str) -> String {
    format!("strconv.Atoi: parsing {text:?}: invalid syntax")
}

/// A class may be changed at any time, added only to a job that waits, and never removed.
pub(in super::super) fn priority_class(new: &Value, old: &Value, is_suspended: bool, errors: &mut Errors) {
    let path = label_path(PRIORITY_CLASS);
    match (label(old, PRIORITY_CLASS), label(new, PRIORITY_CLASS)) {
        (Some(_), None) => {
            errors.invalid(path, "", "WorkloadPriorityClass cannot be removed from a workload");
        }
        (None, Some(class)) if !is_suspended => {
            errors.invalid(path, class, "WorkloadPriorityClass cannot be added to a non-suspended workload");
        }
        _ => {}
    }
}
