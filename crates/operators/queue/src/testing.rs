//! What tests of several modules use.

use std::sync::Arc;

use quintet_controller::cache::Entry;
use quintet_controller::object::{ResourceVersion, Uid};
use quintet_controller::{Action, ObjectKey};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What an action patches, as a merge patch.
pub(crate) fn patch_of<C: std::fmt::Debug>(action: &Action<C>) -> Value {
    match action {
        Action::Patch { patch, .. } => patch.clone(),
        Action::Status { patch, .. } => json!({ "status": patch.status }),
        other => panic!("not a patch: {other:?}"),
    }
}

/// An object as a cache has it, in version 7. Without a UID of its own it has its name for one.
pub(crate) fn entry<K: DeserializeOwned>(object: &Value) -> Arc<Entry<K>> {
    entry_at(object, 7)
}

/// The same in another version.
pub(crate) fn entry_at<K: DeserializeOwned>(object: &Value, version: u64) -> Arc<Entry<K>> {
    let text = |field: &str| object["metadata"][field].as_str();
    let (namespace, name) = (text("namespace").unwrap_or_default(), text("name").unwrap_or_default());
    let key = ObjectKey::new(namespace, name);
    let mut entry = Entry::new(key, serde_json::from_value(object.clone()).unwrap());
    entry.version = ResourceVersion(version);
    entry.uid = Uid::from(text("uid").unwrap_or(name));
    entry.deleting = !object["metadata"]["deletionTimestamp"].is_null();
    Arc::new(entry)
}
