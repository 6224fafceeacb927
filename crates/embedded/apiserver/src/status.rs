//! Failures as clients read them: the Status object, its reason and its HTTP code.

use quintet_objects::error::{FieldError, invalid_status, quoted};
use serde_json::{Map, Value, json};

/// A request that did not succeed. Boxed: it is the rare case and travels through every function.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure(Box<Inner>);

#[derive(Clone, Debug, PartialEq)]
struct Inner {
    code: u16,
    reason: String,
    message: String,
    details: Option<Map<String, Value>>,
    list_continue: Option<String>,
    /// Not a Status at all but this text.
    is_plain: bool,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Failure {}

/// A resource as error messages name it.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// API group; empty for core.
    pub group: &'a str,
    /// The plural, or the kind where Kubernetes uses that.
    pub resource: &'a str,
    /// Name of the object.
    pub name: &'a str,
}

impl Named<'_> {
    fn shown(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, value) in [("name", self.name), ("group", self.group), ("kind", self.resource)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        details
    }
}

impl Failure {
    /// Any failure.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: None,
            list_continue: None,
            is_plain: false,
        }))
    }

    fn about(mut self, named: Named<'_>) -> Self {
        self.0.details = Some(named.details());
        self
    }

    /// Adds a cause.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let mut cause = Map::new();
        for (key, value) in [("reason", reason), ("message", message), ("field", field)] {
            if !value.is_empty() {
                cause.insert(key.into(), value.into());
            }
        }
        let details = self.0.details.get_or_insert_default();
        let causes = details.entry("causes").or_insert_with(|| json!([]));
        if let Some(causes) = causes.as_array_mut() {
            causes.push(Value::Object(cause));
        }
        self
    }

    /// The same with another code and reason.
    #[must_use]
    pub(crate) fn with_code(mut self, code: u16, reason: &str) -> Self {
        self.0.code = code;
        reason.clone_into(&mut self.0.reason);
        self
    }

    /// The same failure in other words.
    #[must_use]
    pub(crate) fn with_message(mut self, message: String) -> Self {
        self.0.message = message;
        self
    }

    /// Asks the client to come back after some seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.0.details.get_or_insert_default().insert("retryAfterSeconds".into(), seconds.into());
        self
    }

    /// Hands the client a token to go on listing with.
    #[must_use]
    pub fn with_continue(mut self, token: String) -> Self {
        self.0.list_continue = Some(token);
        self
    }

    /// The object does not exist.
    pub fn not_found(named: Named<'_>) -> Self {
        let message = format!("{} {} not found", named.shown(), quoted(named.name));
        Self::new(404, "NotFound", message).about(named)
    }

    /// The resource does not exist.
    pub fn no_resource() -> Self {
        let mut failure = Self::new(404, "NotFound", "the server could not find the requested resource");
        failure.0.details = Some(Map::new());
        failure
    }

    /// The path does not exist: plain text, not a Status.
    pub fn no_page() -> Self {
        Self::plain(404, "404 page not found\n")
    }

    /// A failure as plain text.
    pub fn plain(code: u16, text: &str) -> Self {
        let mut failure = Self::new(code, "", text);
        failure.0.is_plain = true;
        failure
    }

    /// The object exists already.
    pub fn already_exists(named: Named<'_>, is_terminating: bool) -> Self {
        let prefix = if is_terminating { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{} {} already exists", named.shown(), quoted(named.name));
        Self::new(409, "AlreadyExists", message).about(named)
    }

    /// No free name was found for generateName.
    pub fn no_unique_name(named: Named<'_>) -> Self {
        let message = format!(
            "{} {} already exists, the server was not able to generate a unique name for the object",
            named.shown(),
            quoted(named.name)
        );
        Self::new(409, "AlreadyExists", message).about(named).retry_after(1)
    }

    /// The write is based on something that is no longer so.
    pub fn conflict(named: Named<'_>, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {}: {why}", named.shown(), quoted(named.name));
        Self::new(409, "Conflict", message).about(named)
    }

    /// The object changed in between.
    pub fn modified(named: Named<'_>) -> Self {
        Self::conflict(
            named,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// The object is not valid; `named.resource` is the kind.
    pub fn invalid(named: Named<'_>, errors: &[FieldError]) -> Self {
        let status = invalid_status(named.group, named.resource, named.name, errors);
        let mut failure = Self::new(422, "Invalid", text(&status, "message"));
        failure.0.details = status.get("details").and_then(Value::as_object).cloned();
        failure
    }

    /// Options of a request are not valid.
    pub fn invalid_options(kind: &str, field: &str, body: &str, reason: &str) -> Self {
        let message = format!("{kind}.meta.k8s.io \"\" is invalid: {field}: {body}");
        let named = Named { group: "meta.k8s.io", resource: kind, name: "" };
        Self::new(422, "Invalid", message).about(named).with_cause(reason, body, field)
    }

    /// `403 Forbidden`, by authorization or admission.
    pub fn forbidden(named: Named<'_>, why: &str) -> Self {
        let name = if named.name.is_empty() { String::new() } else { format!(" {}", quoted(named.name)) };
        let message = if named.resource.is_empty() {
            format!("forbidden: {why}")
        } else {
            format!("{}{name} is forbidden: {why}", named.shown())
        };
        Self::new(403, "Forbidden", message).about(named)
    }

    /// The credentials are no good.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Not this verb here.
    pub fn method_not_allowed() -> Self {
        let mut failure = Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        failure.0.details = Some(Map::new());
        failure
    }

    /// None of the representations the client accepts can be had.
    pub fn not_acceptable(accepted: &str) -> Self {
        Self::new(406, "NotAcceptable", format!("only the following media types are accepted: {accepted}"))
    }

    /// The body is in a format that is not understood.
    pub fn unsupported_body(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// The body is too large.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// `410 Gone`: the requested version is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The requested version is in the future.
    pub fn future_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(504, "Timeout", message)
            .with_cause("ResourceVersionTooLarge", "Too large resource version", "")
            .retry_after(1)
    }

    /// Something broke on our side.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        let error = error.to_string();
        Self::new(500, "InternalError", format!("Internal error occurred: {error}"))
            .with_cause("", &error, "")
    }

    /// An error that Kubernetes has no reason for.
    pub fn untyped(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// The HTTP code.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// The reason, such as `NotFound`.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// What is wrong, in words.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether the response is plain text.
    pub fn is_plain(&self) -> bool {
        self.0.is_plain
    }

    /// Seconds after which to try again.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.0.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }

    /// The Status object.
    pub fn to_value(&self) -> Value {
        let inner = &self.0;
        let mut status = Map::new();
        let mut metadata = Map::new();
        if let Some(token) = &inner.list_continue {
            metadata.insert("continue".into(), token.as_str().into());
        }
        status.insert("kind".into(), "Status".into());
        status.insert("apiVersion".into(), "v1".into());
        status.insert("metadata".into(), Value::Object(metadata));
        status.insert("status".into(), "Failure".into());
        status.insert("message".into(), inner.message.as_str().into());
        if !inner.reason.is_empty() {
            status.insert("reason".into(), inner.reason.as_str().into());
        }
        if let Some(details) = &inner.details {
            status.insert("details".into(), Value::Object(details.clone()));
        }
        status.insert("code".into(), inner.code.into());
        Value::Object(status)
    }

    /// A failure from a Status object, as webhooks and other servers send them.
    pub fn from_status(status: &Value, code: u16, message: String) -> Self {
        let mut failure = Self::new(code, &text(status, "reason"), message);
        failure.0.details = status.get("details").and_then(Value::as_object).cloned();
        failure
    }
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The Status of a deletion that left nothing behind.
pub(crate) fn deleted(named: Named<'_>, uid: &str) -> Value {
    let mut details = named.details();
    details.insert("uid".into(), uid.into());
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// The Status of an action that has no object to show.
pub(crate) fn done() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
