//! Lists: order, pages, versions, selectors.

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::World;

cases! { "list":
    "a list is sorted and its items say nothing of their kind" => sorted,
    "an empty namespace gives an empty list" => empty,
    "pages together are the list at one moment" => pages,
    "a broken continue token is refused" => bad_token,
    "labels select" => labels,
    "fields select" => fields,
    "an unknown field selector is refused" => unknown_field,
    "a broken label selector is refused" => bad_label_selector,
    "an old enough version is read from the past, a future one is waited for" => versions,
    "version match needs a version" => version_match,
    "all namespaces are listed at once" => all_namespaces,
    "a collection can be deleted by selector" => delete_collection,
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).map(Into::into).collect()
}

async fn make(world: &World, names: &[&str]) -> anyhow::Result<()> {
    for name in names {
        let mut body = world.config_map(name, &json!({}));
        body["metadata"]["labels"] = json!({ "case": world.unique, "name": name });
        world.post(&world.core("configmaps"), &body).await?.expect(201)?;
    }
    Ok(())
}

/// The selector of what `make` made: clusters put ConfigMaps of their own into namespaces.
fn mine(world: &World) -> String {
    format!("labelSelector=case%3D{}", world.unique)
}

async fn sorted(world: World) -> anyhow::Result<()> {
    make(&world, &["c", "a", "b", "a-b", "a.b"]).await?;
    let list = world.get(&format!("{}?{}", world.core("configmaps"), mine(&world))).await?.expect(200)?;
    ensure!(list["kind"] == "ConfigMapList" && list["apiVersion"] == "v1", "{list}");
    ensure!(list["metadata"]["resourceVersion"].is_string(), "{list}");
    ensure!(names(&list) == ["a", "a-b", "a.b", "b", "c"], "{:?}", names(&list));
    ensure!(list["items"][0].get("kind").is_none() && list["items"][0].get("apiVersion").is_none(), "{list}");
    Ok(())
}

async fn empty(world: World) -> anyhow::Result<()> {
    let list =
        world.get(&format!("/api/v1/namespaces/absent-{}/secrets", world.unique)).await?.expect(200)?;
    ensure!(list["items"] == json!([]), "{list}");
    Ok(())
}

async fn pages(world: World) -> anyhow::Result<()> {
    make(&world, &["a", "b", "c", "d", "e"]).await?;
    let path = format!("{}?{}", world.core("configmaps"), mine(&world));
    let first = world.get(&format!("{path}&limit=2")).await?.expect(200)?;
    make(&world, &["bb", "z"]).await?;
    world.delete(&world.core("configmaps/d"), None).await?.expect(200)?;
    let (mut all, mut token) = (names(&first), first["metadata"]["continue"].clone());
    while let Some(text) = token.as_str().filter(|text| !text.is_empty()) {
        let page = world.get(&format!("{path}&limit=2&continue={text}")).await?.expect(200)?;
        ensure!(
            page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"],
            "another moment"
        );
        all.extend(names(&page));
        token = page["metadata"]["continue"].clone();
    }
    ensure!(all == ["a", "b", "c", "d", "e"], "{all:?}");
    Ok(())
}

async fn bad_token(world: World) -> anyhow::Result<()> {
    let answer = world.get(&format!("{}?limit=1&continue=xyz", world.core("configmaps"))).await?;
    ensure!(answer.code == 400 && answer.text.contains("continue"), "{} {}", answer.code, answer.text);
    Ok(())
}

async fn labels(world: World) -> anyhow::Result<()> {
    make(&world, &["a", "b", "c"]).await?;
    for (selector, expected) in [
        ("name%3Da", &["a"][..]),
        ("name!%3Da", &["b", "c"]),
        ("name+in+(a,c)", &["a", "c"]),
        ("name+notin+(a,c)", &["b"]),
        ("name,!other", &["a", "b", "c"]),
        ("other", &[]),
    ] {
        let path = format!("{}?{},{selector}", world.core("configmaps"), mine(&world));
        let list = world.get(&path).await?.expect(200)?;
        ensure!(names(&list) == expected, "{selector}: {:?}", names(&list));
    }
    Ok(())
}

async fn fields(world: World) -> anyhow::Result<()> {
    make(&world, &["a", "b"]).await?;
    let list = world
        .get(&format!("{}?fieldSelector=metadata.name%3Da", world.core("configmaps")))
        .await?
        .expect(200)?;
    ensure!(names(&list) == ["a"], "{:?}", names(&list));
    let secret =
        json!({ "apiVersion": "v1", "kind": "Secret", "type": "example/one", "metadata": { "name": "s" } });
    world.post(&world.core("secrets"), &secret).await?.expect(201)?;
    let list = world
        .get(&format!("{}?fieldSelector=type%3Dexample/one", world.core("secrets")))
        .await?
        .expect(200)?;
    ensure!(names(&list) == ["s"], "{:?}", names(&list));
    Ok(())
}

async fn unknown_field(world: World) -> anyhow::Result<()> {
    let answer = world.get(&format!("{}?fieldSelector=spec.foo%3Da", world.core("configmaps"))).await?;
    let message =
        "\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    answer.expect_status(400, "BadRequest", message)?;
    let answer = world.get(&format!("{}?fieldSelector=spec.foo%3Da", world.core("pods"))).await?;
    answer.expect_status(400, "BadRequest", "field label not supported: spec.foo")?;
    Ok(())
}

async fn bad_label_selector(world: World) -> anyhow::Result<()> {
    for (text, message) in [
        ("%3D%3Da", "found '==', expected: !, identifier, or 'end of string'"),
        ("a%20b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a%3Db%20c", "found 'c', expected: ',' or 'end of string'"),
        ("a%3D!", "unable to parse requirement: found '!', expected: identifier"),
        ("a%2C", "found '', expected: identifier after ','"),
        (
            "a%3Db%3Ac",
            "unable to parse requirement: values[0][a]: Invalid value: \"b:c\": a valid label must be",
        ),
        ("a/b/c", "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key must"),
    ] {
        let answer = world.get(&format!("{}?labelSelector={text}", world.core("configmaps"))).await?;
        answer.expect_status(400, "BadRequest", message)?;
    }
    Ok(())
}

async fn versions(world: World) -> anyhow::Result<()> {
    make(&world, &["a"]).await?;
    let path = format!("{}?{}", world.core("configmaps"), mine(&world));
    let then = world.get(&path).await?.expect(200)?["metadata"]["resourceVersion"].clone();
    let then = then.as_str().unwrap_or_default();
    make(&world, &["b"]).await?;
    let exact =
        world.get(&format!("{path}&resourceVersion={then}&resourceVersionMatch=Exact")).await?.expect(200)?;
    ensure!(names(&exact) == ["a"], "{:?}", names(&exact));
    let newer = world
        .get(&format!("{path}&resourceVersion={then}&resourceVersionMatch=NotOlderThan"))
        .await?
        .expect(200)?;
    ensure!(names(&newer).contains(&"a".to_owned()), "{:?}", names(&newer));
    let answer = world.get(&format!("{path}&resourceVersion=99999999999")).await?;
    answer.expect_status(504, "Timeout", "Timeout: Too large resource version: 99999999999, current: ")?;
    let answer = world.get(&format!("{path}&resourceVersion=abc")).await?;
    ensure!(answer.code == 400 && answer.text.contains("invalid resource version"), "{}", answer.text);
    Ok(())
}

async fn version_match(world: World) -> anyhow::Result<()> {
    let answer = world.get(&format!("{}?resourceVersionMatch=Exact", world.core("configmaps"))).await?;
    let message = "resourceVersionMatch is forbidden unless resourceVersion is provided";
    answer.expect_status(422, "Invalid", message)?;
    Ok(())
}

async fn all_namespaces(world: World) -> anyhow::Result<()> {
    make(&world, &["a"]).await?;
    let list = world.get(&format!("/api/v1/configmaps?{}", mine(&world))).await?.expect(200)?;
    ensure!(
        names(&list) == ["a"] && list["items"][0]["metadata"]["namespace"] == world.namespace.as_str(),
        "{list}"
    );
    Ok(())
}

async fn delete_collection(world: World) -> anyhow::Result<()> {
    make(&world, &["a", "b", "c"]).await?;
    let path = world.core("configmaps");
    world.delete(&format!("{path}?{},name!%3Db", mine(&world)), None).await?.expect(200)?;
    let list = world.get(&format!("{path}?{}", mine(&world))).await?.expect(200)?;
    ensure!(names(&list) == ["b"], "{:?}", names(&list));
    Ok(())
}
