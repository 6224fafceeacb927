//! Condition types of Ray's kinds.

/// RayCluster: the head Pod is ready.
pub const HEAD_POD_READY: &str = "HeadPodReady";
/// RayCluster: all Pods were ready once.
pub const RAY_CLUSTER_PROVISIONED: &str = "RayClusterProvisioned";
/// RayCluster: Pods cannot be created or deleted.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";
/// RayCluster: Pods are being deleted, because it is suspended.
pub const RAY_CLUSTER_SUSPENDING: &str = "RayClusterSuspending";
/// RayCluster: all Pods are deleted, because it is suspended.
pub const RAY_CLUSTER_SUSPENDED: &str = "RayClusterSuspended";

/// RayService: some endpoint takes requests.
pub const READY: &str = "Ready";
/// RayService: an active and a pending cluster exist.
pub const UPGRADE_IN_PROGRESS: &str = "UpgradeInProgress";
/// RayService: an incremental upgrade is being rolled back.
pub const ROLLBACK_IN_PROGRESS: &str = "RollbackInProgress";
/// RayService: everything is being deleted, because it is suspended.
pub const SUSPENDING: &str = "Suspending";
/// RayService: everything is deleted, because it is suspended.
pub const SUSPENDED: &str = "Suspended";
