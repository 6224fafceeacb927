//! What is checked of `batch/v1` Jobs beyond other jobs. As `pkg/controller/jobs/job/job_webhook.go` of Kueue.

use quintet_api::kueue::metadata::{JOB_COMPLETIONS_EQUAL_PARALLELISM, JOB_MIN_PARALLELISM};
use quintet_controller::webhook::Verdict;
use serde_json::{Value, json};

use super::super::slices::ELASTIC_GATE;
use super::super::topology_request::{PREFERRED, REQUIRED};
use super::defaulting::{self, annotation};
use super::validation::{self, annotation_path, is_elastic, not_a_number};
use super::{Facts, Kind, Template};
use crate::settings::{BATCH_JOB, Settings};
use crate::validation::Errors;

pub(super) const KIND: Kind = Kind {
    group: "batch",
    version: "v1",
    name: "Job",
    resource: "jobs",
    mutating: "mjob.kb.io",
    validating: "vjob.kb.io",
    mutate_path: "/mutate-batch-v1-job",
    validate_path: "/validate-batch-v1-job",
    mutates: &["CREATE"],
    is_enabled: |settings| settings.is_enabled(BATCH_JOB),
    default,
    validate,
    is_suspended: |job| job["spec"]["suspend"] == true,
    takes_prebuilt: true,
    takes_elastic: true,
    templates,
    check,
    related_kinds: Vec::new,
    references: |_| Vec::new(),
};

fn default(job: &mut Value, facts: &Facts, settings: &Settings) -> Result<(), String> {
    defaulting::default(job, "/spec/suspend", facts, settings)?;
    if is_elastic(job, settings) {
        gate(&mut job["spec"]["template"]);
    }
    Ok(())
}

/// Pods of an elastic job wait until their slice is admitted.
fn gate(template: &mut Value) {
    let gates = &mut template["spec"]["schedulingGates"];
    if !gates.is_array() {
        *gates = json!([]);
    }
    if let Some(gates) = gates.as_array_mut()
        && !gates.iter().any(|gate| gate["name"] == ELASTIC_GATE)
    {
        gates.push(json!({ "name": ELASTIC_GATE }));
    }
}

fn validate(job: &Value, old: Option<&Value>, kind: &Kind, facts: &Facts, settings: &Settings) -> Verdict {
    if !is_elastic(job, settings) {
        return validation::of_job(job, old, kind, facts, settings);
    }
    let mut errors = match old {
        None => validation::of_create(job, kind, settings),
        Some(old) => validation::of_update(job, old, kind, facts, settings),
    };
    check_elastic(job, settings, &mut errors);
    errors.verdict()
}

/// An elastic Job is admitted as a whole, and its pods are placed wherever there is room.
fn check_elastic(job: &Value, settings: &Settings, errors: &mut Errors) {
    if let Some(least) = annotation(job, JOB_MIN_PARALLELISM) {
        let why = "partial admission and elastic job cannot be used together";
        errors.invalid(annotation_path(JOB_MIN_PARALLELISM), least, why);
    }
    if !settings.scheduling.tas {
        return;
    }
    let annotations = &job["spec"]["template"]["metadata"]["annotations"];
    let requests = [(REQUIRED, "required"), (PREFERRED, "preferred")];
    if let Some((name, mode)) = requests.into_iter().find(|(name, _)| annotations[*name].is_string()) {
        let why = format!("{mode} topology is not supported with elastic jobs");
        errors.forbidden(format!("spec.template.metadata.annotations.{name}"), why);
    }
}

fn parallelism(job: &Value) -> i64 {
    job["spec"]["parallelism"].as_i64().unwrap_or(1)
}

fn templates(job: &Value) -> Vec<Template<'_>> {
    vec![Template::at("spec.template", &job["spec"]["template"], pod_count(job))]
}

/// How many pods run at the same time.
fn pod_count(job: &Value) -> i64 {
    let parallelism = parallelism(job);
    job["spec"]["completions"].as_i64().map_or(parallelism, |count| count.min(parallelism))
}

fn check(job: &Value, old: Option<&Value>, errors: &mut Errors) {
    // A Job that was admitted partially may have no more pods than its minimum.
    if old.is_none_or(|old| annotation(old, JOB_MIN_PARALLELISM) != annotation(job, JOB_MIN_PARALLELISM)) {
        check_minimum(job, errors);
    }
    check_completions(job, errors);
    if let Some(old) = old {
        check_change(job, old, errors);
    }
}

fn check_minimum(job: &Value, errors: &mut Errors) {
    let Some(text) = annotation(job, JOB_MIN_PARALLELISM) else { return };
    let path = annotation_path(JOB_MIN_PARALLELISM);
    match text.parse::<i64>() {
        Err(_) => errors.invalid(path, text, not_a_number(text)),
        Ok(least) if least <= 0 || least >= pod_count(job) => {
            errors.invalid(path, least, format!("should be between 0 and {}", pod_count(job) - 1));
        }
        Ok(_) => {}
    }
}

fn check_completions(job: &Value, errors: &mut Errors) {
    let Some(text) = annotation(job, JOB_COMPLETIONS_EQUAL_PARALLELISM) else { return };
    let path = annotation_path(JOB_COMPLETIONS_EQUAL_PARALLELISM);
    match text {
        "true" => {}
        "false" => return,
        text => {
            let why = format!("strconv.ParseBool: parsing {text:?}: invalid syntax");
            return errors.invalid(path, text, why);
        }
    }
    if job["spec"]["completionMode"] != "Indexed" {
        errors.invalid(path, text, "should not be enabled for NonIndexed jobs");
    }
    let completions = job["spec"]["completions"].as_i64();
    if completions.is_some_and(|completions| completions != parallelism(job)) {
        let why = format!(
            "should be equal to parallelism when {JOB_COMPLETIONS_EQUAL_PARALLELISM} annotation is true"
        );
        errors.invalid("spec.completions", completions, why);
    }
}

/// The parallelism of a partially admitted Job is Kueue's while it runs.
fn check_change(new: &Value, old: &Value, errors: &mut Errors) {
    let is_suspended = KIND.is_suspended;
    let is_partial = annotation(new, JOB_MIN_PARALLELISM).is_some();
    if is_partial && !is_suspended(old) && !is_suspended(new) && parallelism(new) != parallelism(old) {
        let why = "cannot change when partial admission is enabled and the job is not suspended";
        errors.forbidden("spec.parallelism", why);
    }
}
