//! The objects of the in-memory API, and the rules by which they change.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Group and version with plural, as in paths: `v1/configmaps`.
pub type Collection = String;
/// Collection, namespace, name.
pub type Place = (Collection, String, String);

#[derive(Clone, Debug)]
pub struct WatchEvent {
    pub version: u64,
    pub kind: &'static str,
    pub place: Place,
    pub object: Value,
    /// The labels before, to tell whether a selector was left or entered.
    pub before: Option<Value>,
}

#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
}

pub fn refuse<T>(code: u16, reason: &'static str, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { code, reason, message: message.into() })
}

#[derive(Clone, Copy, Debug)]
pub struct Served {
    pub kind: &'static str,
    pub api_version: &'static str,
    pub has_status: bool,
}

#[derive(Default)]
pub struct Store {
    pub served: BTreeMap<Collection, Served>,
    pub objects: BTreeMap<Place, Value>,
    pub version: u64,
    pub log: Vec<WatchEvent>,
    /// Watches from before this version are told 410.
    pub compacted: u64,
    /// How often an object was created under each name.
    pub creations: BTreeMap<String, u32>,
}

impl Store {
    pub fn create(&mut self, place: &Place, mut object: Value) -> Result<Value, Refusal> {
        if self.objects.contains_key(place) {
            return refuse(409, "AlreadyExists", format!("{} \"{}\" already exists", place.0, place.2));
        }
        let served = self.served[&place.0];
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.insert("name".into(), place.2.clone().into());
        if !place.1.is_empty() {
            metadata.insert("namespace".into(), place.1.clone().into());
        }
        metadata.insert("uid".into(), format!("uid-{}", self.version + 1).into());
        metadata.insert("creationTimestamp".into(), "2026-01-01T00:00:00Z".into());
        if served.has_status {
            metadata.insert("generation".into(), 1.into());
            object.as_object_mut().unwrap().remove("status");
        }
        object["kind"] = served.kind.into();
        object["apiVersion"] = served.api_version.into();
        *self.creations.entry(place.2.clone()).or_default() += 1;
        Ok(self.commit(place, "ADDED", object))
    }

    /// The objects as they were at `version`.
    pub fn objects_at(&self, version: u64) -> BTreeMap<&Place, &Value> {
        if version == self.version {
            return self.objects.iter().collect();
        }
        let mut objects = BTreeMap::new();
        for event in self.log.iter().take_while(|event| event.version <= version) {
            if event.kind == "DELETED" {
                objects.remove(&event.place);
            } else {
                objects.insert(&event.place, &event.object);
            }
        }
        objects
    }

    /// Replaces an object by what `change` makes of it.
    pub fn update(
        &mut self,
        place: &Place,
        subresource: bool,
        change: impl FnOnce(&mut Value) -> Result<(), Refusal>,
    ) -> Result<Value, Refusal> {
        let Some(old) = self.objects.get(place).cloned() else {
            return refuse(404, "NotFound", format!("{} \"{}\" not found", place.0, place.2));
        };
        let mut new = old.clone();
        change(&mut new)?;
        for (field, what) in [("uid", "uid"), ("resourceVersion", "object has been modified")] {
            if new["metadata"][field] != old["metadata"][field] {
                return refuse(
                    409,
                    "Conflict",
                    format!("the {what} of {} \"{}\" is another", place.0, place.2),
                );
            }
        }
        let served = self.served[&place.0];
        if served.has_status {
            // A write to the status changes nothing else, and other writes do not change the status.
            let (kept, source) = if subresource { (old.clone(), new) } else { (new, old.clone()) };
            new = kept;
            match source.get("status") {
                Some(status) => new["status"] = status.clone(),
                None => drop(new.as_object_mut().unwrap().remove("status")),
            }
            if new["spec"] != old["spec"] {
                new["metadata"]["generation"] = (old["metadata"]["generation"].as_i64().unwrap() + 1).into();
            }
        }
        if new == old {
            return Ok(old);
        }
        let finalizers = new["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
        if new["metadata"].get("deletionTimestamp").is_some() && finalizers == 0 {
            return Ok(self.remove(place, new));
        }
        Ok(self.commit(place, "MODIFIED", new))
    }

    pub fn delete(&mut self, place: &Place, uid: Option<&str>) -> Result<Value, Refusal> {
        let Some(object) = self.objects.get(place).cloned() else {
            return refuse(404, "NotFound", format!("{} \"{}\" not found", place.0, place.2));
        };
        if uid.is_some_and(|uid| object["metadata"]["uid"] != uid) {
            return refuse(409, "Conflict", "Precondition failed: UID in precondition");
        }
        if object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()) {
            return self.update(place, false, |object| {
                object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                Ok(())
            });
        }
        let uid = object["metadata"]["uid"].clone();
        self.remove(place, object);
        Ok(
            json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"name": place.2, "uid": uid}}),
        )
    }

    fn remove(&mut self, place: &Place, object: Value) -> Value {
        let uid = object["metadata"]["uid"].clone();
        let object = self.commit(place, "DELETED", object);
        self.objects.remove(place);
        // What it owned goes with it, as the garbage collector would see to.
        let owned = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid))
        };
        let orphans: Vec<_> =
            self.objects.iter().filter(|(_, object)| owned(object)).map(|(p, _)| p.clone()).collect();
        for orphan in orphans {
            self.delete(&orphan, None).unwrap();
        }
        object
    }

    fn commit(&mut self, place: &Place, kind: &'static str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let before = self.objects.insert(place.clone(), object.clone());
        let event =
            WatchEvent { version: self.version, kind, place: place.clone(), object: object.clone(), before };
        self.log.push(event);
        object
    }

    /// Server-side apply, with every list as a whole.
    pub fn apply(&mut self, place: &Place, manager: &str, wanted: &Value) -> Result<Value, Refusal> {
        let mut fields = wanted.clone();
        for path in ["apiVersion", "kind", "status"] {
            fields.as_object_mut().unwrap().remove(path);
        }
        for path in ["name", "namespace"] {
            fields["metadata"].as_object_mut().unwrap().remove(path);
        }
        let owned = field_set(&fields);
        let record = json!({"manager": manager, "operation": "Apply", "fieldsV1": owned});
        if !self.objects.contains_key(place) {
            let mut object = wanted.clone();
            object["metadata"]["managedFields"] = json!([record]);
            return self.create(place, object);
        }
        self.update(place, false, |live| {
            let records = live["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
            let (ours, mut others): (Vec<_>, Vec<_>) =
                records.into_iter().partition(|r| r["manager"] == manager);
            if let Some(before) = ours.first() {
                let others: Vec<_> = others.iter().map(|record| &record["fieldsV1"]).collect();
                remove_unwanted(live, &before["fieldsV1"], &owned, &others);
            }
            merge(live, &fields);
            others.push(record);
            live["metadata"]["managedFields"] = Value::Array(others);
            Ok(())
        })
    }
}

fn field_set(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields.iter().map(|(name, value)| (format!("f:{name}"), field_set(value))).collect(),
        ),
        _ => Value::Object(Map::new()),
    }
}

fn remove_unwanted(live: &mut Value, before: &Value, now: &Value, others: &[&Value]) {
    let (Some(fields), Some(before)) = (live.as_object_mut(), before.as_object()) else {
        return;
    };
    for (path, below) in before {
        let name = &path[2..];
        let others: Vec<_> = others.iter().filter_map(|other| other.get(path)).collect();
        match now.get(path) {
            Some(now) => {
                if let Some(live) = fields.get_mut(name) {
                    remove_unwanted(live, below, now, &others);
                }
            }
            None if others.is_empty() => drop(fields.remove(name)),
            None => {}
        }
    }
}

/// RFC 7386.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().unwrap();
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
