//! Validation of objects of any kind.

use quintet_objects::FieldError;
use quintet_objects::meta;
use quintet_objects::meta::NameRule;
use serde_json::Value;

use super::strategy::is_definition;
use crate::json;
use crate::resources::Model;
use crate::verbs::RequestContext;

/// What is wrong with a new object.
pub(crate) fn validate_create(context: &RequestContext, object: &Value) -> Vec<FieldError> {
    validate(context, object, None)
}

/// What is wrong with a changed object.
pub(crate) fn validate_update(context: &RequestContext, new: &Value, old: &Value) -> Vec<FieldError> {
    validate(context, new, Some(old))
}

fn validate(context: &RequestContext, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match &context.resource.model {
        Model::BuiltIn(kind) => match context.subresource.as_str() {
            // These change what the object itself may not.
            "binding" | "finalize" => Vec::new(),
            "resize" => kind.validate(new, None),
            "ephemeralcontainers" => {
                let mut errors = kind.validate(new, None);
                errors.extend(old.into_iter().flat_map(|old| changed_ephemeral(new, old)));
                errors
            }
            _ => {
                // Schemas are dear to check; what did not change was checked when it was written.
                let is_unchanged = old.is_some_and(|old| old.get("spec") == new.get("spec"));
                let mut errors = if is_definition(&context.resource) && is_unchanged {
                    old.into_iter().flat_map(|old| meta::validate_update(new, old)).collect()
                } else {
                    kind.validate(new, old)
                };
                // Definitions may have finalizers without a slash, as the one that empties them.
                if is_definition(&context.resource) {
                    errors.retain(|error| !error.path.starts_with("metadata.finalizers["));
                }
                errors
            }
        },
        Model::Custom(custom) => {
            let mut errors = meta::validate(new, NameRule::Subdomain, context.resource.is_namespaced, false);
            errors.extend(old.into_iter().flat_map(|old| meta::validate_update(new, old)));
            let (found, warnings) = custom.validate(new, old);
            for warning in warnings {
                context.warn(warning);
            }
            errors.extend(found);
            errors
        }
    }
}

/// Ephemeral containers are added and never changed.
fn changed_ephemeral(new: &Value, old: &Value) -> Vec<FieldError> {
    let spec = quintet_objects::Path::new("spec");
    let path = spec.field("ephemeralContainers");
    let present = json::items(new, "/spec/ephemeralContainers");
    let is_kept = |container: &&Value| {
        present
            .iter()
            .any(|one| json::text(one, "/name") == json::text(container, "/name") && one == *container)
    };
    let containers = json::items(old, "/spec/ephemeralContainers").iter();
    let changed = containers.filter(|container| !is_kept(container));
    changed
        .map(|container| {
            let name = json::text(container, "/name");
            FieldError::forbidden(&path, format!("existing ephemeral containers {name:?} may not be changed"))
        })
        .collect()
}
