//! Fields, keys and positions.

use std::rc::Rc;

use serde_json::Value;

use super::eval::EvalError;
use super::schema::Schema;
use super::value::Val;

/// Words of the language that a field may be called; they are written `__word__`.
const KEYWORDS: [&str; 20] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
];

/// A field of an object, or nothing if it is not there.
pub(super) fn field<'v>(of: &Val<'v>, name: &str) -> Result<Option<Val<'v>>, EvalError> {
    match of {
        Val::Json(Value::Object(fields), schema) => {
            let found = fields.get_key_value(name).or_else(|| {
                // Only escaped names contain two underscores in a row.
                name.contains("__").then(|| fields.get_key_value(&unescape(name))).flatten()
            });
            Ok(found.map(|(name, value)| Val::from_json(value, schema.and_then(|schema| schema.child(name)))))
        }
        Val::Map(entries) => Ok(named(entries, name)),
        Val::Maps(entries) => Ok(Some(named(entries, name).unwrap_or_else(empty_map))),
        Val::Optional(None) => Ok(None),
        Val::Optional(Some(inner)) => field(inner, name),
        Val::Null => Err(EvalError::new(format!("no such key: {name}"))),
        _ => Err(EvalError::no_overload()),
    }
}

/// The value of an entry with a text as its key.
fn named<'v>(entries: &[(Val<'v>, Val<'v>)], name: &str) -> Option<Val<'v>> {
    let mut entries = entries.iter();
    let found = entries.find(|(key, _)| matches!(key, Val::String(key) if key == name));
    found.map(|(_, value)| value.clone())
}

fn empty_map<'v>() -> Val<'v> {
    Val::Map(Rc::default())
}

/// An item of a list or a value of a map, or nothing if it is not there.
pub(super) fn index<'v>(of: &Val<'v>, at: &Val<'v>) -> Result<Option<Val<'v>>, EvalError> {
    match of {
        Val::Optional(None) => return Ok(None),
        Val::Optional(Some(inner)) => return index(inner, at),
        Val::Json(Value::Object(_), _) => {
            return match at {
                Val::String(key) => key_of(of, key),
                _ => Ok(None),
            };
        }
        Val::Map(entries) => {
            return Ok(entries.iter().find(|(key, _)| key.equals(at)).map(|(_, value)| value.clone()));
        }
        Val::Maps(_) => {
            return match at {
                Val::String(key) => field(of, key),
                _ => Ok(Some(empty_map())),
            };
        }
        _ => {}
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be whole and positive"
    )]
    let position = match at {
        Val::Int(number) => usize::try_from(*number).ok(),
        Val::Uint(number) => usize::try_from(*number).ok(),
        Val::Double(number) if number.fract() == 0.0 && *number >= 0.0 => Some(*number as usize),
        _ => return Err(EvalError::no_overload()),
    };
    match of {
        Val::List(items) => Ok(position.and_then(|at| items.get(at).cloned())),
        Val::Json(Value::Array(items), schema) => Ok(position
            .and_then(|at| items.get(at))
            .map(|item| Val::from_json(item, schema.and_then(Schema::items)))),
        _ => Err(EvalError::no_overload()),
    }
}

/// A value of a map by its exact key.
fn key_of<'v>(of: &Val<'v>, key: &str) -> Result<Option<Val<'v>>, EvalError> {
    match of {
        Val::Json(Value::Object(fields), schema) => Ok(fields
            .get(key)
            .map(|value| Val::from_json(value, schema.and_then(|schema| schema.child(key))))),
        _ => field(of, key),
    }
}

/// The property that is written `name` in expressions.
pub(super) fn unescape(name: &str) -> String {
    if let Some(word) = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && KEYWORDS.contains(&word)
    {
        return word.into();
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    'text: while let Some(at) = rest.find("__") {
        out.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at..).unwrap_or_default();
        for (escape, character) in
            [("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")]
        {
            if let Some(after) = rest.strip_prefix(escape) {
                out.push_str(character);
                rest = after;
                continue 'text;
            }
        }
        out.push_str("__");
        rest = rest.get(2..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}
