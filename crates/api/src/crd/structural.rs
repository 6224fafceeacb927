//! From a schemars schema with named definitions to the structural schema a CRD needs.

use serde_json::{Map, Number, Value, json};

/// Schema keys that describe Rust or JSON Schema rather than the API.
const DROPPED: [&str; 6] = ["$schema", "$defs", "title", "$ref", "examples", "$comment"];
/// Number formats that Kubernetes knows; schemars also names floats and unsigned integers.
const KNOWN_NUMBER_FORMATS: [&str; 2] = ["int32", "int64"];

/// Replaces every reference by what it refers to, and every Rust idiom by its structural form.
pub(super) fn structural(schema: &Value, definitions: &Map<String, Value>) -> Value {
    let Value::Object(schema) = schema else {
        // `true`: anything goes.
        return json!({ "x-kubernetes-preserve-unknown-fields": true });
    };
    let mut out = referred(schema, definitions);
    for (key, value) in schema {
        match key.as_str() {
            "anyOf" if !is_int_or_string(schema) => {
                merge(&mut out, optional(value, definitions));
            }
            "oneOf" => {
                out.insert("type".into(), json!("string"));
                out.insert("enum".into(), constants(value));
            }
            "const" => {
                out.insert("enum".into(), json!([value]));
            }
            "type" => {
                out.insert("type".into(), without_null(value));
            }
            "enum" => {
                out.insert("enum".into(), value.clone());
            }
            "format" if !is_known_format(schema, value) => {}
            "description" => {
                out.insert("description".into(), one_line(value));
            }
            "properties" => {
                out.insert("properties".into(), properties(value, definitions));
            }
            "items" => {
                out.insert("items".into(), structural(value, definitions));
            }
            "additionalProperties" if value.is_object() => {
                out.insert("additionalProperties".into(), structural(value, definitions));
            }
            "additionalProperties" => {}
            "allOf" => {
                for part in value.as_array().into_iter().flatten() {
                    if let Value::Object(part) = structural(part, definitions) {
                        merge(&mut out, part);
                    }
                }
            }
            key if DROPPED.contains(&key) => {}
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    if is_int_or_string(&out) {
        // As controller-gen writes it: clients that do not know the extension read this.
        out.insert("anyOf".into(), json!([{ "type": "integer" }, { "type": "string" }]));
    }
    Value::Object(out)
}

/// Writes a schema as Kubernetes returns it: no empty `required`, and whole numbers without a fraction.
pub(super) fn canonical(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("required").and_then(Value::as_array).is_some_and(Vec::is_empty) {
                fields.remove("required");
            }
            fields.values_mut().for_each(canonical);
        }
        Value::Array(items) => items.iter_mut().for_each(canonical),
        Value::Number(number) => {
            if let Some(whole) = whole(number) {
                *number = whole.into();
            }
        }
        _ => {}
    }
}

/// The integer that a float stands for, if it is one that floats represent exactly.
fn whole(number: &Number) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0)?;
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is in range")]
    (float.abs() <= EXACT).then_some(float as i64)
}

/// What a `$ref` stands for; what is written beside it wins.
fn referred(schema: &Map<String, Value>, definitions: &Map<String, Value>) -> Map<String, Value> {
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    match name.and_then(|name| definitions.get(name)).map(|definition| structural(definition, definitions)) {
        Some(Value::Object(found)) => found,
        _ => Map::new(),
    }
}

/// `anyOf: [T, null]` is how an optional `T` looks; absent and null mean the same to Kubernetes.
fn optional(alternatives: &Value, definitions: &Map<String, Value>) -> Map<String, Value> {
    let present =
        alternatives.as_array().into_iter().flatten().find(|part| part.get("type") != Some(&json!("null")));
    match present.map(|part| structural(part, definitions)) {
        Some(Value::Object(found)) => found,
        _ => Map::new(),
    }
}

fn merge(out: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, value) in more {
        out.entry(key).or_insert(value);
    }
}

/// `oneOf: [{const: A}, {const: B}]` is how an enum with documented variants looks.
fn constants(variants: &Value) -> Value {
    let mut values = Vec::new();
    for variant in variants.as_array().into_iter().flatten() {
        values.extend(variant.get("const").cloned());
        values.extend(variant.get("enum").and_then(Value::as_array).into_iter().flatten().cloned());
    }
    Value::Array(values)
}

fn without_null(kind: &Value) -> Value {
    match kind {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").cloned().unwrap_or(Value::Null),
        single => single.clone(),
    }
}

fn properties(properties: &Value, definitions: &Map<String, Value>) -> Value {
    let Value::Object(properties) = properties else {
        return json!({});
    };
    Value::Object(
        properties.iter().map(|(name, schema)| (name.clone(), structural(schema, definitions))).collect(),
    )
}

fn is_int_or_string(schema: &Map<String, Value>) -> bool {
    schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true))
}

fn is_known_format(schema: &Map<String, Value>, format: &Value) -> bool {
    let kind = schema.get("type").map(without_null);
    let is_number = kind.as_ref().is_some_and(|kind| kind == "integer" || kind == "number");
    !is_number || KNOWN_NUMBER_FORMATS.iter().any(|known| format == known)
}

fn one_line(description: &Value) -> Value {
    Value::String(description.as_str().unwrap_or_default().replace('\n', " "))
}
