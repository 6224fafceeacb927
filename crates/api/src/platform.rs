//! `components.platform.opendatahub.io/v1alpha1`: the platform operator's switches for AI hub and MLflow.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crd::{Column, Definition, Version};
use crate::resource::resource;
use crate::schema::{QUALIFIED_NAME, map_by, rules};

resource! {
    /// The platform operator's order to run model registries and the model catalog. Its name must be
    /// `default-aihub`.
    #[schemars(transform = rules(&[
            ("self.metadata.name == 'default-aihub'", "Only the name 'default-aihub' is allowed"),
        ]))]
    AIHub in "components.platform.opendatahub.io" "v1alpha1", cluster "aihubs" {
        /// Namespaces and gateway to use.
        spec: AIHubSpec,
    }
    maybe {
        /// State of the component; written by the operator only.
        status: AIHubStatus,
    }
}

resource! {
    /// The platform operator's settings for MLflow. Its name must be `default-mlflowoperator`; used only
    /// where module mode is on.
    #[schemars(transform = rules(&[
            ("self.metadata.name == 'default-mlflowoperator'", "MLflowOperator name must be default-mlflowoperator"),
        ]))]
    MLflowOperator in "components.platform.opendatahub.io" "v1alpha1", cluster "mlflowoperators" {
        /// Gateway and console settings for MLflow.
        #[serde(default)]
        spec: MLflowOperatorSpec,
    }
    maybe {
        /// State of the component; written by the operator only.
        status: MLflowOperatorStatus,
    }
}

/// Where AI hub runs and how it is reached.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AIHubSpec {
    /// Namespace of the operators' own Deployments and of the HTTPRoutes to registries.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    pub application_namespace: String,
    /// Gateway through which registries and the catalog are reached. Absent: no addresses by gateway.
    pub gateway: Option<AIHubGateway>,
    /// Namespace of the registries and the catalog; created if it does not exist, and kept when the AIHub
    /// goes.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    pub instances_namespace: String,
}

/// The gateway's address.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AIHubGateway {
    /// Host name of the gateway, in lower case. Absent: the condition `Degraded` says so, without making AI
    /// hub unready.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$")
    )]
    pub domain: Option<String>,
}

/// What was observed of AI hub.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AIHubStatus {
    /// `Ready`, `ProvisioningSucceeded`, `ModelRegistryReady`, `CatalogReady` and `Degraded`.
    pub conditions: Option<Vec<ComponentCondition>>,
    /// Generation of the spec this status was computed from.
    pub observed_generation: Option<i64>,
    /// `Ready` or `Not Ready`, after the condition `Ready`.
    pub phase: Option<String>,
    /// Versions of what is installed.
    #[schemars(transform = map_by(&["name"]))]
    pub releases: Option<Vec<ComponentRelease>>,
}

/// A condition as the platform operator reads it: a Kubernetes condition with a severity.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentCondition {
    /// When the condition was last checked; often absent.
    pub last_heartbeat_time: Option<Time>,
    /// When the condition last changed.
    pub last_transition_time: Option<Time>,
    /// Details for people.
    pub message: Option<String>,
    /// Generation of the spec the condition was computed from.
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Cause in one CamelCase word, for programs.
    pub reason: Option<String>,
    /// Weight of a condition that is not as wished: empty for an error, `Info` for a note that does not count
    /// against `Ready`.
    pub severity: Option<String>,
    /// Whether the condition holds.
    pub status: ConditionStatus,
    /// Name of the condition, e.g. `Ready`.
    #[schemars(length(max = 316), regex(pattern = QUALIFIED_NAME))]
    pub type_: String,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    #[default]
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told yet.
    Unknown,
}

/// A piece of software and its version.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentRelease {
    /// Name of the software, or `platform` for the platform itself.
    pub name: String,
    /// Address of its source repository.
    pub repo_url: Option<String>,
    /// Installed version.
    pub version: Option<String>,
}

/// Settings for MLflow given by the platform. Until both `gatewayName` and `sectionTitle` are set, MLflow is
/// not reconciled.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MLflowOperatorSpec {
    /// External address of MLflow.
    pub gateway: Option<MLflowGateway>,
    /// Gateway, in the namespace `openshift-ingress`, to which the route to MLflow is attached.
    pub gateway_name: Option<String>,
    /// Section of the OpenShift console's application menu that shows the link to MLflow.
    pub section_title: Option<String>,
}

/// The gateway's address.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MLflowGateway {
    /// Host name of the gateway; `https://` is put before it unless a scheme is given. Absent: the operator's
    /// configured URL.
    pub domain: Option<String>,
}

/// What was observed of the MLflow component.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MLflowOperatorStatus {
    /// `Ready`, with the reason `ConfigPending` while settings are missing, or `MLflowInstancesPresent` while
    /// an MLflow holds up deletion.
    #[schemars(transform = map_by(&["type"]))]
    pub conditions: Option<Vec<ComponentCondition>>,
    /// Generation of the spec this status was computed from.
    pub observed_generation: Option<i64>,
    /// `Ready` or `Progressing`, after the condition `Ready`.
    pub phase: Option<String>,
    /// Versions of the platform and of MLflow.
    #[schemars(transform = map_by(&["name"]))]
    pub releases: Option<Vec<ComponentRelease>>,
}

const AIHUB_COLUMNS: &[Column] = &[
    Column("AppNamespace", "string", ".spec.applicationNamespace", 0),
    Column("Age", "date", ".metadata.creationTimestamp", 0),
];

const MLFLOW_OPERATOR_COLUMNS: &[Column] = &[
    Column("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#, 0),
    Column("Reason", "string", r#".status.conditions[?(@.type=="Ready")].reason"#, 0),
];

/// The CRD by which the platform operator runs model registries.
pub fn aihub() -> Definition {
    Definition::stored::<AIHub>(Version::plain().columns(AIHUB_COLUMNS).with_status())
}

/// The CRD by which the platform operator configures MLflow.
pub fn mlflow_operator() -> Definition {
    Definition::stored::<MLflowOperator>(Version::plain().columns(MLFLOW_OPERATOR_COLUMNS).with_status())
}

/// Types of conditions of an AIHub.
pub mod aihub_conditions {
    /// All others that count are true.
    pub const READY: &str = "Ready";
    /// What an AIHub asks for was applied.
    pub const PROVISIONING_SUCCEEDED: &str = "ProvisioningSucceeded";
    /// Model registries are reconciled.
    pub const MODEL_REGISTRY_READY: &str = "ModelRegistryReady";
    /// The catalog is reconciled.
    pub const CATALOG_READY: &str = "CatalogReady";
    /// Something is wrong or missing; not part of `Ready`.
    pub const DEGRADED: &str = "Degraded";
}

/// Reasons of conditions of an AIHub.
pub mod aihub_reasons {
    /// `ProvisioningSucceeded`.
    pub const ALL_RESOURCES_APPLIED: &str = "AllResourcesApplied";
    /// `ProvisioningSucceeded`: something could not be applied.
    pub const DEPLOY_FAILED: &str = "DeployFailed";
    /// `ModelRegistryReady`, `CatalogReady`.
    pub const ALL_DEPLOYMENTS_AVAILABLE: &str = "AllDeploymentsAvailable";
    /// `Ready`.
    pub const ALL_DEPENDENTS_HEALTHY: &str = "AllDependentsHealthy";
    /// `Degraded`: something could not be applied.
    pub const PROVISIONING_FAILED: &str = "ProvisioningFailed";
    /// `Degraded`: no gateway is known.
    pub const GATEWAY_DOMAIN_UNAVAILABLE: &str = "GatewayDomainUnavailable";
    /// `Degraded`: nothing is.
    pub const NO_DEGRADATION: &str = "NoDegradation";
}
