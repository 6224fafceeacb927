//! Plans: what a controller has decided, as plain data.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::api::{PatchKind, Propagation};
use crate::{
    cache::Entry,
    object::{ApiKind, ObjectKey, ResourceVersion, Uid},
};

/// What to do about one root object: made by a pure function, carried out by the executor. It can be
/// printed, compared and stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Plan {
    /// Writes in order; the first that fails ends the turn.
    pub steps: Vec<Step>,
    /// How the root's status has to change, if it has to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<StatusPatch>,
    /// What to tell users, once everything else is done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// When to look again.
    pub next: Next,
}

impl Plan {
    /// Nothing to do until something changes.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Whether carrying it out writes nothing. (An apply is skipped if it would change nothing, which
    /// only the executor can tell.)
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.status.is_none() && self.events.is_empty()
    }
}

/// One write, and what users hear of it once it is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The write.
    pub action: Action,
    /// Recorded as soon as the write has taken place, whatever becomes of those after it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event: Option<Event>,
    /// Never under way together with others: those after it depend on it.
    #[serde(default)]
    pub apart: bool,
}

impl From<Action> for Step {
    fn from(action: Action) -> Self {
        Self { action, event: None, apart: false }
    }
}

impl Step {
    /// The same, but never under way together with others.
    #[must_use]
    pub fn apart(self) -> Self {
        Self { apart: true, ..self }
    }
}

/// What follows from a write that failed: the turn is tried again later, but users hear of it now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setback {
    /// How the root's status has to change, if it has to.
    pub status: Option<StatusPatch>,
    /// What to tell users.
    pub events: Vec<Event>,
}

/// When to look at the root again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Next {
    /// When something changes.
    #[default]
    AwaitChange,
    /// After this long, or when something changes.
    After(Duration),
}

/// One write. Every action may be repeated without harm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Action {
    /// Server-side apply; skipped when nothing would change.
    Apply {
        /// Kind of the object.
        kind: ApiKind,
        /// The fields we want, and nothing else.
        object: Value,
        /// Who owns them.
        manager: String,
    },
    /// Create under a name that every attempt would choose again: an object of the same owner that is
    /// already there is the one we wanted.
    Create {
        /// Kind of the object.
        kind: ApiKind,
        /// The object.
        object: Value,
        /// Whether an object of that name will do, whoever made it.
        #[serde(default)]
        or_anybodys: bool,
    },
    /// A narrow patch, of the object or of a subresource.
    Patch {
        /// Kind of the object.
        kind: ApiKind,
        /// Which object.
        key: ObjectKey,
        /// Which subresource.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        subresource: Option<String>,
        /// How the patch is meant.
        patch_kind: PatchKind,
        /// The patch.
        patch: Value,
    },
    /// Delete this incarnation; one that is gone is as good.
    Delete {
        /// Kind of the object.
        kind: ApiKind,
        /// Which object.
        key: ObjectKey,
        /// Which incarnation.
        uid: Uid,
        /// What happens to what it owns.
        propagation: Propagation,
        /// How long it may take to end; the object's own choice if not given.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        grace_seconds: Option<i64>,
    },
    /// Something outside Kubernetes that the operator itself does (see
    /// [`Controller::call`](crate::Controller::call)).
    Call {
        /// What.
        name: String,
        /// With what.
        input: Value,
    },
}

impl Action {
    /// Applies the fields of a typed or JSON object.
    pub fn apply(kind: ApiKind, manager: &str, object: &impl Serialize) -> Self {
        Self::Apply { object: typed(&kind, object), kind, manager: manager.to_owned() }
    }

    /// Creates a typed or JSON object.
    pub fn create(kind: ApiKind, object: &impl Serialize) -> Self {
        Self::Create { object: typed(&kind, object), kind, or_anybodys: false }
    }

    /// Creates a typed or JSON object, unless somebody has made one of that name.
    pub fn ensure(kind: ApiKind, object: &impl Serialize) -> Self {
        Self::Create { object: typed(&kind, object), kind, or_anybodys: true }
    }

    /// Changes the fields in `patch`, removing those that are `null`.
    pub fn merge(kind: ApiKind, key: ObjectKey, patch: Value) -> Self {
        Self::Patch { kind, key, subresource: None, patch_kind: PatchKind::Merge, patch }
    }

    /// Deletes the incarnation that the cache shows.
    pub fn delete<T>(kind: ApiKind, entry: &Entry<T>) -> Self {
        Self::Delete {
            kind,
            key: entry.key.clone(),
            uid: entry.uid.clone(),
            propagation: Propagation::Background,
            grace_seconds: None,
        }
    }

    /// This write, and what users hear of it once it is done.
    #[must_use]
    pub fn telling(self, event: Event) -> Step {
        Step { action: self, event: Some(event), apart: false }
    }

    /// The object it is about, if it writes to Kubernetes.
    pub fn target(&self) -> Option<ObjectKey> {
        match self {
            Self::Apply { object, .. } | Self::Create { object, .. } => {
                let field = |name| object.pointer(name).and_then(Value::as_str).unwrap_or_default();
                Some(ObjectKey::new(field("/metadata/namespace"), field("/metadata/name")))
            }
            Self::Patch { key, .. } | Self::Delete { key, .. } => Some(key.clone()),
            Self::Call { .. } => None,
        }
    }

    /// The kind it writes, if it writes to Kubernetes.
    pub fn kind(&self) -> Option<&ApiKind> {
        match self {
            Self::Apply { kind, .. }
            | Self::Create { kind, .. }
            | Self::Patch { kind, .. }
            | Self::Delete { kind, .. } => Some(kind),
            Self::Call { .. } => None,
        }
    }
}

impl fmt::Display for Action {
    /// What is done to which object, without its contents: they may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self {
            Self::Apply { .. } => "apply",
            Self::Create { .. } => "create",
            Self::Patch { .. } => "patch",
            Self::Delete { .. } => "delete",
            Self::Call { name, .. } => return write!(f, "call {name}"),
        };
        match (self.kind(), self.target()) {
            (Some(kind), Some(target)) => write!(f, "{verb} {kind} {target}"),
            _ => f.write_str(verb),
        }
    }
}

/// An object as JSON, with the kind it was said to have.
fn typed(kind: &ApiKind, object: &impl Serialize) -> Value {
    let mut object = serde_json::to_value(object).unwrap_or_default();
    if let Value::Object(fields) = &mut object {
        fields.insert("apiVersion".to_owned(), kind.api_version().into());
        fields.insert("kind".to_owned(), kind.kind.as_ref().into());
    }
    object
}

/// The difference between the status that was seen and the one that should be, as a merge patch on
/// exactly the state it was derived from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusPatch {
    /// Which incarnation of the root.
    pub uid: Uid,
    /// Which state of it.
    pub version: u64,
    /// The status fields that change, `null` for those that go.
    pub status: Value,
}

impl StatusPatch {
    /// What turns `current`, as seen on `root`, into `desired`; `None` if nothing does.
    pub fn between<T>(root: &Entry<T>, current: &impl Serialize, desired: &impl Serialize) -> Option<Self> {
        let current = serde_json::to_value(current).unwrap_or_default();
        let desired = serde_json::to_value(desired).unwrap_or_default();
        let status = merge_difference(&current, &desired)?;
        Some(Self { uid: root.uid.clone(), version: root.version.0, status })
    }

    pub(crate) fn version(&self) -> ResourceVersion {
        ResourceVersion(self.version)
    }
}

/// The RFC 7386 patch from `current` to `desired`; `None` if they are equal. A field that is `null`
/// counts as missing, as it does for the API server.
fn merge_difference(current: &Value, desired: &Value) -> Option<Value> {
    match (current, desired) {
        (Value::Object(current), Value::Object(desired)) => {
            let removed = current
                .iter()
                .filter(|(name, value)| !value.is_null() && desired.get(*name).is_none_or(Value::is_null));
            let mut patch: serde_json::Map<_, _> =
                removed.map(|(name, _)| (name.clone(), Value::Null)).collect();
            for (name, value) in desired.iter().filter(|(_, value)| !value.is_null()) {
                let difference = match current.get(name).filter(|value| !value.is_null()) {
                    Some(before) => merge_difference(before, value),
                    None => Some(value.clone()),
                };
                patch.extend(difference.map(|difference| (name.clone(), difference)));
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        _ => (current != desired).then(|| desired.clone()),
    }
}

/// Something users should hear of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Good or bad news.
    pub kind: EventKind,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// What was done, in one CamelCase word.
    pub action: String,
    /// What happened, in a sentence.
    pub note: String,
}

/// Good or bad news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventKind {
    /// As it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Event {
    /// Good news.
    pub fn normal(reason: &str, action: &str, note: impl Into<String>) -> Self {
        Self::new(EventKind::Normal, reason, action, note)
    }

    /// Bad news.
    pub fn warning(reason: &str, action: &str, note: impl Into<String>) -> Self {
        Self::new(EventKind::Warning, reason, action, note)
    }

    fn new(kind: EventKind, reason: &str, action: &str, note: impl Into<String>) -> Self {
        Self { kind, reason: reason.to_owned(), action: action.to_owned(), note: note.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_difference_is_the_smallest_patch() {
        let cases = [
            ("equal", json!({"a": 1}), json!({"a": 1}), None),
            ("null is missing", json!({}), json!({"a": null}), None),
            ("changed", json!({"a": 1, "b": 2}), json!({"a": 1, "b": 3}), Some(json!({"b": 3}))),
            ("removed", json!({"a": 1, "b": 2}), json!({"a": 1}), Some(json!({"b": null}))),
            (
                "nested",
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": 1}}),
                Some(json!({"a": {"c": null}})),
            ),
            ("lists as a whole", json!({"a": [1, 2]}), json!({"a": [1]}), Some(json!({"a": [1]}))),
            ("from nothing", Value::Null, json!({"a": 1}), Some(json!({"a": 1}))),
        ];
        for (name, current, desired, patch) in cases {
            assert_eq!(merge_difference(&current, &desired), patch, "{name}");
        }
    }

    #[test]
    fn plans_survive_being_stored() {
        let plan = Plan {
            steps: vec![Action::Call { name: "ring".to_owned(), input: json!({"times": 3}) }.into()],
            events: vec![Event::normal("Rang", "Ring", "the bell rang")],
            next: Next::After(Duration::from_secs(3)),
            ..Plan::default()
        };
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }
}
