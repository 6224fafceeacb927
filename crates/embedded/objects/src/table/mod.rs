//! Objects as tables and as metadata only.

mod json_path;

pub use json_path::{JsonPath, json_path_steps};
