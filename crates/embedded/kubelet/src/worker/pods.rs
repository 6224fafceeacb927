//! Which pods have a worker: those bound to this node, and those that are left over on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use parking_lot::Mutex;
use quintet_controller::cache::{Cache, Caches, Change, ObjectMetadata, Selector, WatchSpec};
use quintet_controller::{ApiKind, Error, Event, ObjectKey};
use quintet_controllers::Rejection;

use super::context::Context;
use super::handle::PodHandle;
use super::{references, storage, sync};
use crate::pod::status::{Resize, Verdict};

/// All pods of this node.
#[derive(Clone)]
pub(crate) struct Pods {
    context: Arc<Context>,
    handles: Arc<Mutex<BTreeMap<String, Arc<PodHandle>>>>,
    cache: Cache<core::Pod>,
    /// The Node of this kubelet.
    node: Cache<core::Node>,
}

impl Pods {
    /// Runs the pods of this node, those of an earlier kubelet included.
    pub(crate) async fn start(context: Arc<Context>, caches: &Caches) -> Result<Self, Error> {
        let selector = Selector::all().on_node(&context.settings.node_name);
        let cache = caches.watch(WatchSpec::<core::Pod>::typed().select(selector))?;
        let own = Selector::all().named(&context.settings.node_name);
        let node = caches.watch(WatchSpec::<core::Node>::typed().select(own))?;
        let pods = Self { context, handles: Arc::default(), cache: cache.clone(), node: node.clone() };
        node.synced().await;
        cache.synced().await;
        let follower = pods.clone();
        cache.subscribe(move |change| follower.follow(change));
        pods.clear_leftovers();
        pods.follow_sources(caches)?;
        Ok(pods)
    }

    /// The pod of a name.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<Arc<PodHandle>> {
        let entry = self.cache.get(&ObjectKey::new(namespace, name))?;
        self.handles.lock().get(entry.uid.as_str()).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<PodHandle>> {
        self.handles.lock().values().cloned().collect()
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    fn follow(&self, change: &Change<core::Pod>) {
        let uid = |entry: &Option<Arc<quintet_controller::cache::Entry<core::Pod>>>| {
            entry.as_ref().map(|entry| entry.uid.as_str().to_owned())
        };
        let (old, new) = (uid(&change.old), uid(&change.new));
        if let Some(gone) = old.filter(|old| new.as_ref() != Some(old)) {
            let handle = self.handles.lock().get(&gone).cloned();
            if let Some(handle) = handle {
                handle.observe(None);
            }
        }
        let Some(entry) = &change.new else { return };
        let mut handles = self.handles.lock();
        let pod = Some(Arc::new(entry.object.clone()));
        if let Some(handle) = handles.get(entry.uid.as_str()) {
            handle.observe(pod);
            // Volumes show the pod's own labels and annotations, too.
            if change.old.as_ref().is_some_and(|old| has_other_sources(&old.object, &entry.object)) {
                handle.sources_changed();
            }
            return;
        }
        let handle = self.handle(entry.key.clone(), entry.uid.as_str());
        handle.observe(pod);
        self.admit(&entry.object, &handle, &handles);
        handles.insert(handle.uid.clone(), Arc::clone(&handle));
        drop(handles);
        self.run(handle);
    }

    /// Whether the node has what a pod asks for now.
    pub(crate) fn judge_resize(&self, pod: &core::Pod, own: &PodHandle) -> Result<(), Resize> {
        let Some(node) = self.node.get(&ObjectKey::cluster(&self.context.settings.node_name)) else {
            return Ok(());
        };
        let resources = |others: &[&core::Pod]| quintet_controllers::fits(pod, &node.object, others);
        resources(&[]).map_err(|why| Resize::Infeasible(why.message))?;
        let others: Vec<Arc<PodHandle>> =
            self.handles.lock().values().filter(|other| other.uid != own.uid).cloned().collect();
        let others = active_pods(others.iter());
        let others: Vec<&core::Pod> = others.iter().map(|pod| &**pod).collect();
        resources(&others).map_err(|why| Resize::Deferred(why.message))
    }

    /// Rejects a new pod that this node cannot run: pods may be bound without the scheduler.
    fn admit(&self, pod: &core::Pod, new: &PodHandle, handles: &BTreeMap<String, Arc<PodHandle>>) {
        let is_known = new.directory.exists();
        let Some(node) = self.node.get(&ObjectKey::cluster(&self.context.settings.node_name)) else { return };
        if is_known || !is_active(pod) || pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        let others = active_pods(handles.values());
        let others: Vec<&core::Pod> = others.iter().map(|pod| &**pod).collect();
        if let Err(Rejection { reason, message }) = quintet_controllers::admit(pod, &node.object, &others) {
            self.context.event((&new.key, &new.uid), Event::warning(&reason, "Admitting", message.clone()));
            let verdict = Verdict { reason, message: format!("Pod was rejected: {message}") };
            new.update(|record| record.verdict = Some(verdict));
        }
    }

    fn handle(&self, key: ObjectKey, uid: &str) -> Arc<PodHandle> {
        let cancel = self.context.tasks.stop_token().child_token();
        Arc::new(PodHandle::new(key, uid, self.context.pod_directory(uid), cancel))
    }

    fn run(&self, handle: Arc<PodHandle>) {
        let (context, handles, pods) = (Arc::clone(&self.context), Arc::clone(&self.handles), self.clone());
        let name = format!("pod {}", handle.key);
        self.context.tasks.spawn(name, async move {
            let is_forgotten = sync::run(Arc::clone(&context), Arc::clone(&handle), pods).await;
            handle.cancel.cancel();
            if is_forgotten {
                handles.lock().remove(&handle.uid);
            }
        });
    }

    /// Ends pods that were deleted while no kubelet ran.
    fn clear_leftovers(&self) {
        for (uid, saved) in storage::saved_pods(&self.context.settings.data_directory) {
            if self.handles.lock().contains_key(&uid) {
                continue;
            }
            let handle = self.handle(ObjectKey::new(&saved.namespace, &saved.name), &uid);
            self.handles.lock().insert(uid, Arc::clone(&handle));
            self.run(handle);
        }
    }

    /// Pods see changes of ConfigMaps and Secrets that they refer to.
    fn follow_sources(&self, caches: &Caches) -> Result<(), Error> {
        let config_maps = caches.watch(WatchSpec::metadata(ApiKind::of::<core::ConfigMap>()))?;
        let secrets = caches.watch(WatchSpec::metadata(ApiKind::of::<core::Secret>()))?;
        for (cache, is_secret) in [(config_maps, false), (secrets, true)] {
            let pods = self.clone();
            cache.subscribe(move |change: &Change<ObjectMetadata>| {
                if let Some(entry) = change.states().next() {
                    pods.source_changed(&entry.key, is_secret);
                }
            });
        }
        Ok(())
    }

    fn source_changed(&self, key: &ObjectKey, is_secret: bool) {
        for handle in self.all() {
            let is_meant = handle.key.namespace() == key.namespace()
                && handle.pod().is_some_and(|pod| {
                    let names = references::names(&pod);
                    let names = if is_secret { names.secrets } else { names.config_maps };
                    names.contains(key.name())
                });
            if is_meant {
                handle.sources_changed();
            }
        }
    }
}

/// Whether volumes have to be brought up to date: the downward API shows something else of the pod, or a new ephemeral
/// container may mount one that no other does.
fn has_other_sources(old: &core::Pod, new: &core::Pod) -> bool {
    let shown = |pod: &core::Pod| (pod.metadata.labels.clone(), pod.metadata.annotations.clone());
    let added = |pod: &core::Pod| pod.spec.as_ref().and_then(|spec| spec.ephemeral_containers.clone());
    shown(old) != shown(new) || added(old) != added(new)
}

/// The pods that use something of the node.
fn active_pods<'a>(handles: impl Iterator<Item = &'a Arc<PodHandle>>) -> Vec<Arc<core::Pod>> {
    let running = handles.filter(|handle| !handle.record().is_finished());
    running.filter_map(|handle| handle.pod()).filter(|pod| is_active(pod)).collect()
}

/// Whether a pod has not ended.
fn is_active(pod: &core::Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}
