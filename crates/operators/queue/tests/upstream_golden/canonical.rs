//! Objects and texts as recordings have them: generated names, uids, times and nodes are markers.

use std::collections::{BTreeMap, BTreeSet};

use quintet_golden::{ObjectId, normalized};
use serde_json::{Map, Value, json};

/// Kinds whose status is recorded.
const WITH_STATUS: [&str; 6] =
    ["AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "ProvisioningRequest", "Workload"];
/// Lists and maps whose emptiness has a meaning of its own.
const MEANINGFUL_WHEN_EMPTY: [&str; 1] = ["namespaceSelector"];

/// Labels with hashes of pod templates, which every version of Kubernetes computes from other fields.
const TEMPLATE_HASHES: [&str; 2] = ["controller-revision-hash", "pod-template-hash"];
const TEMPLATE_HASH: &str = "<template hash>";

/// What generated names and uids are called in recordings.
#[derive(Default)]
pub(crate) struct Names {
    /// Recorded names by actual ones.
    by_actual: BTreeMap<String, String>,
    /// Uids of objects by kind, namespace and recorded name.
    uids: BTreeMap<String, String>,
    /// How many objects of a prefix there are.
    counts: BTreeMap<String, usize>,
    template_hashes: BTreeSet<String>,
}

/// A recording whose template hashes are markers.
pub(crate) fn without_template_hashes(case: &Value) -> Result<Value, String> {
    let steps = case["steps"].as_array().into_iter().flatten();
    let objects = steps.flat_map(|step| step["objects"].as_array().into_iter().flatten());
    let hashes: BTreeSet<String> = objects.flat_map(template_hashes).collect();
    serde_json::from_str(&marked(&case.to_string(), &hashes)).map_err(|error| error.to_string())
}

fn template_hashes(object: &Value) -> impl Iterator<Item = String> + '_ {
    let labels = TEMPLATE_HASHES.iter().filter_map(|name| object["metadata"]["labels"][name].as_str());
    labels.map(|label| label.rsplit('-').next().unwrap_or(label).to_owned())
}

fn marked(text: &str, hashes: &BTreeSet<String>) -> String {
    hashes.iter().fold(text.to_owned(), |text, hash| text.replace(hash, TEMPLATE_HASH))
}

impl Names {
    /// Takes in new objects.
    pub(crate) fn learn(&mut self, objects: &BTreeMap<ObjectId, Value>) {
        let mut fresh: Vec<(&ObjectId, &Value)> =
            objects.iter().filter(|(id, _)| !self.by_actual.contains_key(&id.name)).collect();
        fresh.sort_by_key(|(id, object)| {
            let created = object["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
            (created, id.name.clone())
        });
        self.template_hashes.extend(objects.values().flat_map(template_hashes));
        for (id, object) in fresh {
            if let Some((prefix, marker)) = generated(id, object) {
                let count = self.counts.entry(format!("{} {prefix}", id.kind)).or_default();
                *count += 1;
                let number = match (marker, *count) {
                    ("hash", 1) => "<hash>".to_owned(),
                    (marker, count) => format!("<{marker} {count}>"),
                };
                // The Workload of a pod has the generated name of that in its own.
                let prefix = self.by_actual.iter().fold(prefix.to_owned(), |prefix, (actual, name)| {
                    if prefix.contains(actual.as_str()) { prefix.replace(actual, name) } else { prefix }
                });
                let name = marked(&format!("{prefix}{number}"), &self.template_hashes);
                self.by_actual.insert(id.name.clone(), name);
            }
        }
        for (id, object) in objects {
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
            let name = self.by_actual.get(&id.name).unwrap_or(&id.name);
            self.uids.insert(format!("{} {}/{name} {uid}", id.kind, id.namespace), uid.to_owned());
        }
    }

    /// The object that a recording speaks of.
    pub(crate) fn resolve(&self, recorded: &ObjectId) -> ObjectId {
        let name =
            self.by_actual.iter().find(|(_, known)| **known == recorded.name).map(|(actual, _)| actual);
        ObjectId { name: name.cloned().unwrap_or_else(|| recorded.name.clone()), ..recorded.clone() }
    }

    /// An object to be created, with the uids of its owners.
    pub(crate) fn with_uids(&self, object: &Value) -> Value {
        let mut object = object.clone();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten() {
            let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
            let prefix = format!("{} {namespace}/{} ", text("kind"), text("name"));
            let known = self.uids.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
            if let Some((_, uid)) = known.last().filter(|_| owner["uid"] == "<uid>") {
                owner["uid"] = uid.clone().into();
            }
        }
        object
    }

    /// A text with markers.
    pub(crate) fn canonical_text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (actual, name) in self.by_actual.iter().rev() {
            if text.contains(actual) {
                text = text.replace(actual, name);
            }
        }
        for uid in self.uids.values().filter(|uid| !uid.is_empty()) {
            if text.contains(uid.as_str()) {
                text = text.replace(uid, "<uid>");
            }
        }
        marked(&without_seconds(&text), &self.template_hashes)
    }

    /// An object with markers, cut down as recordings are.
    pub(crate) fn canonical(&self, object: &Value) -> Value {
        let kind = object["kind"].as_str().unwrap_or_default();
        let object = if kind == "Pod" { pod(object) } else { object.clone() };
        let has_status = WITH_STATUS.contains(&kind) || kind == "Pod";
        recorded(&self.texts(&normalized(object, has_status)))
    }

    /// A value whose texts have markers.
    pub(crate) fn texts(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.canonical_text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.texts(item)).collect(),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| (name.clone(), self.texts(value)));
                Value::Object(fields.collect())
            }
            other => other.clone(),
        }
    }
}

/// Prefix and marker of a generated name.
fn generated<'i>(id: &'i ObjectId, object: &'i Value) -> Option<(&'i str, &'static str)> {
    let has_owner = object["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    match id.kind.as_str() {
        "Workload" if has_owner => {
            let (prefix, hash) = id.name.rsplit_once('-')?;
            let is_hash = hash.len() == 5 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_hash.then(|| (&id.name[..=prefix.len()], "hash"))
        }
        "Pod" if object["metadata"]["ownerReferences"][0]["kind"] != "StatefulSet" => {
            let end = id.name.rfind('-').filter(|_| has_owner)?;
            Some((&id.name[..=end], "pod"))
        }
        _ => None,
    }
}

/// Durations in messages.
fn without_seconds(text: &str) -> String {
    let Some((before, rest)) = text.split_once("wait time since ") else { return text.to_owned() };
    let Some((what, rest)) = rest.split_once(" was ") else { return text.to_owned() };
    let digits = rest.find(|own: char| !own.is_ascii_digit()).unwrap_or(rest.len());
    format!("{before}wait time since {what} was <seconds>{}", &rest[digits..])
}

/// Pods without what only the cluster decides.
pub(crate) fn pod(object: &Value) -> Value {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut metadata = object["metadata"].clone();
    if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations.retain(|name, _| !name.starts_with("node.quintet.dev/simulated"));
    }
    let added = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    let tolerations = spec["tolerations"].as_array().into_iter().flatten();
    let tolerations: Vec<&Value> =
        tolerations.filter(|own| !own["key"].as_str().is_some_and(|key| added.contains(&key))).collect();
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions: Vec<&Value> = conditions
        .filter(|own| own["type"] == "TerminationTarget" || own["reason"] == "SchedulingGated")
        .collect();
    let node = spec["nodeName"].as_str().map(|_| "<node>");
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": { "nodeName": node, "nodeSelector": spec["nodeSelector"], "schedulingGates": spec["schedulingGates"],
            "priorityClassName": spec["priorityClassName"],
            "tolerations": tolerations },
        "status": { "phase": status["phase"], "conditions": conditions } })
}

/// An object without what differs from run to run.
pub(crate) fn recorded(object: &Value) -> Value {
    let mut object = object.clone();
    let status = object["status"].as_object_mut();
    if let Some(accumulated) = status.and_then(|status| status.get_mut("accumulatedPastExecutionTimeSeconds"))
    {
        *accumulated = "<seconds>".into();
    }
    let sharing = object.pointer_mut("/status/fairSharing/admissionFairSharingStatus");
    if let Some(sharing) = sharing.and_then(Value::as_object_mut) {
        sharing.remove("lastUpdate");
        let consumed = sharing.get_mut("consumedResources").and_then(Value::as_object_mut);
        consumed.into_iter().flat_map(Map::values_mut).for_each(|usage| *usage = "<usage>".into());
    }
    for check in object["status"]["admissionChecks"].as_array_mut().into_iter().flatten() {
        check.as_object_mut().map(|check| check.remove("lastTransitionTime"));
    }
    // The controllers of the test choose names themselves.
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !["generateName", "deletionGracePeriodSeconds"].contains(&name.as_str()));
    }
    // The owners of a group are in no order.
    if let Some(owners) = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) {
        owners.sort_by_key(|owner| owner["name"].as_str().map(str::to_owned));
    }
    // Which of several equal pods has which place is not decided.
    if object["kind"] == "Pod"
        && let Some(selector) = object.pointer_mut("/spec/nodeSelector").and_then(Value::as_object_mut)
    {
        selector.remove("kubernetes.io/hostname");
    }
    // Kubernetes versions differ in what they write by default.
    if object["kind"] == "Job"
        && let Some(spec) = object["spec"].as_object_mut()
    {
        spec.retain(|name, _| !["manualSelector", "podReplacementPolicy"].contains(&name.as_str()));
    }
    object
}

/// Without nulls and empty lists and maps.
pub(crate) fn compact(value: &Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), compact(value)));
            let kept = |(key, value): &(String, Value)| {
                MEANINGFUL_WHEN_EMPTY.contains(&key.as_str()) || !is_empty(value)
            };
            Value::Object(fields.filter(kept).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(compact).collect()),
        other => other.clone(),
    }
}
