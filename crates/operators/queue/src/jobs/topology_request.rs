//! Topology requests of pod sets, as annotations of pod templates ask for them.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use quintet_api::kueue::v1beta2::{PodSetSliceTopologyConstraint, PodSetTopologyRequest};
use quintet_queue_engine::settings::Gates;

pub(super) const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
pub(super) const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
pub(super) const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
const SLICE_TOPOLOGY: &str = "kueue.x-k8s.io/podset-slice-required-topology";
const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
const SLICE_CONSTRAINTS: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
const GROUP: &str = "kueue.x-k8s.io/podset-group-name";

/// Pods of one template that are numbered, and belong to groups that are, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranks {
    /// The label with the number of a pod.
    pub(super) pod_index: Option<&'static str>,
    /// The label with the number of the group, and how many groups there are.
    pub(super) sub_groups: Option<(&'static str, i32)>,
}

impl Ranks {
    /// Pods that are numbered by this label.
    pub(super) fn by(pod_index: &'static str) -> Self {
        Self { pod_index: Some(pod_index), sub_groups: None }
    }
}

/// The request of a template whose pods have ranks.
pub(super) fn of_ranked(
    template: &PodTemplateSpec,
    ranks: Ranks,
    gates: &Gates,
) -> Option<PodSetTopologyRequest> {
    let request = of(template, ranks.pod_index, gates);
    let Some((label, count)) = ranks.sub_groups.filter(|_| gates.tas) else { return request };
    Some(PodSetTopologyRequest {
        sub_group_index_label: Some(label.to_owned()),
        sub_group_count: Some(count),
        ..request.unwrap_or_default()
    })
}

/// The request of a template. Values that cannot be read are left out: the webhook has refused them.
pub(super) fn of(
    template: &PodTemplateSpec,
    index_label: Option<&str>,
    gates: &Gates,
) -> Option<PodSetTopologyRequest> {
    if !gates.tas {
        return None;
    }
    let annotations = template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    let text = |name: &str| annotations.and_then(|annotations| annotations.get(name)).cloned();
    let constraints = text(SLICE_CONSTRAINTS)
        .filter(|_| gates.tas_multi_layer)
        .and_then(|text| serde_json::from_str::<Vec<PodSetSliceTopologyConstraint>>(&text).ok());
    let request = PodSetTopologyRequest {
        pod_index_label: index_label.map(str::to_owned),
        required: text(REQUIRED),
        preferred: text(PREFERRED),
        unconstrained: text(UNCONSTRAINED).and_then(|text| text.parse().ok()),
        pod_set_slice_required_topology: text(SLICE_TOPOLOGY),
        pod_set_slice_size: text(SLICE_SIZE).and_then(|text| text.parse().ok()),
        podset_slice_required_topology_constraints: constraints,
        pod_set_group_name: text(GROUP),
        sub_group_count: None,
        sub_group_index_label: None,
    };
    (request != PodSetTopologyRequest::default()).then_some(request)
}
