//! Events about the Services of RayJobs and RayServices, in KubeRay's words.

use quintet_api::ray::events as reasons;
use quintet_controller::{Event, ObjectKey};

/// A Service was created.
pub(crate) fn created(service: &ObjectKey) -> Event {
    Event::normal(reasons::CREATED_SERVICE, "Create", format!("Created the service {service}"))
}

/// A Service was changed.
pub(crate) fn updated(service: &ObjectKey) -> Event {
    Event::normal(reasons::UPDATED_SERVICE, "Update", format!("Updated the service {service}"))
}

/// A Service cannot be created.
pub(crate) fn failed_to_create(service: &ObjectKey, cause: &str) -> Event {
    let note = format!("Failed to create the service {service}, {cause}");
    Event::warning(reasons::FAILED_TO_CREATE_SERVICE, "Create", note)
}

/// A Service cannot be changed.
pub(crate) fn failed_to_update(service: &ObjectKey, cause: &str) -> Event {
    let note = format!("Failed to update the service {service}, {cause}");
    Event::warning(reasons::FAILED_TO_UPDATE_SERVICE, "Update", note)
}
