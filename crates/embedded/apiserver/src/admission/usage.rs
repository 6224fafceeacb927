//! Usage of quota by objects: which resources, how much, in which scopes.

use std::collections::BTreeMap;

use quintet_api::Quantity;
use serde_json::Value;

use crate::json::{items, text};

/// What an object uses up.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    /// By the names of quotas.
    pub(crate) amounts: BTreeMap<String, Quantity>,
    /// What scopes of quotas look at; only pods have any.
    pub(crate) traits: Option<ScopeTraits>,
}

/// What the scopes of quotas tell apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScopeTraits {
    has_deadline: bool,
    is_best_effort: bool,
    looks_into_other_namespaces: bool,
    priority_class: String,
}

impl ScopeTraits {
    fn of(pod: &Value) -> Self {
        let containers = items(pod, "/spec/initContainers").iter().chain(items(pod, "/spec/containers"));
        let asks = |container: &Value| {
            ["requests", "limits"].iter().any(|kind| {
                let amounts = container.pointer(&format!("/resources/{kind}")).and_then(Value::as_object);
                amounts.into_iter().flatten().any(|(name, amount)| {
                    matches!(name.as_str(), "cpu" | "memory") && quantity(amount) > Quantity::default()
                })
            })
        };
        let mut terms = ["podAffinity", "podAntiAffinity"].iter().flat_map(|kind| {
            let under = format!("/spec/affinity/{kind}");
            let required = items(pod, &format!("{under}/requiredDuringSchedulingIgnoredDuringExecution"));
            let preferred = items(pod, &format!("{under}/preferredDuringSchedulingIgnoredDuringExecution"));
            required.iter().chain(preferred.iter().filter_map(|one| one.get("podAffinityTerm")))
        });
        Self {
            has_deadline: pod.pointer("/spec/activeDeadlineSeconds").is_some_and(Value::is_number),
            is_best_effort: !containers.into_iter().any(asks),
            looks_into_other_namespaces: terms.any(|term| {
                !items(term, "/namespaces").is_empty()
                    || term.get("namespaceSelector").is_some_and(Value::is_object)
            }),
            priority_class: text(pod, "/spec/priorityClassName").to_owned(),
        }
    }

    /// Whether a quota is about objects with these traits, or without any.
    pub(crate) fn are_in_scope(traits: Option<&Self>, quota: &Value) -> bool {
        let plain = items(quota, "/spec/scopes").iter().filter_map(Value::as_str);
        let selected = items(quota, "/spec/scopeSelector/matchExpressions");
        let mut scopes = plain.map(|scope| (scope, "Exists", &[][..])).chain(
            selected
                .iter()
                .map(|one| (text(one, "/scopeName"), text(one, "/operator"), items(one, "/values"))),
        );
        scopes.all(|(scope, operator, values)| {
            traits.is_some_and(|traits| traits.meets(scope, operator, values))
        })
    }

    fn meets(&self, scope: &str, operator: &str, values: &[Value]) -> bool {
        match scope {
            "Terminating" => self.has_deadline,
            "NotTerminating" => !self.has_deadline,
            "BestEffort" => self.is_best_effort,
            "NotBestEffort" => !self.is_best_effort,
            "CrossNamespacePodAffinity" => self.looks_into_other_namespaces,
            "PriorityClass" => {
                let is_listed = values.iter().any(|value| *value == *self.priority_class);
                match operator {
                    "In" => is_listed,
                    "NotIn" => !is_listed,
                    "DoesNotExist" => self.priority_class.is_empty(),
                    _ => !self.priority_class.is_empty(),
                }
            }
            _ => false,
        }
    }
}

impl Usage {
    /// Whether a quota is about the object at all.
    pub(crate) fn is_in_scope(&self, quota: &Value) -> bool {
        ScopeTraits::are_in_scope(self.traits.as_ref(), quota)
    }
}

/// What a pod asks for as a whole: its containers together, or the init container that asks for most where that is
/// more. Init containers that keep running count beside all that start after them.
pub(crate) fn pod_total(pod: &Value, kind: &str) -> BTreeMap<String, Quantity> {
    let amounts = |container: &Value| -> BTreeMap<String, Quantity> {
        let amounts = container.pointer(&format!("/resources/{kind}")).and_then(Value::as_object);
        amounts.into_iter().flatten().map(|(name, amount)| (name.clone(), quantity(amount))).collect()
    };
    let add = |to: &mut BTreeMap<String, Quantity>, more: &BTreeMap<String, Quantity>| {
        for (name, amount) in more {
            *to.entry(name.clone()).or_default() += *amount;
        }
    };
    let raise = |to: &mut BTreeMap<String, Quantity>, other: BTreeMap<String, Quantity>| {
        for (name, amount) in other {
            let most = to.entry(name).or_default();
            *most = (*most).max(amount);
        }
    };
    let (mut running, mut beside, mut starting) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for container in items(pod, "/spec/containers") {
        add(&mut running, &amounts(container));
    }
    for container in items(pod, "/spec/initContainers") {
        let mut own = amounts(container);
        if text(container, "/restartPolicy") == "Always" {
            add(&mut running, &own);
            add(&mut beside, &own);
            raise(&mut starting, beside.clone());
        } else {
            add(&mut own, &beside);
            raise(&mut starting, own);
        }
    }
    raise(&mut running, starting);
    running
}

/// The same with what running the pod costs in itself.
fn with_overhead(pod: &Value, kind: &str) -> BTreeMap<String, Quantity> {
    let mut total = pod_total(pod, kind);
    for (name, amount) in pod.pointer("/spec/overhead").and_then(Value::as_object).into_iter().flatten() {
        // What is not limited is not limited by this either.
        if kind == "requests" || total.contains_key(name) {
            *total.entry(name.clone()).or_default() += quantity(amount);
        }
    }
    total
}

pub(crate) fn quantity(value: &Value) -> Quantity {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The group and plural of what a quota on `resource` counts.
pub(crate) fn counted_by(resource: &str) -> Option<(String, String)> {
    let core = |plural: &str| Some((String::new(), plural.to_owned()));
    if let Some(counted) = resource.strip_prefix("count/") {
        let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
        return Some((group.to_owned(), plural.to_owned()));
    }
    match resource {
        "requests.storage" => core("persistentvolumeclaims"),
        "services.nodeports" | "services.loadbalancers" => core("services"),
        "cpu" | "memory" | "ephemeral-storage" => core("pods"),
        _ if resource.starts_with("requests.") || resource.starts_with("limits.") => core("pods"),
        plural if !plural.contains(['.', '/']) => core(plural),
        _ => None,
    }
}

/// Whether objects of a kind use more or less by what is in them; all others count as one each.
pub(crate) fn depends_on_content(group: &str, plural: &str) -> bool {
    group.is_empty() && matches!(plural, "pods" | "services" | "persistentvolumeclaims")
}

/// What an object uses up, by the names of quotas. Pods that have ended use nothing but their count.
pub(crate) fn usage(group: &str, plural: &str, object: &Value) -> Usage {
    let mut used = BTreeMap::new();
    let one: Quantity = "1".parse().unwrap_or_default();
    let counted = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    used.insert(format!("count/{counted}"), one);
    if group.is_empty()
        && matches!(
            plural,
            "pods"
                | "services"
                | "secrets"
                | "configmaps"
                | "persistentvolumeclaims"
                | "replicationcontrollers"
                | "resourcequotas"
        )
    {
        used.insert(plural.to_owned(), one);
    }
    let is_pod = (group, plural) == ("", "pods");
    match (group, plural) {
        ("", "pods") if matches!(text(object, "/status/phase"), "Succeeded" | "Failed") => {
            used.remove("pods");
        }
        ("", "pods") => {
            for (name, amount) in with_overhead(object, "requests") {
                used.insert(format!("requests.{name}"), amount);
                if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
                    used.insert(name, amount);
                }
            }
            for (name, amount) in with_overhead(object, "limits") {
                used.insert(format!("limits.{name}"), amount);
            }
        }
        ("", "services") => {
            let ports = items(object, "/spec/ports");
            let has_all = object.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
            let node_ports = match text(object, "/spec/type") {
                "NodePort" => ports.len(),
                "LoadBalancer" if has_all => ports.len(),
                "LoadBalancer" => ports.iter().filter(|port| port.get("nodePort").is_some()).count(),
                _ => 0,
            };
            if text(object, "/spec/type") == "LoadBalancer" {
                used.insert("services.loadbalancers".into(), one);
            }
            if node_ports > 0 {
                used.insert("services.nodeports".into(), node_ports.to_string().parse().unwrap_or_default());
            }
        }
        ("", "persistentvolumeclaims") => {
            if let Some(amount) = object.pointer("/spec/resources/requests/storage") {
                used.insert("requests.storage".into(), quantity(amount));
            }
        }
        _ => {}
    }
    Usage { amounts: used, traits: is_pod.then(|| ScopeTraits::of(object)) }
}
