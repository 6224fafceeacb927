//! ResourceQuotas: how much of everything a namespace may have.

use std::collections::BTreeMap;

use quintet_api::Quantity;
use serde_json::{Value, json};

use crate::{
    json::{self, items, text},
    status::{Failure, Named},
    verbs::{Ask, update},
};

fn quantity(value: &Value) -> Quantity {
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
pub(crate) fn usage(group: &str, plural: &str, object: &Value) -> BTreeMap<String, Quantity> {
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

fn quotas(ask: &Ask) -> Vec<(String, Value)> {
    if !ask.resource.is_namespaced {
        return Vec::new();
    }
    let prefix = format!("{}/", ask.namespace);
    let listed = ask.api.store().list("core/resourcequotas", &prefix, None, None).map(|(entries, _)| entries);
    let listed = listed.unwrap_or_default();
    listed
        .iter()
        .map(|(key, entry)| {
            let name = crate::store::split_key(key).1.to_owned();
            (name, serde_json::from_slice(&entry.body).unwrap_or_default())
        })
        .collect()
}

/// Refuses an object that would use more than is left.
pub(super) fn check(ask: &Ask, object: &Value) -> Result<(), Failure> {
    if !ask.subresource.is_empty() {
        return Ok(());
    }
    let quotas = quotas(ask);
    if quotas.is_empty() {
        return Ok(());
    }
    let usage = usage(&ask.resource.group, &ask.resource.plural, object);
    let name = text(object, "/metadata/name");
    let forbidden = |why: &str| Err(Failure::forbidden(Named { name, ..ask.named() }, why));
    for (quota_name, quota) in quotas {
        let hard = quota.pointer("/status/hard").or_else(|| quota.pointer("/spec/hard"));
        let hard = hard.and_then(Value::as_object).cloned().unwrap_or_default();
        let (mut requested, mut used, mut limited) = (Vec::new(), Vec::new(), Vec::new());
        for (resource, most) in &hard {
            if ask.resource.is("", "pods")
                && (resource.starts_with("requests.")
                    || resource.starts_with("limits.")
                    || resource == "cpu"
                    || resource == "memory")
                && !resource.ends_with("storage")
            {
                let (kind, plain) = resource.split_once('.').unwrap_or(("requests", resource));
                let missing: Vec<&str> = items(object, "/spec/containers")
                    .iter()
                    .filter(|container| {
                        container.pointer(&format!("/resources/{kind}")).and_then(|r| r.get(plain)).is_none()
                    })
                    .map(|container| text(container, "/name"))
                    .collect();
                if !missing.is_empty() {
                    return forbidden(&format!(
                        "failed quota: {quota_name}: must specify {resource} for: {}",
                        missing.join(",")
                    ));
                }
            }
            let Some(asked) = usage.get(resource) else { continue };
            let present = quota.pointer("/status/used").and_then(|used| used.get(resource));
            let present = present.map(quantity).unwrap_or_default();
            if present + *asked > quantity(most) {
                requested.push(format!("{resource}={asked}"));
                used.push(format!("{resource}={present}"));
                limited.push(format!("{resource}={}", most.as_str().unwrap_or_default()));
            }
        }
        if !requested.is_empty() {
            return forbidden(&format!(
                "exceeded quota: {quota_name}, requested: {}, used: {}, limited: {}",
                requested.join(","),
                used.join(","),
                limited.join(",")
            ));
        }
    }
    Ok(())
}

/// Adds what a new object uses to the quotas of its namespace.
pub(crate) async fn settle(ask: &Ask, object: &Value) {
    if !ask.subresource.is_empty() || ask.options.is_dry_run {
        return;
    }
    let quotas = quotas(ask);
    if quotas.is_empty() {
        return;
    }
    let usage = usage(&ask.resource.group, &ask.resource.plural, object);
    let Ok(resource) = ask.api.built_in("", "resourcequotas") else { return };
    for (name, quota) in quotas {
        let hard = quota.pointer("/spec/hard").and_then(Value::as_object).cloned().unwrap_or_default();
        if !hard.keys().any(|resource| usage.contains_key(resource)) {
            continue;
        }
        let one = Ask::internal(&ask.api, &resource, &ask.namespace, &name).below("status");
        let (hard, usage) = (&hard, &usage);
        let outcome = Box::pin(update::update(
            &one,
            false,
            update::Made::Changed,
            move |mut quota: Value| async move {
                let status = json::child(json::as_map(&mut quota), "status");
                status.insert("hard".into(), Value::Object(hard.clone()));
                let used = json::child(status, "used");
                for resource in hard.keys() {
                    let before = used.get(resource).map(quantity).unwrap_or_default();
                    let now = usage.get(resource).map_or(before, |asked| before + *asked);
                    used.insert(resource.clone(), json!(now.to_string()));
                }
                Ok(quota)
            },
        ))
        .await;
        if let Err(failure) = outcome {
            tracing::debug!("quota {name} was not counted: {failure}");
        }
    }
}
