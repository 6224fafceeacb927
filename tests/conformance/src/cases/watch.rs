//! Watches: what they show, in which order, and how they end.

use anyhow::{Context as _, bail, ensure};
use futures::{AsyncBufReadExt as _, StreamExt as _};
use http::Request;
use serde_json::{Value, json};

use super::cases;
use crate::World;

cases! { "watch":
    "changes are shown in order, each with its version" => in_order,
    "without a version everything there is comes first" => initial,
    "an object that enters or leaves a selection is added or deleted" => selection,
    "a list can be streamed and ends with a bookmark" => watch_list,
    "a watch from too long ago says so in an event" => expired,
    "a watch ends when its time is over" => timeout,
    "a watch of one object by name" => by_name,
    "contradicting options are refused" => bad_options,
}

/// Events of a watch until `enough`.
pub(super) async fn events(
    world: &World,
    path: &str,
    enough: impl Fn(&[Value]) -> bool,
) -> anyhow::Result<Vec<Value>> {
    let request = Request::get(path).body(Vec::new()).context("cannot build the request")?;
    let stream =
        world.client.request_stream(request).await.with_context(|| format!("{path} was not answered"))?;
    let mut lines = std::pin::pin!(stream.lines());
    let mut events = Vec::new();
    while !enough(&events) {
        let Some(line) = lines.next().await else { bail!("the watch ended after {events:?}") };
        events.push(serde_json::from_str(&line?).context("an event that is no JSON")?);
    }
    Ok(events)
}

fn summary(events: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events
        .iter()
        .map(|event| format!("{} {}", text(&event["type"]), text(&event["object"]["metadata"]["name"])))
        .collect()
}

async fn current(world: &World) -> anyhow::Result<String> {
    let list = world.get(&world.core("configmaps")).await?.expect(200)?;
    let version = list["metadata"]["resourceVersion"].as_str();
    version.map(str::to_owned).context("a list without a resource version")
}

fn mine(world: &World, version: &str) -> String {
    let selector = format!("labelSelector=case%3D{}", world.unique);
    format!("{}?watch=true&{selector}&resourceVersion={version}", world.core("configmaps"))
}

async fn make(world: &World, name: &str, value: &str) -> anyhow::Result<Value> {
    let mut body = world.config_map(name, &json!({ "k": value }));
    body["metadata"]["labels"] = json!({ "case": world.unique });
    world.post(&world.core("configmaps"), &body).await?.expect(201)
}

async fn in_order(world: World) -> anyhow::Result<()> {
    let version = current(&world).await?;
    make(&world, "a", "1").await?;
    make(&world, "b", "1").await?;
    let patch = json!({ "data": { "k": "2" } });
    world.patch(&world.core("configmaps/a"), "merge-patch+json", &patch).await?.expect(200)?;
    world.delete(&world.core("configmaps/a"), None).await?.expect(200)?;
    let events = events(&world, &mine(&world, &version), |events| events.len() == 4).await?;
    ensure!(summary(&events) == ["ADDED a", "ADDED b", "MODIFIED a", "DELETED a"], "{:?}", summary(&events));
    let versions: Vec<u64> = events
        .iter()
        .filter_map(|event| event["object"]["metadata"]["resourceVersion"].as_str()?.parse().ok())
        .collect();
    ensure!(versions.len() == 4 && versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    ensure!(events.iter().all(|event| event["object"]["kind"] == "ConfigMap"), "an event without a kind");
    Ok(())
}

async fn initial(world: World) -> anyhow::Result<()> {
    make(&world, "a", "1").await?;
    make(&world, "b", "1").await?;
    let path = mine(&world, "0");
    let events = events(&world, &path, |events| events.len() == 2).await?;
    ensure!(summary(&events) == ["ADDED a", "ADDED b"], "{:?}", summary(&events));
    Ok(())
}

async fn selection(world: World) -> anyhow::Result<()> {
    let version = current(&world).await?;
    make(&world, "a", "1").await?;
    for label in [Value::Null, json!(world.unique)] {
        let patch = json!({ "metadata": { "labels": { "case": label } } });
        world.patch(&world.core("configmaps/a"), "merge-patch+json", &patch).await?.expect(200)?;
    }
    let events = events(&world, &mine(&world, &version), |events| events.len() == 3).await?;
    ensure!(summary(&events) == ["ADDED a", "DELETED a", "ADDED a"], "{:?}", summary(&events));
    let left = &events[1]["object"]["metadata"];
    ensure!(left["labels"]["case"] == world.unique.as_str(), "leaving shows the old state: {left}");
    ensure!(
        left["resourceVersion"] != events[0]["object"]["metadata"]["resourceVersion"],
        "at the new version: {left}"
    );
    Ok(())
}

async fn watch_list(world: World) -> anyhow::Result<()> {
    make(&world, "a", "1").await?;
    make(&world, "b", "1").await?;
    let path = format!(
        "{}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=case%3D{}",
        world.core("configmaps"),
        world.unique
    );
    let is_end =
        |event: &Value| event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
    let events = events(&world, &path, |events| events.last().is_some_and(is_end)).await?;
    ensure!(summary(&events) == ["ADDED a", "ADDED b", "BOOKMARK "], "{:?}", summary(&events));
    let bookmark = &events[2]["object"];
    ensure!(
        bookmark["kind"] == "ConfigMap" && bookmark["metadata"]["resourceVersion"].is_string(),
        "{bookmark}"
    );
    Ok(())
}

async fn expired(world: World) -> anyhow::Result<()> {
    make(&world, "a", "1").await?;
    let events = events(&world, &mine(&world, "1"), |events| !events.is_empty()).await?;
    // A young cluster may still remember everything; then it must tell everything.
    if events[0]["type"] == "ERROR" {
        let status = &events[0]["object"];
        ensure!(status["code"] == 410 && status["reason"] == "Expired", "{status}");
    } else {
        ensure!(summary(&events) == ["ADDED a"], "{events:?}");
    }
    Ok(())
}

async fn timeout(world: World) -> anyhow::Result<()> {
    let path = format!("{}&timeoutSeconds=1&allowWatchBookmarks=true", mine(&world, "0"));
    let outcome = events(&world, &path, |_| false).await;
    let ended = outcome.err().is_some_and(|error| error.to_string().starts_with("the watch ended"));
    ensure!(ended, "the watch did not end");
    Ok(())
}

async fn by_name(world: World) -> anyhow::Result<()> {
    let version = current(&world).await?;
    make(&world, "a", "1").await?;
    make(&world, "b", "1").await?;
    let path = format!(
        "{}?watch=true&fieldSelector=metadata.name%3Db&resourceVersion={version}",
        world.core("configmaps")
    );
    let events = events(&world, &path, |events| !events.is_empty()).await?;
    ensure!(summary(&events) == ["ADDED b"], "{:?}", summary(&events));
    Ok(())
}

async fn bad_options(world: World) -> anyhow::Result<()> {
    let path = world.core("configmaps");
    for (options, message) in [
        (
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            "sendInitialEvents is forbidden for list",
        ),
        (
            "watch=true&sendInitialEvents=true",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=0",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ] {
        world.get(&format!("{path}?{options}")).await?.expect_status(422, "Invalid", message)?;
    }
    Ok(())
}
