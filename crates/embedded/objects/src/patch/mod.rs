//! The three kinds of patches.

mod json;
mod merge;
mod strategic;
#[cfg(test)]
mod tests;

pub use json::{MAX_OPERATIONS, json_patch};
pub use merge::merge_patch;
pub(crate) use strategic::shown;
pub use strategic::strategic_merge;

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is malformed: 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object: 422.
    #[error("the server rejected our request due to an error in our request")]
    Rejected {
        /// What did not fit, for logs.
        cause: String,
    },
    /// The patch has too many operations: 413.
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooLong(usize),
    /// A strategic merge patch that contradicts itself or the type: 500, without a reason.
    #[error("{0}")]
    Strategic(String),
}
