//! Everything a decision about a parent needs.

use std::sync::Arc;

use jiff::Timestamp;
use quintet_api::kueue::v1beta2::{ClusterQueue, LocalQueue, Workload};
use quintet_controller::cache::{Cache, Caches, Change, Entry};
use quintet_controller::{Error, ObjectKey};
use serde::{Deserialize, Serialize};

use super::{is_parent, parent_reference};
use crate::settings::Settings;
use crate::watches::{self, BY_CLUSTER_QUEUE, BY_LOCAL_QUEUE, BY_OWNER, flavors_of};

/// A parent, its variants and its queue.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    pub(super) parent: Arc<Entry<Workload>>,
    pub(super) variants: Vec<Arc<Entry<Workload>>>,
    pub(super) cluster_queue: Arc<Entry<ClusterQueue>>,
    pub(super) settings: Arc<Settings>,
    pub(super) now: Timestamp,
}

/// The caches of the controller.
#[derive(Clone)]
pub(super) struct VariantCaches {
    pub(super) workloads: Cache<Workload>,
    pub(super) local_queues: Cache<LocalQueue>,
    pub(super) cluster_queues: Cache<ClusterQueue>,
}

/// The parent of a variant.
pub(super) fn parent_of(entry: &Entry<Workload>) -> Option<ObjectKey> {
    Some(ObjectKey::new(entry.key.namespace()?, &parent_reference(&entry.object)?.name))
}

impl VariantCaches {
    pub(super) fn watch(caches: &Caches) -> Result<Self, Error> {
        Ok(Self {
            workloads: caches.watch(watches::workloads())?,
            local_queues: caches.watch(watches::local_queues())?,
            cluster_queues: caches.watch(watches::cluster_queues())?,
        })
    }

    pub(super) fn observe(
        &self,
        key: &ObjectKey,
        settings: &Arc<Settings>,
        now: Timestamp,
    ) -> Option<Observed> {
        let parent = self.workloads.get(key).filter(|entry| is_parent(&entry.object))?;
        let local_queue = watches::local_queue_of(&parent).and_then(|key| self.local_queues.get(&key))?;
        let queue = local_queue.object.spec.cluster_queue.as_deref()?;
        let cluster_queue = self.cluster_queues.get(&ObjectKey::cluster(queue))?;
        let variants = self.workloads.by_index(BY_OWNER, parent.uid.as_str());
        Some(Observed { parent, variants, cluster_queue, settings: Arc::clone(settings), now })
    }

    pub(super) fn parents_of_local_queue(&self, key: &ObjectKey) -> Vec<ObjectKey> {
        let workloads = self.workloads.by_index(BY_LOCAL_QUEUE, key.as_str());
        let parents = workloads.iter().filter(|entry| is_parent(&entry.object));
        parents.map(|entry| entry.key.clone()).collect()
    }

    /// Those of a queue whose flavors have changed.
    pub(super) fn parents_of_cluster_queue(&self, change: &Change<ClusterQueue>) -> Vec<ObjectKey> {
        let flavors = |entry: &Arc<Entry<ClusterQueue>>| flavors_of(&entry.object);
        let is_same = change.old.as_ref().map(flavors) == change.new.as_ref().map(flavors);
        let Some(entry) = change.states().next().filter(|_| !is_same) else { return Vec::new() };
        let local_queues = self.local_queues.by_index(BY_CLUSTER_QUEUE, entry.key.name());
        local_queues.iter().flat_map(|queue| self.parents_of_local_queue(&queue.key)).collect()
    }
}
