//! The scheduler: where pods go, and why some go nowhere.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::super::cases;
use super::{condition, create_pod, is_ready, name_of, nodes, template, until_event, until_pod, until_ready};
use crate::World;

cases! { "workloads: scheduling":
    "a pod that no node can take says why" => unschedulable,
    "a pod waits until its scheduling gates are removed" => gates,
    "pods that repel each other go to different nodes" => anti_affinity,
    "a pod of a higher priority takes the place of one with a lower" => preemption,
}

async fn until_unscheduled(world: &World, name: &str, message: &str) -> anyhow::Result<()> {
    let pod = until_pod(world, name, "a verdict", |pod| {
        condition(pod, "PodScheduled")["reason"] == "Unschedulable"
    })
    .await?;
    let found = condition(&pod, "PodScheduled")["message"].as_str().unwrap_or_default();
    ensure!(found == message, "expected {message:?}, got {found:?}");
    until_event(world, name, "FailedScheduling", message).await
}

async fn unschedulable(world: World) -> anyhow::Result<()> {
    let count = super::items(&world, "/api/v1/nodes").await?.len();
    let message = |reason: &str| {
        format!(
            "0/{count} nodes are available: {count} {reason}. no new claims to deallocate, preemption: \
             0/{count} nodes are available: {count} Preemption is not helpful for scheduling."
        )
    };
    let mut large = template("large");
    large["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "1M" } });
    create_pod(&world, "large", large).await?;
    until_unscheduled(&world, "large", &message("Insufficient cpu")).await?;
    let mut choosy = template("choosy");
    choosy["spec"]["nodeSelector"] = json!({ "example.com/none": "here" });
    create_pod(&world, "choosy", choosy).await?;
    until_unscheduled(&world, "choosy", &message("node(s) didn't match Pod's node affinity/selector")).await
}

async fn gates(world: World) -> anyhow::Result<()> {
    let mut gated = template("gated");
    gated["spec"]["schedulingGates"] = json!([{ "name": "example.com/wait" }]);
    let made = create_pod(&world, "gated", gated).await?;
    ensure!(condition(&made, "PodScheduled")["reason"] == "SchedulingGated", "{made}");
    // Whatever the scheduler would do, it does for a later pod.
    create_pod(&world, "later", template("later")).await?;
    until_ready(&world, "later", 1).await?;
    let pod = world.get(&world.core("pods/gated")).await?.expect(200)?;
    ensure!(pod["spec"]["nodeName"].is_null(), "{pod}");
    let patch = json!({ "spec": { "schedulingGates": null } });
    world.patch(&world.core("pods/gated"), "merge-patch+json", &patch).await?.expect(200)?;
    let pod = until_pod(&world, "gated", "a node", is_ready).await?;
    let node = pod["spec"]["nodeName"].as_str().context("no node")?;
    let message = format!("Successfully assigned {}/gated to {node}", world.namespace);
    until_event(&world, "gated", "Scheduled", &message).await
}

async fn anti_affinity(world: World) -> anyhow::Result<()> {
    let count = nodes(&world).await?.len().min(3);
    let rule = json!([{ "labelSelector": { "matchLabels": { "app": "alone" } }, "topologyKey": "kubernetes.io/hostname" }]);
    for number in 0..=count {
        let mut template = template("alone");
        template["spec"]["affinity"] =
            json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": rule } });
        create_pod(&world, &format!("alone-{number}"), template).await?;
    }
    let placed = |pods: &[Value]| pods.iter().filter(|pod| is_ready(pod)).count() == count;
    let pods = super::until_pods(&world, "alone", "a pod on every node", placed).await?;
    let places: std::collections::BTreeSet<_> =
        pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    ensure!(places.len() == count, "{places:?}");
    let left = pods.iter().find(|pod| !is_ready(pod)).context("more pods than nodes were placed")?;
    let pod = until_pod(&world, name_of(left), "a verdict", |pod| {
        condition(pod, "PodScheduled")["reason"] == "Unschedulable"
    })
    .await?;
    let message = condition(&pod, "PodScheduled")["message"].as_str().unwrap_or_default();
    ensure!(message.contains("node(s) didn't match pod anti-affinity rules"), "{message}");
    Ok(())
}

async fn preemption(world: World) -> anyhow::Result<()> {
    let node = nodes(&world).await?.remove(0);
    let cpu = node["status"]["allocatable"]["cpu"].as_str().unwrap_or_default();
    let millis =
        cpu.strip_suffix('m').map_or_else(|| cpu.parse::<u64>().map(|cores| cores * 1000), str::parse)?;
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": world.unique }, "value": 1000,
    });
    world.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await?.expect(201)?;
    let pod = |name: &str, class: &str| {
        let mut template = template(name);
        template["spec"]["nodeSelector"] =
            json!({ "kubernetes.io/hostname": node["metadata"]["labels"]["kubernetes.io/hostname"] });
        template["spec"]["priorityClassName"] = json!(class);
        // Two of them are too many for the node.
        template["spec"]["containers"][0]["resources"] =
            json!({ "requests": { "cpu": format!("{}m", millis * 3 / 5) } });
        template
    };
    create_pod(&world, "low", pod("low", "")).await?;
    until_ready(&world, "low", 1).await?;
    let hold = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    world.patch(&world.core("pods/low"), "merge-patch+json", &hold).await?.expect(200)?;
    create_pod(&world, "high", pod("high", &world.unique)).await?;
    let low = until_pod(&world, "low", "preemption", |pod| !super::is_staying(pod)).await?;
    let message = "default-scheduler: preempting to accommodate a higher priority pod";
    super::expect_condition(&low, "DisruptionTarget", "True", "PreemptionByScheduler", message)?;
    let release = json!({ "metadata": { "finalizers": null } });
    world.patch(&world.core("pods/low"), "merge-patch+json", &release).await?.expect(200)?;
    until_ready(&world, "high", 1).await?;
    until_event(&world, "low", "Preempted", &format!("on node {}", name_of(&node))).await?;
    let path = format!("/apis/scheduling.k8s.io/v1/priorityclasses/{}", world.unique);
    world.delete(&path, None).await?.expect(200).map(drop)
}
