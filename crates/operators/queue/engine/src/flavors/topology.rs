//! Flavor assignment with topology: which pod sets are placed, and in which flavor.

use std::collections::BTreeMap;

use quintet_api::kueue::WorkloadLifecycle;

use super::{Assignment, FlavorChoice, Reason, Subject};
use crate::model::{Delayed, Flavor, PodSet, PodSetUpdate, ResourceGroup, Workload};
use crate::names::{FlavorId, ResourceId};
use crate::state::{Queue, State};
use crate::tas::{Assumed, PlaceOptions, Placement, PlacementRequest, TopologyAssignment, Tree};

/// No pod set requests a topology, but all flavors of the queue have one.
fn is_implied(pod_set: &PodSet, queue: &Queue) -> bool {
    !pod_set.is_explicitly_tas() && queue.tas_only
}

fn is_requested(pod_set: &PodSet, queue: &Queue) -> bool {
    pod_set.is_explicitly_tas() || queue.tas_only
}

/// Why the pod set's topology request and the flavor do not go together.
pub(super) fn mismatch(
    state: &State,
    queue: &Queue,
    group: &ResourceGroup,
    id: FlavorId,
    flavor: &Flavor,
    pod_set: &PodSet,
) -> Option<Reason> {
    if !is_requested(pod_set, queue) {
        return flavor.topology.map(|_| Reason::TopologyOnly(id));
    }
    if is_implied(pod_set, queue) {
        return None;
    }
    if flavor.topology.is_none() {
        let overlaps = pod_set.pod.requests.iter().any(|(resource, _)| group.resources.contains(&resource));
        return overlaps.then_some(Reason::NoTopology(id));
    }
    match state.tas.flavor(id) {
        None => Some(Reason::TopologyUnknown(id)),
        Some(tas) => (!has_levels(&tas.tree, pod_set)).then_some(Reason::NoLevel(id)),
    }
}

/// Whether the tree has every level the pod set names.
fn has_levels(tree: &Tree, pod_set: &PodSet) -> bool {
    let Some(request) = pod_set.topology.as_deref() else {
        return false;
    };
    let named = request.required.as_ref().or(request.preferred.as_ref());
    let anywhere = request.is_slice_only() || request.unconstrained == Some(true);
    (named.is_some() || anywhere)
        && named.is_none_or(|level| tree.level(level).is_some())
        && request.slices.iter().all(|layer| tree.level(&layer.level).is_some())
}

/// Those of the choices whose flavor has a topology.
pub fn with_topology<'c>(
    choices: &'c [(ResourceId, FlavorChoice)],
    state: &'c State,
) -> impl Iterator<Item = &'c (ResourceId, FlavorChoice)> {
    choices.iter().filter(|(_, choice)| state.tas.flavor(choice.flavor).is_some())
}

/// The one flavor with a topology among those chosen.
pub(super) fn only_tas_flavor(
    choices: &[(ResourceId, FlavorChoice)],
    state: &State,
) -> Result<FlavorId, String> {
    let mut found: Vec<FlavorId> = with_topology(choices, state).map(|(_, choice)| choice.flavor).collect();
    found.sort_by_key(|id| state.names.flavor_name(*id).to_owned());
    found.dedup();
    match found.as_slice() {
        [] => Err("no TAS flavor assigned".to_owned()),
        [flavor] => Ok(*flavor),
        several => {
            let names: Vec<_> = several.iter().map(|id| state.names.flavor_name(*id)).collect();
            Err(format!("more than one TAS flavor assigned: {}", names.join(", ")))
        }
    }
}

/// Pod sets to place, by flavor.
pub(crate) type TasRequests<'a> = BTreeMap<FlavorId, Vec<PlacementRequest<'a>>>;

/// What of the workload is to be placed with this assignment. Pod sets that cannot be are marked with an
/// error in the assignment; those to be placed later are marked as delayed.
pub(crate) fn tas_requests<'a>(
    assignment: &mut Assignment,
    workload: &'a Workload,
    subject: &Subject,
    state: &State,
    queue: &Queue,
) -> TasRequests<'a> {
    let gates = &state.settings.gates;
    let mut requests = TasRequests::new();
    for (index, pod_set) in workload.pod_sets.iter().enumerate() {
        if !is_requested(pod_set, queue) {
            continue;
        }
        let Some(assigned) = assignment.pod_sets.iter_mut().find(|assigned| assigned.index == index) else {
            continue;
        };
        if assigned.error.is_some() || assigned.count == 0 {
            continue;
        }
        if let Some(topology) = &assigned.topology
            && !uses_failed_node(topology, workload)
        {
            continue;
        }
        let mut previous = None;
        let request = pod_set.topology.as_deref();
        let mut refusal = None;
        if workload.is_elastic(gates) && gates.elastic_slices_tas {
            if request.is_some_and(|request| request.required.is_some()) {
                refusal =
                    Some("required topology is not supported with ElasticJobsViaWorkloadSlices".to_owned());
            } else if request.is_some_and(|request| request.preferred.is_some()) {
                refusal =
                    Some("preferred topology is not supported with ElasticJobsViaWorkloadSlices".to_owned());
            }
            previous = subject.replaced.as_ref().and_then(|replaced| {
                let admission = replaced.workload.admission.as_ref()?;
                admission.pod_sets.iter().find(|held| held.name == pod_set.name)?.topology.clone()
            });
        }
        let flavor = match refusal {
            Some(refusal) => Err(refusal),
            None if queue.tas_flavors.is_empty() => {
                Err("workload requires Topology, but there is no TAS cache information".to_owned())
            }
            None => only_tas_flavor(&assigned.flavors, state),
        };
        match flavor {
            Err(error) => {
                assigned.error = Some(error);
                assignment.mode = None;
            }
            Ok(flavor) => {
                let waits = !workload.has_quota_reservation() && queue.provisioned.contains(&flavor);
                if queue.multikueue || waits {
                    assigned.delayed = Some(Delayed::Pending);
                    continue;
                }
                requests.entry(flavor).or_default().push(PlacementRequest {
                    index,
                    pod_set,
                    count: assigned.count,
                    per_pod: pod_set.pod.requests.clone(),
                    implied: is_implied(pod_set, queue),
                    updates: updates_for(workload, pod_set),
                    previous,
                });
            }
        }
    }
    requests
}

/// Which pod sets are to be placed with this assignment, by index, and in which flavor. Those that cannot
/// be get an error.
pub fn to_place(
    assignment: &mut Assignment,
    subject: &Subject,
    state: &State,
    queue: &Queue,
) -> Vec<(FlavorId, usize)> {
    let requests = tas_requests(assignment, &subject.workload, subject, state, queue);
    requests
        .into_iter()
        .flat_map(|(flavor, requests)| requests.into_iter().map(move |request| (flavor, request.index)))
        .collect()
}

fn uses_failed_node(topology: &TopologyAssignment, workload: &Workload) -> bool {
    let failed = |value: &std::sync::Arc<str>| workload.unhealthy_nodes.contains(value);
    topology.domains.iter().any(|domain| domain.values.last().is_some_and(failed))
}

fn updates_for<'a>(workload: &'a Workload, pod_set: &PodSet) -> Vec<&'a PodSetUpdate> {
    let ready = workload.checks.iter().filter(|check| check.state == crate::model::CheckState::Ready);
    ready.flat_map(|check| &check.updates).filter(|update| update.name == pod_set.name).collect()
}

/// Places what is to be placed, flavor by flavor in order of name.
pub(crate) fn place(
    state: &State,
    requests: &TasRequests<'_>,
    options: PlaceOptions<'_>,
) -> Vec<(FlavorId, Placement)> {
    let mut flavors: Vec<_> = requests.keys().copied().collect();
    flavors.sort_by_key(|id| state.names.flavor_name(*id).to_owned());
    let mut assumed = Assumed::default();
    let context = (&state.names, &state.settings.gates);
    let mut placed = Vec::new();
    for flavor in flavors {
        let of_flavor = requests.get(&flavor).map_or(&[][..], |requests| requests);
        let placements = state.tas.place(flavor, of_flavor, options, &mut assumed, context);
        placed.extend(placements.into_iter().map(|placement| (flavor, placement)));
    }
    placed
}

/// Whether everything can be placed. What does not fit alone does not fit with others; what is alone need
/// not be placed to know.
pub(crate) fn can_place(state: &State, requests: &TasRequests<'_>, options: PlaceOptions<'_>) -> bool {
    let context = (&state.names, &state.settings.gates);
    let fits_alone = |(flavor, request): (FlavorId, &PlacementRequest<'_>)| {
        !is_plain(request, options) || state.tas.has_room(flavor, request, options, context)
    };
    all(requests).all(fits_alone)
        && (is_alone(requests, options) || failure(&place(state, requests, options)).is_none())
}

/// Whether there is at most one pod set to place, and nothing is known about where its pods are.
pub(crate) fn is_alone(requests: &TasRequests<'_>, options: PlaceOptions<'_>) -> bool {
    let mut all = all(requests);
    all.next().is_none_or(|(_, request)| is_plain(request, options)) && all.next().is_none()
}

fn all<'r, 'p>(requests: &'r TasRequests<'p>) -> impl Iterator<Item = (FlavorId, &'r PlacementRequest<'p>)> {
    requests.iter().flat_map(|(flavor, requests)| requests.iter().map(move |own| (*flavor, own)))
}

fn is_plain(request: &PlacementRequest<'_>, options: PlaceOptions<'_>) -> bool {
    let replaces = options.workload.is_some_and(|workload| !workload.unhealthy_nodes.is_empty());
    !replaces && request.previous.is_none() && request.pod_set.group().is_none()
}

/// The first pod set that could not be placed.
pub(crate) fn failure(placements: &[(FlavorId, Placement)]) -> Option<(FlavorId, usize, &str)> {
    placements.iter().find_map(|(flavor, placement)| {
        placement.result.as_ref().err().map(|reason| (*flavor, placement.index, reason.as_str()))
    })
}

/// Writes placements into the assignment.
pub(crate) fn apply(assignment: &mut Assignment, placements: Vec<(FlavorId, Placement)>) {
    for (_, placement) in placements {
        if let Some(assigned) =
            assignment.pod_sets.iter_mut().find(|assigned| assigned.index == placement.index)
        {
            assigned.topology = placement.result.ok();
            if assigned.topology.is_some() && assigned.delayed.is_some() {
                assigned.delayed = Some(Delayed::Ready);
            }
        }
    }
}
