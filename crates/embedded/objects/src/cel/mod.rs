//! Expressions about requests: validation rules of custom resources, match conditions of webhooks, admission policies.

pub mod policy;
mod rule;
#[cfg(test)]
mod tests;

use std::cell::Cell;

use quintet_cel::{CALL_BUDGET, CompileError, Program, Val};

pub use rule::{Failure, Reason, Rule};

/// A condition a request must meet before a webhook is called.
#[derive(Debug)]
pub struct Condition {
    /// Its name, for messages.
    pub name: String,
    program: Program,
}

impl Condition {
    /// Compiles a condition over `object`, `oldObject`, `request`, `params`, `namespaceObject` and `variables`.
    pub fn compile(name: &str, expression: &str) -> Result<Self, CompileError> {
        let names =
            ["object", "oldObject", "request", "authorizer", "params", "namespaceObject", "variables"];
        Ok(Self { name: name.into(), program: Program::compile(expression, &names)? })
    }

    /// Whether the condition holds. Values are given by variable name; those that are not given are null. The error
    /// text is that of a refused request.
    pub fn holds(&self, variables: &[(&str, &serde_json::Value)]) -> Result<bool, String> {
        let variables: Vec<(&str, Val<'_>)> =
            variables.iter().map(|(name, value)| (*name, Val::from_json(value, None))).collect();
        let budget = Cell::new(CALL_BUDGET);
        match self.program.eval(&variables, &budget) {
            Ok(Val::Bool(holds)) => Ok(holds),
            Ok(_) => {
                Err(format!("expression '{}' resulted in error: must evaluate to bool", self.program.text()))
            }
            Err(error) => Err(format!("expression '{}' resulted in error: {error}", self.program.text())),
        }
    }

    /// Evaluates the condition to a text, for message expressions.
    pub fn text(&self, variables: &[(&str, &serde_json::Value)]) -> Option<String> {
        let variables: Vec<(&str, Val<'_>)> =
            variables.iter().map(|(name, value)| (*name, Val::from_json(value, None))).collect();
        match self.program.eval(&variables, &Cell::new(CALL_BUDGET)) {
            Ok(Val::String(text)) => Some(text.into_owned()),
            _ => None,
        }
    }
}
