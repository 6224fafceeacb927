//! Schemas of custom resources.

use serde_json::{Map, Value, json};

use super::schemas::{Dialect, Schemas};
use super::{descriptions, kind_mark};
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
const ONLY_V3: [&str; 5] = ["nullable", "oneOf", "anyOf", "allOf", "not"];
/// Deeper than any schema that is accepted.
const MAX_DEPTH: usize = 120;
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
/// Any built-in kind: `apiVersion`, `kind` and `metadata` mean the same in all of them.
const DESCRIBED_KIND: &str = "io.k8s.api.core.v1.ConfigMap";

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
        let name = self.schema_name(self.kind);
        let items = schemas.reference(&name);
        schemas.insert(name, Value::Object(self.object_schema(schemas)));
        let metadata = schemas.described_reference(LIST_META, descriptions::of_type(LIST_META));
        let mut list = json!({ "type": "object", "required": ["items"],
            "description": format!("{} is a list of {}", self.list_kind, self.kind),
            "properties": { "metadata": metadata, "items": { "type": "array", "items": items } },
            "x-kubernetes-group-version-kind": [kind_mark(self.group, self.version, self.list_kind)] });
        if let Some(Value::Object(properties)) = list.get_mut("properties") {
            add_type_meta(properties);
        }
        schemas.insert(self.schema_name(self.list_kind), list);
    }

    fn object_schema(&self, schemas: &Schemas) -> Map<String, Value> {
        let plain = || Map::from_iter([("type".to_owned(), json!("object"))]);
        let mut schema = match self.schema {
            // Clients of OpenAPI v2 take a schema with properties for a closed one.
            Value::Object(written) if schemas.dialect() == Dialect::V2 && is_set(written, PRESERVES) => {
                plain()
            }
            Value::Object(written) if !written.is_empty() => {
                let mut schema = convert(written, schemas, 0);
                let properties = schema.entry("properties").or_insert_with(|| json!({}));
                if let Value::Object(properties) = properties {
                    add_type_meta(properties);
                    properties.insert("metadata".into(), object_meta(schemas));
                }
                schema
            }
            _ => plain(),
        };
        let mark = kind_mark(self.group, self.version, self.kind);
        schema.insert("x-kubernetes-group-version-kind".into(), json!([mark]));
        schema
    }
}

const PRESERVES: &str = "x-kubernetes-preserve-unknown-fields";

fn is_set(fields: &Map<String, Value>, key: &str) -> bool {
    fields.get(key) == Some(&Value::Bool(true))
}

/// Adds what every object says of its type.
fn add_type_meta(properties: &mut Map<String, Value>) {
    for name in ["apiVersion", "kind"] {
        let mut schema = json!({ "type": "string" });
        if let Some(description) = descriptions::of_field(DESCRIBED_KIND, name) {
            schema["description"] = description.clone();
        }
        properties.insert(name.into(), schema);
    }
}

fn object_meta(schemas: &Schemas) -> Value {
    schemas.described_reference(OBJECT_META, descriptions::of_field(DESCRIBED_KIND, "metadata"))
}

/// A schema as it is published.
fn convert(fields: &Map<String, Value>, schemas: &Schemas, depth: usize) -> Map<String, Value> {
    if depth > MAX_DEPTH {
        return Map::new();
    }
    let inner = |schema: &Value| match schema {
        Value::Object(fields) => Value::Object(convert(fields, schemas, depth + 1)),
        other => other.clone(),
    };
    let mut out = Map::new();
    for (key, value) in fields {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                properties.iter().map(|(name, schema)| (name.clone(), inner(schema))).collect()
            }
            ("items" | "additionalProperties", value) => inner(value),
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    let is_v2 = schemas.dialect() == Dialect::V2;
    if is_v2 {
        reduce_to_v2(&mut out, fields);
    }
    if is_set(fields, "x-kubernetes-embedded-resource") && !(is_v2 && is_set(fields, PRESERVES)) {
        embed(&mut out, schemas);
    }
    out
}

/// Leaves out what kubectl cannot read from OpenAPI v2, as `ToStructuralOpenAPIV2` of apiextensions-apiserver does.
fn reduce_to_v2(out: &mut Map<String, Value>, written: &Map<String, Value>) {
    out.retain(|key, _| !ONLY_V3.contains(&key.as_str()));
    let (is_nullable, preserves) = (is_set(written, "nullable"), is_set(written, PRESERVES));
    if is_nullable || preserves {
        out.remove("items");
        out.remove("properties");
    }
    let is_type = |wanted: &str| written.get("type").is_some_and(|found| found == wanted);
    let is_untyped_list = is_type("array") && !out.contains_key("items");
    if is_nullable || is_untyped_list || (preserves && is_type("object")) {
        out.remove("type");
    }
    let properties = written.get("properties").and_then(Value::as_object);
    let is_nullable_property = |name: &Value| {
        let schema = name.as_str().and_then(|name| properties?.get(name)?.as_object());
        schema.is_some_and(|schema| is_set(schema, "nullable"))
    };
    if let Some(Value::Array(required)) = out.get_mut("required") {
        required.retain(|name| !is_nullable_property(name));
        if required.is_empty() {
            out.remove("required");
        }
    }
}

/// Adds the fields that every object has.
fn embed(out: &mut Map<String, Value>, schemas: &Schemas) {
    if let Value::Object(properties) = out.entry("properties").or_insert_with(|| json!({})) {
        add_type_meta(properties);
        properties.insert("metadata".into(), object_meta(schemas));
    }
    if let Value::Array(required) = out.entry("required").or_insert_with(|| json!([])) {
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|one| one == name) {
                required.push(name.into());
            }
        }
    }
}
