//! Field errors, and the Status that carries them, worded as Kubernetes clients expect them.

use std::fmt;

pub use quintet_cel::quoted;
use serde_json::{Value, json};

use crate::path::Path;

/// The kind of a [`FieldError`]; it decides the text and the reason of the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The value is malformed or out of range.
    Invalid,
    /// The value has the wrong JSON type.
    TypeInvalid,
    /// The value is missing.
    Required,
    /// The value is not supported.
    NotSupported,
    /// The value may not be given here or now.
    Forbidden,
    /// The value must be unique and is not.
    Duplicate,
    /// The value refers to something that is not there.
    NotFound,
    /// The text or list is too long.
    TooLong,
    /// The list has too many items.
    TooMany,
    /// The list has too few items.
    TooFew,
    /// The text is too short.
    TooShort,
    /// The check itself failed.
    Internal,
}

impl ErrorKind {
    /// The words an error starts with.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::Required => "Required value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::TooShort => "Too short",
            Self::Internal => "Internal error",
        }
    }

    /// The reason of the cause in a Status.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::TooShort => "FieldValueTooShort",
            Self::Internal => "InternalError",
        }
    }

    const fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal)
    }
}

/// One thing wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The field, such as `spec.containers[0].name`.
    pub path: String,
    /// What kind of wrong.
    pub kind: ErrorKind,
    /// The value that was found; `None` prints no value at all.
    pub value: Option<Value>,
    /// An explanation, possibly empty.
    pub detail: String,
}

impl FieldError {
    /// An error of any kind. `value` is printed only by the kinds that print values.
    pub fn new(kind: ErrorKind, path: &Path<'_>, value: Option<Value>, detail: impl Into<String>) -> Self {
        Self { path: path.to_string(), kind, value, detail: detail.into() }
    }

    /// The value is malformed or out of range.
    pub fn invalid(path: &Path<'_>, value: &Value, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, path, Some(value.clone()), detail)
    }

    /// The value is missing.
    pub fn required(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Required, path, None, detail)
    }

    /// The value may not be given here or now.
    pub fn forbidden(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, path, None, detail)
    }

    /// The value must be unique and is not.
    pub fn duplicate(path: &Path<'_>, value: &Value) -> Self {
        Self::new(ErrorKind::Duplicate, path, Some(value.clone()), "")
    }

    /// The value is not one of `supported`.
    pub fn not_supported(path: &Path<'_>, value: &Value, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|one| quoted(one)).collect();
        let detail = if supported.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", supported.join(", "))
        };
        Self::new(ErrorKind::NotSupported, path, Some(value.clone()), detail)
    }

    /// The text or list is longer than `max` bytes.
    pub fn too_long(path: &Path<'_>, max: usize) -> Self {
        Self::new(ErrorKind::TooLong, path, None, format!("may not be more than {max} bytes"))
    }

    /// The list has `found` items where `max` are allowed.
    pub fn too_many(path: &Path<'_>, found: usize, max: usize) -> Self {
        Self::new(ErrorKind::TooMany, path, Some(json!(found)), format!("must have at most {max} items"))
    }

    /// The error without the field it is about: `Required value: name`.
    pub fn body(&self) -> String {
        let mut body = self.kind.text().to_owned();
        if self.kind.shows_value()
            && let Some(value) = &self.value
        {
            body.push_str(": ");
            body.push_str(&printed(value));
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }

    /// The cause that stands for this error in a Status.
    pub fn cause(&self) -> Value {
        json!({ "reason": self.kind.reason(), "message": self.body(), "field": self.path })
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path, self.body())
    }
}

impl std::error::Error for FieldError {}

/// Values as errors show them: strings quoted, the rest as JSON.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// All errors in one line: alone as it is, several in brackets; what is said twice is said once.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// The Status (422, Invalid) that tells a client what is wrong with the object `kind` `name`.
pub fn invalid_status(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Value {
    let shown = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    let mut message = format!("{shown} {} is invalid", quoted(name));
    if !errors.is_empty() {
        message.push_str(": ");
        message.push_str(&aggregate(errors));
    }
    let mut details = serde_json::Map::new();
    for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
        if !value.is_empty() {
            details.insert(key.into(), json!(value));
        }
    }
    if !errors.is_empty() {
        details.insert("causes".into(), Value::Array(errors.iter().map(FieldError::cause).collect()));
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Invalid", "details": details, "code": 422,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_print_as_kubernetes_prints_them() {
        let root = Path::new("spec");
        let containers = root.field("containers");
        let first = containers.index(0);
        let name = first.field("name");
        assert_eq!(FieldError::required(&name, "").to_string(), "spec.containers[0].name: Required value");
        assert_eq!(
            FieldError::invalid(&root.field("replicas"), &json!(-1), "must be greater than or equal to 0")
                .to_string(),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
        assert_eq!(
            FieldError::not_supported(&root.field("restartPolicy"), &json!("Never"), &["Always"]).to_string(),
            "spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""
        );
        assert_eq!(
            FieldError::too_long(&Path::new("data").key("a b"), 5).to_string(),
            "data[a b]: Too long: may not be more than 5 bytes"
        );
        assert_eq!(
            FieldError::too_many(&root.field("x"), 3, 2).to_string(),
            "spec.x: Too many: 3: must have at most 2 items"
        );
    }

    #[test]
    fn several_errors_are_one_status() {
        let errors = [
            FieldError::required(&Path::new("a"), ""),
            FieldError::forbidden(&Path::new("b"), "field is immutable"),
        ];
        let status = invalid_status("apps", "Deployment", "web", &errors);
        assert_eq!(
            status["message"],
            "Deployment.apps \"web\" is invalid: [a: Required value, b: Forbidden: field is immutable]"
        );
        assert_eq!(status["details"]["causes"][1]["reason"], "FieldValueForbidden");
        assert_eq!(status["details"]["kind"], "Deployment");
    }
}
