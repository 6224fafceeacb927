//! CustomResourceDefinitions.

use serde_json::{Value, json};

use super::super::value::{is_set, items, text};
use super::{immutable, one_of};
use crate::error::FieldError;
use crate::names;
use crate::path::Path;
use crate::schema::Structural;
use crate::table::{JsonPath, json_path_steps};

pub(super) fn definition(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    let (group, plural) = (text(new, "/spec/group"), text(new, "/spec/names/plural"));
    let name = text(new, "/metadata/name");
    if name != format!("{plural}.{group}") {
        errors.push(FieldError::invalid(
            &Path::new("metadata.name"),
            &json!(name),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    if group.is_empty() {
        errors.push(FieldError::required(&path.field("group"), ""));
    } else {
        for problem in names::dns_subdomain(group) {
            errors.push(FieldError::invalid(&path.field("group"), &json!(group), problem));
        }
        if !group.contains('.') {
            errors.push(FieldError::invalid(
                &path.field("group"),
                &json!(group),
                "should be a domain with at least one dot",
            ));
        }
    }
    protected_group(new, group, errors);
    one_of(text(new, "/spec/scope"), &["Cluster", "Namespaced"], &path.field("scope"), errors);
    if new.pointer("/spec/preserveUnknownFields") == Some(&json!(true)) {
        errors.push(FieldError::invalid(
            &path.field("preserveUnknownFields"),
            &json!(true),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    spec_names(new, errors);
    versions(new, errors);
    conversion(new, errors);
    if let Some(old) = old {
        update(new, old, errors);
    }
}

fn protected_group(new: &Value, group: &str, errors: &mut Vec<FieldError>) {
    let is_protected = group.ends_with(".k8s.io")
        || group.ends_with(".kubernetes.io")
        || group == "k8s.io"
        || group == "kubernetes.io";
    let approval = text(new, "/metadata/annotations/api-approved.kubernetes.io");
    if is_protected && approval.is_empty() {
        let path = Path::new("metadata.annotations");
        errors.push(FieldError::required(
            &path.key("api-approved.kubernetes.io"),
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
        ));
    }
}

fn spec_names(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec.names");
    for field in ["plural", "singular", "kind", "listKind"] {
        let name = text(new, &format!("/spec/names/{field}"));
        if name.is_empty() {
            errors.push(FieldError::required(&path.field(field), ""));
            continue;
        }
        let lower = name.to_lowercase();
        let problems =
            names::dns1035_label(if field.to_lowercase().contains("kind") { &lower } else { name });
        for problem in problems {
            errors.push(FieldError::invalid(&path.field(field), &json!(name), problem));
        }
    }
    let (kind, list) = (text(new, "/spec/names/kind"), text(new, "/spec/names/listKind"));
    if !kind.is_empty() && kind == list {
        errors.push(FieldError::invalid(
            &path.field("listKind"),
            &json!(list),
            "kind and listKind may not be the same",
        ));
    }
}

fn versions(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec.versions");
    let all = items(new, "/spec/versions");
    if all.is_empty() {
        errors.push(FieldError::required(&path, "must have at least one version"));
        return;
    }
    let stored = all.iter().filter(|version| version.get("storage") == Some(&json!(true))).count();
    if stored != 1 {
        errors.push(FieldError::invalid(
            &path,
            new.pointer("/spec/versions").unwrap_or(&Value::Null),
            "must have exactly one version marked as storage version",
        ));
    }
    // One schema for all versions is shown as if it stood at the top, as older definitions had it.
    let schema_of = |version: &Value| version.pointer("/schema/openAPIV3Schema").cloned();
    let is_shared = all.iter().all(|version| schema_of(version) == all.first().and_then(schema_of));
    let mut seen = std::collections::BTreeSet::new();
    for (index, version) in all.iter().enumerate() {
        let at = path.index(index);
        let name = text(version, "/name");
        for problem in names::dns1035_label(name) {
            errors.push(FieldError::invalid(&at.field("name"), &json!(name), problem));
        }
        if !seen.insert(name) {
            errors.push(FieldError::invalid(
                &path,
                new.pointer("/spec/versions").unwrap_or(&Value::Null),
                "must contain unique version names",
            ));
        }
        columns(version, &at, errors);
        if is_shared && index > 0 {
            continue;
        }
        let place = if is_shared { "spec.validation".to_owned() } else { format!("{at}.schema") };
        let place = Path::new(&place);
        let place = place.field("openAPIV3Schema");
        match version.pointer("/schema/openAPIV3Schema") {
            None => {
                errors
                    .push(FieldError::required(&at.field("schema.openAPIV3Schema"), "schemas are required"));
            }
            Some(schema) => match Structural::parse(schema, &place) {
                Ok(schema) => {
                    errors.extend(schema.rule_errors(&place));
                    selectable(version, &schema, &at, errors);
                }
                Err(problems) => errors.extend(problems),
            },
        }
    }
}

fn columns(version: &Value, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let at = at.field("additionalPrinterColumns");
    for (index, column) in items(version, "/additionalPrinterColumns").iter().enumerate() {
        let at = at.index(index);
        if text(column, "/name").is_empty() {
            errors.push(FieldError::required(&at.field("name"), ""));
        }
        one_of(
            text(column, "/type"),
            &["boolean", "date", "integer", "number", "string"],
            &at.field("type"),
            errors,
        );
        let path = text(column, "/jsonPath");
        if path.is_empty() {
            errors.push(FieldError::required(&at.field("jsonPath"), ""));
        } else if JsonPath::parse(path).is_none() {
            errors.push(FieldError::invalid(
                &at.field("jsonPath"),
                &json!(path),
                "must be a valid JSON path",
            ));
        }
    }
}

fn selectable(version: &Value, schema: &Structural, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    use crate::schema::JsonType;
    let fields = items(version, "/selectableFields");
    let at = at.field("selectableFields");
    if fields.len() > 8 {
        errors.push(FieldError::too_many(&at, fields.len(), 8));
    }
    for (index, field) in fields.iter().enumerate() {
        let place = at.index(index);
        let place = place.field("jsonPath");
        let path = text(field, "/jsonPath");
        let found = json_path_steps(path).iter().try_fold(schema, |schema, name| schema.properties.get(name));
        let is_fine = found.is_some_and(|found| {
            matches!(found.kind, Some(JsonType::String | JsonType::Boolean | JsonType::Integer))
        });
        if path.is_empty() {
            errors.push(FieldError::required(&place, ""));
        } else if path.starts_with(".metadata") {
            errors.push(FieldError::invalid(&place, &json!(path), "must not point to fields in metadata"));
        } else if !is_fine {
            errors.push(FieldError::invalid(
                &place,
                &json!(path),
                "must point to a field of type string, boolean or integer",
            ));
        }
    }
    let scale = version.pointer("/subresources/scale");
    if let Some(scale) = scale {
        let base = Path::new("spec.versions");
        for (field, prefix) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
            let path = text(scale, &format!("/{field}"));
            if !path.starts_with(prefix) {
                errors.push(FieldError::invalid(
                    &base.field(field),
                    &json!(path),
                    format!("should be a json path under {}", prefix.trim_end_matches('.')),
                ));
            }
        }
    }
}

fn conversion(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec.conversion");
    match text(new, "/spec/conversion/strategy") {
        "Webhook" => {
            if !is_set(new, "/spec/conversion/webhook/clientConfig") {
                errors.push(FieldError::required(
                    &path.field("webhook.clientConfig"),
                    "required when strategy is set to Webhook",
                ));
            }
            if items(new, "/spec/conversion/webhook/conversionReviewVersions").is_empty() {
                errors.push(FieldError::required(&path.field("webhook.conversionReviewVersions"), ""));
            }
        }
        "None" => {}
        other => one_of(other, &["None", "Webhook"], &path.field("strategy"), errors),
    }
}

fn update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    immutable(new, old, "/spec/group", errors);
    immutable(new, old, "/spec/names/plural", errors);
    let is_established = items(old, "/status/conditions")
        .iter()
        .any(|condition| text(condition, "/type") == "Established" && text(condition, "/status") == "True");
    if is_established {
        immutable(new, old, "/spec/scope", errors);
        immutable(new, old, "/spec/names/kind", errors);
    }
    let names: Vec<&str> =
        items(new, "/spec/versions").iter().map(|version| text(version, "/name")).collect();
    for (index, stored) in items(new, "/status/storedVersions").iter().enumerate() {
        if !names.contains(&stored.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(
                &Path::new("status.storedVersions").index(index),
                stored,
                "missing from spec.versions; must not remove a version that is still stored",
            ));
        }
    }
}
