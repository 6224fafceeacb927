//! ReplicaSets: which pods are theirs.

use anyhow::ensure;
use serde_json::{Value, json};

use super::super::cases;
use super::{
    REPLICA_SETS, create_pod, is_owned_by, name_of, template, until_event, until_pod, until_pods, until_ready,
};
use crate::World;

cases! { "workloads: ReplicaSet":
    "a pod that is deleted is replaced" => replacement,
    "pods that match are adopted, and released when they match no longer" => claiming,
    "pods that cost least to delete go first" => deletion_cost,
    "a pod that cannot be made is a condition" => failure,
}

async fn create(world: &World, replicas: usize) -> anyhow::Result<Value> {
    let spec = json!({
        "replicas": replicas, "selector": { "matchLabels": { "app": "set" } }, "template": template("set"),
    });
    REPLICA_SETS.create(world, "set", spec).await
}

async fn replacement(world: World) -> anyhow::Result<()> {
    create(&world, 2).await?;
    let pods = until_ready(&world, "set", 2).await?;
    let victim = name_of(&pods[0]);
    world.delete(&world.core(&format!("pods/{victim}")), None).await?.expect(200)?;
    world.gone(&world.core(&format!("pods/{victim}"))).await?;
    let pods = until_ready(&world, "set", 2).await?;
    ensure!(pods.iter().all(|pod| name_of(pod) != victim), "{pods:?}");
    let counted = |set: &Value| {
        ["replicas", "readyReplicas", "availableReplicas", "fullyLabeledReplicas"]
            .iter()
            .all(|field| set["status"][*field] == 2)
    };
    REPLICA_SETS.until(&world, "set", "the counts", counted).await.map(drop)
}

async fn claiming(world: World) -> anyhow::Result<()> {
    create_pod(&world, "stray", template("set")).await?;
    let set = create(&world, 2).await?;
    until_pod(&world, "stray", "adoption", |pod| is_owned_by(pod, &set)).await?;
    until_ready(&world, "set", 2).await?;
    let patch = json!({ "metadata": { "labels": { "app": "other" } } });
    world.patch(&world.core("pods/stray"), "merge-patch+json", &patch).await?.expect(200)?;
    let released = |pod: &Value| pod["metadata"]["ownerReferences"].is_null();
    let stray = until_pod(&world, "stray", "release", released).await?;
    ensure!(stray["metadata"]["deletionTimestamp"].is_null(), "{stray}");
    until_ready(&world, "set", 2).await.map(drop)
}

async fn deletion_cost(world: World) -> anyhow::Result<()> {
    for (name, cost) in [("dear", "5"), ("cheap", "-10"), ("dearer", "100")] {
        let mut template = template("set");
        template["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"] = json!(cost);
        create_pod(&world, name, template).await?;
    }
    until_ready(&world, "set", 3).await?;
    create(&world, 2).await?;
    let left = until_pods(&world, "set", "two pods", |pods| pods.len() == 2).await?;
    let names: Vec<_> = left.iter().map(name_of).collect();
    ensure!(names == ["dear", "dearer"], "{names:?}");
    until_event(&world, "set", "SuccessfulDelete", "Deleted pod: cheap").await
}

async fn failure(world: World) -> anyhow::Result<()> {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "q" },
        "spec": { "hard": { "pods": "0" } },
    });
    world.post(&world.core("resourcequotas"), &quota).await?.expect(201)?;
    let path = world.core("resourcequotas/q");
    world.eventually(&path, "the quota", |answer| answer.body["status"]["used"].is_object()).await?;
    create(&world, 1).await?;
    let set =
        REPLICA_SETS.until(&world, "set", "the failure", |set| super::is_true(set, "ReplicaFailure")).await?;
    let condition = super::condition(&set, "ReplicaFailure");
    let message = condition["message"].as_str().unwrap_or_default();
    ensure!(condition["reason"] == "FailedCreate" && message.contains("exceeded quota: q"), "{condition}");
    until_event(&world, "set", "FailedCreate", "exceeded quota: q").await
}
