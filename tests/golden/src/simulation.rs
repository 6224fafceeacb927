//! What simulated worlds of operators have in common: their seeds, random faults, and how a settled world looks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quintet_apiserver::Rng;
use quintet_apiserver::faults::{Fault, Met};
use quintet_component::Component;
use serde_json::Value;

use crate::{Api, Setting, World, differences, simulate, unavailable};

/// The seeds of the worlds to try: the one that `QUINTET_SEED` names, or as many as `QUINTET_SEEDS` says.
pub fn seeds(default: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("QUINTET_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("QUINTET_SEEDS").unwrap_or(default),
    }
}

/// Tries as many worlds as are asked for, each in a runtime of its own: what killed operators leave behind ends with it.
///
/// # Panics
///
/// If there is no template to fork the worlds from.
#[expect(clippy::panic, reason = "a test that cannot go on says so by panicking")]
pub fn try_worlds(
    default: u64,
    template: impl Future<Output = Result<Api, String>>,
    live: &impl AsyncFn(&Api, u64),
) {
    let template = simulate(template).unwrap_or_else(|error| panic!("{error}"));
    for seed in seeds(default) {
        let lived = simulate(async {
            live(&template, seed).await;
            Ok(())
        });
        lived.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Whether a request may change something.
pub fn is_write(met: &Met<'_>) -> bool {
    !matches!(met.verb, "get" | "list" | "watch")
}

/// Lets caches that start from now on show a resource as it is listed: its watches fail.
pub fn fail_watches(world: &World, resource: &'static str) {
    world.faults().decide(move |met| {
        (met.verb == "watch" && met.resource == resource).then(|| Fault::Fail(unavailable("simulated")))
    });
}

/// What goes wrong with a request: it fails, is late, or is carried out without a response.
pub fn random_fault(met: &Met<'_>, rng: &Rng) -> Fault {
    let unavailable = || unavailable("simulated");
    match rng.below(4) {
        0 if is_write(met) => Fault::Lost(unavailable()),
        1 if is_write(met) => Fault::Conflict,
        2 => Fault::Delay(Duration::from_secs(rng.below(20))),
        _ if met.verb == "watch" => Fault::Break(rng.below(5)),
        _ => Fault::Fail(unavailable()),
    }
}

/// The writes that a world has seen.
#[derive(Clone, Debug, Default)]
pub struct Writes(Arc<Mutex<Vec<String>>>);

impl Writes {
    /// All of them, as verb, resource and name.
    pub fn list(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    fn clear(&self) {
        self.0.lock().clear();
    }
}

/// Lets some of a thousand requests fail, and records writes, but for leases: nodes renew theirs.
pub fn inject(world: &World, thousandths: u64, rng: &Rng) -> Writes {
    let (rng, writes) = (rng.fork(), Writes::default());
    let seen = writes.clone();
    world.faults().decide(move |met| {
        if is_write(&met) && met.resource != "leases" {
            seen.0.lock().push(format!("{} {} {}", met.verb, met.resource, met.name));
        }
        rng.happens(thousandths).then(|| random_fault(&met, &rng))
    });
    writes
}

/// Settled means that nothing is written, also after a restart of the operator.
///
/// # Panics
///
/// If something is.
#[expect(clippy::panic, reason = "a test that cannot go on says so by panicking")]
pub async fn expect_no_writes(world: &mut World, component: &Component, setting: &Setting, seed: u64) {
    let writes = inject(world, 0, &Rng::seeded(seed));
    let expect_none = |writes: &Writes, when| {
        // What the operator is installed with is not its doing.
        let writes: Vec<_> =
            writes.list().into_iter().filter(|write| !write.starts_with("create cluster")).collect();
        assert!(writes.is_empty(), "seed {seed}: a settled world sees no writes {when}, and not {writes:#?}");
    };
    tokio::time::sleep(Duration::from_mins(30)).await;
    expect_none(&writes, "while it runs");
    world.kill();
    writes.clear();
    if let Err(error) = world.start(component, setting).await {
        panic!("seed {seed}: the operator does not start: {error}");
    }
    tokio::time::sleep(Duration::from_mins(30)).await;
    expect_none(&writes, "after a restart");
}

/// A world in which things went wrong has the same objects as one in which nothing did.
///
/// # Panics
///
/// If it does not, with the differences.
#[expect(clippy::panic, reason = "a test that cannot go on says so by panicking")]
pub fn expect_same(actual: &BTreeMap<String, Value>, expected: &BTreeMap<String, Value>, seed: u64) {
    for (id, object) in expected {
        let Some(actual) = actual.get(id) else { panic!("seed {seed}: {id} is missing") };
        let differences = differences(object, actual);
        assert!(differences.is_empty(), "seed {seed}: {id}: {differences:#?}");
    }
    let extra: Vec<_> = actual.keys().filter(|id| !expected.contains_key(*id)).collect();
    assert!(extra.is_empty(), "seed {seed}: {extra:?} should be gone");
}
