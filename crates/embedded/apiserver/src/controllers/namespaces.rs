//! The namespace controller: default objects of namespaces, and deletion of their content.

use std::{collections::HashSet, sync::Arc};

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::queue::{self, Queue};
use crate::{
    api::Api,
    json,
    request::options::{DeleteOptions, Propagation},
    resources::Resource,
    status::Failure,
    store::{ChangeType, Event, split_key},
    verbs::{RequestContext, create, delete, update},
};

const BUCKET: &str = "core/namespaces";
/// Deletions at the same time: they share the way to the disk.
const AT_A_TIME: usize = 64;

const ACCOUNTS: &str = "core/serviceaccounts";
const CONFIG_MAPS: &str = "core/configmaps";
const ACCOUNT: &str = "default";
const AUTHORITY: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";

/// Gives a namespace what every namespace has: a service account, and the certificates of the server.
pub(crate) async fn complete(api: &Api, name: &str) -> Result<(), Failure> {
    let Some(entry) = api.store().get(BUCKET, name) else { return Ok(()) };
    if entry.head.is_terminating {
        return Ok(());
    }
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}});
    let authority = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": AUTHORITY,
        "annotations": {DESCRIPTION: "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."}},
        "data": {"ca.crt": api.ca()}});
    ensure(api, name, "serviceaccounts", account).await?;
    ensure(api, name, "configmaps", authority).await
}

/// Creates an object of a namespace, or restores its data and description.
async fn ensure(api: &Api, namespace: &str, plural: &str, wanted: Value) -> Result<(), Failure> {
    let resource = api.built_in("", plural)?;
    let object_name = json::text(&wanted, "/metadata/name").to_owned();
    let present = api.store().get(&resource.bucket, &crate::store::key_of(namespace, &object_name));
    let outcome = match present.map(|entry| entry.parse()) {
        None => {
            let context = RequestContext::internal(api, &resource, namespace, "");
            Box::pin(create::create(&context, wanted)).await
        }
        Some(present) if is_as_wanted(&present, &wanted) => return Ok(()),
        Some(_) => {
            let context = RequestContext::internal(api, &resource, namespace, &object_name);
            let wanted = &wanted;
            Box::pin(update::update(&context, false, update::Made::Changed, move |mut object| async move {
                restore(&mut object, wanted);
                Ok(object)
            }))
            .await
        }
    };
    match outcome {
        // Created or deleted meanwhile: that change comes here, too.
        Err(failure) if !matches!(failure.code(), 404 | 409) => Err(failure),
        _ => Ok(()),
    }
}

fn is_as_wanted(present: &Value, wanted: &Value) -> bool {
    let description = |object: &Value| object.pointer("/metadata/annotations")?.get(DESCRIPTION).cloned();
    present.get("data") == wanted.get("data") && description(present) == description(wanted)
}

fn restore(object: &mut Value, wanted: &Value) {
    if let Some(data) = wanted.get("data") {
        json::as_map(object).insert("data".into(), data.clone());
    }
    if let Some(Value::Object(annotations)) = wanted.pointer("/metadata/annotations") {
        json::child(json::metadata(object), "annotations").extend(annotations.clone());
    }
}

/// Whether a change is one to the objects that every namespace has.
fn concerns_defaults(bucket: &str, event: &Event) -> bool {
    let (_, name) = split_key(&event.key);
    match bucket {
        ACCOUNTS => name == ACCOUNT && event.change == ChangeType::Deleted,
        CONFIG_MAPS => name == AUTHORITY && event.change != ChangeType::Added,
        _ => false,
    }
}

/// Keeps the objects that every namespace has. Empties namespaces that are being deleted, and then removes their
/// finalizer.
pub(super) fn start(api: &Api) {
    let changes = api.store().tap();
    let namespaces = api.store().objects(BUCKET, "");
    let mut leaving: HashSet<Arc<str>> =
        namespaces.into_iter().filter(|(_, entry)| entry.head.is_terminating).map(|(name, _)| name).collect();
    let task_api = api.clone();
    queue::follow(
        api,
        changes,
        Queue::new(leaving.iter().cloned()),
        move |queue, bucket, event| {
            let (namespace, _) = split_key(&event.key);
            if &**bucket != BUCKET {
                // Something in it has gone, and it may be the last.
                let may_be_empty = event.change == ChangeType::Deleted && leaving.contains(namespace);
                if may_be_empty || concerns_defaults(bucket, event) {
                    queue.add(namespace.into());
                }
            } else if event.change == ChangeType::Deleted {
                leaving.remove(&event.key);
            } else if event.entry.head.is_terminating {
                leaving.insert(Arc::clone(&event.key));
                queue.add(Arc::clone(&event.key));
            }
        },
        move |name| {
            let api = task_api.clone();
            Box::pin(async move {
                complete(&api, &name).await?;
                empty(&api, &name).await
            })
        },
    );
}

/// What is left in a namespace, and why.
#[derive(Default)]
struct Left {
    /// How many objects of which resource, as `pods.` or `jobs.batch`.
    objects: Vec<(String, usize)>,
    finalizers: Vec<String>,
    failures: Vec<Failure>,
}

/// Deletes what is in a namespace, and removes its finalizer once nothing is left.
async fn empty(api: &Api, name: &str) -> Result<(), Failure> {
    let Some(entry) = api.store().get(BUCKET, name) else { return Ok(()) };
    if !entry.head.is_terminating {
        return Ok(());
    }
    let registry = api.registry();
    let prefix = format!("{name}/");
    let objects = |bucket: &str| api.store().objects(bucket, &prefix);
    let mut left = Left::default();
    let mut resources: Vec<_> =
        registry.by_bucket().into_iter().filter(|(_, resource)| resource.is_namespaced).collect();
    // Pods go first: what they use, and what guards them, stays until the last one is gone.
    resources.sort_by_key(|(_, resource)| !resource.is("", "pods"));
    for (bucket, resource) in resources {
        // Objects that are terminating are left alone: pods have a grace period, and finalizers take their time.
        let staying = objects(&bucket).into_iter().filter(|(_, entry)| !entry.head.is_terminating);
        let deletions = staying.map(|(key, _)| delete_one(api, &resource, key));
        // One that cannot go must not keep the others from going.
        let outcomes: Vec<_> = stream::iter(deletions).buffer_unordered(AT_A_TIME).collect().await;
        left.failures.extend(outcomes.into_iter().filter_map(Result::err));
        let rest = objects(&bucket);
        if !rest.is_empty() {
            left.objects.push((format!("{}.{}", resource.plural, resource.group), rest.len()));
            for (_, entry) in &rest {
                let object = entry.parse();
                left.finalizers.extend(json::texts(&object, "/metadata/finalizers").map(str::to_owned));
            }
            if resource.is("", "pods") {
                break;
            }
        }
    }
    let resource = api.built_in("", "namespaces")?;
    if !left.objects.is_empty() {
        tell(api, &resource, name, &left).await?;
        return left.failures.into_iter().next().map_or(Ok(()), Err);
    }
    let context = RequestContext::internal(api, &resource, "", name).for_subresource("finalize");
    let outcome =
        Box::pin(update::update(&context, false, update::Made::Applied, |mut namespace: Value| async move {
            let spec = json::child(json::as_map(&mut namespace), "spec");
            if let Some(finalizers) = spec.get_mut("finalizers").and_then(Value::as_array_mut) {
                finalizers.retain(|finalizer| finalizer != "kubernetes");
            }
            Ok(namespace)
        }))
        .await;
    outcome.map(drop)
}

async fn delete_one(api: &Api, resource: &Arc<Resource>, key: Arc<str>) -> Result<(), Failure> {
    let (namespace, name) = split_key(&key);
    let context = RequestContext::internal(api, resource, namespace, name);
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    match Box::pin(delete::delete(&context, &options)).await {
        Err(failure) if failure.code() != 404 => Err(failure),
        _ => Ok(()),
    }
}

/// Says in the status of a namespace what keeps it from going.
async fn tell(api: &Api, resource: &Arc<Resource>, name: &str, left: &Left) -> Result<(), Failure> {
    let mut counts: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for finalizer in &left.finalizers {
        *counts.entry(finalizer).or_default() += 1;
    }
    let resources: Vec<String> = left
        .objects
        .iter()
        .map(|(resource, count)| format!("{resource} has {count} resource instances"))
        .collect();
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
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".into(),
        ),
        match left.failures.first() {
            None => condition(
                "NamespaceDeletionContentFailure",
                false,
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization".into(),
            ),
            Some(failure) => condition(
                "NamespaceDeletionContentFailure",
                true,
                "ContentDeletionFailed",
                format!("Failed to delete all resource types, {} remaining: {failure}", left.objects.len()),
            ),
        },
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
    let context = RequestContext::internal(api, resource, "", name).for_subresource("status");
    let outcome = Box::pin(update::update(&context, false, update::Made::Applied, move |mut namespace: Value| async move {
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
