//! A bench for tests of plans: carries out the steps of a plan on objects in memory, as the executor does on a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use quintet_controller::cache::Entry;
use quintet_controller::object::ResourceVersion;
use quintet_controller::{Action, Event, ObjectKey, Plan};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::time;

/// The namespace of everything on a bench.
pub(crate) const NAMESPACE: &str = "ns";

/// Objects by kind and name.
pub(crate) struct Bench {
    objects: BTreeMap<(String, String), Value>,
    pub(crate) now: Timestamp,
    pub(crate) events: Vec<Event>,
    created: u32,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        Self { objects: BTreeMap::new(), now, events: Vec::new(), created: 0 }
    }

    pub(crate) fn wait(&mut self, seconds: i64) {
        self.now = time::after(self.now, seconds);
    }

    /// Adds an object, with a uid and the time of its creation.
    pub(crate) fn create(&mut self, kind: &str, mut object: Value) -> String {
        self.created += 1;
        let metadata = &mut object["metadata"];
        metadata["namespace"] = NAMESPACE.into();
        let uid = format!("uid-{}", self.created);
        for (field, value) in
            [("uid", json!(uid)), ("creationTimestamp", json!(self.now)), ("generation", json!(1))]
        {
            if metadata.get(field).is_none() {
                metadata[field] = value;
            }
        }
        let name = metadata["name"].as_str().unwrap().to_owned();
        let before = self.objects.insert((kind.to_owned(), name.clone()), object);
        assert!(before.is_none(), "{kind} {name} exists already");
        name
    }

    pub(crate) fn get(&self, kind: &str, name: &str) -> &Value {
        self.objects.get(&(kind.to_owned(), name.to_owned())).unwrap_or(&Value::Null)
    }

    /// Merges a patch into an object.
    pub(crate) fn patch(&mut self, kind: &str, name: &str, patch: &Value) {
        let object = self.objects.get_mut(&(kind.to_owned(), name.to_owned()));
        let object = object.unwrap_or_else(|| panic!("{kind} {name} does not exist"));
        let before = object["spec"].clone();
        merge(object, patch);
        count_generation(object, &before);
    }

    pub(crate) fn remove(&mut self, kind: &str, name: &str) {
        self.objects.remove(&(kind.to_owned(), name.to_owned()));
    }

    /// The names of all objects of a kind.
    pub(crate) fn names(&self, kind: &str) -> Vec<String> {
        self.objects.keys().filter(|(of, _)| of == kind).map(|(_, name)| name.clone()).collect()
    }

    pub(crate) fn entry<T: DeserializeOwned>(&self, kind: &str, name: &str) -> Arc<Entry<T>> {
        let object = self.get(kind, name);
        let mut entry =
            Entry::new(ObjectKey::new(NAMESPACE, name), serde_json::from_value(object.clone()).unwrap());
        entry.uid = object["metadata"]["uid"].as_str().unwrap().into();
        entry.deleting = object["metadata"].get("deletionTimestamp").is_some();
        entry.version = ResourceVersion(1);
        Arc::new(entry)
    }

    pub(crate) fn entries<T: DeserializeOwned>(&self, kind: &str) -> Vec<Arc<Entry<T>>> {
        self.names(kind).iter().map(|name| self.entry(kind, name)).collect()
    }

    /// Carries out a plan for a root; returns whether anything was written.
    pub(crate) fn act(&mut self, kind: &str, name: &str, plan: &Plan) -> bool {
        let plan = round_trip(plan);
        let is_empty = plan.steps.is_empty() && plan.status.is_none();
        for step in plan.steps {
            match step.action {
                Action::Create { object, .. } => {
                    let kind = object["kind"].as_str().unwrap().to_owned();
                    self.create(&kind, object);
                }
                Action::Delete { kind, key, .. } => self.delete(&kind.kind, key.name()),
                Action::Patch { kind, key, patch, .. } => {
                    self.patch_strategically(&kind.kind, key.name(), &patch);
                }
                action => panic!("unexpected {action}"),
            }
            self.events.extend(step.event);
        }
        if let Some(status) = plan.status {
            self.patch(kind, name, &json!({ "status": status.status }));
        }
        self.events.extend(plan.events);
        !is_empty
    }

    /// Deletes an object: one that has finalizers or runs on a node terminates.
    pub(crate) fn delete(&mut self, kind: &str, name: &str) {
        let now = self.now;
        let Some(object) = self.objects.get_mut(&(kind.to_owned(), name.to_owned())) else { return };
        let has_finalizers = object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        if has_finalizers || object["spec"].get("nodeName").is_some() {
            object["metadata"]["deletionTimestamp"] = json!(now);
        } else {
            self.remove(kind, name);
        }
    }

    fn patch_strategically(&mut self, kind: &str, name: &str, patch: &Value) {
        if let Value::Array(operations) = patch {
            let object = self.objects.get_mut(&(kind.to_owned(), name.to_owned())).unwrap();
            let before = object["spec"].clone();
            for operation in operations {
                operate(object, operation);
            }
            return count_generation(object, &before);
        }
        let mut patch = patch.clone();
        let metadata = patch["metadata"].as_object_mut().unwrap();
        metadata.remove("uid");
        if let Some(removed) = metadata.remove("$deleteFromPrimitiveList/finalizers") {
            let Some(object) = self.objects.get_mut(&(kind.to_owned(), name.to_owned())) else { return };
            if let Some(all) = object["metadata"]["finalizers"].as_array_mut() {
                all.retain(|one| !removed.as_array().unwrap().contains(one));
            }
        }
        self.patch(kind, name, &patch);
    }

    /// The reasons of all events, which are forgotten then.
    pub(crate) fn take_reasons(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events).into_iter().map(|event| event.reason).collect()
    }
}

/// Plans are stored and read back without loss.
fn round_trip(plan: &Plan) -> Plan {
    let text = serde_json::to_string(plan).unwrap();
    let read: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(read, *plan);
    read
}

/// An observed state survives being stored.
pub(crate) fn stored<T: Serialize + DeserializeOwned>(observed: &T) -> T {
    serde_json::from_str(&serde_json::to_string(observed).unwrap()).unwrap()
}

fn count_generation(object: &mut Value, before: &Value) {
    if object["spec"] != *before {
        object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64().unwrap() + 1);
    }
}

/// Carries out an operation of a JSON patch.
fn operate(object: &mut Value, operation: &Value) {
    let path = operation["path"].as_str().unwrap();
    match operation["op"].as_str().unwrap() {
        "test" => assert_eq!(object.pointer(path), Some(&operation["value"])),
        "replace" => *object.pointer_mut(path).unwrap() = operation["value"].clone(),
        "remove" => {
            let (parent, name) = path.rsplit_once('/').unwrap();
            let name = name.replace("~1", "/").replace("~0", "~");
            object.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(&name).unwrap();
        }
        other => panic!("unexpected operation {other}"),
    }
}

fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, change) in changes {
        if change.is_null() {
            object.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut object[name.as_str()], change);
        }
    }
}
