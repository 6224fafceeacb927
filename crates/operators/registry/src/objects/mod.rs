//! Objects that registries and the catalog have in common.

mod access;
mod gateway;
mod proxy;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use quintet_api::quantity;
use serde_json::{Map, Value, json};

pub(crate) use access::{auth_delegator, group_binding, https_policy, https_route, reader_rules};
pub(crate) use gateway::{http_route, reference_grant};
pub(crate) use proxy::{Certificate, Proxy};

/// The namespace and the owner of objects.
#[derive(Clone, Debug)]
pub(crate) struct Home<'a> {
    pub(crate) namespace: &'a str,
    /// The controller reference.
    pub(crate) owner: Value,
}

impl Home<'_> {
    /// Metadata of an object here, which goes with its owner.
    pub(crate) fn metadata(&self, name: &str, labels: &Map<String, Value>) -> Value {
        json!({
            "name": name, "namespace": self.namespace, "labels": labels, "ownerReferences": [self.owner],
        })
    }
}

/// An amount as the API server writes it.
pub(crate) fn canonical(amount: &Quantity) -> String {
    match amount.0.parse::<quantity::Quantity>() {
        Ok(parsed) => parsed.to_string(),
        Err(_) => amount.0.clone(),
    }
}

/// Requests and limits of a container; claims are not rendered. Amounts are written as the API server writes them.
pub(crate) fn resources(wanted: &ResourceRequirements) -> Value {
    let mut resources = Map::new();
    for (name, amounts) in [("requests", &wanted.requests), ("limits", &wanted.limits)] {
        let amounts = amounts.iter().flatten().map(|(name, amount)| (name.clone(), canonical(amount).into()));
        let amounts: Map<String, Value> = amounts.collect();
        let value = if amounts.is_empty() { Value::Null } else { Value::Object(amounts) };
        resources.insert(name.to_owned(), value);
    }
    Value::Object(resources)
}

/// Requests and limits by cpu and memory.
pub(crate) fn requirements(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ResourceRequirements {
    let amounts = |amounts: &[(&str, &str)]| {
        let amount = |(name, amount): &(&str, &str)| ((*name).to_owned(), Quantity((*amount).to_owned()));
        Some(amounts.iter().map(amount).collect())
    };
    ResourceRequirements { requests: amounts(requests), limits: amounts(limits), claims: None }
}

/// What servers and proxies request unless users say otherwise.
pub(crate) fn server_requirements() -> ResourceRequirements {
    requirements(&[("cpu", "100m"), ("memory", "256Mi")], &[("memory", "256Mi")])
}

/// What databases request unless users say otherwise.
pub(crate) fn database_requirements() -> ResourceRequirements {
    requirements(&[("cpu", "250m"), ("memory", "256Mi")], &[("cpu", "500m"), ("memory", "512Mi")])
}

/// The security context of a container that needs no rights.
pub(crate) fn restricted() -> Value {
    json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } })
}

/// The security context of a pod that needs no rights.
pub(crate) fn restricted_pod() -> Value {
    json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } })
}

/// A variable from a Secret.
pub(crate) fn secret_variable(name: &str, secret: &str, key: &str) -> Value {
    json!({ "name": name, "valueFrom": { "secretKeyRef": { "name": secret, "key": key } } })
}

/// How often a probe asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) delay: i32,
    pub(crate) period: i32,
    pub(crate) timeout: i32,
    pub(crate) failures: i32,
}

/// A probe that does `action`, such as `{"httpGet": …}`.
pub(crate) fn probe(action: Value, timing: Timing) -> Value {
    let mut probe = action;
    probe["initialDelaySeconds"] = timing.delay.into();
    probe["periodSeconds"] = timing.period.into();
    probe["timeoutSeconds"] = timing.timeout.into();
    probe["failureThreshold"] = timing.failures.into();
    probe
}

/// Ingress to selected pods at one port from these peers, and nothing else.
pub(crate) fn ingress_policy(metadata: &Value, pods: &Value, from: &Value, port: i32) -> Value {
    json!({
        "metadata": metadata,
        "spec": {
            "podSelector": { "matchLabels": pods },
            "policyTypes": ["Ingress"],
            "ingress": [{ "from": from, "ports": [{ "protocol": "TCP", "port": port }] }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_canonical_and_claims_left_out() {
        let mut wanted = requirements(&[("cpu", "1000m"), ("memory", "1024Mi")], &[]);
        wanted.claims = Some(Vec::new());
        let rendered = json!({ "requests": { "cpu": "1", "memory": "1Gi" }, "limits": null });
        assert_eq!(resources(&wanted), rendered);
    }
}
