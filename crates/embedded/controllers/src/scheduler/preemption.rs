//! Preemption: which pods of lower priority would make room.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use quintet_controller::ObjectKey;
use quintet_controller::cache::Entry;

use super::budgets::Budgets;
use super::filters::{ClaimNeeds, Obstacle, Prepared, filter};
use super::state::{NodeState, Placed, View};
use crate::node::NodeView;
use crate::pod::PodView;

/// A node, and the pods that have to go from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) node: String,
    pub(super) victims: Vec<ObjectKey>,
}

/// What preemption can do for a pod.
pub(super) enum Preemption {
    /// These pods have to go.
    Possible(Candidate),
    /// Nothing; the sentence that is added to the message.
    Impossible(String),
}

/// Looks for a node on which pods of lower priority would make room.
pub(super) fn preempt(
    pod: &Entry<PodView>,
    view: View<'_>,
    budgets: &Budgets,
    obstacles: &BTreeMap<String, Obstacle>,
    claims: &[ClaimNeeds],
) -> Preemption {
    if pod.object.spec.preemption_policy.as_deref() == Some("Never") {
        return Preemption::Impossible(failed("not eligible due to preemptionPolicy=Never."));
    }
    if waits_for_victims(pod, view) {
        return Preemption::Impossible(failed(
            "not eligible due to a terminating pod on the nominated node.",
        ));
    }
    let mut best: Option<(Cost, Candidate)> = None;
    let (mut unhelpful, mut without_victims) = (0_usize, 0_usize);
    for (node, state) in view.state.nodes() {
        let name = &node.metadata.name;
        if obstacles.get(name).is_some_and(|obstacle| obstacle.is_unresolvable) {
            unhelpful += 1;
            continue;
        }
        match victims(pod, view, budgets, node, state, claims) {
            Some((cost, victims)) if best.as_ref().is_none_or(|(least, _)| cost < *least) => {
                best = Some((cost, Candidate { node: name.clone(), victims }));
            }
            Some(_) => {}
            None => without_victims += 1,
        }
    }
    if let Some((_, candidate)) = best {
        return Preemption::Possible(candidate);
    }
    let reasons = [
        (without_victims, "No preemption victims found for incoming pod"),
        (unhelpful, "Preemption is not helpful for scheduling"),
    ];
    let mut reasons: Vec<_> = reasons
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, reason)| format!("{count} {reason}"))
        .collect();
    reasons.sort();
    let nodes = view.state.nodes().count();
    Preemption::Impossible(failed(&format!("0/{nodes} nodes are available: {}.", reasons.join(", "))))
}

/// Why nothing can be done for a pod that fits on no node. Since dynamic resource allocation is part of Kubernetes, its
/// plugin has the first word, also about pods that have no claims.
pub(super) fn failed(reason: &str) -> String {
    format!("no new claims to deallocate, preemption: {reason}")
}

/// Whether pods that were preempted for this pod are still terminating.
fn waits_for_victims(pod: &Entry<PodView>, view: View<'_>) -> bool {
    let Some((node, _)) = view.nominated.get(&pod.key) else { return false };
    let Some(state) = view.state.nodes.get(node) else { return false };
    let priority = pod.object.spec.priority;
    state
        .pods
        .values()
        .any(|placed| placed.pod.object.is_deleting() && placed.pod.object.spec.priority < priority)
}

/// What a preemption costs, cheapest first: violated budgets, the highest priority of a victim, the sum of priorities, the
/// number of victims, and how long ago the most important victim was started.
type Cost = (usize, i32, i64, usize, std::cmp::Reverse<Option<Timestamp>>);

/// The fewest pods of lower priority without which the pod fits onto a node.
fn victims(
    pod: &Entry<PodView>,
    view: View<'_>,
    budgets: &Budgets,
    node: &NodeView,
    state: &NodeState,
    claims: &[ClaimNeeds],
) -> Option<(Cost, Vec<ObjectKey>)> {
    let priority = pod.object.spec.priority;
    let mut lower: Vec<&Placed> =
        state.pods.values().filter(|placed| placed.pod.object.spec.priority < priority).collect();
    if lower.is_empty() {
        return None;
    }
    let mut gone: BTreeSet<_> = lower.iter().map(|placed| placed.pod.key.clone()).collect();
    let fits = |gone: &BTreeSet<ObjectKey>| {
        let without = View { gone, ..view };
        filter(&Prepared::new(pod, without, claims.to_vec()), without, node, state).is_none()
    };
    if !fits(&gone) {
        return None;
    }
    let violating = budgets.violated_by(lower.iter().map(|placed| &placed.pod));
    // The most important are spared first: those whose budget would be violated, then by priority, then the oldest.
    lower.sort_by_key(|placed| {
        let pod = &placed.pod;
        let is_violating = violating.contains(&pod.key);
        (!is_violating, std::cmp::Reverse(pod.object.spec.priority), started(&pod.object))
    });
    let mut victims = Vec::new();
    for placed in lower {
        gone.remove(&placed.pod.key);
        if !fits(&gone) {
            gone.insert(placed.pod.key.clone());
            victims.push(placed);
        }
    }
    let violations = victims.iter().filter(|placed| violating.contains(&placed.pod.key)).count();
    let priorities = || victims.iter().map(|placed| placed.pod.object.spec.priority);
    let highest = priorities().max()?;
    let most_important = victims.iter().filter(|placed| placed.pod.object.spec.priority == highest);
    let earliest = most_important.filter_map(|placed| started(&placed.pod.object)).min();
    let sum = priorities().map(|priority| i64::from(priority) + i64::from(i32::MAX)).sum();
    let cost = (violations, highest, sum, victims.len(), std::cmp::Reverse(earliest));
    Some((cost, victims.iter().map(|placed| placed.pod.key.clone()).collect()))
}

fn started(pod: &PodView) -> Option<Timestamp> {
    pod.status.start_time.or(pod.metadata.creation_timestamp)
}
