//! Which pods are made and which are deleted.

use quintet_api::ray::events;
use quintet_api::ray::v1::RayClusterUpgradeType;
use quintet_controller::{Action, Event};
use serde_json::json;

use super::{Draft, Suspension, groups, owned, pod_kind, suspension};
use crate::{
    labels,
    pod::{Blueprint, tls},
    pod_view::{ContainerState, Phase, PodView},
    raycluster::{
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
        Suspension::DeletesPods => return delete_all(draft),
        Suspension::MakesNone => return,
        Suspension::None => {}
    }
    if wants_recreation(draft) {
        return delete_all(draft);
    }
    match schedulers::prepare(observed.object(), &observed.settings) {
        Ok(steps) => draft.steps.extend(steps),
        Err(error) => {
            draft.is_waiting = true;
            return draft.warn(events::FAILED_TO_CREATE_POD_GROUP, "Create", error);
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
            draft.warn(events::FAILED_TO_CREATE_POD_GROUP, "Create", error);
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
        Phase::Running => pod.never_restarts && ray_has_ended(),
        Phase::Pending | Phase::Unknown => false,
    }
}

/// Why a pod that is over is deleted, for people.
pub(crate) fn termination(pod: &Pod) -> String {
    let view = &pod.object;
    let ray = view.containers.first().map(|ray| &ray.state);
    let how = match ray {
        Some(ContainerState::Terminated { exit_code, reason, .. }) => {
            format!("; its Ray container ended with exit code {exit_code} ({reason})")
        }
        _ => String::new(),
    };
    format!("Pod {} is {:?}{how}", pod.key, view.phase)
}

/// Deletes a pod, unless its deletion is in progress.
pub(crate) fn delete(draft: &mut Draft<'_>, pod: &Pod, reason: &str, note: String) {
    if !pod.deleting && draft.takes_room() {
        draft.act_with_event(Action::delete(pod_kind(), pod), Event::normal(reason, "Delete", note));
    }
}

fn delete_all(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let living = observed.pods.iter().filter(|pod| !pod.deleting);
    let living: Vec<_> = living.take_while(|_| draft.takes_room()).collect();
    let Some((last, others)) = living.split_last() else {
        return;
    };
    for pod in others {
        draft.act(Action::delete(pod_kind(), pod));
    }
    let note = format!("Deleted {} Pods of RayCluster {}", living.len(), observed.key());
    draft
        .act_with_event(Action::delete(pod_kind(), last), Event::normal(events::DELETED_POD, "Delete", note));
}

/// Whether the spec has changed since the head was made, and the user wants other pods then. A head of another
/// operator is marked as ours: its hash says nothing.
fn wants_recreation(draft: &mut Draft<'_>) -> bool {
    let observed = draft.observed;
    let spec = &observed.object().spec;
    let strategy = spec.upgrade_strategy.as_ref().and_then(|strategy| strategy.type_);
    if strategy != Some(RayClusterUpgradeType::Recreate) {
        return false;
    }
    let Some(head) = observed.heads().next() else {
        return false;
    };
    let annotation = |name| head.object.annotations.get(name).map_or("", String::as_str);
    let (maker, made_from, hash) =
        (annotation(labels::OPERATOR_VERSION), annotation(labels::RECREATE_HASH), recreate_hash(spec));
    if !maker.is_empty() && maker != observed.settings.version {
        let ours = json!({"metadata": {"annotations": {
            labels::OPERATOR_VERSION: observed.settings.version,
            labels::RECREATE_HASH: hash,
        }}});
        draft.act(Action::merge(pod_kind(), head.key.clone(), ours));
        return false;
    }
    !made_from.is_empty() && made_from != hash
}

fn plan_head(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let heads: Vec<_> = observed.heads().collect();
    match heads.as_slice() {
        [] if may_be_made(observed) && !draft.makes_none => make_head(draft),
        [head] if is_over(&head.object) => {
            let note = format!("Deleted head {}", termination(head));
            delete(draft, head, events::DELETED_HEAD_POD, note);
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
            events::FAILED_TO_CREATE_HEAD_POD,
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
            let note = format!("Deleted head Pod {}, because the head is {}", head.key, kept.key);
            delete(draft, head, events::DELETED_HEAD_POD, note);
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
    let note = format!("Created head Pod {}/{name}", observed.namespace());
    let create = Action::create(pod_kind(), &owned(observed.object(), &pod));
    // Before all workers, which are of no use without it: a quota may have room for a few only.
    draft.steps.push(create.with_event(Event::normal(events::CREATED_HEAD_POD, "Create", note)).sequential());
}
