//! Plans: what a controller has decided, as plain data.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

pub use crate::api::{PatchKind, Propagation};
use crate::{
    cache::Entry,
    object::{ApiKind, ObjectKey, Uid},
};

/// What to do about one root object: computed by a pure function, carried out by the executor. It can be
/// printed, compared and stored; the data of Secrets is redacted when it is.
///
/// `C` is what the controller calls outside Kubernetes (see [`Controller::Call`](crate::Controller::Call)).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Plan<C = NoCall> {
    /// Writes in order; the first that fails ends the reconcile.
    pub steps: Vec<Step<C>>,
    /// How the root's status has to change, if it has to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<StatusPatch>,
    /// Recorded once the steps are done and the status is written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// What the root waits for, in words for people: `RayCluster train-abc12: 1 of 3 workers ready`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub awaits: Vec<String>,
    /// When to requeue the root.
    pub next: Next,
}

impl<C> Default for Plan<C> {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            status: None,
            events: Vec::new(),
            awaits: Vec::new(),
            next: Next::default(),
        }
    }
}

impl<C> Plan<C> {
    /// Nothing to do until something changes.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Nothing to do until something happens that others bring about.
    pub fn awaiting(what: impl Into<String>) -> Self {
        Self { awaits: vec![what.into()], ..Self::default() }
    }

    /// Whether carrying it out writes nothing. (An apply is skipped if it would change nothing, which
    /// only the executor can tell.)
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.status.is_none() && self.events.is_empty()
    }
}

/// The calls of a controller that makes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoCall {}

impl fmt::Display for NoCall {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// One action, and the event that is recorded when it is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step<C = NoCall> {
    /// The action.
    pub action: Action<C>,
    /// Recorded as soon as the action is done, whatever becomes of those after it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event: Option<Event>,
    /// Never in flight together with others: those after it depend on it.
    #[serde(default)]
    pub sequential: bool,
}

impl<C> From<Action<C>> for Step<C> {
    fn from(action: Action<C>) -> Self {
        Self { action, event: None, sequential: false }
    }
}

impl<C> Step<C> {
    /// The same, but never in flight together with others.
    #[must_use]
    pub fn sequential(self) -> Self {
        Self { sequential: true, ..self }
    }
}

/// What follows from an action that failed: what is done instead, what users learn, and when the reconcile is retried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OnError {
    /// Takes the place of the action that failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub instead: Option<Action>,
    /// How the root's status has to change, if it has to.
    pub status: Option<StatusPatch>,
    /// The events to record.
    pub events: Vec<Event>,
    /// When to requeue the root, if the failure is one that the state machine accounts for: the reconcile then counts as
    /// done. Without it the failure is an error, and the reconcile is retried with backoff.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub requeue: Option<Next>,
}

/// When to requeue the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Next {
    /// When something changes.
    #[default]
    AwaitChange,
    /// After this long, or when something changes.
    After(Duration),
}

/// One action. Every action may be repeated without harm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Action<C = NoCall> {
    /// Server-side apply; skipped when nothing would change.
    Apply {
        /// Kind of the object.
        kind: ApiKind,
        /// The fields we want, and nothing else.
        #[serde(serialize_with = "without_secret_data")]
        object: Value,
        /// The field manager.
        manager: String,
    },
    /// Create under a name that every attempt would choose again: an existing object of the same owner is the
    /// one we wanted.
    Create {
        /// Kind of the object.
        kind: ApiKind,
        /// The object.
        #[serde(serialize_with = "without_secret_data")]
        object: Value,
        /// Whether an existing object of that name will do, whoever owns it.
        #[serde(default)]
        accept_existing: bool,
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
    /// Create a subresource that is an action on the object: the binding of a pod, an eviction. The object is read
    /// afterwards, because the response does not show it.
    CreateSubresource {
        /// Kind of the object.
        kind: ApiKind,
        /// Which object.
        key: ObjectKey,
        /// Which subresource.
        subresource: String,
        /// What is posted.
        body: Value,
    },
    /// Change the status of exactly the state that the patch was derived from.
    Status {
        /// Kind of the object.
        kind: ApiKind,
        /// Which object.
        key: ObjectKey,
        /// What changes.
        patch: StatusPatch,
    },
    /// Delete this incarnation; one that is gone is as good.
    Delete {
        /// Kind of the object.
        kind: ApiKind,
        /// Which object.
        key: ObjectKey,
        /// Which incarnation.
        uid: Uid,
        /// What happens to its dependents.
        propagation: Propagation,
        /// The grace period; the object's own if not given.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        grace_seconds: Option<i64>,
    },
    /// A request outside Kubernetes that the operator itself makes (see
    /// [`Controller::call`](crate::Controller::call)).
    Call(C),
}

impl<C> Action<C> {
    /// Applies the fields of a typed or JSON object.
    pub fn apply(kind: ApiKind, manager: &str, object: &impl Serialize) -> Self {
        Self::Apply { object: typed(&kind, object), kind, manager: manager.to_owned() }
    }

    /// Creates a typed or JSON object.
    pub fn create(kind: ApiKind, object: &impl Serialize) -> Self {
        Self::Create { object: typed(&kind, object), kind, accept_existing: false }
    }

    /// Creates a typed or JSON object, unless one of that name exists.
    pub fn ensure(kind: ApiKind, object: &impl Serialize) -> Self {
        Self::Create { object: typed(&kind, object), kind, accept_existing: true }
    }

    /// Changes the fields in `patch`, removing those that are `null`.
    pub fn merge(kind: ApiKind, key: ObjectKey, patch: Value) -> Self {
        Self::Patch { kind, key, subresource: None, patch_kind: PatchKind::Merge, patch }
    }

    /// Changes the fields in `patch`, removing those that are `null`, of exactly the state that the cache shows.
    pub fn merge_exactly<T>(kind: ApiKind, entry: &Entry<T>, mut patch: Value) -> Self {
        patch["metadata"]["uid"] = entry.uid.as_str().into();
        patch["metadata"]["resourceVersion"] = entry.version.to_string().into();
        Self::merge(kind, entry.key.clone(), patch)
    }

    /// Changes the object that the cache shows into `desired`, with a merge patch of exactly that state; `None` if they
    /// are equal.
    pub fn update<T: Serialize>(kind: ApiKind, entry: &Entry<T>, desired: &T) -> Option<Self> {
        let patch = merge_difference(&to_json(&entry.object), &to_json(desired))?;
        Some(Self::merge_exactly(kind, entry, patch))
    }

    /// Changes `current` into `desired` with a merge patch of whatever state the object is in; `None` if they are equal.
    pub fn change<T: Serialize>(kind: ApiKind, key: ObjectKey, current: &T, desired: &T) -> Option<Self> {
        Some(Self::merge(kind, key, merge_difference(&to_json(current), &to_json(desired))?))
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

    /// This action, with an event that is recorded when it is done.
    #[must_use]
    pub fn with_event(self, event: Event) -> Step<C> {
        Step { action: self, event: Some(event), sequential: false }
    }

    /// The object it is about, if it writes to Kubernetes.
    pub fn target(&self) -> Option<ObjectKey> {
        match self {
            Self::Apply { object, .. } | Self::Create { object, .. } => {
                let field = |name| object.pointer(name).and_then(Value::as_str).unwrap_or_default();
                Some(ObjectKey::new(field("/metadata/namespace"), field("/metadata/name")))
            }
            Self::Patch { key, .. }
            | Self::CreateSubresource { key, .. }
            | Self::Status { key, .. }
            | Self::Delete { key, .. } => Some(key.clone()),
            Self::Call(_) => None,
        }
    }

    /// The kind it writes, if it writes to Kubernetes.
    pub fn kind(&self) -> Option<&ApiKind> {
        match self {
            Self::Apply { kind, .. }
            | Self::Create { kind, .. }
            | Self::Patch { kind, .. }
            | Self::CreateSubresource { kind, .. }
            | Self::Status { kind, .. }
            | Self::Delete { kind, .. } => Some(kind),
            Self::Call(_) => None,
        }
    }
}

impl<C: fmt::Display> fmt::Display for Action<C> {
    /// What is done to which object, without its contents: they may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self {
            Self::Apply { .. } => "apply",
            Self::Create { .. } => "create",
            Self::Patch { .. } | Self::Status { .. } => "patch",
            Self::CreateSubresource { subresource, .. } => {
                return match self.target() {
                    Some(target) => write!(f, "create {subresource} of {target}"),
                    None => write!(f, "create {subresource}"),
                };
            }
            Self::Delete { .. } => "delete",
            Self::Call(call) => return call.fmt(f),
        };
        match (self.kind(), self.target()) {
            (Some(kind), Some(target)) => write!(f, "{verb} {kind} {target}"),
            _ => f.write_str(verb),
        }
    }
}

/// What stands in the place of secret data in stored plans and observed states.
pub const REDACTED: &str = "<redacted>";

/// An object as it may be shown: the data of a Secret is redacted, its keys are not.
fn without_secret_data<S: Serializer>(object: &Value, serializer: S) -> Result<S::Ok, S::Error> {
    if object["kind"] != "Secret" {
        return object.serialize(serializer);
    }
    let mut shown = object.clone();
    for field in ["data", "stringData"] {
        for value in
            shown.get_mut(field).and_then(Value::as_object_mut).into_iter().flat_map(|data| data.values_mut())
        {
            *value = REDACTED.into();
        }
    }
    shown.serialize(serializer)
}

/// A value of ours as JSON. Types that cannot be JSON (maps with keys that are not text) are bugs that any test
/// of the plan shows; in production the API server refuses the empty object.
fn to_json(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// An object as JSON, with its kind.
fn typed(kind: &ApiKind, object: &impl Serialize) -> Value {
    let mut object = to_json(object);
    if let Value::Object(fields) = &mut object {
        fields.insert("apiVersion".to_owned(), kind.api_version().into());
        fields.insert("kind".to_owned(), kind.kind.as_ref().into());
    }
    object
}

/// The difference between the observed status and the desired one, for exactly the state it was derived from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusPatch {
    /// Which incarnation of the root.
    pub uid: Uid,
    /// Which state of it.
    pub version: u64,
    /// The status fields that change, `null` for those that go.
    pub status: Value,
    /// How it is written where others rely on who owns the fields: a merge patch makes its writer an owner that no
    /// apply of another one takes them from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub applied: Option<AppliedStatus>,
}

/// The status fields of a field manager: those that it had applied before and that are missing here go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppliedStatus {
    /// The field manager.
    pub manager: String,
    /// All of its fields.
    pub status: Value,
}

impl StatusPatch {
    /// The patch from `current`, as observed on `root`, to `desired`; `None` if they are equal.
    pub fn between<T>(root: &Entry<T>, current: &impl Serialize, desired: &impl Serialize) -> Option<Self> {
        let status = merge_difference(&to_json(current), &to_json(desired))?;
        Some(Self { uid: root.uid.clone(), version: root.version.0, status, applied: None })
    }

    /// The same change, by server-side apply of `fields` in the name of `manager`. What others own of the fields that the
    /// change removes goes, too.
    #[must_use]
    pub fn applied_as(self, manager: &str, fields: &impl Serialize) -> Self {
        let applied = AppliedStatus { manager: manager.to_owned(), status: to_json(fields) };
        Self { applied: Some(applied), ..self }
    }

    /// Whether `live` is a status with the change.
    pub(crate) fn is_made(&self, live: &Value) -> bool {
        is_merged(live, &self.status)
    }
}

/// Whether a merge of `patch` would change nothing but the order of lists.
fn is_merged(live: &Value, patch: &Value) -> bool {
    match (live, patch) {
        (Value::Null, Value::Null) => true,
        (live, Value::Object(fields)) => {
            fields.iter().all(|(name, field)| is_merged(live.get(name).unwrap_or(&Value::Null), field))
        }
        (Value::Array(live), Value::Array(items)) => {
            live.len() == items.len() && items.iter().all(|item| live.contains(item))
        }
        _ => live == patch,
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

/// A Kubernetes event, about the root if nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its type.
    pub kind: EventKind,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// What was done, in one CamelCase word.
    pub action: String,
    /// What happened, in a sentence.
    pub note: String,
    /// The object it is about, where that is not the root.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub regarding: Option<Box<Regarding>>,
}

/// The object an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Regarding {
    /// Its kind.
    pub kind: ApiKind,
    /// Its key.
    pub key: ObjectKey,
    /// Its identity.
    pub uid: Uid,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventKind {
    /// Information.
    Normal,
    /// A problem that may need attention.
    Warning,
}

impl Event {
    /// An event of type `Normal`.
    pub fn normal(reason: &str, action: &str, note: impl Into<String>) -> Self {
        Self::new(EventKind::Normal, reason, action, note)
    }

    /// An event of type `Warning`.
    pub fn warning(reason: &str, action: &str, note: impl Into<String>) -> Self {
        Self::new(EventKind::Warning, reason, action, note)
    }

    fn new(kind: EventKind, reason: &str, action: &str, note: impl Into<String>) -> Self {
        let (reason, action) = (reason.to_owned(), action.to_owned());
        Self { kind, reason, action, note: note.into(), regarding: None }
    }

    /// The same about another object than the root.
    #[must_use]
    pub fn about<T>(self, kind: ApiKind, entry: &Entry<T>) -> Self {
        let regarding = Regarding { kind, key: entry.key.clone(), uid: entry.uid.clone() };
        Self { regarding: Some(Box::new(regarding)), ..self }
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
    fn a_change_is_made_if_a_merge_of_it_would_change_nothing() {
        let cases = [
            ("changed", json!({"a": 1, "b": 2}), json!({"a": 1}), true),
            ("another value", json!({"a": 2}), json!({"a": 1}), false),
            ("gone", json!({"b": 1}), json!({"a": null}), true),
            ("still there", json!({"a": 1}), json!({"a": null}), false),
            ("nested and gone", json!({"a": {"c": 1}}), json!({"a": {"b": null}}), true),
            ("nothing to remove from", json!({}), json!({"a": {"b": null}}), true),
            ("not there", json!({}), json!({"a": {"b": 1}}), false),
            (
                "in another order",
                json!({"a": [{"n": 1}, {"n": 2}]}),
                json!({"a": [{"n": 2}, {"n": 1}]}),
                true,
            ),
            ("one item too many", json!({"a": [{"n": 1}, {"n": 2}]}), json!({"a": [{"n": 1}]}), false),
        ];
        for (name, live, patch, expected) in cases {
            assert_eq!(is_merged(&live, &patch), expected, "{name}");
        }
    }

    #[test]
    fn plans_round_trip_through_json() {
        let plan = Plan {
            steps: vec![Action::Call("ring".to_owned()).into()],
            awaits: vec!["a visitor".to_owned()],
            events: vec![Event::normal("Rang", "Ring", "the bell rang")],
            next: Next::After(Duration::from_secs(3)),
            ..Plan::default()
        };
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan<String>>(&text).unwrap(), plan);
    }

    #[test]
    fn secret_data_is_redacted_in_stored_plans() {
        let secret = json!({"metadata": {"name": "token"}, "stringData": {"auth_token": "hunter2"}});
        let kind = ApiKind::of::<k8s_openapi::api::core::v1::Secret>();
        let action = Action::<NoCall>::create(kind, &secret);
        let stored = serde_json::to_string(&action).unwrap();
        assert!(!stored.contains("hunter2") && stored.contains("auth_token"), "{stored}");
        let Action::Create { object, .. } = action else { panic!() };
        assert_eq!(object["stringData"]["auth_token"], "hunter2", "what is written is not redacted");
    }
}
