//! Admission requests and responses.

use std::{
    collections::BTreeMap,
    future::{Ready, ready},
};

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{HandlerError, patch};

/// The request of an AdmissionReview.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionRequest {
    /// Identifies the request; the response repeats it.
    pub uid: String,
    /// Group, version and kind of the object as it is sent.
    pub kind: RequestKind,
    /// Subresource, if one is written.
    pub sub_resource: Option<String>,
    /// Name of the object; empty if the server has yet to choose one.
    pub name: String,
    /// Namespace of the object; empty for cluster-scoped ones.
    pub namespace: String,
    /// What the request does to the object.
    pub operation: Operation,
    /// The user who sent the request.
    pub user_info: UserInfo,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// The new object; `null` for a deletion.
    pub object: Value,
    /// The existing object; `null` for a creation.
    pub old_object: Value,
}

/// Group, version and kind of an object.
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

/// The user who sent the request.
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

/// What a request does to an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// Creates it.
    Create,
    /// Changes it.
    #[default]
    Update,
    /// Deletes it.
    Delete,
    /// Connects to a subresource such as `exec`.
    Connect,
}

/// An admission request for objects of a known type.
#[derive(Debug)]
pub struct Admission<K> {
    /// The new object; the existing one for a deletion.
    pub object: K,
    /// The existing object, except for a creation.
    pub old: Option<K>,
    /// The rest of the request. Its objects are as they were sent.
    pub request: AdmissionRequest,
}

/// The decision of a validating webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why the request is denied, each reason with the field it is about; none means it is allowed.
    pub denials: Vec<String>,
    /// Warnings for the user, whether allowed or denied.
    pub warnings: Vec<String>,
}

impl Verdict {
    /// Allowed.
    pub fn allow() -> Self {
        Self::default()
    }

    /// Denied.
    pub fn deny(why: impl Into<String>) -> Self {
        Self { denials: vec![why.into()], warnings: Vec::new() }
    }

    /// Denied for these reasons; allowed if there are none.
    pub fn from_denials(denials: Vec<String>) -> Self {
        Self { denials, warnings: Vec::new() }
    }

    /// With a warning for the user.
    #[must_use]
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }
}

/// So that handlers may return a verdict without being async.
impl IntoFuture for Verdict {
    type Output = Self;
    type IntoFuture = Ready<Self>;

    fn into_future(self) -> Ready<Self> {
        ready(self)
    }
}

/// The decision of a mutating webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation<K> {
    object: Option<K>,
    verdict: Verdict,
}

impl<K> Mutation<K> {
    /// Allowed as it is.
    pub fn unchanged() -> Self {
        Verdict::allow().into()
    }

    /// Allowed with the object changed to this one.
    pub fn to(object: K) -> Self {
        Self { object: Some(object), verdict: Verdict::allow() }
    }

    /// Denied.
    pub fn deny(why: impl Into<String>) -> Self {
        Verdict::deny(why).into()
    }

    /// With a warning for the user.
    #[must_use]
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        self.verdict = self.verdict.warn(warning);
        self
    }
}

/// Decides without changing the object.
impl<K> From<Verdict> for Mutation<K> {
    fn from(verdict: Verdict) -> Self {
        Self { object: None, verdict }
    }
}

/// So that handlers may return a mutation without being async.
impl<K> IntoFuture for Mutation<K> {
    type Output = Self;
    type IntoFuture = Ready<Self>;

    fn into_future(self) -> Ready<Self> {
        ready(self)
    }
}

#[derive(Deserialize)]
struct Review {
    request: AdmissionRequest,
}

/// Decodes the request of an AdmissionReview.
pub(super) fn request(review: Value) -> Result<AdmissionRequest, HandlerError> {
    serde_json::from_value::<Review>(review)
        .map(|review| review.request)
        .map_err(|error| HandlerError::BadRequest(format!("cannot decode the AdmissionReview: {error}")))
}

/// Decodes the objects of a request.
pub(super) fn typed<K: DeserializeOwned>(request: AdmissionRequest) -> Result<Admission<K>, String> {
    let decode = |name: &str, object: &Value| {
        K::deserialize(object).map_err(|error| format!("cannot decode the {name}: {error}"))
    };
    let old = match &request.old_object {
        Value::Null => None,
        old => Some(decode("old object", old)?),
    };
    let object = match request.operation {
        Operation::Delete => decode("old object", &request.old_object)?,
        _ => decode("object", &request.object)?,
    };
    Ok(Admission { object, old, request })
}

/// The AdmissionReview with the decision of a validating webhook.
pub(super) fn response(uid: &str, verdict: &Verdict) -> Value {
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

/// The AdmissionReview with the decision of a mutating webhook: `original` is the object as it was sent, and
/// `before` as the handler's type writes it.
pub(super) fn mutated<K: Serialize>(
    uid: &str,
    original: &Value,
    before: serde_json::Result<Value>,
    mutation: Mutation<K>,
) -> serde_json::Result<Value> {
    let mut review = response(uid, &mutation.verdict);
    let Some(after) = mutation.object.filter(|_| mutation.verdict.denials.is_empty()) else {
        return Ok(review);
    };
    // There is nothing to patch in a deletion.
    if original.is_null() {
        return Ok(review);
    }
    let patch = patch::changes(original, &before?, &serde_json::to_value(after)?);
    if !patch.0.is_empty() {
        review["response"]["patchType"] = json!("JSONPatch");
        review["response"]["patch"] = json!(ByteString(serde_json::to_vec(&patch)?));
    }
    Ok(review)
}
