//! The pods and claims of a StatefulSet.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use quintet_api::owners::controller_reference;

use super::claims::deletes_with_set;
use crate::revision::POD_REVISION;

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The pod of an ordinal.
pub(super) fn pod(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> Pod {
    let set_name = set.metadata.name.clone().unwrap_or_default();
    let name = format!("{set_name}-{ordinal}");
    let mut metadata = template.metadata.clone().unwrap_or_default();
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), name.clone());
    labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
    labels.insert(POD_REVISION.to_owned(), revision.to_owned());
    metadata.name = Some(name.clone());
    metadata.namespace.clone_from(&set.metadata.namespace);
    metadata.owner_references = controller_reference(set).map(|owner| vec![owner]);
    let mut spec = template.spec.clone().unwrap_or_default();
    spec.hostname = Some(name);
    spec.subdomain = set.spec.as_ref().and_then(|spec| spec.service_name.clone());
    let claims = claim_templates(set).iter().map(|claim| {
        let volume = claim.metadata.name.clone().unwrap_or_default();
        let claim_name = claim_name(&volume, &set_name, ordinal);
        let source = PersistentVolumeClaimVolumeSource { claim_name, read_only: Some(false) };
        Volume { name: volume, persistent_volume_claim: Some(source), ..Volume::default() }
    });
    let mut volumes: Vec<_> = claims.collect();
    let others = spec.volumes.take().unwrap_or_default();
    let is_free = |volume: &Volume, taken: &[Volume]| taken.iter().all(|one| one.name != volume.name);
    let others: Vec<_> = others.into_iter().filter(|volume| is_free(volume, &volumes)).collect();
    volumes.extend(others);
    spec.volumes = (!volumes.is_empty()).then_some(volumes);
    Pod { metadata, spec: Some(spec), status: None }
}

/// The claims of an ordinal.
pub(super) fn claims(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let set_name = set.metadata.name.clone().unwrap_or_default();
    let selector = set.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone()).unwrap_or_default();
    let claim = |template: &PersistentVolumeClaim| {
        let mut claim = template.clone();
        let volume = claim.metadata.name.take().unwrap_or_default();
        claim.metadata.name = Some(claim_name(&volume, &set_name, ordinal));
        claim.metadata.namespace.clone_from(&set.metadata.namespace);
        claim.metadata.labels.get_or_insert_default().extend(selector.clone());
        claim.metadata.owner_references =
            controller_reference(set).filter(|_| deletes_with_set(set)).map(|owner| vec![owner]);
        claim.status = None;
        claim
    };
    claim_templates(set).iter().map(claim).collect()
}

pub(super) fn claim_templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec.as_ref().and_then(|spec| spec.volume_claim_templates.as_deref()).unwrap_or_default()
}

pub(super) fn claim_name(volume: &str, set: &str, ordinal: i32) -> String {
    format!("{volume}-{set}-{ordinal}")
}

/// The ordinal in the name of a pod, if it is one of the set.
pub(super) fn ordinal_of(set: &str, pod: &str) -> Option<i32> {
    let text = pod.strip_prefix(set)?.strip_prefix('-')?;
    let ordinal: i32 = text.parse().ok()?;
    (ordinal >= 0 && ordinal.to_string() == text).then_some(ordinal)
}
