//! PodTemplates of ProvisioningRequests: the pods of a pod set as they will be started.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use quintet_api::kueue::metadata::MANAGED;
use quintet_api::kueue::v1beta2::{ResourceFlavor, Workload};
use quintet_controller::cache::{Entry, ObjectMetadata, Selector, WatchSpec};
use quintet_controller::{Action, ApiKind};
use quintet_queue_engine::ingest::limits_into_requests;
use serde_json::json;

use super::pod_sets::MergedPodSet;
use super::request::{self, ProvisioningRequest};
use crate::jobs::pod_set_info;

/// The templates that are watched: those of this controller.
pub(super) fn templates() -> WatchSpec<ObjectMetadata> {
    WatchSpec::metadata(kind()).select(Selector::all().label(MANAGED, "true"))
}

pub(super) fn kind() -> ApiKind {
    ApiKind::of::<PodTemplate>()
}

/// The owner reference of objects that an object controls.
pub(super) fn owner<T>(api_version: &str, kind: &str, entry: &Entry<T>) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: entry.key.name().to_owned(),
        uid: entry.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A template with the node selectors and tolerations of the assigned flavors. The Workload owns it until there is a
/// request. The error is for users.
pub(super) fn new(
    name: &str,
    workload: &Entry<Workload>,
    pods: &MergedPodSet<'_>,
    flavors: &BTreeMap<String, ResourceFlavor>,
) -> Result<PodTemplate, String> {
    let mut template = pods.set.template.clone();
    if let Some(assignment) = pods.assignment {
        pod_set_info::of_assignment(assignment, flavors).inject(&mut template)?;
    }
    // Requests count for the autoscaler, limits do not.
    limits_into_requests(template.spec.get_or_insert_default());
    Ok(PodTemplate {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: workload.key.namespace().map(str::to_owned),
            labels: Some(BTreeMap::from([(MANAGED.to_owned(), "true".to_owned())])),
            owner_references: Some(vec![owner("kueue.x-k8s.io/v1beta2", "Workload", workload)]),
            ..ObjectMeta::default()
        },
        template: Some(template),
    })
}

/// Whether an object controls a template. Names do not count: they are used again.
pub(super) fn is_controlled_by<T>(template: &Entry<ObjectMetadata>, owner: &Entry<T>) -> bool {
    template.object.controller().is_some_and(|known| *known.uid == *owner.uid.as_str())
}

/// Makes a request the owner of a template, so that they go together.
pub(super) fn hand_over(template: &Entry<ObjectMetadata>, to: &Entry<ProvisioningRequest>) -> Action {
    let patch = json!({ "metadata": { "ownerReferences": [request::owner(to)] } });
    Action::merge_exactly(kind(), template, patch)
}
