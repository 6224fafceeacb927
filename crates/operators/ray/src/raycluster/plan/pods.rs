//! Which pods are made and which are deleted.

use quintet_api::ray::events as reasons;
use quintet_api::ray::v1::RayClusterUpgradeType;
use quintet_controller::{Action, ObjectKey};
use serde_json::json;

use super::{Draft, Suspension, groups, owned, pod_kind, suspension};
use crate::{
    labels,
    pod::{Blueprint, tls},
    pod_view::{ContainerState, Phase, PodView, RestartPolicy},
    raycluster::{
        events::{self, Deletion},
        observe::{Observed, Pod},
        pod_names::Slot,
        status::{self, has},
    },
    schedulers::{
        self,
        native::{self, Preparation},
    },
    spec_hash::recreate_hash,
};

/// Adds what has to be done about pods.
pub(crate) fn plan(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    match suspension(observed) {
        Suspension::DeletesPods => return delete_together(draft, &observed.pods, &Deletion::Suspension),
        Suspension::MakesNone => return,
        Suspension::None => {}
    }
    mark_foreign_head(draft);
    if is_outdated(observed) {
        return delete_together(draft, &observed.pods, &Deletion::Recreation);
    }
    match schedulers::prepare(observed.object(), &observed.settings) {
        Ok(steps) => draft.steps.extend(steps),
        Err(error) => {
            draft.is_waiting = true;
            return draft.warn(reasons::FAILED_TO_CREATE_POD_GROUP, "Create", error);
        }
    }
    if !prepare_gang(draft) {
        return;
    }
    if tls::is_enabled(&observed.object().spec) && observed.certificates.is_err() {
        draft.is_waiting = true;
        draft.makes_none = true;
    }
    let first = draft.steps.len();
    plan_head(draft);
    for group in observed.groups() {
        groups::plan(draft, group);
    }
    // Whatever goes makes room, in quotas too, for what comes.
    if let Some(steps) = draft.steps.get_mut(first..) {
        steps.sort_by_key(|step| !matches!(step.action, Action::Delete { .. }));
    }
}

/// Sees to it that Kubernetes' own scheduler knows the cluster as a gang; `false` if pods have to wait for that.
fn prepare_gang(draft: &mut Draft<'_>) -> bool {
    let Some(gang) = &draft.observed.gang else {
        return true;
    };
    match native::prepare(draft.observed.object(), gang) {
        Preparation::Ready(steps) => {
            draft.steps.extend(steps);
            true
        }
        Preparation::Wait(steps) => {
            draft.steps.extend(steps);
            draft.is_waiting = true;
            false
        }
        Preparation::Taken(error) => {
            draft.is_waiting = true;
            draft.warn(reasons::FAILED_TO_CREATE_POD_GROUP, "Create", error);
            false
        }
    }
}

/// Whether a pod has come to its end and has to make room for another.
pub(crate) fn is_over(pod: &PodView) -> bool {
    let ray_has_ended = || matches!(pod.containers.first(), Some(ray) if matches!(ray.state, ContainerState::Terminated { .. }));
    match pod.phase {
        Phase::Failed | Phase::Succeeded => true,
        // The kubelet would not start it again, and the pod would stay for the sake of its sidecars.
        Phase::Running => pod.restart_policy == RestartPolicy::Never && ray_has_ended(),
        Phase::Pending | Phase::Unknown => false,
    }
}

/// Deletes a pod, unless its deletion is in progress.
pub(crate) fn delete(draft: &mut Draft<'_>, pod: &Pod, why: &Deletion<'_>) {
    if !pod.deleting && draft.takes_room() {
        let event = events::deleted(draft.observed.key(), pod, why);
        draft.act_with_event(Action::delete(pod_kind(), pod), event);
    }
}

/// Deletes pods that go for one reason, and reports them with one event.
pub(crate) fn delete_together(draft: &mut Draft<'_>, pods: &[Pod], why: &Deletion<'_>) {
    let living = pods.iter().filter(|pod| !pod.deleting);
    let living: Vec<_> = living.take_while(|_| draft.takes_room()).collect();
    let Some((last, others)) = living.split_last() else {
        return;
    };
    for pod in others {
        draft.act(Action::delete(pod_kind(), pod));
    }
    let event = events::deleted(draft.observed.key(), last, why);
    draft.act_with_event(Action::delete(pod_kind(), last), event);
}

/// The head of a cluster whose pods are made again when its spec changes.
fn recreated_head(observed: &Observed) -> Option<&Pod> {
    let strategy = observed.object().spec.upgrade_strategy.as_ref().and_then(|strategy| strategy.type_);
    observed.heads().next().filter(|_| strategy == Some(RayClusterUpgradeType::Recreate))
}

/// Whether another operator made a head: its hash means nothing to us.
fn is_foreign(observed: &Observed, head: &Pod) -> bool {
    let maker = head.object.annotations.get(labels::OPERATOR_VERSION).map_or("", String::as_str);
    !maker.is_empty() && maker != observed.settings.version
}

/// Marks the head of another operator as ours.
fn mark_foreign_head(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let Some(head) = recreated_head(observed).filter(|head| is_foreign(observed, head)) else {
        return;
    };
    let ours = json!({"metadata": {"annotations": {
        labels::OPERATOR_VERSION: observed.settings.version,
        labels::RECREATE_HASH: recreate_hash(&observed.object().spec),
    }}});
    draft.act(Action::merge(pod_kind(), head.key.clone(), ours));
}

/// Whether the spec has changed since the head was made, and the user wants other pods then.
pub(crate) fn is_outdated(observed: &Observed) -> bool {
    recreated_head(observed).filter(|head| !is_foreign(observed, head)).is_some_and(|head| {
        let made_from = head.object.annotations.get(labels::RECREATE_HASH).map_or("", String::as_str);
        !made_from.is_empty() && made_from != recreate_hash(&observed.object().spec)
    })
}

fn plan_head(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let heads: Vec<_> = observed.heads().collect();
    match heads.as_slice() {
        [] if may_be_made(observed) && !draft.makes_none => make_head(draft),
        [head] if is_over(&head.object) => {
            delete(draft, head, &Deletion::Over);
        }
        [] | [_] => {}
        several => keep_one(draft, several),
    }
}

/// Of several heads that are ours the one stays that loses most by going: one that lives, of those one
/// that runs, and of those the oldest. Foreign heads are left alone.
fn keep_one(draft: &mut Draft<'_>, heads: &[&Pod]) {
    let observed = draft.observed;
    let is_ours = |head: &&&Pod| head.object.controller.as_deref() == Some(observed.cluster.uid.as_str());
    let mut ours: Vec<&Pod> = heads.iter().filter(is_ours).copied().collect();
    ours.sort_by_key(|head| {
        let pod = &head.object;
        (head.deleting, is_over(pod), pod.phase != Phase::Running, pod.created, &head.key)
    });
    if ours.len() < heads.len() {
        let names: Vec<_> = heads.iter().map(|head| head.key.name()).collect();
        draft.warn(
            reasons::FAILED_TO_CREATE_HEAD_POD,
            "Reconcile",
            format!(
                "RayCluster {} has {} head Pods ({}) and can have only one; delete the others",
                observed.key(),
                heads.len(),
                names.join(", ")
            ),
        );
    }
    if let [kept, others @ ..] = ours.as_slice() {
        for head in others {
            delete(draft, head, &Deletion::SecondHead(kept.key.clone()));
        }
    }
}

/// A RayJob that submits from the head has failed when that head is gone: another one would know nothing of it.
fn may_be_made(observed: &Observed) -> bool {
    let was_provisioned = has(&observed.status(), status::PROVISIONED);
    !(was_provisioned && observed.annotation(labels::DISABLE_HEAD_RESTART) == Some("true"))
}

fn make_head(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let blueprint = Blueprint::new(observed.object(), &observed.settings);
    let name = blueprint.fixed_head_name().unwrap_or_else(|| {
        observed.names.name(&blueprint.head_prefix(), &Slot::head(), |name| draft.is_taken(name))
    });
    let mut pod = blueprint.head_pod(&name);
    schedulers::mark(&mut pod, labels::HEAD_GROUP, observed.object(), &observed.settings);
    let created = events::created_head_pod(&ObjectKey::new(observed.namespace(), &name));
    let create = Action::create(pod_kind(), &owned(observed.object(), &pod));
    // Before all workers, which are of no use without it: a quota may have room for a few only.
    draft.steps.push(create.with_event(created).sequential());
}
