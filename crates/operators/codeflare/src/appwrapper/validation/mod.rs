//! What is rejected: AppWrappers that can never run, objects that the user may not create, and changes of what is fixed.

mod create;
#[cfg(test)]
mod tests;
mod update;
pub(crate) mod webhook;

pub(crate) use create::{Wrapped, check_creation, wrapped};
pub(crate) use update::check_update;
