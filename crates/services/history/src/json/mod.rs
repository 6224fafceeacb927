//! Reading and writing JSON without building values of it.
//!
//! Events are read once, straight into the model, and by the rules of Go's `encoding/json`, because that is what
//! decided so far which events count: names match in any case, the last of equal names wins, `null` changes nothing,
//! and one member of a wrong type rejects the whole event.

mod scan;
mod write;

pub(crate) use scan::{Fault, Scanner, trimmed};
pub(crate) use write::{Writer, float, go_quoted, indent, sorted};

#[cfg(test)]
mod tests;
