//! Structural schemas of custom resources: parsed once, then used for every request.
//!
//! A request goes through [`Structural::prune`], [`Structural::apply_defaults`] and [`Structural::validate`], in this order.
//! Nothing here recurses deeper than the schema, and a schema is at most [`MAX_DEPTH`] deep.

mod defaults;
mod parse;
mod prune;
mod rules;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeMap;

pub use quintet_cel::schema::JsonType;
use quintet_cel::{Schema, format};
use regex::Regex;
use serde_json::Value;

use crate::cel::Rule;
use crate::error::FieldError;
use crate::path::Path;
pub use crate::types::ListType;

/// How Go prints the path of an error that has none.
const NO_PATH: &str = "<nil>";

/// Deeper than any schema in use, shallower than any stack.
pub const MAX_DEPTH: usize = 96;

/// One node of a structural schema, with everything below it.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent marker of the schema")]
pub struct Structural {
    /// The JSON type; `None` where any (or int-or-string) is allowed.
    pub kind: Option<JsonType>,
    /// Whether null is a value rather than absence.
    pub is_nullable: bool,
    /// Stands in for an absent value.
    pub default: Option<Value>,
    /// Fields of an object.
    pub properties: BTreeMap<String, Self>,
    /// Values of an object used as a map.
    pub additional: Option<Box<Self>>,
    /// Whether an object may have any further keys, of any shape.
    pub allows_additional: bool,
    /// Items of a list.
    pub items: Option<Box<Self>>,
    /// Whether unknown fields are kept.
    pub preserves_unknown: bool,
    /// Whether the value is a Kubernetes object of its own.
    pub is_embedded: bool,
    /// Whether integers and texts are both allowed.
    pub is_int_or_string: bool,
    /// How a list merges; `None` if the schema does not say.
    pub list: Option<ListType>,
    /// Whether one writer owns the map or object as a whole.
    pub is_atomic: bool,
    /// What values must be like.
    pub bounds: Bounds,
    /// CEL rules about the value.
    pub rules: Vec<Rule>,
    /// Whether there are rules here or anywhere below.
    pub has_rules: bool,
    /// For people.
    pub description: Option<String>,
}

/// What a schema asks of values beyond their type.
#[derive(Debug, Default)]
pub struct Bounds {
    /// Keys that must be there.
    pub required: Vec<String>,
    /// The only possible values.
    pub one_of_values: Vec<Value>,
    /// A format by name, such as `date-time`.
    pub format: Option<String>,
    /// What texts must match.
    pub pattern: Option<(String, Regex)>,
    /// The least number, and whether it is itself excluded.
    pub minimum: Option<(f64, bool)>,
    /// The largest number, and whether it is itself excluded.
    pub maximum: Option<(f64, bool)>,
    /// What numbers must be a multiple of.
    pub multiple_of: Option<f64>,
    /// The least length of a text.
    pub min_length: Option<usize>,
    /// The greatest length of a text.
    pub max_length: Option<usize>,
    /// The least length of a list.
    pub min_items: Option<usize>,
    /// The greatest length of a list.
    pub max_items: Option<usize>,
    /// The least number of keys.
    pub min_properties: Option<usize>,
    /// The greatest number of keys.
    pub max_properties: Option<usize>,
    /// Schemas that must all hold.
    pub all_of: Vec<Structural>,
    /// Schemas of which one must hold.
    pub any_of: Vec<Structural>,
    /// Schemas of which exactly one must hold.
    pub one_of: Vec<Structural>,
    /// A schema that must not hold.
    pub not: Option<Box<Structural>>,
}

/// What a schema, its lists and its rules say about an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Why the object is refused; empty if it is not.
    pub errors: Vec<FieldError>,
    /// What is wrong but was so before, for `Warning` headers.
    pub warnings: Vec<String>,
}

impl Structural {
    /// Reads a schema. `path` is where it stands in the definition, for errors; all violations of the structural
    /// rules are reported.
    pub fn parse(schema: &Value, path: &Path<'_>) -> Result<Self, Vec<FieldError>> {
        parse::parse(schema, path)
    }

    /// Removes fields the schema does not know, and says where they were.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(self, object)
    }

    /// Whether [`Self::prune`] would remove anything.
    pub fn unknown_fields(&self, object: &Value) -> Vec<String> {
        prune::prune(self, &mut object.clone())
    }

    /// Fills in defaults, and removes nulls where null means absence.
    pub fn apply_defaults(&self, object: &mut Value) {
        defaults::default(self, object);
    }

    /// The type errors of all rules. For new schemas only: a stored schema stays valid.
    pub fn rule_errors(&self, path: &Path<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.collect_rule_errors(path, true, &mut errors);
        errors
    }

    fn collect_rule_errors(&self, path: &Path<'_>, is_root: bool, errors: &mut Vec<FieldError>) {
        if !self.has_rules {
            return;
        }
        let at = path.field("x-kubernetes-validations");
        for (index, rule) in self.rules.iter().enumerate() {
            errors.extend(rule.type_errors(self, is_root, &at.index(index)));
        }
        let properties = path.field("properties");
        for (name, child) in &self.properties {
            child.collect_rule_errors(&properties.key(name), false, errors);
        }
        for (key, child) in [("items", &self.items), ("additionalProperties", &self.additional)] {
            if let Some(child) = child {
                child.collect_rule_errors(&path.field(key), false, errors);
            }
        }
    }

    /// Checks an object against schema, list uniqueness and CEL rules. `old` is the object it replaces, if any:
    /// what was wrong before and has not changed is forgiven.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Verdict {
        let mut verdict = Verdict::default();
        validate::validate(self, new, old, &mut verdict.errors);
        rules::validate(self, new, old, &mut verdict);
        verdict
    }

    /// Checks a value against the schema alone: no rules, nothing forgiven.
    pub fn validate_schema(&self, value: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validate::validate(self, value, None, &mut errors);
        errors
    }

    /// The schema of a field or map value, if it has one.
    pub fn child(&self, key: &str) -> Option<&Self> {
        self.properties.get(key).or(self.additional.as_deref())
    }

    /// How the items of this list merge.
    pub fn list_type(&self) -> &ListType {
        self.list.as_ref().unwrap_or(&ListType::Atomic)
    }

    /// The old item that corresponds to `new`, for lists whose items have keys.
    fn corresponding<'v>(&self, new: &Value, old: &'v Value) -> Option<&'v Value> {
        let ListType::Map(keys) = self.list_type() else { return None };
        let items = self.items.as_deref();
        let key_of = |item: &Value, key: &str| {
            let default = || items.and_then(|items| items.properties.get(key)?.default.clone());
            item.get(key).cloned().or_else(default)
        };
        let wanted: Vec<Option<Value>> = keys.iter().map(|key| key_of(new, key)).collect();
        old.as_array()?
            .iter()
            .find(|item| keys.iter().zip(&wanted).all(|(key, wanted)| key_of(item, key) == *wanted))
    }
}

impl Schema for Structural {
    fn kind(&self) -> Option<JsonType> {
        self.kind
    }

    fn format(&self) -> Option<&str> {
        self.bounds.format.as_deref()
    }

    fn property(&self, name: &str) -> Option<&dyn Schema> {
        self.properties.get(name).map(|property| property as &dyn Schema)
    }

    fn additional(&self) -> Option<&dyn Schema> {
        self.additional.as_deref().map(|values| values as &dyn Schema)
    }

    fn items(&self) -> Option<&dyn Schema> {
        self.items.as_deref().map(|items| items as &dyn Schema)
    }

    fn list_type(&self) -> &ListType {
        self.list_type()
    }

    fn is_int_or_string(&self) -> bool {
        self.is_int_or_string
    }

    fn is_embedded(&self) -> bool {
        self.is_embedded
    }

    fn is_open(&self) -> bool {
        self.allows_additional || (self.preserves_unknown && self.properties.is_empty())
    }
}

/// What JSON calls the type of a value.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => {
            if number.as_f64().is_some_and(|number| number.fract() == 0.0) { "integer" } else { "number" }
        }
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether a text has a format; unknown formats are no formats.
pub fn has_format(format: &str, text: &str) -> bool {
    format::is_valid(format, text)
}

/// Whether a format is one that is checked.
pub fn is_known_format(format: &str) -> bool {
    format::KNOWN.contains(&format)
}
