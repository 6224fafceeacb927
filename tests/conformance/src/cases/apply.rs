//! Server-side apply and field ownership.

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::World;

cases! { "apply":
    "apply creates what is not there" => creates,
    "applying the same again changes nothing" => idempotent,
    "a field that is no longer applied goes" => removes,
    "what another manager owns is a conflict" => conflicts,
    "force takes over" => forces,
    "equal values are shared" => shares,
    "lists merge by key and each item has its owner" => lists,
    "an update owns what it changes" => updates,
    "apply needs a manager, and force needs apply" => options,
    "an unknown field is refused" => unknown_field,
    "errors name items by their keys, and types as the schema does" => item_errors,
    "a key that is given twice is refused with its line, if asked" => duplicate_key,
    "status has owners of its own" => subresource,
}

fn config_map(world: &World, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "a", "namespace": world.namespace }, "data": data,
    })
}

fn entry<'a>(object: &'a Value, manager: &str) -> Option<&'a Value> {
    object["metadata"]["managedFields"].as_array()?.iter().find(|entry| entry["manager"] == manager)
}

async fn creates(world: World) -> anyhow::Result<()> {
    let body = config_map(&world, &json!({ "k": "1" }));
    let made = world.apply(&world.core("configmaps/a"), "one", false, &body).await?.expect(201)?;
    let owned = entry(&made, "one").cloned().unwrap_or_default();
    ensure!(
        owned["operation"] == "Apply" && owned["fieldsType"] == "FieldsV1" && owned["apiVersion"] == "v1",
        "{owned}"
    );
    ensure!(owned["fieldsV1"] == json!({ "f:data": { "f:k": {} } }), "{owned}");
    Ok(())
}

async fn idempotent(world: World) -> anyhow::Result<()> {
    let body = config_map(&world, &json!({ "k": "1" }));
    let first = world.apply(&world.core("configmaps/a"), "one", false, &body).await?.expect(201)?;
    let again = world.apply(&world.core("configmaps/a"), "one", false, &body).await?.expect(200)?;
    ensure!(first == again, "{again}");
    Ok(())
}

async fn removes(world: World) -> anyhow::Result<()> {
    let path = world.core("configmaps/a");
    let both = config_map(&world, &json!({ "k": "1", "l": "2" }));
    world.apply(&path, "one", false, &both).await?.expect(201)?;
    let less =
        world.apply(&path, "one", false, &config_map(&world, &json!({ "k": "1" }))).await?.expect(200)?;
    ensure!(less["data"] == json!({ "k": "1" }), "{less}");
    Ok(())
}

async fn conflicts(world: World) -> anyhow::Result<()> {
    let path = world.core("configmaps/a");
    world
        .apply(&path, "one", false, &config_map(&world, &json!({ "k": "1", "l": "1" })))
        .await?
        .expect(201)?;
    let answer = world.apply(&path, "two", false, &config_map(&world, &json!({ "k": "2" }))).await?;
    let message = "Apply failed with 1 conflict: conflict with \"one\": .data.k";
    let status = answer.expect_status(409, "Conflict", message)?;
    let cause =
        json!({ "reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.k" });
    ensure!(status["details"]["causes"] == json!([cause]), "{status}");
    Ok(())
}

async fn forces(world: World) -> anyhow::Result<()> {
    let path = world.core("configmaps/a");
    world
        .apply(&path, "one", false, &config_map(&world, &json!({ "k": "1", "l": "1" })))
        .await?
        .expect(201)?;
    let taken =
        world.apply(&path, "two", true, &config_map(&world, &json!({ "k": "2" }))).await?.expect(200)?;
    ensure!(taken["data"] == json!({ "k": "2", "l": "1" }), "{taken}");
    ensure!(
        entry(&taken, "one").is_some_and(|entry| entry["fieldsV1"] == json!({ "f:data": { "f:l": {} } })),
        "{taken}"
    );
    Ok(())
}

async fn shares(world: World) -> anyhow::Result<()> {
    let path = world.core("configmaps/a");
    let body = config_map(&world, &json!({ "k": "1" }));
    world.apply(&path, "one", false, &body).await?.expect(201)?;
    world.apply(&path, "two", false, &body).await?.expect(200)?;
    let without = world.apply(&path, "one", false, &config_map(&world, &json!({}))).await?.expect(200)?;
    ensure!(without["data"] == json!({ "k": "1" }), "the other still owns it: {without}");
    let answer = world.apply(&path, "two", false, &config_map(&world, &json!({}))).await?.expect(200)?;
    ensure!(answer.get("data").is_none_or(|data| *data == json!({})), "{answer}");
    Ok(())
}

fn template(world: &World, containers: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": "p", "namespace": world.namespace },
        "template": { "spec": { "containers": containers } },
    })
}

async fn lists(world: World) -> anyhow::Result<()> {
    let path = world.core("podtemplates/p");
    let one = template(&world, &json!([{ "name": "a", "image": "a:1" }]));
    world.apply(&path, "one", false, &one).await?.expect(201)?;
    let two = template(&world, &json!([{ "name": "b", "image": "b:1" }]));
    let both = world.apply(&path, "two", false, &two).await?.expect(200)?;
    ensure!(both["template"]["spec"]["containers"].as_array().is_some_and(|all| all.len() == 2), "{both}");
    let owned = entry(&both, "two").map(|entry| entry["fieldsV1"].clone()).unwrap_or_default();
    let key = &owned["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"b\"}"];
    ensure!(*key == json!({ ".": {}, "f:name": {}, "f:image": {} }), "{owned}");
    let answer = world
        .apply(&path, "two", false, &template(&world, &json!([{ "name": "a", "image": "a:2" }])))
        .await?;
    let message = ".template.spec.containers[name=\"a\"].image";
    answer.expect_status(409, "Conflict", message)?;
    Ok(())
}

async fn updates(world: World) -> anyhow::Result<()> {
    let path = world.core("configmaps/a");
    world.apply(&path, "one", false, &config_map(&world, &json!({ "k": "1" }))).await?.expect(201)?;
    let patch = json!({ "data": { "k": "2" } });
    world.patch(&format!("{path}?fieldManager=hand"), "merge-patch+json", &patch).await?.expect(200)?;
    let answer = world.apply(&path, "one", false, &config_map(&world, &json!({ "k": "1" }))).await?;
    answer.expect_status(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"hand\" using v1: .data.k",
    )?;
    Ok(())
}

async fn options(world: World) -> anyhow::Result<()> {
    let path = world.core("configmaps/a");
    let body = config_map(&world, &json!({}));
    let answer = world.patch(&path, "apply-patch+yaml", &body).await?;
    answer.expect_status(422, "Invalid", "fieldManager: Required value: is required for apply patch")?;
    world.create_config_map("a", &json!({})).await?;
    let answer = world.patch(&format!("{path}?force=true"), "merge-patch+json", &json!({})).await?;
    answer.expect_status(422, "Invalid", "force: Forbidden: may not be specified for non-apply patch")?;
    let mut managed = body;
    managed["metadata"]["managedFields"] = json!([{ "manager": "x" }]);
    let answer = world.apply(&path, "one", false, &managed).await?;
    answer.expect_status(400, "BadRequest", "metadata.managedFields must be nil")?;
    Ok(())
}

async fn unknown_field(world: World) -> anyhow::Result<()> {
    let mut body = config_map(&world, &json!({}));
    body["bogus"] = json!(1);
    let answer = world.apply(&world.core("configmaps/a"), "one", false, &body).await?;
    ensure!(
        answer.code == 500 && answer.text.contains(".bogus: field not declared in schema"),
        "{}",
        answer.text
    );
    Ok(())
}

async fn item_errors(world: World) -> anyhow::Result<()> {
    let path = world.path("apps/v1", "deployments/d");
    for (container, message) in [
        (
            json!({ "env": [{ "name": "X" }, { "name": "X" }] }),
            ".env: duplicate entries for key [name=\"X\"]",
        ),
        (
            json!({ "ports": [{ "containerPort": 80, "x": 1 }] }),
            ".ports[containerPort=80,protocol=\"TCP\"].x: field not declared in schema",
        ),
        (json!({ "env": "text" }), ".env: expected list, got &{text}"),
        (json!({ "image": 5 }), ".image: expected string, got &value.valueUnstructured{Value:5}"),
        (json!({ "args": [1] }), ".args[0]: expected string, got &value.valueUnstructured{Value:1}"),
    ] {
        let mut container = container;
        container["name"] = json!("c");
        let body = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
            "spec": { "template": { "spec": { "containers": [container] } } } });
        let answer = world.apply(&path, "one", false, &body).await?;
        let message = format!(
            "failed to create typed patch object (/d; apps/v1, Kind=Deployment): .spec.template.spec.containers[name=\"c\"]{message}"
        );
        answer.expect_status(500, "", &message)?;
    }
    Ok(())
}

async fn duplicate_key(world: World) -> anyhow::Result<()> {
    let body = "\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  foo: one\n  foo: two\n";
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{}?fieldManager=one", world.core("configmaps/a"));
    let answer = world.send("PATCH", &format!("{path}&fieldValidation=Strict"), &headers, body).await?;
    answer.expect_status(400, "BadRequest", "line 8: key \"foo\" already set in map")?;
    let made = world.send("PATCH", &path, &headers, body).await?.expect(201)?;
    ensure!(made["data"]["foo"] == "two", "{made}");
    Ok(())
}

async fn subresource(world: World) -> anyhow::Result<()> {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "p" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    world.post(&world.core("persistentvolumeclaims"), &claim).await?.expect(201)?;
    let status = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "p" },
        "status": { "capacity": { "storage": "1Gi" } },
    });
    let path = world.core("persistentvolumeclaims/p/status");
    let applied = world.apply(&path, "one", false, &status).await?.expect(200)?;
    let owned = entry(&applied, "one").cloned().unwrap_or_default();
    ensure!(owned["subresource"] == "status", "{owned}");
    ensure!(owned["fieldsV1"] == json!({ "f:status": { "f:capacity": { "f:storage": {} } } }), "{owned}");
    Ok(())
}
