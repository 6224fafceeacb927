//! The forms in which objects are sent and answered.

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::World;

cases! { "representation":
    "YAML is read and written" => yaml,
    "a table has columns and a row per object" => table,
    "metadata alone can be asked for" => metadata,
    "protobuf is written for built-in kinds" => protobuf,
    "an unacceptable form is refused" => not_acceptable,
    "a long list is compressed if the client can read it" => compression,
    "a person with curl gets indented JSON" => pretty,
}

async fn yaml(world: World) -> anyhow::Result<()> {
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: '1'}\n";
    let answer =
        world.send("POST", &world.core("configmaps"), &[("content-type", "application/yaml")], body).await?;
    answer.expect(201)?;
    let answer =
        world.send("GET", &world.core("configmaps/a"), &[("accept", "application/yaml")], "").await?;
    ensure!(answer.code == 200 && answer.text.contains("kind: ConfigMap"), "{}", answer.text);
    Ok(())
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn table(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({ "k": "1", "l": "2" })).await?;
    let path = format!("{}?fieldSelector=metadata.name%3Da", world.core("configmaps"));
    let table = world.send("GET", &path, &[("accept", TABLE)], "").await?.expect(200)?;
    ensure!(table["kind"] == "Table" && table["apiVersion"] == "meta.k8s.io/v1", "{table}");
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|column| column["name"].as_str())
        .collect();
    ensure!(columns == ["Name", "Data", "Age"], "{columns:?}");
    let row = &table["rows"][0];
    ensure!(row["cells"][0] == "a" && row["cells"][1] == 2, "{row}");
    ensure!(row["object"]["kind"] == "PartialObjectMetadata", "{row}");
    Ok(())
}

async fn metadata(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({ "k": "1" })).await?;
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let partial =
        world.send("GET", &world.core("configmaps/a"), &[("accept", accept)], "").await?.expect(200)?;
    ensure!(partial["kind"] == "PartialObjectMetadata" && partial.get("data").is_none(), "{partial}");
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let list = world.send("GET", &world.core("configmaps"), &[("accept", accept)], "").await?.expect(200)?;
    ensure!(
        list["kind"] == "PartialObjectMetadataList" && list["items"][0]["kind"] == "PartialObjectMetadata",
        "{list}"
    );
    let none = world.send("GET", &world.core("services"), &[("accept", accept)], "").await?.expect(200)?;
    ensure!(none.get("items") == Some(&Value::Null), "none is null here: {none}");
    Ok(())
}

async fn protobuf(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({ "k": "1" })).await?;
    let kind = "application/vnd.kubernetes.protobuf";
    let answer = world.send("GET", &world.core("configmaps/a"), &[("accept", kind)], "").await?;
    let content_type = answer.headers.get("content-type").cloned();
    ensure!(content_type.as_ref().is_some_and(|found| found == kind), "{content_type:?}");
    ensure!(answer.text.starts_with("k8s\0"), "no envelope");
    Ok(())
}

async fn not_acceptable(world: World) -> anyhow::Result<()> {
    let answer = world.send("GET", &world.core("configmaps"), &[("accept", "application/xml")], "").await?;
    ensure!(answer.code == 406, "{} {}", answer.code, answer.text);
    Ok(())
}

async fn compression(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({ "k": "x".repeat(300 * 1024) })).await?;
    let answer = world.send("GET", &world.core("configmaps"), &[("accept-encoding", "gzip")], "").await?;
    // This client does not unpack.
    let is_packed = answer.headers.get("content-encoding").is_some_and(|encoding| encoding == "gzip");
    ensure!(answer.code == 200 && is_packed && answer.text.starts_with('\u{1f}'), "{:?}", answer.headers);
    Ok(())
}

async fn pretty(world: World) -> anyhow::Result<()> {
    world.create_config_map("a", &json!({})).await?;
    let path = world.core("configmaps/a");
    let compact = world.get(&path).await?.text;
    let indented = world.get(&format!("{path}?pretty=true")).await?.text;
    ensure!(compact.trim_end().lines().count() == 1 && indented.contains("\n  \"kind\""), "{indented}");
    Ok(())
}
