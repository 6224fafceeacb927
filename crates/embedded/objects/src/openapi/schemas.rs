//! Schemas of built-in types.

use serde_json::{Map, Value, json};

use super::{descriptions, kind_mark};
use crate::builtin::Kind;
use crate::types::{self, Field, ListType, Shape, Type};

/// Which version of OpenAPI is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

/// Collects schemas and everything they refer to.
pub(super) struct Schemas {
    dialect: Dialect,
    all: Map<String, Value>,
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";

impl Schemas {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, all: Map::new() }
    }

    pub(super) const fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(super) fn finish(self) -> Map<String, Value> {
        self.all
    }

    pub(super) fn insert(&mut self, name: String, schema: Value) {
        self.all.insert(name, schema);
    }

    /// Adds a kind, its list and the kinds of its subresources.
    pub(super) fn add_kind(&mut self, kind: &Kind) {
        let version = kind.api_version();
        for name in [kind.kind.to_owned(), format!("{}List", kind.kind)] {
            if let Some(schema) = types::kind(&version, &name) {
                self.add_type(schema, Some(kind_mark(kind.group, kind.version, &name)));
            }
        }
        for below in kind.subresources.iter().filter(|below| below.kind != kind.kind) {
            let version = if below.group.is_empty() {
                below.version.into()
            } else {
                format!("{}/{}", below.group, below.version)
            };
            if let Some(schema) = types::kind(&version, below.kind) {
                self.add_type(schema, Some(kind_mark(below.group, below.version, below.kind)));
            }
        }
    }

    /// Adds a type and what it refers to.
    pub(super) fn add_type(&mut self, kind: &'static Type, mark: Option<Value>) {
        if let Some(known) = self.all.get_mut(kind.name) {
            if let (Some(mark), Value::Object(known)) = (mark, known) {
                known.entry("x-kubernetes-group-version-kind").or_insert_with(|| json!([mark]));
            }
            return;
        }
        // Types may refer to themselves.
        self.all.insert(kind.name.into(), Value::Null);
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in kind.json_fields() {
            if !field.is_optional && !field.omits_empty {
                required.push(json!(field.name));
            }
            properties.insert(field.name.into(), self.field(kind, field));
        }
        let mut schema = json!({ "type": "object" });
        if let Some(description) = descriptions::of_type(kind.name) {
            schema["description"] = description.clone();
        }
        if !properties.is_empty() {
            schema["properties"] = Value::Object(properties);
        }
        if !required.is_empty() {
            schema["required"] = Value::Array(required);
        }
        if kind.is_atomic {
            schema["x-kubernetes-map-type"] = json!("atomic");
        }
        if let Some(mark) = mark {
            schema["x-kubernetes-group-version-kind"] = json!([mark]);
        }
        self.all.insert(kind.name.into(), schema);
    }

    fn field(&mut self, kind: &'static Type, field: &'static Field) -> Value {
        let mut schema = self.shape(&field.shape);
        let description = descriptions::of_field(kind.name, field.name);
        let is_reference = schema.get("$ref").is_some();
        let has_more = description.is_some() || field.default.is_some() || field.is_atomic;
        if is_reference && has_more {
            schema = self.extensible(schema);
        }
        if let Some(description) = description {
            schema["description"] = description.clone();
        }
        if let Some(default) = &field.default {
            schema["default"] = default.clone();
        }
        if matches!(field.shape, Shape::List(_)) {
            match &field.list {
                ListType::Atomic => schema["x-kubernetes-list-type"] = json!("atomic"),
                ListType::Set => schema["x-kubernetes-list-type"] = json!("set"),
                ListType::Map(keys) => {
                    schema["x-kubernetes-list-type"] = json!("map");
                    schema["x-kubernetes-list-map-keys"] = json!(keys);
                }
            }
        }
        if field.is_atomic && matches!(field.shape, Shape::Map(_) | Shape::Struct(_)) {
            schema["x-kubernetes-map-type"] = json!("atomic");
        }
        if let Some(key) = field.merge_key {
            schema["x-kubernetes-patch-merge-key"] = json!(key);
        }
        let strategies: Vec<&str> =
            [(field.is_merged, "merge"), (field.retains_keys, "retainKeys"), (field.is_replaced, "replace")]
                .into_iter()
                .filter_map(|(is_set, name)| is_set.then_some(name))
                .collect();
        if !strategies.is_empty() {
            schema["x-kubernetes-patch-strategy"] = json!(strategies.join(","));
        }
        schema
    }

    fn shape(&mut self, shape: &Shape) -> Value {
        match shape {
            Shape::String => json!({ "type": "string" }),
            Shape::Bool => json!({ "type": "boolean" }),
            Shape::Int32 => json!({ "type": "integer", "format": "int32" }),
            Shape::Int64 | Shape::Uint32 => json!({ "type": "integer", "format": "int64" }),
            Shape::Double => json!({ "type": "number", "format": "double" }),
            Shape::Bytes => json!({ "type": "string", "format": "byte" }),
            Shape::List(element) | Shape::Items(element) => {
                let items = self.shape(element);
                json!({ "type": "array", "items": items })
            }
            Shape::Map(element) => {
                let values = self.shape(element);
                json!({ "type": "object", "additionalProperties": values })
            }
            Shape::Struct(id) => {
                self.add_type(id.get(), None);
                self.reference(id.get().name)
            }
            special => self.special(special),
        }
    }

    /// A reference to a schema by name.
    pub(super) fn reference(&self, name: &str) -> Value {
        match self.dialect {
            Dialect::V2 => json!({ "$ref": format!("#/definitions/{name}") }),
            Dialect::V3 => json!({ "$ref": format!("#/components/schemas/{name}") }),
        }
    }

    /// A reference to a schema by name, with a description of its own.
    pub(super) fn described_reference(&self, name: &str, description: Option<&Value>) -> Value {
        let Some(description) = description else { return self.reference(name) };
        let mut schema = self.extensible(self.reference(name));
        schema["description"] = description.clone();
        schema
    }

    /// A reference that other keys can stand beside; in OpenAPI v3 a bare one has no room for them.
    fn extensible(&self, reference: Value) -> Value {
        if self.dialect == Dialect::V3 { json!({ "allOf": [reference] }) } else { reference }
    }

    fn special(&mut self, shape: &Shape) -> Value {
        let is_v3 = self.dialect == Dialect::V3;
        let (name, mut schema) = match shape {
            Shape::Time => (format!("{META}Time"), json!({ "type": "string", "format": "date-time" })),
            Shape::MicroTime => {
                (format!("{META}MicroTime"), json!({ "type": "string", "format": "date-time" }))
            }
            Shape::Duration => (format!("{META}Duration"), json!({ "type": "string" })),
            Shape::Fields => (format!("{META}FieldsV1"), json!({ "type": "object" })),
            Shape::Quantity => (
                "io.k8s.apimachinery.pkg.api.resource.Quantity".into(),
                if is_v3 {
                    json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] })
                } else {
                    json!({ "type": "string" })
                },
            ),
            Shape::IntOrString => (
                "io.k8s.apimachinery.pkg.util.intstr.IntOrString".into(),
                if is_v3 {
                    json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] })
                } else {
                    json!({ "type": "string", "format": "int-or-string" })
                },
            ),
            Shape::Raw => {
                ("io.k8s.apimachinery.pkg.runtime.RawExtension".into(), json!({ "type": "object" }))
            }
            Shape::SchemaOrArray => (format!("{EXTENSIONS}JSONSchemaPropsOrArray"), json!({})),
            Shape::SchemaOrBool => (format!("{EXTENSIONS}JSONSchemaPropsOrBool"), json!({})),
            Shape::SchemaOrStrings => (format!("{EXTENSIONS}JSONSchemaPropsOrStringArray"), json!({})),
            _ => (format!("{EXTENSIONS}JSON"), json!({})),
        };
        let reference = self.reference(&name);
        if !self.all.contains_key(&name) {
            if let Some(description) = descriptions::of_type(&name) {
                schema["description"] = description.clone();
            }
            self.all.insert(name, schema);
        }
        reference
    }
}
