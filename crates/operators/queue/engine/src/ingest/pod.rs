//! Pod specs: what a pod requests and where it may run.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Container, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, PreferredSchedulingTerm,
    Taint as ApiTaint, Toleration as ApiToleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use quintet_api::Quantity;

use super::IngestError;
use crate::labels::{
    Effect, Labels, NodeTerm, Operator, PreferredTerm, Requirement, Taint, Toleration, TolerationOperator,
};
use crate::model::PodShape;
use crate::names::{Names, ResourceId};
use crate::requests::{Requests, request_of};

/// Quantities by resource name.
pub type Quantities = BTreeMap<String, Quantity>;

/// A resource list as the API has it.
pub type ResourceList = BTreeMap<String, ApiQuantity>;

/// Parses a resource list.
pub fn quantities(list: Option<&ResourceList>) -> Result<Quantities, IngestError> {
    let entries = list.into_iter().flatten();
    entries.map(|(name, value)| Ok((name.clone(), quantity(value)?))).collect()
}

/// Parses a quantity.
pub(super) fn quantity(value: &ApiQuantity) -> Result<Quantity, IngestError> {
    Quantity::try_from(value).map_err(|_| IngestError::new("quantity", &value.0))
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

pub(super) fn add(sum: &mut Quantities, other: &Quantities) {
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

fn container_requests(container: &Container) -> Result<Quantities, IngestError> {
    quantities(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
}

/// What a pod requests of its node: containers and sidecars together, or the largest init container with the
/// sidecars before it, replaced by pod-level requests, plus overhead. As `PodRequests` in Kubernetes'
/// `component-helpers/resource/helpers.go`.
pub fn pod_requests(spec: &PodSpec) -> Result<Quantities, IngestError> {
    let mut total = Quantities::new();
    for container in &spec.containers {
        add(&mut total, &container_requests(container)?);
    }
    let mut sidecars = Quantities::new();
    let mut init = Quantities::new();
    for container in spec.init_containers.iter().flatten() {
        let own = container_requests(container)?;
        if container.restart_policy.as_deref() == Some("Always") {
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
    let pod_level = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    for (name, quantity) in quantities(pod_level)? {
        if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
            total.insert(name, quantity);
        }
    }
    add(&mut total, &quantities(spec.overhead.as_ref())?);
    Ok(total)
}

/// The part of a pod spec that decides where it may run.
pub fn pod_shape(spec: &PodSpec, names: &mut Names) -> Result<PodShape, IngestError> {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let preferred =
        affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.map(|required| required.node_selector_terms.iter().map(node_term).collect());
    Ok(PodShape {
        requests: requests(&pod_requests(spec)?, names),
        node_selector: labels(spec.node_selector.as_ref()),
        affinity: terms.transpose()?,
        preferred: preferred.into_iter().flatten().map(preferred_term).collect::<Result<_, _>>()?,
        tolerations: tolerations(spec.tolerations.as_deref())?,
    })
}

/// Shared copies of a map of strings.
pub(super) fn labels(map: Option<&BTreeMap<String, String>>) -> Labels {
    map.into_iter().flatten().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
}

fn preferred_term(term: &PreferredSchedulingTerm) -> Result<PreferredTerm, IngestError> {
    Ok(PreferredTerm { weight: term.weight.into(), term: node_term(&term.preference)? })
}

fn node_term(term: &NodeSelectorTerm) -> Result<NodeTerm, IngestError> {
    let read = |requirements: &Option<Vec<NodeSelectorRequirement>>| {
        let own = requirements.iter().flatten();
        own.map(|own| requirement(&own.key, &own.operator, own.values.as_deref())).collect::<Result<_, _>>()
    };
    Ok(NodeTerm { expressions: read(&term.match_expressions)?, fields: read(&term.match_fields)? })
}

/// A requirement of a label selector or a node selector.
pub(super) fn requirement(
    key: &str,
    operator: &str,
    values: Option<&[String]>,
) -> Result<Requirement, IngestError> {
    Ok(Requirement {
        key: key.into(),
        operator: Operator::parse(operator).ok_or_else(|| IngestError::new("selector operator", operator))?,
        values: values.unwrap_or_default().iter().map(|value| value.as_str().into()).collect(),
    })
}

pub(super) fn tolerations(list: Option<&[ApiToleration]>) -> Result<Vec<Toleration>, IngestError> {
    list.unwrap_or_default().iter().map(toleration).collect()
}

fn toleration(toleration: &ApiToleration) -> Result<Toleration, IngestError> {
    Ok(Toleration {
        key: toleration.key.as_deref().unwrap_or("").into(),
        operator: match toleration.operator.as_deref().unwrap_or("") {
            "" | "Equal" => TolerationOperator::Equal,
            "Exists" => TolerationOperator::Exists,
            "Lt" => TolerationOperator::Lt,
            "Gt" => TolerationOperator::Gt,
            other => return Err(IngestError::new("toleration operator", other)),
        },
        value: toleration.value.as_deref().unwrap_or("").into(),
        effect: effect(toleration.effect.as_deref().unwrap_or(""))?,
    })
}

fn effect(text: &str) -> Result<Option<Effect>, IngestError> {
    if text.is_empty() {
        return Ok(None);
    }
    Effect::parse(text).map(Some).ok_or_else(|| IngestError::new("taint effect", text))
}

/// Taints; those without an effect have none.
pub(super) fn taints(list: Option<&[ApiTaint]>) -> Result<Vec<Taint>, IngestError> {
    let mut taints = Vec::new();
    for taint in list.unwrap_or_default() {
        let value: Arc<str> = taint.value.as_deref().unwrap_or("").into();
        let effect = effect(&taint.effect)?;
        taints.extend(effect.map(|effect| Taint { key: taint.key.as_str().into(), value, effect }));
    }
    Ok(taints)
}
