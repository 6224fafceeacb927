//! What the recordings say others do, and what is not to be compared.

use std::time::Duration;

use quintet_golden::{Case, ObjectId, Step, World};
use serde_json::{Value, json};

mod acts;

pub(crate) use acts::act;

/// Makes pods as they were recorded.
async fn make_pods(world: &World, step: &Step, sentence: &str) -> Result<(), String> {
    let names = sentence.split(", with annotations").next().unwrap_or_default();
    for name in names.split(", ").filter(|name| !name.is_empty()) {
        let is_it = |object: &&Value| object["kind"] == "Pod" && object["metadata"]["name"] == name;
        let recorded = step.objects.iter().find(is_it);
        let recorded = recorded.ok_or_else(|| format!("the recording does not show pod {name}"))?;
        make_pod(world, recorded).await?;
    }
    Ok(())
}

/// Makes a pod without what API server and scheduler add.
async fn make_pod(world: &World, recorded: &Value) -> Result<(), String> {
    let mut pod = recorded.clone();
    let objects = world.objects().await?;
    let mut controller = Value::Null;
    let owners = pod["metadata"]["ownerReferences"].as_array_mut();
    for owner in owners.into_iter().flatten() {
        let (kind, name) = (owner["kind"].clone(), owner["name"].clone());
        let live = objects.values().find(|one| one["kind"] == kind && one["metadata"]["name"] == name);
        let missing = || format!("the owner of {}, {kind} {name}, does not exist", ObjectId::of(recorded));
        let live = live.ok_or_else(missing)?;
        owner["uid"] = live["metadata"]["uid"].clone();
        controller = owner["uid"].clone();
    }
    // Pods of Jobs have a label with the uid of the Job.
    let labels = pod["metadata"]["labels"].as_object_mut();
    for value in labels.into_iter().flat_map(|labels| labels.values_mut()).filter(|value| **value == "<uid>")
    {
        *value = controller.clone();
    }
    let is_token =
        |value: &Value| value["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access-"));
    let spec = pod["spec"].as_object_mut().ok_or("the pod has no spec")?;
    for field in ["nodeName", "priority", "preemptionPolicy", "serviceAccount"] {
        spec.remove(field);
    }
    if let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.retain(|volume| !is_token(volume));
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) {
                mounts.retain(|mount| !is_token(mount));
            }
        }
    }
    let answer = world.create(&pod).await?;
    if answer.code == 201 { Ok(()) } else { Err(format!("cannot create {}: {answer:?}", ObjectId::of(&pod))) }
}

async fn replace_failed_pod(world: &World, step: &Step) -> Result<(), String> {
    let objects = world.objects().await?;
    let is_failed = |object: &&Value| object["kind"] == "Pod" && object["status"]["phase"] == "Failed";
    for failed in objects.values().filter(is_failed) {
        let id = ObjectId::of(failed);
        world.delete(&id).await?;
        // The node removes it.
        while world.get(&id).await?.is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let recorded = step.objects.iter().find(|object| ObjectId::of(object) == id);
        make_pod(world, recorded.ok_or_else(|| format!("the recording does not show {id}"))?).await?;
    }
    Ok(())
}

/// Removes what is not to be compared from a recorded object and its counterpart.
pub(crate) fn level(case: &Case, recorded: &mut Value, actual: &mut Value) {
    for object in [&mut *recorded, &mut *actual] {
        level_metadata(object);
    }
    match recorded["kind"].as_str() {
        Some("AppWrapper") => {
            level_pods_ready(recorded, actual);
            for object in [recorded, actual] {
                remove_times(object);
                remove_empty_gates(object);
                remove_default_suspend(object);
            }
        }
        Some("Job") => {
            for object in [recorded, actual] {
                remove_uid_labels(object);
            }
        }
        Some("RayCluster") => {
            level_version(recorded, actual);
            for object in [&mut *recorded, &mut *actual] {
                remove_empty(object);
            }
            if case.asked.is_some() {
                // Go's typed webhooks write the zero values of the status.
                for object in [recorded, actual] {
                    object.as_object_mut().map(|fields| fields.remove("status"));
                }
            }
        }
        _ => {}
    }
}

/// Whether pods were ready before they are said to run, or before they fail, depends on whether a pass came by.
fn level_pods_ready(recorded: &mut Value, actual: &mut Value) {
    let conditions = |object: &Value| object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let is_ready =
        conditions(recorded).iter().any(|one| one["type"] == "PodsReady" && one["status"] == "True");
    if is_ready && recorded["status"]["phase"] == "Running" {
        return;
    }
    for object in [recorded, actual] {
        if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
            conditions.retain(|one| one["type"] != "PodsReady");
        }
    }
}

/// Kubernetes says of every deleted object how long it may take. Reconciles were provoked by the annotation `touched`.
fn level_metadata(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.remove("deletionGracePeriodSeconds");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("touched");
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

/// Go leaves out empty lists when its typed webhooks write an object.
fn remove_empty_gates(appwrapper: &mut Value) {
    let components = appwrapper.pointer_mut("/spec/components").and_then(Value::as_array_mut);
    for component in components.into_iter().flatten() {
        for info in component.get_mut("podSetInfos").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(fields) = info.as_object_mut() {
                fields.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
            }
        }
    }
}

/// Go leaves out a field that is false, too.
fn remove_default_suspend(appwrapper: &mut Value) {
    let spec = appwrapper.get_mut("spec").and_then(Value::as_object_mut);
    if let Some(spec) = spec.filter(|spec| spec.get("suspend") == Some(&json!(false))) {
        spec.remove("suspend");
    }
}

/// Jobs select their pods by their uid.
fn remove_uid_labels(job: &mut Value) {
    for path in ["/metadata/labels", "/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        if let Some(labels) = job.pointer_mut(path).and_then(Value::as_object_mut) {
            labels.retain(|name, _| !name.ends_with("controller-uid"));
        }
    }
}

/// Conditions of components have times, too.
fn remove_times(appwrapper: &mut Value) {
    let components = appwrapper.pointer_mut("/status/componentStatus").and_then(Value::as_array_mut);
    for component in components.into_iter().flatten() {
        let conditions = component.get_mut("conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            condition.as_object_mut().map(|fields| fields.remove("lastTransitionTime"));
        }
    }
}

/// The recorded operator has no version; what counts is that there is one.
fn level_version(recorded: &mut Value, actual: &Value) {
    const VERSION: &str = "/metadata/annotations/ray.openshift.ai~1version";
    if let (Some(recorded), Some(actual)) = (recorded.pointer_mut(VERSION), actual.pointer(VERSION)) {
        *recorded = actual.clone();
    }
}

/// Removes empty objects that Go writes for structs without a value.
fn remove_empty(value: &mut Value) {
    const STRUCTS: [&str; 3] = ["metadata", "resources", "scaleStrategy"];
    match value {
        Value::Object(fields) => {
            let is_empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
            let is_kept = |name: &str, value: &Value| match name {
                "workerGroupSpecs" => value.as_array().is_none_or(|groups| !groups.is_empty()),
                name => !STRUCTS.contains(&name) || !is_empty(value),
            };
            fields.retain(|name, value| is_kept(name, value));
            fields.values_mut().for_each(remove_empty);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_empty),
        _ => {}
    }
}
