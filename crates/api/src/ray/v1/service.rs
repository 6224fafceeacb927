//! RayService: Ray Serve applications with upgrades that keep serving.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use super::{RayClusterSpec, RayClusterStatus};
use crate::ray::rules::MANAGED_BY;
use crate::resource::resource;
use crate::schema::{map_by, rules};

resource! {
    /// Ray Serve applications on a RayCluster, with stable Services, and upgrades that move to a new cluster
    /// while the old one serves.
    RayService in "ray.io" "v1", namespaced "rayservices" {
        /// The applications and the cluster they run on.
        #[serde(default)]
        spec: RayServiceSpec,
    }
    maybe {
        /// State of the applications and clusters; written by the operator only.
        status: RayServiceStatus,
    }
}

/// Serve applications, their cluster and how both are replaced.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayServiceSpec {
    /// Ignored; kept for old manifests.
    pub deployment_unhealthy_second_threshold: Option<i32>,
    /// When true, requests go to worker pods only, never to the head. Default false. Keep workers running
    /// then, or nothing answers.
    pub exclude_head_pod_from_serve_svc: Option<bool>,
    /// Who reconciles the service: `ray.io/kuberay-operator` (also when absent) or
    /// `kueue.x-k8s.io/multikueue`, which makes this operator leave the object alone. Cannot be changed once
    /// set.
    #[schemars(transform = rules(MANAGED_BY))]
    pub managed_by: Option<String>,
    /// Cluster to serve from, see `kubectl explain raycluster.spec`. Changes other than replica counts,
    /// tolerations and worker groups added at the end start an upgrade. `headService` must not carry a name.
    pub ray_cluster_config: RayClusterSpec,
    /// Seconds an old cluster is kept after an upgrade, for its last requests; 60 when absent.
    #[schemars(range(min = 0))]
    pub ray_cluster_deletion_delay_seconds: Option<i32>,
    /// Serve config, as the text of Ray's YAML with `applications`. Changes are applied to the running
    /// cluster, without an upgrade. Not checked before Ray reads it.
    pub serve_config_v2: Option<String>,
    /// Model of the Service for requests, see `kubectl explain service`. The selector is replaced, and ports
    /// not named like a `serve` port of the head are dropped. Ignored by incremental upgrades.
    pub serve_service: Option<Service>,
    /// Ignored; kept for old manifests.
    pub service_unhealthy_second_threshold: Option<i32>,
    /// When true, the clusters and Services are deleted until it is false again. Default false. A suspension
    /// that has begun runs to its end.
    pub suspend: Option<bool>,
    /// How a changed cluster is rolled out. Absent: by a new cluster at once, unless the operator is
    /// configured otherwise.
    pub upgrade_strategy: Option<RayServiceUpgradeStrategy>,
}

/// How a changed `rayClusterConfig` is rolled out.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayServiceUpgradeStrategy {
    /// Pace of an incremental upgrade; required for that type and unused by the others.
    pub cluster_upgrade_options: Option<ClusterUpgradeOptions>,
    /// `NewCluster` (switch when the new cluster serves), `NewClusterWithIncrementalUpgrade` (shift traffic
    /// in steps; needs autoscaling and the Gateway API) or `None` (never replace the cluster).
    pub type_: Option<String>,
}

/// Pace of moving traffic from the old cluster to the new one.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUpgradeOptions {
    /// GatewayClass of the Gateway made to split the traffic; it must be installed.
    pub gateway_class_name: String,
    /// Seconds between two steps of traffic; above 0.
    pub interval_seconds: i32,
    /// Capacity, in percent of one cluster, that is added to the new cluster (and taken from the old) at a
    /// time; 0 to 100, default 100.
    #[schemars(extend("default" = 100))]
    pub max_surge_percent: Option<i32>,
    /// Percent of the traffic moved by one step; 0 to 100 and at most `maxSurgePercent`.
    pub step_size_percent: i32,
}

/// What was observed of a RayService.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayServiceStatus {
    /// The cluster that serves. Its application list is empty during an upgrade of type `NewCluster`.
    pub active_service_status: Option<RayServiceClusterStatus>,
    /// `Ready` (some endpoint answers), `UpgradeInProgress`, `RollbackInProgress`, `Suspending` and
    /// `Suspended`.
    #[schemars(transform = map_by(&["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// When the status was last written.
    pub last_update_time: Option<Time>,
    /// Pods ready to take requests. 0 means the service is down.
    pub num_serve_endpoints: Option<i32>,
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
    /// When this cluster's share of the traffic last changed; incremental upgrades only.
    pub last_traffic_migrated_time: Option<Time>,
    /// Name of the RayCluster.
    pub ray_cluster_name: Option<String>,
    /// Copy of that RayCluster's status.
    pub ray_cluster_status: Option<RayClusterStatus>,
    /// Percent of its full replica count at which Serve runs here; incremental upgrades only.
    pub target_capacity: Option<i32>,
    /// Percent of the requests routed here; incremental upgrades only.
    pub traffic_routed_percent: Option<i32>,
}

/// State of one Serve application.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppStatus {
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
    /// Explanation from Ray.
    pub message: Option<String>,
    /// `UPDATING`, `HEALTHY` or `UNHEALTHY`, as Ray reports it.
    pub status: Option<String>,
}
