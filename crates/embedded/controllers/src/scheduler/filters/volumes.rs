//! Claims of a pod: bound, to be bound, or missing.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use quintet_controller::ObjectKey;
use quintet_controller::cache::Entry;

use super::super::state::{State, View};
use super::{Obstacle, Prepared};
use crate::node::NodeView;
use crate::pod::{PodView, Volume};
use crate::volumes::is_for_pod;

/// What a claim of a pod needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::scheduler) enum ClaimNeeds {
    /// It is bound to this volume.
    Bound(String),
    /// It is bound as soon as a node is selected for its first consumer.
    Node(ObjectKey),
}

/// The claims of a pod; an error says why the pod cannot be scheduled at all.
pub(in crate::scheduler) fn claim_needs(
    state: &State,
    pod: &Entry<PodView>,
) -> Result<Vec<ClaimNeeds>, String> {
    pod.object.spec.volumes.iter().filter_map(|volume| needs_of(state, pod, volume)).collect()
}

fn needs_of(state: &State, pod: &Entry<PodView>, volume: &Volume) -> Option<Result<ClaimNeeds, String>> {
    let name = volume.claim(pod.key.name())?;
    let key = ObjectKey::new(pod.key.namespace().unwrap_or_default(), &name);
    let Some(claim) = state.claims.get(&key) else {
        return Some(Err(if volume.ephemeral.is_some() {
            format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}")
        } else {
            format!("persistentvolumeclaim {name:?} not found")
        }));
    };
    if claim.deleting {
        return Some(Err(format!("persistentvolumeclaim {name:?} is being deleted")));
    }
    if volume.ephemeral.is_some()
        && let Err(why) = is_for_pod(claim, pod)
    {
        return Some(Err(why));
    }
    Some(needs_of_claim(state, key, claim))
}

fn needs_of_claim(
    state: &State,
    key: ObjectKey,
    claim: &Entry<PersistentVolumeClaim>,
) -> Result<ClaimNeeds, String> {
    let is_bound = claim.object.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let spec = claim.object.spec.as_ref();
    if let Some(volume) = spec.and_then(|spec| spec.volume_name.clone()).filter(|_| is_bound) {
        return Ok(ClaimNeeds::Bound(volume));
    }
    let class =
        spec.and_then(|spec| spec.storage_class_name.as_ref()).and_then(|class| state.classes.get(class));
    let mode = class.and_then(|class| class.object.volume_binding_mode.as_deref());
    if mode == Some("WaitForFirstConsumer") {
        Ok(ClaimNeeds::Node(key))
    } else {
        Err("pod has unbound immediate PersistentVolumeClaims".to_owned())
    }
}

pub(super) fn filter(prepared: &Prepared<'_>, view: View<'_>, node: &NodeView) -> Option<Obstacle> {
    exclusive_claim_is_used(prepared, view).or_else(|| {
        let bound = prepared.claims.iter().filter_map(|claim| match claim {
            ClaimNeeds::Bound(volume) => view.state.volumes.get(volume),
            ClaimNeeds::Node(_) => None,
        });
        let affinities =
            bound.filter_map(|volume| volume.object.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref());
        let is_elsewhere = affinities.into_iter().any(|required| !node.matches(required));
        is_elsewhere.then(|| Obstacle::unresolvable("node(s) didn't match PersistentVolume's node affinity"))
    })
}

/// A claim with access mode ReadWriteOncePod has one pod only.
fn exclusive_claim_is_used(prepared: &Prepared<'_>, view: View<'_>) -> Option<Obstacle> {
    let namespace = prepared.pod.key.namespace().unwrap_or_default();
    let is_exclusive = |name: &str| {
        let claim = view.state.claims.get(&ObjectKey::new(namespace, name));
        let modes = claim.and_then(|claim| claim.object.spec.as_ref()?.access_modes.as_ref());
        modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteOncePod"))
    };
    let exclusive: Vec<_> = claim_names(prepared.pod).filter(|name| is_exclusive(name)).collect();
    if exclusive.is_empty() {
        return None;
    }
    let is_used = view.pods().any(|(_, placed)| {
        placed.pod.key.namespace() == Some(namespace)
            && claim_names(&placed.pod).any(|name| exclusive.contains(&name))
    });
    let reason =
        "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
    is_used.then(|| Obstacle::new(reason))
}

fn claim_names(pod: &Entry<PodView>) -> impl Iterator<Item = Cow<'_, str>> {
    pod.object.spec.volumes.iter().filter_map(|volume| volume.claim(pod.key.name()))
}
