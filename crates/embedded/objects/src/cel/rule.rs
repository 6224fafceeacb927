//! Validation rules of custom resources.

use std::cell::Cell;

use quintet_cel::{CALL_BUDGET, EvalError, Fields, Program, Type, Val};
use serde_json::{Value, json};

use crate::error::{ErrorKind, FieldError};
use crate::path::Path;
use crate::schema::Structural;

/// The longest message an expression may make.
const MAX_MESSAGE: usize = 5 * 1024;

/// One entry of `x-kubernetes-validations`, compiled.
#[derive(Debug)]
pub struct Rule {
    program: Program,
    message: Option<String>,
    message_program: Option<Program>,
    reason: Reason,
    field_path: Option<String>,
    has_optional_old_self: bool,
}

/// What kind of error a failed rule is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// The value is invalid.
    #[default]
    Invalid,
    /// The value is forbidden.
    Forbidden,
    /// The value is required.
    Required,
    /// The value is a duplicate.
    Duplicate,
}

/// Why a rule refuses a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The rule is false; this is its message.
    Refused(String),
    /// The rule could not be evaluated.
    Error(String),
    /// The rules of this object took too many steps.
    Budget,
}

impl Rule {
    /// Reads and compiles a rule.
    pub fn parse(rule: &Value, path: &Path<'_>) -> Result<Self, Vec<FieldError>> {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).map(str::to_owned);
        let Some(expression) = text("rule").filter(|rule| !rule.trim().is_empty()) else {
            return Err(vec![FieldError::required(&path.field("rule"), "rule is not specified")]);
        };
        let mut errors = Vec::new();
        let mut compile =
            |key: &str, expression: &str| match Program::compile(expression, &["self", "oldSelf"]) {
                Ok(program) => Some(program),
                Err(error) => {
                    errors.push(FieldError::invalid(&path.field(key), &json!(expression), error.to_string()));
                    None
                }
            };
        let program = compile("rule", &expression);
        let message_program = text("messageExpression").and_then(|text| compile("messageExpression", &text));
        let reason = match text("reason").as_deref() {
            None | Some("" | "FieldValueInvalid") => Reason::Invalid,
            Some("FieldValueForbidden") => Reason::Forbidden,
            Some("FieldValueRequired") => Reason::Required,
            Some("FieldValueDuplicate") => Reason::Duplicate,
            Some(other) => {
                let supported =
                    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
                errors.push(FieldError::not_supported(&path.field("reason"), &json!(other), &supported));
                Reason::Invalid
            }
        };
        let message = text("message").filter(|message| !message.is_empty());
        if message.is_none()
            && text("message").is_none()
            && expression.contains('\n')
            && message_program.is_none()
        {
            errors.push(FieldError::required(
                &path.field("message"),
                "message must be specified if rule contains line breaks",
            ));
        }
        if message.as_deref().is_some_and(|message| message.contains('\n')) {
            errors.push(FieldError::invalid(
                &path.field("message"),
                &json!(message),
                "message must not contain line breaks",
            ));
        }
        let has_optional_old_self = rule.get("optionalOldSelf") == Some(&Value::Bool(true));
        match program {
            Some(program) if errors.is_empty() => Ok(Self {
                program,
                message,
                message_program,
                reason,
                field_path: text("fieldPath"),
                has_optional_old_self,
            }),
            _ => Err(errors),
        }
    }

    /// The type errors of the rule, evaluated on values of this schema.
    pub fn type_errors(&self, schema: &Structural, is_root: bool, path: &Path<'_>) -> Vec<FieldError> {
        let own = if is_root { Type::Object(Fields::OfResource(schema)) } else { Type::of(schema) };
        let old =
            if self.has_optional_old_self { Type::Optional(Box::new(own.clone())) } else { own.clone() };
        let variables = [("self", own), ("oldSelf", old)];
        let check = |program: &Program, wanted: Type<'_>, key: &str| {
            let why = match program.result(&variables) {
                Err(error) => error.to_string(),
                Ok(found) if found == wanted || found == Type::Dyn => return None,
                Ok(_) => format!("compilation failed: must evaluate to a {wanted}"),
            };
            Some(FieldError::invalid(&path.field(key), &json!(program.text()), why))
        };
        let rule = check(&self.program, Type::Bool, "rule");
        let message = self.message_program.as_ref();
        rule.into_iter()
            .chain(message.and_then(|program| check(program, Type::Text, "messageExpression")))
            .collect()
    }

    /// The rule as it was written.
    pub fn text(&self) -> &str {
        self.program.text()
    }

    /// Whether the rule compares with the previous value.
    pub fn uses_old_self(&self) -> bool {
        self.program.uses("oldSelf")
    }

    /// The field an error is about, relative to the value.
    pub fn field_path(&self) -> Option<&str> {
        self.field_path.as_deref()
    }

    /// Whether the rule is evaluated for this value, given that there is an old one or not.
    pub fn applies(&self, has_old: bool) -> bool {
        !self.uses_old_self() || has_old || self.has_optional_old_self
    }

    /// The kind of error a failure is.
    pub const fn error_kind(&self) -> ErrorKind {
        match self.reason {
            Reason::Invalid => ErrorKind::Invalid,
            Reason::Forbidden => ErrorKind::Forbidden,
            Reason::Required => ErrorKind::Required,
            Reason::Duplicate => ErrorKind::Duplicate,
        }
    }

    /// Evaluates the rule. `budget` holds the steps left for the whole object.
    pub fn check(
        &self,
        value: &Value,
        old: Option<&Value>,
        schema: &Structural,
        budget: &Cell<u64>,
    ) -> Result<(), Failure> {
        let mut variables = vec![("self", Val::from_json(value, Some(schema)))];
        let old = old.map(|old| Val::from_json(old, Some(schema)));
        if self.has_optional_old_self {
            variables.push(("oldSelf", Val::optional(old)));
        } else if let Some(old) = old {
            variables.push(("oldSelf", old));
        }
        let call = Cell::new(CALL_BUDGET.min(budget.get()));
        let before = call.get();
        let outcome = self.program.eval(&variables, &call);
        budget.set(budget.get().saturating_sub(before - call.get()));
        match outcome {
            Ok(Val::Bool(true)) => Ok(()),
            Ok(_) => Err(Failure::Refused(self.message(&variables))),
            Err(error) if error.is_over_budget() && budget.get() == 0 => Err(Failure::Budget),
            Err(error) => Err(Failure::Error(self.explain(&error))),
        }
    }

    fn explain(&self, error: &EvalError) -> String {
        let rule = self.message.as_deref().unwrap_or_else(|| self.program.text());
        if error.is_over_budget() {
            return format!(
                "call cost exceeds limit for rule: {rule} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
            );
        }
        format!("{error} evaluating rule: {rule}")
    }

    fn message<'v>(&'v self, variables: &[(&'v str, Val<'v>)]) -> String {
        let made = self.message_program.as_ref().and_then(|program| {
            match program.eval(variables, &Cell::new(CALL_BUDGET)) {
                Ok(Val::String(text)) => Some(text.trim().to_owned()),
                _ => None,
            }
        });
        made.filter(|text| !text.is_empty() && !text.contains('\n') && text.len() <= MAX_MESSAGE)
            .or_else(|| self.message.clone())
            .unwrap_or_else(|| format!("failed rule: {}", self.program.text()))
    }
}
