//! Errors of requests and reconciles, by class.

use std::{fmt, time::Duration};

use crate::object::{ApiKind, ObjectKey};

/// What an error means for the next attempt, the metric and the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Another writer was faster; requeue soon.
    Conflict,
    /// The API server, the network or this process cannot do it at the moment.
    Transient,
    /// The API server asks for fewer requests.
    Throttled,
    /// The server rejects the request, and will until something changes.
    Invalid,
    /// A bug of ours.
    Bug,
}

impl Class {
    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Transient => "transient",
            Self::Throttled => "throttled",
            Self::Invalid => "invalid",
            Self::Bug => "bug",
        }
    }

    /// Whether it is reported to users by an event: the others pass by themselves.
    pub fn deserves_event(self) -> bool {
        matches!(self, Self::Invalid | Self::Bug)
    }
}

/// A failed request or reconcile step: what was attempted, on what, and why it failed.
#[derive(Debug)]
pub struct Error {
    class: Class,
    attempt: String,
    cause: Cause,
    retry_after: Option<Duration>,
    is_in_outage: bool,
}

#[derive(Debug)]
enum Cause {
    Text(String),
    Client(Box<kube::Error>),
    Deadline(Duration),
}

impl Error {
    /// An error of `class`: `attempt` says what was tried ("cannot create Pod a/b"), `cause` why it
    /// failed.
    pub fn new(class: Class, attempt: impl Into<String>, cause: impl Into<String>) -> Self {
        Self::of(class, attempt.into(), Cause::Text(cause.into()))
    }

    fn of(class: Class, attempt: String, cause: Cause) -> Self {
        Self { class, attempt, cause, retry_after: None, is_in_outage: false }
    }

    /// A request that did not succeed.
    pub fn request(verb: &str, kind: &ApiKind, key: Option<&ObjectKey>, cause: kube::Error) -> Self {
        let class = classify(&cause);
        let retry_after = match &cause {
            kube::Error::Api(status) => status
                .details
                .as_ref()
                .map(|details| details.retry_after_seconds)
                .filter(|seconds| *seconds > 0)
                .map(|seconds| Duration::from_secs(seconds.into())),
            _ => None,
        };
        let error = Self::of(class, attempt(verb, kind, key), Cause::Client(Box::new(cause)));
        Self { retry_after, ..error }
    }

    /// A request that exceeded its deadline; whether it took effect is unknown.
    pub fn deadline(verb: &str, kind: &ApiKind, key: Option<&ObjectKey>, after: Duration) -> Self {
        Self::of(Class::Transient, attempt(verb, kind, key), Cause::Deadline(after))
    }

    /// Why it failed, without what was attempted: of a request that the server rejected, its message.
    pub fn cause(&self) -> String {
        match &self.cause {
            Cause::Text(text) => text.clone(),
            Cause::Deadline(after) => format!("no response within {after:?}"),
            Cause::Client(error) => match &**error {
                kube::Error::Api(status) => status.message.trim().to_owned(),
                other => innermost(other),
            },
        }
    }

    /// What the error means for the next attempt.
    pub fn class(&self) -> Class {
        self.class
    }

    /// How long the server asked us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The Status that the server responded with, if it did.
    pub fn status(&self) -> Option<&kube::core::Status> {
        match &self.cause {
            Cause::Client(error) => match &**error {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            Cause::Text(_) | Cause::Deadline(_) => None,
        }
    }

    /// The server did not respond: it cannot be reached, or not in time.
    pub(crate) fn is_without_response(&self) -> bool {
        match &self.cause {
            Cause::Deadline(_) => true,
            Cause::Client(error) => matches!(**error, kube::Error::Service(_) | kube::Error::HyperError(_)),
            Cause::Text(_) => false,
        }
    }

    /// The same error, as part of an outage that is logged already.
    #[must_use]
    pub(crate) fn in_outage(self) -> Self {
        Self { is_in_outage: true, ..self }
    }

    /// It needs no log line of its own: [`Contact`](crate::contact::Contact) logs outages, a connection that was
    /// interrupted is opened again, and what is created in a namespace that is being deleted would not last.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_interrupted = |error: &kube::Error| {
            matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_))
        };
        let is_interrupted = matches!(&self.cause, Cause::Client(error) if is_interrupted(error));
        self.is_in_outage || is_interrupted || self.is_namespace_terminating()
    }

    /// The namespace is being deleted, and takes no new objects.
    pub fn is_namespace_terminating(&self) -> bool {
        let details = self.status().and_then(|status| status.details.as_ref());
        let mut causes = details.into_iter().flat_map(|details| &details.causes);
        causes.any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// The object was not found, or its kind is not served.
    pub fn is_not_found(&self) -> bool {
        // The response for an API group that is not served is plain text; only its code can be decoded.
        self.status().is_some_and(|status| status.is_not_found() || status.code == 404)
    }

    /// The write was derived from a state that has changed since: reading again resolves it. An object that exists already
    /// does not go away by reading again.
    pub fn is_stale_read(&self) -> bool {
        let exists = self.status().is_some_and(kube::core::Status::is_already_exists);
        self.class() == Class::Conflict && !exists
    }

    /// The server responded with this HTTP code.
    pub fn has_code(&self, code: u16) -> bool {
        self.status().is_some_and(|status| status.code == code)
    }
}

fn attempt(verb: &str, kind: &ApiKind, key: Option<&ObjectKey>) -> String {
    match key {
        Some(key) => format!("cannot {verb} {kind} {key}"),
        None => format!("cannot {verb} {kind}"),
    }
}

fn classify(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) => match status.code {
            409 => Class::Conflict,
            429 => Class::Throttled,
            // The namespace, kind or owner may be created later; a proxy's 408 or a server's 5xx passes.
            // A 401 is a token that is being rotated.
            401 | 404 | 408 | 410 | 500..=599 => Class::Transient,
            _ => Class::Invalid,
        },
        kube::Error::HyperError(_)
        | kube::Error::Service(_)
        | kube::Error::ReadEvents(_)
        | kube::Error::Auth(_) => Class::Transient,
        _ => Class::Bug,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.attempt, self.cause())
    }
}

/// The innermost reason of an error: `connection refused` says more than `client error (Connect)`.
pub fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error).to_string()
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Client(error) => Some(&**error),
            Cause::Text(_) | Cause::Deadline(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_group_that_is_not_served_is_not_found() {
        let kind = ApiKind::of::<k8s_openapi::api::core::v1::Pod>();
        let of = |status: Status| Error::request("list", &kind, None, kube::Error::Api(Box::new(status)));
        let plain = Status::failure("404 page not found", "Failed to parse error data").with_code(404);
        assert!(of(plain).is_not_found());
        assert!(of(Status::failure("no such pod", "NotFound").with_code(404)).is_not_found());
        assert!(!of(Status::failure("conflict", "Conflict").with_code(409)).is_not_found());
    }

    #[test]
    fn a_namespace_that_is_being_deleted_is_no_news() {
        let kind = ApiKind::of::<k8s_openapi::api::core::v1::Pod>();
        let of = |status: Status| Error::request("create", &kind, None, kube::Error::Api(Box::new(status)));
        let cause = kube::core::response::StatusCause {
            reason: "NamespaceTerminating".into(),
            message: "namespace team is being terminated".into(),
            field: "metadata.namespace".into(),
        };
        let mut forbidden = Status::failure("no new content", "Forbidden").with_code(403);
        assert!(!of(forbidden.clone()).is_quiet());
        let details = kube::core::response::StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: vec![cause],
            retry_after_seconds: 0,
        };
        forbidden.details = Some(details);
        assert!(of(forbidden).is_quiet());
    }
}
