//! Paths: which operations there are, and which bodies they take.

use serde_json::{Map, Value, json};

use super::{CustomKind, kind_mark};
use crate::builtin::{ALL_VERBS, Kind};

const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// What paths need to know of a kind.
struct Target<'a> {
    base: String,
    plural: &'a str,
    is_namespaced: bool,
    verbs: &'a [&'a str],
    schema: String,
    mark: Value,
    patches: &'a [&'a str],
}

pub(super) fn add_builtin(kind: &Kind, paths: &mut Map<String, Value>) {
    let prefix = if kind.group.is_empty() { "/api" } else { "/apis" };
    let target = Target {
        base: format!("{prefix}/{}", kind.api_version()),
        plural: kind.plural,
        is_namespaced: kind.is_namespaced,
        verbs: kind.verbs,
        schema: kind.schema().map(|schema| schema.name.to_owned()).unwrap_or_default(),
        mark: kind_mark(kind.group, kind.version, kind.kind),
        patches: &PATCHES,
    };
    let below =
        kind.subresources.iter().map(|one| one.name).filter(|name| matches!(*name, "status" | "scale"));
    target.add(&below.collect::<Vec<_>>(), paths);
}

pub(super) fn add_custom(kind: &CustomKind<'_>, paths: &mut Map<String, Value>) {
    let target = Target {
        base: format!("/apis/{}/{}", kind.group, kind.version),
        plural: kind.plural,
        is_namespaced: kind.is_namespaced,
        verbs: ALL_VERBS,
        schema: kind.schema_name(kind.kind),
        mark: kind_mark(kind.group, kind.version, kind.kind),
        // Strategic merge needs a built-in type.
        patches: PATCHES.get(..3).unwrap_or_default(),
    };
    target.add(if kind.has_status { &["status"] } else { &[] }, paths);
}

impl Target<'_> {
    fn add(&self, subresources: &[&str], paths: &mut Map<String, Value>) {
        let namespace = if self.is_namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("{}{namespace}/{}", self.base, self.plural);
        let one = format!("{collection}/{{name}}");
        let object = [("get", "get"), ("put", "update"), ("patch", "patch"), ("delete", "delete")];
        let mut all = vec![
            (collection, vec![("get", "list"), ("post", "create"), ("delete", "deletecollection")]),
            (one.clone(), object.to_vec()),
        ];
        all.extend(
            subresources
                .iter()
                .map(|name| (format!("{one}/{name}"), object.iter().take(3).copied().collect())),
        );
        for (path, operations) in all {
            let operations: Map<String, Value> = operations
                .into_iter()
                .filter(|(_, verb)| self.verbs.contains(verb))
                .map(|(method, verb)| (method.to_owned(), self.operation(method, verb)))
                .collect();
            if !operations.is_empty() {
                paths.insert(path, Value::Object(operations));
            }
        }
    }

    fn operation(&self, method: &str, verb: &str) -> Value {
        let query = |name: &str, kind: &str| json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } });
        let object = json!({ "$ref": format!("#/components/schemas/{}", self.schema) });
        let mut operation = json!({
            "x-kubernetes-action": if verb == "list" { "list" } else { method },
            "x-kubernetes-group-version-kind": self.mark,
            "responses": { "200": { "description": "OK", "content": { "application/json": { "schema": object } } } },
        });
        let mut parameters = Vec::new();
        let mut content = Map::new();
        if matches!(method, "post" | "put" | "patch") {
            parameters
                .extend(["dryRun", "fieldManager", "fieldValidation"].map(|name| query(name, "string")));
        }
        match method {
            "patch" => {
                parameters.push(query("force", "boolean"));
                for kind in self.patches {
                    content.insert((*kind).into(), json!({ "schema": { "type": "object" } }));
                }
            }
            "post" | "put" => {
                content.insert("*/*".into(), json!({ "schema": object }));
            }
            _ => {}
        }
        if !parameters.is_empty() {
            operation["parameters"] = Value::Array(parameters);
            operation["requestBody"] = json!({ "content": content });
        }
        operation
    }
}

/// OpenAPI v2 names bodies and parameters differently.
pub(super) fn to_v2(paths: &mut Map<String, Value>) {
    for operation in paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        let Value::Object(fields) = operation else { continue };
        let body = fields.remove("requestBody");
        let Some(Value::Array(mut parameters)) = fields.remove("parameters") else {
            fields.insert("responses".into(), json!({ "200": { "description": "OK" } }));
            continue;
        };
        for parameter in parameters.iter_mut().filter_map(Value::as_object_mut) {
            let schema = parameter.remove("schema");
            let kind = schema.as_ref().and_then(|schema| schema.get("type")).cloned();
            parameter.insert("type".into(), kind.unwrap_or_else(|| json!("string")));
        }
        let content = body.as_ref().and_then(|body| body.get("content")).and_then(Value::as_object);
        let consumes: Vec<&String> = content.into_iter().flat_map(Map::keys).collect();
        fields.insert("consumes".into(), json!(consumes));
        parameters
            .push(json!({ "name": "body", "in": "body", "required": true, "schema": { "type": "object" } }));
        fields.insert("parameters".into(), Value::Array(parameters));
        fields.insert("responses".into(), json!({ "200": { "description": "OK" } }));
    }
}
