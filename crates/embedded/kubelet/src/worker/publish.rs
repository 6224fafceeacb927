//! Writes the status of a pod to the API when it changes, and what outlives the kubelet to the disk.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use quintet_controller::api::PatchKind;
use quintet_controller::{ApiKind, Error};
use serde_json::{Map, Value, json};

use super::context::Context;
use super::handle::PodHandle;
use super::storage;
use crate::pod::status::status;

/// Before a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Publishes all changes until the pod is forgotten.
pub(super) async fn run(context: Arc<Context>, handle: Arc<PodHandle>) {
    let mut changes = handle.subscribe();
    loop {
        changes.borrow_and_update();
        let outcome = now(&context, &handle).await;
        let retry = async {
            match &outcome {
                Ok(()) => std::future::pending().await,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        };
        if let Err(error) = &outcome {
            tracing::warn!("cannot report the status of pod {}, trying again: {error}", handle.key);
        }
        tokio::select! {
            () = handle.cancel.cancelled() => return,
            _ = changes.changed() => {}
            () = retry => {}
        }
    }
}

/// Writes the status as it is, unless the API has it already.
pub(super) async fn now(context: &Context, handle: &PodHandle) -> Result<(), Error> {
    let mut published = handle.published.lock().await;
    if handle.directory.exists()
        && let Err(error) = keep(handle)
    {
        tracing::warn!("cannot write the record of pod {}; a restart may lose it: {error}", handle.key);
    }
    let Some(pod) = handle.pod() else { return Ok(()) };
    let record = handle.record();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let has_started = record.containers.values().any(|container| container.state.is_some());
    if !has_started && matches!(phase, Some("Succeeded" | "Failed")) {
        // It ended before this data directory was made: there is nothing to add.
        return Ok(());
    }
    let wanted = to_value(&status(&pod, &record, context.clock.now()));
    if published.as_ref() == Some(&wanted) {
        return Ok(());
    }
    let current = pod.status.as_ref().map(to_value).unwrap_or_default();
    if current != wanted {
        match write(context, handle, &pod, &current, &wanted).await {
            Ok(written) => handle.observe(Some(Arc::new(written))),
            // Deleted meanwhile, or replaced by another of its name: the watch will say so.
            Err(error) if error.is_not_found() || error.has_code(409) => {}
            Err(error) => return Err(error),
        }
    }
    *published = Some(wanted);
    Ok(())
}

async fn write(
    context: &Context,
    handle: &PodHandle,
    pod: &core::Pod,
    current: &Value,
    wanted: &Value,
) -> Result<core::Pod, Error> {
    let mut patch = difference(current, wanted);
    patch.insert("observedGeneration".into(), wanted["observedGeneration"].clone());
    let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": patch });
    let kind = ApiKind::of::<core::Pod>();
    let text = context.api.patch(&kind, &handle.key, Some("status"), &PatchKind::Strategic, &patch).await?;
    serde_json::from_str(&text).map_err(|error| {
        Error::new(
            quintet_controller::Class::Transient,
            format!("cannot read pod {}", handle.key),
            error.to_string(),
        )
    })
}

/// Fields that change, `null` for those that go. Conditions merge by their type, so those of other owners stay.
fn difference(current: &Value, wanted: &Value) -> Map<String, Value> {
    let mut patch = fields_that_differ(current, wanted);
    if let Some(Value::Array(conditions)) = patch.get_mut("conditions") {
        for condition in conditions.iter_mut() {
            let of_type = |other: &&Value| other["type"] == condition["type"];
            let before = current["conditions"].as_array().and_then(|all| all.iter().find(of_type));
            let mut merged = fields_that_differ(before.unwrap_or(&Value::Null), condition);
            merged.insert("type".into(), condition["type"].clone());
            *condition = merged.into();
        }
        let before = current["conditions"].as_array().into_iter().flatten();
        let is_kept = |kind: &Value| conditions.iter().any(|condition| condition["type"] == *kind);
        let gone = before.map(|condition| &condition["type"]).filter(|kind| !is_kept(kind));
        let gone: Vec<Value> = gone.map(|kind| json!({ "$patch": "delete", "type": kind })).collect();
        conditions.extend(gone);
    }
    patch
}

/// Fields that change, and `null` for those that go.
fn fields_that_differ(current: &Value, wanted: &Value) -> Map<String, Value> {
    let empty = Map::new();
    let (current, wanted) = (current.as_object().unwrap_or(&empty), wanted.as_object().unwrap_or(&empty));
    let gone = current.keys().filter(|key| !wanted.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = wanted.iter().filter(|(key, value)| current.get(*key) != Some(value));
    gone.chain(changed.map(|(key, value)| (key.clone(), value.clone()))).collect()
}

fn to_value(status: &core::PodStatus) -> Value {
    // A status is plain data, which always has a JSON form.
    serde_json::to_value(status).unwrap_or_default()
}

/// Writes what outlives the kubelet to the disk, unless it is there already.
pub(super) fn keep(handle: &PodHandle) -> std::io::Result<()> {
    let mut kept = handle.kept.lock();
    let saved = handle.saved();
    if kept.as_ref() != Some(&saved) {
        storage::save(&handle.directory, &saved)?;
        *kept = Some(saved);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_is_written() {
        let current = json!({ "phase": "Pending", "reason": "Old", "podIP": "10.0.0.2" });
        let wanted = json!({ "phase": "Running", "podIP": "10.0.0.2", "hostIP": "10.0.0.1" });
        let expected = json!({ "phase": "Running", "reason": null, "hostIP": "10.0.0.1" });
        assert_eq!(Value::from(difference(&current, &wanted)), expected);
        assert!(difference(&wanted, &wanted).is_empty());
    }

    #[test]
    fn a_condition_loses_what_no_longer_holds() {
        let unready = json!({ "type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "not yet" });
        let (current, wanted) = (json!([unready]), json!([{ "type": "Ready", "status": "True" }]));
        let (current, wanted) = (json!({ "conditions": current }), json!({ "conditions": wanted }));
        let expected = json!([{ "type": "Ready", "status": "True", "reason": null, "message": null }]);
        assert_eq!(difference(&current, &wanted)["conditions"], expected);
    }

    #[test]
    fn a_condition_that_is_over_is_deleted() {
        let (kept, past) = (json!({ "type": "Ready" }), json!({ "type": "PodResizePending" }));
        let (current, wanted) = (json!({ "conditions": [kept, past] }), json!({ "conditions": [kept] }));
        let expected = json!([{ "type": "Ready" }, { "$patch": "delete", "type": "PodResizePending" }]);
        assert_eq!(difference(&current, &wanted)["conditions"], expected);
    }
}
