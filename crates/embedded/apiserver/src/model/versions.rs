//! Conversion between versions, and objects of custom kinds brought in line with their schema.

use quintet_objects::builtin;
use quintet_objects::types;
use serde_json::Value;
use serde_json::json;

use crate::crd::CustomVersion;
use crate::json;
use crate::resources::Resource;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Makes a built-in object one of the resource's version.
pub(crate) fn convert_built_in(resource: &Resource, mut object: Value) -> Value {
    if resource.as_built_in().is_some() && json::text(&object, "/apiVersion") != &*resource.api_version {
        builtin::convert(&mut object, &resource.api_version);
    }
    object
}

/// Prunes a custom object of a request; returns what was dropped.
pub(crate) fn fit_custom(custom: &CustomVersion, object: &mut Value) -> Result<Vec<String>, String> {
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    let mut unknown = Vec::new();
    if let Some(schema) = types::by_name(OBJECT_META) {
        let decoded = types::decode(schema, &mut metadata).map_err(|error| error.to_string())?;
        unknown = decoded.unknown.into_iter().map(|path| format!("metadata.{path}")).collect();
        json::as_map(object).insert("metadata".into(), metadata);
    }
    unknown.extend(custom.prune(object));
    Ok(unknown)
}

/// Makes a stored custom object what it would be if it were written now.
pub(crate) fn refresh_custom(custom: &CustomVersion, object: &mut Value) {
    custom.prune(object);
    custom.default(object);
}
