//! The variant of a parent for one flavor.

use k8s_openapi::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use quintet_api::kueue::metadata::{ALLOWED_RESOURCE_FLAVORS, CONCURRENT_ADMISSION_PARENT};
use quintet_api::kueue::v1beta2::{PreemptionGate, Workload};
use quintet_api::names;
use quintet_controller::cache::Entry;

use super::GATE;
use crate::jobs::max_name_prefix;
use crate::settings::Settings;

/// Whether a Workload is never queued itself, but its variants are.
pub(crate) fn is_parent(workload: &Workload) -> bool {
    let labels = workload.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(CONCURRENT_ADMISSION_PARENT)).is_some_and(|value| value == "true")
}

/// The reference of a variant to its parent.
pub(crate) fn parent_reference(workload: &Workload) -> Option<&OwnerReference> {
    let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.kind == Workload::KIND && owner.api_version == Workload::API_VERSION)
}

/// The flavor that a variant may use.
pub(super) fn flavor_of(variant: &Workload) -> Option<&str> {
    let allowed = variant.metadata.annotations.as_ref()?.get(ALLOWED_RESOURCE_FLAVORS)?;
    allowed.split(',').map(str::trim).find(|flavor| !flavor.is_empty())
}

/// The name of a variant. As `GetWorkloadNameForVariant` of Kueue.
fn name(parent: &Entry<Workload>, flavor: &str, settings: &Settings) -> String {
    let of_parent = parent.key.name();
    let base = of_parent.rsplit_once('-').map_or(of_parent, |(base, _)| base);
    let identity = [Workload::KIND, Workload::GROUP, of_parent, parent.uid.as_str(), flavor].join("\n");
    let prefix = format!("{base}-variant-{flavor}");
    format!("{}-{}", names::head(&prefix, max_name_prefix(settings)), names::short_hash(&identity, 5))
}

/// What the parent is, but allowed one flavor only, and not allowed to preempt before its gate is opened.
pub(super) fn of(parent: &Entry<Workload>, flavor: &str, settings: &Settings) -> Workload {
    let metadata = &parent.object.metadata;
    let mut labels = metadata.labels.clone().unwrap_or_default();
    labels.remove(CONCURRENT_ADMISSION_PARENT);
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    annotations.insert(ALLOWED_RESOURCE_FLAVORS.to_owned(), flavor.to_owned());
    let mut spec = parent.object.spec.clone();
    let gates = spec.preemption_gates.get_or_insert_default();
    if !gates.iter().any(|gate| gate.name == GATE) {
        gates.push(PreemptionGate { name: GATE.to_owned() });
    }
    let owner = OwnerReference {
        api_version: Workload::API_VERSION.to_owned(),
        kind: Workload::KIND.to_owned(),
        name: parent.key.name().to_owned(),
        uid: parent.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    Workload {
        metadata: ObjectMeta {
            name: Some(name(parent, flavor, settings)),
            namespace: metadata.namespace.clone(),
            labels: (!labels.is_empty()).then_some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}
