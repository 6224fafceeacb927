//! Disruption budgets and the eviction of pods.

use anyhow::ensure;
use serde_json::{Value, json};

use super::super::cases;
use super::{
    REPLICA_SETS, Resource, condition, create_pod, expect_condition, name_of, template, until_ready,
};
use crate::{Answer, World};

cases! { "workloads: disruption":
    "a budget counts its pods" => counts,
    "an eviction that a budget does not allow is refused" => refused,
    "an evicted pod says why it went, and is replaced" => evicted,
    "a pod without a budget can be evicted" => unlimited,
}

const BUDGETS: Resource = Resource::new("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets");

/// Evicts a pod.
pub(super) async fn evict(world: &World, name: &str) -> anyhow::Result<Answer> {
    let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } });
    world.post(&world.core(&format!("pods/{name}/eviction")), &body).await
}

/// Three pods, and a budget for them.
async fn create(world: &World, budget: Value) -> anyhow::Result<Vec<Value>> {
    let selector = json!({ "matchLabels": { "app": "set" } });
    let spec = json!({ "replicas": 3, "selector": selector, "template": template("set") });
    REPLICA_SETS.create(world, "set", spec).await?;
    let pods = until_ready(world, "set", 3).await?;
    let mut spec = budget;
    spec["selector"] = selector;
    BUDGETS.create(world, "budget", spec).await?;
    Ok(pods)
}

async fn until_allowed(world: &World, allowed: usize) -> anyhow::Result<Value> {
    let is_so = |budget: &Value| {
        super::is_observed(budget)
            && budget["status"]["currentHealthy"] == 3
            && budget["status"]["disruptionsAllowed"] == allowed
    };
    BUDGETS.until(world, "budget", &format!("{allowed} disruptions allowed"), is_so).await
}

async fn counts(world: World) -> anyhow::Result<()> {
    create(&world, json!({ "maxUnavailable": "34%" })).await?;
    let budget = until_allowed(&world, 2).await?;
    let status = &budget["status"];
    ensure!(status["expectedPods"] == 3 && status["desiredHealthy"] == 1, "{status}");
    expect_condition(&budget, "DisruptionAllowed", "True", "SufficientPods", "")?;
    BUDGETS
        .merge(&world, "budget", &json!({ "spec": { "maxUnavailable": null, "minAvailable": 3 } }))
        .await?;
    let budget = until_allowed(&world, 0).await?;
    ensure!(budget["status"]["desiredHealthy"] == 3, "{budget}");
    expect_condition(&budget, "DisruptionAllowed", "False", "InsufficientPods", "")
}

async fn refused(world: World) -> anyhow::Result<()> {
    let pods = create(&world, json!({ "minAvailable": 3 })).await?;
    until_allowed(&world, 0).await?;
    let answer = evict(&world, name_of(&pods[0])).await?;
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let status = answer.expect_status(429, "TooManyRequests", message)?;
    let cause = &status["details"]["causes"][0];
    let message = "The disruption budget budget needs 3 healthy pods and has 3 currently";
    ensure!(cause["reason"] == "DisruptionBudget" && cause["message"] == message, "{cause}");
    let pod = world.get(&world.core(&format!("pods/{}", name_of(&pods[0])))).await?.expect(200)?;
    ensure!(super::is_staying(&pod) && condition(&pod, "DisruptionTarget").is_null(), "{pod}");
    Ok(())
}

async fn evicted(world: World) -> anyhow::Result<()> {
    let pods = create(&world, json!({ "minAvailable": 2 })).await?;
    until_allowed(&world, 1).await?;
    let path = world.core(&format!("pods/{}", name_of(&pods[0])));
    let hold = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    world.patch(&path, "merge-patch+json", &hold).await?.expect(200)?;
    evict(&world, name_of(&pods[0])).await?.expect(201)?;
    let pod = world.get(&path).await?.expect(200)?;
    expect_condition(&pod, "DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting")?;
    ensure!(!super::is_staying(&pod), "{pod}");
    let release = json!({ "metadata": { "finalizers": null } });
    world.patch(&path, "merge-patch+json", &release).await?.expect(200)?;
    until_ready(&world, "set", 3).await?;
    until_allowed(&world, 1).await.map(drop)
}

async fn unlimited(world: World) -> anyhow::Result<()> {
    create_pod(&world, "alone", template("alone")).await?;
    until_ready(&world, "alone", 1).await?;
    evict(&world, "alone").await?.expect(201)?;
    world.gone(&world.core("pods/alone")).await
}
