//! What a RayService waits for, in words for people.

use crate::{
    raycluster,
    rayservice::{
        Observed, ObservedSide, gateway,
        plan::{Draft, serve},
        status::{self, INITIALIZING_TIMEOUT, READY, SUSPENDED, SUSPENDING},
        upgrade,
    },
};

/// What a RayService with a valid spec waits for.
pub(super) fn awaits(draft: &Draft<'_>) -> Vec<String> {
    let observed = draft.observed;
    if status::holds(&draft.status, SUSPENDING) {
        let clusters = observed.clusters.iter().map(|cluster| ("RayCluster", &cluster.key));
        let services = observed.services.iter().map(|service| ("Service", &service.key));
        return clusters
            .chain(services)
            .map(|(kind, key)| format!("{kind} {} to be deleted", key.name()))
            .collect();
    }
    if status::holds(&draft.status, SUSPENDED) {
        return vec!["spec.suspend to be false".to_owned()];
    }
    if status::reason(&draft.status, READY) == INITIALIZING_TIMEOUT {
        return vec!["deletion: it did not become ready in time".to_owned()];
    }
    let mut awaits = side(observed, &observed.active, draft.active_name());
    awaits.extend(side(observed, &observed.pending, draft.pending_name()));
    if observed.endpoints == 0 {
        awaits.push("a Pod that takes requests".to_owned());
    }
    if upgrade::is_incremental(&observed.object().spec, &observed.settings) {
        awaits.extend(routing(observed));
    }
    awaits.extend(draft.requeue_time().map(|time| format!("{time}, for the next step")));
    awaits
}

fn side(observed: &Observed, side: &ObservedSide, name: Option<&str>) -> Vec<String> {
    let Some(name) = name else { return Vec::new() };
    let Some(cluster) = &side.cluster else { return vec![format!("RayCluster {name} to be created")] };
    if !serve::head_is_ready(side, observed.settings.gates.status_conditions) {
        return vec![raycluster::progress(&cluster.object)];
    }
    match side.applications.as_ref().map(|heard| &heard.response) {
        None => vec![format!("RayCluster {name}: first response of the Ray dashboard")],
        Some(Err(error)) => vec![format!("RayCluster {name}: {error}")],
        Some(Ok(heard)) if heard.applications.is_empty() => {
            vec![format!("RayCluster {name}: Serve applications to be deployed")]
        }
        Some(Ok(heard)) => {
            let waiting = heard.applications.iter().filter(|(_, app)| app.status != "RUNNING");
            waiting
                .map(|(app, state)| format!("RayCluster {name}: application {app} is {}", state.status))
                .collect()
        }
    }
}

fn routing(observed: &Observed) -> Vec<String> {
    let name = gateway::gateway_name(observed.service.key.name());
    let has_gateway =
        observed.gateway.as_ref().is_some_and(|gateway| gateway::gateway_is_ready(&gateway.object));
    let has_route =
        observed.route.as_ref().is_some_and(|route| gateway::route_is_ready(&route.object, &name));
    let mut awaits = Vec::new();
    if !has_gateway {
        awaits.push(format!("Gateway {name} to be programmed"));
    }
    if has_gateway && !has_route {
        awaits.push(format!("HTTPRoute {} to be accepted", gateway::route_name(observed.service.key.name())));
    }
    awaits
}
