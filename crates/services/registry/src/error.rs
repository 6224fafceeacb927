//! Why a request is refused.

use crate::store::StoreError;

/// A refusal, with the message the client gets.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0}")]
    BadRequest(String),
    /// A required field is missing.
    #[error("{0}")]
    Unprocessable(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Internal(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Error {
    /// A refusal for what was asked, marked as upstream's services mark it.
    pub(crate) fn bad_request(message: impl std::fmt::Display) -> Self {
        Self::BadRequest(format!("{message}: bad request"))
    }

    pub(crate) fn not_found(message: impl std::fmt::Display) -> Self {
        Self::NotFound(format!("{message}: not found"))
    }

    pub(crate) fn conflict(message: impl std::fmt::Display) -> Self {
        Self::Conflict(format!("{message}: conflict"))
    }
}
