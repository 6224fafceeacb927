//! What a RayCluster waits for, in words for people.

use quintet_api::ray::v1::{RayCluster, WorkerGroupSpec};

use super::{Suspension, suspension};
use crate::{
    pod::tls,
    raycluster::{
        observe::{Observed, Pod, wanted_pods},
        status::{self, has},
    },
};

/// What a cluster waits for whose objects and pods are made.
pub(super) fn awaits(observed: &Observed) -> Vec<String> {
    match suspension(observed) {
        Suspension::DeletesPods if !observed.pods.is_empty() => {
            return vec![format!("{} Pods to be deleted", observed.pods.len())];
        }
        Suspension::DeletesPods | Suspension::MakesNone => {
            return vec!["spec.suspend to be false".to_owned()];
        }
        Suspension::None => {}
    }
    let mut awaits = Vec::new();
    if tls::is_enabled(&observed.object().spec)
        && let Err(missing) = &observed.certificates
    {
        awaits.push(format!("certificates: {missing}"));
    }
    awaits.extend(head(observed));
    awaits.extend(observed.groups().iter().filter_map(|group| workers(observed, group)));
    awaits
}

fn head(observed: &Observed) -> Option<String> {
    let Some(head) = observed.heads().next() else { return Some("head Pod to be created".to_owned()) };
    (!head.object.is_running_and_ready()).then(|| format!("head Pod {}: {}", head.key.name(), unready(head)))
}

/// Why a pod is not ready.
fn unready(pod: &Pod) -> String {
    let reason = pod.object.ready.as_ref().map(|ready| &*ready.reason).filter(|reason| !reason.is_empty());
    match reason {
        Some(reason) => format!("{:?}, {reason}", pod.object.phase),
        None => format!("{:?}", pod.object.phase),
    }
}

fn workers(observed: &Observed, group: &WorkerGroupSpec) -> Option<String> {
    let wanted = usize::try_from(wanted_pods(group)).unwrap_or_default();
    let of_group = || observed.workers_of(&group.group_name);
    let ready = of_group().filter(|pod| pod.object.is_running_and_ready()).count();
    let (name, present) = (&group.group_name, of_group().count());
    if present > wanted {
        return Some(format!("worker group {name}: {} surplus Pods to be deleted", present - wanted));
    }
    (ready < wanted).then(|| format!("worker group {name}: {ready} of {wanted} workers ready"))
}

/// How far a cluster is, for those who wait for it: `RayCluster train-abc12: 1 of 3 workers ready`.
pub(crate) fn progress(cluster: &RayCluster) -> String {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let Some(status) = &cluster.status else { return format!("RayCluster {name}: not reconciled yet") };
    if let Some(reason) = status.reason.as_deref().filter(|reason| !reason.is_empty()) {
        return format!("RayCluster {name}: {reason}");
    }
    let wanted = status.desired_worker_replicas.unwrap_or_default();
    let ready = status.ready_worker_replicas.unwrap_or_default();
    if ready >= wanted && !has(status, status::HEAD_READY) {
        return format!("RayCluster {name}: head not ready");
    }
    format!("RayCluster {name}: {ready} of {wanted} workers ready")
}
