//! OpenAPI documents: what `kubectl explain`, `apply` and validation read.
//!
//! Types come from the same table as everything else, descriptions from k8s-openapi.

mod custom;
mod descriptions;
mod paths;
mod schemas;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

pub use custom::CustomKind;
use schemas::{Dialect, Schemas};

use crate::{builtin, types};

/// The OpenAPI v3 document of one built-in group and version, such as `apps/v1`.
pub fn builtin_v3(api_version: &str, server_version: &str) -> Value {
    let mut schemas = Schemas::new(Dialect::V3);
    let mut paths = Map::new();
    for kind in builtin::all().iter().filter(|kind| kind.api_version() == api_version) {
        schemas.add_kind(kind);
        paths::add_builtin(kind, &mut paths);
    }
    add_common(&mut schemas);
    document_v3(server_version, paths, schemas.finish())
}

/// The OpenAPI v3 document of one group and version of custom resources.
pub fn custom_v3(kinds: &[CustomKind<'_>], server_version: &str) -> Value {
    let mut schemas = Schemas::new(Dialect::V3);
    let mut paths = Map::new();
    for kind in kinds {
        kind.add(&mut schemas);
        paths::add_custom(kind, &mut paths);
    }
    add_common(&mut schemas);
    document_v3(server_version, paths, schemas.finish())
}

/// The OpenAPI v2 document of everything that is served. Its protobuf form is
/// [`crate::protobuf::encode_document`].
pub fn v2(custom: &[CustomKind<'_>], server_version: &str) -> Value {
    let mut schemas = Schemas::new(Dialect::V2);
    let mut paths = Map::new();
    for kind in builtin::all() {
        schemas.add_kind(kind);
        paths::add_builtin(kind, &mut paths);
    }
    for kind in custom {
        kind.add(&mut schemas);
        paths::add_custom(kind, &mut paths);
    }
    add_common(&mut schemas);
    paths::to_v2(&mut paths);
    json!({ "swagger": "2.0", "info": info(server_version), "paths": paths, "definitions": schemas.finish() })
}

/// The built-in groups and versions: their path in OpenAPI v3 (`api/v1`, `apis/apps/v1`) and their name.
pub fn builtin_groups() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for kind in builtin::all() {
        let version = kind.api_version();
        let path = if kind.group.is_empty() { format!("api/{version}") } else { format!("apis/{version}") };
        if !found.iter().any(|(known, _)| *known == path) {
            found.push((path, version));
        }
    }
    found
}

fn add_common(schemas: &mut Schemas) {
    for name in ["Status", "DeleteOptions", "WatchEvent"] {
        if let Some(kind) = types::by_name(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}")) {
            schemas.add_type(kind, None);
        }
    }
}

fn document_v3(server_version: &str, paths: Map<String, Value>, schemas: Map<String, Value>) -> Value {
    let mut components = Map::new();
    components.insert("schemas".into(), Value::Object(schemas));
    let mut document = Map::new();
    document.insert("openapi".into(), json!("3.0.0"));
    document.insert("info".into(), info(server_version));
    document.insert("paths".into(), Value::Object(paths));
    document.insert("components".into(), Value::Object(components));
    Value::Object(document)
}

fn info(server_version: &str) -> Value {
    json!({ "title": "Kubernetes", "version": server_version })
}

/// The mark that says of which kind a schema or operation is.
fn kind_mark(group: &str, version: &str, kind: &str) -> Value {
    json!({ "group": group, "version": version, "kind": kind })
}
