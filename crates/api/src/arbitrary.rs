//! Objects made up from their schemas, for property tests.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::crd::{self, Kind};
use crate::kueue::v1beta2::TopologyAssignment;

/// Schemas are dear to make and cheap to keep.
static SCHEMAS: LazyLock<BTreeMap<(&str, &str), Value>> = LazyLock::new(|| {
    crd::kinds().iter().map(|kind| ((kind.api_version, kind.name), (kind.schema)())).collect()
});

/// Values that CEL rules or another version restrict further than the schema at hand; null leaves them out.
fn restricted(field: &str) -> Option<Value> {
    match field {
        "admissionMode" => Some(json!("NoAdmissionFairSharing")),
        "delayedTopologyRequest" => Some(json!("Pending")),
        "generateDeployment" | "oauthProxy" => Some(Value::Null),
        "priorityClassRef" => {
            Some(json!({ "group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "a" }))
        }
        _ => None,
    }
}

/// Deeper than this, only required fields are filled in; pod templates have no end otherwise.
const FULL_DEPTH: u32 = 7;

/// An object of a kind; the same seed makes the same object.
pub(crate) fn object(kind: &Kind, seed: u64) -> Value {
    let mut object = Maker { state: seed }.value(&SCHEMAS[&(kind.api_version, kind.name)], 0);
    object["apiVersion"] = json!(kind.api_version);
    object["kind"] = json!(kind.name);
    object["metadata"] = json!({ "name": "a", "labels": { "seed": seed.to_string() } });
    object
}

/// Whether everything in `before` is still in `after`, in the same place.
pub(crate) fn keeps(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before
            .iter()
            .all(|(key, value)| value.is_null() || after.get(key).is_some_and(|kept| keeps(value, kept))),
        (Value::Array(before), Value::Array(after)) => {
            before.len() == after.len()
                && before.iter().zip(after).all(|(before, after)| keeps(before, after))
        }
        _ => before == after,
    }
}

struct Maker {
    state: u64,
}

impl Maker {
    /// SplitMix64: small, and good enough to vary objects.
    fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }

    fn value(&mut self, schema: &Value, depth: u32) -> Value {
        if schema["x-kubernetes-int-or-string"] == true {
            return json!(format!("{}", self.below(100)));
        }
        if let Some(choices) = schema["enum"].as_array() {
            let choice = usize::try_from(self.below(choices.len() as u64)).unwrap();
            return choices[choice].clone();
        }
        match schema["type"].as_str() {
            Some("string") if schema["format"] == "date-time" => {
                json!(format!("2025-01-01T00:00:{:02}Z", self.below(60)))
            }
            Some("string") => json!(format!("a{}", self.below(9))),
            Some("integer") => {
                json!(schema["minimum"].as_i64().unwrap_or(0) + i64::try_from(self.below(9)).unwrap())
            }
            Some("number") => json!(f64::from(u32::try_from(self.below(9)).unwrap()) / 10.0),
            Some("boolean") => json!(self.below(2) == 1),
            Some("array") => self.list(schema, depth),
            Some("object") if schema["properties"].is_object() => self.fields(schema, depth),
            Some("object") if schema["additionalProperties"].is_object() => {
                let entries = self.below(3);
                let value = &schema["additionalProperties"];
                (0..entries)
                    .map(|entry| (format!("k{entry}"), self.value(value, depth + 1)))
                    .collect::<Map<_, _>>()
                    .into()
            }
            _ => json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "inner" } }),
        }
    }

    fn list(&mut self, schema: &Value, depth: u32) -> Value {
        let length = self.below(3).max(schema["minItems"].as_u64().unwrap_or(0));
        let mut items: Vec<Value> = (0..length).map(|_| self.value(&schema["items"], depth + 1)).collect();
        if schema["x-kubernetes-list-map-keys"] == json!(["name"]) {
            for (position, item) in items.iter_mut().enumerate() {
                item["name"] = json!(format!("n{position}"));
            }
        }
        items.into()
    }

    /// CEL rules want the slices of a topology assignment to be consistent.
    fn topology_assignment(&mut self) -> Value {
        let count = self.below(4);
        let domains = (0..count).map(|_| {
            let values = (0..2).map(|_| format!("node-{}", self.below(3))).collect();
            (values, i32::try_from(self.below(3)).unwrap() + 1)
        });
        let levels = vec!["block".into(), "host".into()];
        serde_json::to_value(TopologyAssignment::from_domains(levels, &domains.collect::<Vec<_>>())).unwrap()
    }

    fn fields(&mut self, schema: &Value, depth: u32) -> Value {
        if schema["properties"]["slices"].is_object() {
            return self.topology_assignment();
        }
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let mut fields = Map::new();
        for (name, field) in schema["properties"].as_object().unwrap() {
            let is_type = name == "apiVersion" || name == "kind";
            let is_wanted = depth < FULL_DEPTH && !is_type && self.below(2) == 1;
            if is_wanted || required.contains(&json!(name)) {
                let value = restricted(name).unwrap_or_else(|| self.value(field, depth + 1));
                if !value.is_null() {
                    fields.insert(name.clone(), value);
                }
            }
        }
        fields.into()
    }
}
