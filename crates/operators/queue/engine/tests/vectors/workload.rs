//! Workloads: requests, order and status.

use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::api::node::v1::RuntimeClass;
use quintet_api::kueue::v1beta2;
use quintet_queue_engine::ingest::{self, LimitSummary, RequestOptions, Transformation};
use quintet_queue_engine::internals::cycle::required_checks;
use quintet_queue_engine::model::{Demand, Workload};
use quintet_queue_engine::names::Names;
use quintet_queue_engine::settings::RequeuingTimestamp;
use quintet_queue_engine::status;
use serde_json::{Value, json};

use crate::case::{Case, Verdict};
use crate::compare::{comparable_status, differences, set_differences};
use crate::objects::{change_status, decode, quantities, time_text};
use crate::world::World;

pub const OPS: [&str; 15] = [
    "workloadInfo",
    "workloadInfoWithDRA",
    "adjustResources",
    "schedulingHashesEqual",
    "queueOrderTimestamp",
    "resourceUsage",
    "isOnHold",
    "needsSecondPass",
    "isExplicitlyRequestingTAS",
    "pendingFlavors",
    "setQuotaReservation",
    "syncAdmittedCondition",
    "validateResources",
    "validateLimitRange",
    "admissionChecksForAdmission",
];

pub fn run(case: &Case<'_>) -> Verdict {
    let args = case.args();
    let want = case.want();
    let mut world = World::without_workloads(case);
    let now = world.now;
    let result = |got: Value| Verdict::equal("result", &got, &want["result"]);
    match case.op() {
        "workloadInfo" | "workloadInfoWithDRA" => info(case, &mut world),
        "adjustResources" => adjust(case),
        "schedulingHashesEqual" => {
            let a = world.read_workload(&args["wl1"]);
            let b = world.read_workload(&args["wl2"]);
            Verdict::equal("same", &json!(a.shape == b.shape), &want["same"])
        }
        "queueOrderTimestamp" => {
            let workload = world.read_workload(&args["workload"]);
            let mut settings = world.engine.state().settings.clone();
            let mut got = json!({});
            for (name, timestamp) in
                [("Eviction", RequeuingTimestamp::Eviction), ("Creation", RequeuingTimestamp::Creation)]
            {
                settings.requeuing_timestamp = timestamp;
                let time = workload.queue_timestamp(&settings);
                let nanos = time.as_nanos().rem_euclid(1_000_000_000);
                let mut text = time_text(time);
                if nanos != 0 {
                    text = text.replace('Z', &format!(".{:03}Z", nanos / 1_000_000));
                }
                got[name] = text.into();
            }
            Verdict::equal("timestamps", &got, &want["timestamps"])
        }
        "resourceUsage" => usage(case, &mut world),
        "isOnHold" => result(json!(world.read_workload(&args["workload"]).is_on_hold())),
        "needsSecondPass" => {
            let got = world.read_workload(&args["workload"]).needs_second_pass();
            Verdict::equal("result", &json!(got), &first(want, &["result", "needsSecondPass"]))
        }
        "isExplicitlyRequestingTAS" => {
            let got = args["podSets"].as_array().into_iter().flatten().any(|pod_set| {
                let request = &pod_set["topologyRequest"];
                !request.is_null() && ingest::topology_request(&decode(request)).is_explicit()
            });
            result(json!(got))
        }
        "pendingFlavors" => {
            let progress = crate::flavors::progress(&mut world, &args["state"], None);
            let got = !args["state"].is_null() && progress.has_pending_flavors();
            Verdict::equal("pendingFlavors", &json!(got), &want["pendingFlavors"])
        }
        "setQuotaReservation" => {
            let mut object = args["workload"].clone();
            let admission = decode(&args["admission"]);
            let changed =
                change_status(&mut object, |object| status::set_quota_reservation(object, admission, now));
            let wanted = if want["workload"].is_null() { want } else { &want["workload"] };
            let (got, status) = comparable_status(&object["status"], &wanted["status"], false);
            let mut found = differences("status", &got, &status);
            if !want["changed"].is_null() {
                found.extend(differences("changed", &json!(changed), &want["changed"]));
            }
            Verdict::from_differences(found)
        }
        "syncAdmittedCondition" => sync(case, &world),
        "validateResources" => {
            let mut names = Names::default();
            let errors =
                ingest::validate_resources(&decode(&args["workload"]), &mut names).expect("workload");
            Verdict::equal("errors", &errors_json(&errors), &want["errors"])
        }
        "validateLimitRange" => {
            let mut names = Names::default();
            let range = Some(&args["limitRange"]).filter(|range| !range.is_null());
            let range: Option<LimitRange> = range.map(decode);
            let summary = LimitSummary::new(&range).expect("range");
            let workload = decode(&args["workload"]);
            let errors = ingest::validate_limits(&workload, &summary, &mut names).expect("workload");
            Verdict::equal("errors", &errors_json(&errors), &want["errors"])
        }
        _ => {
            world.add(&args["cq"]);
            let workload = world.read_workload(&args["workload"]);
            let id = world.queue(args["cq"]["metadata"]["name"].as_str().unwrap_or(""));
            let queue = world.engine.state().queue(id).expect("queue");
            let admission = workload.admission.as_deref().expect("admission");
            let names: Vec<String> =
                required_checks(queue, admission).iter().map(ToString::to_string).collect();
            let wanted = first(want, &["result", "checks", "admissionChecks"]);
            Verdict::from_differences(set_differences("checks", &json!(names), &wanted))
        }
    }
}

fn first(want: &Value, keys: &[&str]) -> Value {
    keys.iter().map(|key| want[*key].clone()).find(|value| !value.is_null()).unwrap_or_default()
}

pub fn errors_json(errors: &[ingest::FieldError]) -> Value {
    let entries = errors.iter().map(|error| {
        json!({ "type": "FieldValueInvalid", "field": error.field, "detail": error.detail, "value": error.value })
    });
    Value::Array(entries.collect())
}

fn options(value: &Value) -> RequestOptions {
    let mut options = RequestOptions::default();
    for prefix in value["excludedResourcePrefixes"].as_array().into_iter().flatten().filter_map(Value::as_str)
    {
        options.excluded_prefixes.push(prefix.to_owned());
    }
    let transformations = first(value, &["resourceTransformations", "transformations"]);
    let entries: Vec<(String, Value)> = match &transformations {
        Value::Object(entries) => entries.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect(),
        Value::Array(entries) => entries
            .iter()
            .map(|entry| (entry["input"].as_str().unwrap_or("").to_owned(), entry.clone()))
            .collect(),
        _ => Vec::new(),
    };
    for (input, entry) in entries {
        options.transformations.push(Transformation {
            input,
            replaces_input: entry["strategy"] == "Replace",
            outputs: quantities(&entry["outputs"]),
            multiply_by: entry["multiplyBy"].as_str().filter(|name| !name.is_empty()).map(ToOwned::to_owned),
        });
    }
    let dra = if value["dra"].is_null() { value } else { &value["dra"] };
    let resources = first(dra, &["preprocessedDRAResources", "draResources"]);
    for (pod_set, claimed) in resources.as_object().into_iter().flatten() {
        let replaced = dra["replacedExtendedResources"][pod_set]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(ToOwned::to_owned)
            .collect();
        options.claims.push((pod_set.clone(), quantities(claimed), replaced));
    }
    options
}

fn info(case: &Case<'_>, world: &mut World) -> Verdict {
    let args = case.args();
    let options = options(if args["options"].is_null() { args } else { &args["options"] });
    let state = world.engine.state_mut();
    let gates = state.settings.gates.clone();
    let workload =
        ingest::workload(&decode(&args["workload"]), &options, &gates, &mut state.names).expect("workload");
    let names = &state.names;
    let mut found = differences("totalRequests", &totals(&workload, names), &case.want()["totalRequests"]);
    if !case.want()["clusterQueue"].is_null() {
        let queue = workload.admission.as_ref().map_or("", |admission| names.queue_name(admission.queue));
        found.extend(differences("clusterQueue", &json!(queue), &case.want()["clusterQueue"]));
    }
    Verdict::from_differences(found)
}

fn totals(workload: &Workload, names: &Names) -> Value {
    let pod_set_names: Vec<String> = match &workload.admission {
        Some(admission) => admission.pod_sets.iter().map(|held| held.name.to_string()).collect(),
        None => workload.pod_sets.iter().map(|pod_set| pod_set.name.to_string()).collect(),
    };
    let demands = workload.demands();
    let entries = demands.iter().zip(pod_set_names).enumerate().map(|(index, (demand, name))| {
        let mut value = demand_json(demand, names);
        value["name"] = name.into();
        let held = workload.admission.as_ref().and_then(|admission| admission.pod_sets.get(index));
        if let Some(topology) = held.and_then(|held| held.topology.as_ref()) {
            let pod = workload.pod_set(&held.unwrap().name).map(|pod_set| pod_set.pod.requests.clone());
            let single = pod.unwrap_or_else(|| demand.requests.divided(i64::from(demand.count)));
            let single: serde_json::Map<String, Value> =
                single.iter().map(|(id, value)| (names.resource_name(id).to_owned(), json!(value))).collect();
            let internal = crate::tas::internal_json(Some(topology));
            let domains: Vec<Value> = internal["domains"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|domain| json!({ "values": domain["values"], "count": domain["count"], "singlePodRequests": single }))
                .collect();
            value["topologyRequest"] = json!({ "levels": internal["levels"], "domainRequests": domains });
        }
        value
    });
    Value::Array(entries.collect())
}

fn demand_json(demand: &Demand, names: &Names) -> Value {
    let requests: serde_json::Map<String, Value> = demand
        .requests
        .iter()
        .map(|(id, value)| (names.resource_name(id).to_owned(), json!(value)))
        .collect();
    let flavors: serde_json::Map<String, Value> = demand
        .flavors
        .iter()
        .map(|(id, flavor)| (names.resource_name(*id).to_owned(), names.flavor_name(*flavor).into()))
        .collect();
    json!({ "count": demand.count, "requests": requests, "flavors": flavors })
}

fn adjust(case: &Case<'_>) -> Verdict {
    let args = case.args();
    let list = |keys: &[&str]| -> Vec<&Value> {
        keys.iter()
            .flat_map(|key| match &args[*key] {
                Value::Array(values) => values.iter().collect(),
                Value::Null => Vec::new(),
                value => vec![value],
            })
            .collect()
    };
    let classes: Vec<RuntimeClass> =
        list(&["runtimeClasses", "runtimeClass"]).into_iter().map(decode).collect();
    let ranges: Vec<LimitRange> = list(&["limitRanges", "limitRange"]).into_iter().map(decode).collect();
    let limits = LimitSummary::new(&ranges).expect("ranges");
    let class = |name: &str| classes.iter().find(|own| own.metadata.name.as_deref() == Some(name));
    let mut object: v1beta2::Workload = decode(&args["workload"]);
    ingest::adjust_resources(&mut object, class, &limits);
    let wanted: v1beta2::Workload = decode(&case.want()["workload"]);
    Verdict::equal("workload", &json!(object), &json!(wanted))
}

fn usage(case: &Case<'_>, world: &mut World) -> Verdict {
    let demands = crate::flavors::demands(world, &case.args()["info"]["totalRequests"]);
    let names = &world.engine.state().names;
    let (mut assigned, mut unassigned) = (json!({}), json!({}));
    for demand in &demands {
        for (resource, value) in demand.requests.iter() {
            let name = names.resource_name(resource);
            let slot = match demand.flavor_of(resource) {
                Some(flavor) => {
                    let flavor = names.flavor_name(flavor);
                    if assigned[flavor].is_null() {
                        assigned[flavor] = json!({});
                    }
                    &mut assigned[flavor][name]
                }
                None => &mut unassigned[name],
            };
            *slot = (slot.as_i64().unwrap_or(0).saturating_add(value)).into();
        }
    }
    Verdict::equal(
        "result",
        &json!({ "assigned": assigned, "unassigned": unassigned }),
        &case.want()["result"],
    )
}

fn sync(case: &Case<'_>, world: &World) -> Verdict {
    let args = case.args();
    let mut object = json!({
        "metadata": { "generation": 1 },
        "status": {
            "admissionChecks": args["checkStates"],
            "conditions": args["conditions"],
            "accumulatedPastExecutionTimeSeconds": args["pastAdmittedTime"],
            "admission": args["admission"],
        },
    });
    let gates = &world.engine.state().settings.gates;
    let changed = change_status(&mut object, |object| status::sync_admitted(object, world.now, gates));
    let mut found = differences("change", &json!(changed), &case.want()["change"]);
    let wanted = json!({ "conditions": case.want()["conditions"] });
    let got = json!({ "conditions": object["status"]["conditions"] });
    let (mut got, mut wanted) = comparable_status(&got, &wanted, true);
    for value in [&mut got, &mut wanted] {
        for (_, condition) in value["conditions"].as_object_mut().into_iter().flatten() {
            condition["message"] = Value::Null;
            condition["lastTransitionTime"] = Value::Null;
        }
    }
    found.extend(differences("conditions", &got["conditions"], &wanted["conditions"]));
    if let Some(time) = case.want()["admittedTime"].as_i64().filter(|time| *time != 0) {
        let got = object["status"]["accumulatedPastExecutionTimeSeconds"].as_i64().unwrap_or(0);
        found.extend(differences("admittedTime", &json!(got), &json!(time)));
    }
    Verdict::from_differences(found)
}
