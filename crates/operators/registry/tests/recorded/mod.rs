//! What the recordings say others do, and what is not to be compared.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use quintet_golden::{Case, ObjectId, Step, World};
use serde_json::{Value, json};

/// Carries out a sentence; `false` if it is not understood.
pub(crate) fn act<'a>(
    world: &'a World,
    step: &'a Step,
    clause: &'a str,
) -> BoxFuture<'a, Result<bool, String>> {
    async move {
        let readiness = clause.strip_prefix("pod ").and_then(|rest| {
            let (pod, rest) = rest.split_once(" is ready, Endpoints ")?;
            Some((pod, rest.strip_suffix(" has its address")?))
        });
        if let Some((pod, endpoints)) = readiness {
            make_pod(world, step, pod).await?;
            make_endpoints(world, endpoints).await?;
        } else if clause == "routes are admitted" {
            admit_routes(world).await?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }
    .boxed()
}

/// Makes a pod as it was recorded, and lets it be ready.
async fn make_pod(world: &World, step: &Step, name: &str) -> Result<(), String> {
    let is_it = |object: &&Value| object["kind"] == "Pod" && object["metadata"]["name"] == name;
    let recorded = step.objects.iter().find(is_it);
    let recorded = recorded.ok_or_else(|| format!("the recording does not show pod {name}"))?;
    let recorded_containers = recorded["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let container = |one: &Value| json!({"name": one["name"], "image": one["image"]});
    let containers: Vec<_> = recorded_containers.iter().map(container).collect();
    let status = |one: &Value| json!({"name": one["name"], "image": one["image"], "imageID": "", "ready": true, "restartCount": 0});
    let statuses: Vec<_> = containers.iter().map(status).collect();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": recorded["metadata"], "spec": {"containers": containers},
    });
    expect(&world.create(&pod).await?, &pod)?;
    let condition = json!({"type": "Ready", "status": "True"});
    let status =
        json!({"status": {"phase": "Running", "containerStatuses": statuses, "conditions": [condition]}});
    expect(&world.patch(&ObjectId::of(&pod), Some("status"), &status).await?, &pod)
}

/// What the endpoints controller makes of a Service: it copies its labels.
pub(crate) async fn make_endpoints(world: &World, service: &str) -> Result<(), String> {
    let objects = world.objects().await?;
    let live = objects.iter().find(|(id, _)| id.kind == "Service" && id.name == service);
    let (id, live) = live.ok_or_else(|| format!("there is no Service {service}"))?;
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": service, "namespace": id.namespace, "labels": live["metadata"]["labels"]},
        "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 8080}]}],
    });
    expect(&world.create(&endpoints).await?, &endpoints)
}

async fn admit_routes(world: &World) -> Result<(), String> {
    let condition = json!({"type": "Admitted", "status": "True"});
    let ingress = json!({"status": {"ingress": [{"conditions": [condition]}]}});
    for (id, object) in world.objects().await? {
        if id.kind == "Route" {
            expect(&world.patch(&id, None, &ingress).await?, &object)?;
        }
    }
    Ok(())
}

fn expect(answer: &quintet_golden::Answer, object: &Value) -> Result<(), String> {
    if answer.code < 300 { Ok(()) } else { Err(format!("{}: {answer:?}", ObjectId::of(object))) }
}

/// Removes upstream's memory of what it has applied, which is not needed here. Values of Secrets were recorded as text.
pub(crate) fn level(_: &Case, recorded: &mut Value, actual: &mut Value) {
    const LAST_APPLIED: &str = "banzaicloud.com/last-applied";
    for object in [&mut *recorded, &mut *actual] {
        let Some(metadata) = object["metadata"].as_object_mut() else { continue };
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    // Between steps, both are as they are stored.
    if recorded["kind"] != "Secret" || recorded["data"] == actual["data"] {
        return;
    }
    for (key, value) in actual["data"].as_object_mut().into_iter().flatten() {
        let text = value.as_str().and_then(|text| STANDARD.decode(text).ok());
        let text = text.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let is_password = recorded["data"][key] == "<24 URL-safe base64 characters>" && text.len() == 24;
        *value = if is_password { recorded["data"][key].clone() } else { text.into() };
    }
}
