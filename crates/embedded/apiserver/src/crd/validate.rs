//! What a definition must be like.

use std::collections::HashSet;

use quintet_objects::{FieldError, Path, names, schema::Structural};
use serde_json::{Value, json};

use super::is_true;
use crate::json::{items, text, texts};

const APPROVAL: &str = "api-approved.kubernetes.io";
const MAX_SELECTABLE: usize = 8;

/// Everything wrong with a definition; `old` is what it replaces.
pub(crate) fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = Path::new("spec");
    let (group, plural) = (text(new, "/spec/group"), text(new, "/spec/names/plural"));
    let metadata = Path::new("metadata");
    let name = text(new, "/metadata/name");
    if name != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid(&metadata.field("name"), &json!(name), why));
    }
    check_group(new, group, &mut errors);
    let scope = text(new, "/spec/scope");
    if scope.is_empty() {
        errors.push(FieldError::required(&spec.field("scope"), ""));
    } else if !matches!(scope, "Namespaced" | "Cluster") {
        errors.push(FieldError::not_supported(
            &spec.field("scope"),
            &json!(scope),
            &["Cluster", "Namespaced"],
        ));
    }
    check_names(new, &mut errors);
    check_versions(new, &mut errors);
    if new.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true)) {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid(&spec.field("preserveUnknownFields"), &json!(true), why));
    }
    let strategy = text(new, "/spec/conversion/strategy");
    let conversion = spec.field("conversion");
    if !matches!(strategy, "None" | "Webhook") {
        errors.push(FieldError::not_supported(
            &conversion.field("strategy"),
            &json!(strategy),
            &["None", "Webhook"],
        ));
    } else if strategy == "Webhook" && new.pointer("/spec/conversion/webhook/clientConfig").is_none() {
        let why = "required when strategy is set to Webhook";
        errors.push(FieldError::required(&conversion.field("webhook.clientConfig"), why));
    }
    if let Some(old) = old {
        check_change(new, old, &mut errors);
    }
    errors
}

fn check_group(new: &Value, group: &str, errors: &mut Vec<FieldError>) {
    let spec = Path::new("spec");
    let path = spec.field("group");
    if group.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else if let Some(why) = names::dns_subdomain(group).into_iter().next() {
        errors.push(FieldError::invalid(&path, &json!(group), why));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(&path, &json!(group), "should be a domain with at least one dot"));
    }
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group == *own || group.strip_suffix(own).is_some_and(|rest| rest.ends_with('.')));
    let approval = new.pointer("/metadata/annotations").and_then(|all| all.get(APPROVAL));
    if is_protected && approval.and_then(Value::as_str).unwrap_or_default().is_empty() {
        let metadata = Path::new("metadata");
        let annotations = metadata.field("annotations");
        let why = format!(
            "protected groups must have approval annotation {APPROVAL:?}, see https://github.com/kubernetes/enhancements/pull/1111"
        );
        errors.push(FieldError::required(&annotations.key(APPROVAL), why));
    }
}

fn check_names(new: &Value, errors: &mut Vec<FieldError>) {
    let spec = Path::new("spec");
    let path = spec.field("names");
    for key in ["plural", "singular"] {
        let name = text(new, &format!("/spec/names/{key}"));
        if name.is_empty() {
            errors.push(FieldError::required(&path.field(key), ""));
        } else if let Some(why) = names::dns1035_label(name).into_iter().next() {
            errors.push(FieldError::invalid(&path.field(key), &json!(name), why));
        }
    }
    for key in ["kind", "listKind"] {
        let name = text(new, &format!("/spec/names/{key}"));
        if name.is_empty() {
            errors.push(FieldError::required(&path.field(key), ""));
        } else if let Some(why) = names::dns1035_label(&name.to_lowercase()).into_iter().next() {
            let why = format!("may have mixed case, but should otherwise match: {why}");
            errors.push(FieldError::invalid(&path.field(key), &json!(name), why));
        }
    }
    if text(new, "/spec/names/kind") == text(new, "/spec/names/listKind") {
        let name = text(new, "/spec/names/listKind");
        errors.push(FieldError::invalid(
            &path.field("listKind"),
            &json!(name),
            "kind and listKind may not be the same",
        ));
    }
    let short_names = path.field("shortNames");
    for (index, short) in texts(new, "/spec/names/shortNames").enumerate() {
        if let Some(why) = names::dns1035_label(short).into_iter().next() {
            errors.push(FieldError::invalid(&short_names.index(index), &json!(short), why));
        }
    }
}

fn check_versions(new: &Value, errors: &mut Vec<FieldError>) {
    let spec = Path::new("spec");
    let path = spec.field("versions");
    let versions = items(new, "/spec/versions");
    if versions.is_empty() {
        errors.push(FieldError::required(&path, "must have at least one version"));
        return;
    }
    let stored = versions.iter().filter(|version| version.get("storage") == Some(&Value::Bool(true))).count();
    if stored != 1 {
        let shown: Vec<&str> = versions.iter().map(|version| text(version, "/name")).collect();
        errors.push(FieldError::invalid(
            &path,
            &json!(shown),
            "must have exactly one version marked as storage version",
        ));
    }
    let mut seen = HashSet::new();
    let first = versions.first().and_then(|version| version.pointer("/schema/openAPIV3Schema"));
    let is_shared = versions.iter().all(|version| version.pointer("/schema/openAPIV3Schema") == first);
    for (index, version) in versions.iter().enumerate() {
        let here = path.index(index);
        let name = text(version, "/name");
        if !seen.insert(name) {
            errors.push(FieldError::invalid(&here.field("name"), &json!(name), "must be unique"));
        }
        if let Some(why) = names::dns1035_label(name).into_iter().next() {
            errors.push(FieldError::invalid(&here.field("name"), &json!(name), why));
        }
        let schema_path = here.field("schema");
        let schema_path = schema_path.field("openAPIV3Schema");
        let validation = Path::new("spec.validation.openAPIV3Schema");
        match version.pointer("/schema/openAPIV3Schema") {
            None => errors.push(FieldError::required(&schema_path, "schemas are required")),
            Some(_) if is_shared && index > 0 => {}
            Some(schema) => {
                let at = if is_shared { &validation } else { &schema_path };
                if let Err(found) = Structural::parse(schema, at) {
                    errors.extend(found);
                }
            }
        }
        check_scale(version, &here, errors);
        let selectable = items(version, "/selectableFields");
        if selectable.len() > MAX_SELECTABLE {
            errors.push(FieldError::too_many(
                &here.field("selectableFields"),
                selectable.len(),
                MAX_SELECTABLE,
            ));
        }
        let columns = here.field("additionalPrinterColumns");
        for (index, column) in items(version, "/additionalPrinterColumns").iter().enumerate() {
            let kind = text(column, "/type");
            if !matches!(kind, "boolean" | "date" | "integer" | "number" | "string") {
                let known = ["boolean", "date", "integer", "number", "string"];
                errors.push(FieldError::not_supported(
                    &columns.index(index).field("type"),
                    &json!(kind),
                    &known,
                ));
            }
        }
    }
}

fn check_scale(version: &Value, here: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(scale) = version.pointer("/subresources/scale") else { return };
    let path = here.field("subresources");
    let path = path.field("scale");
    for (key, prefixes, is_required) in [
        ("specReplicasPath", &[".spec."][..], true),
        ("statusReplicasPath", &[".status."], true),
        ("labelSelectorPath", &[".spec.", ".status."], false),
    ] {
        let value = scale.get(key).and_then(Value::as_str).unwrap_or_default();
        if value.is_empty() {
            if is_required {
                errors.push(FieldError::required(&path.field(key), ""));
            }
        } else if !prefixes.iter().any(|prefix| value.starts_with(prefix)) {
            let shown: Vec<&str> = prefixes.iter().map(|prefix| prefix.trim_end_matches('.')).collect();
            let why = format!("should be a json path under {}", shown.join(" or "));
            errors.push(FieldError::invalid(&path.field(key), &json!(value), why));
        }
    }
}

fn check_change(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let spec = Path::new("spec");
    let names = spec.field("names");
    let is_established = is_true(old, "Established");
    let mut fixed = vec![("/spec/group", spec.field("group")), ("/spec/names/plural", names.field("plural"))];
    if is_established {
        fixed.push(("/spec/scope", spec.field("scope")));
        fixed.push(("/spec/names/kind", names.field("kind")));
    }
    for (pointer, path) in &fixed {
        if new.pointer(pointer) != old.pointer(pointer) {
            let value = new.pointer(pointer).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(path, &value, "field is immutable"));
        }
    }
    let status = Path::new("status");
    let stored = status.field("storedVersions");
    for (index, version) in texts(new, "/status/storedVersions").enumerate() {
        if !items(new, "/spec/versions").iter().any(|one| text(one, "/name") == version) {
            let why = format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"
            );
            errors.push(FieldError::invalid(&stored.index(index), &json!(version), why));
        }
    }
}
