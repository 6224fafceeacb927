//! What the tables of decisions share.

use jiff::Timestamp;
use quintet_controller::{Controller, Plan, cache::Entry, object::ResourceVersion};
use serde_json::{Value, json};

/// The time at which tables play.
pub(crate) const NOW: &str = "2026-01-01T00:10:00Z";

pub(crate) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// `seconds` before the tables' time.
pub(crate) fn ago(seconds: i64) -> Timestamp {
    now() - jiff::SignedDuration::from_secs(seconds)
}

/// An object as a cache would hold it.
pub(crate) fn entry<T>(namespace: &str, name: &str, object: T) -> Entry<T> {
    let mut entry = Entry::new(quintet_controller::ObjectKey::new(namespace, name), object);
    entry.uid = format!("uid-of-{name}").as_str().into();
    entry.version = ResourceVersion(7);
    entry
}

/// `target` after an RFC 7386 patch.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, change) in changes {
        let fields = target.as_object_mut().unwrap();
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), change);
        }
    }
}

/// The plan for an observed state; the same state stored and read back gives the same plan.
pub(crate) fn replayed<C: Controller>(observed: &C::Observed) -> Plan<C::Call> {
    let plan = C::plan(observed);
    let stored = serde_json::to_string(observed).unwrap();
    assert_eq!(C::plan(&serde_json::from_str(&stored).unwrap()), plan, "the replayed plan differs");
    plan
}

/// What a plan does, one line for each step.
pub(crate) fn steps<C: std::fmt::Display>(plan: &Plan<C>) -> Vec<String> {
    plan.steps.iter().map(|step| step.action.to_string()).collect()
}

/// The events of a plan, those of its steps included.
pub(crate) fn events<C>(plan: &Plan<C>) -> Vec<String> {
    let of_steps = plan.steps.iter().filter_map(|step| step.event.as_ref());
    of_steps.chain(&plan.events).map(|event| event.reason.clone()).collect()
}

/// Holds a text against a file that a reviewer can read. `QUINTET_BLESS=1` writes it.
pub(crate) fn golden(file: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    if std::env::var_os("QUINTET_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{file} differs; look at it and run again with QUINTET_BLESS=1");
}

/// A small cluster that passes validation.
pub(crate) fn cluster_spec() -> Value {
    json!({
        "rayVersion": "2.53.0",
        "headGroupSpec": {
            "rayStartParams": {},
            "template": {"spec": {"containers": [{
                "name": "ray-head", "image": "rayproject/ray:2.53.0",
            }]}},
        },
        "workerGroupSpecs": [{
            "groupName": "small", "replicas": 1, "minReplicas": 0, "maxReplicas": 3, "rayStartParams": {},
            "template": {"spec": {"containers": [{
                "name": "ray-worker", "image": "rayproject/ray:2.53.0",
            }]}},
        }],
    })
}
