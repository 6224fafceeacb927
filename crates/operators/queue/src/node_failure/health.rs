//! Whether a node can run the pods of a Workload.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint, Toleration};
use serde::{Deserialize, Serialize};

/// What decides whether a node can run pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObservedNode {
    /// Its condition `Ready`, if it has one.
    pub(super) ready: Option<Readiness>,
    /// Those that keep pods away.
    pub(super) taints: Vec<Taint>,
}

/// The condition `Ready` of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Readiness {
    pub(super) is_ready: bool,
    /// Since when.
    pub(super) since: Option<Timestamp>,
}

impl ObservedNode {
    pub(super) fn of(node: &Node) -> Self {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
        let ready = conditions.unwrap_or_default().iter().find(|condition| condition.type_ == "Ready");
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        Self {
            ready: ready.map(|condition| Readiness {
                is_ready: condition.status == "True",
                since: condition.last_transition_time.as_ref().map(|time| time.0),
            }),
            taints: taints.into_iter().filter(|taint| keeps_away(&taint.effect)).collect(),
        }
    }
}

fn keeps_away(effect: &str) -> bool {
    matches!(effect, "NoSchedule" | "NoExecute")
}

/// What taints mean for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tolerance {
    /// Pods may run there for good.
    Lasting,
    /// Pods may run there for some time.
    Limited,
    /// Some pods may not run there.
    None,
}

/// What taints mean for pod sets, given the tolerations of each.
pub(super) fn tolerance(taints: &[Taint], pod_sets: &[Vec<Toleration>]) -> Tolerance {
    let of_pod_set = |taint: &Taint, tolerations: &[Toleration]| {
        let mut matching = tolerations.iter().filter(|own| tolerates(own, taint)).peekable();
        if matching.peek().is_none() {
            return Tolerance::None;
        }
        let lasts = matching.any(|own| own.toleration_seconds.is_none());
        if lasts { Tolerance::Lasting } else { Tolerance::Limited }
    };
    let all = taints
        .iter()
        .flat_map(|taint| pod_sets.iter().map(move |tolerations| of_pod_set(taint, tolerations)));
    all.max().unwrap_or(Tolerance::Lasting)
}

/// As `ToleratesTaint` of Kubernetes' `component-helpers`, without comparisons of numbers.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => text(&toleration.value) == text(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn taints_are_tolerated_as_in_kubernetes() {
        let taint: Taint =
            serde_json::from_value(json!({ "key": "k", "value": "v", "effect": "NoExecute" })).unwrap();
        let of = |tolerations: Value| {
            tolerance(std::slice::from_ref(&taint), &[serde_json::from_value(tolerations).unwrap()])
        };
        let cases = [
            (json!([]), Tolerance::None),
            (json!([{ "key": "k", "value": "v" }]), Tolerance::Lasting),
            (json!([{ "key": "k", "value": "other" }]), Tolerance::None),
            (json!([{ "key": "k", "operator": "Exists", "effect": "NoSchedule" }]), Tolerance::None),
            (json!([{ "operator": "Exists" }]), Tolerance::Lasting),
            (json!([{ "key": "k", "operator": "Gt", "value": "0" }]), Tolerance::None),
            (json!([{ "key": "k", "operator": "Exists", "tolerationSeconds": 30 }]), Tolerance::Limited),
            (
                json!([{ "key": "k", "operator": "Exists", "tolerationSeconds": 30 }, { "operator": "Exists" }]),
                Tolerance::Lasting,
            ),
        ];
        for (tolerations, expected) in cases {
            assert_eq!(of(tolerations.clone()), expected, "{tolerations}");
        }
    }

    #[test]
    fn all_pod_sets_have_to_tolerate_all_taints() {
        let taints: Vec<Taint> = serde_json::from_value(json!([{ "key": "a", "effect": "NoSchedule" },
            { "key": "b", "effect": "NoSchedule" }]))
        .unwrap();
        let all: Vec<Toleration> = serde_json::from_value(json!([{ "operator": "Exists" }])).unwrap();
        let one: Vec<Toleration> =
            serde_json::from_value(json!([{ "key": "a", "operator": "Exists" }])).unwrap();
        assert_eq!(tolerance(&taints, &[all.clone(), all.clone()]), Tolerance::Lasting);
        assert_eq!(tolerance(&taints, &[all, one]), Tolerance::None);
        assert_eq!(tolerance(&[], &[Vec::new()]), Tolerance::Lasting);
    }
}
