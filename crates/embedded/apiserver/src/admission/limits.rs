//! LimitRange admission: defaults, minimum and maximum of containers.

use std::collections::BTreeMap;

use quintet_api::Quantity;
use serde_json::{Map, Value};

use super::usage::{pod_total, quantity};
use crate::{
    json::{self, items, text},
    status::{Failure, Named},
    verbs::RequestContext,
};

fn ranges(context: &RequestContext) -> Vec<Value> {
    let prefix = format!("{}/", context.namespace);
    let listed = context.api.store().objects("core/limitranges", &prefix);
    listed.iter().map(|(_, entry)| entry.parse()).collect()
}

fn limits<'a>(ranges: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    ranges
        .iter()
        .flat_map(|range| items(range, "/spec/limits"))
        .filter(move |limit| text(limit, "/type") == kind)
}

/// Fills in requests and limits, and notes which in an annotation.
pub(super) fn fill(context: &RequestContext, pod: &mut Value) {
    let ranges = ranges(context);
    if ranges.is_empty() {
        return;
    }
    let empty = Map::new();
    let mut notes = Vec::new();
    for (list, word) in [("initContainers", "init container"), ("containers", "container")] {
        let Some(containers) = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut) else {
            continue;
        };
        for container in containers {
            let name = text(container, "/name").to_owned();
            let resources = json::child(json::as_map(container), "resources");
            for (kind, source, shown) in
                [("requests", "defaultRequest", "request"), ("limits", "default", "limit")]
            {
                let mut set = Vec::new();
                for limit in limits(&ranges, "Container") {
                    let defaults = limit.get(source).and_then(Value::as_object).unwrap_or(&empty);
                    for (resource, quantity) in defaults {
                        let own = json::child(resources, kind);
                        if !own.contains_key(resource) {
                            own.insert(resource.clone(), quantity.clone());
                            set.push(resource.clone());
                        }
                    }
                }
                if !set.is_empty() {
                    notes.push(format!("{} {shown} for {word} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let annotations = json::child(json::metadata(pod), "annotations");
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        annotations.insert("kubernetes.io/limit-ranger".into(), note.into());
    }
}

/// Rejects a pod that requests more or less than its limits allow.
pub(super) fn check_pod(context: &RequestContext, pod: &Value) -> Result<(), Failure> {
    let ranges = ranges(context);
    let mut problems = Vec::new();
    for limit in limits(&ranges, "Container") {
        let containers = items(pod, "/spec/containers").iter().chain(items(pod, "/spec/initContainers"));
        for container in containers {
            let amounts = |kind: &str| Amounts::of(container.pointer(&format!("/resources/{kind}")));
            problems.extend(bounds(limit, "Container", &amounts("requests"), &amounts("limits")));
        }
    }
    for limit in limits(&ranges, "Pod") {
        let total = |kind| Amounts(pod_total(pod, kind));
        problems.extend(bounds(limit, "Pod", &total("requests"), &total("limits")));
    }
    refuse(context, pod, &problems)
}

/// Refuses a claim for more or less storage than it may be for.
pub(super) fn check_claim(context: &RequestContext, claim: &Value) -> Result<(), Failure> {
    const KIND: &str = "PersistentVolumeClaim";
    let ranges = ranges(context);
    let requests = Amounts::of(claim.pointer("/spec/resources/requests"));
    let mut problems = Vec::new();
    for limit in limits(&ranges, KIND) {
        problems
            .extend(given(limit, "min").filter_map(|(resource, least)| {
                least_request(KIND, resource, least, requests.get(resource))
            }));
        problems.extend(given(limit, "max").filter_map(|(resource, most)| {
            let why = match requests.get(resource) {
                None => ".  No request is specified".to_owned(),
                Some(asked) if *asked > quantity(most) => format!(", but request is {asked}"),
                Some(_) => return None,
            };
            Some(format!("maximum {resource} usage per {KIND} is {}{why}", shown(most)))
        }));
    }
    refuse(context, claim, &problems)
}

fn refuse(context: &RequestContext, object: &Value, problems: &[String]) -> Result<(), Failure> {
    let why = match problems {
        [] => return Ok(()),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Err(Failure::forbidden(Named { name: text(object, "/metadata/name"), ..context.named() }, &why))
}

/// How much of each resource.
struct Amounts(BTreeMap<String, Quantity>);

impl Amounts {
    fn of(amounts: Option<&Value>) -> Self {
        let amounts = amounts.and_then(Value::as_object).into_iter().flatten();
        Self(amounts.map(|(resource, amount)| (resource.clone(), quantity(amount))).collect())
    }

    fn get(&self, resource: &str) -> Option<&Quantity> {
        self.0.get(resource)
    }
}

/// What a limit says under a key.
fn given<'a>(limit: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    limit.get(key).and_then(Value::as_object).into_iter().flatten()
}

/// What is wrong with amounts, by one limit.
fn bounds(limit: &Value, kind: &str, requests: &Amounts, limits: &Amounts) -> Vec<String> {
    let least = given(limit, "min").filter_map(|(resource, least)| {
        least_request(kind, resource, least, requests.get(resource)).or_else(|| {
            let asked = limits.get(resource).filter(|asked| **asked < quantity(least))?;
            Some(format!("minimum {resource} usage per {kind} is {}, but limit is {asked}", shown(least)))
        })
    });
    let most = given(limit, "max").filter_map(|(resource, most)| {
        let why = match (limits.get(resource), requests.get(resource)) {
            (None, _) => ".  No limit is specified".to_owned(),
            (Some(limit), _) if *limit > quantity(most) => format!(", but limit is {limit}"),
            (_, Some(request)) if *request > quantity(most) => format!(", but request is {request}"),
            _ => return None,
        };
        Some(format!("maximum {resource} usage per {kind} is {}{why}", shown(most)))
    });
    let ratio = given(limit, "maxLimitRequestRatio").filter_map(|(resource, most)| {
        let given =
            |amounts: &Amounts| amounts.get(resource).map(|amount| amount.millis()).filter(|n| *n > 0);
        let why = match (given(requests), given(limits)) {
            (None, _) => "no request is specified or request is 0".to_owned(),
            (_, None) => "no limit is specified or limit is 0".to_owned(),
            (Some(request), Some(limit)) => {
                #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
                let (found, allowed) =
                    (limit as f64 / request as f64, quantity(most).millis() as f64 / 1000.0);
                if found <= allowed {
                    return None;
                }
                format!("provided ratio is {found:.6}")
            }
        };
        Some(format!("{resource} max limit to request ratio per {kind} is {}, but {why}", shown(most)))
    });
    least.chain(most).chain(ratio).collect()
}

fn least_request(kind: &str, resource: &str, least: &Value, asked: Option<&Quantity>) -> Option<String> {
    let why = match asked {
        None => ".  No request is specified".to_owned(),
        Some(asked) if *asked < quantity(least) => format!(", but request is {asked}"),
        Some(_) => return None,
    };
    Some(format!("minimum {resource} usage per {kind} is {}{why}", shown(least)))
}

fn shown(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
