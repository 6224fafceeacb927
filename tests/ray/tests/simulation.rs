//! Whatever goes wrong, the end is the right one.
//!
//! `QUINTET_SEEDS` says how many worlds to try; `QUINTET_SEED` tries one again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use k8s_openapi::api::core::v1::{Pod, Service};
use quintet_api::ray::v1::RayCluster;
use quintet_apiserver::Api;
use quintet_ray_tests::{FaultRates, Kubelet, Operator, Start, World, simulate, try_worlds};
use serde_json::{Value, json};

fn cluster(name: &str, workers: u64, hosts: u64) -> Value {
    let template = json!({"spec": {"containers": [{"name": "ray", "image": "ray"}]}});
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name},
        "spec": {
            "headGroupSpec": {"template": template},
            "workerGroupSpecs": [{
                "groupName": "group", "replicas": workers, "minReplicas": 0, "maxReplicas": 10, "numOfHosts": hosts,
                "template": template,
            }],
        },
    })
}

fn label<'a>(pod: &'a Pod, name: &str) -> &'a str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(name)).map_or("", String::as_str)
}

/// What happens to a cluster in the next moment.
async fn change_minds(world: &World, wanted: &mut BTreeMap<&str, u64>) {
    let name = if world.rng.happens(500) { "plain" } else { "slices" };
    let replicas = world.rng.below(4);
    match world.rng.below(4) {
        0 => world.change(name, &json!({"spec": {"suspend": true}})).await,
        1 => world.change(name, &json!({"spec": {"suspend": false}})).await,
        _ => {
            wanted.insert(name, replicas);
            scale(world, name, replicas).await;
        }
    }
}

/// One world: users change their minds, pods die, operators die and come back; then peace. With a standby there are two
/// operators, and one leads.
async fn live(template: &Api, seed: u64, fault_rates: FaultRates, has_standby: bool) {
    let world = World::new(template, seed);
    let mut how = Start::alone(fault_rates);
    let mut kubelet = Kubelet::new(&world);
    kubelet.failing = 10;
    let mut replicas = 0;
    let mut start = |how: &mut Start| {
        replicas += 1;
        how.identity = has_standby.then(|| format!("replica-{replicas}"));
        Operator::start(&world, how)
    };
    let mut operators: Vec<_> = (0..=u8::from(has_standby)).map(|_| start(&mut how)).collect();
    world.create(cluster("plain", 2, 1)).await;
    world.create(cluster("slices", 1, 2)).await;
    let mut wanted = BTreeMap::from([("plain", 2), ("slices", 1)]);
    for _ in 0..12 {
        kubelet.work(world.rng.below(6), 1 + world.rng.below(6)).await;
        for operator in &mut operators {
            if operator.is_over() || world.rng.happens(150) {
                operator.kill();
                world.pass(Duration::from_secs(world.rng.below(60))).await;
                *operator = start(&mut how);
            }
        }
        change_minds(&world, &mut wanted).await;
    }
    for name in wanted.keys() {
        world.change(name, &json!({"spec": {"suspend": false}})).await;
    }
    kubelet.failing = 0;
    how.fault_rates = FaultRates::default();
    for operator in &mut operators {
        operator.connection.set_fault_rates(how.fault_rates);
        if operator.is_over() {
            operator.kill();
            *operator = start(&mut how);
        }
    }
    settle(&world, &mut kubelet, &wanted, seed).await;
    // What is right already may still be news to the operator, whose watches lag behind.
    kubelet.work(3, 60).await;
    take_writes(&operators);
    kubelet.work(10, 120).await;
    let writes = take_writes(&operators);
    assert!(writes.is_empty(), "seed {seed}: a settled world sees no writes, and not {writes:#?}");
    for name in wanted.keys() {
        world.delete(name).await;
    }
    for _ in 0..60 {
        kubelet.work(1, 10).await;
        if world.list::<Pod>().await.is_empty() {
            break;
        }
    }
    let left = world.list::<Pod>().await;
    assert!(left.is_empty(), "seed {seed}: children go with their owner, not {left:#?}");
    for operator in &operators {
        operator.kill();
    }
    world.api.stop().await;
}

/// What operators wrote, beside the renewals of their lease.
fn take_writes(operators: &[Operator]) -> Vec<String> {
    let writes = operators.iter().flat_map(|operator| operator.connection.take_writes());
    writes.filter(|write| !write.contains("/leases/")).collect()
}

async fn scale(world: &World, name: &str, replicas: u64) {
    let clusters = world.objects::<RayCluster>();
    let mut group = clusters.get(name).await.unwrap().spec.worker_group_specs.unwrap();
    group[0].replicas = Some(i32::try_from(replicas).unwrap());
    world.change(name, &json!({"spec": {"workerGroupSpecs": group}})).await;
}

async fn settle(world: &World, kubelet: &mut Kubelet, wanted: &BTreeMap<&str, u64>, seed: u64) {
    let mut wrong = String::new();
    // Backoff after a bad time may be a quarter of an hour.
    for round in 0..120 {
        kubelet.work(1, if round < 20 { 2 } else { 20 }).await;
        wrong = what_is_wrong(world, wanted).await;
        if wrong.is_empty() {
            return;
        }
    }
    panic!("seed {seed}: {wrong}");
}

async fn what_is_wrong(world: &World, wanted: &BTreeMap<&str, u64>) -> String {
    let pods = world.list::<Pod>().await;
    let services = world.list::<Service>().await;
    let mut wrong = String::new();
    for cluster in world.list::<RayCluster>().await {
        let name = cluster.metadata.name.clone().unwrap_or_default();
        let group = &cluster.spec.worker_group_specs.as_ref().unwrap()[0];
        let hosts = u64::try_from(group.num_of_hosts.unwrap_or(1)).unwrap();
        let workers = wanted[name.as_str()] * hosts;
        let mine: Vec<_> = pods.iter().filter(|pod| label(pod, "ray.io/cluster") == name).collect();
        let head = mine.iter().filter(|pod| label(pod, "ray.io/node-type") == "head").count();
        if head != 1 || mine.len() as u64 != workers + 1 {
            let _ =
                write!(wrong, "{name} has {head} heads and {} pods instead of {}; ", mine.len(), workers + 1);
        }
        // A pod that is going, or has not come yet, is news to come.
        let is_on_the_move = |pod: &&&Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            pod.metadata.deletion_timestamp.is_some() || phase != Some("Running")
        };
        if let Some(pod) = mine.iter().find(is_on_the_move) {
            let _ = write!(wrong, "{:?} is coming or going; ", pod.metadata.name);
        }
        let status = cluster.status.unwrap_or_default();
        if status.state.as_deref() != Some("ready")
            || status.ready_worker_replicas != i32::try_from(workers).ok()
        {
            let _ =
                write!(wrong, "{name} says {:?}, {:?} ready; ", status.state, status.ready_worker_replicas);
        }
        // A suspension that has begun runs to its end: the pods that are there now are not those that stay.
        let conditions = status.conditions.unwrap_or_default();
        if conditions.iter().any(|one| one.type_ == "RayClusterSuspending" && one.status == "True") {
            let _ = write!(wrong, "{name} is being suspended; ");
        }
        let service = format!("{name}-head-svc");
        if !services.iter().any(|one| one.metadata.name.as_deref() == Some(&service)) {
            let _ = write!(wrong, "{name} has no head Service; ");
        }
    }
    wrong
}

fn try_all(fault_rates: FaultRates, default: u64) {
    try_worlds(default, async |template, seed| live(template, seed, fault_rates, false).await);
}

#[test]
fn a_world_without_faults_ends_right() {
    try_all(FaultRates::default(), 100);
}

#[test]
fn a_rough_world_ends_right() {
    try_all(FaultRates::ROUGH, 250);
}

#[test]
fn a_world_whose_operator_dies_ends_right() {
    try_all(FaultRates { crash: 60, ..FaultRates::default() }, 150);
}

#[test]
fn a_world_that_loses_answers_and_sees_the_past_ends_right() {
    try_all(FaultRates { lost: 200, watch_lag: 60, ..FaultRates::default() }, 150);
}

#[test]
fn a_world_whose_watches_are_faster_than_answers_ends_right() {
    try_all(FaultRates { late: 300, lost: 30, crash: 20, ..FaultRates::default() }, 150);
}

/// The next leader knows what the last one did, though its watches lag behind.
#[test]
fn a_world_with_a_standby_ends_right() {
    let fault_rates = FaultRates { crash: 20, late: 30, watch_lag: 60, ..FaultRates::default() };
    try_worlds(150, async |template, seed| live(template, seed, fault_rates, true).await);
}

#[test]
fn the_clock_of_a_world_is_its_own() {
    simulate(async {
        let clock = Start::alone(FaultRates::default()).clock;
        let before = clock.now();
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(clock.now().duration_since(before).as_secs(), 60);
    });
}
