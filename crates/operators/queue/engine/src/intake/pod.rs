//! Pod specs: what a pod asks for and where it may run.

use std::collections::BTreeMap;
use std::sync::Arc;

use quintet_api::Quantity;
use serde_json::Value;

use super::Unreadable;
use super::json::{at, int, list, strings, text, texts};
use crate::labels::{
    Effect, NodeTerm, Operator, PreferredTerm, Requirement, Taint, Toleration, TolerationOperator,
};
use crate::model::PodShape;
use crate::names::{Names, ResourceId};
use crate::requests::{Requests, request_of};

/// Quantities by resource name.
pub type Quantities = BTreeMap<String, Quantity>;

/// Reads a resource list.
pub fn quantities(value: &Value) -> Result<Quantities, Unreadable> {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(name, value)| Ok((name.clone(), quantity(value)?))).collect()
}

/// Reads a quantity, written as text or as a number.
pub(super) fn quantity(value: &Value) -> Result<Quantity, Unreadable> {
    let unreadable = || Unreadable::new("quantity", value);
    match value {
        Value::String(text) => text.parse().map_err(|_| unreadable()),
        Value::Number(number) => number.to_string().parse().map_err(|_| unreadable()),
        _ => Err(unreadable()),
    }
}

/// A resource list as integers.
pub fn requests(quantities: &Quantities, names: &mut Names) -> Requests {
    quantities
        .iter()
        .map(|(name, quantity)| {
            let resource = names.resource(name);
            (resource, request_of(*quantity, resource == ResourceId::CPU))
        })
        .collect()
}

fn add(sum: &mut Quantities, other: &Quantities) {
    for (name, quantity) in other {
        let total = sum.entry(name.clone()).or_default();
        *total += *quantity;
    }
}

fn raise(most: &mut Quantities, other: &Quantities) {
    for (name, quantity) in other {
        let known = most.entry(name.clone()).or_insert(*quantity);
        *known = (*known).max(*quantity);
    }
}

/// What a pod asks of its node: containers and sidecars together, or the largest init container with the
/// sidecars before it, replaced by pod-level requests, plus overhead.
pub fn pod_requests(spec: &Value) -> Result<Quantities, Unreadable> {
    let of = |container: &Value| quantities(at(container, "resources.requests"));
    let mut total = Quantities::new();
    for container in list(spec, "containers") {
        add(&mut total, &of(container)?);
    }
    let mut sidecars = Quantities::new();
    let mut init = Quantities::new();
    for container in list(spec, "initContainers") {
        let own = of(container)?;
        if text(container, "restartPolicy") == Some("Always") {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut init, &sidecars);
        } else {
            let mut with_sidecars = own;
            add(&mut with_sidecars, &sidecars);
            raise(&mut init, &with_sidecars);
        }
    }
    raise(&mut total, &init);
    for (name, quantity) in quantities(at(spec, "resources.requests"))? {
        if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
            total.insert(name, quantity);
        }
    }
    add(&mut total, &quantities(at(spec, "overhead"))?);
    Ok(total)
}

/// The part of a pod spec that decides where it may run.
pub fn pod_shape(spec: &Value, names: &mut Names) -> Result<PodShape, Unreadable> {
    let affinity = at(spec, "affinity.nodeAffinity");
    let required = at(affinity, "requiredDuringSchedulingIgnoredDuringExecution");
    let preferred = list(affinity, "preferredDuringSchedulingIgnoredDuringExecution");
    Ok(PodShape {
        requests: requests(&pod_requests(spec)?, names),
        node_selector: strings(at(spec, "nodeSelector")),
        affinity: match required {
            Value::Null => None,
            required => {
                Some(list(required, "nodeSelectorTerms").iter().map(node_term).collect::<Result<_, _>>()?)
            }
        },
        preferred: preferred.iter().map(preferred_term).collect::<Result<_, _>>()?,
        tolerations: tolerations(at(spec, "tolerations"))?,
    })
}

fn preferred_term(value: &Value) -> Result<PreferredTerm, Unreadable> {
    Ok(PreferredTerm { weight: int(value, "weight").unwrap_or(0), term: node_term(at(value, "preference"))? })
}

fn node_term(value: &Value) -> Result<NodeTerm, Unreadable> {
    let read = |path| list(value, path).iter().map(requirement).collect::<Result<_, _>>();
    Ok(NodeTerm { expressions: read("matchExpressions")?, fields: read("matchFields")? })
}

pub(super) fn requirement(value: &Value) -> Result<Requirement, Unreadable> {
    let operator = text(value, "operator").unwrap_or("");
    Ok(Requirement {
        key: text(value, "key").unwrap_or("").into(),
        operator: Operator::parse(operator).ok_or_else(|| Unreadable::new("selector operator", operator))?,
        values: texts(value, "values"),
    })
}

pub(super) fn tolerations(value: &Value) -> Result<Vec<Toleration>, Unreadable> {
    value.as_array().into_iter().flatten().map(toleration).collect()
}

fn toleration(value: &Value) -> Result<Toleration, Unreadable> {
    let operator = text(value, "operator").unwrap_or("");
    Ok(Toleration {
        key: text(value, "key").unwrap_or("").into(),
        operator: match operator {
            "" | "Equal" => TolerationOperator::Equal,
            "Exists" => TolerationOperator::Exists,
            "Lt" => TolerationOperator::Lt,
            "Gt" => TolerationOperator::Gt,
            other => return Err(Unreadable::new("toleration operator", other)),
        },
        value: text(value, "value").unwrap_or("").into(),
        effect: effect(value)?,
    })
}

fn effect(value: &Value) -> Result<Option<Effect>, Unreadable> {
    match text(value, "effect") {
        None | Some("") => Ok(None),
        Some(text) => Effect::parse(text).map(Some).ok_or_else(|| Unreadable::new("taint effect", text)),
    }
}

pub(super) fn taints(value: &Value) -> Result<Vec<Taint>, Unreadable> {
    let read = |value: &Value| -> Result<Option<Taint>, Unreadable> {
        let name = |key| -> Arc<str> { text(value, key).unwrap_or("").into() };
        Ok(effect(value)?.map(|effect| Taint { key: name("key"), value: name("value"), effect }))
    };
    let taints: Result<Vec<_>, _> = value.as_array().into_iter().flatten().map(read).collect();
    Ok(taints?.into_iter().flatten().collect())
}
