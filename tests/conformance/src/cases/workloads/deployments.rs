//! Deployments: rollouts, rollbacks, pauses, history.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde_json::{Value, json};

use super::super::{cases, watch};
use super::{
    REPLICA_SETS, Resource, broken_version, condition, current, expect_condition, is_observed, is_owned_by,
    is_ready, is_staying, is_true, name_of, pod_events, pods, template, until_event, until_ready, version,
};
use crate::World;

cases! { "workloads: Deployment":
    "a deployment makes a ReplicaSet, which makes its pods" => first_rollout,
    "a new template is rolled out within surge and unavailability" => rolling_update,
    "a template from before uses its ReplicaSet again" => rollback,
    "a paused deployment can be scaled, and rolls out when it is resumed" => pause,
    "a rollout that makes no progress says so, and the old pods stay" => no_progress,
    "Recreate ends all old pods before the first new one" => recreate,
    "ReplicaSets beyond the history limit are removed" => history,
    "a deployment takes its ReplicaSets and pods along" => background,
    "in the foreground a deployment goes after its pods" => foreground,
    "orphaned ReplicaSets are adopted by the next deployment that selects them" => adoption,
}

const DEPLOYMENTS: Resource = Resource::new("apps/v1", "Deployment", "deployments");
const REVISION: &str = "deployment.kubernetes.io/revision";

async fn create(world: &World, replicas: usize, more: Value) -> anyhow::Result<Value> {
    let mut spec = json!({
        "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template("web"),
    });
    if let (Some(target), Value::Object(more)) = (spec.as_object_mut(), more) {
        target.extend(more);
    }
    DEPLOYMENTS.create(world, "web", spec).await
}

/// Waits until a revision is rolled out.
async fn rolled_out(world: &World, replicas: usize, revision: &str) -> anyhow::Result<Value> {
    DEPLOYMENTS
        .until(world, "web", &format!("the rollout of revision {revision}"), |deployment| {
            let status = &deployment["status"];
            deployment["metadata"]["annotations"][REVISION] == revision
                && is_observed(deployment)
                && ["replicas", "updatedReplicas", "availableReplicas", "readyReplicas"]
                    .iter()
                    .all(|field| status[*field] == replicas)
                && condition(deployment, "Progressing")["reason"] == "NewReplicaSetAvailable"
        })
        .await
}

/// The ReplicaSets by their revision.
async fn sets(world: &World) -> anyhow::Result<BTreeMap<String, Value>> {
    let sets = REPLICA_SETS.list(world).await?;
    let revision =
        |set: &Value| set["metadata"]["annotations"][REVISION].as_str().unwrap_or_default().to_owned();
    Ok(sets.into_iter().map(|set| (revision(&set), set)).collect())
}

async fn first_rollout(world: World) -> anyhow::Result<()> {
    create(&world, 3, json!({})).await?;
    let deployment = rolled_out(&world, 3, "1").await?;
    let sets = sets(&world).await?;
    let (Some(set), 1) = (sets.get("1"), sets.len()) else {
        anyhow::bail!("expected one ReplicaSet, got {sets:?}")
    };
    let name = name_of(set);
    expect_condition(
        &deployment,
        "Available",
        "True",
        "MinimumReplicasAvailable",
        "Deployment has minimum availability.",
    )?;
    let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
    expect_condition(&deployment, "Progressing", "True", "NewReplicaSetAvailable", &message)?;
    let hash = set["metadata"]["labels"]["pod-template-hash"].as_str().unwrap_or_default();
    ensure!(name == format!("web-{hash}") && is_owned_by(set, &deployment), "{set}");
    let annotations = &set["metadata"]["annotations"];
    ensure!(annotations["deployment.kubernetes.io/desired-replicas"] == "3", "{annotations}");
    ensure!(annotations["deployment.kubernetes.io/max-replicas"] == "4", "{annotations}");
    for pod in pods(&world, "web").await? {
        ensure!(is_owned_by(&pod, set) && name_of(&pod).starts_with(&format!("{name}-")), "{pod}");
        ensure!(pod["metadata"]["labels"]["pod-template-hash"] == hash, "{pod}");
        let message = format!("Created pod: {}", name_of(&pod));
        until_event(&world, name, "SuccessfulCreate", &message).await?;
    }
    let message = format!("Scaled up replica set {name} from 0 to 3");
    until_event(&world, "web", "ScalingReplicaSet", &message).await
}

/// Replays what happened to objects: `check` sees all that exist after every event.
fn replay(
    before: Vec<Value>,
    events: &[Value],
    check: impl Fn(&BTreeMap<String, Value>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut objects: BTreeMap<String, Value> =
        before.into_iter().map(|object| (name_of(&object).to_owned(), object)).collect();
    for event in events {
        let object = &event["object"];
        if event["type"] == "DELETED" {
            objects.remove(name_of(object));
        } else {
            objects.insert(name_of(object).to_owned(), object.clone());
        }
        check(&objects)?;
    }
    Ok(())
}

/// Whether this many pods of the second version have become ready.
fn are_updated(events: &[Value], count: usize) -> bool {
    let updated =
        events.iter().map(|event| &event["object"]).filter(|pod| has_version(pod, "2") && is_ready(pod));
    let names: std::collections::BTreeSet<_> = updated.map(name_of).collect();
    names.len() >= count
}

fn has_version(pod: &Value, version: &str) -> bool {
    pod["metadata"]["annotations"]["version"] == version
}

async fn rolling_update(world: World) -> anyhow::Result<()> {
    let strategy =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } });
    create(&world, 3, json!({ "strategy": strategy })).await?;
    rolled_out(&world, 3, "1").await?;
    let before = until_ready(&world, "web", 3).await?;
    let sets_before = REPLICA_SETS.list(&world).await?;
    let since_sets = current(&world, &REPLICA_SETS.path(&world, "")).await?;
    let since = current(&world, &world.core("pods")).await?;
    DEPLOYMENTS.merge(&world, "web", &version("2")).await?;
    let events = pod_events(&world, &since, |events| are_updated(events, 3)).await?;
    // A ReplicaSet removes its pods after it was scaled down, while the other one is already scaled up.
    let path = format!("{}?watch=true&resourceVersion={since_sets}", REPLICA_SETS.path(&world, ""));
    let old = sets_before.first().map(name_of).unwrap_or_default().to_owned();
    let scaled = watch::events(&world, &path, |events| {
        let last = events.last().map(|event| &event["object"]);
        last.is_some_and(|set| name_of(set) == old && set["spec"]["replicas"] == 0)
    });
    replay(sets_before, &scaled.await?, |sets| {
        let replicas: i64 = sets.values().filter_map(|set| set["spec"]["replicas"].as_i64()).sum();
        ensure!(replicas <= 4, "more than 3 and a surge of 1: {sets:?}");
        Ok(())
    })?;
    replay(before, &events, |pods| {
        let ready = pods.values().filter(|pod| is_staying(pod) && is_ready(pod));
        ensure!(ready.count() >= 3, "a pod ended before its successor was ready: {:?}", pods.keys());
        Ok(())
    })?;
    rolled_out(&world, 3, "2").await?;
    let sets = sets(&world).await?;
    ensure!(
        sets.len() == 2 && sets["1"]["spec"]["replicas"] == 0 && sets["2"]["spec"]["replicas"] == 3,
        "{sets:?}"
    );
    for (set, message) in
        [("2", "Scaled up replica set {} from 0 to 1"), ("1", "Scaled down replica set {} from 3 to 2")]
    {
        let message = message.replace("{}", name_of(&sets[set]));
        until_event(&world, "web", "ScalingReplicaSet", &message).await?;
    }
    Ok(())
}

async fn rollback(world: World) -> anyhow::Result<()> {
    create(&world, 2, json!({})).await?;
    rolled_out(&world, 2, "1").await?;
    let first = name_of(&sets(&world).await?["1"]).to_owned();
    DEPLOYMENTS.merge(&world, "web", &version("2")).await?;
    rolled_out(&world, 2, "2").await?;
    DEPLOYMENTS.merge(&world, "web", &version("1")).await?;
    rolled_out(&world, 2, "3").await?;
    let sets = sets(&world).await?;
    ensure!(sets.len() == 2 && name_of(&sets["3"]) == first, "a ReplicaSet more than templates: {sets:?}");
    let history = &sets["3"]["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"];
    ensure!(history == "1", "{history}");
    Ok(())
}

async fn pause(world: World) -> anyhow::Result<()> {
    create(&world, 1, json!({})).await?;
    rolled_out(&world, 1, "1").await?;
    let mut patch = version("2");
    patch["spec"]["paused"] = json!(true);
    DEPLOYMENTS.merge(&world, "web", &patch).await?;
    let paused = |deployment: &Value| condition(deployment, "Progressing")["reason"] == "DeploymentPaused";
    let deployment = DEPLOYMENTS.until(&world, "web", "the pause", paused).await?;
    expect_condition(&deployment, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused")?;
    DEPLOYMENTS.merge(&world, "web", &json!({ "spec": { "replicas": 2 } })).await?;
    let old = until_ready(&world, "web", 2).await?;
    ensure!(old.iter().all(|pod| has_version(pod, "1")), "a paused deployment was rolled out");
    ensure!(sets(&world).await?.len() == 1, "a paused deployment made a ReplicaSet");
    DEPLOYMENTS.merge(&world, "web", &json!({ "spec": { "paused": null } })).await?;
    rolled_out(&world, 2, "2").await.map(drop)
}

async fn no_progress(world: World) -> anyhow::Result<()> {
    create(&world, 2, json!({})).await?;
    rolled_out(&world, 2, "1").await?;
    let mut patch = broken_version();
    patch["spec"]["progressDeadlineSeconds"] = json!(1);
    DEPLOYMENTS.merge(&world, "web", &patch).await?;
    let timed_out =
        |deployment: &Value| condition(deployment, "Progressing")["reason"] == "ProgressDeadlineExceeded";
    let deployment = DEPLOYMENTS.until(&world, "web", "the progress deadline", timed_out).await?;
    let name = name_of(&sets(&world).await?["2"]).to_owned();
    let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
    expect_condition(&deployment, "Progressing", "False", "ProgressDeadlineExceeded", &message)?;
    ensure!(is_true(&deployment, "Available"), "{deployment}");
    let ready: Vec<Value> = pods(&world, "web").await?.into_iter().filter(is_ready).collect();
    ensure!(ready.len() == 2 && ready.iter().all(|pod| has_version(pod, "1")), "{ready:?}");
    // Back to the template that works.
    let mut template = template("web");
    template["metadata"]["annotations"][super::STUCK] = Value::Null;
    DEPLOYMENTS.merge(&world, "web", &json!({ "spec": { "template": template } })).await?;
    DEPLOYMENTS
        .until(&world, "web", "the end of the rollback", |deployment| {
            is_observed(deployment)
                && condition(deployment, "Progressing")["reason"] == "NewReplicaSetAvailable"
        })
        .await
        .map(drop)
}

async fn recreate(world: World) -> anyhow::Result<()> {
    create(&world, 2, json!({ "strategy": { "type": "Recreate" } })).await?;
    rolled_out(&world, 2, "1").await?;
    let before = until_ready(&world, "web", 2).await?;
    let since = current(&world, &world.core("pods")).await?;
    DEPLOYMENTS.merge(&world, "web", &version("2")).await?;
    let events = pod_events(&world, &since, |events| are_updated(events, 2)).await?;
    replay(before, &events, |pods| {
        let runs = |version: &str| pods.values().any(|pod| has_version(pod, version) && !is_ended(pod));
        ensure!(!(runs("1") && runs("2")), "old and new pods at a time: {:?}", pods.keys());
        Ok(())
    })?;
    rolled_out(&world, 2, "2").await.map(drop)
}

fn is_ended(pod: &Value) -> bool {
    pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed"
}

async fn history(world: World) -> anyhow::Result<()> {
    create(&world, 1, json!({ "revisionHistoryLimit": 1 })).await?;
    rolled_out(&world, 1, "1").await?;
    let first = name_of(&sets(&world).await?["1"]).to_owned();
    for number in ["2", "3"] {
        DEPLOYMENTS.merge(&world, "web", &version(number)).await?;
        rolled_out(&world, 1, number).await?;
    }
    world.gone(&REPLICA_SETS.path(&world, &first)).await?;
    let revisions: Vec<String> = sets(&world).await?.into_keys().collect();
    ensure!(revisions == ["2", "3"], "{revisions:?}");
    Ok(())
}

async fn background(world: World) -> anyhow::Result<()> {
    create(&world, 2, json!({})).await?;
    rolled_out(&world, 2, "1").await?;
    // Background is what this kind does if nothing is said.
    world.delete(&DEPLOYMENTS.path(&world, "web"), None).await?.expect(200)?;
    let none = |answer: &crate::Answer| answer.body["items"].as_array().is_some_and(Vec::is_empty);
    for path in [REPLICA_SETS.path(&world, ""), world.core("pods")] {
        world.eventually(&path, "garbage collection", none).await?;
    }
    Ok(())
}

async fn foreground(world: World) -> anyhow::Result<()> {
    create(&world, 1, json!({})).await?;
    rolled_out(&world, 1, "1").await?;
    let pod = until_ready(&world, "web", 1).await?.remove(0);
    let path = world.core(&format!("pods/{}", name_of(&pod)));
    let hold = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    world.patch(&path, "merge-patch+json", &hold).await?.expect(200)?;
    DEPLOYMENTS.delete(&world, "web", "Foreground").await?;
    world.eventually(&path, "deletion of the pod", |answer| !is_staying(&answer.body)).await?;
    let deployment = world.get(&DEPLOYMENTS.path(&world, "web")).await?.expect(200)?;
    ensure!(deployment["metadata"]["finalizers"] == json!(["foregroundDeletion"]), "{deployment}");
    let release = json!({ "metadata": { "finalizers": null } });
    world.patch(&path, "merge-patch+json", &release).await?.expect(200)?;
    world.gone(&DEPLOYMENTS.path(&world, "web")).await
}

async fn adoption(world: World) -> anyhow::Result<()> {
    create(&world, 2, json!({})).await?;
    rolled_out(&world, 2, "1").await?;
    let before = until_ready(&world, "web", 2).await?;
    DEPLOYMENTS.delete(&world, "web", "Orphan").await?;
    world.gone(&DEPLOYMENTS.path(&world, "web")).await?;
    let set = sets(&world).await?.remove("1").unwrap_or_default();
    ensure!(set["metadata"]["ownerReferences"].is_null(), "{set}");
    let deployment = create(&world, 2, json!({})).await?;
    rolled_out(&world, 2, "1").await?;
    let set =
        REPLICA_SETS.until(&world, name_of(&set), "adoption", |set| is_owned_by(set, &deployment)).await?;
    ensure!(set["spec"]["replicas"] == 2, "{set}");
    let after = until_ready(&world, "web", 2).await?;
    let uids = |pods: &[Value]| pods.iter().map(|pod| pod["metadata"]["uid"].to_string()).collect::<Vec<_>>();
    ensure!(uids(&before) == uids(&after), "pods were replaced");
    Ok(())
}
