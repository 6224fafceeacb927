//! Keeping pods off nodes that Autopilot has marked. Nodes are marked by labels; the effect of each is configured.

use std::collections::BTreeMap;

use quintet_api::Quantity;
use quintet_api::config::codeflare::{Autopilot, ResourceTaint};
use serde_json::{Map, Value, json};

use crate::fields;

/// Adds node affinity for every configured resource that the pod uses. A malformed affinity is left as it is: the API
/// server reports to the user.
pub(super) fn inject(spec: &mut Map<String, Value>, autopilot: &Autopilot) {
    let used: Vec<_> = autopilot
        .resource_taints
        .iter()
        .filter(|(resource, _)| uses(spec, resource))
        .flat_map(|(_, taints)| taints)
        .collect();
    let weight = autopilot.prefer_no_schedule_weight.unwrap_or(1);
    if let Err(problem) = add(spec, &used, weight) {
        tracing::debug!(problem, "no anti-affinity is injected");
    }
}

/// Whether a container asks for a resource.
pub(crate) fn uses(spec: &Map<String, Value>, resource: &str) -> bool {
    let containers = ["initContainers", "containers"].iter().filter_map(|list| spec.get(*list)?.as_array());
    containers.flatten().any(|container| container_uses(container, resource))
}

/// Whether a container has a request or a limit of a resource that is not zero.
pub(crate) fn container_uses(container: &Value, resource: &str) -> bool {
    let amounts = ["requests", "limits"].map(|list| &container["resources"][list][resource]);
    amounts.into_iter().any(|amount| match amount {
        Value::String(text) => text.parse::<Quantity>().is_ok_and(|amount| amount != Quantity::default()),
        Value::Number(number) => number.as_f64().is_some_and(|amount| amount != 0.0),
        _ => false,
    })
}

fn add(spec: &mut Map<String, Value>, taints: &[&ResourceTaint], weight: i32) -> Result<(), String> {
    let of = |effects: &[&str]| {
        expressions(taints.iter().copied().filter(|taint| effects.contains(&taint.effect.as_str())))
    };
    let (required, preferred) = (of(&["NoExecute", "NoSchedule"]), of(&["PreferNoSchedule"]));
    if !required.is_empty() {
        let selector =
            fields::object(node_affinity(spec)?, "requiredDuringSchedulingIgnoredDuringExecution")?;
        let terms = fields::list(selector, "nodeSelectorTerms")?;
        if terms.is_empty() {
            terms.push(json!({}));
        }
        // Terms are alternatives: each has to exclude the nodes.
        for term in terms {
            let term = term.as_object_mut().ok_or("a node selector term is not an object")?;
            fields::list(term, "matchExpressions")?.extend(required.iter().cloned());
        }
    }
    if !preferred.is_empty() {
        let list = fields::list(node_affinity(spec)?, "preferredDuringSchedulingIgnoredDuringExecution")?;
        list.push(json!({"weight": weight, "preference": {"matchExpressions": preferred}}));
    }
    Ok(())
}

fn node_affinity(spec: &mut Map<String, Value>) -> Result<&mut Map<String, Value>, String> {
    fields::object(fields::object(spec, "affinity")?, "nodeAffinity")
}

/// One expression per label, with all values that exclude a node.
fn expressions<'a>(taints: impl Iterator<Item = &'a ResourceTaint>) -> Vec<Value> {
    let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for taint in taints {
        let of_key = values.entry(&taint.key).or_default();
        if !of_key.contains(&taint.value.as_str()) {
            of_key.push(&taint.value);
        }
    }
    values
        .into_iter()
        .map(|(key, values)| json!({"key": key, "operator": "NotIn", "values": values}))
        .collect()
}
