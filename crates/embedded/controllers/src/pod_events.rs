//! Events about the pods that a workload creates and deletes.

use k8s_openapi::api::core::v1::Pod;
use quintet_controller::cache::Entry;
use quintet_controller::plan::Propagation;
use quintet_controller::{Action, ApiKind, Error, Event, ObjectKey, OnError, Step};

use crate::pod::PodView;

/// Reason of the event about a created pod.
pub(crate) const SUCCESSFUL_CREATE: &str = "SuccessfulCreate";
/// Reason of the event about a deleted pod.
pub(crate) const SUCCESSFUL_DELETE: &str = "SuccessfulDelete";
/// Reason of the event about a pod that could not be created, and of condition `ReplicaFailure`.
pub(crate) const FAILED_CREATE: &str = "FailedCreate";
/// Reason of the event about a pod that could not be deleted, and of condition `ReplicaFailure`.
pub(crate) const FAILED_DELETE: &str = "FailedDelete";
/// The cause of a rejected creation in a namespace that is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// Creates a pod, and records an event.
pub(crate) fn create(pod: &Pod) -> Step {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let event = Event::normal(SUCCESSFUL_CREATE, "Create", format!("Created pod: {name}"));
    Action::create(ApiKind::of::<Pod>(), pod).with_event(event)
}

/// Deletes a pod, and records an event.
pub(crate) fn delete(pod: &Entry<PodView>) -> Step {
    let event = Event::normal(SUCCESSFUL_DELETE, "Delete", format!("Deleted pod: {}", pod.key.name()));
    delete_quietly(&pod.key, pod).with_event(event)
}

fn delete_quietly(key: &ObjectKey, pod: &Entry<PodView>) -> Action {
    Action::Delete {
        kind: ApiKind::of::<Pod>(),
        key: key.clone(),
        uid: pod.uid.clone(),
        propagation: Propagation::Background,
        grace_seconds: None,
    }
}

/// What went wrong with a pod: the reason and the message.
pub(crate) fn failure(action: &Action, error: &Error) -> Option<(&'static str, String)> {
    if action.kind() != Some(&ApiKind::of::<Pod>()) || is_namespace_terminating(error) {
        return None;
    }
    match action {
        Action::Create { .. } => Some((FAILED_CREATE, cause(error))),
        Action::Delete { .. } => Some((FAILED_DELETE, cause(error))),
        _ => None,
    }
}

/// The event about a pod that could not be created or deleted.
pub(crate) fn on_error(action: &Action, error: &Error) -> OnError {
    let events = failure(action, error).map(|(reason, message)| event_of(reason, &message));
    OnError { events: events.into_iter().collect(), ..OnError::default() }
}

/// The event about a failure.
pub(crate) fn event_of(reason: &str, message: &str) -> Event {
    let verb = if reason == FAILED_CREATE { "creating" } else { "deleting" };
    Event::warning(
        reason,
        if reason == FAILED_CREATE { "Create" } else { "Delete" },
        format!("Error {verb}: {message}"),
    )
}

/// What the API server said, without what was attempted.
pub(crate) fn cause(error: &Error) -> String {
    error.status().map_or_else(|| error.to_string(), |status| status.message.trim().to_owned())
}

/// Whether a creation is rejected because its namespace is being deleted, which is not worth an event.
pub(crate) fn is_namespace_terminating(error: &Error) -> bool {
    let causes = error.status().and_then(|status| status.details.as_ref()).map(|details| &details.causes);
    causes.is_some_and(|causes| causes.iter().any(|cause| cause.reason == NAMESPACE_TERMINATING))
}
