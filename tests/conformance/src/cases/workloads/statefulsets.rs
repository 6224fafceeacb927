//! StatefulSets: order, updates, claims.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::super::cases;
use super::{
    Resource, current, is_observed, is_owned_by, is_ready, is_staying, name_of, pod_events, pods, template,
    until_pod, until_pods, until_ready, version,
};
use crate::World;

cases! { "workloads: StatefulSet":
    "pods have stable names, and labels that say which they are" => identity,
    "pods are made in order, each when the one before is ready" => in_order,
    "in parallel no pod waits for another" => in_parallel,
    "fewer replicas remove the highest ordinals first, one after the other" => scale_down,
    "an update replaces pods from the highest ordinal down" => rolling_update,
    "pods below the partition keep their revision" => partition,
    "with OnDelete a pod is updated when it is deleted" => on_delete,
    "claims are made for every pod, and stay or go as the policy says" => claims,
}

const STATEFUL_SETS: Resource = Resource::new("apps/v1", "StatefulSet", "statefulsets");

async fn create(world: &World, replicas: usize, more: Value) -> anyhow::Result<Value> {
    let mut spec = json!({
        "replicas": replicas, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
        "template": template("db"),
    });
    if let (Some(target), Value::Object(more)) = (spec.as_object_mut(), more) {
        target.extend(more);
    }
    STATEFUL_SETS.create(world, "db", spec).await
}

/// The position of the first event about a pod for which something holds.
fn first(events: &[Value], name: &str, holds: impl Fn(&Value) -> bool) -> anyhow::Result<usize> {
    events
        .iter()
        .position(|event| name_of(&event["object"]) == name && holds(event))
        .with_context(|| format!("nothing of the kind happened to {name}"))
}

fn becomes_ready(event: &Value) -> bool {
    event["type"] != "DELETED" && is_staying(&event["object"]) && is_ready(&event["object"])
}

fn is_deleted(event: &Value) -> bool {
    event["type"] == "DELETED"
}

fn is_going(event: &Value) -> bool {
    !is_staying(&event["object"]) || is_deleted(event)
}

fn has(events: &[Value], name: &str, holds: impl Fn(&Value) -> bool) -> bool {
    first(events, name, holds).is_ok()
}

async fn identity(world: World) -> anyhow::Result<()> {
    let set = create(&world, 2, json!({ "ordinals": { "start": 3 } })).await?;
    let pods = until_ready(&world, "db", 2).await?;
    let set = STATEFUL_SETS
        .until(&world, name_of(&set), "the revision", |set| {
            is_observed(set)
                && set["status"]["currentReplicas"] == 2
                && set["status"]["availableReplicas"] == 2
        })
        .await?;
    for (pod, ordinal) in pods.iter().zip(["3", "4"]) {
        let (name, labels) = (format!("db-{ordinal}"), &pod["metadata"]["labels"]);
        ensure!(name_of(pod) == name && is_owned_by(pod, &set), "{pod}");
        ensure!(pod["spec"]["hostname"] == name && pod["spec"]["subdomain"] == "db", "{pod}");
        ensure!(labels["statefulset.kubernetes.io/pod-name"] == name, "{labels}");
        ensure!(labels["apps.kubernetes.io/pod-index"] == ordinal, "{labels}");
        ensure!(labels["controller-revision-hash"] == set["status"]["currentRevision"], "{labels}");
    }
    let revision = world.path("apps/v1", "controllerrevisions");
    let revision = format!("{revision}/{}", set["status"]["currentRevision"].as_str().unwrap_or_default());
    let revision = world.get(&revision).await?.expect(200)?;
    ensure!(revision["revision"] == 1 && is_owned_by(&revision, &set), "{revision}");
    super::until_event(&world, "db", "SuccessfulCreate", "Create Pod db-3 in StatefulSet db successful")
        .await?;
    let uid = pods[0]["metadata"]["uid"].clone();
    world.delete(&world.core("pods/db-3"), None).await?.expect(200)?;
    until_pod(&world, "db-3", "a successor of the same name", |pod| {
        pod["metadata"]["uid"] != uid && is_ready(pod)
    })
    .await
    .map(drop)
}

async fn in_order(world: World) -> anyhow::Result<()> {
    let since = current(&world, &world.core("pods")).await?;
    create(&world, 3, json!({})).await?;
    let events = pod_events(&world, &since, |events| has(events, "db-2", becomes_ready)).await?;
    for (one, next) in [("db-0", "db-1"), ("db-1", "db-2")] {
        let (ready, made) = (first(&events, one, becomes_ready)?, first(&events, next, |_| true)?);
        ensure!(ready < made, "{next} was made before {one} was ready");
    }
    Ok(())
}

/// A readiness gate keeps pods from being ready.
fn never_ready(name: &str) -> Value {
    let mut template = template(name);
    template["spec"]["readinessGates"] = json!([{ "conditionType": "example.com/never" }]);
    template
}

async fn in_parallel(world: World) -> anyhow::Result<()> {
    create(&world, 3, json!({ "podManagementPolicy": "Parallel", "template": never_ready("db") })).await?;
    let running =
        |pods: &[Value]| pods.len() == 3 && pods.iter().all(|pod| pod["status"]["phase"] == "Running");
    let pods = until_pods(&world, "db", "three running pods", running).await?;
    ensure!(pods.iter().all(|pod| !is_ready(pod)), "the gate is open");
    Ok(())
}

async fn scale_down(world: World) -> anyhow::Result<()> {
    create(&world, 3, json!({ "podManagementPolicy": "OrderedReady" })).await?;
    until_ready(&world, "db", 3).await?;
    let since = current(&world, &world.core("pods")).await?;
    STATEFUL_SETS.merge(&world, "db", &json!({ "spec": { "replicas": 1 } })).await?;
    let events = pod_events(&world, &since, |events| has(events, "db-1", is_deleted)).await?;
    let (gone, going) = (first(&events, "db-2", is_deleted)?, first(&events, "db-1", is_going)?);
    ensure!(gone < going, "db-1 was deleted before db-2 was gone");
    let left = pods(&world, "db").await?;
    ensure!(left.len() == 1 && name_of(&left[0]) == "db-0", "{left:?}");
    Ok(())
}

async fn rolling_update(world: World) -> anyhow::Result<()> {
    create(&world, 3, json!({})).await?;
    until_ready(&world, "db", 3).await?;
    let since = current(&world, &world.core("pods")).await?;
    STATEFUL_SETS.merge(&world, "db", &version("2")).await?;
    let updated =
        |event: &Value| becomes_ready(event) && event["object"]["metadata"]["annotations"]["version"] == "2";
    let events = pod_events(&world, &since, |events| has(events, "db-0", updated)).await?;
    for (one, next) in [("db-2", "db-1"), ("db-1", "db-0")] {
        let (ready, going) = (first(&events, one, updated)?, first(&events, next, is_going)?);
        ensure!(ready < going, "{next} was deleted before {one} was updated and ready");
    }
    let done = |set: &Value| {
        let status = &set["status"];
        status["currentRevision"] == status["updateRevision"] && status["updatedReplicas"] == 3
    };
    STATEFUL_SETS.until(&world, "db", "the end of the update", done).await.map(drop)
}

async fn partition(world: World) -> anyhow::Result<()> {
    let strategy = |partition: usize| json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": partition } } });
    create(&world, 3, strategy(2)).await?;
    until_ready(&world, "db", 3).await?;
    let settled = |set: &Value| is_observed(set) && set["status"]["updateRevision"].is_string();
    let set = STATEFUL_SETS.until(&world, "db", "the first revision", settled).await?;
    let old = set["status"]["updateRevision"].clone();
    STATEFUL_SETS.merge(&world, "db", &version("2")).await?;
    let part = |set: &Value| {
        set["status"]["updatedReplicas"] == 1
            && set["status"]["readyReplicas"] == 3
            && set["status"]["updateRevision"] != old
    };
    let set = STATEFUL_SETS.until(&world, "db", "the update above the partition", part).await?;
    ensure!(
        set["status"]["currentRevision"] == old && set["status"]["currentReplicas"] == 2,
        "{}",
        set["status"]
    );
    // A pod below the partition comes back as it was.
    let pod = until_pod(&world, "db-0", "the first pod", is_ready).await?;
    world.delete(&world.core("pods/db-0"), None).await?.expect(200)?;
    let pod = until_pod(&world, "db-0", "its successor", |new| {
        new["metadata"]["uid"] != pod["metadata"]["uid"] && is_ready(new)
    })
    .await?;
    ensure!(pod["metadata"]["annotations"]["version"] == "1", "{pod}");
    let versions: Vec<_> = until_ready(&world, "db", 3)
        .await?
        .iter()
        .map(|pod| pod["metadata"]["annotations"]["version"].clone())
        .collect();
    ensure!(versions == ["1", "1", "2"], "{versions:?}");
    STATEFUL_SETS.merge(&world, "db", &json!({ "spec": strategy(0) })).await?;
    let done = |set: &Value| set["status"]["currentRevision"] != old && set["status"]["readyReplicas"] == 3;
    STATEFUL_SETS.until(&world, "db", "the end of the update", done).await.map(drop)
}

async fn on_delete(world: World) -> anyhow::Result<()> {
    create(&world, 2, json!({ "updateStrategy": { "type": "OnDelete" } })).await?;
    let before = until_ready(&world, "db", 2).await?;
    STATEFUL_SETS.merge(&world, "db", &version("2")).await?;
    let seen =
        |set: &Value| is_observed(set) && set["status"]["updateRevision"] != set["status"]["currentRevision"];
    STATEFUL_SETS.until(&world, "db", "the new revision", seen).await?;
    world.delete(&world.core("pods/db-1"), None).await?.expect(200)?;
    until_pod(&world, "db-1", "the update", |pod| {
        is_ready(pod) && pod["metadata"]["annotations"]["version"] == "2"
    })
    .await?;
    let kept = until_pod(&world, "db-0", "the other pod", is_ready).await?;
    ensure!(kept["metadata"]["uid"] == before[0]["metadata"]["uid"], "{kept}");
    Ok(())
}

async fn claims(world: World) -> anyhow::Result<()> {
    // No volume is of this class: the pods stay pending, which is all the same to their claims.
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": world.unique, "resources": { "requests": { "storage": "1Mi" } } },
    });
    let policy = json!({ "whenDeleted": "Delete", "whenScaled": "Retain" });
    let more = json!({
        "volumeClaimTemplates": [claim], "podManagementPolicy": "Parallel",
        "persistentVolumeClaimRetentionPolicy": policy,
    });
    let set = create(&world, 2, more).await?;
    let path = |name: &str| world.core(&format!("persistentvolumeclaims/{name}"));
    for name in ["data-db-0", "data-db-1"] {
        let owned = world
            .eventually(&path(name), "the claim's owner", |answer| is_owned_by(&answer.body, &set))
            .await?;
        ensure!(owned.body["metadata"]["labels"]["app"] == "db", "{}", owned.text);
    }
    let mounts = until_pods(&world, "db", "two pods", |pods| pods.len() == 2).await?;
    let volumes = &mounts[0]["spec"]["volumes"];
    let claimed = volumes
        .as_array()
        .into_iter()
        .flatten()
        .any(|volume| volume["persistentVolumeClaim"]["claimName"] == "data-db-0");
    ensure!(claimed, "{volumes}");
    STATEFUL_SETS.merge(&world, "db", &json!({ "spec": { "replicas": 1 } })).await?;
    world.gone(&world.core("pods/db-1")).await?;
    let kept = world.get(&path("data-db-1")).await?.expect(200)?;
    ensure!(is_staying(&kept), "a claim goes that is to be retained: {kept}");
    STATEFUL_SETS.delete(&world, "db", "Background").await?;
    world.gone(&path("data-db-0")).await
}
