//! What quotas count: which objects, and how much each of them uses.

use std::collections::BTreeMap;

use quintet_api::Quantity;
use serde_json::Value;

use crate::json::{items, text};

/// Amounts by the names of quotas.
pub(crate) type Usage = BTreeMap<String, Quantity>;

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
    match (group, plural) {
        ("", "pods") if matches!(text(object, "/status/phase"), "Succeeded" | "Failed") => {
            used.remove("pods");
        }
        ("", "pods") => {
            for container in items(object, "/spec/containers") {
                for (kind, prefix) in [("requests", "requests."), ("limits", "limits.")] {
                    let amounts = container.pointer(&format!("/resources/{kind}")).and_then(Value::as_object);
                    for (resource, amount) in amounts.into_iter().flatten() {
                        let total = used.entry(format!("{prefix}{resource}")).or_default();
                        *total += quantity(amount);
                        if kind == "requests"
                            && matches!(resource.as_str(), "cpu" | "memory" | "ephemeral-storage")
                        {
                            let total = used.entry(resource.clone()).or_default();
                            *total += quantity(amount);
                        }
                    }
                }
            }
        }
        ("", "services") => match text(object, "/spec/type") {
            "NodePort" => drop(used.insert("services.nodeports".into(), one)),
            "LoadBalancer" => {
                used.insert("services.loadbalancers".into(), one);
                used.insert("services.nodeports".into(), one);
            }
            _ => {}
        },
        ("", "persistentvolumeclaims") => {
            if let Some(amount) = object.pointer("/spec/resources/requests/storage") {
                used.insert("requests.storage".into(), quantity(amount));
            }
        }
        _ => {}
    }
    used
}
