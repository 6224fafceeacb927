//! RayCluster: one head and groups of workers.

use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, EnvVarSource, PodTemplateSpec, ResourceRequirements, SecurityContext, Service,
    VolumeMount,
};
use k8s_openapi::api::networking::v1::{IngressTLS, NetworkPolicyEgressRule, NetworkPolicyIngressRule};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use crate::ray::rules::{GCS_BACKEND, MANAGED_BY};
use crate::resource::resource;
use crate::schema::{map_by, nullable, rules};

resource! {
    /// A Ray cluster: one head pod and groups of worker pods, with the services that reach them.
    RayCluster in "ray.io" "v1", namespaced "rayclusters" {
        /// The cluster wanted. Only `headGroupSpec` is required.
        #[serde(default)]
        spec: RayClusterSpec,
    }
    maybe {
        /// The cluster as last observed; written by the operator only.
        status: RayClusterStatus,
    }
}

/// The wanted shape of a Ray cluster, also embedded in RayJob and RayService.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayClusterSpec {
    /// Authentication to the Ray cluster's own APIs. Absent means none: whoever reaches the ports can run
    /// code.
    pub auth_options: Option<AuthOptions>,
    /// Settings of the autoscaler container in the head pod. Ignored unless `enableInTreeAutoscaling` is
    /// true.
    pub autoscaler_options: Option<AutoscalerOptions>,
    /// When true, an autoscaler runs in the head pod and sets each worker group's `replicas` between
    /// `minReplicas` and `maxReplicas` by demand. Default false.
    pub enable_in_tree_autoscaling: Option<bool>,
    /// Keeps Ray's cluster state outside the head's memory, so that workers and detached actors survive a
    /// restarted head. Cannot be combined with the annotation `ray.io/ft-enabled`.
    pub gcs_fault_tolerance_options: Option<GcsFaultToleranceOptions>,
    /// The head pod, which runs Ray's control processes and dashboard, and the Service in front of it.
    pub head_group_spec: HeadGroupSpec,
    /// Annotations for the head Service, e.g. for a cloud load balancer. They win over those of
    /// `headGroupSpec.headService` and apply only when the Service is created.
    pub head_service_annotations: Option<BTreeMap<String, String>>,
    /// Exports logs and events of this cluster so that they outlive it. Needs the feature gate
    /// `RayClusterHistoryServer`.
    pub history_server_options: Option<HistoryServerOptions>,
    /// Who reconciles the cluster: `ray.io/kuberay-operator` (also when absent) or
    /// `kueue.x-k8s.io/multikueue`, which makes this operator leave the object alone. Cannot be changed once
    /// set.
    #[schemars(transform = rules(MANAGED_BY))]
    pub managed_by: Option<String>,
    /// Isolates the cluster's pods with generated NetworkPolicies. Absent means no policy is made, and those
    /// made earlier are deleted. Needs the feature gate `RayClusterNetworkPolicy`.
    pub network_policy: Option<NetworkPolicyOptions>,
    /// Ray version in the images, e.g. `2.53.0`; it does not choose the image. Selects the health probes, and
    /// is required by token authentication (2.52.0 or newer) and by group priorities (2.56.0 or newer).
    pub ray_version: Option<String>,
    /// When true, all pods are deleted and the rest is kept. Resume with an explicit `false`: removing the
    /// field leaves the cluster suspended. A suspension that has begun runs to its end.
    pub suspend: Option<bool>,
    /// Mutual TLS between the Ray processes. Needs the feature gate `RayClusterMTLS`.
    pub tls_options: Option<TlsOptions>,
    /// What happens to running pods when the spec changes. Must be unset in the cluster of a RayJob or
    /// RayService.
    pub upgrade_strategy: Option<RayClusterUpgradeStrategy>,
    /// Groups of like worker pods; may be empty. Pods of a group removed from the list are not deleted: scale
    /// it to 0 first.
    pub worker_group_specs: Option<Vec<WorkerGroupSpec>>,
}

/// How clients and Ray processes prove who they are. Without a `mode`, nothing is enforced.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthOptions {
    /// When true, Ray accepts Kubernetes service account tokens instead of a shared one. Needs `mode: token`,
    /// no `secretName` and Ray 2.55.0 or newer; not available in RayJob and RayService.
    pub enable_k8s_token_auth: Option<bool>,
    /// `token` demands a bearer token on every call and needs `rayVersion` 2.52.0 or newer; `disabled` or
    /// absent demands none.
    pub mode: Option<AuthMode>,
    /// Secret in the cluster's namespace whose key `auth_token` holds the token. Absent: one named like the
    /// cluster is generated.
    pub secret_name: Option<String>,
}

/// Whether Ray demands a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum AuthMode {
    #[default]
    #[serde(rename = "disabled")]
    /// No authentication.
    Disabled,
    #[serde(rename = "token")]
    /// Every call needs a bearer token.
    Token,
}

/// The autoscaler container and how it decides.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalerOptions {
    /// Arguments replacing the generated ones. The generated start command stays available in the environment
    /// variable `KUBERAY_GEN_AUTOSCALER_START_CMD`.
    pub args: Option<Vec<String>>,
    /// Command replacing the generated shell. Absent keeps it.
    pub command: Option<Vec<String>>,
    /// Variables appended to the generated ones. `KUBERAY_GEN_AUTOSCALER_START_CMD` is reserved.
    pub env: Option<Vec<EnvVar>>,
    /// ConfigMaps and Secrets whose keys become environment variables of the autoscaler.
    pub env_from: Option<Vec<EnvFromSource>>,
    /// Seconds a worker must be idle before it is removed; 0 or more. Absent: Ray's own default of 60. A
    /// worker group can override it with autoscaler v2.
    pub idle_timeout_seconds: Option<i32>,
    /// Image of the autoscaler. Absent: that of the head's Ray container, which avoids version skew.
    pub image: Option<String>,
    /// `Always`, `IfNotPresent` or `Never`; `IfNotPresent` when absent.
    pub image_pull_policy: Option<String>,
    /// Resources of the autoscaler container, replacing the default of 500m CPU and 512Mi memory (request and
    /// limit). Raise them for clusters of many hundred pods.
    pub resources: Option<ResourceRequirements>,
    /// Security settings of the autoscaler container, see `kubectl explain
    /// pod.spec.containers.securityContext`. Absent: none.
    pub security_context: Option<SecurityContext>,
    /// How fast workers are added. Absent means `Default`.
    pub upscaling_mode: Option<UpscalingMode>,
    /// Generation of the autoscaler. Absent leaves the choice to Ray, which is v2 from 2.47 on.
    pub version: Option<AutoscalerVersion>,
    /// Mounts added to the autoscaler container; the volumes themselves go into the head's pod template.
    pub volume_mounts: Option<Vec<VolumeMount>>,
}

/// How fast the autoscaler adds workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum UpscalingMode {
    #[default]
    /// Add all workers that the demand calls for at once.
    Default,
    /// The same as `Default`.
    Aggressive,
    /// Keep the workers being started no more numerous than the nodes already in the cluster.
    Conservative,
}

/// Generation of Ray's autoscaler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum AutoscalerVersion {
    #[default]
    #[serde(rename = "v1")]
    /// The first autoscaler.
    V1,
    #[serde(rename = "v2")]
    /// The newer autoscaler, needed for idle timeouts and priorities of groups. Head and worker templates
    /// must leave `restartPolicy` unset or `Never`.
    V2,
}

/// Where Ray's control store (GCS) keeps the cluster's state. Excludes `redis-password` among the head's
/// `rayStartParams` and Redis variables in its environment.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsFaultToleranceOptions {
    /// `redis` (also when absent) or `rocksdb`. Cannot be changed from one value to the other.
    #[schemars(transform = rules(GCS_BACKEND))]
    pub backend: Option<GcsBackend>,
    /// Prefix of this cluster's keys in Redis. Absent: the UID of the RayCluster. Not allowed with `rocksdb`.
    pub external_storage_namespace: Option<String>,
    /// Redis to use, as `host:port`, `redis://host:port` or, with TLS, `rediss://host:port`; several are
    /// separated by commas. Not allowed with `rocksdb`.
    pub redis_address: Option<String>,
    /// Password for Redis, preferably from a Secret. Absent means none.
    pub redis_password: Option<RedisCredential>,
    /// User name for Redis. Absent means Redis' default user.
    pub redis_username: Option<RedisCredential>,
    /// Volume for the `rocksdb` backend; not allowed with `redis`. Absent: a claim of 1Gi is made with the
    /// defaults below.
    pub storage: Option<GcsStorage>,
}

/// Store of the cluster's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum GcsBackend {
    #[default]
    #[serde(rename = "redis")]
    /// An external Redis. Deleting the RayCluster runs a Job that removes its keys.
    Redis,
    #[serde(rename = "rocksdb")]
    /// A database on a volume of the head pod. Needs the feature gate `GCSFaultToleranceEmbeddedStorage`.
    Rocksdb,
}

/// A user name or password for Redis, literal or by reference.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisCredential {
    /// The credential in plain text, readable by whoever can read the RayCluster. Prefer `valueFrom`.
    pub value: Option<String>,
    /// Where to read the credential, normally `secretKeyRef`; see `kubectl explain
    /// pod.spec.containers.env.valueFrom`.
    pub value_from: Option<EnvVarSource>,
}

/// The volume claim that holds the head's database.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsStorage {
    /// Access modes of the claim to make; `ReadWriteOnce` when absent. Not allowed with `claimName`.
    pub access_modes: Option<Vec<String>>,
    /// Existing PersistentVolumeClaim to mount, excluding `size`, `storageClassName` and `accessModes`.
    /// Absent: one named after the cluster with the suffix `-gcs-pvc` is made.
    pub claim_name: Option<String>,
    /// Whether the made claim goes with the cluster; `DeleteWithCluster` when absent. May be changed later.
    pub deletion_policy: Option<GcsStorageDeletionPolicy>,
    /// Size of the claim to make, 1Gi when absent. An existing claim is not resized.
    pub size: Option<Quantity>,
    /// Storage class of the claim to make; the namespace's default class when absent.
    pub storage_class_name: Option<String>,
    /// Directory inside the volume to use; its root when absent. Lets several clusters share one claim.
    pub sub_path: Option<String>,
}

/// Fate of the made claim when the cluster is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum GcsStorageDeletionPolicy {
    #[default]
    /// The claim and its data are deleted with the cluster.
    DeleteWithCluster,
    /// The claim stays, and a new cluster of the same name finds its state again.
    Retain,
}

/// The head pod and how it is reached.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadGroupSpec {
    /// When true, an Ingress (on OpenShift a Route) to the dashboard is made. Default false. Turning it off
    /// later does not delete what was made.
    pub enable_ingress: Option<bool>,
    /// Service to use as the model of the head Service, see `kubectl explain service`. The selector is
    /// replaced and Ray's ports are added, so do not repeat their names. Applies at creation only.
    pub head_service: Option<Service>,
    /// Host, path and TLS of the Ingress made by `enableIngress`.
    pub ingress_options: Option<IngressOptions>,
    /// Labels for the head pod, also given to Ray as node labels for scheduling by label. They win over the
    /// template's; do not also pass `labels` in `rayStartParams`.
    pub labels: Option<BTreeMap<String, String>>,
    /// Flags of `ray start` without the dashes, e.g. `num-cpus: "0"` to keep tasks off the head; every value
    /// is a string. CPUs, GPUs and memory come from the container's resources when not given here.
    pub ray_start_params: Option<BTreeMap<String, String>>,
    /// Logical resources Ray advertises for the head, e.g. `CPU: "0"`, independent of the container's.
    /// Excludes `num-cpus`, `num-gpus`, `memory` and `resources` in `rayStartParams`.
    pub resources: Option<BTreeMap<String, String>>,
    /// Type of the head Service: `ClusterIP` (default), `NodePort` or `LoadBalancer`. With `ClusterIP` the
    /// Service is headless. Applies at creation only.
    pub service_type: Option<String>,
    /// Pod template of the head, see `kubectl explain pod.spec`. The first container runs Ray. Changing the
    /// template does not restart a running head unless `upgradeStrategy` is `Recreate`.
    pub template: PodTemplateSpec,
}

/// Details of the Ingress to the dashboard.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressOptions {
    /// Host name to answer to. Absent: any.
    pub host: Option<String>,
    /// URL path to match; `/` when absent.
    pub path: Option<String>,
    /// How `path` is matched; `Prefix` when absent.
    pub path_type: Option<IngressPathType>,
    /// TLS hosts and the Secrets with their certificates, see `kubectl explain ingress.spec.tls`. Absent:
    /// plain HTTP.
    pub tls: Option<Vec<IngressTLS>>,
}

/// How a path of an Ingress is compared with that of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum IngressPathType {
    #[default]
    /// The whole path must be equal.
    Exact,
    /// The path must begin with the same elements.
    Prefix,
    /// The ingress controller decides.
    ImplementationSpecific,
}

/// Export of the cluster's history.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryServerOptions {
    /// The collector container added to every pod of the cluster. Required when `historyServerOptions` is
    /// set.
    pub collector_options: Option<CollectorOptions>,
}

/// The container that uploads logs and events to object storage.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CollectorOptions {
    /// Variables of the collector. `STORAGE_BACKEND` (e.g. `S3`, `GCS`) is required, along with the settings
    /// of that backend such as `S3_REGION` or `GCS_BUCKET`.
    pub env: Option<Vec<EnvVar>>,
    /// Image of the collector; required.
    pub image: Option<String>,
    /// `Always`, `IfNotPresent` or `Never`; `IfNotPresent` when absent.
    pub image_pull_policy: Option<String>,
    /// Resources of the collector. Absent: requests of 50m CPU and 64Mi, limits of 200m and 256Mi.
    pub resources: Option<ResourceRequirements>,
}

/// Traffic allowed to and from the cluster's pods. They can always reach each other.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyOptions {
    /// Rules for the head pod, on top of the traffic inside the cluster.
    pub head: Option<NetworkPolicyRules>,
    /// Which directions are closed by default; `DenyAll` when absent. Closed egress also blocks DNS and the
    /// Kubernetes API, so allow them by `egressRules`.
    #[schemars(extend("default" = "DenyAll"))]
    pub mode: Option<NetworkPolicyMode>,
    /// Rules for the worker pods of all groups not listed in `workerGroups`.
    pub worker: Option<NetworkPolicyRules>,
    /// Rules for single worker groups, each replacing `worker` for that group.
    #[schemars(transform = map_by(&["groupName"]))]
    pub worker_groups: Option<Vec<WorkerGroupNetworkPolicy>>,
}

/// Traffic allowed on top of that inside the cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyRules {
    /// Destinations to allow, see `kubectl explain networkpolicy.spec.egress`. Not allowed in mode
    /// `DenyAllIngress`.
    pub egress_rules: Option<Vec<NetworkPolicyEgressRule>>,
    /// Sources to allow, see `kubectl explain networkpolicy.spec.ingress`. Not allowed in mode
    /// `DenyAllEgress`.
    pub ingress_rules: Option<Vec<NetworkPolicyIngressRule>>,
}

/// Directions closed unless a rule opens them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum NetworkPolicyMode {
    #[default]
    /// Incoming and outgoing traffic.
    DenyAll,
    /// Incoming traffic only.
    DenyAllIngress,
    /// Outgoing traffic only.
    DenyAllEgress,
}

/// Rules for one worker group, used in place of `worker`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerGroupNetworkPolicy {
    /// Destinations to allow, see `kubectl explain networkpolicy.spec.egress`. Not allowed in mode
    /// `DenyAllIngress`.
    pub egress_rules: Option<Vec<NetworkPolicyEgressRule>>,
    /// The worker group meant; it must exist in `workerGroupSpecs`.
    pub group_name: String,
    /// Sources to allow, see `kubectl explain networkpolicy.spec.ingress`. Not allowed in mode
    /// `DenyAllEgress`.
    pub ingress_rules: Option<Vec<NetworkPolicyIngressRule>>,
}

/// Mutual TLS inside the cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsOptions {
    /// When true, certificates are issued through cert-manager, which must be installed, and every Ray
    /// process uses them. Default false. Do not set Ray's TLS variables yourself.
    pub enabled: Option<bool>,
}

/// Reaction to a changed spec.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayClusterUpgradeStrategy {
    /// `Recreate` or `None`; absent means `None`.
    pub type_: Option<RayClusterUpgradeType>,
}

/// What a changed spec does to running pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RayClusterUpgradeType {
    #[default]
    /// All pods are deleted and made anew, ending what runs on them. Replica counts, tolerations and
    /// scheduling gates may change without that.
    Recreate,
    /// Running pods stay as they are; only new pods follow the new spec.
    None,
}

/// A group of worker pods made from one template and scaled together.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerGroupSpec {
    /// Name of the group, unique in the cluster and not `headgroup`; part of the pods' names and their label
    /// `ray.io/group`.
    pub group_name: String,
    /// Seconds a worker of this group must be idle before it is removed; 0 or more. Needs autoscaler v2.
    /// Absent: the cluster's setting.
    pub idle_timeout_seconds: Option<i32>,
    /// Labels for the pods of the group, also given to Ray as node labels for scheduling by label. They win
    /// over the template's; do not also pass `labels` in `rayStartParams`.
    pub labels: Option<BTreeMap<String, String>>,
    /// Most replicas the group may have; `replicas` above it counts as this. Default 2147483647, i.e. no
    /// limit.
    #[schemars(required, extend("default" = i32::MAX))]
    pub max_replicas: Option<i32>,
    /// Fewest replicas the group keeps; `replicas` below it counts as this. Default 0, must not exceed
    /// `maxReplicas`.
    #[schemars(required, extend("default" = 0))]
    pub min_replicas: Option<i32>,
    /// Pods per replica, e.g. the hosts of one TPU slice; default 1. Such pods are made and replaced
    /// together. 0 removes all workers.
    #[schemars(extend("default" = 1))]
    pub num_of_hosts: Option<i32>,
    /// Rank of the group when the autoscaler chooses where to add workers: higher goes first. Default 0; any
    /// other value needs autoscaler v2 and `rayVersion` 2.56.0 or newer.
    #[schemars(extend("default" = 0))]
    pub priority: Option<i32>,
    /// Flags of `ray start` without the dashes; every value is a string. The head's address, and CPUs, GPUs
    /// and memory from the container's resources, are filled in when not given.
    pub ray_start_params: Option<BTreeMap<String, String>>,
    /// Wanted replicas, each of `numOfHosts` pods; default 0, held between `minReplicas` and `maxReplicas`.
    /// With autoscaling the autoscaler writes it, so leave it alone then.
    #[schemars(extend("default" = 0))]
    pub replicas: Option<i32>,
    /// Logical resources Ray advertises for each pod, e.g. `CPU: "4"`, independent of the container's.
    /// Excludes `num-cpus`, `num-gpus`, `memory` and `resources` in `rayStartParams`.
    pub resources: Option<BTreeMap<String, String>>,
    /// Which workers go first when scaling down.
    pub scale_strategy: Option<ScaleStrategy>,
    /// When true, the group's pods are deleted while the head stays. Set by RayJob's `DeleteWorkers`, not
    /// meant for users; an error together with autoscaling.
    pub suspend: Option<bool>,
    /// Pod template of the workers, see `kubectl explain pod.spec`. The first container runs Ray. Changing it
    /// does not replace running pods unless `upgradeStrategy` is `Recreate`.
    pub template: PodTemplateSpec,
}

/// Choice of the workers to remove.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleStrategy {
    /// Names of pods to delete in any case, whatever `replicas` says; lower `replicas` too, or they are
    /// replaced. Written and cleared by the autoscaler.
    pub workers_to_delete: Option<Vec<String>>,
}

/// What was observed of a Ray cluster. All worker counts are pods, i.e. replicas times `numOfHosts`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayClusterStatus {
    /// Worker pods that are running, ready or not.
    pub available_worker_replicas: Option<i32>,
    /// `HeadPodReady`, `RayClusterProvisioned` (once all pods were ready), `ReplicaFailure` (pods could not
    /// be made or deleted), `RayClusterSuspending` and `RayClusterSuspended`.
    #[schemars(transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// CPU requested by the head and all wanted workers together (limits where there is no request).
    #[serde(rename = "desiredCPU")]
    pub desired_cpu: Option<Quantity>,
    /// GPUs requested by the head and all wanted workers together, whatever their vendor.
    #[serde(rename = "desiredGPU")]
    pub desired_gpu: Option<Quantity>,
    /// Memory requested by the head and all wanted workers together (limits where there is no request).
    pub desired_memory: Option<Quantity>,
    /// TPU chips (`google.com/tpu`) requested by the head and all wanted workers together.
    #[serde(rename = "desiredTPU")]
    pub desired_tpu: Option<Quantity>,
    /// Worker pods wanted, over all groups that are not suspended.
    pub desired_worker_replicas: Option<i32>,
    /// Port of the head Service by port name: the node port if there is one, else the target port.
    pub endpoints: Option<BTreeMap<String, String>>,
    /// The head pod and its Service.
    pub head: Option<HeadInfo>,
    /// When the status was last written.
    #[schemars(transform = nullable)]
    pub last_update_time: Option<Time>,
    /// Most worker pods allowed, over all groups that are not suspended.
    pub max_worker_replicas: Option<i32>,
    /// Fewest worker pods allowed, over all groups that are not suspended.
    pub min_worker_replicas: Option<i32>,
    /// Generation of the spec this status was computed from. It may lag when nothing else in the status has
    /// changed.
    pub observed_generation: Option<i64>,
    /// Worker pods that are running and ready.
    pub ready_worker_replicas: Option<i32>,
    /// Always empty; kept for old clients. See `conditions` instead.
    pub reason: Option<String>,
    /// `ready` once all pods wanted have been running, `suspended`, or empty before that. `ready` stays even
    /// if pods fail later; `conditions` say more.
    pub state: Option<String>,
    /// When each value of `state` was last entered.
    pub state_transition_times: Option<BTreeMap<String, Time>>,
}

/// Where the head is found.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadInfo {
    /// IP address of the head pod; empty while there is none.
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    /// Name of the head pod; empty while there is none.
    pub pod_name: Option<String>,
    /// Cluster IP of the head Service, or the head pod's IP if the Service is headless, as it is by default.
    #[serde(rename = "serviceIP")]
    pub service_ip: Option<String>,
    /// Name of the head Service.
    pub service_name: Option<String>,
}
