//! The Common Expression Language, as Kubernetes uses it: validation rules of custom resources, match conditions
//! of webhooks, admission policies.
//!
//! Expressions are compiled once and evaluated straight on JSON: nothing is copied that an expression does not touch.
//! Evaluation counts steps and stops at a budget, so that no expression can hold up a request.

mod access;
mod compile;
mod eval;
mod functions;
mod kubernetes;
mod lex;
mod parse;
pub mod policy;
mod rule;
mod strings;
#[cfg(test)]
mod tests;
mod time;
mod types;
mod value;

use std::cell::Cell;

pub use compile::CompileError;
pub use eval::EvalError;
pub use rule::{Failure, Reason, Rule};
pub use time::duration;
pub use value::Val;

use parse::Expr;

/// The steps one evaluation may take.
pub const CALL_BUDGET: u64 = 1_000_000;
/// The steps all rules of one object may take together.
pub const OBJECT_BUDGET: u64 = 10_000_000;

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    text: String,
    expr: Expr,
    names: Vec<String>,
}

impl Program {
    /// Compiles an expression that may use the variables `names`.
    pub fn compile(text: &str, names: &[&str]) -> Result<Self, CompileError> {
        let expr = parse::parse(text)?;
        let used = compile::check(&expr, names)?;
        Ok(Self { text: text.into(), expr, names: used })
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The type of its result, if its variables have these; or why it cannot be evaluated.
    fn result<'s>(&self, variables: &[(&str, types::Type<'s>)]) -> Result<types::Type<'s>, CompileError> {
        types::check(&self.text, &self.expr, variables)
    }

    /// Whether the expression uses a variable.
    pub fn uses(&self, name: &str) -> bool {
        self.names.iter().any(|used| used == name)
    }

    /// Evaluates the expression. `budget` is reduced by the steps taken.
    pub fn eval<'v>(
        &'v self,
        variables: &[(&'v str, Val<'v>)],
        budget: &Cell<u64>,
    ) -> Result<Val<'v>, EvalError> {
        eval::eval(&self.expr, variables, budget)
    }
}

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
