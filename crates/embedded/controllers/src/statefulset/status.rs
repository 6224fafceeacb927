//! The status of a StatefulSet.

use k8s_openapi::api::apps::v1::StatefulSetStatus;
use quintet_controller::cache::Entry;

use super::plan::{Members, revision_of};
use crate::pod::{Availability, Phase, PodView};

/// Computes the status from the pods.
pub(super) fn status(members: &Members<'_>, current: &StatefulSetStatus) -> StatefulSetStatus {
    let pods: Vec<&Entry<PodView>> =
        members.replicas.values().flatten().copied().chain(members.condemned.iter().copied()).collect();
    let count = |is: &dyn Fn(&Entry<PodView>) -> bool| {
        i32::try_from(pods.iter().filter(|pod| is(pod)).count()).unwrap_or(i32::MAX)
    };
    let runs = |pod: &Entry<PodView>| pod.object.status.phase == Phase::Running && pod.object.is_ready();
    let (min_ready, now) = (members.min_ready_seconds(), members.observed.now);
    let is_available = |pod: &Entry<PodView>| {
        runs(pod) && pod.object.availability(min_ready, now) == Availability::Available
    };
    let is_of =
        |revision: &str, pod: &Entry<PodView>| revision_of(pod) == revision && !pod.object.is_deleting();
    let some = |number: i32| (number != 0).then_some(number);
    let (replicas, ready) = (count(&|_| true), count(&runs));
    let updated = count(&|pod| is_of(&members.update.name, pod));
    let wanted = members.spec.replicas.unwrap_or(1);
    let is_rolling = members
        .spec
        .update_strategy
        .as_ref()
        .is_none_or(|strategy| strategy.type_.as_deref() != Some("OnDelete"));
    let is_complete = is_rolling && updated == wanted && replicas == wanted && ready == wanted;
    let revision = if is_complete { &members.update.name } else { &members.current };
    StatefulSetStatus {
        replicas,
        ready_replicas: some(ready),
        available_replicas: Some(count(&is_available)),
        current_replicas: some(count(&|pod| is_of(revision, pod))),
        updated_replicas: some(updated),
        current_revision: Some(revision.clone()),
        update_revision: Some(members.update.name.clone()),
        observed_generation: members.observed.set.object.metadata.generation,
        collision_count: current.collision_count.or(Some(0)),
        conditions: current.conditions.clone(),
    }
}

/// What the StatefulSet waits for.
pub(super) fn awaits(members: &Members<'_>) -> Vec<String> {
    let pods = members.replicas.values();
    let ready = pods.flatten().filter(|pod| pod.object.is_ready()).count();
    let wanted = members.replicas.len();
    if ready < wanted { vec![format!("{ready} of {wanted} pods ready")] } else { Vec::new() }
}
