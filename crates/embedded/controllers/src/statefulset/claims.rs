//! What becomes of the claims of a StatefulSet: the retention policy, carried out by owner references.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use quintet_api::owners::{controller_of, controller_reference};
use quintet_controller::cache::Entry;
use quintet_controller::{ApiKind, Event, Step};
use serde_json::{Value, json};

use super::objects::{claim_name, claim_templates, ordinal_of};
use crate::claim::patch_metadata;
use crate::pod::{PodView, owner_pod};

/// Reason of the event about a claim that another controller owns.
const CONFLICTING_CONTROLLER: &str = "ConflictingController";

/// Whether a claim belongs to the set, by its name.
pub(super) fn is_of(set: &Entry<StatefulSet>, claim: &str) -> bool {
    claim_templates(&set.object).iter().any(|template| {
        let volume = template.metadata.name.as_deref().unwrap_or_default();
        let rest = claim.strip_prefix(volume).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| ordinal_of(set.key.name(), rest).is_some())
    })
}

fn policy(set: &StatefulSet) -> (bool, bool) {
    let policy = set.spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
    let deletes = |field: Option<&String>| field.is_some_and(|value| value == "Delete");
    let when_deleted = policy.and_then(|policy| policy.when_deleted.as_ref());
    (deletes(when_deleted), deletes(policy.and_then(|policy| policy.when_scaled.as_ref())))
}

/// Whether claims go when the set goes.
pub(super) fn deletes_with_set(set: &StatefulSet) -> bool {
    policy(set).0
}

/// Gives the claims of a pod the owner that the retention policy asks for.
pub(super) fn retain(
    set: &Entry<StatefulSet>,
    claims: &[&Entry<PersistentVolumeClaim>],
    pod: &Entry<PodView>,
    is_condemned: bool,
) -> (Vec<Step>, Vec<Event>) {
    let (mut steps, mut events) = (Vec::new(), Vec::new());
    let Some(ordinal) = ordinal_of(set.key.name(), pod.key.name()) else { return (steps, events) };
    let (when_deleted, when_scaled) = policy(&set.object);
    let owner = if is_condemned && when_scaled {
        Some(owner_pod(pod))
    } else {
        controller_reference(&set.object).filter(|_| when_deleted)
    };
    for template in claim_templates(&set.object) {
        let volume = template.metadata.name.as_deref().unwrap_or_default();
        let name = claim_name(volume, set.key.name(), ordinal);
        let Some(claim) = claims.iter().find(|claim| claim.key.name() == name) else { continue };
        let is_ours = |reference: &OwnerReference| {
            reference.uid == set.uid.as_str() || reference.uid == pod.uid.as_str()
        };
        let controller = controller_of(&claim.object.metadata);
        if let Some(foreign) = controller.filter(|controller| !is_ours(controller)) {
            if owner.is_some() {
                let note = format!(
                    "PersistentVolumeClaim {name} has a conflicting controller {} {}: the retention policy is ignored",
                    foreign.kind, foreign.name
                );
                events.push(Event::warning(CONFLICTING_CONTROLLER, "Retain", note));
            }
            continue;
        }
        steps.extend(change_owner(claim, owner.as_ref(), is_ours));
    }
    (steps, events)
}

/// Replaces those owners of a claim that are ours.
fn change_owner(
    claim: &Entry<PersistentVolumeClaim>,
    owner: Option<&OwnerReference>,
    is_ours: impl Fn(&OwnerReference) -> bool,
) -> Option<Step> {
    let current = claim.object.metadata.owner_references.as_deref().unwrap_or_default();
    let outdated = current.iter().filter(|reference| is_ours(reference) && Some(*reference) != owner);
    let mut changes: Vec<Value> =
        outdated.map(|reference| json!({ "$patch": "delete", "uid": reference.uid })).collect();
    changes.extend(owner.filter(|owner| !current.contains(owner)).map(|owner| json!(owner)));
    if changes.is_empty() {
        return None;
    }
    let kind = ApiKind::of::<PersistentVolumeClaim>();
    Some(patch_metadata(&kind, &claim.key, &claim.uid, &json!({ "ownerReferences": changes })))
}
