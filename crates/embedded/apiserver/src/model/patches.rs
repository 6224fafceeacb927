//! JSON patch, merge patch and strategic merge patch of objects.

use quintet_objects::patch;
use quintet_objects::patch::PatchError;
use quintet_objects::types;
use serde_json::Value;

use crate::json;
use crate::resources::Resource;
use crate::status::Failure;

fn patch_failure(error: &PatchError) -> Failure {
    match error {
        PatchError::Malformed(why) => Failure::bad_request(why.as_str()),
        PatchError::Rejected { .. } => Failure::new(422, "Invalid", error.to_string()),
        PatchError::TooLong(_) => Failure::new(413, "RequestEntityTooLarge", error.to_string()),
        PatchError::Strategic(why) => Failure::untyped(why.as_str()),
    }
}

/// RFC 6902.
pub(crate) fn json_patch(object: &mut Value, patch: &Value) -> Result<(), Failure> {
    patch::json_patch(object, patch).map_err(|error| patch_failure(&error))
}

/// RFC 7386.
pub(crate) fn merge_patch(object: &mut Value, patch: &Value) {
    patch::merge_patch(object, patch);
}

/// Strategic merge patch.
pub(crate) fn strategic_merge(resource: &Resource, object: &mut Value, patch: &Value) -> Result<(), Failure> {
    let (api_version, kind) = (json::text(object, "/apiVersion"), json::text(object, "/kind"));
    let Some(schema) =
        types::kind(api_version, kind).or_else(|| types::kind(&resource.api_version, &resource.kind))
    else {
        return Err(Failure::internal(format!("{} has no merge keys", resource.kind)));
    };
    patch::strategic_merge(object, patch, schema).map_err(|error| patch_failure(&error))
}
