//! Scores: which of the feasible nodes is best.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PreferredSchedulingTerm;
use quintet_api::Quantity;
use quintet_api::quantity::Notation;

use super::filters::{Prepared, preferred_terms, shares_domain, soft_constraints};
use super::state::{NodeState, View};
use crate::node::NodeView;
use crate::pod::PodView;
use crate::taints::{PREFER_NO_SCHEDULE, tolerates};

/// The best score of a plugin.
const MAX: i64 = 100;
/// What a container without requests counts for, as upstream's `DefaultMilliCPURequest` and `DefaultMemoryRequest`.
const DEFAULT_CPU_MILLIS: i64 = 100;
const DEFAULT_MEMORY_BYTES: i64 = 200 * 1024 * 1024;

/// The best of these nodes; of equal ones that with the fewest pods, then the first by name.
pub(super) fn best<'a>(
    prepared: &Prepared<'_>,
    view: View<'a>,
    feasible: &[(&'a NodeView, &'a NodeState)],
) -> Option<&'a NodeView> {
    let plugins: [(i64, Vec<i64>); 5] = [
        (3, reversed(&normalized(raw(feasible, |node, _| intolerable(prepared, node))))),
        (2, normalized(raw(feasible, |node, _| node_preference(&prepared.pod.object, node)))),
        (2, reversed(&normalized(crowding(prepared, view, feasible)))),
        (2, shifted(pod_preference(prepared, view, feasible))),
        (
            1,
            raw(feasible, |node, state| {
                least_allocated(prepared, node, state) + balanced(prepared, node, state)
            }),
        ),
    ];
    let total = |position: usize| -> i64 {
        plugins.iter().filter_map(|(weight, scores)| Some(weight * scores.get(position)?)).sum()
    };
    let best = (0..feasible.len()).max_by_key(|position| {
        let (node, state) = feasible[*position];
        (total(*position), std::cmp::Reverse((state.pods.len(), node.metadata.name.as_str())))
    });
    best.map(|position| feasible[position].0)
}

fn raw(feasible: &[(&NodeView, &NodeState)], score: impl Fn(&NodeView, &NodeState) -> i64) -> Vec<i64> {
    feasible.iter().map(|(node, state)| score(node, state)).collect()
}

/// From zero to [`MAX`], in proportion to the largest.
fn normalized(scores: Vec<i64>) -> Vec<i64> {
    let largest = scores.iter().copied().max().unwrap_or_default().max(1);
    scores.into_iter().map(|score| score * MAX / largest).collect()
}

fn reversed(scores: &[i64]) -> Vec<i64> {
    scores.iter().map(|score| MAX - score).collect()
}

/// From zero to [`MAX`], from the smallest to the largest.
fn shifted(scores: Vec<i64>) -> Vec<i64> {
    let least = scores.iter().copied().min().unwrap_or_default();
    let span = scores.iter().copied().max().unwrap_or_default() - least;
    scores.into_iter().map(|score| if span == 0 { 0 } else { (score - least) * MAX / span }).collect()
}

/// Taints that would better be avoided.
fn intolerable(prepared: &Prepared<'_>, node: &NodeView) -> i64 {
    let tolerations = &prepared.pod.object.spec.tolerations;
    let preferences = node.spec.taints.iter().filter(|taint| taint.effect == PREFER_NO_SCHEDULE);
    let bad = preferences.filter(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)));
    i64::try_from(bad.count()).unwrap_or(i64::MAX)
}

fn node_preference(pod: &PodView, node: &NodeView) -> i64 {
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let preferred =
        affinity.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_ref());
    let matching = |term: &&PreferredSchedulingTerm| node.matches_term(&term.preference);
    preferred.into_iter().flatten().filter(matching).map(|term| i64::from(term.weight)).sum()
}

/// Pods in the domains of a node that soft constraints would spread.
fn crowding(prepared: &Prepared<'_>, view: View<'_>, feasible: &[(&NodeView, &NodeState)]) -> Vec<i64> {
    let constraints = soft_constraints(prepared.pod, view);
    raw(feasible, |node, _| {
        let of = |labels: &BTreeMap<String, String>, key: &str, domains: &BTreeMap<String, i32>| {
            labels.get(key).and_then(|domain| domains.get(domain)).copied().unwrap_or_default()
        };
        constraints.iter().map(|one| i64::from(of(&node.metadata.labels, &one.key, &one.by_domain))).sum()
    })
}

/// The weights of preferred terms that pods near a node match.
fn pod_preference(prepared: &Prepared<'_>, view: View<'_>, feasible: &[(&NodeView, &NodeState)]) -> Vec<i64> {
    let terms = preferred_terms(prepared.pod, view.state);
    if terms.is_empty() {
        return vec![0; feasible.len()];
    }
    raw(feasible, |node, _| {
        view.pods()
            .flat_map(|(other, placed)| {
                terms.iter().map(move |(weight, term)| (other, placed, *weight, term))
            })
            .filter(|(other, placed, _, term)| {
                shares_domain(other, node, &term.key) && term.matches(&placed.pod)
            })
            .map(|(_, _, weight, _)| weight)
            .sum()
    })
}

/// The fractions of a node's cpu and memory that would be used, in percent.
fn fractions(prepared: &Prepared<'_>, node: &NodeView, state: &NodeState) -> Vec<i64> {
    let defaults = [
        ("cpu", Quantity::from_millis(DEFAULT_CPU_MILLIS, Notation::DecimalSi)),
        ("memory", Quantity::from_units(DEFAULT_MEMORY_BYTES, Notation::BinarySi)),
    ];
    defaults
        .into_iter()
        .filter_map(|(name, default)| {
            let total = node.status.allocatable.get(name)?.nanos();
            let used = state.used.get(name).copied().unwrap_or_default();
            let request = prepared.requests.get(name).copied().filter(|request| !request.is_zero());
            let after = (used + request.unwrap_or(default)).nanos();
            (total > 0).then(|| {
                i64::try_from((after * i128::from(MAX) / total).clamp(0, i128::from(MAX))).unwrap_or(MAX)
            })
        })
        .collect()
}

fn least_allocated(prepared: &Prepared<'_>, node: &NodeView, state: &NodeState) -> i64 {
    let fractions = fractions(prepared, node, state);
    let count = i64::try_from(fractions.len()).unwrap_or_default().max(1);
    fractions.iter().map(|fraction| MAX - fraction).sum::<i64>() / count
}

/// Equal fractions of all resources are best.
fn balanced(prepared: &Prepared<'_>, node: &NodeView, state: &NodeState) -> i64 {
    match fractions(prepared, node, state).as_slice() {
        [cpu, memory] => MAX - (cpu - memory).abs() / 2,
        _ => MAX,
    }
}
