//! Kinds of the cluster itself: classes, roles, webhooks.

use serde_json::{Value, json};

use super::super::Kind;
use super::super::value::{is_set, items, number, text};
use super::{forbidden, immutable, one_of};
use crate::error::FieldError;
use crate::names;
use crate::path::Path;

pub(super) fn lease(new: &Value, errors: &mut Vec<FieldError>) {
    if let Some(seconds) = number(new, "/spec/leaseDurationSeconds")
        && seconds <= 0
    {
        let path = Path::new("spec.leaseDurationSeconds");
        errors.push(FieldError::invalid(&path, &json!(seconds), "must be greater than 0"));
    }
    if let Some(count) = number(new, "/spec/leaseTransitions")
        && count < 0
    {
        let path = Path::new("spec.leaseTransitions");
        errors.push(FieldError::invalid(&path, &json!(count), "must be greater than or equal to 0"));
    }
}

pub(super) fn priority_class(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let value = number(new, "/value").unwrap_or(0);
    if value > 1_000_000_000 && !text(new, "/metadata/name").starts_with("system-") {
        errors.push(forbidden("value", "maximum allowed value of a user defined priority is 1000000000"));
    }
    one_of(
        text(new, "/preemptionPolicy"),
        &["Never", "PreemptLowerPriority"],
        &Path::new("preemptionPolicy"),
        errors,
    );
    let Some(old) = old else { return };
    if number(old, "/value").unwrap_or(0) != value {
        errors.push(forbidden("value", "may not be changed in an update."));
    }
    if new.get("preemptionPolicy") != old.get("preemptionPolicy") {
        errors.push(forbidden("preemptionPolicy", "may not be changed in an update."));
    }
}

pub(super) fn storage_class(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if text(new, "/provisioner").is_empty() {
        errors.push(FieldError::required(&Path::new("provisioner"), ""));
    }
    let Some(old) = old else { return };
    for field in ["parameters", "provisioner", "reclaimPolicy"] {
        if new.get(field) != old.get(field) {
            errors.push(forbidden(field, &format!("updates to {field} are forbidden.")));
        }
    }
    immutable(new, old, "/volumeBindingMode", errors);
}

pub(super) fn runtime_class(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if text(new, "/handler").is_empty() {
        errors.push(FieldError::required(&Path::new("handler"), ""));
    } else {
        for problem in names::dns_label(text(new, "/handler")) {
            errors.push(FieldError::invalid(&Path::new("handler"), &json!(text(new, "/handler")), problem));
        }
    }
    if let Some(old) = old {
        immutable(new, old, "/handler", errors);
    }
}

pub(super) fn rbac(kind: &Kind, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let rules = Path::new("rules");
    for (index, rule) in items(new, "/rules").iter().enumerate() {
        let at = rules.index(index);
        if items(rule, "/verbs").is_empty() {
            errors.push(FieldError::required(&at.field("verbs"), "verbs must contain at least one value"));
        }
        let is_path = !items(rule, "/nonResourceURLs").is_empty();
        if is_path && kind.is_namespaced {
            errors.push(FieldError::invalid(
                &at.field("nonResourceURLs"),
                rule.get("nonResourceURLs").unwrap_or(&Value::Null),
                "namespaced rules cannot apply to non-resource URLs",
            ));
        } else if !is_path {
            if items(rule, "/apiGroups").is_empty() {
                errors.push(FieldError::required(
                    &at.field("apiGroups"),
                    "resource rules must supply at least one api group",
                ));
            }
            if items(rule, "/resources").is_empty() {
                errors.push(FieldError::required(
                    &at.field("resources"),
                    "resource rules must supply at least one resource",
                ));
            }
        }
    }
    if !kind.kind.ends_with("Binding") {
        return;
    }
    let role = Path::new("roleRef");
    let group = text(new, "/roleRef/apiGroup");
    if group != "rbac.authorization.k8s.io" {
        errors.push(FieldError::not_supported(
            &role.field("apiGroup"),
            &json!(group),
            &["rbac.authorization.k8s.io"],
        ));
    }
    let allowed: &[&str] = if kind.is_namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let role_kind = text(new, "/roleRef/kind");
    if !allowed.contains(&role_kind) {
        errors.push(FieldError::not_supported(&role.field("kind"), &json!(role_kind), allowed));
    }
    if text(new, "/roleRef/name").is_empty() {
        errors.push(FieldError::required(&role.field("name"), ""));
    }
    let subjects = Path::new("subjects");
    for (index, subject) in items(new, "/subjects").iter().enumerate() {
        let at = subjects.index(index);
        if text(subject, "/name").is_empty() {
            errors.push(FieldError::required(&at.field("name"), ""));
        }
        match text(subject, "/kind") {
            "ServiceAccount" => {
                // In a RoleBinding it is the binding's own.
                if text(subject, "/namespace").is_empty() && !kind.is_namespaced {
                    errors.push(FieldError::required(&at.field("namespace"), ""));
                }
            }
            "User" | "Group" => {}
            other => errors.push(FieldError::not_supported(
                &at.field("kind"),
                &json!(other),
                &["ServiceAccount", "User", "Group"],
            )),
        }
    }
    if let Some(old) = old
        && new.get("roleRef") != old.get("roleRef")
    {
        errors.push(FieldError::invalid(
            &Path::new("roleRef"),
            new.get("roleRef").unwrap_or(&Value::Null),
            "cannot change roleRef",
        ));
    }
}

pub(super) fn webhooks(kind: &Kind, new: &Value, errors: &mut Vec<FieldError>) {
    if !kind.kind.ends_with("WebhookConfiguration") {
        return;
    }
    let path = Path::new("webhooks");
    let mut seen = std::collections::BTreeSet::new();
    for (index, hook) in items(new, "/webhooks").iter().enumerate() {
        let at = path.index(index);
        let name = text(hook, "/name");
        if name.is_empty() {
            errors.push(FieldError::required(&at.field("name"), ""));
        } else if !names::is_dns_subdomain(name) || name.split('.').count() < 3 {
            errors.push(FieldError::invalid(
                &at.field("name"),
                &json!(name),
                "should be a domain with at least three segments separated by dots",
            ));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&at.field("name"), &json!(name)));
        }
        if items(hook, "/admissionReviewVersions").is_empty() {
            errors.push(FieldError::required(
                &at.field("admissionReviewVersions"),
                "must specify one of v1, v1beta1",
            ));
        }
        match text(hook, "/sideEffects") {
            "" => errors.push(FieldError::required(
                &at.field("sideEffects"),
                "must specify one of None, NoneOnDryRun",
            )),
            "None" | "NoneOnDryRun" => {}
            other => errors.push(FieldError::not_supported(
                &at.field("sideEffects"),
                &json!(other),
                &["None", "NoneOnDryRun"],
            )),
        }
        if let Some(seconds) = number(hook, "/timeoutSeconds")
            && !(1..=30).contains(&seconds)
        {
            errors.push(FieldError::invalid(
                &at.field("timeoutSeconds"),
                &json!(seconds),
                "the timeout value must be between 1 and 30 seconds",
            ));
        }
        let client = at.field("clientConfig");
        match (is_set(hook, "/clientConfig/url"), is_set(hook, "/clientConfig/service")) {
            (true, true) | (false, false) => {
                errors.push(FieldError::required(&client, "exactly one of url or service is required"));
            }
            _ => {}
        }
        one_of(text(hook, "/failurePolicy"), &["Fail", "Ignore"], &at.field("failurePolicy"), errors);
        one_of(text(hook, "/matchPolicy"), &["Equivalent", "Exact"], &at.field("matchPolicy"), errors);
        let conditions = at.field("matchConditions");
        for (index, condition) in items(hook, "/matchConditions").iter().enumerate() {
            let at = conditions.index(index);
            let expression = text(condition, "/expression");
            if let Err(error) = crate::cel::Condition::compile(text(condition, "/name"), expression) {
                errors.push(FieldError::invalid(
                    &at.field("expression"),
                    &json!(expression),
                    error.to_string(),
                ));
            }
        }
    }
}

pub(super) fn api_service(new: &Value, errors: &mut Vec<FieldError>) {
    let (group, version) = (text(new, "/spec/group"), text(new, "/spec/version"));
    let wanted = format!("{version}.{group}");
    let name = text(new, "/metadata/name");
    if name != wanted {
        errors.push(FieldError::invalid(
            &Path::new("metadata.name"),
            &json!(name),
            format!("must be `spec.version+\".\"+spec.group`: \"{wanted}\""),
        ));
    }
    let path = Path::new("spec");
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let value = number(new, &format!("/spec/{field}")).unwrap_or(0);
        if !(1..=most).contains(&value) {
            errors.push(FieldError::invalid(
                &path.field(field),
                &json!(value),
                format!("must be positive and less than {most}"),
            ));
        }
    }
}

/// A new event is about something in its own namespace.
pub(super) fn event(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let field = if new.get("regarding").is_some() { "regarding" } else { "involvedObject" };
    let about = text(new, &format!("/{field}/namespace"));
    let namespace = text(new, "/metadata/namespace");
    // Events about objects without a namespace are kept in the default one.
    let is_right = about == namespace || about.is_empty() && namespace == "default";
    if old.is_none() && !is_right {
        let path = Path::new("involvedObject");
        errors.push(FieldError::invalid(
            &path.field("namespace"),
            &json!(about),
            "does not match event.namespace",
        ));
    }
}
