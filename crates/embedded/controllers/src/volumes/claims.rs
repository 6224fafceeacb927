//! The plan for one claim.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, PersistentVolumeSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::Quantity;
use quintet_api::selector::Selector;
use quintet_controller::api::PatchKind;
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Event, Plan, StatusPatch, Step};
use serde_json::json;

use super::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, ObservedClaim, PROVISIONED_BY, PROVISIONER, SELECTED_NODE,
    STORAGE_PROVISIONER, claim_of,
};

const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";
const EXTERNAL_PROVISIONING: &str = "ExternalProvisioning";
const PROVISIONING_SUCCEEDED: &str = "ProvisioningSucceeded";
const PROVISIONING_FAILED: &str = "ProvisioningFailed";
pub(super) const FAILED_BINDING: &str = "FailedBinding";
const CLAIM_LOST: &str = "ClaimLost";

/// Computes the plan.
pub(super) fn plan(observed: &ObservedClaim) -> Plan {
    let claim = &observed.claim;
    let Some(spec) = claim.object.spec.as_ref().filter(|_| !claim.deleting) else { return Plan::nothing() };
    match spec.volume_name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => plan_named(observed, name),
        None => plan_unbound(observed, spec),
    }
}

/// A claim that names its volume: by us, or by its user.
fn plan_named(observed: &ObservedClaim, name: &str) -> Plan {
    let claim = &observed.claim;
    let is_bound = annotation(claim, BIND_COMPLETED).is_some();
    let Some(volume) = observed.volumes.iter().find(|volume| volume.key.name() == name) else {
        if is_bound {
            let note = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
            let status = PersistentVolumeClaimStatus { phase: Some("Lost".to_owned()), ..status_of(claim) };
            let mut plan = Plan { status: patch_of(claim, &status), ..Plan::default() };
            plan.events.extend(plan.status.is_some().then(|| Event::warning(CLAIM_LOST, "Bind", note)));
            return plan;
        }
        return Plan::awaiting(format!("PersistentVolume {name}"));
    };
    if claim_of(&volume.object).is_some_and(|(key, uid)| {
        key != claim.key || uid.is_some_and(|uid| !uid.is_empty() && uid != claim.uid.as_str())
    }) {
        let note = format!("volume {name:?} already bound to a different claim.");
        return Plan { events: vec![Event::warning(FAILED_BINDING, "Bind", note)], ..Plan::default() };
    }
    bind(observed, volume, false)
}

/// A claim without a volume.
fn plan_unbound(observed: &ObservedClaim, spec: &PersistentVolumeClaimSpec) -> Plan {
    let claim = &observed.claim;
    let mode = observed.class.as_ref().and_then(|class| class.object.volume_binding_mode.as_deref());
    let waits = mode == Some(WAIT_FOR_FIRST_CONSUMER) && annotation(claim, SELECTED_NODE).is_none();
    if let Some(volume) = matching_volume(observed, spec).filter(|volume| !waits || is_reserved(volume)) {
        return bind(observed, volume, true);
    }
    let pending = PersistentVolumeClaimStatus { phase: Some("Pending".to_owned()), ..status_of(claim) };
    let status = patch_of(claim, &pending);
    let event = match &observed.class {
        _ if waits => {
            let note = "waiting for first consumer to be created before binding";
            Event::normal(WAIT_FOR_FIRST_CONSUMER, "Bind", note)
        }
        Some(class) if class.object.provisioner == PROVISIONER => {
            if let Some(volume) = volume(observed, spec) {
                return provision(claim, &volume);
            }
            let note = "the built-in provisioner has no directory; start the controllers with one";
            Event::warning(PROVISIONING_FAILED, "Provision", note)
        }
        Some(class) => {
            let provisioner = &class.object.provisioner;
            let note = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator."
            );
            Event::normal(EXTERNAL_PROVISIONING, "Provision", note)
        }
        None => {
            let note = "no persistent volumes available for this claim and no storage class is set";
            Event::normal(FAILED_BINDING, "Bind", note)
        }
    };
    let awaits = vec![event.note.clone()];
    Plan { status, events: vec![event], awaits, ..Plan::default() }
}

fn annotation<'a>(claim: &'a Entry<PersistentVolumeClaim>, name: &str) -> Option<&'a String> {
    claim.object.metadata.annotations.as_ref()?.get(name)
}

fn status_of(claim: &Entry<PersistentVolumeClaim>) -> PersistentVolumeClaimStatus {
    claim.object.status.clone().unwrap_or_default()
}

fn patch_of(
    claim: &Entry<PersistentVolumeClaim>,
    status: &PersistentVolumeClaimStatus,
) -> Option<StatusPatch> {
    StatusPatch::between(claim, &status_of(claim), status)
}

fn is_reserved(volume: &Entry<PersistentVolume>) -> bool {
    claim_of(&volume.object).is_some()
}

fn storage(amounts: Option<&BTreeMap<String, WireQuantity>>) -> Option<Quantity> {
    amounts?.get("storage").and_then(|amount| Quantity::try_from(amount).ok())
}

fn request(spec: &PersistentVolumeClaimSpec) -> Quantity {
    storage(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref())).unwrap_or_default()
}

/// The volume reserved for a claim, or the smallest free one that will do.
fn matching_volume<'a>(
    observed: &'a ObservedClaim,
    spec: &PersistentVolumeClaimSpec,
) -> Option<&'a Entry<PersistentVolume>> {
    let claim = &observed.claim;
    let is_own = |volume: &&&Entry<PersistentVolume>| {
        claim_of(&volume.object).is_some_and(|(key, uid)| {
            key == claim.key && uid.is_none_or(|uid| uid.is_empty() || uid == claim.uid.as_str())
        })
    };
    let volumes: Vec<_> = observed.volumes.iter().map(|volume| &**volume).collect();
    if let Some(own) = volumes.iter().find(is_own) {
        return Some(own);
    }
    let fits = |volume: &&&Entry<PersistentVolume>| fits(spec, volume);
    volumes.iter().filter(fits).min_by_key(|volume| capacity(volume)).copied()
}

fn capacity(volume: &Entry<PersistentVolume>) -> Quantity {
    storage(volume.object.spec.as_ref().and_then(|spec| spec.capacity.as_ref())).unwrap_or_default()
}

fn fits(claim: &PersistentVolumeClaimSpec, volume: &Entry<PersistentVolume>) -> bool {
    let Some(spec) = volume.object.spec.as_ref().filter(|_| !volume.deleting) else { return false };
    let class = |class: &Option<String>| class.clone().unwrap_or_default();
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let offered = spec.access_modes.as_deref().unwrap_or_default();
    let selector = claim.selector.as_ref().map(Selector::try_from);
    let labels = volume.object.metadata.labels.clone().unwrap_or_default();
    let is_selected =
        selector.is_none_or(|selector| selector.is_ok_and(|selector| selector.matches(&labels)));
    let phase = volume.object.status.as_ref().and_then(|status| status.phase.as_deref());
    spec.claim_ref.is_none()
        && !matches!(phase, Some("Released" | "Failed"))
        && class(&spec.storage_class_name) == class(&claim.storage_class_name)
        && mode(&spec.volume_mode) == mode(&claim.volume_mode)
        && claim.access_modes.iter().flatten().all(|mode| offered.contains(mode))
        && capacity(volume) >= request(claim)
        && is_selected
}

/// A new volume of the built-in class: a directory on this machine.
fn volume(observed: &ObservedClaim, spec: &PersistentVolumeClaimSpec) -> Option<PersistentVolume> {
    let claim = &observed.claim;
    let (namespace, name) = (claim.key.namespace().unwrap_or_default(), claim.key.name());
    let volume = format!("pvc-{}", claim.uid);
    let directory = observed.directory.as_ref()?.join(format!("{volume}_{namespace}_{name}"));
    let class = observed.class.as_ref()?;
    let host_path = HostPathVolumeSource {
        path: directory.to_string_lossy().into_owned(),
        type_: Some("DirectoryOrCreate".to_owned()),
    };
    Some(PersistentVolume {
        metadata: ObjectMeta {
            name: Some(volume),
            annotations: Some(BTreeMap::from([(PROVISIONED_BY.to_owned(), PROVISIONER.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes.clone(),
            capacity: Some(BTreeMap::from([("storage".to_owned(), request(spec).into())])),
            claim_ref: Some(reference(claim)),
            host_path: Some(host_path),
            persistent_volume_reclaim_policy: class.object.reclaim_policy.clone(),
            storage_class_name: Some(class.key.name().to_owned()),
            volume_mode: spec.volume_mode.clone(),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    })
}

fn provision(claim: &Entry<PersistentVolumeClaim>, volume: &PersistentVolume) -> Plan {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let note = format!("Successfully provisioned volume {name}");
    let create = Action::ensure(ApiKind::of::<PersistentVolume>(), volume).with_event(Event::normal(
        PROVISIONING_SUCCEEDED,
        "Provision",
        note,
    ));
    let annotations = json!({ STORAGE_PROVISIONER: PROVISIONER });
    let patch = json!({ "metadata": { "uid": claim.uid, "annotations": annotations } });
    let mark = Action::merge(ApiKind::of::<PersistentVolumeClaim>(), claim.key.clone(), patch);
    Plan { steps: vec![mark.into(), create], ..Plan::default() }
}

fn reference(claim: &Entry<PersistentVolumeClaim>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.key.namespace().map(str::to_owned),
        name: Some(claim.key.name().to_owned()),
        uid: Some(claim.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// Binds both sides, in an order that can be taken up again after every step: the volume's claim, the volume's phase, the
/// claim's volume, the claim's phase.
fn bind(observed: &ObservedClaim, volume: &Entry<PersistentVolume>, is_our_choice: bool) -> Plan {
    let claim = &observed.claim;
    let mut steps: Vec<Step> = Vec::new();
    let kind = ApiKind::of::<PersistentVolume>();
    let is_complete = claim_of(&volume.object).is_some_and(|(_, uid)| uid == Some(claim.uid.as_str()));
    if !is_complete {
        let was_reserved = is_reserved(volume);
        let annotations = if was_reserved { json!({}) } else { json!({ BOUND_BY_CONTROLLER: "yes" }) };
        let patch = json!({
            "metadata": { "uid": volume.uid, "resourceVersion": volume.version.to_string(), "annotations": annotations },
            "spec": { "claimRef": reference(claim) },
        });
        steps.push(Action::merge(kind.clone(), volume.key.clone(), patch).into());
    }
    let phase = volume.object.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase != Some("Bound") {
        let patch = json!({ "metadata": { "uid": volume.uid }, "status": { "phase": "Bound" } });
        let action = Action::Patch {
            kind,
            key: volume.key.clone(),
            subresource: Some("status".to_owned()),
            patch_kind: PatchKind::Merge,
            patch,
        };
        steps.push(action.into());
    }
    if annotation(claim, BIND_COMPLETED).is_none() {
        let mut annotations = json!({ BIND_COMPLETED: "yes" });
        if is_our_choice {
            annotations[BOUND_BY_CONTROLLER] = "yes".into();
        }
        let patch = json!({
            "metadata": { "uid": claim.uid, "annotations": annotations },
            "spec": { "volumeName": volume.key.name() },
        });
        steps.push(Action::merge(ApiKind::of::<PersistentVolumeClaim>(), claim.key.clone(), patch).into());
    }
    let spec = volume.object.spec.as_ref();
    let status = PersistentVolumeClaimStatus {
        phase: Some("Bound".to_owned()),
        access_modes: spec.and_then(|spec| spec.access_modes.clone()),
        capacity: spec.and_then(|spec| spec.capacity.clone()),
        ..status_of(claim)
    };
    Plan { steps, status: patch_of(claim, &status), ..Plan::default() }
}
