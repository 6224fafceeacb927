//! Pending Workloads of a queue, in the order of the scheduler.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::ObjectKey;
use serde_json::{Value, json};

use super::path::{QueueRef, Window};
use crate::scheduler::Scheduler;

impl Scheduler {
    /// The pending Workloads of a queue as items of a `PendingWorkloadsSummary`; `None` if there is no such queue.
    pub(crate) fn pending_workloads(&self, queue: &QueueRef, window: Window) -> Option<Vec<Value>> {
        let engine = self.engine();
        let (cluster_queue, only) = match queue {
            QueueRef::ClusterQueue(name) => {
                engine.is_queue_active(name)?;
                (engine.queue_id(name)?, None)
            }
            QueueRef::LocalQueue(key) => {
                let (id, feeds) = engine.local_queue(key.namespace().unwrap_or_default(), key.name())?;
                (feeds, Some(id))
            }
        };
        let mut in_local_queue = BTreeMap::new();
        let positions = engine.pending_in_order(cluster_queue).into_iter().enumerate();
        let pending = positions.filter_map(|(position, id)| {
            let workload = engine.workload(id)?;
            let count = in_local_queue.entry(workload.local_queue).or_insert(0_usize);
            let of_local_queue = *count;
            *count += 1;
            Some((position, of_local_queue, workload))
        });
        let items = pending
            .filter(|(_, _, workload)| only.is_none_or(|only| workload.local_queue == only))
            .skip(window.offset)
            .take(window.limit)
            .filter_map(|(position, of_local_queue, workload)| {
                let namespace = engine.names().namespaces.name(workload.key.namespace);
                let object = self.observed(&ObjectKey::new(namespace, &workload.key.name))?;
                Some(item(object, position, of_local_queue))
            });
        Some(items.collect())
    }
}

fn item(workload: &Workload, in_cluster_queue: usize, in_local_queue: usize) -> Value {
    let metadata = &workload.metadata;
    let owner = |owner: &OwnerReference| json!({ "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid });
    let mut shown = json!({ "name": metadata.name, "namespace": metadata.namespace });
    if let Some(created) = &metadata.creation_timestamp {
        shown["creationTimestamp"] = json!(created);
    }
    let owners: Vec<Value> = metadata.owner_references.iter().flatten().map(owner).collect();
    if !owners.is_empty() {
        shown["ownerReferences"] = owners.into();
    }
    json!({
        "metadata": shown,
        "priority": workload.spec.priority.unwrap_or(0),
        "localQueueName": workload.spec.queue_name.as_deref().unwrap_or_default(),
        "positionInClusterQueue": in_cluster_queue,
        "positionInLocalQueue": in_local_queue,
    })
}
