//! Admission policies and their bindings.

use serde_json::{Value, json};

use super::super::value::{is_set, items, text};
use crate::cel::policy::Policy;
use crate::error::FieldError;
use crate::path::Path;

pub(super) fn policy(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    if items(new, "/spec/validations").is_empty() && items(new, "/spec/auditAnnotations").is_empty() {
        let detail = "validations or auditAnnotations must be non-empty";
        errors.push(FieldError::required(&path.field("validations"), format!("{detail}: {detail}")));
    }
    if items(new, "/spec/matchConstraints/resourceRules").is_empty() {
        let at = path.field("matchConstraints");
        if is_set(new, "/spec/matchConstraints") {
            errors.push(FieldError::required(&at.field("resourceRules"), ""));
        } else {
            errors.push(FieldError::required(&at, ""));
        }
    }
    if let Some(kind) = new.pointer("/spec/paramKind") {
        let at = path.field("paramKind");
        for key in ["apiVersion", "kind"] {
            if text(kind, &format!("/{key}")).is_empty() {
                errors.push(FieldError::required(&at.field(key), ""));
            }
        }
    }
    let at = path.field("validations");
    for (index, validation) in items(new, "/spec/validations").iter().enumerate() {
        let reason = text(validation, "/reason");
        let supported = ["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];
        if !reason.is_empty() && !supported.contains(&reason) {
            errors.push(FieldError::not_supported(
                &at.index(index).field("reason"),
                &json!(reason),
                &supported,
            ));
        }
    }
    if let Some(spec) = new.get("spec")
        && let Err(found) = Policy::parse(spec, &path)
    {
        errors.extend(found);
    }
}

pub(super) fn binding(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    if text(new, "/spec/policyName").is_empty() {
        errors.push(FieldError::required(&path.field("policyName"), ""));
    }
    let actions = items(new, "/spec/validationActions");
    let at = path.field("validationActions");
    if actions.is_empty() {
        errors.push(FieldError::required(&at, ""));
    }
    for (index, action) in actions.iter().enumerate() {
        let supported = ["Audit", "Deny", "Warn"];
        if !supported.iter().any(|known| action == known) {
            errors.push(FieldError::not_supported(&at.index(index), action, &supported));
        }
    }
    if actions.contains(&json!("Deny")) && actions.contains(&json!("Warn")) {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid(&at, &json!(actions), why));
    }
    if let Some(reference) = new.pointer("/spec/paramRef") {
        let at = path.field("paramRef");
        match (is_set(reference, "/name"), is_set(reference, "/selector")) {
            (true, true) => {
                errors.push(FieldError::forbidden(
                    &at.field("name"),
                    "name and selector are mutually exclusive",
                ));
            }
            (false, false) => {
                errors.push(FieldError::required(&at, "one of name or selector must be specified"));
            }
            _ => {}
        }
        if !is_set(reference, "/parameterNotFoundAction") {
            errors.push(FieldError::required(&at.field("parameterNotFoundAction"), ""));
        }
    }
}
