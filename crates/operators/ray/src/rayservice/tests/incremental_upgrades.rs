//! Upgrades in steps: the arithmetic alone, and pass by pass.

use proptest::prelude::*;

use super::{
    upgrade::{Direction, Split},
    *,
};
use crate::testing::{events, steps};

fn split(active: i32, pending: i32, active_traffic: i32, pending_traffic: i32) -> Split {
    Split {
        active_capacity: active,
        pending_capacity: pending,
        active_traffic: Some(active_traffic),
        pending_traffic: Some(pending_traffic),
    }
}

#[test]
fn capacity_grows_before_it_shrinks() {
    use Direction::{Back, Forward};
    for (name, split, surge, direction, expected) in [
        ("the new cluster grows", split(100, 0, 100, 0), 20, Forward, Some((Side::Pending, 20))),
        ("it waits for its traffic", split(100, 20, 100, 0), 20, Forward, None),
        ("the old one shrinks", split(100, 20, 80, 20), 20, Forward, Some((Side::Active, 80))),
        ("and the new one grows again", split(80, 20, 80, 20), 20, Forward, Some((Side::Pending, 40))),
        ("never above 100", split(30, 70, 30, 70), 50, Forward, Some((Side::Pending, 100))),
        ("never below 0", split(30, 100, 0, 100), 50, Forward, Some((Side::Active, 0))),
        ("the end", split(0, 100, 0, 100), 50, Forward, None),
        ("back: the old one grows", split(40, 60, 40, 60), 50, Back, Some((Side::Active, 90))),
        ("back: the new one shrinks", split(90, 60, 90, 10), 50, Back, Some((Side::Pending, 10))),
        ("back: the old one waits for its traffic", split(90, 60, 40, 60), 50, Back, None),
        ("back: the end", split(100, 0, 100, 0), 50, Back, None),
    ] {
        assert_eq!(split.capacity_step(surge, direction), expected, "{name}");
    }
}

#[test]
fn traffic_follows_capacity() {
    use Direction::{Back, Forward};
    for (name, split, step, direction, is_ready, expected) in [
        ("a step", split(100, 50, 100, 0), 20, Forward, true, (80, 20)),
        ("not beyond what the new cluster can take", split(100, 50, 60, 40), 20, Forward, true, (50, 50)),
        ("not while it is not ready", split(100, 50, 100, 0), 20, Forward, false, (100, 0)),
        ("nothing to do", split(50, 50, 50, 50), 20, Forward, true, (50, 50)),
        ("back, ready or not", split(90, 60, 40, 60), 20, Back, false, (60, 40)),
        ("back, not beyond what the old cluster can take", split(50, 60, 40, 60), 20, Back, false, (50, 50)),
    ] {
        assert_eq!(split.traffic_step(step, direction, is_ready), expected, "{name}");
    }
}

proptest! {
    /// Whatever the pace and whenever the user turns round: the shares sum up to 100, no cluster gets more traffic
    /// than it grew for, each direction moves one way only, and both end.
    #[test]
    fn every_upgrade_and_every_rollback_ends(surge in 1..=100_i32, step in 1..=100_i32, turn in 0..40_usize) {
        prop_assume!(step <= surge);
        let mut split = Split { active_capacity: 100, pending_capacity: 0, active_traffic: Some(100), pending_traffic: Some(0) };
        for (direction, rounds) in [(Direction::Forward, turn), (Direction::Back, 1000), (Direction::Forward, 1000)] {
            for _ in 0..rounds {
                let before = split;
                let (active, pending) = split.traffic_step(step, direction, true);
                split.active_traffic = Some(active);
                split.pending_traffic = Some(pending);
                prop_assert_eq!(active + pending, 100);
                match split.capacity_step(surge, direction) {
                    Some((Side::Active, capacity)) => split.active_capacity = capacity,
                    Some((Side::Pending, capacity)) => split.pending_capacity = capacity,
                    None => {}
                }
                let (gaining, losing) = match direction {
                    Direction::Forward => ((before.pending_capacity, split.pending_capacity), (before.active_capacity, split.active_capacity)),
                    Direction::Back => ((before.active_capacity, split.active_capacity), (before.pending_capacity, split.pending_capacity)),
                };
                prop_assert!(gaining.1 >= gaining.0 && losing.1 <= losing.0, "{:?} -> {:?}", before, split);
                let (share, capacity) = match direction {
                    Direction::Forward => (pending, before.pending_capacity),
                    Direction::Back => (active, before.active_capacity),
                };
                let had = match direction {
                    Direction::Forward => before.pending_traffic,
                    Direction::Back => before.active_traffic,
                };
                prop_assert!(share <= capacity.max(had.unwrap_or(0)));
                prop_assert!((0..=100).contains(&split.active_capacity) && (0..=100).contains(&split.pending_capacity));
                if split == before {
                    break;
                }
            }
            if rounds == 1000 {
                prop_assert!(split.is_finished(direction), "{:?} {:?}", direction, split);
                let all = match direction { Direction::Forward => split.pending_traffic, Direction::Back => split.active_traffic };
                prop_assert_eq!(all, Some(100));
            }
        }
    }
}

fn incremental(more: Value) -> Value {
    let mut spec = json!({
        "rayClusterConfig": {"enableInTreeAutoscaling": true},
        "upgradeStrategy": {
            "type": "NewClusterWithIncrementalUpgrade",
            "clusterUpgradeOptions": {
                "gatewayClassName": "istio", "intervalSeconds": 10, "stepSizePercent": 20, "maxSurgePercent": 50,
            },
        },
    });
    merge(&mut spec, &more);
    spec
}

fn autoscaling(mut spec: Value) -> Value {
    spec["enableInTreeAutoscaling"] = json!(true);
    spec
}

/// An upgrade from `chat-a` to `chat-b` at this point.
fn upgrading(goal: Value, active: Value, pending: Value, more: Value) -> World {
    let mut sides = json!({"activeServiceStatus": active, "pendingServiceStatus": pending});
    merge(&mut sides, &more);
    let mut world = world(incremental(json!({"rayClusterConfig": goal})), status("chat-a", "chat-b", sides))
        .with(
            Side::Active,
            cluster("chat-a", &autoscaling(cluster_spec())),
            Some("applications: [{name: app, old: 1}]"),
            Serve::App("RUNNING"),
        )
        .with(
            Side::Pending,
            cluster("chat-b", &autoscaling(other_spec())),
            Some(CONFIG),
            Serve::App("RUNNING"),
        )
        .leading_to("chat-a");
    for side in [&mut world.observed.active, &mut world.observed.pending] {
        side.serve_service = Some(Arc::new(entry(NAMESPACE, "x-serve-svc", ServiceView::default())));
    }
    let accepted = |types: [&str; 2]| types.map(|type_| condition(type_, "True", "x"));
    let mut gateway = gateway::gateway(&world.observed.service.object);
    gateway["status"] = json!({"conditions": accepted(["Accepted", "Programmed"])});
    world.observed.gateway = Some(Arc::new(entry(NAMESPACE, "chat-gateway", gateway)));
    let (a, b) =
        (world.observed.active.cluster.clone().unwrap(), world.observed.pending.cluster.clone().unwrap());
    let share =
        |side: &str| world.service["status"][side]["trafficRoutedPercent"].as_i64().unwrap_or_default();
    let weights = [share("activeServiceStatus"), share("pendingServiceStatus")]
        .map(|weight| i32::try_from(weight).unwrap());
    let backends = [
        gateway::Backend { cluster: &a.object, weight: weights[0] },
        gateway::Backend { cluster: &b.object, weight: weights[1] },
    ];
    let mut route = gateway::route(&world.observed.service.object, &backends);
    route["status"] = json!({"parents": [{"parentRef": {"name": "chat-gateway"}, "conditions": accepted(["Accepted", "ResolvedRefs"])}]});
    world.observed.route = Some(Arc::new(entry(NAMESPACE, "chat-httproute", route)));
    world
}

fn side(capacity: i32, traffic: i32) -> Value {
    json!({"targetCapacity": capacity, "trafficRoutedPercent": traffic})
}

fn shares(status: &RayServiceStatus) -> Vec<Option<i32>> {
    let sides = [&status.active_service_status, &status.pending_service_status];
    sides
        .iter()
        .filter_map(|side| side.as_ref().map(|side| [side.target_capacity, side.traffic_routed_percent]))
        .flatten()
        .collect()
}

#[test]
fn the_first_cluster_has_full_capacity_and_takes_over_when_it_serves() {
    let new = world(incremental(json!({})), Value::Null);
    let pending = new.status_after(&new.plan()).pending_service_status.unwrap();
    assert_eq!((pending.target_capacity, pending.traffic_routed_percent), (Some(100), None));
    let ready = world(
        incremental(json!({})),
        status("", "chat-a", json!({"pendingServiceStatus": {"targetCapacity": 100}})),
    )
    .with(
        Side::Pending,
        cluster("chat-a", &autoscaling(cluster_spec())),
        Some(CONFIG),
        Serve::App("RUNNING"),
    );
    let plan = ready.plan();
    assert_eq!(
        steps(&plan),
        [
            "create Service ns/chat-a-serve-svc",
            "create Service ns/chat-head-svc",
            "create Gateway.gateway.networking.k8s.io ns/chat-gateway"
        ]
    );
    assert_eq!(names_of(&ready.status_after(&plan)).0, "chat-a");
    let serving = world(
        incremental(json!({})),
        status("chat-a", "", json!({"activeServiceStatus": {"targetCapacity": 100}})),
    )
    .with(
        Side::Active,
        cluster("chat-a", &autoscaling(cluster_spec())),
        Some(CONFIG),
        Serve::App("RUNNING"),
    );
    let active = serving.status_after(&serving.plan()).active_service_status.unwrap();
    assert_eq!(active.traffic_routed_percent, Some(100));
    assert_eq!(active.last_traffic_migrated_time.unwrap().0, now());
}

#[test]
fn an_upgrade_begins_with_nothing() {
    let world = world(
        incremental(json!({"rayClusterConfig": autoscaling(other_spec())})),
        status("chat-a", "", json!({"activeServiceStatus": side(100, 100)})),
    )
    .with(
        Side::Active,
        cluster("chat-a", &autoscaling(cluster_spec())),
        Some(CONFIG),
        Serve::App("RUNNING"),
    );
    let pending = world.status_after(&world.plan()).pending_service_status.unwrap();
    assert_eq!((pending.target_capacity, pending.traffic_routed_percent), (Some(0), Some(0)));
}

/// A config of about this size that compresses well, or not at all.
fn large_config(bytes: usize, is_random: bool) -> String {
    let mut numbers = 0_u64;
    let mut text = String::from("applications: [{name: app, import_path: app:main}]\nnoise: |\n");
    while text.len() < bytes {
        numbers += 1;
        let line = if is_random {
            quintet_api::names::short_hash(&numbers.to_string(), 40)
        } else {
            "line".to_owned()
        };
        text.extend(["  ", &line, "\n"]);
    }
    text
}

#[test]
fn a_large_config_of_the_old_cluster_stays_its_own() {
    let shrinking = |config: &str| {
        let mut world = upgrading(autoscaling(other_spec()), side(100, 50), side(50, 50), json!({}));
        let mut cluster = cluster("chat-a", &autoscaling(cluster_spec()));
        let annotations = cluster.object.metadata.annotations.get_or_insert_default();
        annotations.insert(objects::APPLIED_CONFIG.to_owned(), serve::remembered(config));
        world.observed.active.cluster = Some(Arc::new(cluster));
        world
    };
    for bytes in [1 << 10, 300 << 10] {
        let config = large_config(bytes, false);
        assert!(serve::remembered(&config).len() <= 16 << 10);
        let plan = shrinking(&config).plan();
        let Action::Call(ServeRequest::DeployServeConfig { cluster, config, .. }) = &plan.steps[0].action
        else {
            panic!("{:?}", events(&plan))
        };
        assert_eq!(cluster.as_str(), "ns/chat-a");
        let noise = config["noise"].as_str().unwrap();
        assert!(noise.len() * 2 > bytes / 2, "the whole old config: {} bytes", noise.len());
    }
    let world = shrinking(&large_config(600 << 10, true));
    let plan = world.plan();
    assert!(plan.steps.is_empty(), "{:?}", steps(&plan));
    assert_eq!(events(&plan), ["FailedToUpdateTargetCapacity"]);
    assert_eq!(shares(&world.status_after(&plan))[0], Some(100), "and is not said to have been told");
    let wrong = shrinking("a: [b");
    assert_eq!(
        shares(&wrong.status_after(&wrong.plan()))[0],
        Some(100),
        "what cannot be read is not told either"
    );
}

#[test]
fn an_upgrade_that_another_operator_began_goes_on() {
    let mut world = upgrading(autoscaling(other_spec()), side(100, 100), side(50, 0), json!({}));
    for side in [&mut world.observed.active, &mut world.observed.pending] {
        let live = side.cluster.take().unwrap();
        let mut cluster = entry(NAMESPACE, live.key.name(), live.object.clone());
        let annotations = cluster.object.metadata.annotations.get_or_insert_default();
        annotations.insert(labels::OPERATOR_VERSION.to_owned(), "v1.6.0".to_owned());
        annotations.insert(labels::UPGRADE_HASH.to_owned(), "another hash".to_owned());
        side.cluster = Some(Arc::new(cluster));
    }
    let status = world.status_after(&world.plan());
    assert!(!conditions_of(&status).iter().any(|one| one.starts_with("RollbackInProgress")));
    assert_eq!(shares(&status), [Some(100), Some(80), Some(50), Some(20)]);
}

#[test]
fn where_traffic_cannot_be_split_it_is_not_said_to_move() {
    let moving =
        upgrading(autoscaling(other_spec()), side(100, 100), side(50, 0), json!({})).with_endpoints(3);
    let plan = moving.plan();
    assert_eq!(steps(&plan), ["patch HTTPRoute.gateway.networking.k8s.io ns/chat-httproute"]);
    let error = quintet_controller::Error::new(Class::Invalid, "cannot patch HTTPRoute", "no such kind");
    let on_error = on_error(&moving.observed, &plan.steps[0].action, &error);
    assert_eq!(on_error.events[0].reason, "FailedToUpdateHTTPRoute");
    let plan = Plan { status: on_error.status, ..Plan::default() };
    let status = moving.status_after(&plan);
    assert_eq!(shares(&status), [Some(100), Some(100), Some(50), Some(0)]);
    assert_eq!(status.num_serve_endpoints, Some(3), "but all else is told");
}

#[test]
fn routing_that_users_made_is_neither_changed_nor_relied_on() {
    for name in ["chat-gateway", "chat-httproute"] {
        for (active, pending) in [(side(100, 100), side(0, 0)), (side(100, 100), side(50, 0))] {
            let mut world = upgrading(autoscaling(other_spec()), active, pending, json!({}));
            let object =
                if name == "chat-gateway" { &mut world.observed.gateway } else { &mut world.observed.route };
            let mut theirs = object.take().unwrap().object.clone();
            theirs["metadata"]["ownerReferences"] = json!([]);
            *object = Some(Arc::new(entry(NAMESPACE, name, theirs)));
            let plan = world.plan();
            assert!(plan.steps.is_empty(), "{name}: {:?}", steps(&plan));
            let reason =
                if name == "chat-gateway" { "FailedToUpdateGateway" } else { "FailedToUpdateHTTPRoute" };
            assert_eq!(events(&plan), [reason]);
            assert_eq!(shares(&world.status_after(&plan))[1], Some(100), "{name}");
        }
    }
}

#[test]
fn capacity_then_traffic_then_capacity() {
    let goal = || autoscaling(other_spec());
    let grow = upgrading(goal(), side(100, 100), side(0, 0), json!({}));
    let plan = grow.plan();
    assert_eq!(steps(&plan), ["deploy Serve config on RayCluster ns/chat-b"]);
    assert_eq!(events(&plan), ["UpdatedServeTargetCapacity"]);
    let Action::Call(ServeRequest::DeployServeConfig { cluster, config, .. }) = &plan.steps[0].action else {
        panic!("{plan:?}")
    };
    assert_eq!((&config["target_capacity"], cluster.as_str()), (&json!(50), "ns/chat-b"));
    assert_eq!(shares(&grow.status_after(&plan)), [Some(100), Some(100), Some(50), Some(0)]);

    let shift = upgrading(goal(), side(100, 100), side(50, 0), json!({}));
    let plan = shift.plan();
    assert_eq!(steps(&plan), ["patch HTTPRoute.gateway.networking.k8s.io ns/chat-httproute"]);
    let status = shift.status_after(&plan);
    assert_eq!(shares(&status), [Some(100), Some(80), Some(50), Some(20)]);
    assert_eq!(status.pending_service_status.unwrap().last_traffic_migrated_time.unwrap().0, now());

    let moved = json!({"targetCapacity": 50, "trafficRoutedPercent": 20, "lastTrafficMigratedTime": ago(4)});
    let wait = upgrading(goal(), side(100, 80), moved, json!({})).plan();
    assert!(wait.steps.is_empty(), "{:?}", steps(&wait));
    assert_eq!(wait.next, quintet_controller::Next::After(Duration::from_secs(6)));

    let shrink = upgrading(goal(), side(100, 50), side(50, 50), json!({}));
    let plan = shrink.plan();
    let Action::Call(ServeRequest::DeployServeConfig { cluster, config, .. }) = &plan.steps[0].action else {
        panic!("{plan:?}")
    };
    assert_eq!(cluster.as_str(), "ns/chat-a");
    assert_eq!(
        *config,
        json!({"applications": [{"name": "app", "old": 1}], "target_capacity": 50}),
        "its own config"
    );
    assert_eq!(shares(&shrink.status_after(&plan)), [Some(50), Some(50), Some(50), Some(50)]);
}

#[test]
fn routing_that_is_not_ready_holds_capacity_up() {
    let mut world = upgrading(autoscaling(other_spec()), side(100, 100), side(0, 0), json!({}));
    world.observed.gateway =
        Some(Arc::new(entry(NAMESPACE, "chat-gateway", gateway::gateway(&world.observed.service.object))));
    assert!(world.plan().steps.is_empty());
}

#[test]
fn the_new_cluster_takes_over_when_it_has_everything() {
    let world = upgrading(autoscaling(other_spec()), side(0, 0), side(100, 100), json!({}));
    let status = world.status_after(&world.plan());
    assert_eq!(names_of(&status), ("chat-b".to_owned(), String::new()));
    let almost = upgrading(autoscaling(other_spec()), side(100, 0), side(100, 100), json!({}));
    assert_eq!(names_of(&almost.status_after(&almost.plan())).0, "chat-a");
}

#[test]
fn a_user_who_thinks_again_goes_back() {
    let back = json!({"conditions": [condition("RollbackInProgress", "True", "DesiredClusterSpecChanged")]});
    let reverted = upgrading(autoscaling(cluster_spec()), side(50, 50), side(50, 50), json!({}));
    let status = reverted.status_after(&reverted.plan());
    assert!(conditions_of(&status).contains(&"RollbackInProgress=True/DesiredClusterSpecChanged".to_owned()));
    assert_eq!(
        message_of(&status, "RollbackInProgress"),
        "Goal state reverted to original cluster, rolling back."
    );
    assert_eq!(names_of(&status).1, "chat-b");
    let again = upgrading(autoscaling(other_spec()), side(50, 50), side(50, 50), back.clone());
    let status = again.status_after(&again.plan());
    assert!(!conditions_of(&status).iter().any(|one| one.starts_with("RollbackInProgress")), "on again");
    let mut third = autoscaling(cluster_spec());
    third["rayVersion"] = json!("2.55.0");
    let third = upgrading(third, side(50, 50), side(50, 50), json!({}));
    let status = third.status_after(&third.plan());
    assert!(conditions_of(&status).contains(&"RollbackInProgress=True/DesiredClusterSpecChanged".to_owned()));
    assert_eq!(
        message_of(&status, "RollbackInProgress"),
        "Goal state changed mid-upgrade, rolling back to original cluster."
    );
    assert_eq!(names_of(&status).1, "chat-b", "first back, then on to the third");
    let done = upgrading(autoscaling(cluster_spec()), side(100, 100), side(0, 0), back);
    let status = done.status_after(&done.plan());
    assert_eq!(names_of(&status), ("chat-a".to_owned(), String::new()));
    assert!(conditions_of(&status).contains(&"UpgradeInProgress=False/NoPendingCluster".to_owned()));
    assert!(!conditions_of(&status).iter().any(|one| one.starts_with("RollbackInProgress")));
}
