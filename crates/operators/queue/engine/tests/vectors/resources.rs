//! Amounts, requests and quantities.

use quintet_api::Quantity;
use quintet_queue_engine::ingest;
use quintet_queue_engine::internals::amount::Amount;
use quintet_queue_engine::internals::requests::{Requests, request_of};
use quintet_queue_engine::names::{Names, ResourceId, format_resource};
use serde_json::{Value, json};

use crate::case::{Case, Verdict};
use crate::world::{amount_json, amount_of};

pub const OPS: [&str; 17] = [
    "addOrSub",
    "amountArithmetic",
    "amountAsFloat64",
    "amountFromQuantity",
    "countIn",
    "countInWithLimitingResource",
    "divide",
    "floorToZero",
    "greaterKeys",
    "greaterKeysResourceList",
    "mul",
    "resourceQuantity",
    "resourceValue",
    "saturatingAddOrSub",
    "scaledDown",
    "scaledUp",
    "toResourceList",
];

fn read(value: &Value, names: &mut Names) -> Option<Requests> {
    let entries = value.as_object()?;
    Some(entries.iter().map(|(name, value)| (names.resource(name), value.as_i64().unwrap_or(0))).collect())
}

fn write(requests: Option<&Requests>, names: &Names) -> Value {
    let Some(requests) = requests else {
        return Value::Null;
    };
    let entries = requests.iter().map(|(id, value)| (names.resource_name(id).to_owned(), json!(value)));
    Value::Object(entries.collect())
}

pub fn run(case: &Case<'_>) -> Verdict {
    let args = case.args();
    let want = case.want();
    let mut names = Names::default();
    let result = |got: Value| Verdict::equal("result", &got, &want["result"]);
    let quantity = |value: &Value| -> Quantity { value.as_str().unwrap_or("").parse().expect("quantity") };
    match case.op() {
        "addOrSub" | "saturatingAddOrSub" => {
            let plain = case.op() == "addOrSub";
            let (from, by) = if plain { ("base", "operand") } else { ("start", "other") };
            let mut base = read(&args[from], &mut names).unwrap_or_default();
            let other = read(&args[by], &mut names).unwrap_or_default();
            if args["sub"] == true || args["op"] == "sub" {
                base.sub(&other);
            } else {
                base.add(&other);
            }
            result(write(Some(&base), &names))
        }
        "amountArithmetic" => {
            let results: Vec<Value> =
                case.calls()["steps"].as_array().into_iter().flatten().map(arithmetic).collect();
            Verdict::equal("results", &json!(results), &want["results"])
        }
        "amountAsFloat64" => {
            let got = amount_of(&args["amount"]).as_f64(args["resource"] == "cpu");
            result(if got.is_infinite() { "+Inf".into() } else { json!(got) })
        }
        "amountFromQuantity" => {
            let got = Amount::of(quantity(&args["quantity"]), args["resource"] == "cpu");
            let value = if got.is_unlimited() { 0 } else { got.get() };
            Verdict::equal("amount", &json!({ "unlimited": got.is_unlimited(), "value": value }), want)
        }
        "countIn" | "countInWithLimitingResource" => {
            let requests = read(&args["requests"], &mut names).unwrap_or_default();
            let capacity = read(&args["capacity"], &mut names).unwrap_or_default();
            let there_is = |resource| capacity.get(resource);
            let (count, limit) = requests.count_in_limited(there_is, &names);
            if case.op() == "countIn" {
                let wanted = if want["count"].is_null() { &want["result"] } else { &want["count"] };
                return Verdict::equal("count", &json!(requests.count_in(there_is)), wanted);
            }
            let limit = limit.map_or("", |id| names.resource_name(id));
            let mut wanted = want.clone();
            if wanted["limitingResource"].is_null() {
                wanted["limitingResource"] = "".into();
            }
            Verdict::equal("count", &json!({ "count": count, "limitingResource": limit }), &wanted)
        }
        "divide" | "scaledDown" => {
            let divisor =
                [&args["divisor"], &args["factor"]].into_iter().find_map(Value::as_i64).unwrap_or(1);
            let got = read(&args["requests"], &mut names).map(|requests| requests.divided(divisor));
            result(write(got.as_ref(), &names))
        }
        "mul" | "scaledUp" => {
            let factor = args["factor"].as_i64().unwrap_or(1);
            let got = read(&args["requests"], &mut names).map(|requests| requests.times(factor));
            result(write(got.as_ref(), &names))
        }
        "floorToZero" => {
            let got = read(&args["requests"], &mut names).map(|requests| requests.floor_zero());
            result(write(got.as_ref(), &names))
        }
        "greaterKeys" => {
            let side = |a: &str, b: &str| {
                if args[a].is_null() { args[b].clone() } else { args[a].clone() }
            };
            let a = read(&side("a", "requests"), &mut names).unwrap_or_default();
            let b = read(&side("b", "other"), &mut names).unwrap_or_default();
            result(json!(a.greater_keys(&b, &names)))
        }
        "greaterKeysResourceList" => {
            let a = read(&args["requests"], &mut names).unwrap_or_default();
            let limits = crate::objects::quantities(&args["resourceList"]);
            let b = ingest::requests(&limits, &mut names);
            result(json!(a.greater_keys(&b, &names)))
        }
        "resourceQuantity" => {
            let name = args["resource"].as_str().unwrap_or("");
            let binary = args["binaryFormatted"] == true;
            result(json!(format_resource(name, args["value"].as_i64().unwrap_or(0), binary)))
        }
        "resourceValue" => result(json!(request_of(quantity(&args["quantity"]), args["resource"] == "cpu"))),
        _ => {
            let requests = read(&args["requests"], &mut names).unwrap_or_default();
            result(json!(quintet_queue_engine::status::resource_list(&requests, &names)))
        }
    }
}

fn arithmetic(step: &Value) -> Value {
    let (a, b) = (amount_of(&step["a"]), amount_of(&step["b"]));
    match step["op"].as_str().unwrap_or("") {
        "add" => amount_json(a + b),
        "sub" => amount_json(a - b),
        "cmp" => json!(a.cmp(&b) as i8),
        "min" => amount_json(a.min(b)),
        "max" => amount_json(a.max(b)),
        "string" => json!(a.to_string()),
        _ => {
            let _ = (Amount::ZERO, ResourceId::CPU);
            Value::Null
        }
    }
}
