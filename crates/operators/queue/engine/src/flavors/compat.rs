//! Whether the pods of a pod set may use a flavor at all.

use super::{Reason, topology};
use crate::labels::{NodeTerm, untolerated};
use crate::model::{Flavor, PodSet, PodShape, ResourceGroup};
use crate::names::FlavorId;
use crate::state::{Queue, State};

/// Why the pod set may not use the flavor.
pub(super) fn mismatch(
    state: &State,
    queue: &Queue,
    group: &ResourceGroup,
    id: FlavorId,
    pod_set: &PodSet,
) -> Option<Reason> {
    let Some(flavor) = state.flavor(id) else {
        return Some(Reason::FlavorNotFound(id));
    };
    if state.settings.gates.tas
        && let Some(reason) = topology::mismatch(state, queue, group, id, flavor, pod_set)
    {
        return Some(reason);
    }
    if let Some(taint) = untolerated(&flavor.taints, &[&pod_set.pod.tolerations, &flavor.tolerations]) {
        return Some(Reason::Taint(taint.clone(), id));
    }
    (!selects(&pod_set.pod, flavor)).then_some(Reason::Affinity(id))
}

/// Whether node selector and required affinity allow the flavor's nodes, as far as they speak of labels
/// the flavor has. A term that speaks of none of them may match any node.
fn selects(pod: &PodShape, flavor: &Flavor) -> bool {
    let labels = &flavor.node_labels;
    let selected =
        pod.node_selector.iter().all(|(key, value)| labels.get(key).is_none_or(|own| own == value));
    let relevant =
        |term: &NodeTerm| term.expressions.iter().any(|expression| labels.contains_key(&expression.key));
    let matches = |term: &NodeTerm| {
        let mut own = term.expressions.iter().filter(|expression| labels.contains_key(&expression.key));
        own.all(|expression| expression.matches(labels))
    };
    let affine = pod
        .affinity
        .as_ref()
        .is_none_or(|terms| terms.is_empty() || !terms.iter().all(relevant) || terms.iter().any(matches));
    selected && affine
}
