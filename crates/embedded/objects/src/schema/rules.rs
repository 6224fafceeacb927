//! Evaluating the CEL rules of a schema.

use std::cell::Cell;

use quintet_cel::OBJECT_BUDGET;
use serde_json::{Value, json};

use super::{NO_PATH, Structural, Verdict, type_of};
use crate::cel::{Failure, Rule};
use crate::error::{ErrorKind, FieldError};
use crate::path::Path;

/// Adds what the rules say to the verdict of the schema.
pub(super) fn validate(schema: &Structural, new: &Value, old: Option<&Value>, verdict: &mut Verdict) {
    if !schema.has_rules {
        return;
    }
    let is_blocked = verdict.errors.iter().any(|error| {
        matches!(
            error.kind,
            ErrorKind::Required
                | ErrorKind::NotSupported
                | ErrorKind::TooLong
                | ErrorKind::TooMany
                | ErrorKind::TypeInvalid
        )
    });
    if is_blocked {
        verdict.errors.push(FieldError {
            path: NO_PATH.into(),
            kind: ErrorKind::Invalid,
            value: Some(Value::Null),
            detail: "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation".into(),
        });
        return;
    }
    let mut walk = Walk { verdict, budget: Cell::new(OBJECT_BUDGET), is_over: false };
    walk.node(schema, new, old, &Path::ROOT);
}

struct Walk<'w> {
    verdict: &'w mut Verdict,
    budget: Cell<u64>,
    is_over: bool,
}

impl Walk<'_> {
    fn node(&mut self, schema: &Structural, new: &Value, old: Option<&Value>, path: &Path<'_>) {
        if new.is_null() || !schema.has_rules {
            return;
        }
        if !schema.rules.is_empty() {
            let is_unchanged = old.is_some_and(|old| old == new);
            for rule in &schema.rules {
                self.rule(rule, schema, new, old, is_unchanged, path);
            }
        }
        match new {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let Some(child) = schema.child(name) {
                        let old = old.and_then(|old| old.get(name));
                        if schema.properties.contains_key(name) {
                            self.node(child, value, old, &path.field(name));
                        } else {
                            self.node(child, value, old, &path.key(name));
                        }
                    }
                }
            }
            Value::Array(items) => {
                if let Some(item_schema) = &schema.items {
                    for (index, item) in items.iter().enumerate() {
                        let old = old.and_then(|old| schema.corresponding(item, old));
                        self.node(item_schema, item, old, &path.index(index));
                    }
                }
            }
            _ => {}
        }
    }

    fn rule(
        &mut self,
        rule: &Rule,
        schema: &Structural,
        new: &Value,
        old: Option<&Value>,
        is_unchanged: bool,
        path: &Path<'_>,
    ) {
        // An old null has nothing to compare with.
        let old = old.filter(|old| !old.is_null());
        if self.is_over || !rule.applies(old.is_some()) {
            return;
        }
        let Err(failure) = rule.check(new, old, schema, &self.budget) else { return };
        let mut at = path.to_string();
        if let Some(field) = rule.field_path() {
            at.push_str(field);
            if let Some(trimmed) = at.strip_prefix('.') {
                at = trimmed.into();
            }
        }
        if at.is_empty() {
            at = NO_PATH.into();
        }
        let error = match failure {
            Failure::Refused(message) => {
                // Objects and lists would drown the message.
                let shown = if new.is_object() || new.is_array() || rule.field_path().is_some() {
                    None
                } else {
                    Some(new.clone())
                };
                FieldError { path: at, kind: rule.error_kind(), value: shown, detail: message }
            }
            Failure::Error(detail) => {
                FieldError { path: at, kind: ErrorKind::Invalid, value: Some(json!(type_of(new))), detail }
            }
            Failure::Budget => {
                self.is_over = true;
                FieldError {
                    path: at,
                    kind: ErrorKind::Invalid,
                    value: Some(json!(type_of(new))),
                    detail: "validation failed due to running out of cost budget, no further validation rules will be run".into(),
                }
            }
        };
        if is_unchanged && !rule.uses_old_self() {
            self.verdict.warnings.push(error.to_string());
        } else {
            self.verdict.errors.push(error);
        }
    }
}
