//! The garbage collector: background, foreground and orphan deletion of dependents.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::queue::{self, Queue};
use crate::{
    api::Api,
    json::{self, items, text},
    request::options::{DeleteOptions, Propagation},
    resources::Resource,
    status::Failure,
    store::{ChangeType, Event, Head, split_key},
    verbs::{
        RequestContext, delete,
        delete::{FOREGROUND, ORPHAN},
        update,
    },
};

/// Where an object is.
type ObjectId = (Arc<str>, Arc<str>);

/// Who depends on whom.
#[derive(Default)]
struct Graph {
    ids: HashMap<Box<str>, ObjectId>,
    dependents: HashMap<Box<str>, BTreeSet<ObjectId>>,
}

impl Graph {
    fn add(&mut self, id: &ObjectId, uid: &str, owners: &[Box<str>]) {
        self.ids.insert(uid.into(), id.clone());
        for owner in owners {
            self.dependents.entry(owner.clone()).or_default().insert(id.clone());
        }
    }

    fn remove(&mut self, id: &ObjectId, owners: &[Box<str>]) {
        for owner in owners {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(id);
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }

    fn dependents_of(&self, uid: &str) -> Vec<ObjectId> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Applies a change to the graph; returns the objects to reconcile for it.
    fn follow(&mut self, bucket: &Arc<str>, event: &Event) -> Vec<ObjectId> {
        let id = (Arc::clone(bucket), Arc::clone(&event.key));
        let head = &event.entry.head;
        let before = event.previous.as_ref().map(|previous| &previous.head);
        let is_gone = event.change == ChangeType::Deleted;
        let has_new_owners = before.is_none_or(|before| before.owners != head.owners);
        if let Some(before) = before
            && (is_gone || has_new_owners)
        {
            self.remove(&id, &before.owners);
        }
        let mut concerned = Vec::new();
        if is_gone {
            self.ids.remove(&head.uid);
            concerned.extend(self.dependents_of(&head.uid));
        } else {
            if has_new_owners {
                self.add(&id, &head.uid, &head.owners);
            }
            if head.is_terminating {
                concerned.extend(self.dependents_of(&head.uid));
            }
            if (has_new_owners && !head.owners.is_empty()) || head.is_terminating {
                concerned.push(id);
            }
        }
        // Owners that wait for their dependents may go on, or have one more to wait for. A dependent that is
        // terminating may just have stopped to block them.
        if is_gone || has_new_owners || head.is_terminating {
            let owners = before.into_iter().flat_map(|before| &before.owners).chain(&head.owners);
            concerned.extend(owners.filter_map(|owner| self.ids.get(owner).cloned()));
        }
        concerned
    }
}

/// Follows every change, from the objects that are there on.
pub(super) fn start(api: &Api) {
    let changes = api.store().tap();
    let mut graph = Graph::default();
    let mut suspects = Vec::new();
    for bucket in api.store().buckets() {
        let objects = api.store().objects(&bucket, "");
        for (key, entry) in objects {
            let id = (Arc::clone(&bucket), key);
            graph.add(&id, &entry.head.uid, &entry.head.owners);
            if !entry.head.owners.is_empty() || entry.head.is_terminating {
                suspects.push(id);
            }
        }
    }
    let graph = Arc::new(Mutex::new(graph));
    let collector = Arc::new(Collector { api: api.clone(), graph: Arc::clone(&graph) });
    queue::follow(
        api,
        changes,
        Queue::new(suspects),
        move |queue, bucket, event| {
            graph.lock().follow(bucket, event).into_iter().for_each(|id| queue.add(id));
        },
        move |id| {
            let collector = Arc::clone(&collector);
            Box::pin(async move { collector.reconcile(&id).await })
        },
    );
}

/// Does what an object's owners, or its own deletion, ask for.
struct Collector {
    api: Api,
    graph: Arc<Mutex<Graph>>,
}

impl Collector {
    fn dependents_of(&self, uid: &str) -> Vec<ObjectId> {
        self.graph.lock().dependents_of(uid)
    }

    fn resource(&self, bucket: &str) -> Option<Arc<Resource>> {
        self.api.registry().by_bucket().get(bucket).cloned()
    }

    async fn reconcile(&self, id: &ObjectId) -> Result<(), Failure> {
        let Some(entry) = self.api.store().get(&id.0, &id.1) else { return Ok(()) };
        let Some(resource) = self.resource(&id.0) else { return Ok(()) };
        let object = entry.parse();
        let (namespace, name) = split_key(&id.1);
        let context = RequestContext::internal(&self.api, &resource, namespace, name);
        let finalizers: Vec<&str> = json::texts(&object, "/metadata/finalizers").collect();
        if entry.head.is_terminating {
            if finalizers.contains(&ORPHAN) {
                for dependent in self.dependents_of(&entry.head.uid) {
                    self.orphan(&dependent, &entry.head.uid).await?;
                }
                return drop_finalizer(&context, ORPHAN).await;
            }
            if finalizers.contains(&FOREGROUND) {
                return self.foreground(&context, &entry.head).await;
            }
        }
        let owners = items(&object, "/metadata/ownerReferences");
        if owners.is_empty() || (entry.head.is_terminating && !finalizers.contains(&FOREGROUND)) {
            return Ok(());
        }
        let (mut present, mut waiting, mut leaving) = (false, false, Vec::new());
        for owner in owners {
            match self.owner(owner, namespace) {
                Owner::Present => present = true,
                Owner::Waiting => {
                    waiting = true;
                    leaving.push(text(owner, "/uid"));
                }
                Owner::Gone => leaving.push(text(owner, "/uid")),
            }
        }
        if present {
            // One that stays keeps it; those that go must not wait for it.
            for uid in leaving {
                self.orphan(id, uid).await?;
            }
            return Ok(());
        }
        let options = DeleteOptions {
            uid: Some(entry.head.uid.to_string()),
            propagation: Some(if waiting && !self.dependents_of(&entry.head.uid).is_empty() {
                Propagation::Foreground
            } else {
                Propagation::Background
            }),
            ..DeleteOptions::default()
        };
        delete::delete(&context, &options).await.map(drop)
    }

    fn owner(&self, reference: &Value, namespace: &str) -> Owner {
        let (group, version) = match text(reference, "/apiVersion").split_once('/') {
            Some((group, version)) => (group, version),
            None => ("", text(reference, "/apiVersion")),
        };
        // A kind that is not served says nothing about its objects.
        let Some(resource) = self.api.registry().by_kind(group, version, text(reference, "/kind")).cloned()
        else {
            return Owner::Present;
        };
        if resource.is_namespaced && namespace.is_empty() {
            return Owner::Present;
        }
        let id = self.graph.lock().ids.get(text(reference, "/uid")).cloned();
        let Some(id) = id else { return Owner::Gone };
        let owner_namespace = split_key(&id.1).0;
        if resource.is_namespaced && owner_namespace != namespace {
            return Owner::Gone;
        }
        let Some(entry) = self.api.store().get(&id.0, &id.1) else { return Owner::Gone };
        if *entry.head.uid != *text(reference, "/uid") {
            return Owner::Gone;
        }
        if entry.head.is_terminating {
            let object = entry.parse();
            if json::texts(&object, "/metadata/finalizers").any(|finalizer| finalizer == FOREGROUND) {
                return Owner::Waiting;
            }
        }
        Owner::Present
    }

    /// Removes the finalizer of an owner once no dependent holds it back; they are reconciled by themselves.
    async fn foreground(&self, context: &RequestContext, head: &Head) -> Result<(), Failure> {
        if !self.dependents_of(&head.uid).iter().any(|(bucket, key)| self.blocks(bucket, key, &head.uid)) {
            return drop_finalizer(context, FOREGROUND).await;
        }
        // Objects that own each other in a circle would all wait for the next one.
        if self.owns_itself(head) {
            return unblock_owners(context).await;
        }
        Ok(())
    }

    /// Whether an object is among the owners of its owners.
    fn owns_itself(&self, head: &Head) -> bool {
        let mut pending: Vec<Box<str>> = head.owners.to_vec();
        let mut visited = HashSet::new();
        while let Some(owner) = pending.pop() {
            if owner == head.uid {
                return true;
            }
            let id = self.graph.lock().ids.get(&owner).cloned();
            let entry = id.and_then(|(bucket, key)| self.api.store().get(&bucket, &key));
            if let Some(entry) = entry
                && visited.insert(owner)
            {
                pending.extend_from_slice(&entry.head.owners);
            }
        }
        false
    }

    fn blocks(&self, bucket: &str, key: &str, uid: &str) -> bool {
        self.api.store().get(bucket, key).is_some_and(|entry| {
            let object = entry.parse();
            items(&object, "/metadata/ownerReferences").iter().any(|reference| {
                text(reference, "/uid") == uid
                    && reference.get("blockOwnerDeletion") == Some(&Value::Bool(true))
            })
        })
    }

    async fn orphan(&self, id: &ObjectId, uid: &str) -> Result<(), Failure> {
        let Some(resource) = self.resource(&id.0) else { return Ok(()) };
        let (namespace, name) = split_key(&id.1);
        let context = RequestContext::internal(&self.api, &resource, namespace, name);
        change_metadata(&context, |metadata| {
            if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
                owners.retain(|owner| text(owner, "/uid") != uid);
                if owners.is_empty() {
                    metadata.remove("ownerReferences");
                }
            }
        })
        .await
    }
}

enum Owner {
    Present,
    /// Being deleted after its dependents.
    Waiting,
    Gone,
}

async fn drop_finalizer(context: &RequestContext, finalizer: &str) -> Result<(), Failure> {
    change_metadata(context, |metadata| {
        if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
            finalizers.retain(|one| one != finalizer);
            if finalizers.is_empty() {
                metadata.remove("finalizers");
            }
        }
    })
    .await
}

/// Lets the owners of an object go before it.
async fn unblock_owners(context: &RequestContext) -> Result<(), Failure> {
    change_metadata(context, |metadata| {
        let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten() {
            json::as_map(owner).insert("blockOwnerDeletion".into(), false.into());
        }
    })
    .await
}

/// Changes the metadata of an object, unless it is gone.
async fn change_metadata(
    context: &RequestContext,
    change: impl Fn(&mut Map<String, Value>) + Sync,
) -> Result<(), Failure> {
    let change = &change;
    let outcome =
        update::update(context, false, update::Made::Changed, move |mut object: Value| async move {
            change(json::metadata(&mut object));
            Ok(object)
        })
        .await;
    match outcome {
        Err(failure) if failure.code() != 404 => Err(failure),
        _ => Ok(()),
    }
}
