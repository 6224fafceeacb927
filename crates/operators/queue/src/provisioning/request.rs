//! `ProvisioningRequest` of `autoscaling.x-k8s.io`: an external kind, of which only some fields are read.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use quintet_api::kueue::conditions::ProvisioningRequestCondition;
use quintet_api::kueue::metadata::{MANAGED, PROVISIONING_PREFIX};
use quintet_api::kueue::v1beta2::{ProvisioningRequestConfigSpec, Workload};
use quintet_controller::cache::{Entry, WatchSpec};
use quintet_controller::{ApiKind, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(super) const API_VERSION: &str = "autoscaling.x-k8s.io/v1";
const KIND: &str = "ProvisioningRequest";

/// Annotation of a pod: the request whose capacity it uses.
pub(super) const CONSUMES: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
/// Annotation of a pod: the provisioning class of that request.
pub(super) const CLASS: &str = "autoscaling.x-k8s.io/provisioning-class-name";

/// ProvisioningRequests by the UID of the Workload that controls them.
pub(super) const BY_WORKLOAD: &str = "workload";

/// Parameters of a provisioning class.
pub(super) type Parameters = BTreeMap<String, String>;

/// What is read of a ProvisioningRequest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ProvisioningRequest {
    pub(super) metadata: Metadata,
    pub(super) spec: Spec,
    pub(super) status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    owner_references: Vec<OwnerReference>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub(super) provisioning_class_name: String,
    pub(super) parameters: Parameters,
    pub(super) pod_sets: Vec<RequestedPodSet>,
}

/// Pods of one template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RequestedPodSet {
    pub(super) count: i32,
    pub(super) pod_template_ref: TemplateReference,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TemplateReference {
    pub(super) name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    conditions: Vec<Condition>,
    pub(super) provisioning_class_details: BTreeMap<String, String>,
}

/// A condition, as far as it decides about a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    pub(super) message: String,
}

impl ProvisioningRequest {
    /// A condition, whatever its status.
    pub(super) fn condition(&self, kind: ProvisioningRequestCondition) -> Option<&Condition> {
        self.status.conditions.iter().find(|own| own.type_ == kind.as_str())
    }

    /// A condition, if it is true.
    pub(super) fn true_condition(&self, kind: ProvisioningRequestCondition) -> Option<&Condition> {
        self.condition(kind).filter(|own| own.status == "True")
    }

    /// Whether it is what a configuration wants now. Parameters that the Workload replaces do not matter.
    pub(super) fn follows(&self, workload: &Workload, config: &ProvisioningRequestConfigSpec) -> bool {
        let own = workload.metadata.annotations.as_ref();
        let is_replaced =
            |name: &str| own.is_some_and(|own| own.contains_key(&format!("{PROVISIONING_PREFIX}{name}")));
        let mut wanted = config.parameters.iter().flatten();
        self.spec.provisioning_class_name == config.provisioning_class_name
            && wanted.all(|(name, value)| self.spec.parameters.get(name) == Some(value) || is_replaced(name))
    }

    fn controller(&self) -> Option<&OwnerReference> {
        let owners = &self.metadata.owner_references;
        owners.iter().find(|owner| owner.controller == Some(true) && owner.kind == "Workload")
    }
}

/// The kind, in the version that is used.
pub(super) fn kind() -> ApiKind {
    ApiKind::namespaced("autoscaling.x-k8s.io", "v1", KIND, "provisioningrequests")
}

/// What is watched. The cluster may not serve the kind.
pub(super) fn requests() -> WatchSpec<ProvisioningRequest> {
    WatchSpec::projected(kind(), |text| serde_json::from_str(text)).optional().index(BY_WORKLOAD, |entry| {
        entry.object.controller().map(|owner| owner.uid.clone()).into_iter().collect()
    })
}

/// The Workload that controls a request.
pub(super) fn workload_of(entry: &Entry<ProvisioningRequest>) -> Option<ObjectKey> {
    Some(ObjectKey::new(entry.key.namespace()?, &entry.object.controller()?.name))
}

/// The parameters for a Workload: those of the configuration, and those that its annotations add or replace.
pub(super) fn parameters(workload: &Workload, config: &ProvisioningRequestConfigSpec) -> Parameters {
    let mut parameters = config.parameters.clone().unwrap_or_default();
    let own = workload.metadata.annotations.iter().flatten();
    parameters.extend(own.filter_map(|(name, value)| {
        Some((name.strip_prefix(PROVISIONING_PREFIX)?.to_owned(), value.clone()))
    }));
    parameters
}

/// A new request of a Workload.
pub(super) fn new(
    name: &str,
    workload: &Entry<Workload>,
    config: &ProvisioningRequestConfigSpec,
    pod_sets: Vec<RequestedPodSet>,
) -> Value {
    let spec = Spec {
        provisioning_class_name: config.provisioning_class_name.clone(),
        parameters: parameters(&workload.object, config),
        pod_sets,
    };
    json!({
        "metadata": { "name": name, "namespace": workload.key.namespace(), "labels": { MANAGED: "true" },
            "ownerReferences": [super::template::owner("kueue.x-k8s.io/v1beta2", "Workload", workload)] },
        "spec": spec,
    })
}

/// The owner reference of objects that a request controls.
pub(super) fn owner(request: &Entry<ProvisioningRequest>) -> OwnerReference {
    super::template::owner(API_VERSION, KIND, request)
}
