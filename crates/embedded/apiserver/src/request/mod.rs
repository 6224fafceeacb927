//! Parsed requests: path, options, representation, body.

pub mod body;
pub mod content_type;
pub mod negotiate;
pub mod options;
pub mod url;
