//! Finding out what a server can do.

use anyhow::ensure;
use serde_json::{Value, json};

use super::cases;
use crate::World;

cases! { "discovery":
    "the version has everything clients require" => version,
    "health is plain text" => health,
    "core resources are listed with their verbs, short names and subresources" => core_resources,
    "groups are listed with a preferred version" => groups,
    "aggregated discovery lists all groups in one answer" => aggregated,
    "an unchanged aggregated document is not sent again" => aggregated_etag,
    "an unknown group is a plain 404" => unknown_group,
    "an unknown resource of a known group is a Status" => unknown_resource,
    "OpenAPI v3 lists a document per group and version" => openapi_index,
    "OpenAPI v3 documents have what kubectl needs to apply" => openapi_document,
}

async fn version(world: World) -> anyhow::Result<()> {
    let version = world.get("/version").await?.expect(200)?;
    for field in [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ] {
        ensure!(version[field].is_string(), "{field} is missing: {version}");
    }
    Ok(())
}

async fn health(world: World) -> anyhow::Result<()> {
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = world.get(path).await?;
        ensure!(answer.code == 200 && answer.text == "ok", "{path}: {} {}", answer.code, answer.text);
    }
    let verbose = world.get("/readyz?verbose").await?.text;
    ensure!(verbose.contains("[+]ping ok") && verbose.contains("readyz check passed"), "{verbose}");
    Ok(())
}

fn resource<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list["resources"].as_array()?.iter().find(|resource| resource["name"] == name)
}

async fn core_resources(world: World) -> anyhow::Result<()> {
    let list = world.get("/api/v1").await?.expect(200)?;
    ensure!(list["kind"] == "APIResourceList" && list["groupVersion"] == "v1", "{list}");
    let pods = resource(&list, "pods").cloned().unwrap_or_default();
    ensure!(pods["kind"] == "Pod" && pods["namespaced"] == true && pods["singularName"] == "pod", "{pods}");
    ensure!(pods["shortNames"] == json!(["po"]), "{pods}");
    let verbs = json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
    ensure!(pods["verbs"] == verbs, "{pods}");
    for name in ["pods/status", "pods/log", "pods/eviction", "serviceaccounts/token", "namespaces/finalize"] {
        ensure!(resource(&list, name).is_some(), "{name} is missing");
    }
    let token = resource(&list, "serviceaccounts/token").cloned().unwrap_or_default();
    ensure!(token["group"] == "authentication.k8s.io" && token["kind"] == "TokenRequest", "{token}");
    Ok(())
}

async fn groups(world: World) -> anyhow::Result<()> {
    let list = world.get("/apis").await?.expect(200)?;
    ensure!(list["kind"] == "APIGroupList", "{list}");
    let groups = list["groups"].as_array().cloned().unwrap_or_default();
    for name in ["apps", "batch", "rbac.authorization.k8s.io", "coordination.k8s.io", "apiextensions.k8s.io"]
    {
        let group = groups.iter().find(|group| group["name"] == name).cloned().unwrap_or_default();
        ensure!(group["preferredVersion"]["groupVersion"] == format!("{name}/v1"), "{name}: {group}");
    }
    let apps = world.get("/apis/apps").await?.expect(200)?;
    ensure!(apps["kind"] == "APIGroup" && apps["name"] == "apps", "{apps}");
    Ok(())
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

async fn aggregated(world: World) -> anyhow::Result<()> {
    for (path, group, resource) in [("/api", "", "configmaps"), ("/apis", "apps", "deployments")] {
        let answer = world.send("GET", path, &[("accept", AGGREGATED)], "").await?;
        let kind = answer.headers.get("content-type").cloned();
        ensure!(kind.as_ref().is_some_and(|kind| kind == AGGREGATED), "{path} is {kind:?}");
        let list = answer.expect(200)?;
        ensure!(
            list["kind"] == "APIGroupDiscoveryList" && list["apiVersion"] == "apidiscovery.k8s.io/v2",
            "{list}"
        );
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let found = items.iter().find(|item| item["metadata"]["name"].as_str().unwrap_or_default() == group);
        let resources = found.map(|item| item["versions"][0]["resources"].clone()).unwrap_or_default();
        let entry =
            resources.as_array().and_then(|all| all.iter().find(|entry| entry["resource"] == resource));
        ensure!(
            entry.is_some_and(|entry| entry["scope"] == "Namespaced"),
            "{resource} is missing: {resources}"
        );
    }
    Ok(())
}

async fn aggregated_etag(world: World) -> anyhow::Result<()> {
    let first = world.send("GET", "/api", &[("accept", AGGREGATED)], "").await?;
    let etag = first.headers.get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
    ensure!(!etag.is_empty(), "no ETag");
    let second = world.send("GET", "/api", &[("accept", AGGREGATED), ("if-none-match", &etag)], "").await?;
    ensure!(second.code == 304, "expected 304, got {}", second.code);
    Ok(())
}

async fn unknown_group(world: World) -> anyhow::Result<()> {
    let answer = world.get("/apis/no.such.group/v1/things").await?;
    ensure!(
        answer.code == 404 && answer.text.contains("404 page not found"),
        "{} {}",
        answer.code,
        answer.text
    );
    Ok(())
}

async fn unknown_resource(world: World) -> anyhow::Result<()> {
    let answer = world.get("/apis/apps/v1/things").await?;
    answer.expect_status(404, "NotFound", "the server could not find the requested resource")?;
    Ok(())
}

async fn openapi_index(world: World) -> anyhow::Result<()> {
    let index = world.get("/openapi/v3").await?.expect(200)?;
    for path in ["api/v1", "apis/apps/v1", "apis/batch/v1"] {
        let url = index["paths"][path]["serverRelativeURL"].as_str().unwrap_or_default();
        ensure!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{path}: {url}");
    }
    Ok(())
}

async fn openapi_document(world: World) -> anyhow::Result<()> {
    let index = world.get("/openapi/v3").await?.expect(200)?;
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap_or_default().to_owned();
    let document = world.get(&url).await?.expect(200)?;
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    let expected = json!({ "group": "apps", "version": "v1", "kind": "Deployment" });
    ensure!(patch["x-kubernetes-group-version-kind"] == expected, "{patch}");
    let content = &patch["requestBody"]["content"];
    ensure!(content["application/strategic-merge-patch+json"].is_object(), "{content}");
    let parameters = patch["parameters"].as_array().cloned().unwrap_or_default();
    ensure!(parameters.iter().any(|parameter| parameter["name"] == "fieldValidation"), "no fieldValidation");
    let schemas = document["components"]["schemas"].as_object().cloned().unwrap_or_default();
    let of_deployment = schemas.values().find(|schema| {
        schema["x-kubernetes-group-version-kind"].as_array().is_some_and(|kinds| kinds.contains(&expected))
    });
    ensure!(of_deployment.is_some(), "no schema of Deployment");
    let container = schemas.get("io.k8s.api.core.v1.Container").cloned().unwrap_or_default();
    ensure!(container["properties"]["env"]["x-kubernetes-list-map-keys"] == json!(["name"]), "{container}");
    Ok(())
}
