//! Field errors in the words of Kubernetes' `field.ErrorList`: users, clients and upstream's tests read them.

use std::fmt::Display;

use quintet_controller::webhook::Verdict;
use serde::Serialize;
use serde_json::Value;

/// The errors of one object, in the order in which they were found.
#[derive(Debug, Default)]
pub struct Errors(Vec<String>);

impl Errors {
    /// A value that the field cannot have.
    pub(crate) fn invalid(&mut self, path: impl Display, value: impl Serialize, detail: impl Display) {
        self.0.push(format!("{path}: Invalid value: {}: {detail}", shown(value)));
    }

    /// A field whose value is no help in seeing what is wrong.
    pub(crate) fn invalid_field(&mut self, path: impl Display, detail: impl Display) {
        self.0.push(format!("{path}: Invalid value: {detail}"));
    }

    /// A value that another element has.
    pub(crate) fn duplicate(&mut self, path: impl Display, value: impl Serialize) {
        self.0.push(format!("{path}: Duplicate value: {}", shown(value)));
    }

    /// As [`Errors::duplicate`], with what must be unique.
    pub(crate) fn duplicate_with(&mut self, path: impl Display, value: impl Serialize, detail: impl Display) {
        self.0.push(format!("{path}: Duplicate value: {}: {detail}", shown(value)));
    }

    /// A field that must be set.
    pub(crate) fn required(&mut self, path: impl Display, detail: &str) {
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        self.0.push(format!("{path}: Required value{detail}"));
    }

    /// A field that must not be set, or not be changed.
    pub(crate) fn forbidden(&mut self, path: impl Display, detail: impl Display) {
        self.0.push(format!("{path}: Forbidden: {detail}"));
    }

    /// A reference to something that does not exist.
    pub(crate) fn not_found(&mut self, path: impl Display, value: &str) {
        self.0.push(format!("{path}: Not found: {}", shown(value)));
    }

    /// A value that is none of those supported.
    pub(crate) fn unsupported<'v>(
        &mut self,
        path: impl Display,
        value: &str,
        supported: impl IntoIterator<Item = &'v str>,
    ) {
        let supported: Vec<String> = supported.into_iter().map(shown).collect();
        let detail = match supported.as_slice() {
            [] => String::new(),
            known => format!(": supported values: {}", known.join(", ")),
        };
        self.0.push(format!("{path}: Unsupported value: {}{detail}", shown(value)));
    }

    /// A list with too many items.
    pub(crate) fn too_many(&mut self, path: impl Display, count: usize, max: usize) {
        self.0.push(format!("{path}: Too many: {count}: must have at most {max} items"));
    }

    /// Adds other errors, each followed by a hint.
    pub(crate) fn add(&mut self, others: Self, hint: &str) {
        self.0.extend(others.0.into_iter().map(|error| error + hint));
    }

    /// Sorts the errors by field.
    pub(crate) fn sort_by_field(&mut self) {
        self.0.sort_by_key(|error| error.split(": ").next().unwrap_or_default().to_owned());
    }

    /// A text with too many bytes.
    pub(crate) fn too_long(&mut self, path: impl Display, max: usize) {
        self.0.push(format!("{path}: Too long: may not be more than {max} bytes"));
    }

    /// One error for every problem of a value.
    pub(crate) fn each(&mut self, path: &str, value: &str, problems: Vec<String>) {
        for problem in problems {
            self.invalid(path, value, problem);
        }
    }

    /// One error for all problems of a value.
    pub(crate) fn joined(&mut self, path: &str, value: &str, problems: &[String]) {
        if !problems.is_empty() {
            self.invalid(path, value, problems.join(","));
        }
    }

    /// Whether nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// An error unless the new value equals the old one.
    pub(crate) fn immutable<T: Serialize>(&mut self, path: impl Display, new: &T, old: &T) {
        if !is_same(new, old) {
            self.invalid(path, new, "field is immutable");
        }
    }

    /// Denied with all errors, each once; allowed if there are none. Several are written as Go's `Aggregate` does.
    pub fn verdict(self) -> Verdict {
        let mut distinct: Vec<String> = Vec::new();
        for error in self.0 {
            if !distinct.contains(&error) {
                distinct.push(error);
            }
        }
        match distinct.as_slice() {
            [] => Verdict::allow(),
            [only] => Verdict::deny(only.clone()),
            several => Verdict::deny(format!("[{}]", several.join(", "))),
        }
    }
}

fn shown(value: impl Serialize) -> String {
    serde_json::to_string(&value).unwrap_or_else(|error| error.to_string())
}

/// Fields that hold maps of quantities, or a quantity.
const QUANTITIES: [&str; 6] = ["limits", "overhead", "requests", "resourceUsage", "divisor", "sizeLimit"];

/// Whether two values mean the same: absent and empty are one, and `1` is `1000m`. Go clients write quantities in
/// another form than they read them. As `equality.Semantic.DeepEqual` in apimachinery.
fn is_same<T: Serialize>(a: &T, b: &T) -> bool {
    match (serde_json::to_value(a), serde_json::to_value(b)) {
        (Ok(a), Ok(b)) => means_same(&a, &b, false),
        _ => false,
    }
}

fn means_same(a: &Value, b: &Value, are_quantities: bool) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => a.keys().chain(b.keys()).all(|key| {
            let of =
                |fields: &serde_json::Map<String, Value>| fields.get(key).cloned().unwrap_or(Value::Null);
            means_same(&of(a), &of(b), are_quantities || QUANTITIES.contains(&key.as_str()))
        }),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| means_same(a, b, are_quantities))
        }
        (Value::String(a), Value::String(b)) if are_quantities => {
            a == b || matches!((a.parse(), b.parse()), (Ok(a), Ok(b)) if is_equal(a, b))
        }
        _ => a == b || is_empty(a) && is_empty(b),
    }
}

fn is_equal(a: quintet_api::Quantity, b: quintet_api::Quantity) -> bool {
    a == b
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn several_errors_are_listed_once_each() {
        let mut errors = Errors::default();
        errors.required("spec.a", "must be set");
        errors.invalid("spec.b", 3, "too large");
        errors.required("spec.a", "must be set");
        let denials = errors.verdict().denials;
        assert_eq!(denials, ["[spec.a: Required value: must be set, spec.b: Invalid value: 3: too large]"]);
        assert_eq!(Errors::default().verdict(), Verdict::allow());
    }

    #[test]
    fn quantities_are_compared_by_their_value_and_texts_by_theirs() {
        let of = |cpu: &str, name: &str| json!({ "name": name, "resources": { "requests": { "cpu": cpu } } });
        assert!(is_same(&of("1", "a"), &of("1000m", "a")));
        assert!(!is_same(&of("1", "a"), &of("2", "a")));
        assert!(!is_same(&of("1", "1"), &of("1", "1000m")), "a name is no quantity");
        assert!(is_same(&json!({ "a": [], "b": null }), &json!({})), "empty is absent");
        assert!(!is_same(&json!({ "a": 0 }), &json!({})));
    }
}
