//! Dependents of objects that are gone: deleted, deleted first, or orphaned.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    api::Api,
    json::{self, items, text},
    request::options::{DeleteOptions, Propagation},
    resources::Resource,
    status::Failure,
    store::{Event, Happened, split_key},
    verbs::{
        Ask, delete,
        delete::{FOREGROUND, ORPHAN},
        update,
    },
};

/// Where an object is.
type Place = (Arc<str>, Arc<str>);

/// Who depends on whom.
#[derive(Default)]
struct Graph {
    places: HashMap<Box<str>, Place>,
    dependents: HashMap<Box<str>, BTreeSet<Place>>,
}

impl Graph {
    fn add(&mut self, place: &Place, uid: &str, owners: &[Box<str>]) {
        self.places.insert(uid.into(), place.clone());
        for owner in owners {
            self.dependents.entry(owner.clone()).or_default().insert(place.clone());
        }
    }

    fn remove(&mut self, place: &Place, owners: &[Box<str>]) {
        for owner in owners {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(place);
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }

    fn dependents_of(&self, uid: &str) -> Vec<Place> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }
}

/// Follows every change, from the objects that are there on.
pub(super) fn start(api: &Api) {
    let mut changes = api.store().tap();
    let mut graph = Graph::default();
    let mut suspects = Vec::new();
    for bucket in api.store().buckets() {
        let objects =
            api.store().list(&bucket, "", None, None).map(|(entries, _)| entries).unwrap_or_default();
        for (key, entry) in objects {
            let place = (Arc::clone(&bucket), key);
            graph.add(&place, &entry.head.uid, &entry.head.owners);
            if !entry.head.owners.is_empty() || entry.head.is_terminating {
                suspects.push(place);
            }
        }
    }
    let task_api = api.clone();
    api.spawn(async move {
        let collector = Collector { api: task_api };
        for place in suspects {
            collector.attend(&graph, &place).await;
        }
        while let Some((bucket, event)) = changes.recv().await {
            collector.follow(&mut graph, &bucket, &event).await;
        }
    });
}

struct Collector {
    api: Api,
}

impl Collector {
    async fn follow(&self, graph: &mut Graph, bucket: &Arc<str>, event: &Arc<Event>) {
        let place = (Arc::clone(bucket), Arc::clone(&event.key));
        if let Some(previous) = &event.previous
            && (event.happened == Happened::Deleted || previous.head.owners != event.entry.head.owners)
        {
            graph.remove(&place, &previous.head.owners);
        }
        let head = &event.entry.head;
        if event.happened == Happened::Deleted {
            graph.places.remove(&head.uid);
            for dependent in graph.dependents_of(&head.uid) {
                self.attend(graph, &dependent).await;
            }
            // Owners that wait for their dependents may go on.
            for owner in &head.owners {
                if let Some(owner) = graph.places.get(owner).cloned() {
                    self.attend(graph, &owner).await;
                }
            }
            return;
        }
        let is_news = event.previous.as_ref().is_none_or(|previous| previous.head.owners != head.owners);
        if is_news {
            graph.add(&place, &head.uid, &head.owners);
        }
        if (is_news && !head.owners.is_empty()) || head.is_terminating {
            self.attend(graph, &place).await;
        }
        if !is_news || head.owners.is_empty() {
            return;
        }
        for owner in &head.owners {
            if let Some(owner) = graph.places.get(owner).cloned() {
                let is_waiting =
                    self.api.store().get(&owner.0, &owner.1).is_some_and(|entry| entry.head.is_terminating);
                if is_waiting {
                    self.attend(graph, &owner).await;
                }
            }
        }
    }

    /// Does what an object's owners, or its own deletion, ask for.
    async fn attend(&self, graph: &Graph, place: &Place) {
        let outcome = self.settle(graph, place).await;
        match outcome {
            Err(failure) if !matches!(failure.code(), 404 | 409) => {
                tracing::warn!("cannot collect {} {}: {failure}", place.0, place.1);
            }
            _ => {}
        }
    }

    fn resource(&self, bucket: &str) -> Option<Arc<Resource>> {
        self.api.registry().by_bucket().get(bucket).cloned()
    }

    async fn settle(&self, graph: &Graph, place: &Place) -> Result<(), Failure> {
        let Some(entry) = self.api.store().get(&place.0, &place.1) else { return Ok(()) };
        let Some(resource) = self.resource(&place.0) else { return Ok(()) };
        let object: Value = serde_json::from_slice(&entry.body).unwrap_or_default();
        let (namespace, name) = split_key(&place.1);
        let ask = Ask::internal(&self.api, &resource, namespace, name);
        let finalizers: Vec<&str> = json::texts(&object, "/metadata/finalizers").collect();
        if entry.head.is_terminating {
            if finalizers.contains(&ORPHAN) {
                for dependent in graph.dependents_of(&entry.head.uid) {
                    self.orphan(&dependent, &entry.head.uid).await?;
                }
                return drop_finalizer(&ask, ORPHAN).await;
            }
            if finalizers.contains(&FOREGROUND) {
                return self.foreground(graph, &ask, &entry.head.uid).await;
            }
        }
        let owners = items(&object, "/metadata/ownerReferences");
        if owners.is_empty() || (entry.head.is_terminating && !finalizers.contains(&FOREGROUND)) {
            return Ok(());
        }
        let (mut present, mut waiting, mut leaving) = (false, false, Vec::new());
        for owner in owners {
            match self.owner(graph, owner, namespace) {
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
                self.orphan(place, uid).await?;
            }
            return Ok(());
        }
        let options = DeleteOptions {
            uid: Some(entry.head.uid.to_string()),
            propagation: Some(if waiting && !graph.dependents_of(&entry.head.uid).is_empty() {
                Propagation::Foreground
            } else {
                Propagation::Background
            }),
            ..DeleteOptions::default()
        };
        delete::delete(&ask, &options).await.map(drop)
    }

    fn owner(&self, graph: &Graph, reference: &Value, namespace: &str) -> Owner {
        let (group, version) = match text(reference, "/apiVersion").split_once('/') {
            Some((group, version)) => (group, version),
            None => ("", text(reference, "/apiVersion")),
        };
        // A kind nobody serves says nothing about its objects.
        let Some(resource) = self.api.registry().by_kind(group, version, text(reference, "/kind")).cloned()
        else {
            return Owner::Present;
        };
        if resource.is_namespaced && namespace.is_empty() {
            return Owner::Present;
        }
        let Some(place) = graph.places.get(text(reference, "/uid")) else { return Owner::Gone };
        let owner_namespace = split_key(&place.1).0;
        if resource.is_namespaced && owner_namespace != namespace {
            return Owner::Gone;
        }
        let Some(entry) = self.api.store().get(&place.0, &place.1) else { return Owner::Gone };
        if *entry.head.uid != *text(reference, "/uid") {
            return Owner::Gone;
        }
        if entry.head.is_terminating {
            let object: Value = serde_json::from_slice(&entry.body).unwrap_or_default();
            if json::texts(&object, "/metadata/finalizers").any(|finalizer| finalizer == FOREGROUND) {
                return Owner::Waiting;
            }
        }
        Owner::Present
    }

    /// Deletes dependents that hold an owner back; lets go of the owner once there are none.
    async fn foreground(&self, graph: &Graph, ask: &Ask, uid: &str) -> Result<(), Failure> {
        let mut is_held = false;
        for (bucket, key) in graph.dependents_of(uid) {
            let Some(entry) = self.api.store().get(&bucket, &key) else { continue };
            let object: Value = serde_json::from_slice(&entry.body).unwrap_or_default();
            let references = items(&object, "/metadata/ownerReferences");
            let Some(own) = references.iter().find(|reference| text(reference, "/uid") == uid) else {
                continue;
            };
            is_held |= own.get("blockOwnerDeletion") == Some(&Value::Bool(true));
            if !entry.head.is_terminating {
                Box::pin(self.settle(graph, &(Arc::clone(&bucket), Arc::clone(&key)))).await?;
            }
        }
        let still = graph.dependents_of(uid).iter().any(|(bucket, key)| self.blocks(bucket, key, uid));
        if is_held && still {
            return Ok(());
        }
        drop_finalizer(ask, FOREGROUND).await
    }

    fn blocks(&self, bucket: &str, key: &str, uid: &str) -> bool {
        self.api.store().get(bucket, key).is_some_and(|entry| {
            let object: Value = serde_json::from_slice(&entry.body).unwrap_or_default();
            items(&object, "/metadata/ownerReferences").iter().any(|reference| {
                text(reference, "/uid") == uid
                    && reference.get("blockOwnerDeletion") == Some(&Value::Bool(true))
            })
        })
    }

    async fn orphan(&self, place: &Place, uid: &str) -> Result<(), Failure> {
        let Some(resource) = self.resource(&place.0) else { return Ok(()) };
        let (namespace, name) = split_key(&place.1);
        let ask = Ask::internal(&self.api, &resource, namespace, name);
        let outcome =
            update::update(&ask, false, update::Made::Changed, move |mut object: Value| async move {
                let metadata = json::metadata(&mut object);
                if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
                    owners.retain(|owner| text(owner, "/uid") != uid);
                    if owners.is_empty() {
                        metadata.remove("ownerReferences");
                    }
                }
                Ok(object)
            })
            .await;
        match outcome {
            Err(failure) if failure.code() != 404 => Err(failure),
            _ => Ok(()),
        }
    }
}

enum Owner {
    Present,
    /// Being deleted after its dependents.
    Waiting,
    Gone,
}

async fn drop_finalizer(ask: &Ask, finalizer: &str) -> Result<(), Failure> {
    let outcome = update::update(ask, false, update::Made::Changed, move |mut object: Value| async move {
        let metadata = json::metadata(&mut object);
        if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
            finalizers.retain(|one| one != finalizer);
            if finalizers.is_empty() {
                metadata.remove("finalizers");
            }
        }
        Ok(object)
    })
    .await;
    match outcome {
        Err(failure) if failure.code() != 404 => Err(failure),
        _ => Ok(()),
    }
}
