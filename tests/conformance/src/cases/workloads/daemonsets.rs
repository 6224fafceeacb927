//! DaemonSets: nodes and updates.

use std::collections::BTreeSet;

use anyhow::ensure;
use serde_json::{Value, json};

use super::super::cases;
use super::{Resource, is_observed, is_ready, name_of, nodes, template, until_pods, until_ready, version};
use crate::World;

cases! { "workloads: DaemonSet":
    "every node that matches has a pod, and none when it matches no longer" => follows_nodes,
    "a new template is rolled out" => rolling_update,
    "with OnDelete a pod is updated when it is deleted" => on_delete,
}

const DAEMON_SETS: Resource = Resource::new("apps/v1", "DaemonSet", "daemonsets");

/// A label of nodes that only this case uses.
fn label(world: &World) -> String {
    format!("example.com/{}", world.unique)
}

async fn set_label(world: &World, node: &str, value: Value) -> anyhow::Result<()> {
    let patch = json!({ "metadata": { "labels": { label(world): value } } });
    let path = format!("/api/v1/nodes/{node}");
    world.patch(&path, "merge-patch+json", &patch).await?.expect(200).map(drop)
}

/// Creates a DaemonSet for at most two nodes, and returns their names.
async fn create(world: &World, strategy: Value) -> anyhow::Result<Vec<String>> {
    let mut template = template("agent");
    template["spec"]["nodeSelector"] = json!({ label(world): "here" });
    let spec = json!({
        "selector": { "matchLabels": { "app": "agent" } }, "template": template, "updateStrategy": strategy,
    });
    DAEMON_SETS.create(world, "agent", spec).await?;
    let idle = |set: &Value| is_observed(set) && set["status"]["desiredNumberScheduled"] == 0;
    DAEMON_SETS.until(world, "agent", "a start without nodes", idle).await?;
    let names: Vec<String> =
        nodes(world).await?.iter().take(2).map(|node| name_of(node).to_owned()).collect();
    for node in &names {
        set_label(world, node, json!("here")).await?;
    }
    Ok(names)
}

async fn forget(world: &World, nodes: &[String]) -> anyhow::Result<()> {
    for node in nodes {
        set_label(world, node, Value::Null).await?;
    }
    Ok(())
}

async fn follows_nodes(world: World) -> anyhow::Result<()> {
    let nodes = create(&world, json!({ "type": "RollingUpdate" })).await?;
    let pods = until_ready(&world, "agent", nodes.len()).await?;
    let places: BTreeSet<_> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    ensure!(places == nodes.iter().map(String::as_str).collect(), "{places:?}");
    let affinity = &pods[0]["spec"]["affinity"]["nodeAffinity"];
    let term = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0];
    let place =
        json!([{ "key": "metadata.name", "operator": "In", "values": [pods[0]["spec"]["nodeName"]] }]);
    ensure!(term["matchFields"] == place, "{affinity}");
    let tolerations = pods[0]["spec"]["tolerations"].as_array();
    let tolerates = |key: &str| tolerations.is_some_and(|all| all.iter().any(|one| one["key"] == key));
    ensure!(
        tolerates("node.kubernetes.io/unschedulable") && tolerates("node.kubernetes.io/disk-pressure"),
        "{:?}",
        pods[0]
    );
    let counted = |set: &Value| {
        [
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "numberAvailable",
            "updatedNumberScheduled",
        ]
        .iter()
        .all(|field| set["status"][*field] == nodes.len())
    };
    DAEMON_SETS.until(&world, "agent", "the counts", counted).await?;
    set_label(&world, &nodes[0], Value::Null).await?;
    until_pods(&world, "agent", "the node without a pod", |pods| {
        pods.iter().all(|pod| pod["spec"]["nodeName"] != nodes[0].as_str())
    })
    .await?;
    forget(&world, &nodes).await?;
    until_pods(&world, "agent", "no pods", <[Value]>::is_empty).await.map(drop)
}

async fn rolling_update(world: World) -> anyhow::Result<()> {
    let nodes = create(&world, json!({ "type": "RollingUpdate" })).await?;
    until_ready(&world, "agent", nodes.len()).await?;
    DAEMON_SETS.merge(&world, "agent", &version("2")).await?;
    let done = |set: &Value| {
        is_observed(set)
            && set["status"]["updatedNumberScheduled"] == nodes.len()
            && set["status"]["numberAvailable"] == nodes.len()
    };
    DAEMON_SETS.until(&world, "agent", "the rollout", done).await?;
    let pods = until_ready(&world, "agent", nodes.len()).await?;
    ensure!(pods.iter().all(|pod| pod["metadata"]["annotations"]["version"] == "2"), "{pods:?}");
    let revisions = super::items(&world, &world.path("apps/v1", "controllerrevisions")).await?;
    let numbers: BTreeSet<_> =
        revisions.iter().filter_map(|revision| revision["revision"].as_i64()).collect();
    ensure!(numbers == BTreeSet::from([1, 2]), "{numbers:?}");
    forget(&world, &nodes).await
}

async fn on_delete(world: World) -> anyhow::Result<()> {
    let nodes = create(&world, json!({ "type": "OnDelete" })).await?;
    let before = until_ready(&world, "agent", nodes.len()).await?;
    DAEMON_SETS.merge(&world, "agent", &version("2")).await?;
    let seen = |set: &Value| is_observed(set) && set["status"]["updatedNumberScheduled"].is_null();
    DAEMON_SETS.until(&world, "agent", "the new template", seen).await?;
    world.delete(&world.core(&format!("pods/{}", name_of(&before[0]))), None).await?.expect(200)?;
    let updated = |pod: &Value| is_ready(pod) && pod["metadata"]["annotations"]["version"] == "2";
    let pods = until_pods(&world, "agent", "the update", |pods| pods.iter().any(updated)).await?;
    ensure!(pods.iter().filter(|pod| updated(pod)).count() == 1, "{pods:?}");
    forget(&world, &nodes).await
}
