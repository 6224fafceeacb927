//! Taints and tolerations.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Pods are not scheduled onto the node.
pub(crate) const NO_SCHEDULE: &str = "NoSchedule";
/// Pods are evicted from the node, and not scheduled onto it.
pub(crate) const NO_EXECUTE: &str = "NoExecute";
/// Other nodes are preferred.
pub(crate) const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";

/// Whether a toleration tolerates a taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if (!effect.is_empty() && effect != taint.effect) || (!key.is_empty() && key != taint.key) {
        return false;
    }
    let value = |value: &Option<String>| value.clone().unwrap_or_default();
    let (wanted, found) = (value(&toleration.value), value(&taint.value));
    let numbers = || Some((found.parse::<i64>().ok()?, wanted.parse::<i64>().ok()?));
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        Some("Gt") => numbers().is_some_and(|(found, wanted)| found > wanted),
        Some("Lt") => numbers().is_some_and(|(found, wanted)| found < wanted),
        // An empty key tolerates everything, but only with operator Exists.
        _ => !key.is_empty() && wanted == found,
    }
}

/// Whether all taints with one of these effects are tolerated.
pub(crate) fn are_tolerated(taints: &[Taint], tolerations: &[Toleration], effects: &[&str]) -> bool {
    taints
        .iter()
        .filter(|taint| effects.contains(&taint.effect.as_str()))
        .all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn tolerations_match_by_key_value_and_effect() {
        let taint: Taint =
            serde_json::from_value(json!({ "key": "gpu", "value": "a100", "effect": "NoSchedule" })).unwrap();
        let cases = [
            (json!({ "operator": "Exists" }), true),
            (json!({ "key": "gpu", "operator": "Exists" }), true),
            (json!({ "key": "gpu", "value": "a100" }), true),
            (json!({ "key": "gpu", "value": "a100", "effect": "NoSchedule" }), true),
            (json!({ "key": "gpu", "value": "a100", "effect": "NoExecute" }), false),
            (json!({ "key": "gpu", "value": "h100" }), false),
            (json!({ "key": "cpu", "operator": "Exists" }), false),
            (json!({ "value": "a100" }), false),
        ];
        for (toleration, expected) in cases {
            let read: fn(&Value) -> Toleration = |value| serde_json::from_value(value.clone()).unwrap();
            assert_eq!(tolerates(&read(&toleration), &taint), expected, "{toleration}");
        }
    }
}
