//! The language of `filterQuery`.
//!
//! A query is read into an expression ([`parse`]), its names are resolved for a kind of entity
//! ([`resolve`]), which also checks literals against column types as PostgreSQL would, and the
//! result is written as SQL ([`write`]). All of it is pure.

mod lexer;
mod parser;
pub(crate) mod pattern;
mod resolve;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use parser::parse;
pub(crate) use resolve::{
    ColumnType, Condition, Operand, Operator, PropertyColumn, Test, check, inferred, resolve,
};
pub(crate) use write::write;

/// A query as written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expression {
    And(Vec<Self>),
    Or(Vec<Self>),
    Comparison { property: String, operator: Operator, value: Literal },
}

/// A value as written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    List(Vec<Self>),
}

/// A query that cannot be answered, with the message for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FilterError {
    Syntax(String),
    /// A literal does not fit the column it is compared with.
    TypeMismatch,
}
