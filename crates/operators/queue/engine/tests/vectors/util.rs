//! Small functions with a counterpart here.

use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem};
use quintet_api::Quantity;
use quintet_api::quantity::Notation;
use quintet_queue_engine::ingest::{self, LimitSummary};
use quintet_queue_engine::internals::afs::{self, Consumed};
use quintet_queue_engine::names::Names;
use serde_json::{Value, json};

use crate::case::{Case, Verdict};
use crate::objects::decode;
use crate::world::World;

pub const OPS: [&str; 9] = [
    "afsCalculateUsage",
    "effectivePriority",
    "parseEffectivePriority",
    "priorityBoost",
    "limitRangeSummarize",
    "limitRangeValidatePodSpec",
    "mulByFloat",
    "quantityToFloat",
    "entryPenalties",
];

pub fn consumed(value: &Value, names: &mut Names) -> Consumed {
    crate::objects::quantities(value)
        .iter()
        .map(|(name, quantity)| (names.resource(name), *quantity))
        .collect()
}

pub fn consumed_json(consumed: &Consumed, names: &Names) -> Value {
    let entries = consumed
        .iter()
        .map(|(id, quantity)| (names.resource_name(*id).to_owned(), quantity.to_string().into()));
    Value::Object(entries.collect())
}

pub fn run(case: &Case<'_>) -> Verdict {
    let args = case.args();
    let want = case.want();
    let mut names = Names::default();
    match case.op() {
        "afsCalculateUsage" => {
            let (used, penalty) =
                (consumed(&args["consumed"], &mut names), consumed(&args["penalty"], &mut names));
            let weights = args["resWeights"].as_object().into_iter().flatten();
            let weights = weights
                .map(|(name, weight)| (names.resource(name), weight.as_f64().unwrap_or(1.0)))
                .collect();
            let got = afs::usage(&used, &penalty, args["lqWeight"].as_f64().unwrap_or(0.0), &weights, &names);
            let got = if got.is_infinite() { json!("+Inf") } else { json!(got) };
            Verdict::equal("usage", &got, &want["usage"])
        }
        "effectivePriority" | "parseEffectivePriority" => {
            let mut world = World::without_workloads(case);
            let workload = world.read_workload(&args["workload"]);
            let got = workload.effective_priority(&world.engine.state().settings.gates);
            Verdict::equal("priority", &json!(got), &want["priority"])
        }
        "priorityBoost" => {
            let mut world = World::without_workloads(case);
            let mut workload = world.read_workload(&args["workload"]);
            workload.priority = 0;
            let got = workload.effective_priority(&world.engine.state().settings.gates);
            Verdict::equal("boost", &json!(got), &want["boost"])
        }
        "limitRangeSummarize" => {
            let ranges: Vec<LimitRange> = decode(&args["ranges"]);
            let summary = LimitSummary::new(&ranges).expect("ranges");
            let mut got = json!({});
            for (kind, limits) in &summary.items {
                let list = |quantities: &ingest::Quantities| -> Value {
                    let entries = quantities.iter();
                    Value::Object(
                        entries.map(|(name, quantity)| (name.clone(), text(name, *quantity))).collect(),
                    )
                };
                got[kind] = json!({
                    "type": "",
                    "max": list(&limits.max),
                    "min": list(&limits.min),
                    "default": limits.default,
                    "defaultRequest": limits.default_request,
                    "maxLimitRequestRatio": list(&limits.max_ratio),
                });
            }
            Verdict::equal("result", &got, &want["result"])
        }
        "limitRangeValidatePodSpec" => {
            let items = args["summary"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(kind, item)| LimitRangeItem { type_: kind.clone(), ..decode(item) });
            let items: Vec<LimitRangeItem> = items.collect();
            let summary = LimitSummary::of_items(&items).expect("summary");
            let path = args["path"].as_str().unwrap_or("");
            let errors = summary.validate(&decode(&args["podSpec"]), path, &mut names).expect("pod");
            Verdict::equal("errors", &crate::workload::errors_json(&errors), &want["errors"])
        }
        "mulByFloat" => {
            if args["resourceList"].is_null() {
                return Verdict::equal("result", &Value::Null, &want["result"]);
            }
            let factor = args["factor"].as_f64().unwrap_or(0.0);
            let list = consumed(&args["resourceList"], &mut names);
            let scaled = afs::scaled(&list, factor);
            Verdict::equal("result", &consumed_json(&scaled, &names), &want["result"])
        }
        "quantityToFloat" => {
            let Some(text) = args["quantity"].as_str() else {
                return Verdict::equal("result", &json!(0.0), &want["result"]);
            };
            let got = quintet_queue_engine::internals::float::as_f64(text.parse().expect("quantity"));
            let same = want["result"].as_f64().is_some_and(|want| (got - want).abs() <= want.abs() * 1e-12);
            if same { Verdict::Same } else { Verdict::equal("result", &json!(got), &want["result"]) }
        }
        _ => crate::scripts::entry_penalties(case),
    }
}

fn text(name: &str, quantity: Quantity) -> Value {
    let notation = if name == "memory" { Notation::BinarySi } else { Notation::DecimalSi };
    quantity.in_notation(notation).to_string().into()
}
