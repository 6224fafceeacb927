//! Dependents of objects that are gone: deleted, deleted first, or orphaned.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::Value;

use super::queue::{self, Queue};
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

    /// Takes note of a change; says what has to be looked at for it.
    fn follow(&mut self, bucket: &Arc<str>, event: &Event) -> Vec<Place> {
        let place = (Arc::clone(bucket), Arc::clone(&event.key));
        let head = &event.entry.head;
        let before = event.previous.as_ref().map(|previous| &previous.head);
        let is_gone = event.happened == Happened::Deleted;
        let has_new_owners = before.is_none_or(|before| before.owners != head.owners);
        if let Some(before) = before
            && (is_gone || has_new_owners)
        {
            self.remove(&place, &before.owners);
        }
        let mut concerned = Vec::new();
        if is_gone {
            self.places.remove(&head.uid);
            concerned.extend(self.dependents_of(&head.uid));
        } else {
            if has_new_owners {
                self.add(&place, &head.uid, &head.owners);
            }
            if head.is_terminating {
                concerned.extend(self.dependents_of(&head.uid));
            }
            if (has_new_owners && !head.owners.is_empty()) || head.is_terminating {
                concerned.push(place);
            }
        }
        // Owners that wait for their dependents may go on, or have one more to wait for.
        if is_gone || has_new_owners {
            let owners = before.into_iter().flat_map(|before| &before.owners).chain(&head.owners);
            concerned.extend(owners.filter_map(|owner| self.places.get(owner).cloned()));
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
            let place = (Arc::clone(&bucket), key);
            graph.add(&place, &entry.head.uid, &entry.head.owners);
            if !entry.head.owners.is_empty() || entry.head.is_terminating {
                suspects.push(place);
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
            graph.lock().follow(bucket, event).into_iter().for_each(|place| queue.add(place));
        },
        move |place| {
            let collector = Arc::clone(&collector);
            Box::pin(async move { collector.settle(&place).await })
        },
    );
}

/// Does what an object's owners, or its own deletion, ask for.
struct Collector {
    api: Api,
    graph: Arc<Mutex<Graph>>,
}

impl Collector {
    fn dependents_of(&self, uid: &str) -> Vec<Place> {
        self.graph.lock().dependents_of(uid)
    }

    fn resource(&self, bucket: &str) -> Option<Arc<Resource>> {
        self.api.registry().by_bucket().get(bucket).cloned()
    }

    async fn settle(&self, place: &Place) -> Result<(), Failure> {
        let Some(entry) = self.api.store().get(&place.0, &place.1) else { return Ok(()) };
        let Some(resource) = self.resource(&place.0) else { return Ok(()) };
        let object = entry.parse();
        let (namespace, name) = split_key(&place.1);
        let ask = Ask::internal(&self.api, &resource, namespace, name);
        let finalizers: Vec<&str> = json::texts(&object, "/metadata/finalizers").collect();
        if entry.head.is_terminating {
            if finalizers.contains(&ORPHAN) {
                for dependent in self.dependents_of(&entry.head.uid) {
                    self.orphan(&dependent, &entry.head.uid).await?;
                }
                return drop_finalizer(&ask, ORPHAN).await;
            }
            if finalizers.contains(&FOREGROUND) {
                return self.foreground(&ask, &entry.head.uid).await;
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
                self.orphan(place, uid).await?;
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
        delete::delete(&ask, &options).await.map(drop)
    }

    fn owner(&self, reference: &Value, namespace: &str) -> Owner {
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
        let place = self.graph.lock().places.get(text(reference, "/uid")).cloned();
        let Some(place) = place else { return Owner::Gone };
        let owner_namespace = split_key(&place.1).0;
        if resource.is_namespaced && owner_namespace != namespace {
            return Owner::Gone;
        }
        let Some(entry) = self.api.store().get(&place.0, &place.1) else { return Owner::Gone };
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

    /// Lets go of an owner once no dependent holds it back; they are looked at by themselves.
    async fn foreground(&self, ask: &Ask, uid: &str) -> Result<(), Failure> {
        if self.dependents_of(uid).iter().any(|(bucket, key)| self.blocks(bucket, key, uid)) {
            return Ok(());
        }
        drop_finalizer(ask, FOREGROUND).await
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
