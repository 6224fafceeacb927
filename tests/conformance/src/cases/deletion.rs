//! How objects go: finalizers, preconditions, owners, namespaces.

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use super::kinds::{pod, with_account};
use crate::{Answer, World};

cases! { "deletion":
    "deleting answers with what was deleted" => answers,
    "a finalizer holds an object until it is taken off" => finalizers,
    "no finalizer can be added to what is going" => no_new_finalizers,
    "a precondition on the uid or version is kept" => preconditions,
    "what belongs to a deleted owner goes too" => background,
    "in the foreground what belongs to an object goes first" => foreground,
    "objects that own each other in a circle can go in the foreground" => circle,
    "orphans stay" => orphan,
    "what belongs to nobody that exists goes" => absent_owner,
    "a namespace takes everything in it along" => namespace,
    "the pods of a namespace go before everything else in it" => pods_first,
    "the namespaces of the system stay" => system_namespaces,
    "contradicting options are refused" => bad_options,
}

async fn answers(world: World) -> anyhow::Result<()> {
    let object = world.create_config_map("a", &json!({})).await?;
    let status = world.delete(&world.core("configmaps/a"), None).await?.expect(200)?;
    ensure!(status["kind"] == "Status" && status["status"] == "Success", "{status}");
    let details = json!({ "name": "a", "kind": "configmaps", "uid": object["metadata"]["uid"] });
    ensure!(status["details"] == details, "{status}");
    world.delete(&world.core("configmaps/a"), None).await?.expect(404)?;
    Ok(())
}

async fn create_with(world: &World, name: &str, metadata: Value) -> anyhow::Result<Value> {
    let mut body = world.config_map(name, &json!({}));
    if let (Some(target), Value::Object(more)) = (body["metadata"].as_object_mut(), metadata) {
        target.extend(more);
    }
    world.post(&world.core("configmaps"), &body).await?.expect(201)
}

async fn finalizers(world: World) -> anyhow::Result<()> {
    create_with(&world, "a", json!({ "finalizers": ["example.com/hold"] })).await?;
    let path = world.core("configmaps/a");
    let going = world.delete(&path, None).await?.expect(200)?;
    ensure!(going["metadata"]["deletionTimestamp"].is_string(), "{going}");
    ensure!(going["metadata"]["deletionGracePeriodSeconds"] == 0, "{going}");
    world.get(&path).await?.expect(200)?;
    let patch = json!({ "metadata": { "finalizers": null } });
    world.patch(&path, "merge-patch+json", &patch).await?.expect(200)?;
    world.get(&path).await?.expect(404)?;
    Ok(())
}

async fn no_new_finalizers(world: World) -> anyhow::Result<()> {
    create_with(&world, "a", json!({ "finalizers": ["example.com/hold"] })).await?;
    let path = world.core("configmaps/a");
    world.delete(&path, None).await?.expect(200)?;
    let patch = json!({ "metadata": { "finalizers": ["example.com/hold", "example.com/more"] } });
    let answer = world.patch(&path, "merge-patch+json", &patch).await?;
    let message = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/more\"}";
    answer.expect_status(422, "Invalid", message)?;
    let patch = json!({ "metadata": { "finalizers": null } });
    world.patch(&path, "merge-patch+json", &patch).await?.expect(200)?;
    Ok(())
}

async fn preconditions(world: World) -> anyhow::Result<()> {
    let object = world.create_config_map("a", &json!({})).await?;
    let path = world.core("configmaps/a");
    let uid = json!({ "preconditions": { "uid": "00000000-0000-0000-0000-000000000000" } });
    let answer = world.delete(&path, Some(&uid)).await?;
    let message =
        "the UID in the precondition (00000000-0000-0000-0000-000000000000) does not match the UID in record";
    answer.expect_status(409, "Conflict", message)?;
    let version = json!({ "preconditions": { "resourceVersion": "1" } });
    let answer = world.delete(&path, Some(&version)).await?;
    answer.expect_status(409, "Conflict", "the ResourceVersion in the precondition (1) does not match")?;
    let right = json!({ "preconditions": {
        "uid": object["metadata"]["uid"], "resourceVersion": object["metadata"]["resourceVersion"],
    } });
    world.delete(&path, Some(&right)).await?.expect(200)?;
    Ok(())
}

fn owned_by(owner: &Value, blocks: bool) -> Value {
    json!({ "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": blocks,
    }] })
}

async fn background(world: World) -> anyhow::Result<()> {
    let owner = world.create_config_map("owner", &json!({})).await?;
    create_with(&world, "child", owned_by(&owner, false)).await?;
    world
        .delete(&world.core("configmaps/owner"), Some(&json!({ "propagationPolicy": "Background" })))
        .await?
        .expect(200)?;
    world.gone(&world.core("configmaps/child")).await
}

async fn foreground(world: World) -> anyhow::Result<()> {
    let owner = world.create_config_map("owner", &json!({})).await?;
    let mut child = owned_by(&owner, true);
    child["finalizers"] = json!(["example.com/hold"]);
    create_with(&world, "child", child).await?;
    let path = world.core("configmaps/owner");
    let going =
        world.delete(&path, Some(&json!({ "propagationPolicy": "Foreground" }))).await?.expect(200)?;
    ensure!(going["metadata"]["finalizers"] == json!(["foregroundDeletion"]), "{going}");
    let child = world.core("configmaps/child");
    world
        .eventually(&child, "deletion of the child", |answer| {
            answer.body["metadata"]["deletionTimestamp"].is_string()
        })
        .await?;
    world.get(&path).await?.expect(200)?;
    let patch = json!({ "metadata": { "finalizers": null } });
    world.patch(&child, "merge-patch+json", &patch).await?.expect(200)?;
    world.gone(&path).await
}

async fn circle(world: World) -> anyhow::Result<()> {
    let names = ["a", "b", "c"];
    let mut objects = Vec::new();
    for name in names {
        objects.push(world.create_config_map(name, &json!({})).await?);
    }
    for (name, owner) in names.iter().zip(objects.iter().cycle().skip(1)) {
        let patch = json!({ "metadata": owned_by(owner, true) });
        let path = world.core(&format!("configmaps/{name}"));
        world.patch(&path, "merge-patch+json", &patch).await?.expect(200)?;
    }
    let options = json!({ "propagationPolicy": "Foreground" });
    world.delete(&world.core("configmaps/a"), Some(&options)).await?.expect(200)?;
    for name in names {
        world.gone(&world.core(&format!("configmaps/{name}"))).await?;
    }
    Ok(())
}

async fn orphan(world: World) -> anyhow::Result<()> {
    let owner = world.create_config_map("owner", &json!({})).await?;
    create_with(&world, "child", owned_by(&owner, false)).await?;
    let path = world.core("configmaps/owner");
    world.delete(&path, Some(&json!({ "propagationPolicy": "Orphan" }))).await?.expect(200)?;
    world.gone(&path).await?;
    let child = world.get(&world.core("configmaps/child")).await?.expect(200)?;
    ensure!(child["metadata"].get("ownerReferences").is_none(), "{child}");
    Ok(())
}

async fn absent_owner(world: World) -> anyhow::Result<()> {
    let owner = json!({ "metadata": { "name": "never", "uid": "11111111-1111-4111-8111-111111111111" } });
    create_with(&world, "child", owned_by(&owner, false)).await?;
    world.gone(&world.core("configmaps/child")).await
}

async fn namespace(world: World) -> anyhow::Result<()> {
    let name = format!("going-{}", world.unique);
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let made = world.post("/api/v1/namespaces", &body).await?.expect(201)?;
    ensure!(made["metadata"]["labels"]["kubernetes.io/metadata.name"] == name.as_str(), "{made}");
    ensure!(
        made["status"]["phase"] == "Active" && made["spec"]["finalizers"] == json!(["kubernetes"]),
        "{made}"
    );
    let inside = format!("/api/v1/namespaces/{name}/configmaps");
    let mut held = world.config_map("a", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.post(&inside, &held).await?.expect(201)?;
    let path = format!("/api/v1/namespaces/{name}");
    let going = world.delete(&path, None).await?.expect(200)?;
    ensure!(going["status"]["phase"] == "Terminating", "{going}");
    let answer = world.post(&inside, &world.config_map("b", &json!({}))).await?;
    let message = format!("unable to create new content in namespace {name} because it is being terminated");
    answer.expect_status(403, "Forbidden", &message)?;
    let one = format!("{inside}/a");
    world
        .eventually(&one, "deletion inside", |answer| {
            answer.body["metadata"]["deletionTimestamp"].is_string()
        })
        .await?;
    let patch = json!({ "metadata": { "finalizers": null } });
    world.patch(&one, "merge-patch+json", &patch).await?.expect(200)?;
    world.gone(&path).await
}

async fn pods_first(world: World) -> anyhow::Result<()> {
    let name = format!("ordered-{}", world.unique);
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    world.post("/api/v1/namespaces", &body).await?.expect(201)?;
    let inside = World { namespace: name.clone(), ..world.clone() };
    with_account(&inside).await?;
    let mut held = pod("p", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.post(&inside.core("pods"), &held).await?.expect(201)?;
    inside.create_config_map("a", &json!({})).await?;
    let path = format!("/api/v1/namespaces/{name}");
    world.delete(&path, None).await?.expect(200)?;
    // The controller says what it found after it has deleted all it could.
    let has_acted = |answer: &Answer| {
        let conditions = answer.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "NamespaceDeletionContentFailure")
    };
    world.eventually(&path, "a condition of the namespace", has_acted).await?;
    let pod = world.get(&inside.core("pods/p")).await?.expect(200)?;
    ensure!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
    world.get(&inside.core("configmaps/a")).await?.expect(200)?;
    let patch = json!({ "metadata": { "finalizers": null } });
    world.patch(&inside.core("pods/p"), "merge-patch+json", &patch).await?.expect(200)?;
    world.gone(&path).await
}

async fn system_namespaces(world: World) -> anyhow::Result<()> {
    for name in ["default", "kube-system", "kube-public"] {
        let answer = world.delete(&format!("/api/v1/namespaces/{name}?dryRun=All"), None).await?;
        answer.expect_status(403, "Forbidden", "this namespace may not be deleted")?;
    }
    Ok(())
}

async fn bad_options(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({})).await?;
    let path = world.core("configmaps/a");
    let answer = world.delete(&path, Some(&json!({ "propagationPolicy": "Sideways" }))).await?;
    answer.expect_status(422, "Invalid", "propagationPolicy: Unsupported value: \"Sideways\"")?;
    let both = json!({ "propagationPolicy": "Background", "orphanDependents": true });
    let answer = world.delete(&path, Some(&both)).await?;
    answer.expect_status(422, "Invalid", "orphanDependents and deletionPropagation cannot be both set")?;
    Ok(())
}
