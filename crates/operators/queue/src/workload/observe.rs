//! Everything a decision about a Workload needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use quintet_api::kueue::v1beta2::{ClusterQueue, LocalQueue, Workload};
use quintet_controller::cache::{Cache, Caches, Change, Entry, WatchSpec};
use quintet_controller::{Error, ObjectKey};
use serde::{Deserialize, Serialize};

use crate::settings::Settings;
use crate::watches::{self, BY_ADMISSION, BY_CLUSTER_QUEUE, BY_LOCAL_QUEUE, BY_NAMESPACE};

/// What was observed of a Workload and of its queues.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    pub(super) workload: Arc<Entry<Workload>>,
    pub(super) local_queue: Option<Arc<Entry<LocalQueue>>>,
    /// The one that it has quota of, or else the one of its LocalQueue.
    pub(super) cluster_queue: Option<Arc<Entry<ClusterQueue>>>,
    /// Labels of its namespace, if that is known.
    #[serde(default)]
    pub(super) namespace_labels: Option<BTreeMap<String, String>>,
    pub(super) settings: Arc<Settings>,
    pub(super) now: Timestamp,
}

/// The caches of the controller.
#[derive(Clone)]
pub(super) struct WorkloadCaches {
    pub(super) workloads: Cache<Workload>,
    pub(super) local_queues: Cache<LocalQueue>,
    pub(super) cluster_queues: Cache<ClusterQueue>,
    pub(super) namespaces: Cache<Namespace>,
}

impl WorkloadCaches {
    pub(super) fn new(caches: &Caches) -> Result<Self, Error> {
        Ok(Self {
            workloads: caches.watch(watches::workloads())?,
            local_queues: caches.watch(watches::local_queues())?,
            cluster_queues: caches.watch(watches::cluster_queues())?,
            namespaces: caches.watch(WatchSpec::typed())?,
        })
    }

    pub(super) fn read(
        &self,
        workload: Arc<Entry<Workload>>,
        settings: &Arc<Settings>,
        now: Timestamp,
    ) -> Observed {
        let local_queue = watches::local_queue_of(&workload).and_then(|key| self.local_queues.get(&key));
        let admission = workload.object.status.as_ref().and_then(|status| status.admission.as_ref());
        let admitted_by = admission.and_then(|admission| admission.cluster_queue.clone());
        let queue = admitted_by.or_else(|| local_queue.as_ref()?.object.spec.cluster_queue.clone());
        let cluster_queue = queue.and_then(|name| self.cluster_queues.get(&ObjectKey::cluster(&name)));
        let namespace =
            workload.key.namespace().and_then(|name| self.namespaces.get(&ObjectKey::cluster(name)));
        let namespace_labels =
            namespace.map(|namespace| namespace.object.metadata.labels.clone().unwrap_or_default());
        let settings = Arc::clone(settings);
        Observed { workload, local_queue, cluster_queue, namespace_labels, settings, now }
    }

    pub(super) fn workloads_of_local_queue(&self, key: &ObjectKey) -> Vec<ObjectKey> {
        keys(&self.workloads.by_index(BY_LOCAL_QUEUE, key.as_str()))
    }

    /// Those whose ClusterQueue may select their namespace now, or no longer does.
    pub(super) fn workloads_of_namespace(&self, change: &Change<Namespace>) -> Vec<ObjectKey> {
        let labels = |entry: &Arc<Entry<Namespace>>| entry.object.metadata.labels.clone();
        let matters = change.old.as_ref().map(labels) != change.new.as_ref().map(labels);
        let Some(entry) = change.states().next().filter(|_| matters) else { return Vec::new() };
        keys(&self.workloads.by_index(BY_NAMESPACE, entry.key.name()))
    }

    /// Those whose decisions depend on what changed. Counters and usage do not matter to Workloads.
    pub(super) fn workloads_of_cluster_queue(&self, change: &Change<ClusterQueue>) -> Vec<ObjectKey> {
        let is_active = |entry: &Arc<Entry<ClusterQueue>>| super::unadmitted::is_active(&entry.object);
        let matters = match (&change.old, &change.new) {
            (Some(old), Some(new)) => {
                old.object.spec != new.object.spec
                    || old.deleting != new.deleting
                    || is_active(old) != is_active(new)
            }
            _ => true,
        };
        let Some(entry) = change.states().next().filter(|_| matters) else { return Vec::new() };
        let name = entry.key.name();
        let mut found = keys(&self.workloads.by_index(BY_ADMISSION, name));
        for local_queue in self.local_queues.by_index(BY_CLUSTER_QUEUE, name) {
            found.extend(self.workloads_of_local_queue(&local_queue.key));
        }
        found
    }
}

fn keys<T>(entries: &[Arc<Entry<T>>]) -> Vec<ObjectKey> {
    entries.iter().map(|entry| entry.key.clone()).collect()
}
