//! Topology spread constraints.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use quintet_api::selector::Selector;
use quintet_controller::cache::Entry;

use super::super::state::View;
use super::{Obstacle, Prepared};
use crate::node::NodeView;
use crate::pod::PodView;
use crate::taints::{self, NO_EXECUTE, NO_SCHEDULE};

const MISMATCH: &str = "node(s) didn't match pod topology spread constraints";

/// A constraint with the number of matching pods per domain.
pub(in crate::scheduler) struct Constraint {
    pub(in crate::scheduler) key: String,
    max_skew: i32,
    /// Whether the pod matches its own constraint.
    includes_itself: bool,
    /// The fewest matching pods in a domain.
    fewest: i32,
    pub(in crate::scheduler) by_domain: BTreeMap<String, i32>,
}

/// The constraints that a node must meet.
pub(super) fn required(pod: &Entry<PodView>, view: View<'_>) -> Vec<Constraint> {
    of_kind(pod, view, "DoNotSchedule")
}

/// The constraints that a node should meet.
pub(in crate::scheduler) fn soft(pod: &Entry<PodView>, view: View<'_>) -> Vec<Constraint> {
    of_kind(pod, view, "ScheduleAnyway")
}

/// The constraints of a kind, counted.
fn of_kind(pod: &Entry<PodView>, view: View<'_>, when: &str) -> Vec<Constraint> {
    let constraints = pod.object.spec.topology_spread_constraints.iter();
    let of_kind: Vec<_> = constraints.filter(|constraint| constraint.when_unsatisfiable == when).collect();
    of_kind.iter().map(|constraint| count(pod, view, constraint, &of_kind)).collect()
}

fn count(
    pod: &Entry<PodView>,
    view: View<'_>,
    constraint: &TopologySpreadConstraint,
    all: &[&TopologySpreadConstraint],
) -> Constraint {
    let selector = selector(&pod.object, constraint);
    let mut by_domain = BTreeMap::new();
    for (node, state) in
        view.state.nodes().filter(|(node, _)| is_eligible(&pod.object, constraint, all, node))
    {
        let Some(domain) = node.metadata.labels.get(&constraint.topology_key) else { continue };
        let matching = view.pods_on(state).filter(|placed| {
            placed.pod.key.namespace() == pod.key.namespace()
                && !placed.pod.object.is_deleting()
                && selector.matches(&placed.pod.object.metadata.labels)
        });
        *by_domain.entry(domain.clone()).or_default() += i32::try_from(matching.count()).unwrap_or(i32::MAX);
    }
    let domains = i32::try_from(by_domain.len()).unwrap_or(i32::MAX);
    let is_short = constraint.min_domains.is_some_and(|min| domains < min);
    Constraint {
        key: constraint.topology_key.clone(),
        max_skew: constraint.max_skew,
        includes_itself: selector.matches(&pod.object.metadata.labels),
        fewest: if is_short { 0 } else { by_domain.values().copied().min().unwrap_or_default() },
        by_domain,
    }
}

/// Which pods are counted: the selector, and equal values of `matchLabelKeys`.
fn selector(pod: &PodView, constraint: &TopologySpreadConstraint) -> Selector {
    let mut labels = constraint.label_selector.clone().unwrap_or_default();
    for key in constraint.match_label_keys.iter().flatten() {
        if let Some(value) = pod.metadata.labels.get(key) {
            labels.match_labels.get_or_insert_default().insert(key.clone(), value.clone());
        }
    }
    if constraint.label_selector.is_none() {
        // Without a selector no pod is counted.
        return Selector::from_labels(&BTreeMap::from([(String::new(), String::new())]));
    }
    Selector::try_from(&labels).unwrap_or_default()
}

/// Whether the pods of a node count: it has all keys, and the pod could run on it as far as the policies say.
fn is_eligible(
    pod: &PodView,
    constraint: &TopologySpreadConstraint,
    all: &[&TopologySpreadConstraint],
    node: &NodeView,
) -> bool {
    let has_keys = all.iter().all(|one| node.metadata.labels.contains_key(&one.topology_key));
    let honors_affinity = constraint.node_affinity_policy.as_deref() != Some("Ignore");
    let honors_taints = constraint.node_taints_policy.as_deref() == Some("Honor");
    let effects = [NO_SCHEDULE, NO_EXECUTE];
    has_keys
        && (!honors_affinity || node.is_selected_by(pod))
        && (!honors_taints || taints::are_tolerated(&node.spec.taints, &pod.spec.tolerations, &effects))
}

pub(super) fn filter(prepared: &Prepared<'_>, node: &NodeView) -> Option<Obstacle> {
    for constraint in &prepared.constraints {
        let Some(domain) = node.metadata.labels.get(&constraint.key) else {
            return Some(Obstacle::unresolvable(&format!("{MISMATCH} (missing required label)")));
        };
        let present = constraint.by_domain.get(domain).copied().unwrap_or_default();
        let skew = present + i32::from(constraint.includes_itself) - constraint.fewest;
        if skew > constraint.max_skew {
            return Some(Obstacle::new(MISMATCH));
        }
    }
    None
}
