//! Admission policies and their bindings.

use serde_json::{Value, json};

use super::super::value::{is_set, items, text};
use super::one_of;
use crate::cel::policy::Policy;
use crate::error::FieldError;
use crate::path::Path;

pub(super) fn policy(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    if items(new, "/spec/validations").is_empty() && items(new, "/spec/auditAnnotations").is_empty() {
        let detail = "validations or auditAnnotations must be non-empty";
        errors.push(FieldError::required(&path.field("validations"), format!("{detail}: {detail}")));
    }
    common(new, errors);
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
    expressions(new, errors);
}

/// A policy that changes objects.
pub(super) fn mutating_policy(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    common(new, errors);
    mutated_operations(new, "/spec/matchConstraints", errors);
    let mutations = items(new, "/spec/mutations");
    let at = path.field("mutations");
    if mutations.is_empty() {
        errors.push(FieldError::required(&at, "mutations must contain at least one item"));
    }
    for (index, mutation) in mutations.iter().enumerate() {
        self::mutation(mutation, &at.index(index), errors);
    }
    let reinvocation = path.field("reinvocationPolicy");
    one_of(text(new, "/spec/reinvocationPolicy"), &["IfNeeded", "Never"], &reinvocation, errors);
    expressions(new, errors);
}

fn mutation(mutation: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let (own, other) = match text(mutation, "/patchType") {
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        kind => return one_of(kind, &["ApplyConfiguration", "JSONPatch"], &path.field("patchType"), errors),
    };
    let kind = text(mutation, "/patchType");
    if mutation.get(own).is_none() {
        let detail = format!("must be specified when patchType is {kind}");
        errors.push(FieldError::required(&path.field(own), detail));
    }
    if mutation.get(other).is_some() {
        let detail = format!("must not be specified when patchType is {kind}");
        errors.push(FieldError::invalid(&path.field(other), &json!(format!("{{{other}}}")), detail));
    }
}

/// Only what is created or updated can be changed on its way.
fn mutated_operations(new: &Value, rules: &str, errors: &mut Vec<FieldError>) {
    let path = format!("{}.resourceRules.operations", rules.trim_start_matches('/').replace('/', "."));
    for rule in items(new, &format!("{rules}/resourceRules")) {
        for operation in items(rule, "/operations") {
            if operation != "CREATE" && operation != "UPDATE" {
                errors.push(FieldError::not_supported(&Path::new(&path), operation, &["CREATE", "UPDATE"]));
            }
        }
    }
}

/// What all policies have.
fn common(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
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
}

fn expressions(new: &Value, errors: &mut Vec<FieldError>) {
    if let Some(spec) = new.get("spec")
        && let Err(found) = Policy::parse(spec, &Path::new("spec"))
    {
        errors.extend(found);
    }
}

/// A binding of a policy that changes objects.
pub(super) fn mutating_binding(new: &Value, errors: &mut Vec<FieldError>) {
    bound_policy(new, errors);
    mutated_operations(new, "/spec/matchResources", errors);
    param_ref(new, errors);
}

fn bound_policy(new: &Value, errors: &mut Vec<FieldError>) {
    if text(new, "/spec/policyName").is_empty() {
        let path = Path::new("spec");
        errors.push(FieldError::required(&path.field("policyName"), ""));
    }
}

pub(super) fn binding(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    bound_policy(new, errors);
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
    param_ref(new, errors);
}

fn param_ref(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
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
