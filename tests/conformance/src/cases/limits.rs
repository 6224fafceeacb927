//! What a namespace may have: quotas and limit ranges.

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use super::kinds::{pod, with_account};
use crate::world::repeat;
use crate::{Answer, World};

cases! { "limits":
    "a quota with a scope counts only what is in it" => scope,
    "a quota counts a pod as its containers and init containers need it" => pod_total,
    "a limit range bounds pods as a whole" => whole_pod,
    "a limit range bounds claims" => claim,
}

/// Makes a quota and waits until it is counted.
async fn quota(world: &World, spec: &Value) -> anyhow::Result<()> {
    let body =
        json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "q" }, "spec": spec });
    world.post(&world.core("resourcequotas"), &body).await?.expect(201)?;
    used_is(world, Value::is_object).await
}

async fn used_is(world: &World, holds: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
    let path = world.core("resourcequotas/q");
    world.eventually(&path, "what the quota counts", |answer| holds(&answer.body["status"]["used"])).await?;
    Ok(())
}

async fn limit_range(world: &World, limit: &Value) -> anyhow::Result<()> {
    let body = json!({ "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "l" }, "spec": { "limits": [limit] } });
    world.post(&world.core("limitranges"), &body).await?.expect(201).map(drop)
}

/// Tries to create something, without storing it, until it is refused: servers see limits only after a moment.
async fn refused(world: &World, plural: &str, body: &Value) -> anyhow::Result<Answer> {
    let path = format!("{}?dryRun=All", world.core(plural));
    repeat("the limit", || world.post(&path, body), |answer| answer.code != 201).await
}

async fn scope(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    quota(&world, &json!({ "hard": { "pods": "1" }, "scopes": ["BestEffort"] })).await?;
    let asking = pod("asks", json!({ "resources": { "requests": { "cpu": "1" } } }));
    world.post(&world.core("pods"), &asking).await?.expect(201)?;
    world.post(&world.core("pods"), &pod("best-effort", json!({}))).await?.expect(201)?;
    used_is(&world, |used| used["pods"] == "1").await?;
    let answer = refused(&world, "pods", &pod("another", json!({}))).await?;
    answer.expect_status(
        403,
        "Forbidden",
        "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1",
    )?;
    let asking = pod("asks-too", json!({ "resources": { "requests": { "cpu": "1" } } }));
    world.post(&world.core("pods"), &asking).await?.expect(201).map(drop)
}

async fn pod_total(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    quota(&world, &json!({ "hard": { "requests.cpu": "10" } })).await?;
    let asks = |cpu: &str| json!({ "requests": { "cpu": cpu } });
    let mut body = pod("p", json!({ "resources": asks("1") }));
    body["spec"]["initContainers"] = json!([
        { "name": "stays", "image": "example.invalid/image:1", "restartPolicy": "Always", "resources": asks("2") },
        { "name": "ends", "image": "example.invalid/image:1", "resources": asks("3") },
    ]);
    world.post(&world.core("pods"), &body).await?.expect(201)?;
    // 1 + 2 while it runs; 3 beside the 2 that stay while it starts.
    used_is(&world, |used| used["requests.cpu"] == "5").await
}

async fn whole_pod(world: World) -> anyhow::Result<()> {
    with_account(&world).await?;
    limit_range(&world, &json!({ "type": "Pod", "max": { "cpu": "1" } })).await?;
    let resources = json!({ "resources": { "limits": { "cpu": "700m" } } });
    let mut body = pod("p", resources.clone());
    let mut second = body["spec"]["containers"][0].clone();
    second["name"] = json!("d");
    if let Some(containers) = body["spec"]["containers"].as_array_mut() {
        containers.push(second);
    }
    let answer = refused(&world, "pods", &body).await?;
    answer.expect_status(403, "Forbidden", "maximum cpu usage per Pod is 1, but limit is 1400m")?;
    world.post(&world.core("pods"), &pod("p", resources)).await?.expect(201).map(drop)
}

async fn claim(world: World) -> anyhow::Result<()> {
    let limit =
        json!({ "type": "PersistentVolumeClaim", "min": { "storage": "1Gi" }, "max": { "storage": "5Gi" } });
    limit_range(&world, &limit).await?;
    let claim = |storage: &str| {
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c" },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": { "requests": { "storage": storage } } } })
    };
    for (storage, message) in [
        ("10Gi", "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 10Gi"),
        ("1Mi", "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"),
    ] {
        let answer = refused(&world, "persistentvolumeclaims", &claim(storage)).await?;
        answer.expect_status(403, "Forbidden", message)?;
    }
    let made = world.post(&world.core("persistentvolumeclaims"), &claim("2Gi")).await?.expect(201)?;
    ensure!(made["spec"]["resources"]["requests"]["storage"] == "2Gi", "{made}");
    Ok(())
}
