//! Checks of an expression at compile time: names, functions, numbers of arguments.

use super::functions;
use super::parse::Expr;

/// Why an expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("compilation failed: ERROR: <input>:1:{}: {message}", .position + 1)]
pub struct CompileError {
    /// Where, in bytes from the start.
    pub position: usize,
    /// What is wrong.
    pub message: String,
}

impl CompileError {
    pub(super) fn syntax(position: usize, what: &str) -> Self {
        Self { position, message: format!("Syntax error: {what}") }
    }

    fn unknown(message: String) -> Self {
        Self { position: 0, message }
    }
}

/// Names that are types when nothing else has them.
pub(super) const TYPES: [&str; 14] = [
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
    "optional_type",
    "dyn",
    "google.protobuf.Timestamp",
    "google.protobuf.Duration",
];

/// Checks names and functions, and returns the variables that are used.
pub(super) fn check(expr: &Expr, names: &[&str]) -> Result<Vec<String>, CompileError> {
    let mut checker =
        Checker { known: names.iter().map(|name| (*name).to_owned()).collect(), used: Vec::new() };
    checker.expr(expr)?;
    Ok(checker.used)
}

struct Checker {
    known: Vec<String>,
    used: Vec<String>,
}

impl Checker {
    fn expr(&mut self, expr: &Expr) -> Result<(), CompileError> {
        match expr {
            Expr::Null
            | Expr::Bool(_)
            | Expr::Int(_)
            | Expr::Uint(_)
            | Expr::Double(_)
            | Expr::Text(_)
            | Expr::Bytes(_) => Ok(()),
            Expr::Ident(name) => {
                if !self.known.contains(name) && !TYPES.contains(&name.as_str()) {
                    return Err(CompileError::unknown(format!(
                        "undeclared reference to '{name}' (in container '')"
                    )));
                }
                if !self.used.contains(name) {
                    self.used.push(name.clone());
                }
                Ok(())
            }
            Expr::Select { of, .. } | Expr::Has { of, .. } => self.expr(of),
            Expr::Index { of, at, .. } => {
                self.expr(of)?;
                self.expr(at)
            }
            Expr::Call { function, target, args } => {
                if !functions::is_known(function, target.is_some(), args.len()) {
                    return Err(CompileError::unknown(format!(
                        "undeclared reference to '{function}' (in container '')"
                    )));
                }
                if let Some(target) = target {
                    self.expr(target)?;
                }
                args.iter().try_for_each(|arg| self.expr(arg))
            }
            Expr::List(items) => items.iter().try_for_each(|(item, _)| self.expr(item)),
            Expr::Map(entries) => entries.iter().try_for_each(|(key, value, _)| {
                self.expr(key)?;
                self.expr(value)
            }),
            Expr::And(operands) | Expr::Or(operands) => operands.iter().try_for_each(|one| self.expr(one)),
            Expr::Not(inner) | Expr::Minus(inner) => self.expr(inner),
            Expr::If(parts) => parts.iter().try_for_each(|part| self.expr(part)),
            Expr::Binary(_, sides) => sides.iter().try_for_each(|side| self.expr(side)),
            Expr::Loop(comprehension) => {
                self.expr(&comprehension.over)?;
                let mut names = vec![&comprehension.name];
                names.extend(&comprehension.second);
                if let Some(condition) = &comprehension.condition {
                    self.within(&names, condition)?;
                }
                self.within(&names, &comprehension.body)
            }
        }
    }

    fn within(&mut self, names: &[&String], body: &Expr) -> Result<(), CompileError> {
        let before = self.known.len();
        self.known.extend(names.iter().map(|name| (*name).clone()));
        let outcome = self.expr(body);
        self.known.truncate(before);
        outcome
    }
}
