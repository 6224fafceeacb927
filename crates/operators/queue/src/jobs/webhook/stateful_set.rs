//! StatefulSets: their pods are one group, whose size is fixed while they run. As
//! `pkg/controller/jobs/statefulset/statefulset_webhook.go` of Kueue.

use std::collections::BTreeSet;

use quintet_api::kueue::metadata::POD_SUSPENDING_PARENT;
use quintet_controller::webhook::Verdict;
use serde_json::Value;

use super::super::pod::shape_of;
use super::defaulting::waits;
use super::{Facts, Kind, serving};
use crate::settings::{STATEFUL_SET, Settings};
use crate::validation::Errors;

pub(super) const KIND: Kind = Kind {
    group: "apps",
    version: "v1",
    name: "StatefulSet",
    resource: "statefulsets",
    mutating: "mstatefulset.kb.io",
    validating: "vstatefulset.kb.io",
    mutate_path: "/mutate-apps-v1-statefulset",
    validate_path: "/validate-apps-v1-statefulset",
    mutates: &["CREATE", "UPDATE"],
    is_enabled: |settings| settings.is_enabled(STATEFUL_SET),
    default,
    validate,
    is_suspended: |_| false,
    takes_prebuilt: false,
    takes_elastic: false,
    related_kinds: Vec::new,
    references: |_| Vec::new(),
};

const REPLICAS: &str = "spec.replicas";
const POD_SPEC: &str = "spec.template.spec";

/// Whether the StatefulSet is part of another kind of job, which stamps its pods itself.
fn is_of_another(object: &Value) -> bool {
    let parent = object["spec"]["template"]["metadata"]["annotations"][POD_SUSPENDING_PARENT].as_str();
    parent.is_some_and(|parent| parent != STATEFUL_SET)
}

fn default(object: &mut Value, facts: &Facts, settings: &Settings) -> Result<(), String> {
    if !is_of_another(object) {
        serving::default(object, STATEFUL_SET, facts, settings)?;
    }
    Ok(())
}

fn validate(object: &Value, old: Option<&Value>, kind: &Kind, facts: &Facts, settings: &Settings) -> Verdict {
    if is_of_another(object) {
        return Verdict::allow();
    }
    let mut errors = serving::check(object, old, kind, settings);
    if let Some(old) = old {
        match waits(object, facts, settings) {
            Ok(false) => {}
            Ok(true) => {
                let spec = |object: &'_ Value| object["spec"]["template"]["spec"].clone();
                shape(&spec(object), &spec(old), POD_SPEC, &mut errors);
                replicas(object, old, facts, &mut errors);
            }
            Err(why) => return Verdict::deny(why),
        }
    }
    errors.verdict()
}

/// What the Workload was admitted for does not change.
pub(super) fn shape(new: &Value, old: &Value, spec: &str, errors: &mut Errors) {
    let [new, old] = [new, old].map(shape_of);
    let shapes = [&new, &old].into_iter().filter_map(Value::as_object);
    let fields: BTreeSet<&String> = shapes.flat_map(serde_json::Map::keys).collect();
    for field in fields {
        let path = format!("{spec}.{field}");
        let value = &new[field];
        match (value.as_array(), old[field].as_array()) {
            (Some(own), Some(other)) if field.ends_with("ontainers") && own.len() == other.len() => {
                for (index, (own, other)) in own.iter().zip(other).enumerate() {
                    let path = format!("{path}[{index}]");
                    errors.immutable(format!("{path}.ports"), &own["ports"], &other["ports"]);
                    let requests = [own, other].map(|container| &container["resources"]["requests"]);
                    errors.immutable(format!("{path}.resources.requests"), requests[0], requests[1]);
                }
            }
            _ => errors.immutable(path, value, &old[field]),
        }
    }
}

/// A StatefulSet is scaled to none and from none, once nothing is left of what it was.
fn replicas(new: &Value, old: &Value, facts: &Facts, errors: &mut Errors) {
    let of = |object: &Value| object["spec"]["replicas"].as_i64().unwrap_or(1);
    match (of(old), of(new)) {
        (before, now) if before == now || now == 0 => {}
        (0, _) if new["status"]["replicas"].as_i64().unwrap_or_default() > 0 => {
            errors.forbidden(REPLICAS, "scaling down is still in progress");
        }
        (0, _) if facts.has_workload => {
            errors.forbidden(REPLICAS, "workload from previous scale-down is still being deleted");
        }
        (0, _) => {}
        (_, now) => errors.invalid(REPLICAS, now, "field is immutable"),
    }
}
