//! Pods that are being deleted are removed by the agent of their node, once their processes have ended. Where there is
//! no such node, this controller removes them: they go when their grace period is over.

use std::{sync::Arc, time::Duration};

use futures::FutureExt as _;
use jiff::Timestamp;

use super::queue::{Queue, follow};
use crate::{
    api::Api,
    json::text,
    request::options::DeleteOptions,
    status::Failure,
    store::{ChangeType, Entry, split_key},
    verbs::{self, RequestContext},
};

const BUCKET: &str = "core/pods";
const NODES: &str = "core/nodes";

/// What matters of a pod that is being deleted.
#[derive(PartialEq, Eq)]
struct Leaving {
    node: String,
    ends: Timestamp,
}

impl Leaving {
    fn of(entry: &Entry) -> Option<Self> {
        if !entry.head.is_terminating {
            return None;
        }
        let pod = entry.parse();
        let node = text(&pod, "/spec/nodeName").to_owned();
        let ends = text(&pod, "/metadata/deletionTimestamp").parse().ok()?;
        (!node.is_empty()).then_some(Self { node, ends })
    }
}

pub(super) fn start(api: &Api) {
    let changes = api.store().tap();
    let queue = Queue::new([]);
    note_all(api, &queue, None);
    let (noting, working, again) = (api.clone(), api.clone(), queue.clone());
    follow(
        api,
        changes,
        queue,
        move |queue, bucket, event| match (&**bucket, event.change) {
            (BUCKET, ChangeType::Modified) => {
                let before = event.previous.as_deref().and_then(Leaving::of);
                let leaving = Leaving::of(&event.entry);
                if let Some(leaving) = leaving.filter(|leaving| before.as_ref() != Some(leaving)) {
                    note(&noting, queue, &event.key, &leaving);
                }
            }
            (NODES, ChangeType::Deleted) => note_all(&noting, queue, Some(&event.key)),
            _ => {}
        },
        move |key| {
            let (api, again) = (working.clone(), again.clone());
            async move { remove(&api, &again, &key).await }.boxed()
        },
    );
}

/// Notes the pods that are being deleted: all, or those of one node.
fn note_all(api: &Api, queue: &Queue<Arc<str>>, node: Option<&str>) {
    let listed = api.store().objects(BUCKET, "");
    for (key, entry) in listed {
        let leaving = Leaving::of(&entry);
        if let Some(leaving) = leaving.filter(|leaving| node.is_none_or(|node| leaving.node == node)) {
            note(api, queue, &key, &leaving);
        }
    }
}

/// Looks at a pod again when its grace period is over.
fn note(api: &Api, queue: &Queue<Arc<str>>, key: &Arc<str>, leaving: &Leaving) {
    let left = Duration::try_from(leaving.ends.duration_since(api.now())).unwrap_or_default();
    queue.add_after(Arc::clone(key), left);
}

/// Removes a pod whose time is over and whose node does not exist.
async fn remove(api: &Api, queue: &Queue<Arc<str>>, key: &Arc<str>) -> Result<(), Failure> {
    let Some(entry) = api.store().get(BUCKET, key) else { return Ok(()) };
    let Some(leaving) = Leaving::of(&entry) else { return Ok(()) };
    if leaving.ends > api.now() {
        // The clock was set back meanwhile.
        note(api, queue, key, &leaving);
        return Ok(());
    }
    if api.store().get(NODES, &leaving.node).is_some() {
        return Ok(());
    }
    let (namespace, name) = split_key(key);
    let resource = api.built_in("", "pods")?;
    let options = DeleteOptions {
        grace_period: Some(0),
        uid: Some(entry.head.uid.to_string()),
        ..DeleteOptions::default()
    };
    verbs::delete::delete(&RequestContext::internal(api, &resource, namespace, name), &options)
        .await
        .map(drop)
}
