//! OpenAPI documents of what is served.

use std::sync::Arc;

use quintet_objects::openapi;
use quintet_objects::openapi::CustomKind;
use serde_json::Value;

use crate::resources::GroupVersion;
use crate::resources::Registry;
use crate::resources::Resource;

/// Custom resources with their schemas as they were written.
fn custom_schemas<'a>(
    resources: impl Iterator<Item = &'a Arc<Resource>>,
) -> Vec<(&'a Resource, bool, Value)> {
    let custom = resources.filter_map(|resource| Some((resource, resource.as_custom()?)));
    custom.map(|(resource, custom)| (&**resource, custom.has_status, custom.raw_schema())).collect()
}

fn custom_kinds<'a>(schemas: &'a [(&'a Resource, bool, Value)]) -> Vec<CustomKind<'a>> {
    let kind = |(resource, has_status, schema): &'a (&'a Resource, bool, Value)| CustomKind {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
        list_kind: &resource.list_kind,
        plural: &resource.plural,
        is_namespaced: resource.is_namespaced,
        has_status: *has_status,
        schema,
    };
    schemas.iter().map(kind).collect()
}

/// The OpenAPI v3 document of a group version.
pub(crate) fn openapi_v3(group: &str, version: &GroupVersion, server: &str) -> Value {
    let schemas = custom_schemas(version.resources.iter());
    if schemas.is_empty() {
        openapi::builtin_v3(&crate::resources::api_version(group, &version.version), server)
    } else {
        openapi::custom_v3(&custom_kinds(&schemas), server)
    }
}

/// The OpenAPI v2 document of everything.
pub(crate) fn openapi_v2(registry: &Registry, server: &str) -> Value {
    let schemas = custom_schemas(registry.all());
    openapi::v2(&custom_kinds(&schemas), server)
}
