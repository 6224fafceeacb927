//! The plan for one ReplicaSet.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use quintet_api::owners::controller_reference;
use quintet_controller::cache::Entry;
use quintet_controller::{ApiKind, Plan, StatusPatch, Step};

use super::{Observed, selector, status};
use crate::claim::{self, Claimed};
use crate::pod::{Availability, PodView};
use crate::removal::RemovalOrder;
use crate::{names, pod_events, time};

/// Pods created or deleted in one reconcile, as upstream's `BurstReplicas`.
const MAX_PER_RECONCILE: usize = 500;

/// Computes the plan.
pub(super) fn plan(observed: &Observed) -> Plan {
    let Some(Claimed { owned, mut steps }) = claimed(observed) else { return Plan::nothing() };
    let mut active: Vec<_> = owned.iter().copied().filter(|pod| pod.object.is_active()).collect();
    let wanted = replicas(&observed.replica_set.object);
    if !observed.replica_set.deleting {
        steps.extend(create(observed, &owned, wanted.saturating_sub(active.len())));
        steps.extend(remove(observed, &mut active, wanted));
    }
    let min_ready = min_ready_seconds(&observed.replica_set.object);
    let becoming_available =
        owned.iter().filter_map(|pod| match pod.object.availability(min_ready, observed.now) {
            Availability::From(due) => Some(due),
            Availability::Available | Availability::Unavailable => None,
        });
    let ready = active.iter().filter(|pod| pod.object.is_ready()).count();
    Plan {
        steps,
        status: status_patch(observed, None),
        next: time::earliest(observed.now, becoming_available),
        awaits: if ready < wanted { vec![format!("{ready} of {wanted} pods ready")] } else { Vec::new() },
        ..Plan::default()
    }
}

fn claimed(observed: &Observed) -> Option<Claimed<'_, PodView>> {
    let replica_set = &observed.replica_set;
    let owner = controller_reference(&replica_set.object)?;
    let selector = selector(&replica_set.object)?;
    let kind = ApiKind::of::<Pod>();
    Some(claim::claim(&owner, replica_set.deleting, Some(&selector), &kind, &observed.pods))
}

fn replicas(replica_set: &ReplicaSet) -> usize {
    let replicas = replica_set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    usize::try_from(replicas).unwrap_or_default()
}

fn min_ready_seconds(replica_set: &ReplicaSet) -> i32 {
    replica_set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
}

/// The change of the status, with a condition about a failed creation or deletion if there was one.
pub(super) fn status_patch(observed: &Observed, failure: Option<(&str, &str)>) -> Option<StatusPatch> {
    let replica_set = &observed.replica_set;
    let owned = claimed(observed)?.owned;
    let current = replica_set.object.status.clone().unwrap_or_default();
    let desired = status::status(&replica_set.object, &current, &owned, failure, observed.now);
    StatusPatch::between(replica_set, &current, &desired)
}

fn create(observed: &Observed, owned: &[&Entry<PodView>], missing: usize) -> Vec<Step> {
    let replica_set = &observed.replica_set;
    let is_taken = |name: &String| owned.iter().any(|pod| pod.key.name() == name);
    let prefix = names::prefix(replica_set.key.name());
    let free = observed.entropy.names(&prefix, "pod").filter(|name| !is_taken(name));
    free.take(missing.min(MAX_PER_RECONCILE))
        .map(|name| pod_events::create(&pod(&replica_set.object, name)))
        .collect()
}

fn remove(observed: &Observed, active: &mut [&Entry<PodView>], wanted: usize) -> Vec<Step> {
    let siblings = observed.siblings.iter().map(|(node, count)| (node.as_str(), *count)).collect();
    RemovalOrder { now: observed.now, with_cost: true, siblings }.sort(active);
    let excess = active.len().saturating_sub(wanted).min(MAX_PER_RECONCILE);
    active.iter().take(excess).map(|pod| pod_events::delete(pod)).collect()
}

/// A new pod.
fn pod(replica_set: &ReplicaSet, name: String) -> Pod {
    let template = replica_set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
    let mut metadata = template.metadata.unwrap_or_default();
    metadata.name = Some(name);
    metadata.namespace.clone_from(&replica_set.metadata.namespace);
    metadata.owner_references = controller_reference(replica_set).map(|owner| vec![owner]);
    Pod { metadata, spec: template.spec, status: None }
}
