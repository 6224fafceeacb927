//! Objects as tables and as metadata only.

mod age;
mod builtin;
mod json_path;
mod pod;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use age::age;
pub use json_path::{JsonPath, json_path_steps};

use crate::builtin::Kind;

const NAME_DESCRIPTION: &str = "Name must be unique within a namespace.";

/// Knows the columns of one kind.
#[derive(Debug)]
pub struct Printer {
    columns: Columns,
}

#[derive(Debug)]
enum Columns {
    Builtin(&'static [builtin::Column], builtin::Cells),
    Custom(Vec<CustomColumn>),
}

#[derive(Debug)]
struct CustomColumn {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    path: Option<JsonPath>,
}

/// What of the object a row carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl Printer {
    /// The columns of a built-in kind.
    pub fn builtin(kind: &Kind) -> Self {
        let (columns, cells) = builtin::columns(kind);
        Self { columns: Columns::Builtin(columns, cells) }
    }

    /// The columns of one version of a CustomResourceDefinition (an element of `spec.versions`).
    pub fn custom(version: &Value) -> Self {
        let defined = version.get("additionalPrinterColumns").and_then(Value::as_array);
        let mut columns: Vec<CustomColumn> = defined.into_iter().flatten().map(CustomColumn::parse).collect();
        if columns.is_empty() {
            columns.push(CustomColumn::parse(&json!({
                "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
                "description": "CreationTimestamp is the time at which the server created this object.",
            })));
        }
        Self { columns: Columns::Custom(columns) }
    }

    /// The `columnDefinitions` of a table.
    pub fn definitions(&self) -> Value {
        let definition = |name: &str, kind: &str, format: &str, description: &str, priority: i64| json!({ "name": name, "type": kind, "format": format, "description": description, "priority": priority });
        Value::Array(match &self.columns {
            Columns::Builtin(columns, _) => columns
                .iter()
                .map(|column| {
                    let format = if column.name == "Name" { "name" } else { "" };
                    let description = if column.name == "Name" { NAME_DESCRIPTION } else { column.name };
                    definition(column.name, column.kind, format, description, column.priority)
                })
                .collect(),
            Columns::Custom(columns) => {
                let first = definition("Name", "string", "name", NAME_DESCRIPTION, 0);
                let rest = columns.iter().map(|column| {
                    definition(
                        &column.name,
                        &column.kind,
                        &column.format,
                        &column.description,
                        column.priority,
                    )
                });
                std::iter::once(first).chain(rest).collect()
            }
        })
    }

    /// The cells of one object.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match &self.columns {
            Columns::Builtin(_, cells) => cells(object, now),
            Columns::Custom(columns) => {
                let name = object.pointer("/metadata/name").cloned().unwrap_or_else(|| json!(""));
                std::iter::once(name).chain(columns.iter().map(|column| column.cell(object, now))).collect()
            }
        }
    }

    /// A whole table. Watches send definitions with the first event only. `metadata` is that of the list.
    pub fn table<'o>(
        &self,
        objects: impl IntoIterator<Item = &'o Value>,
        metadata: &Value,
        include: IncludeObject,
        with_definitions: bool,
        now: Timestamp,
    ) -> Value {
        let rows: Vec<Value> = objects
            .into_iter()
            .map(|object| {
                let mut row = Map::new();
                row.insert("cells".into(), Value::Array(self.cells(object, now)));
                let phase = object.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
                let is_pod = object.pointer("/spec/containers").is_some();
                if is_pod && matches!(phase, "Succeeded" | "Failed") {
                    let message = if phase == "Succeeded" {
                        "The pod has completed successfully."
                    } else {
                        "The pod failed."
                    };
                    row.insert(
                        "conditions".into(),
                        json!([{ "type": "Completed", "status": "True", "reason": phase, "message": message }]),
                    );
                }
                match include {
                    IncludeObject::None => {}
                    IncludeObject::Metadata => {
                        row.insert("object".into(), partial_metadata(object));
                    }
                    IncludeObject::Object => {
                        row.insert("object".into(), object.clone());
                    }
                }
                Value::Object(row)
            })
            .collect();
        json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": if with_definitions { self.definitions() } else { Value::Null }, "rows": rows })
    }
}

impl CustomColumn {
    fn parse(column: &Value) -> Self {
        let text = |key: &str| column.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let path = text("jsonPath");
        let description = Some(text("description"))
            .filter(|description| !description.is_empty())
            .unwrap_or_else(|| format!("Custom resource definition column (in JSONPath format): {path}"));
        Self {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description,
            priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
            path: JsonPath::parse(&path),
        }
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.as_ref().and_then(|path| path.first(object));
        let Some(found) = found.filter(|found| !found.is_null()) else { return Value::Null };
        match (self.kind.as_str(), found) {
            ("integer", Value::Number(number)) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "whole numbers are what the column asks for"
                )]
                let whole = number.as_i64().or_else(|| number.as_f64().map(|number| number as i64));
                json!(whole)
            }
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) | ("string", Value::String(_)) => {
                found.clone()
            }
            ("date", Value::String(text)) => json!(age::since(Some(text), now)),
            ("string", other) => json!(other.to_string()),
            _ => Value::Null,
        }
    }
}

/// An object reduced to its metadata.
pub fn partial_metadata(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
}

/// A list reduced to metadata.
pub fn partial_metadata_list(list: &Value) -> Value {
    let items = list.get("items").and_then(Value::as_array);
    let items: Vec<Value> = items.into_iter().flatten().map(partial_metadata).collect();
    json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
        "metadata": list.get("metadata").cloned().unwrap_or_else(|| json!({})), "items": items })
}
