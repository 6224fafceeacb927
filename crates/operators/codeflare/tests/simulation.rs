//! Whatever goes wrong, AppWrappers leave nothing behind and count their retries once.
//!
//! In every world users create, suspend, resume and delete AppWrappers of pods, Jobs and RayClusters; pods fail and are
//! evicted, nodes become unhealthy; requests fail or lose their responses, and the operator dies and comes back. Every
//! second the promises are checked; in the end nothing is left of what was deleted.
//!
//! `QUINTET_SEEDS` says how many worlds to try; `QUINTET_SEED` tries one again.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod bed;

use std::collections::BTreeMap;
use std::time::Duration;

use bed::NAMESPACE;
use quintet_golden::simulation::{inject, try_worlds};
use quintet_golden::{Api, ObjectId, Rng, World};
use serde_json::{Value, json};

const APP_WRAPPER: &str = "workload.codeflare.dev/appwrapper";
const CONFIGURATION: &str =
    "appwrapper: {autopilot: {resourceTaints: {cpu: [{key: health, value: BAD, effect: NoExecute}]}}}";
const WRAPPERS: [&str; 3] = ["w0", "w1", "w2"];

fn id(name: &str) -> ObjectId {
    ObjectId::parse(&format!("AppWrapper {NAMESPACE}/{name}")).unwrap()
}

/// An AppWrapper of one to three random objects.
fn random_appwrapper(name: &str, rng: &Rng) -> (Value, u32) {
    let mut templates = Vec::new();
    for number in 0..=rng.below(3) {
        let object = format!("{name}-{number}");
        let annotations = match rng.below(4) {
            0 => json!({"node.quintet.dev/run-for": format!("{}s", 5 + rng.below(30))}),
            1 => json!({"node.quintet.dev/run-for": "10s", "node.quintet.dev/exit-code": "1"}),
            _ => json!({}),
        };
        templates.push(match rng.below(4) {
            0 => bed::job(&object, annotations),
            1 => bed::ray_cluster(&object),
            2 => {
                let mut pod = bed::pod("", annotations);
                pod["metadata"] = json!({"generateName": format!("{object}-"), "annotations": pod["metadata"]["annotations"]});
                pod
            }
            _ => bed::pod(&object, annotations),
        });
    }
    let retries = u32::try_from(rng.below(3)).unwrap();
    (bed::appwrapper(name, retries, &templates), retries)
}

/// What is known of an AppWrapper: its phase, how often it was reset, and when it was last deployed anew after that.
#[derive(Clone, Default)]
struct Known {
    uid: String,
    phase: String,
    resets: i64,
    limit: i64,
    redeployed: Option<String>,
}

/// Looks at all AppWrappers: retries are counted once, within the limit, and never uncounted.
async fn expect_promises(
    world: &World,
    known: &mut BTreeMap<String, Known>,
    limits: &BTreeMap<String, u32>,
    seed: u64,
) {
    for name in WRAPPERS {
        let Some(object) = world.get(&id(name)).await.unwrap() else { continue };
        let status = &object["status"];
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let mut redeployed = conditions.clone().filter(|one| one["message"] == "Reset complete; resuming");
        let now = Known {
            uid: object["metadata"]["uid"].as_str().unwrap().to_owned(),
            phase: status["phase"].as_str().unwrap_or_default().to_owned(),
            resets: status["resettingCount"].as_i64().unwrap_or_default(),
            limit: limits[name].into(),
            redeployed: redeployed.next().map(|one| one["lastTransitionTime"].to_string()),
        };
        let is_of_node = conditions
            .filter(|one| one["type"] == "Unhealthy")
            .any(|one| one["reason"] == "AutopilotNoExecute");
        let before = known.get(name).filter(|before| before.uid == now.uid).cloned().unwrap_or_default();
        assert!(
            now.resets <= now.limit.max(0),
            "seed {seed}: {name} was reset {} of {} times",
            now.resets,
            now.limit
        );
        let has_begun = now.phase == "Resetting" && before.phase != "Resetting";
        // If the status was written so late that the pause is over, it resumes at once: then nobody has seen it reset.
        let was_redeployed = before.phase == "Running" && now.redeployed != before.redeployed;
        let may_have_begun = before.uid.is_empty() || (was_redeployed && now.redeployed.is_some());
        let counted = now.resets - before.resets;
        let expected = i64::from(has_begun && !is_of_node);
        assert!(
            counted == expected || (may_have_begun && counted == 1),
            "seed {seed}: {name} went from {} to {} and counted {counted}",
            before.phase,
            now.phase
        );
        known.insert(name.to_owned(), now);
    }
}

/// Objects that belong to an AppWrapper.
async fn belongings(world: &World, name: &str) -> Vec<String> {
    let objects = world.objects().await.unwrap();
    let is_of = |id: &ObjectId, object: &Value| {
        let owners = object["metadata"]["ownerReferences"].as_array();
        let is_owned = owners.is_some_and(|owners| {
            owners.iter().any(|owner| owner["kind"] == "AppWrapper" && owner["name"] == name)
        });
        id.kind != "AppWrapper" && (is_owned || object["metadata"]["labels"][APP_WRAPPER] == name)
    };
    objects.iter().filter(|(id, object)| is_of(id, object)).map(|(id, _)| id.to_string()).collect()
}

/// A user or the world changes its mind.
async fn act(world: &World, limits: &mut BTreeMap<String, u32>, rng: &Rng) {
    let name = WRAPPERS[usize::try_from(rng.below(3)).unwrap()];
    match rng.below(7) {
        0 => drop(world.patch(&id(name), None, &json!({"spec": {"suspend": true}})).await.unwrap()),
        1 => drop(world.patch(&id(name), None, &json!({"spec": {"suspend": false}})).await.unwrap()),
        2 => drop(world.delete(&id(name)).await),
        3 => {
            let node = ObjectId::parse(&format!("Node sim-{}", rng.below(3))).unwrap();
            let value = if rng.happens(500) { json!("BAD") } else { Value::Null };
            world.patch(&node, None, &json!({"metadata": {"labels": {"health": value}}})).await.unwrap();
        }
        4 => {
            let objects = world.objects().await.unwrap();
            let pods: Vec<_> = objects.keys().filter(|id| id.kind == "Pod").collect();
            if let Some(pod) = pods.get(usize::try_from(rng.below(pods.len().max(1) as u64)).unwrap()) {
                let evicted =
                    json!({"metadata": {"annotations": {"node.quintet.dev/evict": "the node is full"}}});
                world.patch(pod, None, &evicted).await.unwrap();
            }
        }
        _ => {
            if world.get(&id(name)).await.unwrap().is_none() {
                let (object, retries) = random_appwrapper(name, rng);
                limits.insert(name.to_owned(), retries);
                assert_eq!(world.create(&object).await.unwrap().code, 201);
            }
        }
    }
}

async fn live(template: &Api, seed: u64) {
    let (component, setting, rng) =
        (quintet_codeflare::component(), bed::setting(CONFIGURATION), Rng::seeded(seed));
    let mut world = bed::world(template, seed).await;
    world.start(&component, &setting).await.unwrap();
    let (mut known, mut limits) = (BTreeMap::new(), BTreeMap::new());
    for name in WRAPPERS {
        let (object, retries) = random_appwrapper(name, &rng);
        limits.insert(name.to_owned(), retries);
        assert_eq!(world.create(&object).await.unwrap().code, 201);
    }
    for _ in 0..12 {
        inject(&world, 40, &rng);
        for _ in 0..5 + rng.below(25) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            world.faults().clear();
            expect_promises(&world, &mut known, &limits, seed).await;
            inject(&world, 40, &rng);
        }
        world.faults().clear();
        if rng.happens(250) {
            world.kill();
            tokio::time::sleep(Duration::from_secs(rng.below(10))).await;
            world.start(&component, &setting).await.unwrap();
        }
        expect_promises(&world, &mut known, &limits, seed).await;
        act(&world, &mut limits, &rng).await;
        // An AppWrapper of the same name may be another one now.
        expect_promises(&world, &mut known, &limits, seed).await;
    }
    end(&mut world, seed).await;
    world.stop().await;
}

/// Ends all AppWrappers: suspended and failed ones have nothing, and deleted ones leave nothing.
async fn end(world: &mut World, seed: u64) {
    world.patch(&id("w0"), None, &json!({"spec": {"suspend": true}})).await.unwrap();
    tokio::time::sleep(Duration::from_mins(10)).await;
    for name in WRAPPERS {
        let Some(object) = world.get(&id(name)).await.unwrap() else {
            assert_eq!(
                belongings(world, name).await,
                Vec::<String>::new(),
                "seed {seed}: {name} was deleted"
            );
            continue;
        };
        let phase = object["status"]["phase"].as_str().unwrap_or_default();
        if matches!(phase, "Suspended" | "Failed") {
            assert_eq!(belongings(world, name).await, Vec::<String>::new(), "seed {seed}: {name} is {phase}");
        }
        assert!(
            matches!(phase, "Suspended" | "Failed" | "Succeeded" | "Running" | "Resetting" | "Resuming"),
            "seed {seed}: {name} is stuck: {object:#}"
        );
    }
    for name in WRAPPERS {
        drop(world.delete(&id(name)).await);
    }
    tokio::time::sleep(Duration::from_mins(5)).await;
    for name in WRAPPERS {
        assert_eq!(world.get(&id(name)).await.unwrap(), None, "seed {seed}: {name} is not gone");
        assert_eq!(
            belongings(world, name).await,
            Vec::<String>::new(),
            "seed {seed}: {name} leaves something"
        );
    }
    let writes = inject(world, 0, &Rng::seeded(seed));
    tokio::time::sleep(Duration::from_mins(10)).await;
    let of_ours: Vec<_> = writes.list().into_iter().filter(|write| write.contains("appwrappers")).collect();
    assert!(of_ours.is_empty(), "seed {seed}: {of_ours:?}");
}

#[test]
fn nothing_leaks_and_retries_are_counted_once() {
    try_worlds(24, async { Ok(bed::template().await) }, &async |template, seed| live(template, seed).await);
}
