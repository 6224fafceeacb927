//! Filters: why a pod cannot run on a node, in the words of kube-scheduler.

mod affinity;
mod spread;
mod volumes;

pub(super) use affinity::{preferred_terms, shares_domain};
pub(super) use spread::soft as soft_constraints;
pub(super) use volumes::{ClaimNeeds, claim_needs};

use k8s_openapi::api::core::v1::Taint;
use quintet_api::Quantity;
use quintet_controller::cache::Entry;

use super::state::{Amounts, NodeState, Placed, View};
use crate::node::NodeView;
use crate::pod::PodView;
use crate::taints::{self, NO_EXECUTE, NO_SCHEDULE};

/// The taint of a node that is cordoned off.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Why a pod cannot run on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// The reasons of the first filter that rejects the node.
    pub(super) reasons: Vec<String>,
    /// Whether it would remain if other pods went.
    pub(super) is_unresolvable: bool,
}

impl Obstacle {
    fn new(reason: &str) -> Self {
        Self { reasons: vec![reason.to_owned()], is_unresolvable: false }
    }

    fn unresolvable(reason: &str) -> Self {
        Self { reasons: vec![reason.to_owned()], is_unresolvable: true }
    }
}

/// What is computed once for a pod, for all nodes.
pub(super) struct Prepared<'a> {
    pub(super) pod: &'a Entry<PodView>,
    pub(super) requests: Amounts,
    constraints: Vec<spread::Constraint>,
    terms: affinity::Terms,
    claims: Vec<ClaimNeeds>,
}

impl<'a> Prepared<'a> {
    /// Reads the pod's constraints in a state; the state's pods are counted by `View`s of the same state.
    pub(super) fn new(pod: &'a Entry<PodView>, view: View<'_>, claims: Vec<ClaimNeeds>) -> Self {
        Self {
            requests: pod.object.requests(),
            constraints: spread::required(pod, view),
            terms: affinity::required(pod, view),
            claims,
            pod,
        }
    }
}

/// Runs the filters in upstream's order; the first that rejects the node decides.
pub(super) fn filter(
    prepared: &Prepared<'_>,
    view: View<'_>,
    node: &NodeView,
    state: &NodeState,
) -> Option<Obstacle> {
    let pod = &prepared.pod.object;
    is_cordoned(pod, node)
        .or_else(|| is_tainted(pod, node))
        .or_else(|| {
            let reason = "node(s) didn't match Pod's node affinity/selector";
            (!node.is_selected_by(pod)).then(|| Obstacle::unresolvable(reason))
        })
        .or_else(|| has_port_conflict(prepared, view, node, state))
        .or_else(|| lacks_resources(prepared, view, node, state))
        .or_else(|| volumes::filter(prepared, view, node))
        .or_else(|| spread::filter(prepared, node))
        .or_else(|| affinity::filter(prepared, view, node))
}

fn is_cordoned(pod: &PodView, node: &NodeView) -> Option<Obstacle> {
    if !node.spec.unschedulable {
        return None;
    }
    let taint = Taint { key: UNSCHEDULABLE.to_owned(), effect: NO_SCHEDULE.to_owned(), ..Taint::default() };
    let is_tolerated = pod.spec.tolerations.iter().any(|toleration| taints::tolerates(toleration, &taint));
    (!is_tolerated).then(|| Obstacle::unresolvable("node(s) were unschedulable"))
}

fn is_tainted(pod: &PodView, node: &NodeView) -> Option<Obstacle> {
    let effects = [NO_SCHEDULE, NO_EXECUTE];
    let is_tolerated = taints::are_tolerated(&node.spec.taints, &pod.spec.tolerations, &effects);
    (!is_tolerated).then(|| Obstacle::unresolvable("node(s) had untolerated taint(s)"))
}

/// Host ports of a pod: protocol, address, port.
fn host_ports(pod: &PodView) -> impl Iterator<Item = (&str, &str, i32)> {
    let sidecars = pod.spec.init_containers.iter().filter(|container| container.is_sidecar());
    let ports = pod.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
    ports.filter(|port| port.on_host > 0).map(|port| {
        let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
        let address = if port.host_ip.is_empty() { "0.0.0.0" } else { &port.host_ip };
        (protocol, address, port.on_host)
    })
}

fn has_port_conflict(
    prepared: &Prepared<'_>,
    view: View<'_>,
    node: &NodeView,
    state: &NodeState,
) -> Option<Obstacle> {
    let others = view.pods_on(state).chain(view.nominated_on(&node.metadata.name, prepared.pod));
    have_port_conflict(&prepared.pod.object, others.map(|placed| &placed.pod.object))
        .then(|| Obstacle::new("node(s) didn't have free ports for the requested pod ports"))
}

/// Whether a pod wants a host port that another one has.
pub(crate) fn have_port_conflict<'a>(pod: &PodView, others: impl Iterator<Item = &'a PodView>) -> bool {
    let wanted: Vec<_> = host_ports(pod).collect();
    if wanted.is_empty() {
        return false;
    }
    let is_any = |address: &str| matches!(address, "0.0.0.0" | "::");
    others.flat_map(host_ports).any(|(protocol, address, port)| {
        wanted.iter().any(|(of_pod, on, number)| {
            *of_pod == protocol && *number == port && (*on == address || is_any(on) || is_any(address))
        })
    })
}

fn lacks_resources(
    prepared: &Prepared<'_>,
    view: View<'_>,
    node: &NodeView,
    state: &NodeState,
) -> Option<Obstacle> {
    let mut obstacle = Obstacle::default();
    let allocatable = |name: &str| node.status.allocatable.get(name).copied().unwrap_or_default();
    let nominated: Vec<&Placed> = view.nominated_on(&node.metadata.name, prepared.pod).collect();
    let pods = view.pods_on(state).count() + nominated.len() + 1;
    if i64::try_from(pods).unwrap_or(i64::MAX) > allocatable("pods").units() {
        obstacle.reasons.push("Too many pods".to_owned());
    }
    let gone: Vec<&Placed> =
        state.pods.values().filter(|placed| view.gone.contains(&placed.pod.key)).collect();
    for (name, request) in prepared.requests.iter().filter(|(_, request)| !request.is_zero()) {
        let of = |all: &[&Placed]| -> Quantity {
            all.iter().filter_map(|placed| placed.requests.get(name)).copied().sum()
        };
        let used = state.used.get(name).copied().unwrap_or_default() - of(&gone) + of(&nominated);
        let total = allocatable(name);
        if *request > total - used {
            obstacle.reasons.push(format!("Insufficient {name}"));
            obstacle.is_unresolvable |= *request > total;
        }
    }
    (!obstacle.reasons.is_empty()).then_some(obstacle)
}
