//! Admission: a typed question, an answer, and the difference as a JSON patch.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// What the API server asks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionRequest {
    /// Identifies the question; the answer repeats it.
    pub uid: String,
    /// Group, version and kind of the object as it is sent.
    pub kind: RequestKind,
    /// Subresource, if one is written.
    pub sub_resource: Option<String>,
    /// Name of the object; empty if the server has yet to choose one.
    pub name: String,
    /// Namespace of the object; empty for cluster-scoped ones.
    pub namespace: String,
    /// What is done to the object.
    pub operation: Operation,
    /// By whom.
    pub user_info: UserInfo,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// The object as it would be.
    pub object: Value,
    /// The object as it is.
    pub old_object: Value,
}

/// What kind an object is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RequestKind {
    /// Group; empty for the core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// Who writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// User or service account.
    pub username: String,
    /// Identity of the user, where the authenticator knows one.
    pub uid: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// What else the authenticator knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What is done to an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// It is made.
    Create,
    /// It is changed.
    #[default]
    Update,
    /// It is deleted.
    Delete,
    /// A subresource such as `exec` is connected to.
    Connect,
}

/// A question about objects of a known type.
#[derive(Debug)]
pub struct Admission<K> {
    /// The object as it would be; as it is, for a deletion.
    pub object: K,
    /// The object as it is, unless it is being made.
    pub old: Option<K>,
    /// The rest of the question.
    pub request: AdmissionRequest,
}

/// The answer to a validating question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why the write is refused, each reason with the field it is about; none means it is allowed.
    pub denials: Vec<String>,
    /// What the user should know anyway.
    pub warnings: Vec<String>,
}

impl Verdict {
    /// Allowed.
    pub fn allow() -> Self {
        Self::default()
    }

    /// Refused.
    pub fn deny(why: impl Into<String>) -> Self {
        Self { denials: vec![why.into()], warnings: Vec::new() }
    }

    /// Allowed if there is nothing to say against it.
    pub fn from_denials(denials: Vec<String>) -> Self {
        Self { denials, warnings: Vec::new() }
    }

    /// With something the user should know.
    #[must_use]
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }
}

#[derive(Deserialize)]
struct Review {
    request: AdmissionRequest,
}

/// Reads the question out of a review.
pub(super) fn question(body: &[u8]) -> Result<AdmissionRequest, String> {
    serde_json::from_slice::<Review>(body)
        .map(|review| review.request)
        .map_err(|error| format!("the body is no AdmissionReview: {error}"))
}

/// Types the objects of a question.
pub(super) fn typed<K: DeserializeOwned>(request: AdmissionRequest) -> Result<Admission<K>, String> {
    let read = |name: &str, object: &Value| {
        K::deserialize(object).map_err(|error| format!("{name} cannot be decoded: {error}"))
    };
    let old = match &request.old_object {
        Value::Null => None,
        old => Some(read("the old object", old)?),
    };
    if request.operation == Operation::Delete
        && let Some(object) = old
    {
        let old = Some(read("the old object", &request.old_object)?);
        return Ok(Admission { object, old, request });
    }
    let object = read("the object", &request.object)?;
    Ok(Admission { object, old, request })
}

/// The answer to a validating question.
pub(super) fn answer(uid: &str, verdict: &Verdict) -> Value {
    let mut response = json!({ "uid": uid, "allowed": verdict.denials.is_empty() });
    if !verdict.denials.is_empty() {
        response["status"] =
            json!({ "code": 403, "reason": "Forbidden", "message": verdict.denials.join("; ") });
    }
    if !verdict.warnings.is_empty() {
        response["warnings"] = json!(verdict.warnings);
    }
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
}

/// The answer to a mutating question: the object as it came, as its type reads it before the change, and
/// after it.
pub(super) fn mutated<K: Serialize>(request: &AdmissionRequest, before: &Value, after: &K) -> Value {
    let after = serde_json::to_value(after).unwrap_or_default();
    let wanted = graft(&request.object, before, &after);
    let patch = json_patch::diff(&request.object, &wanted);
    let mut review = answer(&request.uid, &Verdict::allow());
    if !patch.0.is_empty() {
        let bytes = serde_json::to_vec(&patch).unwrap_or_default();
        review["response"]["patchType"] = json!("JSONPatch");
        review["response"]["patch"] = json!(ByteString(bytes));
    }
    review
}

/// Puts what changed from `before` to `after` into `original`, and nothing else: what our types do not
/// know of, or write differently, stays as the user wrote it.
fn graft(original: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return original.clone();
    }
    match (original, before, after) {
        (Value::Object(original), Value::Object(before), Value::Object(after)) => {
            let mut result = original.clone();
            for name in before.keys().filter(|name| !after.contains_key(*name)) {
                result.remove(name);
            }
            for (name, after) in after {
                let was = before.get(name).unwrap_or(&Value::Null);
                if was != after {
                    let original = original.get(name).unwrap_or(&Value::Null);
                    result.insert(name.clone(), graft(original, was, after));
                }
            }
            Value::Object(result)
        }
        (Value::Array(original), Value::Array(before), Value::Array(after))
            if original.len() == before.len() && before.len() <= after.len() =>
        {
            let kept =
                original.iter().zip(before).zip(after).map(|((original, was), is)| graft(original, was, is));
            Value::Array(kept.chain(after[before.len()..].iter().cloned()).collect())
        }
        _ => after.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graft_changes_what_changed_and_nothing_else() {
        let cases = [
            (
                "unknown fields and other spellings stay",
                json!({"a": "1000m", "unknown": 1, "list": [{"x": 1, "unknown": 2}]}),
                json!({"a": "1", "b": null, "list": [{"x": 1}]}),
                json!({"a": "1", "b": 7, "list": [{"x": 2}, {"x": 3}]}),
                json!({"a": "1000m", "b": 7, "unknown": 1, "list": [{"x": 2, "unknown": 2}, {"x": 3}]}),
            ),
            ("removed", json!({"a": 1, "b": 2}), json!({"a": 1, "b": 2}), json!({"a": 1}), json!({"a": 1})),
            (
                "a parent that was missing",
                json!({}),
                json!({"m": {}}),
                json!({"m": {"k": 1}}),
                json!({"m": {"k": 1}}),
            ),
            ("a shorter list as a whole", json!([1, 2]), json!([1, 2]), json!([2]), json!([2])),
        ];
        for (name, original, before, after, expected) in cases {
            assert_eq!(graft(&original, &before, &after), expected, "{name}");
        }
    }
}
