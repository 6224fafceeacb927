//! `mlflow.opendatahub.io/v1` and `mlflow.kubeflow.org/v1`: MLflow servers and their per-namespace settings.

pub mod conditions;
pub mod messages;
pub mod metadata;
pub mod reasons;
mod rules;

use k8s_openapi::api::core::v1::{
    Affinity, EnvFromSource, EnvVar, PersistentVolumeClaimSpec, PodResourceClaim, PodSecurityContext,
    ResourceRequirements, SecretKeySelector, SecurityContext, Toleration,
};
use k8s_openapi::api::networking::v1::NetworkPolicyEgressRule;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use self::rules::{
    ARTIFACT_ROOT_PATH, ARTIFACT_ROOT_SECRET, LABEL_VALUES, MLFLOW, MLFLOW_CONFIG, MLFLOW_SPEC,
};
use crate::crd::{Column, Definition, Version};
use crate::resource::resource;
use crate::schema::{map_by, rules};

resource! {
    /// The MLflow server of the cluster, shared by all namespaces, each of which is a workspace. Its name
    /// must be `mlflow`.
    #[schemars(transform = rules(MLFLOW))]
    MLflow in "mlflow.opendatahub.io" "v1", cluster "mlflows" {
        /// The server, its stores and its periodic tasks.
        spec: MLflowSpec,
    }
    maybe {
        /// Addresses, version and health; written by the operator only.
        status: MLflowStatus,
    }
}

resource! {
    /// MLflow settings of one namespace (workspace), read by the MLflow server. Its name must be `mlflow`.
    #[schemars(transform = rules(MLFLOW_CONFIG))]
    MLflowConfig in "mlflow.kubeflow.org" "v1", namespaced "mlflowconfigs" {
        /// Where this namespace's artifacts go.
        spec: MLflowConfigSpec,
    }
}

/// An MLflow server. It needs a backend store, and either `defaultArtifactRoot` or `serveArtifacts`. New
/// servers and upgrades migrate the database before serving.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(MLFLOW_SPEC))]
pub struct MLflowSpec {
    /// Scheduling preferences of the server, its migration and its periodic tasks, see `kubectl explain
    /// pod.spec.affinity`.
    pub affinity: Option<Affinity>,
    /// Where the server keeps artifacts it serves itself, e.g. `s3://bucket/path`; `file:///mlflow/artifacts`
    /// when absent. Unused without `serveArtifacts`; a `file://` place needs `storage`.
    pub artifacts_destination: Option<String>,
    /// Database for experiments, runs and traces: a `postgresql`, `mysql` or `sqlite` URI. This or
    /// `backendStoreUriFrom` is required; use the latter if it holds a password. `sqlite://` needs `storage`.
    pub backend_store_uri: Option<String>,
    /// Secret key, in the server's namespace, holding that URI. Excludes `backendStoreUri`.
    pub backend_store_uri_from: Option<SecretKeySelector>,
    /// Extra CA certificates for connections to databases and object stores. With any such bundle, PostgreSQL
    /// certificates are fully verified.
    pub ca_bundle_config_map: Option<CaBundleConfigMap>,
    /// Artifact location for new experiments when clients store artifacts themselves, e.g. `s3://bucket`.
    /// Required unless `serveArtifacts` is true; `file://` requires it to be true.
    pub default_artifact_root: Option<String>,
    /// Variables of the server, its migration and the trace archival, but not of the garbage collection.
    /// Avoid names the operator sets itself, such as `MLFLOW_BACKEND_STORE_URI`.
    pub env: Option<Vec<EnvVar>>,
    /// ConfigMaps and Secrets whose keys become variables of the server and all its tasks; the place for
    /// object store credentials.
    pub env_from: Option<Vec<EnvFromSource>>,
    /// Origins allowed to call the server from a browser, e.g. `https://notebooks.example.com`, besides its
    /// own addresses. Entries with a comma are skipped.
    #[schemars(length(max = 64))]
    pub extra_allowed_origins: Option<Vec<String>>,
    /// Periodic removal of what users have deleted. Absent: deleted runs stay in the database and the store.
    pub garbage_collection: Option<GarbageCollection>,
    /// Image of the server. Absent: the operator's.
    pub image: Option<Image>,
    /// When the database schema is migrated. The server is stopped meanwhile.
    #[schemars(extend("default" = {"mode": "Automatic"}))]
    pub migration: Option<MigrationOptions>,
    /// Destinations to allow on top of the default or replaced ones, also for migrations, e.g. a database on
    /// an unusual port. Each rule needs a port or a peer.
    #[schemars(length(max = 32))]
    pub network_policy_additional_egress_rules: Option<Vec<NetworkPolicyEgressRule>>,
    /// Destinations to allow instead of the default ones (DNS, HTTPS, the Kubernetes API, PostgreSQL, MySQL
    /// and usual S3 ports). Each rule needs a port or a peer; remember DNS.
    #[schemars(length(max = 32))]
    pub network_policy_egress_rules: Option<Vec<NetworkPolicyEgressRule>>,
    /// Labels a node must have to run the server, its migration or its tasks.
    #[schemars(transform = rules(LABEL_VALUES))]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Annotations for the server's pods.
    pub pod_annotations: Option<BTreeMap<String, String>>,
    /// Labels for the pods of the server and its migrations. Do not override `app`.
    #[schemars(transform = rules(LABEL_VALUES))]
    pub pod_labels: Option<BTreeMap<String, String>>,
    /// Security settings of the pods, see `kubectl explain pod.spec.securityContext`. Replaces the default
    /// (non-root, `RuntimeDefault` seccomp) as a whole.
    pub pod_security_context: Option<PodSecurityContext>,
    /// Read-only copy of the backend database, to which the server sends reads. Absent: all go to the backend
    /// store.
    pub read_replica_backend_store_uri: Option<String>,
    /// Secret key, in the server's namespace, holding that URI. Excludes `readReplicaBackendStoreUri`.
    pub read_replica_backend_store_uri_from: Option<SecretKeySelector>,
    /// Database for registered models. Absent: the backend store.
    pub registry_store_uri: Option<String>,
    /// Secret key, in the server's namespace, holding that URI. Excludes `registryStoreUri`.
    pub registry_store_uri_from: Option<SecretKeySelector>,
    /// Server pods; default 1. More than one needs a database server rather than SQLite, and shared or remote
    /// artifacts.
    #[schemars(range(min = 1), extend("default" = 1))]
    pub replicas: Option<i32>,
    /// Dynamic resource claims of the server's pods, each naming either a claim or a claim template; refer to
    /// them in `resources.claims`. Migrations and tasks do without.
    #[schemars(transform = map_by(&["name"]))]
    pub resource_claims: Option<Vec<PodResourceClaim>>,
    /// Resources of the server, merged into the defaults (requests of 1 CPU and 2Gi, limits of 4 and 3Gi): a
    /// memory request above 3Gi needs a limit as well.
    pub resources: Option<ResourceRequirements>,
    /// Security settings of all containers, see `kubectl explain pod.spec.containers.securityContext`.
    /// Replaces the default (read-only root, no capabilities) as a whole.
    pub security_context: Option<SecurityContext>,
    /// When true, clients transfer artifacts through the server and need no credentials of the store. Default
    /// false: they access `defaultArtifactRoot` themselves.
    #[schemars(extend("default" = false))]
    pub serve_artifacts: Option<bool>,
    /// Service account made for the server; default `mlflow-sa`. After a change the former one is left
    /// behind.
    #[schemars(extend("default" = "mlflow-sa"))]
    pub service_account_name: Option<String>,
    /// Volume mounted at `/mlflow`, for SQLite and `file://` stores; absent: none. Only size (default 2Gi),
    /// class and the first access mode count, and only at creation. Deleting the MLflow deletes the data.
    pub storage: Option<PersistentVolumeClaimSpec>,
    /// Scratch space at `/tmp`.
    pub temporary_storage: Option<TemporaryStorage>,
    /// Taints that the server, its migration and its tasks tolerate, see `kubectl explain
    /// pod.spec.tolerations`.
    pub tolerations: Option<Vec<Toleration>>,
    /// Periodic move of old traces from the database to an object store. Absent: off.
    pub trace_archival: Option<TraceArchival>,
    /// Server processes per pod; default 1. Each needs its own share of memory.
    #[schemars(range(min = 1), extend("default" = 1))]
    pub workers: Option<i32>,
    /// Namespaces offered as workspaces, by label. Absent or empty: all.
    pub workspace_label_selector: Option<LabelSelector>,
}

/// A ConfigMap with CA certificates.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaBundleConfigMap {
    /// ConfigMap in the server's namespace; its keys ending in `.crt` or `.pem` are trusted besides the
    /// system's CAs. It must exist. Later changes of its content are picked up without a restart.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Periodic `mlflow gc` over all workspaces.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GarbageCollection {
    /// Remove only what was deleted at least this long ago, e.g. `30d` or `1d12h`. Absent: everything
    /// deleted.
    #[schemars(
        length(min = 1),
        regex(pattern = r"^(\d+(\.\d+)?d)?(\d+(\.\d+)?h)?(\d+(\.\d+)?m)?(\d+(\.\d+)?s)?$")
    )]
    pub older_than: Option<String>,
    /// Resources of the task, merged into the defaults (requests of 100m CPU and 256Mi, limits of 500m and
    /// 512Mi).
    pub resources: Option<ResourceRequirements>,
    /// Cron expression of five fields, e.g. `0 3 * * *`. A run is skipped while the previous one is still
    /// going.
    #[schemars(length(min = 1))]
    pub schedule: String,
}

/// A container image.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Image name, with tag or digest. Its MLflow version must be the one the operator supports, else the
    /// migration fails for good.
    pub image: Option<String>,
    /// When to pull the image. Absent: Kubernetes decides by the tag.
    pub image_pull_policy: Option<ImagePullPolicy>,
}

/// When the image is pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    #[default]
    /// Before every start.
    Always,
    /// If the node does not have it.
    IfNotPresent,
    /// Not at all; the node must have it.
    Never,
}

/// When and how the database schema is migrated. The annotation `mlflow.opendatahub.io/force-migrate` asks
/// for one more run.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationOptions {
    /// What triggers a migration, `Automatic` by default.
    #[schemars(extend("default" = "Automatic"))]
    pub mode: Option<MigrationMode>,
    /// Seconds to keep the finished migration Job and its logs; at least 3600, 86400 when absent.
    #[schemars(range(min = 3600))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// What triggers a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum MigrationMode {
    #[default]
    /// A new server or another MLflow version.
    Automatic,
    /// Besides that every change of the spec, with the interruption this brings.
    Always,
}

/// Scratch space of the server and its tasks.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemporaryStorage {
    /// Most that `/tmp` may hold before the pod is evicted; 1Gi when absent. Uploads through the server pass
    /// here.
    pub size_limit: Option<Quantity>,
}

/// Archival of old traces. Archived traces stay readable, but their content is no longer searchable, and they
/// cannot be moved back.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TraceArchival {
    /// When true, archival runs; `location` and `retention` are then required. Default false, which keeps
    /// what is already archived.
    #[schemars(extend("default" = false))]
    pub enabled: Option<bool>,
    /// Where archived traces go, e.g. `s3://bucket/path`. A `file://` place needs `storage`.
    #[schemars(length(max = 2048))]
    pub location: Option<String>,
    /// IDs of experiments whose own retention may be longer than `retention`; others are held to it.
    #[schemars(length(max = 64))]
    pub long_retention_allowlist: Option<Vec<String>>,
    /// Most traces archived by one run; default 1000.
    #[schemars(range(min = 1), extend("default" = 1000))]
    pub max_traces_per_pass: Option<i32>,
    /// Resources of the task, merged into the defaults (requests of 100m CPU and 256Mi, limits of 500m and
    /// 512Mi).
    pub resources: Option<ResourceRequirements>,
    /// Age at which traces are archived: a number with `m`, `h` or `d`, e.g. `30d`. Experiments may set a
    /// shorter one.
    #[schemars(length(max = 16), regex(pattern = r"^\d+[mhd]$"))]
    pub retention: Option<String>,
    /// Cron expression of five fields; default `0 */6 * * *`, every six hours.
    #[schemars(length(min = 1, max = 256), extend("default" = "0 */6 * * *"))]
    pub schedule: Option<String>,
}

/// What was observed of the MLflow server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MLflowStatus {
    /// Address inside the cluster.
    pub address: Option<Address>,
    /// `Available`, `Progressing` and `Migration`; `MLflowOperatorReady` where the platform operator drives
    /// this one.
    #[schemars(transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Address from outside, through the gateway. Empty if there is no Gateway API or no external URL is
    /// configured.
    #[schemars(length(max = 2048))]
    pub url: Option<String>,
    /// MLflow version to which the database was last migrated; empty before the first migration.
    #[schemars(length(max = 64))]
    pub version: Option<String>,
}

/// Where the server is reached.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    /// URL of the server's Service.
    #[schemars(length(max = 2048))]
    pub url: Option<String>,
}

/// Artifact location of one workspace, overriding the server's default.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MLflowConfigSpec {
    /// Path inside the bucket, relative and without `..`. Absent: the bucket's root.
    #[schemars(length(max = 512), transform = rules(ARTIFACT_ROOT_PATH))]
    pub artifact_root_path: Option<String>,
    /// Secret with the bucket's connection, always `mlflow-artifact-connection`: `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY`, `AWS_S3_BUCKET`, `AWS_S3_ENDPOINT` and, optionally, `AWS_DEFAULT_REGION`.
    #[schemars(length(min = 1), transform = rules(ARTIFACT_ROOT_SECRET))]
    pub artifact_root_secret: String,
}

const MLFLOW_COLUMNS: &[Column] = &[
    Column("Available", "string", ".status.conditions[?(@.type=='Available')].status", 0),
    Column("Progressing", "string", ".status.conditions[?(@.type=='Progressing')].status", 0),
    Column("Version", "string", ".status.version", 0),
    Column("URL", "string", ".status.url", 1),
];

/// The CRDs of this group.
pub fn definitions() -> Vec<Definition> {
    vec![
        Definition::stored::<MLflow>(Version::plain().columns(MLFLOW_COLUMNS).with_status()),
        Definition::stored::<MLflowConfig>(Version::plain()),
    ]
}
