//! Reads the generated table.

use std::collections::HashMap;

use super::{Field, ListType, Shape, Table, Type, TypeId};

/// Reads the table; lines it does not understand are left out (a test sees that there are none).
pub(super) fn table(text: &'static str) -> Table {
    let mut names: HashMap<&'static str, TypeId> = HashMap::new();
    let mut position = 0;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("type ").and_then(|rest| rest.split(' ').next()) {
            names.insert(name, TypeId(position));
            position = position.saturating_add(1);
        }
    }
    let mut types: Vec<Type> = Vec::with_capacity(names.len());
    let mut kinds: HashMap<&'static str, HashMap<&'static str, TypeId>> = HashMap::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        match words.next() {
            Some("kind") => {
                if let (Some(version), Some(kind), Some(id)) =
                    (words.next(), words.next(), words.next().and_then(|name| names.get(name)))
                {
                    kinds.entry(version).or_default().insert(kind, *id);
                }
            }
            Some("type") => {
                let name = words.next().unwrap_or_default();
                types.push(Type {
                    name,
                    fields: Vec::new(),
                    is_atomic: words.any(|word| word == "m=atomic"),
                    json: HashMap::new(),
                });
            }
            Some("") => {
                if let (Some(field), Some(last)) = (field(words, &names), types.last_mut()) {
                    last.fields.push(field);
                }
            }
            _ => {}
        }
    }
    for kind in &mut types {
        // Messages are written in the order of their numbers.
        kind.fields.sort_by_key(|field| field.number);
    }
    let flattened: Vec<_> = (0..types.len()).map(|position| flatten(&types, position, 0)).collect();
    for (kind, json) in types.iter_mut().zip(flattened) {
        kind.json = json;
    }
    Table { types, names, kinds }
}

fn flatten(types: &[Type], position: usize, depth: usize) -> HashMap<&'static str, (TypeId, usize)> {
    let mut json = HashMap::new();
    let (Some(kind), Ok(id)) = (types.get(position), u16::try_from(position)) else { return json };
    for (at, field) in kind.fields.iter().enumerate() {
        match &field.shape {
            Shape::Struct(TypeId(inner)) if field.is_inline && depth < 8 => {
                json.extend(flatten(types, usize::from(*inner), depth + 1));
            }
            _ => {
                json.insert(field.name, (TypeId(id), at));
            }
        }
    }
    json
}

fn field(mut words: std::str::Split<'static, char>, names: &HashMap<&'static str, TypeId>) -> Option<Field> {
    let mut field = Field {
        name: words.next()?,
        number: words.next()?.parse().ok()?,
        shape: shape(words.next()?, names)?,
        is_pointer: false,
        omits_empty: false,
        is_optional: false,
        is_inline: false,
        list: ListType::Atomic,
        is_atomic: false,
        merge_key: None,
        is_merged: false,
        retains_keys: false,
        is_replaced: false,
        default: None,
    };
    for flag in words {
        match flag.split_once('=').unwrap_or((flag, "")) {
            ("*", _) => field.is_pointer = true,
            ("~", _) => field.omits_empty = true,
            ("?", _) => field.is_optional = true,
            ("i", _) => field.is_inline = true,
            ("m", _) => field.is_atomic = true,
            ("k", key) => field.merge_key = Some(key),
            ("d", default) => field.default = serde_json::from_str(default).ok(),
            ("p", strategies) => {
                for strategy in strategies.split(',') {
                    field.is_merged |= strategy == "merge";
                    field.retains_keys |= strategy == "retainKeys";
                    field.is_replaced |= strategy == "replace";
                }
            }
            ("l", list) => {
                field.list = match list.split_once(':').unwrap_or((list, "")) {
                    ("set", _) => ListType::Set,
                    ("map", keys) => ListType::Map(keys.split(',').map(Into::into).collect()),
                    _ => ListType::Atomic,
                };
            }
            _ => return None,
        }
    }
    Some(field)
}

fn shape(text: &'static str, names: &HashMap<&'static str, TypeId>) -> Option<Shape> {
    if let Some(element) = text.strip_prefix("[]") {
        return Some(Shape::List(Box::new(shape(element, names)?)));
    }
    if let Some(element) = text.strip_prefix("{}") {
        return Some(Shape::Map(Box::new(shape(element, names)?)));
    }
    if let Some(element) = text.strip_prefix("items:") {
        return Some(Shape::Items(Box::new(shape(element, names)?)));
    }
    Some(match text {
        "string" => Shape::String,
        "bool" => Shape::Bool,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "uint32" => Shape::Uint32,
        "float64" => Shape::Double,
        "bytes" => Shape::Bytes,
        "time" => Shape::Time,
        "microtime" => Shape::MicroTime,
        "duration" => Shape::Duration,
        "quantity" => Shape::Quantity,
        "intorstring" => Shape::IntOrString,
        "raw" => Shape::Raw,
        "json" => Shape::Json,
        "fields" => Shape::Fields,
        "schemaorarray" => Shape::SchemaOrArray,
        "schemaorbool" => Shape::SchemaOrBool,
        "schemaorstrings" => Shape::SchemaOrStrings,
        name => Shape::Struct(*names.get(name)?),
    })
}
