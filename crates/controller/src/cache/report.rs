use std::collections::HashMap;

use serde::Serialize;

use super::Selector;
use crate::object::{Form, ObjectKey};

/// The state of a watch, for debugging.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchReport {
    /// Kind and group.
    pub kind: String,
    /// Namespace and labels it is restricted to.
    pub selector: Selector,
    /// Whole objects or metadata.
    pub form: Form,
    /// Starting, watching, absent or failing, with the error.
    pub phase: Phase,
    /// Whether its absence keeps the process from being ready.
    pub optional: bool,
    /// Objects held.
    pub objects: usize,
    /// Equal contents have equal checksums.
    pub checksum: String,
    /// Seconds since the last event or bookmark.
    pub last_event_seconds: Option<f64>,
    /// Lists so far.
    pub lists: u64,
    /// Objects that could not be decoded, with the reason.
    pub unreadable: HashMap<String, String>,
    /// Deletions of ours that the watch has not shown yet.
    pub expected_gone: Vec<ObjectKey>,
}

/// The phase of a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// The first list is not complete.
    Starting,
    /// Watching.
    Watching,
    /// The server does not serve the kind (yet).
    Absent,
    /// The last request failed.
    Failing(String),
}
