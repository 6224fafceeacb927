//! Pods: who waits behind a scheduling gate, and what makes a group. As `pkg/controller/jobs/pod/pod_webhook.go` of Kueue.

use std::borrow::Cow;

use quintet_api::kueue::metadata::{
    ADMISSION_GATE, MANAGED, MANAGED_FINALIZER, POD_GROUP_NAME, POD_GROUP_POD_INDEX,
    POD_GROUP_POD_INDEX_LABEL, POD_GROUP_TOTAL_COUNT, POD_SUSPENDING_PARENT, RETRIABLE_IN_GROUP, ROLE_HASH,
    TOPOLOGY_GATE,
};
use quintet_api::names::problems;
use quintet_controller::webhook::Verdict;
use serde_json::{Value, json};

use super::super::pod::hash_of;
use super::defaulting::{annotation, default_class, default_queue, label, put, queue_of, set_label};
use super::validation::{self, annotation_path, label_path, prebuilt, prebuilt_path};
use super::{Facts, Kind, Template, go, topology};
use crate::settings::Settings;
use crate::validation::Errors;

pub(super) const KIND: Kind = Kind {
    group: "",
    version: "v1",
    name: "Pod",
    resource: "pods",
    mutating: "mpod.kb.io",
    validating: "vpod.kb.io",
    mutate_path: "/mutate--v1-pod",
    validate_path: "/validate--v1-pod",
    mutates: &["CREATE"],
    is_enabled: Settings::manages_pods,
    default,
    validate,
    is_suspended,
    takes_prebuilt: true,
    takes_elastic: false,
    related_kinds: Vec::new,
    references: |_| Vec::new(),
};

fn is_suspended(pod: &Value) -> bool {
    let gates = pod["spec"]["schedulingGates"].as_array().into_iter().flatten();
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
        || gates.into_iter().any(|gate| gate["name"] == ADMISSION_GATE)
}

fn default(pod: &mut Value, facts: &Facts, settings: &Settings) -> Result<(), String> {
    if annotation(pod, POD_SUSPENDING_PARENT).is_none() {
        if !waits(pod, facts, settings)? {
            return Ok(());
        }
        default_queue(pod, facts);
        default_class(pod, facts);
        set_label(pod, MANAGED, "true");
        add(&mut pod["metadata"]["finalizers"], json!(MANAGED_FINALIZER));
    }
    add(&mut pod["spec"]["schedulingGates"], json!({ "name": ADMISSION_GATE }));
    if settings.scheduling.tas {
        if let Some(name) = annotation(pod, POD_GROUP_POD_INDEX_LABEL).map(str::to_owned) {
            let index = label(pod, &name).unwrap_or_default().to_owned();
            set_label(pod, POD_GROUP_POD_INDEX, &index);
        }
        add(&mut pod["spec"]["schedulingGates"], json!({ "name": TOPOLOGY_GATE }));
    }
    if annotation(pod, ROLE_HASH).is_none() {
        let hash = hash_of(&pod["spec"]);
        put(&mut pod["metadata"]["annotations"], ROLE_HASH, &hash);
    }
    Ok(())
}

/// Whether a pod of its own has to wait. Owners do not matter to those that have no queue: their pods are not held up
/// until the owner is known.
fn waits(pod: &Value, facts: &Facts, settings: &Settings) -> Result<bool, String> {
    let has_queue = !queue_of(pod).is_empty() || facts.has_default_queue;
    let is_queued = has_queue || settings.configuration.manage_jobs_without_queue_name;
    if !facts.is_namespace_managed || !is_queued {
        return Ok(false);
    }
    facts.ancestor.lets_wait()
}

/// Adds an item to a list that may not exist, unless it is there.
fn add(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) if items.contains(&item) => {}
        Some(items) => items.push(item),
        None => *list = json!([item]),
    }
}

fn validate(pod: &Value, old: Option<&Value>, kind: &Kind, facts: &Facts, settings: &Settings) -> Verdict {
    let mut errors = Errors::default();
    match old {
        None => validation::state(pod, kind, settings, &mut errors),
        Some(old) => validation::change(pod, old, kind, facts, settings, &mut errors),
    }
    check(pod, settings, &mut errors);
    if let Some(old) = old {
        change(pod, old, settings, &mut errors);
    }
    let verdict = errors.verdict();
    let is_of_parent = annotation(pod, POD_SUSPENDING_PARENT).is_some();
    let is_warned = label(pod, MANAGED) == Some("true") && facts.has_integrated_owner;
    if is_warned && (old.is_none() || !is_of_parent) {
        // It waits twice.
        let warning = format!(
            "pod owner is managed by kueue, label '{MANAGED}=true' might lead to unexpected behaviour"
        );
        return verdict.warn(warning);
    }
    verdict
}

/// What is checked of every state of a pod, beyond what is of a job.
fn check(pod: &Value, settings: &Settings, errors: &mut Errors) {
    if label(pod, MANAGED).is_some_and(|value| value != "true") {
        errors.forbidden(label_path(MANAGED), "managed label value can only be 'true'");
    }
    group(pod, settings, errors);
    let annotations = Cow::Borrowed(&pod["metadata"]["annotations"]);
    let template = Template { path: "metadata.annotations".to_owned(), annotations, count: i64::MAX };
    topology::check(&template, &settings.scheduling, errors);
    let workload = prebuilt(pod, settings);
    if group_of(pod, settings).is_some_and(|(_, group)| !workload.is_empty() && group != workload) {
        let path = prebuilt_path(pod, settings);
        errors.invalid(path, workload, "prebuilt workload and pod group should be equal");
    }
}

/// The group that a pod names, and whether it is by annotation.
fn group_of<'p>(pod: &'p Value, settings: &Settings) -> Option<(bool, &'p str)> {
    let of = |text: Option<&'p str>| text.filter(|text| !text.is_empty());
    let by_annotation = of(annotation(pod, POD_GROUP_NAME)).filter(|_| settings.gates.identifier_annotations);
    let by_label = || of(label(pod, POD_GROUP_NAME)).map(|name| (false, name));
    by_annotation.map(|name| (true, name)).or_else(by_label)
}

fn group_path(is_annotation: bool) -> String {
    if is_annotation { annotation_path(POD_GROUP_NAME) } else { label_path(POD_GROUP_NAME) }
}

/// A group has a name and a size.
fn group(pod: &Value, settings: &Settings, errors: &mut Errors) {
    let group = group_of(pod, settings);
    let is_annotation = group.is_some_and(|(is_annotation, _)| is_annotation);
    let place = if is_annotation { "annotation" } else { "label" };
    let both = format!(
        "both the '{POD_GROUP_TOTAL_COUNT}' annotation and the '{POD_GROUP_NAME}' {place} should be set"
    );
    let count = annotation(pod, POD_GROUP_TOTAL_COUNT);
    if let Some((is_annotation, name)) = group {
        errors.joined(&group_path(is_annotation), name, &problems::dns_subdomain(name));
    }
    let path = annotation_path(POD_GROUP_TOTAL_COUNT);
    match (group, count) {
        (None, None) => {}
        (None, Some(_)) => errors.required(group_path(false), &both),
        (Some(_), None) => errors.required(path, &both),
        (Some(_), Some(text)) => match text.parse::<i64>() {
            Err(_) => errors.invalid(path, text, go::number_problem("Atoi", text)),
            Ok(count) if count < 1 => {
                let why = format!(
                    "incorrect annotation value '{POD_GROUP_TOTAL_COUNT}={text}': group total count should be greater than zero"
                );
                errors.invalid(path, text, why);
            }
            Ok(_) => {}
        },
    }
}

fn change(new: &Value, old: &Value, settings: &Settings, errors: &mut Errors) {
    let (new_group, old_group) = (group_of(new, settings), group_of(old, settings));
    let is_final = |pod: &Value| annotation(pod, RETRIABLE_IN_GROUP) == Some("false");
    if new_group.is_some() && is_final(old) && !is_final(new) {
        let why = "unretriable pod group can't be converted to retriable";
        errors.forbidden(annotation_path(RETRIABLE_IN_GROUP), why);
    }
    let name = |group: Option<(bool, &str)>| group.map(|(_, name)| name.to_owned()).unwrap_or_default();
    if old_group.is_some() && name(new_group) != name(old_group) {
        let path = group_path(new_group.is_some_and(|(is_annotation, _)| is_annotation));
        errors.invalid(path, name(new_group), "field is immutable");
    }
}
