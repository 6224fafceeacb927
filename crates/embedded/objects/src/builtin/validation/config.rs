//! ConfigMaps, Secrets, claims and amounts.

use base64::Engine as _;
use quintet_api::Quantity;
use serde_json::{Value, json};

use super::super::value::{is_set, items, text};
use super::{forbidden, immutable};
use crate::error::{ErrorKind, FieldError};
use crate::names;
use crate::path::Path;

/// All data of a ConfigMap or Secret together.
const MAX_DATA: usize = 1024 * 1024;
const SEALED: &str = "field is immutable when `immutable` is set";

pub(super) fn config_map(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut size = keys(new, "data", errors);
    size += keys(new, "binaryData", errors);
    for (key, _) in new.get("binaryData").and_then(Value::as_object).into_iter().flatten() {
        if new.get("data").is_some_and(|data| data.get(key).is_some()) {
            errors.push(FieldError::invalid(
                &Path::new("data").key(key),
                &json!(key),
                "duplicate of key present in binaryData",
            ));
        }
    }
    bounded(size, errors);
    sealed(new, old, &["data", "binaryData"], errors);
}

pub(super) fn secret(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let size = keys(new, "data", errors);
    bounded(size, errors);
    let required: &[&str] = match text(new, "/type") {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    };
    for key in required {
        if new.get("data").is_none_or(|data| data.get(*key).is_none()) {
            errors.push(FieldError::required(&Path::new("data").key(key), ""));
        }
    }
    if text(new, "/type") == "kubernetes.io/service-account-token"
        && !is_set(new, "/metadata/annotations/kubernetes.io~1service-account.name")
    {
        let path = Path::new("metadata.annotations");
        errors.push(FieldError::required(&path.key("kubernetes.io/service-account.name"), ""));
    }
    if let Some(old) = old {
        immutable(new, old, "/type", errors);
    }
    sealed(new, old, &["data"], errors);
}

fn keys(new: &Value, field: &str, errors: &mut Vec<FieldError>) -> usize {
    let path = Path::new(field);
    let is_encoded = field == "binaryData" || new.get("kind") == Some(&json!("Secret"));
    let mut size = 0;
    for (key, value) in new.get(field).and_then(Value::as_object).into_iter().flatten() {
        for problem in names::config_key(key) {
            errors.push(FieldError::invalid(&path.key(key), &json!(key), problem));
        }
        let text = value.as_str().unwrap_or_default();
        size += if is_encoded {
            base64::engine::general_purpose::STANDARD.decode(text).map_or(text.len(), |bytes| bytes.len())
        } else {
            text.len()
        };
    }
    size
}

fn bounded(size: usize, errors: &mut Vec<FieldError>) {
    if size > MAX_DATA {
        errors.push(FieldError {
            path: "[]".into(),
            kind: ErrorKind::TooLong,
            value: None,
            detail: format!("may not be more than {MAX_DATA} bytes"),
        });
    }
}

fn sealed(new: &Value, old: Option<&Value>, fields: &[&str], errors: &mut Vec<FieldError>) {
    let Some(old) = old.filter(|old| old.get("immutable") == Some(&json!(true))) else { return };
    if new.get("immutable") != Some(&json!(true)) {
        errors.push(forbidden("immutable", SEALED));
    }
    for field in fields {
        if new.get(*field) != old.get(*field) {
            errors.push(forbidden(field, SEALED));
        }
    }
}

pub(super) fn claim(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    let modes = items(new, "/spec/accessModes");
    if modes.is_empty() {
        errors.push(FieldError::required(&path.field("accessModes"), "at least 1 access mode is required"));
    }
    let supported = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    for mode in modes {
        if !supported.contains(&mode.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported(&path.field("accessModes"), mode, &supported));
        }
    }
    let at = path.field("resources");
    match new.pointer("/spec/resources/requests/storage").and_then(Value::as_str) {
        None => errors.push(FieldError::required(&at.key("storage"), "")),
        Some(amount) => {
            if amount.parse::<Quantity>().is_ok_and(|quantity| quantity <= Quantity::ZERO) {
                errors.push(FieldError::invalid(
                    &at.key("storage"),
                    &json!(amount),
                    "must be greater than zero",
                ));
            }
        }
    }
    let Some(old) = old else { return };
    let is_bound = new.pointer("/status/phase").is_some_and(|phase| phase == "Bound");
    let rest = |object: &Value| {
        let mut spec = object.get("spec").cloned().unwrap_or_default();
        if is_bound && let Some(requests) = spec.pointer_mut("/resources/requests") {
            requests["storage"] = Value::Null;
        }
        if let Value::Object(fields) = &mut spec {
            if is_bound {
                fields.remove("volumeAttributesClassName");
            }
            // Binding fills these in once.
            for (name, was_set) in [
                ("volumeName", is_set(old, "/spec/volumeName")),
                ("storageClassName", is_set(old, "/spec/storageClassName")),
            ] {
                if !was_set {
                    fields.remove(name);
                }
            }
        }
        spec
    };
    if rest(new) != rest(old) {
        errors.push(forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ));
    }
    let storage = |object: &Value, pointer: &str| {
        object.pointer(pointer).and_then(Value::as_str).and_then(|amount| amount.parse::<Quantity>().ok())
    };
    let wanted = |object: &Value| storage(object, "/spec/resources/requests/storage").unwrap_or_default();
    let capacity = storage(old, "/status/capacity/storage").unwrap_or_default();
    if wanted(new) < wanted(old) && wanted(new) <= capacity {
        let path = "spec.resources.requests.storage";
        errors.push(forbidden(path, "field can not be less than status.capacity"));
    }
}

pub(super) fn volume(new: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec");
    if items(new, "/spec/accessModes").is_empty() {
        errors.push(FieldError::required(&path.field("accessModes"), ""));
    }
    if !is_set(new, "/spec/capacity/storage") {
        errors.push(FieldError::required(&path.field("capacity"), ""));
    }
}

pub(super) fn amounts(new: &Value, errors: &mut Vec<FieldError>) {
    for (name, amount) in new.pointer("/spec/hard").and_then(Value::as_object).into_iter().flatten() {
        let quantity = amount.as_str().and_then(|text| text.parse::<Quantity>().ok());
        if quantity.is_some_and(Quantity::is_negative) {
            let path = Path::new("spec.hard");
            errors.push(FieldError::invalid(&path.key(name), amount, "must be greater than or equal to 0"));
        }
    }
}

/// No limit may contradict another.
pub(super) fn limits(new: &Value, errors: &mut Vec<FieldError>) {
    let all = Path::new("spec.limits");
    for (index, limit) in items(new, "/spec/limits").iter().enumerate() {
        let at = all.index(index);
        let amount = |field: &str, name: &str| limit.get(field)?.get(name)?.as_str();
        let is_more = |left: &str, right: &str| {
            left.parse::<Quantity>().ok().zip(right.parse::<Quantity>().ok()).is_some_and(|(l, r)| l > r)
        };
        for name in limit.get("min").and_then(Value::as_object).into_iter().flat_map(|min| min.keys()) {
            let Some(min) = amount("min", name) else { continue };
            let others = [("max", "max"), ("defaultRequest", "default request"), ("default", "default")];
            for (field, words) in others {
                if let Some(other) = amount(field, name)
                    && is_more(min, other)
                {
                    // Kubernetes names the offender for a request only.
                    let value = if field == "defaultRequest" { other } else { min };
                    let place = at.field(if field == "max" { "min" } else { field });
                    let problem = format!("min value {min} is greater than {words} value {other}");
                    errors.push(FieldError::invalid(&place.key(name), &json!(value), problem));
                }
            }
        }
    }
}
