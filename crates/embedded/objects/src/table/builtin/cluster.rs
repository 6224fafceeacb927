//! What belongs to the cluster and its namespaces.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::age;
use super::{born, created, items, joined, name, none_if_empty, number, plain, text};

pub(super) fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = items(object, "/status/conditions").iter().find(|one| text(one, "/type") == "Ready");
    let mut status = match ready.map(|one| text(one, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object.pointer("/spec/unschedulable") == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    let address = |kind: &str| {
        let found = items(object, "/status/addresses").iter().find(|one| text(one, "/type") == kind);
        none_if_empty(found.map_or("", |one| text(one, "/address")))
    };
    let info = |field: &str| {
        let shown = text(object, &format!("/status/nodeInfo/{field}"));
        json!(if shown.is_empty() { "<unknown>" } else { shown })
    };
    vec![
        name(object),
        json!(status),
        none_if_empty(&roles.join(",")),
        born(object, now),
        json!(text(object, "/status/nodeInfo/kubeletVersion")),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

pub(super) fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let pick = |core: &'static str, events: &'static str| {
        if object.pointer(core).is_some() { core } else { events }
    };
    let time = |value: &Value, pointers: &[&str]| -> Option<String> {
        pointers.iter().find_map(|pointer| value.pointer(pointer)?.as_str().map(Into::into))
    };
    let first = time(object, &["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let last = time(object, &["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp"])
        .or_else(|| first.clone());
    let about = pick("/involvedObject", "/regarding");
    let target = object.pointer(about).unwrap_or(&Value::Null);
    let source = pick("/source", "/deprecatedSource");
    let mut component = text(object, &format!("{source}/component")).to_owned();
    if component.is_empty() {
        component = text(object, pick("/reportingComponent", "/reportingController")).into();
    }
    let host = text(object, &format!("{source}/host"));
    if !host.is_empty() {
        component = format!("{component}, {host}");
    }
    let times = number(object, "/series/count")
        .or_else(|| number(object, "/count"))
        .or_else(|| number(object, "/deprecatedCount"))
        .unwrap_or(1);
    vec![
        json!(age::since(last.as_deref(), now)),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(format!("{}/{}", text(target, "/kind").to_lowercase(), text(target, "/name"))),
        json!(text(target, "/fieldPath")),
        json!(component),
        json!(text(object, pick("/message", "/note")).trim()),
        json!(age::since(first.as_deref(), now)),
        json!(times),
        name(object),
    ]
}

pub(super) fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let of = |kind: &str| {
        let found = items(object, "/subjects").iter().filter(|one| text(one, "/kind") == kind);
        let shown = found.map(|one| match text(one, "/namespace") {
            "" => text(one, "/name").to_owned(),
            namespace => format!("{namespace}/{}", text(one, "/name")),
        });
        json!(shown.collect::<Vec<_>>().join(", "))
    };
    vec![
        name(object),
        json!(format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"))),
        born(object, now),
        of("User"),
        of("Group"),
        of("ServiceAccount"),
    ]
}

pub(super) fn quota(object: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let hard = object.pointer("/status/hard").or_else(|| object.pointer("/spec/hard"));
    for (resource, amount) in hard.and_then(Value::as_object).into_iter().flatten() {
        let used = object
            .pointer("/status/used")
            .and_then(|used| used.get(resource))
            .map_or_else(|| "0".into(), plain);
        let shown = format!("{resource}: {used}/{}", plain(amount));
        if resource.starts_with("limits.") { limits.push(shown) } else { requests.push(shown) }
    }
    vec![name(object), json!(requests.join(", ")), json!(limits.join(", ")), born(object, now)]
}

pub(super) fn definition(object: &Value, _now: Timestamp) -> Vec<Value> {
    let established =
        items(object, "/status/conditions").iter().find(|one| text(one, "/type") == "Established");
    vec![
        name(object),
        json!(text(object, "/spec/scope")),
        json!(joined(items(object, "/spec/versions"), |version| text(version, "/name").into())),
        created(object),
        json!(text(object, "/spec/group")),
        json!(text(object, "/spec/names/kind")),
        json!(joined(items(object, "/spec/names/shortNames"), plain)),
        json!(established.map_or("", |one| text(one, "/status"))),
    ]
}
