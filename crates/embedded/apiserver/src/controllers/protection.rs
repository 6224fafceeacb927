//! Claims and volumes are protected by a finalizer as long as they are in use: claims by pods, volumes by claims. Those
//! that are being deleted go when they are no longer used.

use std::sync::Arc;

use futures::FutureExt as _;
use serde_json::Value;

use super::queue::{Queue, follow};
use crate::{
    api::Api,
    json::{self, items, text},
    status::Failure,
    store::{ChangeType, Event, split_key},
    verbs::{RequestContext, update},
};

const CLAIMS: &str = "core/persistentvolumeclaims";
const VOLUMES: &str = "core/persistentvolumes";
const PODS: &str = "core/pods";

/// What protects objects of a bucket.
fn finalizer(bucket: &str) -> &'static str {
    if bucket == CLAIMS { "kubernetes.io/pvc-protection" } else { "kubernetes.io/pv-protection" }
}

/// Bucket and key of something protected.
type Protected = (&'static str, Arc<str>);

pub(super) fn start(api: &Api) {
    let changes = api.store().tap();
    let queue = Queue::new([CLAIMS, VOLUMES].into_iter().flat_map(|bucket| leaving(api, bucket, "")));
    let (noting, working) = (api.clone(), api.clone());
    follow(
        api,
        changes,
        queue,
        move |queue, bucket, event| note(&noting, queue, bucket, event),
        move |(bucket, key)| {
            let api = working.clone();
            async move { release(&api, bucket, &key).await }.boxed()
        },
    );
}

/// What is being deleted of a bucket, where keys begin so.
fn leaving(api: &Api, bucket: &'static str, prefix: &str) -> Vec<Protected> {
    let listed = api.store().objects(bucket, prefix);
    let leaving = listed.into_iter().filter(|(_, entry)| entry.head.is_terminating);
    leaving.map(|(key, _)| (bucket, key)).collect()
}

fn note(api: &Api, queue: &Queue<Protected>, bucket: &str, event: &Event) {
    match bucket {
        CLAIMS | VOLUMES if event.change == ChangeType::Modified && event.entry.head.is_terminating => {
            let bucket = if bucket == CLAIMS { CLAIMS } else { VOLUMES };
            queue.add((bucket, Arc::clone(&event.key)));
        }
        // A pod that ended or went may have been the last to use a claim.
        PODS if event.change != ChangeType::Added => {
            let namespace = format!("{}/", split_key(&event.key).0);
            for claim in leaving(api, CLAIMS, &namespace) {
                queue.add(claim);
            }
        }
        _ => {}
    }
}

/// Takes the protection from an object that goes and is not in use.
async fn release(api: &Api, bucket: &'static str, key: &str) -> Result<(), Failure> {
    let Some(entry) = api.store().get(bucket, key).filter(|entry| entry.head.is_terminating) else {
        return Ok(());
    };
    let object = entry.parse();
    let finalizer = finalizer(bucket);
    let is_protected = json::texts(&object, "/metadata/finalizers").any(|one| one == finalizer);
    let is_used = match bucket {
        CLAIMS => is_mounted(api, key),
        _ => text(&object, "/status/phase") == "Bound",
    };
    if !is_protected || is_used {
        return Ok(());
    }
    let (namespace, name) = split_key(key);
    let plural = if bucket == CLAIMS { "persistentvolumeclaims" } else { "persistentvolumes" };
    let context = RequestContext::internal(api, &api.built_in("", plural)?, namespace, name);
    Box::pin(update::update(&context, false, update::Made::Changed, move |mut object: Value| async move {
        if let Some(finalizers) =
            json::metadata(&mut object).get_mut("finalizers").and_then(Value::as_array_mut)
        {
            finalizers.retain(|one| one != finalizer);
        }
        Ok(object)
    }))
    .await
    .map(drop)
}

/// Whether a pod that has not ended uses a claim.
fn is_mounted(api: &Api, claim: &str) -> bool {
    let (namespace, name) = split_key(claim);
    let pods = api.store().objects(PODS, &format!("{namespace}/"));
    pods.iter().any(|(_, entry)| {
        let pod = entry.parse();
        let is_over = matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed");
        let mut volumes = items(&pod, "/spec/volumes").iter();
        // The claim of an ephemeral volume is named after its pod.
        let is_own = |volume: &Value| {
            let own = name.strip_prefix(text(&pod, "/metadata/name")).and_then(|rest| rest.strip_prefix('-'));
            volume.get("ephemeral").is_some() && own == Some(text(volume, "/name"))
        };
        !is_over
            && volumes
                .any(|volume| text(volume, "/persistentVolumeClaim/claimName") == name || is_own(volume))
    })
}
