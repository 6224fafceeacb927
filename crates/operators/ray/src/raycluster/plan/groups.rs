//! Worker groups: how many pods they should have, and which ones go.

use std::collections::{BTreeMap, BTreeSet};

use quintet_api::ray::v1::WorkerGroupSpec;
use quintet_controller::{Action, ObjectKey};

use super::{
    Draft, owned, pod_kind,
    pods::{delete, delete_together, is_over},
};
use crate::{
    labels,
    pod::{Blueprint, Place, is_autoscaling},
    raycluster::{
        events::{self, Deletion},
        observe::{Pod, hosts, wanted_pods},
        pod_names::Slot,
    },
    schedulers,
};

/// Adds what has to be done about the pods of a group.
pub(crate) fn plan(draft: &mut Draft<'_>, group: &WorkerGroupSpec) {
    let pods: Vec<_> = draft.observed.workers_of(&group.group_name).cloned().collect();
    if group.suspend == Some(true) {
        return delete_together(draft, &pods, &Deletion::SuspendedGroup(&group.group_name));
    }
    if hosts(group) > 1 && draft.observed.settings.gates.multi_host_indexing {
        plan_replicas(draft, group, &pods);
    } else {
        plan_pods(draft, group, &pods);
    }
}

/// Names of pods that the autoscaler, or a user, wants gone.
fn named(group: &WorkerGroupSpec) -> &[String] {
    let strategy = group.scale_strategy.as_ref();
    strategy.and_then(|strategy| strategy.workers_to_delete.as_deref()).unwrap_or_default()
}

/// Whether the autoscaler, or a user, wants this pod of the group gone. Only pods of the group are asked about: a
/// name alone is no reason to delete a foreign pod.
pub(crate) fn is_named(group: &WorkerGroupSpec, pod: &Pod) -> bool {
    named(group).iter().any(|name| name == pod.key.name())
}

/// Whether surplus pods are ours to choose: with an autoscaler they are its own.
fn chooses_surplus(draft: &Draft<'_>) -> bool {
    !is_autoscaling(&draft.observed.object().spec) || draft.observed.settings.random_pod_delete
}

fn plan_pods(draft: &mut Draft<'_>, group: &WorkerGroupSpec, pods: &[Pod]) {
    let named: BTreeSet<_> = named(group).iter().map(String::as_str).collect();
    let mut living = Vec::new();
    for pod in pods.iter().filter(|pod| !pod.deleting) {
        if is_over(&pod.object) {
            delete(draft, pod, &Deletion::Over);
        } else if named.contains(pod.key.name()) {
            delete(draft, pod, &Deletion::Named);
        } else {
            living.push(pod);
        }
    }
    let wanted = usize::try_from(wanted_pods(group)).unwrap_or_default();
    // A pod that is going still holds its place, so that there are never more than wanted.
    let missing = if draft.makes_none { 0 } else { wanted.saturating_sub(pods.len()) };
    make_pods(draft, group, pods, missing);
    if living.len() > wanted && chooses_surplus(draft) {
        living.sort_by_key(|pod| std::cmp::Reverse(attachment(pod)));
        for pod in living.into_iter().skip(wanted) {
            delete(draft, pod, &Deletion::Surplus);
        }
    }
}

/// How much would be lost with a pod: one that runs more than one that does not, an old one more than a new one.
fn attachment(pod: &Pod) -> (bool, bool, std::cmp::Reverse<u32>) {
    let view = &pod.object;
    let is_running = view.phase == crate::pod_view::Phase::Running;
    (view.is_running_and_ready(), is_running, std::cmp::Reverse(index(pod).unwrap_or(u32::MAX)))
}

fn index(pod: &Pod) -> Option<u32> {
    pod.object.label(labels::REPLICA_INDEX).parse().ok()
}

/// Replica numbers that are free, smallest first.
fn free_indexes<'a>(pods: impl Iterator<Item = &'a Pod>) -> impl Iterator<Item = u32> {
    let taken: BTreeSet<_> = pods.filter_map(index).collect();
    (0..).filter(move |number| !taken.contains(number))
}

fn make_pods(draft: &mut Draft<'_>, group: &WorkerGroupSpec, pods: &[Pod], count: usize) {
    for replica in free_indexes(pods.iter()).take(count) {
        if !draft.takes_room() {
            return;
        }
        make(draft, group, &Place { replica, ..Place::default() });
    }
}

fn make(draft: &mut Draft<'_>, group: &WorkerGroupSpec, place: &Place) {
    let observed = draft.observed;
    let blueprint = Blueprint::new(observed.object(), &observed.settings);
    let slot = Slot { group: group.group_name.as_str().into(), place: Some((place.replica, place.host)) };
    let name = observed.names.name(&blueprint.worker_prefix(group), &slot, |name| draft.is_taken(name));
    draft.take_name(&name);
    let mut pod = blueprint.worker_pod(group, place, &name);
    schedulers::mark(&mut pod, &group.group_name, observed.object(), &observed.settings);
    let created = events::created_worker_pod(&ObjectKey::new(observed.namespace(), &name));
    draft.act_with_event(Action::create(pod_kind(), &owned(observed.object(), &pod)), created);
}

/// Replicas of several hosts are made and deleted as a whole: a slice of accelerators works only complete.
fn plan_replicas(draft: &mut Draft<'_>, group: &WorkerGroupSpec, pods: &[Pod]) {
    let hosts = usize::try_from(hosts(group)).unwrap_or(1);
    let named: BTreeSet<_> = named(group).iter().map(String::as_str).collect();
    let mut replicas: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods {
        let name = pod.object.label(labels::REPLICA_NAME);
        if !name.is_empty() {
            replicas.entry(name).or_default().push(pod);
        }
    }
    let mut living = Vec::new();
    for (name, members) in &replicas {
        let why = if let Some(over) = members.iter().find(|pod| is_over(&pod.object)) {
            Some(events::replica_over(over))
        } else if members.len() < hosts || members.iter().any(|pod| pod.deleting) {
            Some("cleanup of incomplete multi-host group".to_owned())
        } else if members.iter().any(|pod| named.contains(pod.key.name())) {
            Some("autoscaler scale-down request".to_owned())
        } else {
            None
        };
        match why {
            Some(why) => delete_replica(draft, group, members, why),
            None => living.push((*name, members.clone())),
        }
    }
    let wanted = usize::try_from(wanted_pods(group)).unwrap_or_default() / hosts.max(1);
    let missing = if draft.makes_none { 0 } else { wanted.saturating_sub(replicas.len()) };
    let mut names: BTreeSet<_> = replicas.keys().map(|name| (*name).to_owned()).collect();
    for replica in free_indexes(replicas.values().flatten().copied()).take(missing) {
        if !draft.takes_room() {
            break;
        }
        make_replica(draft, group, replica, hosts, &mut names);
    }
    if living.len() > wanted && chooses_surplus(draft) {
        living.sort_by_key(|(_, members)| {
            let least = members.iter().map(|pod| attachment(pod)).min();
            std::cmp::Reverse(least)
        });
        for (_, members) in living.into_iter().skip(wanted) {
            delete_replica(draft, group, &members, "scaling down".to_owned());
        }
    }
}

/// Deletes all hosts of a replica.
fn delete_replica(draft: &mut Draft<'_>, group: &WorkerGroupSpec, members: &[&Pod], why: String) {
    let why = Deletion::Replica(&group.group_name, why);
    for pod in members {
        delete(draft, pod, &why);
    }
}

/// Makes all hosts of a replica: half of one would be deleted again.
fn make_replica(
    draft: &mut Draft<'_>,
    group: &WorkerGroupSpec,
    replica: u32,
    hosts: usize,
    names: &mut BTreeSet<String>,
) {
    let slot = Slot { group: group.group_name.as_str().into(), place: Some((replica, 0)) };
    let replica_name = draft.observed.names.replica_name(&slot, |name| names.contains(name));
    names.insert(replica_name.clone());
    for host in 0..u32::try_from(hosts).unwrap_or_default() {
        make(draft, group, &Place { replica, host, replica_name: replica_name.clone() });
        if host > 0 {
            draft.takes_room();
        }
    }
}
