//! CEL expressions about a value with a schema.

use std::cell::Cell;
use std::fmt::Write as _;

use quintet_cel::{CALL_BUDGET, Program, Schema, Val};
use quintet_objects::Path;
use quintet_objects::schema::Structural;
use serde_json::{Value, json};

use crate::{Differences, each_case};

/// What every expression is about; `selfSchema` of the recorder.
fn schema() -> Structural {
    let text = json!({ "type": "string" });
    let schema = json!({ "type": "object", "properties": {
        "n": { "type": "integer" }, "m": { "type": "integer" }, "d": { "type": "number" }, "s": text, "t": text,
        "flag": { "type": "boolean" },
        "list": { "type": "array", "items": { "type": "integer" } },
        "names": { "type": "array", "x-kubernetes-list-type": "set", "items": text },
        "map": { "type": "object", "additionalProperties": { "type": "integer" } },
        "items": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": { "type": "object", "required": ["name"],
                "properties": { "name": text, "v": { "type": "integer" } } } },
        "when": { "type": "string", "format": "date-time" }, "long": { "type": "string", "format": "duration" },
        "data": { "type": "string", "format": "byte" }, "either": { "x-kubernetes-int-or-string": true },
        "namespace": text, "a-b": text,
        "inner": { "type": "object", "properties": {
            "deep": { "type": "object", "properties": { "n": { "type": "integer" } } } } },
    } });
    Structural::parse(&schema, &Path::new("schema")).unwrap()
}

/// A value with its type, as the recorder renders it.
fn render(value: &Val<'_>) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    match value {
        Val::Bool(value) => value.to_string(),
        Val::Int(value) => value.to_string(),
        Val::Uint(value) => format!("{value}u"),
        Val::Double(value) => format!("double {}", float(*value)),
        Val::String(text) => json!(text).to_string(),
        Val::Bytes(bytes) => {
            let mut hex = String::from("bytes ");
            bytes.iter().for_each(|byte| write!(hex, "{byte:02x}").unwrap());
            hex
        }
        Val::Null => "null".to_owned(),
        Val::Timestamp(time) => format!("timestamp {}.{:09}", time.as_second(), time.subsec_nanosecond()),
        Val::Duration(nanos) => format!("duration {nanos}"),
        Val::Type(name) => format!("type {name}"),
        Val::Optional(Some(inner)) => format!("optional {}", render(inner)),
        Val::Optional(None) => "optional none".to_owned(),
        Val::List(items) => list(items.iter().map(render).collect()),
        Val::Map(entries) => map(entries.iter().map(|(key, value)| (render(key), render(value))).collect()),
        Val::Json(Value::Array(items), schema) => {
            let schema = schema.and_then(Schema::items);
            list(items.iter().map(|item| render(&Val::from_json(item, schema))).collect())
        }
        Val::Json(Value::Object(fields), schema) => {
            let of = |name: &str| schema.and_then(|schema| schema.child(name));
            let entry = |(name, value): (&String, &Value)| {
                (json!(name).to_string(), render(&Val::from_json(value, of(name))))
            };
            map(fields.iter().map(entry).collect())
        }
        other => format!("{other:?}"),
    }
}

fn map(entries: Vec<(String, String)>) -> String {
    let mut entries: Vec<_> = entries.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
    entries.sort();
    format!("{{{}}}", entries.join(", "))
}

/// A float as Go's `strconv` writes it with `e`.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap();
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

fn compare(case: &Value, schema: &Structural, differences: &mut Differences) {
    let text = case["text"].as_str().unwrap();
    let program = match (Program::compile(text, &["self"]), case["rejected"].as_str()) {
        // Types are checked as far as they are known; what is left fails when it is evaluated.
        (_, Some(reason)) if !reason.contains("undeclared reference") => return,
        (Err(_), Some(_)) => return,
        (Ok(_), Some(reason)) => {
            return differences.add("only we compile", || format!("{text}\n    {reason}"));
        }
        (Err(error), None) => return differences.add("we do not compile", || format!("{text}\n    {error}")),
        (Ok(program), None) => program,
    };
    let variables = [("self", Val::from_json(&case["value"], Some(schema)))];
    let ours = program.eval(&variables, &Cell::new(CALL_BUDGET));
    let example = |ours: &str| {
        format!(
            "{text}\n    self {}\n    ours {ours}\n    theirs {}{}",
            case["value"], case["result"], case["error"]
        )
    };
    match (&ours, case["error"].as_str()) {
        (Ok(value), None) => {
            let rendered = render(value);
            if case["result"] != rendered.as_str() {
                differences.add(format!("result {}", value.type_name()), || example(&rendered));
            }
        }
        (Err(error), Some(theirs)) => {
            if error.to_string() != theirs {
                let topic: String = theirs.chars().take(30).collect();
                differences.add(format!("text of an error: {topic}"), || example(&error.to_string()));
            }
        }
        (Err(error), None) => differences.add(format!("we fail: {error}"), || example(&error.to_string())),
        (Ok(value), Some(theirs)) => {
            let topic: String = theirs.chars().take(30).collect();
            differences.add(format!("they fail: {topic}"), || example(&render(value)));
        }
    }
    check_types(text, case, &ours, schema, differences);
}

/// A rule that Kubernetes accepts must not be rejected for its types.
fn check_types(
    text: &str,
    case: &Value,
    ours: &Result<Val<'_>, quintet_cel::EvalError>,
    schema: &Structural,
    differences: &mut Differences,
) {
    if !matches!(ours, Ok(Val::Bool(_))) {
        return;
    }
    let rule =
        quintet_objects::cel::Rule::parse(&json!({ "rule": text, "message": "m" }), &Path::new("rule"))
            .unwrap();
    for error in rule.type_errors(schema, false, &Path::new("rule")) {
        differences.add("only we reject a rule", || format!("{error}\n    {}", case["value"]));
    }
}

#[test]
fn every_expression_evaluates_as_in_kubernetes() {
    let schema = schema();
    each_case("expressions.jsonl", |case, differences| compare(case, &schema, differences));
}
