//! `workload.codeflare.dev/v1beta2`: several objects admitted, run and removed as one.

pub mod conditions;
pub mod metadata;
mod phase;
pub mod pod_sets;
pub mod reasons;

use k8s_openapi::api::core::v1::{PodSchedulingGate, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use crate::crd::{Column, Definition, Version};
use crate::resource::resource;
use crate::schema::{embedded_object, map_by};
pub use phase::Phase;

resource! {
    /// Several objects treated as one workload: admitted by Kueue together, created together, retried and
    /// removed together.
    AppWrapper in "workload.codeflare.dev" "v1beta2", namespaced "appwrappers" {
        /// The objects and whether they may run.
        #[serde(default)]
        spec: AppWrapperSpec,
    }
    maybe {
        /// Progress of the workload; written by the operator only.
        status: AppWrapperStatus,
    }
}

/// The wrapped objects. Grace periods and retries are set by annotations prefixed
/// `workload.codeflare.dev.appwrapper/`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperSpec {
    /// Objects to create, in this order. Together they must hold 1 to 8 pod sets. Templates and pod sets
    /// cannot be changed afterwards.
    pub components: Vec<AppWrapperComponent>,
    /// Who reconciles the AppWrapper: `workload.codeflare.dev/appwrapper-controller` (also when absent); any
    /// other name makes this operator leave it alone. Cannot be changed.
    pub managed_by: Option<String>,
    /// When true, nothing is created and what exists is deleted. Default false, but Kueue sets it to true on
    /// queued AppWrappers and to false on admission.
    pub suspend: Option<bool>,
}

/// One wrapped object and the pods it will make.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperComponent {
    /// Free annotations on the component itself; they are not copied to the object.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Node selectors, tolerations and the like that Kueue adds on admission, one entry per pod set. Leave it
    /// empty.
    pub pod_set_infos: Option<Vec<AppWrapperPodSetInfo>>,
    /// Where the pod templates are in `template`. May be left out for kinds known to the operator: Pod,
    /// Deployment, StatefulSet, Job, JobSet, PyTorchJob, RayCluster and RayJob.
    pub pod_sets: Option<Vec<AppWrapperPodSet>>,
    /// The whole object, with `apiVersion`, `kind` and `metadata`. Its namespace must be the AppWrapper's or
    /// absent, and you need the right to create it. AppWrappers cannot be nested.
    #[schemars(schema_with = "embedded_object")]
    pub template: serde_json::Value,
}

/// What admission adds to the pods of one pod set. A clash with what the template says fails the AppWrapper.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperPodSetInfo {
    /// Annotations to add to the pods.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels to add to the pods.
    pub labels: Option<BTreeMap<String, String>>,
    /// Node labels to require, e.g. those of the assigned flavor.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Gates to add, keeping the pods from being scheduled until they are lifted.
    pub scheduling_gates: Option<Vec<PodSchedulingGate>>,
    /// Tolerations to append.
    pub tolerations: Option<Vec<Toleration>>,
}

/// A pod template inside a component, and how many pods come from it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperPodSet {
    /// Hints on the pods' index labels, used for topology-aware scheduling. Filled in for known kinds.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Path to the pod template, beginning with `template`, e.g. `template.spec.template` or
    /// `template.spec.workerGroupSpecs[0].template`.
    pub path: String,
    /// Pods made from the template; 1 when absent. Quota and readiness are computed from it, so it must be
    /// what the object really creates.
    pub replicas: Option<i32>,
}

/// What was observed of an AppWrapper.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperStatus {
    /// The components as created, in the order of the spec.
    pub component_status: Option<Vec<AppWrapperComponentStatus>>,
    /// `QuotaReserved`, `ResourcesDeployed`, `PodsReady`, `Unhealthy` and `DeletingResources`. Kueue regards
    /// the workload as active while `QuotaReserved` is true.
    #[schemars(transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// `Suspended`, `Resuming`, `Running`, `Resetting` (before a retry), `Suspending`, `Succeeded`, `Failed`
    /// or `Terminating`; empty when new.
    pub phase: Option<String>,
    /// Retries so far. At the limit (3, or the annotation `workload.codeflare.dev.appwrapper/retryLimit`) the
    /// next failure is final.
    pub resetting_count: Option<i32>,
}

/// What was observed of one component.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperComponentStatus {
    /// API version of the created object.
    pub api_version: String,
    /// `ResourcesDeployed`: whether the object has been created, or why not.
    #[schemars(transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Kind of the created object.
    pub kind: String,
    /// Name of the created object, with the suffix if `generateName` was used.
    pub name: String,
    /// Pod sets of the component, as declared or found; fixed from the first reconciliation on.
    pub pod_sets: Vec<AppWrapperPodSet>,
}

const APP_WRAPPER_COLUMNS: &[Column] = &[
    Column("Status", "string", ".status.phase", 0),
    Column("Quota Reserved", "string", r#".status.conditions[?(@.type=="QuotaReserved")].status"#, 0),
    Column("Resources Deployed", "string", r#".status.conditions[?(@.type=="ResourcesDeployed")].status"#, 0),
    Column("Unhealthy", "string", r#".status.conditions[?(@.type=="Unhealthy")].status"#, 0),
    Column("Age", "date", ".metadata.creationTimestamp", 0),
];

/// The CRDs of this group.
pub fn definitions() -> Vec<Definition> {
    vec![
        Definition::stored::<AppWrapper>(Version::plain().columns(APP_WRAPPER_COLUMNS).with_status())
            .short_names(&["aw"]),
    ]
}
