//! What is checked of `batch/v1` Jobs beyond other jobs. As `pkg/controller/jobs/job/job_webhook.go` of Kueue.

use quintet_api::kueue::metadata::{JOB_COMPLETIONS_EQUAL_PARALLELISM, JOB_MIN_PARALLELISM, STOPPING};
use quintet_controller::webhook::Verdict;
use serde_json::{Value, json};

use super::super::json::is_elastic;
use super::super::slices::ELASTIC_GATE;
use super::super::topology_request::{PREFERRED, REQUIRED};
use super::defaulting::{self, annotation};
use super::validation::{self, annotation_path};
use super::{Facts, Kind, Template, go, topology};
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
    is_suspended,
    takes_prebuilt: true,
    takes_elastic: true,
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
    let mut errors = Errors::default();
    validation::state(job, kind, settings, &mut errors);
    // A Job that was admitted partially may have no more pods than its minimum.
    if old.is_none_or(|old| annotation(old, JOB_MIN_PARALLELISM) != annotation(job, JOB_MIN_PARALLELISM)) {
        check_minimum(job, settings, &mut errors);
    }
    check_completions(job, &mut errors);
    if let Some(old) = old {
        validation::change(job, old, kind, facts, settings, &mut errors);
        check_change(job, old, &mut errors);
    }
    if settings.scheduling.tas {
        errors.add(topology_errors(job, settings), "");
    }
    errors.verdict()
}

/// What is wrong with the topology request: first how it is written, then what elastic Jobs cannot ask for, then its size.
fn topology_errors(job: &Value, settings: &Settings) -> Errors {
    let template = Template::at("spec.template", &job["spec"]["template"], pod_count(job));
    let mut errors = Errors::default();
    topology::check(&template, &settings.scheduling, &mut errors);
    if errors.is_empty() && is_elastic(job, settings) {
        check_elastic(job, &mut errors);
    }
    if errors.is_empty() {
        topology::check_sizes(&template, &mut errors);
    }
    errors
}

/// Pods of an elastic Job are placed wherever there is room.
fn check_elastic(job: &Value, errors: &mut Errors) {
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

/// How many pods run at the same time.
fn pod_count(job: &Value) -> i64 {
    let parallelism = parallelism(job);
    job["spec"]["completions"].as_i64().map_or(parallelism, |count| count.min(parallelism))
}

fn check_minimum(job: &Value, settings: &Settings, errors: &mut Errors) {
    let Some(text) = annotation(job, JOB_MIN_PARALLELISM) else { return };
    let path = annotation_path(JOB_MIN_PARALLELISM);
    match text.parse::<i64>() {
        Err(_) => errors.invalid(&path, text, go::number_problem("Atoi", text)),
        Ok(least) if least <= 0 || least >= pod_count(job) => {
            errors.invalid(&path, least, format!("should be between 0 and {}", pod_count(job) - 1));
        }
        Ok(_) => {}
    }
    if is_elastic(job, settings) {
        let why = "partial admission and elastic job cannot be used together";
        errors.invalid(path, text, why);
    }
}

fn check_completions(job: &Value, errors: &mut Errors) {
    let Some(text) = annotation(job, JOB_COMPLETIONS_EQUAL_PARALLELISM) else { return };
    let path = annotation_path(JOB_COMPLETIONS_EQUAL_PARALLELISM);
    match go::parse_bool(text) {
        Ok(true) => {}
        Ok(false) => return,
        Err(why) => return errors.invalid(path, text, why),
    }
    if job["spec"]["completionMode"] != "Indexed" {
        errors.invalid(path, text, "should not be enabled for NonIndexed jobs");
    }
    let completions = job["spec"]["completions"].as_i64();
    if completions.unwrap_or(1) != parallelism(job) {
        let why = format!(
            "should be equal to parallelism when {JOB_COMPLETIONS_EQUAL_PARALLELISM} annotation is true"
        );
        errors.invalid("spec.completions", completions, why);
    }
}

/// The parallelism of a partially admitted Job is Kueue's while it runs, and so are its completions.
fn check_change(new: &Value, old: &Value, errors: &mut Errors) {
    let was_suspended = old["spec"]["suspend"] == true;
    let was_partial = annotation(old, JOB_MIN_PARALLELISM).is_some();
    if was_partial && !was_suspended && parallelism(new) != parallelism(old) {
        let why = "cannot change when partial admission is enabled and the job is not suspended";
        errors.forbidden("spec.parallelism", why);
    }
    let syncs =
        |job| annotation(job, JOB_COMPLETIONS_EQUAL_PARALLELISM).map(go::parse_bool) == Some(Ok(true));
    if !is_suspended(old) && !is_suspended(new) && syncs(old) != syncs(new) {
        let why = "field is immutable while the job is not suspended";
        errors.forbidden(annotation_path(JOB_COMPLETIONS_EQUAL_PARALLELISM), why);
    }
}

/// Whether a Job may not run. One that is being stopped is not at rest yet.
fn is_suspended(job: &Value) -> bool {
    job["spec"]["suspend"] == true && annotation(job, STOPPING) != Some("true")
}
