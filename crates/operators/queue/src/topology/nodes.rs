//! The nodes that Workloads are placed on.

use std::collections::BTreeSet;

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::v1beta2::{PodSetAssignment, TopologyAssignment, Workload};

use super::pod::HOSTNAME;

/// The nodes of an admitted Workload. Where the lowest level of a topology is not the host, there are none.
pub(crate) fn assigned_nodes(workload: &Workload) -> BTreeSet<String> {
    if !workload.is_admitted() {
        return BTreeSet::new();
    }
    assignments(workload).flat_map(nodes_of).collect()
}

/// Whether pods of a pod set go to a node.
pub(crate) fn has_node(assignment: &PodSetAssignment, node: &str) -> bool {
    nodes_of(assignment).any(|own| own == node)
}

/// Whether some pods of a Workload are placed by larger domains than hosts.
pub(crate) fn has_larger_domains(workload: &Workload) -> bool {
    assignments(workload).filter_map(|own| own.topology_assignment.as_ref()).any(|own| !is_by_host(own))
}

fn assignments(workload: &Workload) -> impl Iterator<Item = &PodSetAssignment> {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    admission.into_iter().flat_map(|admission| admission.pod_set_assignments.iter().flatten())
}

fn is_by_host(topology: &TopologyAssignment) -> bool {
    topology.levels.last().is_some_and(|level| level == HOSTNAME)
}

fn nodes_of(assignment: &PodSetAssignment) -> impl Iterator<Item = String> {
    let by_host = assignment.topology_assignment.as_ref().filter(|own| is_by_host(own));
    let domains = by_host.and_then(TopologyAssignment::domains).unwrap_or_default().into_iter();
    domains.filter(|(_, count)| *count > 0).filter_map(|(mut values, _)| values.pop())
}
