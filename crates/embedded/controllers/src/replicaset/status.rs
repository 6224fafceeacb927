//! The status of a ReplicaSet.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use quintet_controller::cache::Entry;

use crate::pod::{Availability, PodView};
use crate::time;

/// The condition about pods that could not be created or deleted.
pub(crate) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Computes the status from the pods of a ReplicaSet.
pub(super) fn status(
    replica_set: &ReplicaSet,
    current: &ReplicaSetStatus,
    pods: &[&Entry<PodView>],
    failure: Option<(&str, &str)>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let spec = replica_set.spec.as_ref();
    let min_ready = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
    let template = spec.and_then(|spec| spec.template.as_ref()?.metadata.as_ref()?.labels.clone());
    let template: BTreeMap<_, _> = template.unwrap_or_default();
    let count = |is: &dyn Fn(&PodView) -> bool| {
        i32::try_from(pods.iter().filter(|pod| is(&pod.object)).count()).unwrap_or(i32::MAX)
    };
    let is_labeled =
        |pod: &PodView| template.iter().all(|(key, value)| pod.metadata.labels.get(key) == Some(value));
    let is_available = |pod: &PodView| pod.availability(min_ready, now) == Availability::Available;
    let some = |number: i32| (number != 0).then_some(number);
    ReplicaSetStatus {
        replicas: count(&PodView::is_active),
        fully_labeled_replicas: some(count(&|pod| pod.is_active() && is_labeled(pod))),
        ready_replicas: some(count(&|pod| pod.is_active() && pod.is_ready())),
        available_replicas: some(count(&|pod| pod.is_active() && is_available(pod))),
        terminating_replicas: Some(count(&PodView::is_terminating)),
        observed_generation: replica_set.metadata.generation,
        conditions: conditions(current, failure, now),
    }
}

fn conditions(
    current: &ReplicaSetStatus,
    failure: Option<(&str, &str)>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = current.conditions.clone().unwrap_or_default();
    match failure {
        None => conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
        // The first failure is kept: messages that differ in names only would be written again and again.
        Some(_) if conditions.iter().any(|condition| condition.type_ == REPLICA_FAILURE) => {}
        Some((reason, message)) => conditions.push(ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(time::second(now)),
        }),
    }
    (!conditions.is_empty()).then_some(conditions)
}
