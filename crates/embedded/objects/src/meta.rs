//! Object metadata: what it must look like, and what an update may not change.

use serde_json::Value;

use crate::error::{ErrorKind, FieldError, quoted};
use crate::names;
use crate::path::Path;

/// All annotations of an object together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// What the name of an object must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// Dotted lower-case words, up to 253 bytes.
    Subdomain,
    /// One lower-case word, up to 63 bytes.
    Label,
    /// Anything that fits between two slashes.
    PathSegment,
    /// A subdomain of at most so many bytes.
    ShortSubdomain(usize),
    /// An IP address in its canonical form.
    IpAddress,
}

impl NameRule {
    fn problems(self, name: &str) -> Vec<String> {
        match self {
            Self::Subdomain => names::dns_subdomain(name),
            Self::Label => names::dns_label(name),
            Self::PathSegment => names::path_segment(name),
            Self::IpAddress => names::ip_address(name),
            Self::ShortSubdomain(max) => {
                let mut problems = names::dns_subdomain(name);
                if name.len() > max {
                    problems.push(format!("must be no more than {max} characters"));
                }
                problems
            }
        }
    }
}

/// Checks the metadata of a new or changed object. `is_strict` is for built-in kinds: their finalizers must be
/// qualified names.
pub fn validate(object: &Value, rule: NameRule, is_namespaced: bool, is_strict: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let nothing = Value::Null;
    let metadata = object.get("metadata").unwrap_or(&nothing);
    let path = Path::new("metadata");
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
    let (name, generate) = (text("name"), text("generateName"));
    if !generate.is_empty() {
        // A trailing dash is completed by what the server appends.
        let masked =
            generate.strip_suffix('-').map_or_else(|| generate.to_owned(), |rest| format!("{rest}a"));
        for problem in rule.problems(&masked) {
            errors.push(FieldError::invalid(&path.field("generateName"), &generate.into(), problem));
        }
    }
    if name.is_empty() {
        errors.push(FieldError::required(&path.field("name"), "name or generateName is required"));
    } else {
        for problem in rule.problems(name) {
            errors.push(FieldError::invalid(&path.field("name"), &name.into(), problem));
        }
    }
    let namespace = text("namespace");
    if is_namespaced {
        if namespace.is_empty() {
            errors.push(FieldError::required(&path.field("namespace"), ""));
        } else {
            for problem in names::dns_label(namespace) {
                errors.push(FieldError::invalid(&path.field("namespace"), &namespace.into(), problem));
            }
        }
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden(&path.field("namespace"), "not allowed on this type"));
    }
    labels(metadata.get("labels"), &path.field("labels"), &mut errors);
    annotations(metadata.get("annotations"), &path.field("annotations"), &mut errors);
    owners(metadata.get("ownerReferences"), &path.field("ownerReferences"), &mut errors);
    if is_strict {
        finalizers(metadata.get("finalizers"), &path.field("finalizers"), &mut errors);
    }
    errors
}

/// Checks keys and values of labels.
pub fn labels(labels: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        for problem in names::qualified_name(key) {
            errors.push(FieldError::invalid(path, &key.as_str().into(), problem));
        }
        for problem in names::label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(path, value, problem));
        }
    }
}

fn annotations(annotations: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in annotations.and_then(Value::as_object).into_iter().flatten() {
        for problem in names::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(path, &key.as_str().into(), problem));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_ANNOTATIONS {
        errors.push(FieldError::too_long(path, MAX_ANNOTATIONS));
    }
}

fn owners(owners: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut controllers: Vec<String> = Vec::new();
    for (index, owner) in owners.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        let path = path.index(index);
        for (key, what) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if text(key).is_empty() {
                errors.push(FieldError::invalid(&path.field(key), &"".into(), what));
            }
        }
        if text("apiVersion") == "v1" && text("kind") == "Event" {
            errors.push(FieldError::invalid(
                &path,
                owner,
                "/v1, Kind=Event is disallowed from being an owner",
            ));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            controllers.push(format!("{}/{}", text("kind"), text("name")));
        }
    }
    if let [first, second, ..] = controllers.as_slice() {
        errors.push(FieldError::invalid(
            path,
            owners.unwrap_or(&Value::Null),
            format!("Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"),
        ));
    }
}

fn finalizers(finalizers: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (index, finalizer) in finalizers.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        let is_standard = matches!(name, "orphan" | "foregroundDeletion" | "kubernetes");
        let problems = names::qualified_name(name);
        let path = path.index(index);
        if !problems.is_empty() {
            errors.extend(problems.into_iter().map(|problem| FieldError::invalid(&path, finalizer, problem)));
        } else if !is_standard && !name.contains('/') {
            errors.push(FieldError::invalid(
                &path,
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
}

/// Checks what an update may change of the metadata. An empty uid or namespace means the old one and is no change.
pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = Path::new("metadata");
    let get =
        |object: &Value, key: &str| object.get("metadata").and_then(|metadata| metadata.get(key)).cloned();
    for key in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let (new, old) = (get(new, key), get(old, key));
        let is_kept = matches!(key, "uid" | "namespace" | "creationTimestamp") && new.is_none();
        if new != old && !is_kept {
            errors.push(FieldError::invalid(
                &path.field(key),
                &new.unwrap_or_default(),
                "field is immutable",
            ));
        }
    }
    if get(old, "deletionTimestamp").is_some() {
        let list = |object: &Value| {
            get(object, "finalizers").and_then(|all| all.as_array().cloned()).unwrap_or_default()
        };
        let before = list(old);
        let added: Vec<String> = list(new)
            .iter()
            .filter(|one| !before.contains(one))
            .map(|one| quoted(one.as_str().unwrap_or_default()))
            .collect();
        if !added.is_empty() {
            errors.push(FieldError::new(
                ErrorKind::Forbidden,
                &path.field("finalizers"),
                None,
                format!("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}", added.join(", ")),
            ));
        }
    }
    errors
}

/// Removes references to the same owner; returns the uids that were there twice.
pub fn dedup_owners(object: &mut Value) -> Vec<String> {
    let mut twice = Vec::new();
    if let Some(Value::Array(owners)) = object.pointer_mut("/metadata/ownerReferences") {
        let mut seen = std::collections::BTreeSet::new();
        owners.retain(|owner| {
            let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned();
            let is_new = seen.insert(uid.clone());
            if !is_new {
                twice.push(uid);
            }
            is_new
        });
    }
    twice
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(object: &Value) -> Vec<String> {
        validate(object, NameRule::Subdomain, true, true).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn metadata_is_checked() {
        assert!(
            texts(&json!({ "metadata": { "name": "a.b", "namespace": "n", "labels": { "x/y": "z" } } }))
                .is_empty()
        );
        assert!(
            texts(&json!({ "metadata": { "generateName": "a-", "name": "a-1", "namespace": "n" } }))
                .is_empty()
        );
        assert_eq!(
            texts(&json!({ "metadata": { "namespace": "n" } })),
            ["metadata.name: Required value: name or generateName is required"]
        );
        assert!(
            texts(&json!({ "metadata": { "name": "A", "namespace": "n" } }))[0]
                .starts_with("metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain")
        );
        assert_eq!(
            texts(&json!({ "metadata": { "name": "a", "namespace": "n", "finalizers": ["noslash"] } })),
            [
                "metadata.finalizers[0]: Invalid value: \"noslash\": name is neither a standard finalizer name nor is it fully qualified"
            ]
        );
        let owner = |kind: &str| json!({ "apiVersion": "v1", "kind": kind, "name": "x", "uid": kind, "controller": true });
        let object = json!({ "metadata": { "name": "a", "namespace": "n", "ownerReferences": [owner("Pod"), owner("Job")] } });
        assert!(texts(&object)[0].contains("Found \"true\" in references for Pod/x and Job/x"));
    }

    #[test]
    fn a_terminating_object_gets_no_new_finalizers() {
        let old = json!({ "metadata": { "name": "a", "deletionTimestamp": "t", "finalizers": ["x/a"] } });
        let new =
            json!({ "metadata": { "name": "a", "deletionTimestamp": "t", "finalizers": ["x/a", "x/y"] } });
        assert_eq!(
            validate_update(&new, &old)[0].to_string(),
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x/y\"}"
        );
        let alive = json!({ "metadata": { "name": "a" } });
        assert_eq!(validate_update(&new, &alive)[0].detail, "field is immutable");
    }
}
