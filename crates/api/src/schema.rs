//! Schema attributes that schemars does not derive: Kubernetes' list and map semantics,
//! CEL rules, and the formats of names. Used in `#[schemars(transform = ...)]`.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A DNS label, as in the name of a pod.
const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS subdomain, as in the name of most objects.
const DNS_SUBDOMAIN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A name with an optional DNS subdomain before a slash, as in the key of a label.
pub(crate) const QUALIFIED_NAME: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// A host name in either case, or nothing.
pub(crate) const HOST_NAME_OR_EMPTY: &str = "^(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\\-]{0,61}[a-zA-Z0-9])(\\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\\-]{0,61}[a-zA-Z0-9]))*)?$";

/// The schema of a root object's metadata: the API server owns what is inside.
pub fn object_metadata(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object" })
}

/// The schema of a whole object of any kind, kept as it is.
pub(crate) fn embedded_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// A list whose items are told apart by `keys`.
pub(crate) fn map_by(keys: &'static [&'static str]) -> impl FnMut(&mut Schema) {
    move |schema| {
        schema.insert("x-kubernetes-list-type".into(), json!("map"));
        schema.insert("x-kubernetes-list-map-keys".into(), json!(keys));
    }
}

/// A list in which no item occurs twice.
pub(crate) fn set(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".into(), json!("set"));
}

/// Fields that the API requires, but that are read as empty where they are absent. Go clients omit empty lists when they
/// hand objects to each other outside the API.
pub(crate) fn requires(fields: &'static [&'static str]) -> impl FnMut(&mut Schema) {
    move |schema| {
        for field in fields {
            if let Some(Value::Object(field)) = schema.pointer_mut(&format!("/properties/{field}")) {
                field.remove("default");
            }
        }
        let required = schema.ensure_object().entry("required").or_insert_with(|| json!([]));
        if let Some(required) = required.as_array_mut() {
            required.extend(fields.iter().map(|field| json!(field)));
        }
    }
}

/// A map or an object that one writer owns as a whole.
pub(crate) fn atomic(schema: &mut Schema) {
    schema.insert("x-kubernetes-map-type".into(), json!("atomic"));
}

/// CEL rules, each with the message of a violation.
pub(crate) type Rules = &'static [(&'static str, &'static str)];

/// CEL rules, each with the message of a violation.
pub(crate) fn rules(rules: Rules) -> impl FnMut(&mut Schema) {
    move |schema| {
        let rules: Vec<Value> =
            rules.iter().map(|(rule, message)| json!({ "rule": rule, "message": message })).collect();
        schema.insert("x-kubernetes-validations".into(), Value::Array(rules));
    }
}

/// A field that cannot be changed.
pub(crate) fn immutable(schema: &mut Schema) {
    rules(&[("self == oldSelf", "field is immutable")])(schema);
}

/// A field the API server keeps when a client sends an explicit `null`.
pub(crate) fn nullable(schema: &mut Schema) {
    schema.insert("nullable".into(), json!(true));
}

/// A DNS label of at most 63 characters.
pub(crate) fn dns_label(schema: &mut Schema) {
    name(schema, 63, DNS_LABEL);
}

/// A DNS subdomain of at most 253 characters.
pub(crate) fn dns_subdomain(schema: &mut Schema) {
    name(schema, 253, DNS_SUBDOMAIN);
}

/// Applies `transform` to what a list or map holds instead of to the list or map itself.
pub(crate) fn each(mut transform: impl FnMut(&mut Schema)) -> impl FnMut(&mut Schema) {
    move |schema| {
        for holder in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get_mut(holder).and_then(|inner| <&mut Schema>::try_from(inner).ok())
            {
                transform(inner);
            }
        }
    }
}

/// At most `max` characters.
pub(crate) fn at_most(max: u32) -> impl FnMut(&mut Schema) {
    move |schema| {
        schema.insert("maxLength".into(), json!(max));
    }
}

/// A number not below `min`.
pub(crate) fn at_least(min: i64) -> impl FnMut(&mut Schema) {
    move |schema| {
        schema.insert("minimum".into(), json!(min));
    }
}

fn name(schema: &mut Schema, max: u32, pattern: &str) {
    schema.insert("maxLength".into(), json!(max));
    schema.insert("pattern".into(), json!(pattern));
}
