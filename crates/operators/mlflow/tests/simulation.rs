//! Whatever goes wrong, the end is the right one.
//!
//! In every world users change their minds and the operator's objects, Jobs fail, requests fail or lose their responses,
//! kinds begin to be served, and the operator dies and comes back. Then all is well: the objects must be those of a world
//! in which nothing ever went wrong, and nothing is written any more.
//!
//! `QUINTET_SEEDS` says how many worlds to try; `QUINTET_SEED` tries one again.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use quintet_golden::simulation::{self, expect_no_writes, expect_same, inject};
use quintet_golden::{ObjectId, Rng, Setting, World, normalized, template};
use serde_json::{Value, json};

const NAMESPACE: &str = "opendatahub";
/// More replicas than a user asks for: a foreign change of the Deployment's scale.
const TAMPERED_REPLICAS: i64 = 7;

/// What goes wrong, in thousandths.
#[derive(Clone, Copy, Default)]
struct FaultRates {
    /// Of requests: rejected, or carried out without a response.
    requests: u64,
    /// Of rounds: the operator dies.
    crashes: u64,
    /// Of Jobs: they fail.
    jobs: u64,
}

const ROUGH: FaultRates = FaultRates { requests: 60, crashes: 200, jobs: 400 };

fn setting() -> Setting {
    let variables = [
        ("MLFLOW_IMAGE", "mlflow:3"),
        ("POD_NAMESPACE", NAMESPACE),
        ("MLFLOW_URL", "https://gw.example.com"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Setting { variables, ..Setting::default() }
}

fn mlflow() -> ObjectId {
    ObjectId::parse("MLflow mlflow").unwrap()
}

fn manifest(spec: &Value) -> Value {
    json!({
        "apiVersion": "mlflow.opendatahub.io/v1", "kind": "MLflow", "metadata": {"name": "mlflow"}, "spec": spec,
    })
}

fn first_spec() -> Value {
    json!({"backendStoreUri": "postgresql://db", "defaultArtifactRoot": "s3://b"})
}

/// A change of the spec that is allowed at any time.
fn new_mind(rng: &Rng) -> Value {
    let archival = json!({"enabled": true, "location": "s3://t", "retention": "7d"});
    let changes = [
        json!({"workers": 1 + rng.below(4)}),
        json!({"replicas": 1 + rng.below(3)}),
        json!({"garbageCollection": {"schedule": "0 1 * * *"}}),
        json!({"garbageCollection": null}),
        json!({"traceArchival": archival}),
        json!({"traceArchival": null}),
        json!({"migration": {"mode": "Always"}}),
        json!({"migration": {"mode": "Automatic"}}),
        json!({"env": [{"name": "A", "value": rng.below(9).to_string()}]}),
    ];
    changes[usize::try_from(rng.below(changes.len() as u64)).unwrap()].clone()
}

/// What the Job controller and the Deployment controller do, without faults of their own.
async fn run_workloads(world: &World, rates: FaultRates, rng: &Rng) {
    let now = jiff::Timestamp::to_string(&world.now());
    for (id, object) in world.objects().await.unwrap() {
        let status = match id.kind.as_str() {
            "Job" if object["status"]["conditions"].is_null() => {
                let fails = rng.happens(rates.jobs);
                let type_ = if fails { "Failed" } else { "Complete" };
                if fails {
                    fail_pod(world, &id, if rng.happens(300) { 13 } else { 15 }).await;
                }
                let condition = json!({"type": type_, "status": "True", "reason": "Simulated", "lastTransitionTime": now});
                json!({"succeeded": i32::from(!fails), "failed": i32::from(fails), "conditions": [condition]})
            }
            "Deployment" => {
                let wanted = object["spec"]["replicas"].as_i64().unwrap();
                json!({"replicas": wanted, "readyReplicas": wanted, "updatedReplicas": wanted, "availableReplicas": wanted})
            }
            _ => continue,
        };
        let _ = world.patch(&id, Some("status"), &json!({"status": status})).await.unwrap();
    }
}

async fn fail_pod(world: &World, job: &ObjectId, code: i32) {
    let labels = json!({"job-name": job.name, "mlflow.opendatahub.io/migration-job": "true"});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{}-{}", job.name, world.now().as_second()), "namespace": job.namespace, "labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "db-migrate", "image": "x"}]},
    });
    world.create(&pod).await.unwrap();
    let ended = json!({"name": "db-migrate", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
                       "state": {"terminated": {"exitCode": code, "reason": "Error"}}});
    let status = json!({"status": {"phase": "Failed", "containerStatuses": [ended]}});
    world.patch(&ObjectId::of(&pod), Some("status"), &status).await.unwrap();
}

/// Another client deletes or changes an object of the operator.
async fn tamper(world: &World, rng: &Rng) {
    let objects = world.objects().await.unwrap();
    let is_ours = |object: &Value| {
        let owners = object["metadata"]["ownerReferences"].as_array();
        owners.is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "MLflow"))
    };
    let ours: Vec<_> = objects.iter().filter(|(_, object)| is_ours(object)).collect();
    let Some((id, object)) =
        usize::try_from(rng.below(ours.len().max(1) as u64)).ok().and_then(|number| ours.get(number))
    else {
        return;
    };
    let patch = match id.kind.as_str() {
        "Job" => return,
        "Deployment" => json!({"spec": {"replicas": TAMPERED_REPLICAS}}),
        _ if rng.happens(500) => {
            world.delete(id).await.unwrap();
            return;
        }
        _ => {
            let labels = object["metadata"]["labels"].as_object().unwrap();
            let tampered = labels.keys().map(|name| (name.clone(), "tampered"));
            json!({"metadata": {"labels": tampered.collect::<BTreeMap<_, _>>()}})
        }
    };
    world.patch(id, None, &patch).await.unwrap();
}

/// Migrations that run, and the replicas of the server that are wanted meanwhile.
async fn migrations(world: &World) -> (Vec<String>, i64) {
    let objects = world.objects().await.unwrap();
    let running = objects
        .iter()
        .filter(|(id, object)| id.kind == "Job" && object["status"]["conditions"].is_null())
        .filter(|(_, object)| object["metadata"]["deletionTimestamp"].is_null())
        .map(|(id, _)| id.to_string());
    let deployment = objects.get(&ObjectId::parse("Deployment opendatahub/mlflow").unwrap());
    let wanted = deployment.map_or(0, |deployment| deployment["spec"]["replicas"].as_i64().unwrap());
    (running.collect(), if wanted == TAMPERED_REPLICAS { 0 } else { wanted })
}

/// At most one Job runs, and none while the server is wanted. Only where an operator has died, a Job that it has asked for
/// may come late; the next operator notices it.
async fn expect_promises(world: &World, has_died: bool, seed: u64) {
    let is_kept = |(running, wanted): &(Vec<String>, i64)| running.len() + usize::from(*wanted > 0) <= 1;
    let mut found = migrations(world).await;
    if !is_kept(&found) && has_died {
        if !world.is_running() {
            return;
        }
        world.settle().await.unwrap();
        found = migrations(world).await;
    }
    let (running, wanted) = &found;
    assert!(
        is_kept(&found),
        "seed {seed}: {running:?} migrate the same database, which {wanted} servers use"
    );
}

/// Everything that the operator made, but for Jobs, whose names depend on history.
async fn made(world: &World) -> BTreeMap<String, Value> {
    let objects = world.objects().await.unwrap();
    let made = objects.into_iter().filter(|(id, object)| {
        let owners = &object["metadata"]["ownerReferences"];
        id.kind != "Job"
            && owners.as_array().is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "MLflow"))
    });
    made.map(|(id, object)| (id.to_string(), normalized(object, false))).collect()
}

/// Lets the workloads run until all is well.
async fn settle(world: &World, rng: &Rng, seed: u64) {
    let mut status = Value::Null;
    for _ in 0..60 {
        run_workloads(world, FaultRates::default(), rng).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let object = world.get(&mlflow()).await.unwrap().unwrap();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let holds =
            |type_: &str| conditions.iter().any(|one| one["type"] == type_ && one["status"] == "True");
        let has_failed = conditions.iter().any(|one| one["reason"] == "MigrationFailed");
        let is_forced = !object["metadata"]["annotations"]["mlflow.opendatahub.io/force-migrate"].is_null();
        if has_failed {
            force(world).await;
        } else if holds("Available") && !is_forced && world.settle().await.unwrap() {
            return;
        }
        status = object["status"].clone();
    }
    panic!("seed {seed}: never comes to rest: {status:#}");
}

async fn force(world: &World) {
    let annotations = json!({"mlflow.opendatahub.io/force-migrate": ""});
    world.patch(&mlflow(), None, &json!({"metadata": {"annotations": annotations}})).await.unwrap();
}

/// What the operator makes of a spec where nothing goes wrong.
async fn expected(template: &quintet_golden::Api, spec: &Value, seed: u64) -> BTreeMap<String, Value> {
    let mut world = World::new(template, seed, &[NAMESPACE.to_owned()]).await.unwrap();
    for kind in ["HTTPRoute", "ServiceMonitor"] {
        world.serve(kind).await.unwrap();
    }
    world.start(&quintet_mlflow::component(), &setting()).await.unwrap();
    assert_eq!(world.create(&manifest(spec)).await.unwrap().code, 201);
    settle(&world, &Rng::seeded(seed), seed).await;
    let made = made(&world).await;
    world.stop().await;
    made
}

async fn live(template: &quintet_golden::Api, rates: FaultRates, seed: u64) {
    let (component, setting, rng) = (quintet_mlflow::component(), setting(), Rng::seeded(seed));
    let mut world = World::new(template, seed, &[NAMESPACE.to_owned()]).await.unwrap();
    world.start(&component, &setting).await.unwrap();
    world.create(&manifest(&first_spec())).await.unwrap();
    let (mut unserved, mut has_died) = (vec!["HTTPRoute", "ServiceMonitor"], false);
    for _ in 0..12 {
        inject(&world, rates.requests, &rng);
        tokio::time::sleep(Duration::from_secs(rng.below(90))).await;
        if rng.happens(rates.crashes) {
            world.kill();
        }
        has_died |= !world.is_running();
        world.faults().clear();
        expect_promises(&world, has_died, seed).await;
        run_workloads(&world, rates, &rng).await;
        match rng.below(6) {
            0 => tamper(&world, &rng).await,
            1 => force(&world).await,
            2 => {
                if let Some(kind) = unserved.pop() {
                    world.serve(kind).await.unwrap();
                } else {
                    world.kill();
                    has_died = true;
                }
            }
            _ => {
                world.patch(&mlflow(), None, &json!({"spec": new_mind(&rng)})).await.unwrap();
            }
        }
        if !world.is_running() {
            world.start(&component, &setting).await.unwrap();
        }
    }
    for kind in unserved {
        world.serve(kind).await.unwrap();
    }
    settle(&world, &rng, seed).await;
    let spec = world.get(&mlflow()).await.unwrap().unwrap()["spec"].clone();
    let (is, should_be) = (made(&world).await, expected(template, &spec, seed).await);
    expect_same(&is, &should_be, seed);
    expect_no_writes(&mut world, &component, &setting, seed).await;
    world.stop().await;
}

fn try_worlds(rates: FaultRates, default: u64) {
    let template = async { template(&quintet_mlflow::component(), &[]).await };
    simulation::try_worlds(default, template, &async |template, seed| live(template, rates, seed).await);
}

#[test]
fn a_world_without_faults_ends_right() {
    try_worlds(FaultRates::default(), 4);
}

#[test]
fn a_rough_world_ends_right() {
    try_worlds(ROUGH, 12);
}

#[test]
fn a_world_whose_operator_dies_ends_right() {
    try_worlds(FaultRates { crashes: 600, ..FaultRates::default() }, 6);
}
