//! Schemas of custom resources.

use serde_json::{Map, Value, json};

use super::kind_mark;
use super::schemas::{Dialect, Schemas};
use crate::types;

/// A kind of custom resource in one version.
#[derive(Clone, Copy, Debug)]
pub struct CustomKind<'a> {
    /// Its API group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// Its name, such as `RayCluster`.
    pub kind: &'a str,
    /// The name of its list.
    pub list_kind: &'a str,
    /// Its name in paths.
    pub plural: &'a str,
    /// Whether objects live in a namespace.
    pub is_namespaced: bool,
    /// Whether it has a status of its own.
    pub has_status: bool,
    /// Its schema (`openAPIV3Schema`).
    pub schema: &'a Value,
}

/// Keys OpenAPI v2 has no room for.
const ONLY_V3: [&str; 7] =
    ["nullable", "oneOf", "anyOf", "allOf", "not", "x-kubernetes-validations", "default"];
/// Deeper than any schema that is accepted.
const MAX_DEPTH: usize = 120;
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

impl CustomKind<'_> {
    /// The name of its schema: the group reversed, version and kind.
    pub(super) fn schema_name(&self, kind: &str) -> String {
        let mut parts: Vec<&str> = self.group.split('.').rev().collect();
        parts.extend([self.version, kind]);
        parts.join(".")
    }

    pub(super) fn add(&self, schemas: &mut Schemas) {
        for name in [OBJECT_META, LIST_META] {
            if let Some(metadata) = types::by_name(name) {
                schemas.add_type(metadata, None);
            }
        }
        let mut schema = match convert(self.schema, schemas.dialect(), 0) {
            Value::Object(fields) => fields,
            _ => Map::from_iter([("type".to_owned(), json!("object"))]),
        };
        if let Value::Object(properties) = schema.entry("properties").or_insert_with(|| json!({})) {
            properties.entry("apiVersion").or_insert_with(|| json!({ "type": "string" }));
            properties.entry("kind").or_insert_with(|| json!({ "type": "string" }));
            properties.insert("metadata".into(), schemas.reference(OBJECT_META));
        }
        let mark = kind_mark(self.group, self.version, self.kind);
        schema.insert("x-kubernetes-group-version-kind".into(), json!([mark]));
        let name = self.schema_name(self.kind);
        let items = schemas.reference(&name);
        schemas.insert(name, Value::Object(schema));
        let metadata = schemas.reference(LIST_META);
        schemas.insert(
            self.schema_name(self.list_kind),
            json!({ "type": "object", "required": ["items"], "properties": {
                "apiVersion": { "type": "string" }, "kind": { "type": "string" }, "metadata": metadata,
                "items": { "type": "array", "items": items } },
                "x-kubernetes-group-version-kind": [kind_mark(self.group, self.version, self.list_kind)] }),
        );
    }
}

fn convert(schema: &Value, dialect: Dialect, depth: usize) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    if depth > MAX_DEPTH {
        return json!({});
    }
    let is_open = fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    let mut out = Map::new();
    for (key, value) in fields {
        if dialect == Dialect::V2 && (ONLY_V3.contains(&key.as_str()) || (is_open && key == "properties")) {
            continue;
        }
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => Value::Object(
                properties
                    .iter()
                    .map(|(name, schema)| (name.clone(), convert(schema, dialect, depth + 1)))
                    .collect(),
            ),
            ("items" | "additionalProperties", Value::Object(_)) => convert(value, dialect, depth + 1),
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        out.insert("format".into(), json!("int-or-string"));
        out.remove("anyOf");
        match dialect {
            Dialect::V2 => out.insert("type".into(), json!("string")),
            Dialect::V3 => out.insert("oneOf".into(), json!([{ "type": "integer" }, { "type": "string" }])),
        };
    }
    Value::Object(out)
}
