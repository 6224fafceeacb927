//! Labels, annotations, selectors, tolerations and conditions, as `k8s.io/apimachinery` checks them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, LabelSelectorRequirement};
use quintet_api::names::problems;

use super::field::Errors;

/// All annotations of an object together.
const MAX_ANNOTATIONS: usize = 256 * 1024;
const MAX_REASON: usize = 1024;
const MAX_MESSAGE: usize = 32 * 1024;

const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

type Texts = BTreeMap<String, String>;

pub(crate) fn labels(labels: Option<&Texts>, path: &str, errors: &mut Errors) {
    for (key, value) in labels.into_iter().flatten() {
        errors.each(path, key, problems::qualified_name(key));
        errors.each(path, value, problems::label_value(value));
    }
}

pub(crate) fn annotations(annotations: Option<&Texts>, path: &str, errors: &mut Errors) {
    for key in annotations.into_iter().flatten().map(|(key, _)| key) {
        errors.each(path, key, problems::qualified_name(&key.to_lowercase()));
    }
    let size: usize = annotations.into_iter().flatten().map(|(key, value)| key.len() + value.len()).sum();
    if size > MAX_ANNOTATIONS {
        errors.too_long(path, MAX_ANNOTATIONS);
    }
}

pub(crate) fn label_selector(selector: Option<&LabelSelector>, path: &str, errors: &mut Errors) {
    let Some(selector) = selector else { return };
    labels(selector.match_labels.as_ref(), &format!("{path}.matchLabels"), errors);
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        label_requirement(requirement, &format!("{path}.matchExpressions[{index}]"), errors);
    }
}

fn label_requirement(requirement: &LabelSelectorRequirement, path: &str, errors: &mut Errors) {
    let values = requirement.values.as_deref().unwrap_or(&[]);
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(format!("{path}.values"), "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(
            format!("{path}.values"),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(format!("{path}.operator"), other, "not a valid selector operator"),
    }
    let key = requirement.key.as_str();
    errors.each(&format!("{path}.key"), key, problems::qualified_name(key));
    for (index, value) in values.iter().enumerate() {
        errors.each(&format!("{path}.values[{index}]"), value, problems::label_value(value));
    }
}

pub(crate) fn tolerations(tolerations: Option<&Vec<Toleration>>, path: &str, errors: &mut Errors) {
    for (index, toleration) in tolerations.into_iter().flatten().enumerate() {
        if let Some(key) = toleration.key.as_deref().filter(|key| !key.is_empty()) {
            errors.each(&format!("{path}[{index}].key"), key, problems::qualified_name(key));
        }
    }
}

pub(crate) fn conditions(conditions: Option<&Vec<Condition>>, path: &str, errors: &mut Errors) {
    let mut known = BTreeSet::new();
    for (index, condition) in conditions.into_iter().flatten().enumerate() {
        let path = format!("{path}[{index}]");
        if !known.insert(&condition.type_) {
            errors.duplicate(format!("{path}.type"), &condition.type_);
        }
        errors.each(&format!("{path}.type"), &condition.type_, problems::qualified_name(&condition.type_));
        if !["False", "True", "Unknown"].contains(&condition.status.as_str()) {
            errors.unsupported(format!("{path}.status"), &condition.status, ["False", "True", "Unknown"]);
        }
        if let Some(negative) = condition.observed_generation.filter(|generation| *generation < 0) {
            let path = format!("{path}.observedGeneration");
            errors.invalid(path, negative, "must be greater than or equal to zero");
        }
        let reason = condition.reason.as_str();
        let path_of_reason = format!("{path}.reason");
        if reason.is_empty() {
            errors.required(&path_of_reason, "");
        } else if !is_reason(reason) {
            errors.invalid(&path_of_reason, reason, REASON);
        }
        if reason.len() > MAX_REASON {
            errors.too_long(path_of_reason, MAX_REASON);
        }
        if condition.message.len() > MAX_MESSAGE {
            errors.too_long(format!("{path}.message"), MAX_MESSAGE);
        }
    }
}

fn is_reason(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_,:".contains(&byte);
    text.bytes().all(is_inner)
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '_')
}
