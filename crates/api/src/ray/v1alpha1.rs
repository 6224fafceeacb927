//! `ray.io/v1alpha1`: what early manifests say; a subset of `v1`.

use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, PodTemplateSpec, ResourceRequirements, SecurityContext, Service, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use super::v1::{ScaleStrategy, UpscalingMode};
use crate::resource::resource;
use crate::schema::nullable;

resource! {
    /// A Ray cluster: one head pod and groups of worker pods, with the services that reach them.
    RayCluster in "ray.io" "v1alpha1", namespaced "rayclusters" {
        /// The cluster wanted. Only `headGroupSpec` is required.
        #[serde(default)]
        spec: RayClusterSpec,
    }
    maybe {
        /// The cluster as last observed; written by the operator only.
        status: RayClusterStatus,
    }
}

resource! {
    /// Runs one job on Ray: makes a RayCluster or takes an existing one, submits the job, follows it and
    /// cleans up.
    RayJob in "ray.io" "v1alpha1", namespaced "rayjobs" {
        /// The job and the cluster it runs on.
        #[serde(default)]
        spec: RayJobSpec,
    }
    maybe {
        /// Progress of the job; written by the operator only.
        status: RayJobStatus,
    }
}

resource! {
    /// Ray Serve applications on a RayCluster, with stable Services, and upgrades that move to a new cluster
    /// while the old one serves.
    RayService in "ray.io" "v1alpha1", namespaced "rayservices" {
        /// The applications and the cluster they run on.
        #[serde(default)]
        spec: RayServiceSpec,
    }
    maybe {
        /// State of the applications and clusters; written by the operator only.
        status: RayServiceStatus,
    }
}

/// The wanted shape of a Ray cluster, also embedded in RayJob and RayService.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayClusterSpec {
    /// Settings of the autoscaler container in the head pod. Ignored unless `enableInTreeAutoscaling` is
    /// true.
    pub autoscaler_options: Option<AutoscalerOptions>,
    /// When true, an autoscaler runs in the head pod and sets each worker group's `replicas` between
    /// `minReplicas` and `maxReplicas` by demand. Default false.
    pub enable_in_tree_autoscaling: Option<bool>,
    /// The head pod, which runs Ray's control processes and dashboard, and the Service in front of it.
    pub head_group_spec: HeadGroupSpec,
    /// Annotations for the head Service, e.g. for a cloud load balancer. They win over those of
    /// `headGroupSpec.headService` and apply only when the Service is created.
    pub head_service_annotations: Option<BTreeMap<String, String>>,
    /// Ray version in the images, e.g. `2.53.0`; it does not choose the image. Selects the health probes, and
    /// is required by token authentication (2.52.0 or newer) and by group priorities (2.56.0 or newer).
    pub ray_version: Option<String>,
    /// When true, all pods are deleted and the rest is kept. Resume with an explicit `false`: removing the
    /// field leaves the cluster suspended. A suspension that has begun runs to its end.
    pub suspend: Option<bool>,
    /// Groups of like worker pods; may be empty. Pods of a group removed from the list are not deleted: scale
    /// it to 0 first.
    pub worker_group_specs: Option<Vec<WorkerGroupSpec>>,
}

/// The autoscaler container and how it decides.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalerOptions {
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
    /// Mounts added to the autoscaler container; the volumes themselves go into the head's pod template.
    pub volume_mounts: Option<Vec<VolumeMount>>,
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
    /// Flags of `ray start` without the dashes, e.g. `num-cpus: "0"` to keep tasks off the head; every value
    /// is a string. CPUs, GPUs and memory come from the container's resources when not given here.
    pub ray_start_params: BTreeMap<String, String>,
    /// Type of the head Service: `ClusterIP` (default), `NodePort` or `LoadBalancer`. With `ClusterIP` the
    /// Service is headless. Applies at creation only.
    pub service_type: Option<String>,
    /// Pod template of the head, see `kubectl explain pod.spec`. The first container runs Ray. Changing the
    /// template does not restart a running head unless `upgradeStrategy` is `Recreate`.
    pub template: PodTemplateSpec,
}

/// A group of worker pods made from one template and scaled together.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerGroupSpec {
    /// Name of the group, unique in the cluster and not `headgroup`; part of the pods' names and their label
    /// `ray.io/group`.
    pub group_name: String,
    /// Most replicas the group may have; `replicas` above it counts as this. Default 2147483647, i.e. no
    /// limit.
    #[schemars(required, extend("default" = i32::MAX))]
    pub max_replicas: Option<i32>,
    /// Fewest replicas the group keeps; `replicas` below it counts as this. Default 0, must not exceed
    /// `maxReplicas`.
    #[schemars(required, extend("default" = 0))]
    pub min_replicas: Option<i32>,
    /// Flags of `ray start` without the dashes; every value is a string. The head's address, and CPUs, GPUs
    /// and memory from the container's resources, are filled in when not given.
    pub ray_start_params: BTreeMap<String, String>,
    /// Wanted replicas, each of `numOfHosts` pods; default 0, held between `minReplicas` and `maxReplicas`.
    /// With autoscaling the autoscaler writes it, so leave it alone then.
    #[schemars(extend("default" = 0))]
    pub replicas: Option<i32>,
    /// Which workers go first when scaling down.
    pub scale_strategy: Option<ScaleStrategy>,
    /// Pod template of the workers, see `kubectl explain pod.spec`. The first container runs Ray. Changing it
    /// does not replace running pods unless `upgradeStrategy` is `Recreate`.
    pub template: PodTemplateSpec,
}

/// What was observed of a Ray cluster. All worker counts are pods, i.e. replicas times `numOfHosts`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayClusterStatus {
    /// Worker pods that are running, ready or not.
    pub available_worker_replicas: Option<i32>,
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
}

/// Where the head is found.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadInfo {
    /// IP address of the head pod; empty while there is none.
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    /// Cluster IP of the head Service, or the head pod's IP if the Service is headless, as it is by default.
    #[serde(rename = "serviceIP")]
    pub service_ip: Option<String>,
}

/// A Ray job. Either `rayClusterSpec` or `clusterSelector` is required. An invalid spec waits in
/// `ValidationFailed` until it is corrected.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayJobSpec {
    /// Existing RayCluster to use, as `ray.io/cluster: NAME`: a name in this namespace, not a label query.
    /// Such a cluster is never deleted, and excludes `suspend`, retries and `SidecarMode`.
    pub cluster_selector: Option<BTreeMap<String, String>>,
    /// Shell command Ray runs as the job, e.g. `python /home/ray/app.py`. Needed except in `InteractiveMode`.
    /// The submitter's shell expands `$` and backquotes in it.
    pub entrypoint: String,
    /// CPUs Ray reserves for the entrypoint, so that it may run on a worker; fractions allowed. 0 or absent:
    /// none, it runs on the head.
    pub entrypoint_num_cpus: Option<f64>,
    /// GPUs Ray reserves for the entrypoint, fractions allowed. 0 or absent: none.
    pub entrypoint_num_gpus: Option<f64>,
    /// Custom resources Ray reserves for the entrypoint, as the text of a JSON object, e.g. `{"disk": 1}`.
    pub entrypoint_resources: Option<String>,
    /// Submission ID of the job in Ray. Absent: the RayJob's name and five random characters. In
    /// `InteractiveMode` set it after submitting the job by hand.
    pub job_id: Option<String>,
    /// Metadata stored with the job in Ray. With `rayClusterSpec.rayVersion` set, that must be 2.6.0 or
    /// newer.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Cluster to make for the job, see `kubectl explain raycluster.spec`. Changes after creation are
    /// ignored.
    pub ray_cluster_spec: Option<RayClusterSpec>,
    /// Ray runtime environment of the job (`pip`, `env_vars`, `working_dir` ...), as the text of a YAML
    /// mapping.
    #[serde(rename = "runtimeEnvYAML")]
    pub runtime_env_yaml: Option<String>,
    /// When true, the RayCluster is deleted `ttlSecondsAfterFinished` after the job has ended; the RayJob and
    /// the submitter's logs stay. Default false. Required for `suspend`.
    pub shutdown_after_job_finishes: Option<bool>,
    /// Pod template of the submitter in `K8sJobMode`, see `kubectl explain pod.spec`; nothing is defaulted,
    /// so set `restartPolicy`. Without a command the first container gets the generated one. Absent: the
    /// head's image.
    pub submitter_pod_template: Option<PodTemplateSpec>,
    /// When true, the RayCluster and the submitter are deleted, and setting it to false starts the job anew;
    /// a finished job is unaffected. Default false. Used by Kueue; needs `shutdownAfterJobFinishes`.
    pub suspend: Option<bool>,
    /// Seconds to keep the RayCluster after the job has ended; default 0. Above 0 only with
    /// `shutdownAfterJobFinishes`.
    #[schemars(extend("default" = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// What was observed of a RayJob.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayJobStatus {
    /// Host and port of the Ray dashboard, without a scheme; empty until the cluster is ready.
    #[serde(rename = "dashboardURL")]
    pub dashboard_url: Option<String>,
    /// When the RayJob became `Complete` or `Failed`; time-based cleanup counts from here.
    pub end_time: Option<Time>,
    /// Where the RayJob stands: empty, `Initializing`, `Waiting`, `Running`, `Complete`, `Failed`,
    /// `ValidationFailed`, `Suspending`, `Suspended` or `Retrying`.
    pub job_deployment_status: Option<String>,
    /// Submission ID of the current attempt in Ray, for `ray job logs` and the like.
    pub job_id: Option<String>,
    /// What Ray says of the job: empty before submission, then `PENDING`, `RUNNING`, `STOPPED`, `SUCCEEDED`
    /// or `FAILED`.
    pub job_status: Option<String>,
    /// Explanation of the state, from Ray or from the operator.
    pub message: Option<String>,
    /// Not written; kept for old clients.
    pub observed_generation: Option<i64>,
    /// RayCluster of the current attempt.
    pub ray_cluster_name: Option<String>,
    /// Copy of that RayCluster's status.
    pub ray_cluster_status: Option<RayClusterStatus>,
    /// When the current attempt began; renewed by each retry and resumption, so deadlines count per attempt.
    pub start_time: Option<Time>,
}

/// Serve applications, their cluster and how both are replaced.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayServiceSpec {
    /// Ignored; kept for old manifests.
    pub deployment_unhealthy_second_threshold: Option<i32>,
    /// Cluster to serve from, see `kubectl explain raycluster.spec`. Changes other than replica counts,
    /// tolerations and worker groups added at the end start an upgrade. `headService` must not carry a name.
    pub ray_cluster_config: Option<RayClusterSpec>,
    /// Serve config, as the text of Ray's YAML with `applications`. Changes are applied to the running
    /// cluster, without an upgrade. Not checked before Ray reads it.
    pub serve_config_v2: Option<String>,
    /// Model of the Service for requests, see `kubectl explain service`. The selector is replaced, and ports
    /// not named like a `serve` port of the head are dropped. Ignored by incremental upgrades.
    pub serve_service: Option<Service>,
    /// Ignored; kept for old manifests.
    pub service_unhealthy_second_threshold: Option<i32>,
}

/// What was observed of a RayService.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayServiceStatus {
    /// The cluster that serves. Its application list is empty during an upgrade of type `NewCluster`.
    pub active_service_status: Option<RayServiceClusterStatus>,
    /// When the status was last written.
    pub last_update_time: Option<Time>,
    /// Generation of the spec this status was computed from.
    pub observed_generation: Option<i64>,
    /// The cluster being prepared, at first creation or in an upgrade; empty otherwise.
    pub pending_service_status: Option<RayServiceClusterStatus>,
    /// `Running` while the condition `Ready` is true, else empty.
    pub service_status: Option<String>,
}

/// One of the two clusters of a RayService.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayServiceClusterStatus {
    /// State of the Serve applications on this cluster, by application name.
    pub application_statuses: Option<BTreeMap<String, AppStatus>>,
    /// Name of the RayCluster.
    pub ray_cluster_name: Option<String>,
    /// Copy of that RayCluster's status.
    pub ray_cluster_status: Option<RayClusterStatus>,
}

/// State of one Serve application.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppStatus {
    /// When the application was last seen healthy.
    pub health_last_update_time: Option<Time>,
    /// Explanation from Ray, e.g. the error of a failed deployment.
    pub message: Option<String>,
    /// State of the application's deployments, by deployment name.
    pub serve_deployment_statuses: Option<BTreeMap<String, ServeDeploymentStatus>>,
    /// `NOT_STARTED`, `DEPLOYING`, `RUNNING`, `DEPLOY_FAILED`, `DELETING` or `UNHEALTHY`, as Ray reports it.
    /// A cluster takes over once all its applications are `RUNNING`.
    pub status: Option<String>,
}

/// State of one deployment of a Serve application.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServeDeploymentStatus {
    /// When the deployment was last seen healthy.
    pub health_last_update_time: Option<Time>,
    /// Explanation from Ray.
    pub message: Option<String>,
    /// `UPDATING`, `HEALTHY` or `UNHEALTHY`, as Ray reports it.
    pub status: Option<String>,
}
