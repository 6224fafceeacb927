//! From the JSON of a definition to a [`Structural`], with every rule a structural schema must keep.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value, json};

use super::{Bounds, JsonType, ListType, MAX_DEPTH, Structural};
use crate::cel::Rule;
use crate::error::{ErrorKind, FieldError};
use crate::path::Path;

/// Keys that are never allowed.
const FORBIDDEN: [&str; 6] =
    ["$ref", "definitions", "dependencies", "id", "patternProperties", "additionalItems"];
/// Keys that are not allowed inside allOf, anyOf, oneOf and not.
const STRUCTURAL_ONLY: [&str; 10] = [
    "type",
    "additionalProperties",
    "default",
    "nullable",
    "description",
    "title",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
];
/// A pattern may not grow into more than this when compiled.
const PATTERN_SIZE: usize = 1 << 20;

pub(super) fn parse(schema: &Value, path: &Path<'_>) -> Result<Structural, Vec<FieldError>> {
    let mut parser = Parser { errors: Vec::new(), patterns: BTreeMap::new() };
    let root = if let Some(fields) = schema.as_object() {
        if fields.get("type").and_then(Value::as_str) != Some("object") {
            let kind = fields.get("type").cloned().unwrap_or_else(|| json!(""));
            parser.errors.push(if kind == "" {
                FieldError::required(&path.field("type"), "must not be empty at the root")
            } else {
                FieldError::invalid(&path.field("type"), &kind, "must be object at the root")
            });
        }
        parser.node(fields, path, Place::default())
    } else {
        parser.errors.push(FieldError::required(path, "schemas are required"));
        Structural::default()
    };
    if let Some(fields) = schema.as_object() {
        parser.metadata(fields, path);
    }
    if parser.errors.is_empty() {
        parser.defaults(&root, path, 0);
    }
    if parser.errors.is_empty() { Ok(root) } else { Err(parser.errors) }
}

/// Where in the schema a node stands.
#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact about the place")]
struct Place {
    depth: usize,
    /// Inside allOf, anyOf, oneOf or not.
    is_nested: bool,
    /// Directly inside an int-or-string, where alternatives name types.
    is_int_or_string: bool,
    /// Below a list whose old items have no counterparts, or in a junctor.
    is_uncorrelated: bool,
    is_metadata: bool,
}

struct Parser {
    errors: Vec<FieldError>,
    /// Compiled patterns: a pod template has dozens of quantities with the same one.
    patterns: BTreeMap<String, Regex>,
}

impl Parser {
    fn node(&mut self, fields: &Map<String, Value>, path: &Path<'_>, place: Place) -> Structural {
        let mut node = Structural::default();
        if place.depth > MAX_DEPTH {
            self.errors
                .push(FieldError::forbidden(path, format!("must not be nested deeper than {MAX_DEPTH}")));
            return node;
        }
        self.forbid(fields, path, place);
        let flag = |key: &str| fields.get(key) == Some(&Value::Bool(true));
        node.kind = self.kind(fields, path, place);
        node.is_nullable = flag("nullable");
        node.default = fields.get("default").filter(|value| !value.is_null() || flag("nullable")).cloned();
        node.preserves_unknown = flag("x-kubernetes-preserve-unknown-fields");
        node.is_embedded = flag("x-kubernetes-embedded-resource");
        node.is_int_or_string = flag("x-kubernetes-int-or-string");
        node.is_atomic = fields.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
        node.description = fields.get("description").and_then(Value::as_str).map(Into::into);
        if !place.is_nested {
            self.needs_type(&node, fields, path);
        }
        self.list(&mut node, fields, path, place);
        self.children(&mut node, fields, path, place);
        node.bounds = self.bounds(fields, &node, path, place);
        self.rules(&mut node, fields, path, place);
        let mut below =
            node.properties.values().chain(node.items.as_deref()).chain(node.additional.as_deref());
        node.has_rules = !node.rules.is_empty() || below.any(|child| child.has_rules);
        node
    }

    fn forbid(&mut self, fields: &Map<String, Value>, path: &Path<'_>, place: Place) {
        for key in FORBIDDEN {
            if fields.contains_key(key) {
                self.errors.push(FieldError::forbidden(&path.field(key), format!("{key} is not supported")));
            }
        }
        if fields.get("uniqueItems") == Some(&Value::Bool(true)) {
            self.errors.push(FieldError::forbidden(
                &path.field("uniqueItems"),
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ));
        }
        if fields.get("items").is_some_and(Value::is_array) {
            self.errors.push(FieldError::forbidden(
                &path.field("items"),
                "items must be a schema object and not an array",
            ));
        }
        if place.is_nested {
            for key in STRUCTURAL_ONLY {
                let is_int_or_string_type = key == "type" && place.is_int_or_string;
                if fields.contains_key(key) && !is_int_or_string_type {
                    self.errors
                        .push(FieldError::forbidden(&path.field(key), "must be empty to be structural"));
                }
            }
        }
        let has_properties =
            fields.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
        let additional = fields.get("additionalProperties");
        if has_properties && additional.is_some_and(|additional| *additional != Value::Bool(true)) {
            self.errors.push(FieldError::forbidden(
                &path.field("additionalProperties"),
                "additionalProperties and properties are mutual exclusive",
            ));
        }
        if fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            self.errors.push(FieldError::invalid(
                &path.field("x-kubernetes-preserve-unknown-fields"),
                &Value::Bool(false),
                "must be true or undefined",
            ));
        }
    }

    fn kind(&mut self, fields: &Map<String, Value>, path: &Path<'_>, place: Place) -> Option<JsonType> {
        match fields.get("type").and_then(Value::as_str) {
            Some("object") => Some(JsonType::Object),
            Some("array") => Some(JsonType::Array),
            Some("string") => Some(JsonType::String),
            Some("integer") => Some(JsonType::Integer),
            Some("number") => Some(JsonType::Number),
            Some("boolean") => Some(JsonType::Boolean),
            Some("") | None => None,
            Some(other) => {
                if !place.is_nested {
                    self.errors.push(FieldError::not_supported(
                        &path.field("type"),
                        &json!(other),
                        &["array", "boolean", "integer", "number", "object", "string"],
                    ));
                }
                None
            }
        }
    }

    fn needs_type(&mut self, node: &Structural, fields: &Map<String, Value>, path: &Path<'_>) {
        if node.is_int_or_string {
            if node.kind.is_some() {
                self.errors.push(FieldError::invalid(
                    &path.field("type"),
                    &fields.get("type").cloned().unwrap_or_default(),
                    "must be empty if x-kubernetes-int-or-string is true",
                ));
            }
        } else if node.kind.is_none() && !node.preserves_unknown && !fields.contains_key("$ref") {
            self.errors.push(FieldError::required(
                &path.field("type"),
                "must not be empty for specified object fields",
            ));
        }
        if node.is_embedded {
            if node.kind != Some(JsonType::Object) {
                self.errors.push(FieldError::invalid(
                    &path.field("type"),
                    &fields.get("type").cloned().unwrap_or_else(|| json!("")),
                    "must be object if x-kubernetes-embedded-resource is true",
                ));
            }
            let has_properties =
                fields.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
            if !node.preserves_unknown && !has_properties {
                self.errors.push(FieldError::required(
                    &path.field("properties"),
                    "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
                ));
            }
        }
        if node.kind == Some(JsonType::Array) && !fields.contains_key("items") {
            self.errors.push(FieldError::required(&path.field("items"), "must be specified"));
        }
    }

    fn list(&mut self, node: &mut Structural, fields: &Map<String, Value>, path: &Path<'_>, place: Place) {
        let Some(list) = fields.get("x-kubernetes-list-type").and_then(Value::as_str) else {
            if fields.contains_key("x-kubernetes-list-map-keys") && !place.is_nested {
                self.errors.push(FieldError::required(
                    &path.field("x-kubernetes-list-type"),
                    "must be map if x-kubernetes-list-map-keys is non-empty",
                ));
            }
            return;
        };
        let items = fields.get("items").and_then(Value::as_object);
        if node.kind != Some(JsonType::Array) && !place.is_nested {
            self.errors.push(FieldError::invalid(
                &path.field("type"),
                &fields.get("type").cloned().unwrap_or_else(|| json!("")),
                "must be array if x-kubernetes-list-type is specified",
            ));
        }
        node.list = match list {
            "atomic" => Some(ListType::Atomic),
            "set" => {
                self.set_items(items, path);
                Some(ListType::Set)
            }
            "map" => {
                let keys: Vec<String> = fields
                    .get("x-kubernetes-list-map-keys")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(|key| key.as_str().map(Into::into))
                    .collect();
                self.map_items(items, &keys, path);
                Some(ListType::Map(keys))
            }
            other => {
                self.errors.push(FieldError::not_supported(
                    &path.field("x-kubernetes-list-type"),
                    &json!(other),
                    &["atomic", "set", "map"],
                ));
                None
            }
        };
    }

    fn set_items(&mut self, items: Option<&Map<String, Value>>, path: &Path<'_>) {
        let Some(items) = items else { return };
        let text = |key: &str| items.get(key).and_then(Value::as_str);
        if items.get("nullable") == Some(&Value::Bool(true)) {
            self.errors.push(FieldError::forbidden(
                &path.field("items").field("nullable"),
                "cannot be nullable when x-kubernetes-list-type is \"set\"",
            ));
        }
        let is_bad = match text("type") {
            Some("object") => text("x-kubernetes-map-type") != Some("atomic"),
            Some("array") => text("x-kubernetes-list-type").is_some_and(|list| list != "atomic"),
            _ => false,
        };
        if is_bad {
            self.errors.push(FieldError::invalid(
                &path.field("items").field("x-kubernetes-map-type"),
                &items.get("x-kubernetes-map-type").cloned().unwrap_or_else(|| json!("")),
                "must be atomic as item of a list with x-kubernetes-list-type=set",
            ));
        }
    }

    fn map_items(&mut self, items: Option<&Map<String, Value>>, keys: &[String], path: &Path<'_>) {
        let at = path.field("x-kubernetes-list-map-keys");
        if keys.is_empty() {
            self.errors.push(FieldError::required(&at, "must not be empty if x-kubernetes-list-type is map"));
        }
        let Some(items) = items else { return };
        if items.get("type").and_then(Value::as_str) != Some("object") {
            self.errors.push(FieldError::invalid(
                &path.field("items").field("type"),
                &items.get("type").cloned().unwrap_or_else(|| json!("")),
                "must be object if parent array's x-kubernetes-list-type is map",
            ));
        }
        let required = items.get("required").and_then(Value::as_array);
        for (index, key) in keys.iter().enumerate() {
            let Some(property) = items.get("properties").and_then(|all| all.get(key)) else {
                self.errors.push(FieldError::invalid(
                    &at.index(index),
                    &json!(key),
                    "entries must all be names of item properties",
                ));
                continue;
            };
            if keys.iter().take(index).any(|before| before == key) {
                self.errors.push(FieldError::invalid(
                    &at.index(index),
                    &json!(key),
                    "must not contain duplicate entries",
                ));
            }
            let properties = path.field("items").field("properties").to_string();
            let properties = Path::new(&properties);
            if matches!(property.get("type").and_then(Value::as_str), Some("object" | "array")) {
                self.errors.push(FieldError::invalid(
                    &properties.key(key).field("type"),
                    property.get("type").unwrap_or(&Value::Null),
                    "must be a scalar type if parent array's x-kubernetes-list-type is map",
                ));
            }
            let is_required = required.is_some_and(|all| all.iter().any(|one| one == key));
            if !is_required && property.get("default").is_none() {
                self.errors.push(FieldError::required(
                    &properties.key(key).field("default"),
                    "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                ));
            }
        }
    }

    fn children(
        &mut self,
        node: &mut Structural,
        fields: &Map<String, Value>,
        path: &Path<'_>,
        place: Place,
    ) {
        let is_keyed = matches!(node.list, Some(ListType::Map(_)));
        let below = Place {
            depth: place.depth + 1,
            is_int_or_string: false,
            is_uncorrelated: place.is_uncorrelated || (node.kind == Some(JsonType::Array) && !is_keyed),
            ..place
        };
        let properties = path.field("properties");
        for (name, schema) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if let Some(schema) = schema.as_object() {
                let is_metadata = place.depth == 0 && name == "metadata";
                let below = Place { is_metadata: place.is_metadata || is_metadata, ..below };
                let at = properties.key(name);
                let mut child = self.node(schema, &at, below);
                if is_metadata || (node.is_embedded && name == "metadata") {
                    // Object metadata has a type of its own; a schema may only narrow the name.
                    child.preserves_unknown = true;
                }
                node.properties.insert(name.clone(), child);
            }
        }
        match fields.get("additionalProperties") {
            Some(Value::Object(schema)) => {
                let schema = self.node(schema, &path.field("additionalProperties"), below);
                node.additional = Some(Box::new(schema));
            }
            Some(Value::Bool(true)) => node.allows_additional = true,
            _ => {}
        }
        if let Some(Value::Object(items)) = fields.get("items") {
            node.items = Some(Box::new(self.node(items, &path.field("items"), below)));
        }
    }

    fn bounds(
        &mut self,
        fields: &Map<String, Value>,
        node: &Structural,
        path: &Path<'_>,
        place: Place,
    ) -> Bounds {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to be whole and positive"
        )]
        let count = |key: &str| {
            fields.get(key).and_then(Value::as_f64).map(|number| number.clamp(0.0, 9e15) as usize)
        };
        let number = |key: &str| fields.get(key).and_then(Value::as_f64);
        let flag = |key: &str| fields.get(key) == Some(&Value::Bool(true));
        let mut bounds = Bounds {
            required: texts(fields.get("required")),
            one_of_values: fields.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            format: fields.get("format").and_then(Value::as_str).map(Into::into),
            pattern: None,
            minimum: number("minimum").map(|least| (least, flag("exclusiveMinimum"))),
            maximum: number("maximum").map(|most| (most, flag("exclusiveMaximum"))),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            ..Bounds::default()
        };
        if let Some(pattern) =
            fields.get("pattern").and_then(Value::as_str).filter(|pattern| !pattern.is_empty())
        {
            match self.compiled(pattern) {
                Ok(regex) => bounds.pattern = Some((pattern.into(), regex)),
                Err(error) => self.errors.push(FieldError::invalid(
                    &path.field("pattern"),
                    &json!(pattern),
                    format!("must be a valid regular expression, but isn't: {error}"),
                )),
            }
        }
        let below = Place {
            depth: place.depth + 1,
            is_nested: true,
            is_int_or_string: node.is_int_or_string || place.is_int_or_string,
            is_uncorrelated: true,
            ..place
        };
        let nested = |parser: &mut Self, key: &str| -> Vec<Structural> {
            let at = path.field(key);
            fields
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .enumerate()
                .filter_map(|(index, schema)| Some(parser.node(schema.as_object()?, &at.index(index), below)))
                .collect()
        };
        bounds.all_of = nested(self, "allOf");
        bounds.any_of = nested(self, "anyOf");
        bounds.one_of = nested(self, "oneOf");
        if let Some(Value::Object(schema)) = fields.get("not") {
            bounds.not = Some(Box::new(self.node(schema, &path.field("not"), below)));
        }
        bounds
    }

    fn compiled(&mut self, pattern: &str) -> Result<Regex, regex::Error> {
        if let Some(regex) = self.patterns.get(pattern) {
            return Ok(regex.clone());
        }
        let regex = RegexBuilder::new(pattern).size_limit(PATTERN_SIZE).build()?;
        self.patterns.insert(pattern.into(), regex.clone());
        Ok(regex)
    }

    fn rules(&mut self, node: &mut Structural, fields: &Map<String, Value>, path: &Path<'_>, place: Place) {
        let Some(Value::Array(rules)) = fields.get("x-kubernetes-validations") else { return };
        let at = path.field("x-kubernetes-validations");
        if place.is_nested {
            self.errors.push(FieldError::forbidden(&at, "must be empty to be structural"));
            return;
        }
        for (index, rule) in rules.iter().enumerate() {
            let at = at.index(index);
            let rule = match Rule::parse(rule, &at) {
                Ok(rule) => rule,
                Err(errors) => {
                    self.errors.extend(errors);
                    continue;
                }
            };
            if rule.uses_old_self() && place.is_uncorrelated {
                self.errors.push(FieldError::invalid(
                    &at.field("rule"),
                    &json!(rule.text()),
                    "oldSelf cannot be used on the uncorrelatable portion of the schema",
                ));
            }
            if let Some(field) = rule.field_path()
                && !reaches(node, field)
            {
                self.errors.push(FieldError::invalid(
                    &at.field("fieldPath"),
                    &json!(field),
                    "fieldPath must be a valid path",
                ));
            }
            node.rules.push(rule);
        }
    }

    /// The schema of `metadata` may only say something about names.
    fn metadata(&mut self, root: &Map<String, Value>, path: &Path<'_>) {
        let Some(metadata) =
            root.get("properties").and_then(|all| all.get("metadata")).and_then(Value::as_object)
        else {
            return;
        };
        let is_name = |(name, _): (&String, &Value)| name == "name" || name == "generateName";
        let says_more = metadata.iter().any(|(key, value)| match key.as_str() {
            "type" | "default" => false,
            "properties" => !value.as_object().is_some_and(|all| all.iter().all(is_name)),
            _ => true,
        });
        if says_more {
            self.errors.push(FieldError::forbidden(
                &path.field("properties").key("metadata"),
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }

    /// Defaults must be valid, and must not themselves contain what would be pruned.
    fn defaults(&mut self, node: &Structural, path: &Path<'_>, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        if let Some(default) = &node.default {
            let at = path.field("default");
            let mut pruned = default.clone();
            if !node.prune(&mut pruned).is_empty() {
                self.errors.push(FieldError::invalid(&at, default, "must not have unknown fields"));
            }
            node.apply_defaults(&mut pruned);
            for mut error in node.validate_schema(&pruned) {
                error.path =
                    if error.path.is_empty() { at.to_string() } else { format!("{at}.{}", error.path) };
                error.kind =
                    if error.kind == ErrorKind::TypeInvalid { ErrorKind::Invalid } else { error.kind };
                self.errors.push(error);
            }
        }
        let properties = path.field("properties");
        for (name, child) in &node.properties {
            self.defaults(child, &properties.key(name), depth + 1);
        }
        if let Some(items) = &node.items {
            self.defaults(items, &path.field("items"), depth + 1);
        }
        if let Some(additional) = &node.additional {
            self.defaults(additional, &path.field("additionalProperties"), depth + 1);
        }
    }
}

fn texts(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|text| text.as_str().map(Into::into))
        .collect()
}

/// Whether a relative path such as `.spec.foo` or `['a-b']` exists in the schema.
fn reaches(node: &Structural, field: &str) -> bool {
    let mut node = node;
    for step in crate::table::json_path_steps(field) {
        match node.child(&step) {
            Some(child) => node = child,
            None => return node.preserves_unknown,
        }
    }
    true
}
