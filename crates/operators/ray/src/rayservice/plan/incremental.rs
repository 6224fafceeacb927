//! Upgrades that move capacity and traffic in steps, and back if the user thinks again.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quintet_api::ray::v1::{ClusterUpgradeOptions, RayServiceClusterStatus};
use quintet_api::ray::{events as event_reasons, reasons};
use quintet_controller::{Action, ApiKind, Event, ObjectKey};

use super::{Draft, clusters, serve};
use crate::{
    dashboard::ServeChange,
    k8s_service::events as service_events,
    rayservice::{
        Observed, events,
        gateway::{self, Backend},
        objects,
        status::{self, ROLLING_BACK, UPGRADING},
        upgrade::{Direction, Split},
    },
};

fn options(draft: &Draft<'_>) -> ClusterUpgradeOptions {
    let strategy = draft.observed.object().spec.upgrade_strategy.as_ref();
    strategy.and_then(|strategy| strategy.cluster_upgrade_options.clone()).unwrap_or_default()
}

/// Whether two clusters exist between which traffic moves.
fn is_moving(draft: &Draft<'_>) -> bool {
    draft.observed.active.cluster.is_some()
        && draft.observed.pending.cluster.is_some()
        && draft.active_name().is_some()
        && draft.pending_name().is_some()
}

/// Which way the upgrade goes.
pub(crate) fn direction(draft: &Draft<'_>) -> Direction {
    if status::holds(&draft.status, ROLLING_BACK) { Direction::Back } else { Direction::Forward }
}

/// Decides whether to go on or back, by the cluster that the user wants now.
pub(crate) fn choose_direction(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    if status::holds(&draft.status, UPGRADING) && observed.active.cluster.is_none() {
        let goal = &observed.object().spec.ray_cluster_config;
        let differs = observed
            .pending
            .cluster
            .as_ref()
            .is_some_and(|pending| !clusters::is_wanted(goal, &pending.object));
        if differs {
            draft.events.push(events::rollback_impossible());
        }
        return;
    }
    let (Some(active), Some(pending), true) =
        (&observed.active.cluster, &observed.pending.cluster, is_moving(draft))
    else {
        return;
    };
    let version = &observed.settings.version;
    if [active, pending].into_iter().any(|cluster| clusters::made_by_another(cluster, version)) {
        // Which of the two is wanted cannot be told: what its maker began goes on.
        return;
    }
    let goal = &observed.object().spec.ray_cluster_config;
    if !clusters::is_wanted(goal, &active.object) && clusters::is_wanted(goal, &pending.object) {
        status::remove(&mut draft.status, ROLLING_BACK);
        return;
    }
    if direction(draft) == Direction::Back {
        return;
    }
    let message = if clusters::is_wanted(goal, &active.object) {
        "Goal state reverted to original cluster, rolling back."
    } else {
        "Goal state changed mid-upgrade, rolling back to original cluster."
    };
    status::set(
        &mut draft.status,
        observed.now,
        ROLLING_BACK,
        Some(true),
        reasons::DESIRED_CLUSTER_SPEC_CHANGED,
        message,
    );
}

/// The Services, the Gateway and the HTTPRoute. Moves traffic by one step if it is time.
pub(crate) fn route(draft: &mut Draft<'_>, pending_is_ready: bool) {
    let observed = draft.observed;
    let service = observed.object();
    let is_moving = is_moving(draft);
    for side in [&observed.active, &observed.pending] {
        let Some(cluster) = &side.cluster else { continue };
        if side.serve_service.is_some() {
            continue;
        }
        match objects::cluster_serve_service(&cluster.object) {
            Ok(wanted) => {
                let namespace = cluster.key.namespace().unwrap_or_default();
                let key = ObjectKey::new(namespace, wanted.metadata.name.as_deref().unwrap_or_default());
                let kind = ApiKind::of::<k8s_openapi::api::core::v1::Service>();
                draft.steps.push(Action::create(kind, &wanted).with_event(service_events::created(&key)));
            }
            Err(error) => {
                draft.events.push(Event::warning(event_reasons::FAILED_TO_CREATE_SERVICE, "Create", error));
            }
        }
    }
    if let Some((kind, key)) = foreign_routing(observed) {
        let cause = "it was not made for this RayService: no traffic is moved until it is renamed or deleted";
        draft.events.push(events::failed_to_update_routing(kind, key, cause));
        return;
    }
    let gateway = gateway::gateway(service);
    draft.routing.extend(gateway::ensure(gateway::gateway_kind(), observed.gateway.as_deref(), &gateway));
    let Some(active) = observed.active.cluster.as_ref().filter(|_| draft.active_name().is_some()) else {
        return;
    };
    let (active_weight, pending_weight) =
        if is_moving { move_traffic(draft, pending_is_ready) } else { (100, 0) };
    let mut backends = vec![Backend { cluster: &active.object, weight: active_weight }];
    if let (true, Some(pending)) = (is_moving, &observed.pending.cluster) {
        backends.push(Backend { cluster: &pending.object, weight: pending_weight });
    }
    let route = gateway::route(service, &backends);
    draft.routing.extend(gateway::ensure(gateway::route_kind(), observed.route.as_deref(), &route));
    record(draft, active_weight, is_moving.then_some(pending_weight));
}

/// The kind and name of an object that is in the way of ours.
fn foreign_routing(observed: &Observed) -> Option<(&'static str, &ObjectKey)> {
    let routing = [("Gateway", &observed.gateway), ("HTTPRoute", &observed.route)];
    let mut present = routing.into_iter().filter_map(|(kind, object)| Some((kind, object.as_ref()?)));
    let foreign = present.find(|(_, object)| !gateway::is_ours(&object.object, &observed.service));
    foreign.map(|(kind, object)| (kind, &object.key))
}

/// The shares that the clusters should have now.
fn move_traffic(draft: &mut Draft<'_>, pending_is_ready: bool) -> (i32, i32) {
    let options = options(draft);
    let split = draft.split();
    let direction = direction(draft);
    let gaining = match direction {
        Direction::Forward => draft.status.pending_service_status.as_ref(),
        Direction::Back => draft.status.active_service_status.as_ref(),
    };
    let moved = gaining.and_then(|side| side.last_traffic_migrated_time.as_ref());
    let pause = SignedDuration::from_secs(options.interval_seconds.into());
    let may_move_at = moved.and_then(|moved| moved.0.checked_add(pause).ok());
    let after = split.traffic_step(options.step_size_percent, direction, pending_is_ready);
    if after == split.shares() {
        return after;
    }
    match may_move_at {
        Some(time) if time > draft.observed.now => {
            draft.requeue_at(time);
            split.shares()
        }
        _ => after,
    }
}

fn record(draft: &mut Draft<'_>, active: i32, pending: Option<i32>) {
    let now = draft.observed.now;
    let set = |side: &mut Option<RayServiceClusterStatus>, percent: Option<i32>| {
        let (Some(side), Some(percent)) = (side, percent) else { return };
        if side.traffic_routed_percent != Some(percent) {
            side.traffic_routed_percent = Some(percent);
            side.last_traffic_migrated_time = Some(Time(now));
        }
    };
    set(&mut draft.status.active_service_status, Some(active));
    set(&mut draft.status.pending_service_status, pending);
}

/// Moves capacity by one step, if the routing is in order and nothing else is being told to the cluster.
pub(crate) fn move_capacity(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let gateway_name = gateway::gateway_name(observed.service.key.name());
    let is_routed = foreign_routing(observed).is_none()
        && observed.gateway.as_ref().is_some_and(|gateway| gateway::gateway_is_ready(&gateway.object))
        && observed.route.as_ref().is_some_and(|route| gateway::route_is_ready(&route.object, &gateway_name));
    if !is_moving(draft) || !is_routed || !draft.requests.is_empty() {
        return;
    }
    let surge = options(draft).max_surge_percent.unwrap_or(100);
    let Some((side, capacity)) = draft.split().capacity_step(surge, direction(draft)) else { return };
    let of_side = observed.side(side);
    let (Some(cluster), Some(at)) = (&of_side.cluster, &of_side.address) else { return };
    let wanted = observed.object().spec.serve_config_v2.clone().unwrap_or_default();
    // Each cluster keeps the config it has: the old one must not learn of the new one's.
    let text = match serve::applied(&cluster.object) {
        Some(text) => text.into_owned(),
        None if serve::has(&cluster.object, &wanted) || !serve::was_told(&cluster.object) => wanted,
        None => {
            let cause = "its Serve config is too large to be remembered; use a smaller config, or the upgrade strategy \
                         NewCluster";
            draft.events.push(events::failed_to_update_capacity(&cluster.key, cause));
            return;
        }
    };
    let is_told = serve::deploy(draft, cluster, at, &text, Some(capacity), ServeChange::TargetCapacity);
    if let Some(status) = draft.side_status(side).filter(|_| is_told) {
        status.target_capacity = Some(capacity);
    }
}

/// Whether the new cluster has everything.
pub(crate) fn is_complete(draft: &Draft<'_>) -> bool {
    let split = draft.split();
    is_moving(draft)
        && direction(draft) == Direction::Forward
        && split.active_capacity == 0
        && split.pending_traffic == Some(100)
}

/// Ends a rollback once the old cluster has everything back.
pub(crate) fn finish_rollback(draft: &mut Draft<'_>) {
    if direction(draft) != Direction::Back {
        return;
    }
    let observed = draft.observed;
    let Split { active_capacity, pending_capacity, active_traffic, pending_traffic } = draft.split();
    let is_restored = active_capacity == 100 && active_traffic.unwrap_or(100) == 100;
    let pending_is_up = serve::head_is_ready(&observed.pending, observed.settings.gates.status_conditions);
    let is_empty = pending_capacity == 0 && pending_traffic.unwrap_or(0) == 0;
    if is_restored && (!pending_is_up || is_empty) {
        draft.status.pending_service_status = None;
        status::remove(&mut draft.status, ROLLING_BACK);
    }
}
