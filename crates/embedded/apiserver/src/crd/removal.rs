//! Finalization of CustomResourceDefinitions: their objects are deleted first.

use std::{collections::HashMap, sync::Arc};

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::{BUCKET, CLEANUP, establish::condition, is_true, storage_resource};
use crate::{
    api::Api,
    controllers::queue::{self, Queue},
    json::{self, text},
    request::options::DeleteOptions,
    resources::{Resource, bucket},
    status::Failure,
    store::{ChangeType, Entry, split_key},
    verbs::{RequestContext, delete, update},
};

/// Deletions at the same time: they share the way to the disk.
const AT_A_TIME: usize = 64;

/// Removes the objects of definitions that are being deleted, and then removes their finalizer.
pub(crate) fn start(api: &Api) {
    let changes = api.store().tap();
    let definitions = api.store().objects(BUCKET, "");
    // Which definition the objects of a bucket are of.
    let mut leaving: HashMap<String, Arc<str>> = definitions
        .into_iter()
        .filter(|(_, entry)| entry.head.is_terminating)
        .map(|(name, entry)| (bucket_of(&entry), name))
        .collect();
    let task_api = api.clone();
    queue::follow(
        api,
        changes,
        Queue::new(leaving.values().cloned().collect::<Vec<_>>()),
        move |queue, bucket, event| {
            if &**bucket != BUCKET {
                // What goes may be the last, and what comes late must go too.
                if let Some(name) = leaving.get(&**bucket).filter(|_| event.change != ChangeType::Modified) {
                    queue.add(Arc::clone(name));
                }
            } else if event.change == ChangeType::Deleted {
                leaving.remove(&bucket_of(&event.entry));
            } else if event.entry.head.is_terminating {
                leaving.insert(bucket_of(&event.entry), Arc::clone(&event.key));
                queue.add(Arc::clone(&event.key));
            }
        },
        move |name| {
            let api = task_api.clone();
            Box::pin(async move { remove(&api, &name).await })
        },
    );
}

/// Where the objects of a definition are.
fn bucket_of(definition: &Entry) -> String {
    let definition = definition.parse();
    bucket(text(&definition, "/spec/group"), text(&definition, "/spec/names/plural"))
}

/// Deletes the objects of a definition; removes its finalizer once there are none.
async fn remove(api: &Api, name: &str) -> Result<(), Failure> {
    let Some(entry) = api.store().get(BUCKET, name).filter(|entry| entry.head.is_terminating) else {
        return Ok(());
    };
    let definition = entry.to_value("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    if !json::texts(&definition, "/metadata/finalizers").any(|finalizer| finalizer == CLEANUP) {
        return Ok(());
    }
    let resource = api.built_in("apiextensions.k8s.io", "customresourcedefinitions")?;
    let bucket = bucket_of(&entry);
    if api.store().count(&bucket) > 0 {
        if !is_true(&definition, "Terminating") {
            write_terminating_condition(api, &resource, name).await?;
        }
        // Also of a definition that serves nothing: what it left behind would belong to the next one of its name.
        if let Some(instances) = storage_resource(&entry) {
            let objects = api.store().objects(&bucket, "");
            let staying = objects.into_iter().filter(|(_, entry)| !entry.head.is_terminating);
            let deletions = staying.map(|(key, _)| delete_one(api, &instances, key));
            let outcomes: Vec<_> = stream::iter(deletions).buffer_unordered(AT_A_TIME).collect().await;
            outcomes.into_iter().collect::<Result<(), _>>()?;
        }
    }
    // Finalizers of objects are respected, however long that takes.
    if api.store().count(&bucket) > 0 {
        return Ok(());
    }
    let context = RequestContext::internal(api, &resource, "", name);
    Box::pin(update::update(&context, false, update::Made::Applied, |mut definition: Value| async move {
        if let Some(finalizers) =
            json::metadata(&mut definition).get_mut("finalizers").and_then(Value::as_array_mut)
        {
            finalizers.retain(|finalizer| finalizer != CLEANUP);
        }
        Ok(definition)
    }))
    .await
    .map(drop)
}

async fn delete_one(api: &Api, resource: &Arc<Resource>, key: Arc<str>) -> Result<(), Failure> {
    let (namespace, name) = split_key(&key);
    let context = RequestContext::internal(api, resource, namespace, name);
    match Box::pin(delete::delete(&context, &DeleteOptions::default())).await {
        Err(failure) if failure.code() != 404 => Err(failure),
        _ => Ok(()),
    }
}

/// Says in the status of a definition what it waits for.
async fn write_terminating_condition(api: &Api, resource: &Arc<Resource>, name: &str) -> Result<(), Failure> {
    let now = api.now();
    let context = RequestContext::internal(api, resource, "", name).for_subresource("status");
    let change = move |mut definition: Value| async move {
        let terminating = condition(
            now,
            &definition,
            "Terminating",
            true,
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        );
        let status = json::child(json::as_map(&mut definition), "status");
        if let Some(conditions) = status.entry("conditions").or_insert_with(|| json!([])).as_array_mut() {
            conditions.retain(|one| text(one, "/type") != "Terminating");
            conditions.push(terminating);
        }
        Ok(definition)
    };
    Box::pin(update::update(&context, false, update::Made::Applied, change)).await.map(drop)
}
