//! LimitRanges: what containers get when they do not say, and the most and least they may ask for.

use quintet_api::Quantity;
use serde_json::{Map, Value};

use crate::{
    json::{self, items, text},
    status::{Failure, Named},
    verbs::Ask,
};

fn ranges(ask: &Ask) -> Vec<Value> {
    let prefix = format!("{}/", ask.namespace);
    let listed = ask.api.store().list("core/limitranges", &prefix, None, None).map(|(entries, _)| entries);
    let listed = listed.unwrap_or_default();
    listed.iter().map(|(_, entry)| serde_json::from_slice(&entry.body).unwrap_or_default()).collect()
}

fn limits<'a>(ranges: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    ranges
        .iter()
        .flat_map(|range| items(range, "/spec/limits"))
        .filter(move |limit| text(limit, "/type") == kind)
}

/// Fills in requests and limits, and notes which in an annotation.
pub(super) fn fill(ask: &Ask, pod: &mut Value) {
    let ranges = ranges(ask);
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

fn quantity(value: Option<&Value>) -> Option<Quantity> {
    value?.as_str()?.parse().ok()
}

/// Refuses a pod that asks for more or less than it may.
pub(super) fn check(ask: &Ask, pod: &Value) -> Result<(), Failure> {
    let ranges = ranges(ask);
    let empty = Map::new();
    let mut problems = Vec::new();
    for limit in limits(&ranges, "Container") {
        let bound = |key: &str| limit.get(key).and_then(Value::as_object).unwrap_or(&empty).clone();
        let (max, min, ratio) = (bound("max"), bound("min"), bound("maxLimitRequestRatio"));
        for container in items(pod, "/spec/initContainers").iter().chain(items(pod, "/spec/containers")) {
            let get = |kind: &str, resource: &str| {
                container.get("resources").and_then(|r| r.get(kind)?.get(resource))
            };
            for (resource, most) in &max {
                let (limit, request) = (get("limits", resource), get("requests", resource));
                match limit {
                    None => problems.push(format!(
                        "maximum {resource} usage per Container is {}.  No limit is specified",
                        shown(most)
                    )),
                    Some(limit) if quantity(Some(limit)) > quantity(Some(most)) => problems.push(format!(
                        "maximum {resource} usage per Container is {}, but limit is {}",
                        shown(most),
                        shown(limit)
                    )),
                    _ => {}
                }
                if let Some(request) = request
                    && quantity(Some(request)) > quantity(Some(most))
                {
                    problems.push(format!(
                        "maximum {resource} usage per Container is {}, but request is {}",
                        shown(most),
                        shown(request)
                    ));
                }
            }
            for (resource, least) in &min {
                match get("requests", resource) {
                    None => problems.push(format!(
                        "minimum {resource} usage per Container is {}.  No request is specified",
                        shown(least)
                    )),
                    Some(request) if quantity(Some(request)) < quantity(Some(least)) => {
                        problems.push(format!(
                            "minimum {resource} usage per Container is {}, but request is {}",
                            shown(least),
                            shown(request)
                        ));
                    }
                    _ => {}
                }
            }
            for (resource, most) in &ratio {
                let (limit, request) =
                    (quantity(get("limits", resource)), quantity(get("requests", resource)));
                if let (Some(limit), Some(request), Some(most_ratio)) = (limit, request, quantity(Some(most)))
                {
                    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
                    let found = limit.millis() as f64 / request.millis().max(1) as f64;
                    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
                    let allowed = most_ratio.millis() as f64 / 1000.0;
                    if found > allowed {
                        problems.push(format!(
                            "{resource} max limit to request ratio per Container is {}, but provided ratio is {found:.6}",
                            shown(most)
                        ));
                    }
                }
            }
        }
    }
    let why = match problems.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Err(Failure::forbidden(Named { name: text(pod, "/metadata/name"), ..ask.named() }, &why))
}

fn shown(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
