//! Services: the endpoints behind them.

use anyhow::ensure;
use serde_json::{Value, json};

use super::super::cases;
use super::{Resource, create_pod, is_owned_by, name_of, template, until_pod, until_ready};
use crate::World;

cases! { "workloads: Service":
    "endpoint slices list pods, ready or not" => slices,
    "endpoints tell ready pods from others" => endpoints,
    "pods that are not ready can be published" => publish,
    "a named port is looked up in every pod" => named_port,
    "pods of a headless service have host names" => headless,
    "a service without pods has an empty slice, and takes it along" => empty,
}

const SLICES: Resource = Resource::new("discovery.k8s.io/v1", "EndpointSlice", "endpointslices");
const GATE: &str = "example.com/open";

async fn create(world: &World, more: Value) -> anyhow::Result<Value> {
    let mut spec = json!({ "selector": { "app": "web" }, "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] });
    if let (Some(target), Value::Object(more)) = (spec.as_object_mut(), more) {
        target.extend(more);
    }
    let body = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" }, "spec": spec });
    world.post(&world.core("services"), &body).await?.expect(201)
}

/// A pod that is not ready until a condition says so.
fn gated() -> Value {
    let mut template = template("web");
    template["spec"]["readinessGates"] = json!([{ "conditionType": GATE }]);
    template
}

/// Waits until the slice of the service has endpoints as expected.
async fn until_slice(world: &World, what: &str, holds: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
    let path = format!("{}?labelSelector=kubernetes.io%2Fservice-name%3Dweb", SLICES.path(world, ""));
    let answer = world.eventually(&path, what, |answer| holds(&answer.body["items"][0])).await?;
    Ok(answer.body["items"][0].clone())
}

/// The endpoint of a pod.
fn endpoint<'a>(slice: &'a Value, pod: &str) -> &'a Value {
    let endpoints = slice["endpoints"].as_array();
    endpoints.into_iter().flatten().find(|one| one["targetRef"]["name"] == pod).unwrap_or(&Value::Null)
}

fn conditions(ready: bool) -> Value {
    json!({ "ready": ready, "serving": ready, "terminating": false })
}

async fn open(world: &World, pod: &str) -> anyhow::Result<()> {
    let patch = json!({ "status": { "conditions": [{ "type": GATE, "status": "True" }] } });
    let path = world.core(&format!("pods/{pod}/status"));
    world.patch(&path, "strategic-merge-patch+json", &patch).await?.expect(200).map(drop)
}

async fn slices(world: World) -> anyhow::Result<()> {
    let service = create(&world, json!({})).await?;
    create_pod(&world, "ready", template("web")).await?;
    create_pod(&world, "gated", gated()).await?;
    let both = |slice: &Value| {
        endpoint(slice, "ready")["conditions"] == conditions(true)
            && endpoint(slice, "gated")["conditions"] == conditions(false)
    };
    let slice = until_slice(&world, "both endpoints", both).await?;
    ensure!(is_owned_by(&slice, &service) && name_of(&slice).starts_with("web-"), "{slice}");
    ensure!(slice["addressType"] == "IPv4", "{slice}");
    let labels = &slice["metadata"]["labels"];
    ensure!(
        labels["endpointslice.kubernetes.io/managed-by"] == "endpointslice-controller.k8s.io",
        "{labels}"
    );
    ensure!(slice["ports"] == json!([{ "name": "http", "port": 8080, "protocol": "TCP" }]), "{slice}");
    let pod = until_pod(&world, "ready", "an address", |pod| pod["status"]["podIP"].is_string()).await?;
    let found = endpoint(&slice, "ready");
    ensure!(found["addresses"] == json!([pod["status"]["podIP"]]), "{found}");
    ensure!(
        found["nodeName"] == pod["spec"]["nodeName"] && found["targetRef"]["uid"] == pod["metadata"]["uid"],
        "{found}"
    );
    open(&world, "gated").await?;
    until_slice(&world, "readiness", |slice| endpoint(slice, "gated")["conditions"] == conditions(true))
        .await?;
    world.delete(&world.core("pods/ready"), None).await?.expect(200)?;
    until_slice(&world, "one endpoint less", |slice| endpoint(slice, "ready").is_null()).await.map(drop)
}

async fn endpoints(world: World) -> anyhow::Result<()> {
    create(&world, json!({})).await?;
    create_pod(&world, "ready", template("web")).await?;
    create_pod(&world, "gated", gated()).await?;
    let path = world.core("endpoints/web");
    let both = |answer: &crate::Answer| {
        let subset = &answer.body["subsets"][0];
        subset["addresses"][0]["targetRef"]["name"] == "ready"
            && subset["notReadyAddresses"][0]["targetRef"]["name"] == "gated"
            && subset["ports"] == json!([{ "name": "http", "port": 8080, "protocol": "TCP" }])
    };
    world.eventually(&path, "both addresses", both).await?;
    open(&world, "gated").await?;
    let ready = |answer: &crate::Answer| {
        answer.body["subsets"][0]["addresses"].as_array().is_some_and(|addresses| addresses.len() == 2)
    };
    world.eventually(&path, "two ready addresses", ready).await.map(drop)
}

async fn publish(world: World) -> anyhow::Result<()> {
    create(&world, json!({ "publishNotReadyAddresses": true })).await?;
    create_pod(&world, "gated", gated()).await?;
    let published = json!({ "ready": true, "serving": false, "terminating": false });
    until_slice(&world, "publication", |slice| endpoint(slice, "gated")["conditions"] == published)
        .await
        .map(drop)
}

async fn named_port(world: World) -> anyhow::Result<()> {
    create(&world, json!({ "ports": [{ "port": 80, "targetPort": "web" }] })).await?;
    let mut template = template("web");
    template["spec"]["containers"][0]["ports"] = json!([{ "name": "web", "containerPort": 9090 }]);
    create_pod(&world, "named", template).await?;
    let slice = until_slice(&world, "the endpoint", |slice| endpoint(slice, "named").is_object()).await?;
    ensure!(slice["ports"] == json!([{ "name": "", "port": 9090, "protocol": "TCP" }]), "{slice}");
    Ok(())
}

async fn headless(world: World) -> anyhow::Result<()> {
    create(&world, json!({ "clusterIP": "None" })).await?;
    let mut template = template("web");
    (template["spec"]["hostname"], template["spec"]["subdomain"]) = (json!("first"), json!("web"));
    create_pod(&world, "named", template).await?;
    let slice = until_slice(&world, "the endpoint", |slice| endpoint(slice, "named").is_object()).await?;
    ensure!(endpoint(&slice, "named")["hostname"] == "first", "{slice}");
    ensure!(slice["metadata"]["labels"]["service.kubernetes.io/headless"] == "", "{slice}");
    Ok(())
}

async fn empty(world: World) -> anyhow::Result<()> {
    create(&world, json!({})).await?;
    let slice = until_slice(&world, "a slice", Value::is_object).await?;
    ensure!(slice["endpoints"].as_array().is_none_or(Vec::is_empty), "{slice}");
    create_pod(&world, "late", template("web")).await?;
    until_ready(&world, "web", 1).await?;
    until_slice(&world, "the endpoint", |slice| endpoint(slice, "late").is_object()).await?;
    world.delete(&world.core("services/web"), None).await?.expect(200)?;
    let none = |answer: &crate::Answer| answer.body["items"].as_array().is_some_and(Vec::is_empty);
    world.eventually(&SLICES.path(&world, ""), "the end of the slice", none).await?;
    world.gone(&world.core("endpoints/web")).await
}
