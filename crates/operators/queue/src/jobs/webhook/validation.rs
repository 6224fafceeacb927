//! Validation of jobs. Pure. Messages are those of Kueue's `jobframework/validation.go`.

use quintet_api::kueue::metadata::{
    ADMISSION_GATED_BY, ELASTIC_JOB, MAX_EXEC_TIME_SECONDS, PREBUILT_WORKLOAD_NAME, PRIORITY_CLASS,
    QUEUE_NAME,
};
use quintet_api::names::problems;
use serde_json::Value;

use super::super::json::is_elastic;
use super::super::slices::PARTIAL_SCALE_UP;
use super::defaulting::{annotation, label, queue_of};
use super::{Facts, Kind, go};
use crate::settings::Settings;
use crate::validation::{Errors, admission_gates};

/// The longest value of a label.
const MAX_LABEL_VALUE: usize = 63;

pub(in super::super) fn label_path(name: &str) -> String {
    format!("metadata.labels[{name}]")
}

pub(in super::super) fn annotation_path(name: &str) -> String {
    format!("metadata.annotations[{name}]")
}

/// Admission gates that an object is created with.
pub(super) fn gates(job: &Value, settings: &Settings, errors: &mut Errors) {
    if settings.scheduling.admission_gated_by {
        admission_gates::validate(gates_of(job), errors);
    }
}

/// Admission gates of an object that is changed: they may only be removed.
pub(super) fn changed_gates(new: &Value, old: &Value, settings: &Settings, errors: &mut Errors) {
    if settings.scheduling.admission_gated_by {
        admission_gates::validate_update(gates_of(new), gates_of(old), errors);
        admission_gates::validate(gates_of(new), errors);
    }
}

fn gates_of(job: &Value) -> &str {
    annotation(job, ADMISSION_GATED_BY).unwrap_or_default()
}

/// What may not change, or only while a job is suspended. As `ValidateJobOnUpdate` of Kueue.
pub(super) fn change(
    new: &Value,
    old: &Value,
    kind: &Kind,
    facts: &Facts,
    settings: &Settings,
    errors: &mut Errors,
) {
    let is_suspended = kind.is_suspended;
    if queue_of(new) != queue_of(old) && !is_suspended(new) {
        errors.invalid(label_path(QUEUE_NAME), queue_of(new), "field is immutable");
    }
    if facts.has_default_queue && !queue_of(old).is_empty() && queue_of(new).is_empty() {
        let why = "queue-name must not be empty in namespace with default queue";
        errors.invalid(label_path(QUEUE_NAME), "", why);
    }
    if is_suspended(new) || is_elastic(old, settings) {
        prebuilt_name(new, kind, settings, errors);
    } else if prebuilt(new, settings) != prebuilt(old, settings) {
        errors.invalid(prebuilt_path(new, settings), prebuilt(new, settings), "field is immutable");
    }
    let time = |job| label(job, MAX_EXEC_TIME_SECONDS).unwrap_or_default();
    if time(new) != time(old) && !(is_suspended(new) && is_suspended(old)) {
        errors.invalid(label_path(MAX_EXEC_TIME_SECONDS), time(new), "field is immutable");
    }
    priority_class(new, old, is_suspended(new), errors);
    if is_elastic(new, settings) != is_elastic(old, settings) {
        errors.invalid(annotation_path(ELASTIC_JOB), is_elastic(new, settings), "field is immutable");
    }
    let is_partial = |job: &Value| annotation(job, PARTIAL_SCALE_UP) == Some("true");
    if is_partial(new) != is_partial(old) {
        errors.invalid(annotation_path(PARTIAL_SCALE_UP), is_partial(new), "field is immutable");
    }
    changed_gates(new, old, settings, errors);
}

/// What is checked of every state of a job. As `ValidateJobOnCreate` of Kueue.
pub(super) fn state(job: &Value, kind: &Kind, settings: &Settings, errors: &mut Errors) {
    queue_name(job, errors);
    prebuilt_name(job, kind, settings, errors);
    max_execution_time(job, errors);
    elastic(job, kind, settings, errors);
    gates(job, settings, errors);
}

fn prebuilt_name(job: &Value, kind: &Kind, settings: &Settings, errors: &mut Errors) {
    let Kind { group, version, name, .. } = kind;
    let path = prebuilt_path(job, settings);
    let by_annotation = prebuilt_annotation(job, settings);
    if let Some(workload) = by_annotation.or_else(|| label(job, PREBUILT_WORKLOAD_NAME)) {
        errors.joined(&path, workload, &problems::dns_subdomain(workload));
    }
    if !kind.takes_prebuilt && !prebuilt(job, settings).is_empty() {
        errors.forbidden(path, format!("Is not supported for \"{group}/{version}, Kind={name}\""));
    }
}

pub(super) fn queue_name(job: &Value, errors: &mut Errors) {
    if let Some(queue) = label(job, QUEUE_NAME) {
        errors.joined(&label_path(QUEUE_NAME), queue, &problems::dns_subdomain(queue));
    }
}

/// Few kinds can change their size while they run.
pub(super) fn elastic(job: &Value, kind: &Kind, settings: &Settings, errors: &mut Errors) {
    let Kind { group, version, name, .. } = kind;
    if is_elastic(job, settings) && !kind.takes_elastic {
        let why = format!("elastic job is not supported for \"{group}/{version}, Kind={name}\"");
        errors.forbidden(annotation_path(ELASTIC_JOB), why);
    }
}

/// The annotation with the Workload of a job. Without the gate, only names that do not fit into a label are there.
fn prebuilt_annotation<'j>(job: &'j Value, settings: &Settings) -> Option<&'j str> {
    annotation(job, PREBUILT_WORKLOAD_NAME).filter(|name| {
        !name.is_empty() && (settings.gates.identifier_annotations || name.len() > MAX_LABEL_VALUE)
    })
}

/// The Workload that a job names; empty if it names none.
pub(super) fn prebuilt<'j>(job: &'j Value, settings: &Settings) -> &'j str {
    let by_annotation = prebuilt_annotation(job, settings);
    let by_label = label(job, PREBUILT_WORKLOAD_NAME).filter(|name| !name.is_empty());
    let prefers_annotation = settings.gates.identifier_annotations;
    let found = if prefers_annotation { by_annotation.or(by_label) } else { by_label.or(by_annotation) };
    found.unwrap_or_default()
}

/// Where a job names its Workload, or would.
pub(super) fn prebuilt_path(job: &Value, settings: &Settings) -> String {
    match prebuilt_annotation(job, settings) {
        Some(_) => annotation_path(PREBUILT_WORKLOAD_NAME),
        None => label_path(PREBUILT_WORKLOAD_NAME),
    }
}

fn max_execution_time(job: &Value, errors: &mut Errors) {
    let Some(text) = label(job, MAX_EXEC_TIME_SECONDS) else { return };
    let path = label_path(MAX_EXEC_TIME_SECONDS);
    match text.parse::<i64>() {
        Ok(seconds) if seconds <= 0 => errors.invalid(path, seconds, "should be greater than 0"),
        Ok(_) => {}
        Err(_) => errors.invalid(path, text, go::number_problem("Atoi", text)),
    }
}

/// A class may be changed at any time, added only to a job that waits, and never removed.
pub(in super::super) fn priority_class(new: &Value, old: &Value, is_suspended: bool, errors: &mut Errors) {
    let path = label_path(PRIORITY_CLASS);
    let class_of = |job| label(job, PRIORITY_CLASS).filter(|class| !class.is_empty());
    match (class_of(old), class_of(new)) {
        (Some(_), None) => {
            errors.invalid(path, "", "WorkloadPriorityClass cannot be removed from a workload");
        }
        (None, Some(class)) if !is_suspended => {
            errors.invalid(path, class, "WorkloadPriorityClass cannot be added to a non-suspended workload");
        }
        _ => {}
    }
}
