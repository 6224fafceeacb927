//! What the recordings say others do, in words.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quintet_golden::{ObjectId, Step, World};
use serde_json::{Map, Value, json};

use super::{make_pods, replace_failed_pod};

/// Carries out a sentence; `false` if it is not understood.
pub(crate) fn act<'a>(
    world: &'a World,
    step: &'a Step,
    clause: &'a str,
) -> BoxFuture<'a, Result<bool, String>> {
    async move {
        if let Some(pods) = clause.strip_prefix("the controllers of the components make pods: ") {
            make_pods(world, step, pods).await?;
            return Ok(true);
        }
        let words: Vec<&str> = clause.split(' ').collect();
        match words.as_slice() {
            ["the", "failed", "pod" | "pods", "is" | "are", "replaced"] => {
                replace_failed_pod(world, step).await?;
            }
            ["the", "failed", "pod" | "pods", "is" | "are", "deleted" | "removed"] => {
                delete_pods(world, |pod| pod["status"]["phase"] == "Failed").await?;
            }
            ["the", "pod" | "pods", "is" | "are", "deleted" | "removed"] => {
                delete_pods(world, |_| true).await?;
            }
            ["the" | "a", "pod", name, "is", "deleted" | "removed"]
            | ["pod", name, "is", "deleted" | "removed"] => {
                delete_pods(world, |pod| pod["metadata"]["name"] == *name).await?;
            }
            ["the", "pod" | "pods", "succeed" | "succeeds" | "end" | "ends"] => end_pods(world, "0").await?,
            ["the", "pod" | "pods", "fail" | "fails"] => end_pods(world, "1").await?,
            ["the", "pod" | "pods", "fail" | "fails" | "end" | "ends", "with", "code", code] => {
                end_pods(world, code).await?;
            }
            ["the", "finalizer" | "finalizers", .., "is" | "are", "removed"] => {
                remove_finalizers(world).await?;
            }
            ["the", kind, "gets", "condition", condition]
            | ["the", kind, _, "gets", "condition", condition] => {
                return add_condition(world, kind, condition).await;
            }
            ["the", "node", "of", "the", "pod", "gets", "label", label] => {
                let Some((key, value)) = label.split_once('=') else { return Ok(false) };
                change_node(world, &json!({"metadata": {"labels": {key: value}}})).await?;
            }
            ["the", "node", "of", "the", "pod", "loses", "label", label] => {
                let key = label.split('=').next().unwrap_or_default();
                change_node(world, &json!({"metadata": {"labels": {key: null}}})).await?;
            }
            ["the", "node", "of", "the", "pod", "is", "cordoned"] => {
                change_node(world, &json!({"spec": {"unschedulable": true}})).await?;
            }
            ["the", kind, "gets" | "reports" | "has", field, value] => {
                return set_status(world, kind, field, value).await;
            }
            ["the", kind, "gets" | "reports" | "has", assignment] => match assignment.split_once('=') {
                Some((field, value)) => return set_status(world, kind, field, value).await,
                None => return Ok(false),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }
    .boxed()
}

async fn delete_pods(world: &World, is_it: impl Fn(&Value) -> bool) -> Result<(), String> {
    for (id, object) in world.objects().await? {
        if id.kind == "Pod" && is_it(&object) {
            world.delete(&id).await?;
        }
    }
    Ok(())
}

/// Lets the nodes end the pods that run.
async fn end_pods(world: &World, code: &str) -> Result<(), String> {
    let annotations = json!({"node.quintet.dev/run-for": "0s", "node.quintet.dev/exit-code": code});
    for (id, object) in world.objects().await? {
        if id.kind == "Pod" && matches!(object["status"]["phase"].as_str(), Some("Pending" | "Running")) {
            world.patch(&id, None, &json!({"metadata": {"annotations": annotations}})).await?;
        }
    }
    Ok(())
}

async fn remove_finalizers(world: &World) -> Result<(), String> {
    for (id, object) in world.objects().await? {
        // That of the AppWrapper is the operator's.
        if id.kind != "AppWrapper" && object["metadata"]["finalizers"].is_array() {
            world.patch(&id, None, &json!({"metadata": {"finalizers": null}})).await?;
        }
    }
    Ok(())
}

/// `Type=Status`; `false` if it is none, or there is no such object.
async fn add_condition(world: &World, kind: &str, condition: &str) -> Result<bool, String> {
    let Some((type_, status)) = condition.split_once('=') else { return Ok(false) };
    let now = world.now();
    let condition = json!({"type": type_, "status": status, "reason": type_, "message": type_.to_lowercase(),
                           "lastTransitionTime": now, "lastProbeTime": now});
    write_status(world, kind, &json!({"conditions": [condition]})).await
}

/// A field of the status by its path, with or without `status.`.
async fn set_status(world: &World, kind: &str, field: &str, value: &str) -> Result<bool, String> {
    let path = field.strip_prefix("status.").unwrap_or(field);
    let nest = |value: Value, name: &str| Value::Object(Map::from_iter([(name.to_owned(), value)]));
    let status = path.rsplit('.').fold(Value::from(value), nest);
    write_status(world, kind, &status).await
}

/// Writes to the status of all objects of a kind. Kinds without a schema have no subresource for it.
async fn write_status(world: &World, kind: &str, status: &Value) -> Result<bool, String> {
    let patch = json!({"status": status});
    let objects: Vec<ObjectId> = world.objects().await?.into_keys().filter(|id| id.kind == kind).collect();
    for id in &objects {
        let answer = world.patch(id, Some("status"), &patch).await?;
        if answer.code == 404 {
            world.patch(id, None, &patch).await?;
        }
    }
    Ok(!objects.is_empty())
}

/// Changes the nodes that pods run on.
async fn change_node(world: &World, patch: &Value) -> Result<(), String> {
    let objects = world.objects().await?;
    let pods = objects.values().filter(|object| object["kind"] == "Pod");
    for node in pods.filter_map(|pod| pod["spec"]["nodeName"].as_str()) {
        world.patch(&ObjectId::parse(&format!("Node {node}"))?, None, patch).await?;
    }
    Ok(())
}
