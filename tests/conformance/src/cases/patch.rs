//! The three kinds of patches.

use anyhow::ensure;
use serde_json::json;

use super::cases;
use crate::World;

cases! { "patch":
    "a merge patch merges maps, replaces lists and removes nulls" => merge,
    "a JSON patch is carried out whole or not at all" => json_patch,
    "a JSON patch that fails a test is refused" => json_test,
    "a JSON patch may replace a member that is not there, but no element" => json_replace,
    "a strategic merge patch merges lists by key" => strategic,
    "a strategic merge patch obeys its directives" => directives,
    "a patch with a version is conditional" => conditional,
    "a patch of a missing object is refused" => missing,
    "a patch in an unknown format is refused" => unknown_format,
    "a patch cannot change what identifies an object" => identity,
    "an unknown field in a patch is refused when asked" => strict,
}

fn pod(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": name },
        "template": {
            "metadata": { "labels": { "a": "b" } },
            "spec": {
                "containers": [
                    { "name": "one", "image": "one:1", "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }] },
                    { "name": "two", "image": "two:1", "args": ["x", "y"] },
                ],
                "tolerations": [{ "key": "k", "operator": "Exists" }],
            },
        },
    })
}

async fn merge(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({ "k": "1", "l": "2" })).await?;
    let patch = json!({ "data": { "k": null, "m": "3" }, "metadata": { "finalizers": ["example.com/x"] } });
    let path = world.core("configmaps/a");
    let patched = world.patch(&path, "merge-patch+json", &patch).await?.expect(200)?;
    ensure!(patched["data"] == json!({ "l": "2", "m": "3" }), "{patched}");
    let patch = json!({ "metadata": { "finalizers": [] } });
    let patched = world.patch(&path, "merge-patch+json", &patch).await?.expect(200)?;
    ensure!(patched["metadata"].get("finalizers").is_none(), "{patched}");
    Ok(())
}

async fn json_patch(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({ "k": "1", "l": "2" })).await?;
    let path = world.core("configmaps/a");
    let patch = json!([
        { "op": "test", "path": "/data/k", "value": "1" },
        { "op": "replace", "path": "/data/k", "value": "x" },
        { "op": "remove", "path": "/data/l" },
        { "op": "add", "path": "/metadata/annotations", "value": {} },
        { "op": "add", "path": "/metadata/annotations/example.com~1b", "value": "y" },
        { "op": "copy", "from": "/data/k", "path": "/data/z" },
    ]);
    let patched = world.patch(&path, "json-patch+json", &patch).await?.expect(200)?;
    ensure!(
        patched["metadata"]["annotations"]["example.com/b"] == "y"
            && patched["data"]["k"] == "x"
            && patched["data"]["z"] == "x"
            && patched["data"].get("l").is_none(),
        "{patched}"
    );
    Ok(())
}

async fn json_replace(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({ "k": "1" })).await?;
    let path = world.core("configmaps/a");
    let patch = json!([
        { "op": "test", "path": "/data/l", "value": null },
        { "op": "replace", "path": "/data/l", "value": "2" },
        { "op": "replace", "path": "/metadata/finalizers", "value": ["example.com/x"] },
    ]);
    let patched = world.patch(&path, "json-patch+json", &patch).await?.expect(200)?;
    ensure!(patched["data"] == json!({ "k": "1", "l": "2" }), "{patched}");
    for refused in [
        json!({ "op": "replace", "path": "/metadata/finalizers/1", "value": "example.com/y" }),
        json!({ "op": "replace", "path": "/binaryData/l", "value": "2" }),
        json!({ "op": "test", "path": "/binaryData/l", "value": null }),
        json!({ "op": "remove", "path": "/data/m" }),
    ] {
        let answer = world.patch(&path, "json-patch+json", &json!([refused])).await?;
        let message = "the server rejected our request due to an error in our request";
        answer.expect_status(422, "Invalid", message)?;
    }
    let patch = json!([{ "op": "remove", "path": "/metadata/finalizers/-1" }]);
    world.patch(&path, "json-patch+json", &patch).await?.expect(200)?;
    Ok(())
}

async fn json_test(world: World) -> anyhow::Result<()> {
    let before = world.create_config_map("a", &json!({ "k": "1" })).await?;
    let path = world.core("configmaps/a");
    let patch = json!([
        { "op": "replace", "path": "/data/k", "value": "x" },
        { "op": "test", "path": "/data/k", "value": "no" },
    ]);
    let answer = world.patch(&path, "json-patch+json", &patch).await?;
    answer.expect_status(422, "Invalid", "the server rejected our request due to an error in our request")?;
    ensure!(world.get(&path).await?.expect(200)? == before, "half a patch was applied");
    Ok(())
}

async fn strategic(world: World) -> anyhow::Result<()> {
    world.post(&world.core("podtemplates"), &pod("p")).await?.expect(201)?;
    let patch = json!({ "template": { "spec": { "containers": [
        { "name": "one", "image": "one:2", "env": [{ "name": "B", "value": "3" }, { "name": "C", "value": "4" }] },
        { "name": "three", "image": "three:1" },
    ], "tolerations": [{ "key": "l", "operator": "Exists" }] } } });
    let path = world.core("podtemplates/p");
    let patched = world.patch(&path, "strategic-merge-patch+json", &patch).await?.expect(200)?;
    let spec = &patched["template"]["spec"];
    let containers = spec["containers"].as_array().cloned().unwrap_or_default();
    let one = containers.iter().find(|container| container["name"] == "one").cloned().unwrap_or_default();
    ensure!(containers.len() == 3 && one["image"] == "one:2", "{spec}");
    let env = one["env"].as_array().cloned().unwrap_or_default();
    ensure!(env.len() == 3 && env.contains(&json!({ "name": "B", "value": "3" })), "{one}");
    ensure!(
        spec["tolerations"] == json!([{ "key": "l", "operator": "Exists" }]),
        "a list without key is replaced: {spec}"
    );
    Ok(())
}

async fn directives(world: World) -> anyhow::Result<()> {
    world.post(&world.core("podtemplates"), &pod("p")).await?.expect(201)?;
    let path = world.core("podtemplates/p");
    let patch = json!({ "template": { "spec": { "containers": [{ "name": "two", "$patch": "delete" }] } } });
    let patched = world.patch(&path, "strategic-merge-patch+json", &patch).await?.expect(200)?;
    ensure!(
        patched["template"]["spec"]["containers"].as_array().is_some_and(|all| all.len() == 1),
        "{patched}"
    );
    let patch = json!({ "template": { "metadata": { "labels": { "$patch": "replace", "c": "d" } } } });
    let patched = world.patch(&path, "strategic-merge-patch+json", &patch).await?.expect(200)?;
    ensure!(patched["template"]["metadata"]["labels"] == json!({ "c": "d" }), "{patched}");
    let patch = json!({ "template": { "spec": { "containers": [
        { "$patch": "replace" }, { "name": "new", "image": "new:1" },
    ] } } });
    let patched = world.patch(&path, "strategic-merge-patch+json", &patch).await?.expect(200)?;
    let containers = &patched["template"]["spec"]["containers"];
    ensure!(
        containers.as_array().is_some_and(|all| all.len() == 1) && containers[0]["name"] == "new",
        "{containers}"
    );
    let patch = json!({ "template": { "spec": { "containers": [{ "image": "nameless:1" }] } } });
    let answer = world.patch(&path, "strategic-merge-patch+json", &patch).await?;
    ensure!(
        answer.code >= 400 && answer.text.contains("does not contain declared merge key: name"),
        "{}",
        answer.text
    );
    Ok(())
}

async fn conditional(world: World) -> anyhow::Result<()> {
    let object = world.create_config_map("a", &json!({})).await?;
    let path = world.core("configmaps/a");
    world.patch(&path, "merge-patch+json", &json!({ "data": { "k": "1" } })).await?.expect(200)?;
    let version = &object["metadata"]["resourceVersion"];
    let patch = json!({ "metadata": { "resourceVersion": version }, "data": { "k": "2" } });
    let answer = world.patch(&path, "merge-patch+json", &patch).await?;
    answer.expect_status(409, "Conflict", "the object has been modified")?;
    Ok(())
}

async fn missing(world: World) -> anyhow::Result<()> {
    let answer = world.patch(&world.core("configmaps/nope"), "merge-patch+json", &json!({})).await?;
    answer.expect_status(404, "NotFound", "configmaps \"nope\" not found")?;
    Ok(())
}

async fn unknown_format(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({})).await?;
    let answer = world.patch(&world.core("configmaps/a"), "x-patch+json", &json!({})).await?;
    ensure!(answer.code == 415, "{} {}", answer.code, answer.text);
    Ok(())
}

async fn identity(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({})).await?;
    for patch in [
        json!({ "metadata": { "name": "b" } }),
        json!({ "metadata": { "namespace": "b" } }),
        json!({ "kind": "Secret" }),
    ] {
        let answer = world.patch(&world.core("configmaps/a"), "merge-patch+json", &patch).await?;
        ensure!(answer.code == 400 || answer.code == 422, "{patch}: {} {}", answer.code, answer.text);
    }
    Ok(())
}

async fn strict(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({})).await?;
    let path = format!("{}?fieldValidation=Strict", world.core("configmaps/a"));
    let answer = world.patch(&path, "merge-patch+json", &json!({ "bogus": 1 })).await?;
    answer.expect_status(422, "Invalid", "strict decoding error: unknown field \"bogus\"")?;
    Ok(())
}
