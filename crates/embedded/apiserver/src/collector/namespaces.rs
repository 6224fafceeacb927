//! Namespaces: what each of them has, and how they go.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    api::Api,
    json,
    request::options::DeleteOptions,
    status::Failure,
    store::{Happened, split_key},
    verbs::{Ask, create, delete, update},
};

const BUCKET: &str = "core/namespaces";

/// Gives a new namespace what every namespace has; empties one that is being deleted.
pub(crate) async fn settle(api: &Api, name: &str) -> Result<(), Failure> {
    let Some(entry) = api.store().get(BUCKET, name) else { return Ok(()) };
    if entry.head.is_terminating {
        return Ok(());
    }
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let authority = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt",
        "annotations": {"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."}},
        "data": {"ca.crt": api.ca()}});
    for (plural, object) in [("serviceaccounts", account), ("configmaps", authority)] {
        let resource = api.built_in("", plural)?;
        let key = crate::store::key_of(name, json::text(&object, "/metadata/name"));
        if api.store().get(&resource.bucket, &key).is_some() {
            continue;
        }
        let ask = Ask::internal(api, &resource, name, "");
        match Box::pin(create::create(&ask, object)).await {
            Err(failure) if failure.code() != 409 => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}

/// Empties namespaces that are being deleted, and then lets go of them.
pub(super) fn start(api: &Api) {
    let mut changes = api.store().tap();
    let namespaces = api.store().list(BUCKET, "", None, None).map(|(entries, _)| entries).unwrap_or_default();
    let mut waiting: std::collections::BTreeSet<String> = namespaces
        .into_iter()
        .filter(|(_, entry)| entry.head.is_terminating)
        .map(|(name, _)| name.to_string())
        .collect();
    let task_api = api.clone();
    api.spawn(async move {
        let api = task_api;
        loop {
            let mut left = std::collections::BTreeSet::new();
            for name in std::mem::take(&mut waiting) {
                match empty(&api, &name).await {
                    Ok(true) => {}
                    Ok(false) => {
                        left.insert(name);
                    }
                    Err(failure) => {
                        tracing::warn!("cannot empty namespace {name}: {failure}");
                        left.insert(name);
                    }
                }
            }
            waiting = left;
            // Sleep until a namespace begins to go, or something in one that goes has gone.
            loop {
                let Some((bucket, event)) = changes.recv().await else { return };
                let (namespace, name) = split_key(&event.key);
                if &*bucket == BUCKET {
                    if event.entry.head.is_terminating && event.happened != Happened::Deleted {
                        waiting.insert(name.to_owned());
                    }
                    if event.happened == Happened::Deleted {
                        waiting.remove(name);
                    }
                    if !waiting.is_empty() {
                        break;
                    }
                } else if event.happened == Happened::Deleted && waiting.contains(namespace) {
                    break;
                }
            }
        }
    });
}

/// Deletes what is in a namespace; true once nothing is left and the namespace is gone.
async fn empty(api: &Api, name: &str) -> Result<bool, Failure> {
    let Some(entry) = api.store().get(BUCKET, name) else { return Ok(true) };
    if !entry.head.is_terminating {
        return Ok(true);
    }
    let registry = api.registry();
    let prefix = format!("{name}/");
    let mut remaining: Vec<(Arc<str>, usize)> = Vec::new();
    let mut finalizers: Vec<String> = Vec::new();
    for (bucket, resource) in registry.by_bucket() {
        if !resource.is_namespaced {
            continue;
        }
        let objects =
            api.store().list(&bucket, &prefix, None, None).map(|(entries, _)| entries).unwrap_or_default();
        for (key, entry) in objects {
            let (namespace, object) = split_key(&key);
            let ask = Ask::internal(api, &resource, namespace, object);
            // Pods get their time; everything else goes with its dependents.
            if !entry.head.is_terminating {
                let options = DeleteOptions {
                    propagation: Some(crate::request::options::Propagation::Background),
                    ..DeleteOptions::default()
                };
                match Box::pin(delete::delete(&ask, &options)).await {
                    Err(failure) if failure.code() != 404 => return Err(failure),
                    _ => {}
                }
            }
        }
        let left =
            api.store().list(&bucket, &prefix, None, None).map(|(entries, _)| entries).unwrap_or_default();
        if !left.is_empty() {
            remaining.push((Arc::clone(&resource.plural), left.len()));
            for (_, entry) in &left {
                let object: Value = serde_json::from_slice(&entry.body).unwrap_or_default();
                finalizers.extend(json::texts(&object, "/metadata/finalizers").map(str::to_owned));
            }
        }
    }
    let resource = api.built_in("", "namespaces")?;
    if !remaining.is_empty() {
        tell(api, &resource, name, &remaining, &finalizers).await?;
        return Ok(false);
    }
    let ask = Ask::internal(api, &resource, "", name).below("finalize");
    let outcome =
        Box::pin(update::update(&ask, false, update::Made::Applied, |mut namespace: Value| async move {
            let spec = json::child(json::as_map(&mut namespace), "spec");
            if let Some(finalizers) = spec.get_mut("finalizers").and_then(Value::as_array_mut) {
                finalizers.retain(|finalizer| finalizer != "kubernetes");
            }
            Ok(namespace)
        }))
        .await;
    match outcome {
        Err(failure) if failure.code() != 404 => Err(failure),
        _ => Ok(api.store().get(BUCKET, name).is_none()),
    }
}

/// Says in the status of a namespace what keeps it from going.
async fn tell(
    api: &Api,
    resource: &Arc<crate::resources::Resource>,
    name: &str,
    remaining: &[(Arc<str>, usize)],
    finalizers: &[String],
) -> Result<(), Failure> {
    let mut counts: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for finalizer in finalizers {
        *counts.entry(finalizer).or_default() += 1;
    }
    let resources: Vec<String> =
        remaining.iter().map(|(plural, count)| format!("{plural}. has {count} resource instances")).collect();
    let held: Vec<String> = counts
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    let condition = |kind: &str, is_true: bool, reason: &str, message: String| {
        (kind.to_owned(), if is_true { "True" } else { "False" }, reason.to_owned(), message)
    };
    let conditions = [
        condition(
            "NamespaceDeletionDiscoveryFailure",
            false,
            "ResourcesDiscovered",
            "All resources successfully discovered".into(),
        ),
        condition(
            "NamespaceDeletionContentFailure",
            false,
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization".into(),
        ),
        condition(
            "NamespaceContentRemaining",
            true,
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", resources.join(", ")),
        ),
        condition(
            "NamespaceFinalizersRemaining",
            !held.is_empty(),
            if held.is_empty() { "ContentHasNoFinalizers" } else { "SomeFinalizersRemain" },
            if held.is_empty() {
                "All content-preserving finalizers finished".into()
            } else {
                format!("Some content in the namespace has finalizers remaining: {}", held.join(", "))
            },
        ),
    ];
    let conditions = &conditions;
    let ask = Ask::internal(api, resource, "", name).below("status");
    let outcome = Box::pin(update::update(&ask, false, update::Made::Applied, move |mut namespace: Value| async move {
        let now = json::timestamp(api.now());
        let before = json::items(&namespace, "/status/conditions").to_vec();
        let list: Vec<Value> = conditions
            .iter()
            .map(|(kind, status, reason, message)| {
                let known = before.iter().find(|one| json::text(one, "/type") == kind && json::text(one, "/status") == *status);
                let since = known.map_or_else(|| now.clone().into(), |one| one.get("lastTransitionTime").cloned().unwrap_or_default());
                json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
            })
            .collect();
        json::child(json::as_map(&mut namespace), "status").insert("conditions".into(), list.into());
        Ok(namespace)
    }))
    .await;
    match outcome {
        Err(failure) if failure.code() != 404 => Err(failure),
        _ => Ok(()),
    }
}
