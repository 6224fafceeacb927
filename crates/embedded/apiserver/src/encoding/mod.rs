//! Objects as bytes: as the store keeps them, and as responses carry them.

pub(crate) mod list;
pub(crate) mod response;
mod storage;
