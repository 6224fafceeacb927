//! The Common Expression Language, as Kubernetes uses it: validation rules of custom resources, match conditions
//! of webhooks, admission policies, selectors of devices.
//!
//! Expressions are compiled once and evaluated straight on JSON: nothing is copied that an expression does not touch.
//! Evaluation counts steps and stops at a budget, so that no expression can hold up a request.

mod access;
mod compile;
mod eval;
pub mod format;
mod functions;
mod kubernetes;
mod lex;
mod parse;
pub mod schema;
mod strings;
#[cfg(test)]
mod tests;
mod time;
mod types;
mod value;

use std::cell::Cell;

pub use compile::CompileError;
pub use eval::EvalError;
pub use schema::Schema;
pub use strings::quoted;
pub use time::duration;
pub use types::{Fields, Type};
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
        Self::checked(text, parse::parse(text, false)?, names)
    }

    /// The same for an expression that may name values, too: `cel.bind(name, value, expression)`.
    pub fn compile_with_bindings(text: &str, names: &[&str]) -> Result<Self, CompileError> {
        Self::checked(text, parse::parse(text, true)?, names)
    }

    fn checked(text: &str, expr: Expr, names: &[&str]) -> Result<Self, CompileError> {
        let used = compile::check(&expr, names)?;
        Ok(Self { text: text.into(), expr, names: used })
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The type of its result, if its variables have these; or why it cannot be evaluated.
    pub fn result<'s>(&self, variables: &[(&str, Type<'s>)]) -> Result<Type<'s>, CompileError> {
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
