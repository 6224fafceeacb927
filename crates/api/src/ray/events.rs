//! Reasons of events about Ray's kinds, as users filter by them.

// RayCluster.

/// The metadata of a RayCluster is invalid.
pub const INVALID_RAY_CLUSTER_METADATA: &str = "InvalidRayClusterMetadata";
/// The spec of a RayCluster is invalid.
pub const INVALID_RAY_CLUSTER_SPEC: &str = "InvalidRayClusterSpec";
/// The conditions of a RayCluster contradict each other.
pub const INVALID_RAY_CLUSTER_STATUS: &str = "InvalidRayClusterStatus";
/// The service account that the autoscaler should use does not exist.
pub const AUTOSCALER_SERVICE_ACCOUNT_NOT_FOUND: &str = "AutoscalerServiceAccountNotFound";
/// The head Pod was created.
pub const CREATED_HEAD_POD: &str = "CreatedHeadPod";
/// A worker Pod was created.
pub const CREATED_WORKER_POD: &str = "CreatedWorkerPod";
/// The head Pod was deleted.
pub const DELETED_HEAD_POD: &str = "DeletedHeadPod";
/// A worker Pod was deleted.
pub const DELETED_WORKER_POD: &str = "DeletedWorkerPod";
/// All Pods were deleted.
pub const DELETED_POD: &str = "DeletedPod";
/// The head Pod cannot be created.
pub const FAILED_TO_CREATE_HEAD_POD: &str = "FailedToCreateHeadPod";
/// A worker Pod cannot be created.
pub const FAILED_TO_CREATE_WORKER_POD: &str = "FailedToCreateWorkerPod";
/// The batch scheduler cannot be told of the cluster.
pub const FAILED_TO_CREATE_POD_GROUP: &str = "FailedToCreatePodGroup";
/// The Ingress was created.
pub const CREATED_INGRESS: &str = "CreatedIngress";
/// The Ingress was changed.
pub const UPDATED_INGRESS: &str = "UpdatedIngress";
/// The Ingress cannot be created.
pub const FAILED_TO_CREATE_INGRESS: &str = "FailedToCreateIngress";
/// The claim for embedded storage was created.
pub const CREATED_PVC: &str = "CreatedPVC";
/// The claim for embedded storage cannot be created or used.
pub const FAILED_TO_CREATE_PVC: &str = "FailedToCreatePVC";
/// The Job that clears Redis was created.
pub const CREATED_REDIS_CLEANUP_JOB: &str = "CreatedRedisCleanupJob";
/// The finalizer was removed although Redis may not be cleared.
pub const FORCE_DELETED_STUCK_CLUSTER: &str = "ForceDeletedStuckCluster";

// NetworkPolicies of RayClusters.

/// A NetworkPolicy was created.
pub const CREATED_NETWORK_POLICY: &str = "CreatedNetworkPolicy";
/// A NetworkPolicy was changed.
pub const UPDATED_NETWORK_POLICY: &str = "UpdatedNetworkPolicy";
/// A NetworkPolicy was deleted.
pub const DELETED_NETWORK_POLICY: &str = "DeletedNetworkPolicy";
/// A NetworkPolicy cannot be created.
pub const FAILED_TO_CREATE_NETWORK_POLICY: &str = "FailedToCreateNetworkPolicy";
/// A NetworkPolicy cannot be changed.
pub const FAILED_TO_UPDATE_NETWORK_POLICY: &str = "FailedToUpdateNetworkPolicy";
/// A NetworkPolicy cannot be deleted.
pub const FAILED_TO_DELETE_NETWORK_POLICY: &str = "FailedToDeleteNetworkPolicy";
/// A NetworkPolicy of that name is owned by another controller.
pub const NETWORK_POLICY_NAME_COLLISION: &str = "NetworkPolicyNameCollision";

// TLS of RayClusters.

/// An object of the PKI cannot be written.
pub const MTLS_FAILED_TO_RECONCILE: &str = "MTLSFailedToReconcile";
/// A certificate was changed.
pub const MTLS_CERTIFICATES_UPDATED: &str = "MTLSCertificatesUpdated";
/// Certificates are not issued yet.
pub const MTLS_CERTS_NOT_READY: &str = "MTLSCertsNotReady";
/// All certificates are issued.
pub const MTLS_PKI_READY: &str = "MTLSPKIReady";
/// A certificate is about to expire.
pub const MTLS_CERTIFICATE_EXPIRING_SOON: &str = "MTLSCertificateExpiringSoon";

// RayJob.

/// The metadata of a RayJob is invalid.
pub const INVALID_RAY_JOB_METADATA: &str = "InvalidRayJobMetadata";
/// The spec of a RayJob is invalid.
pub const INVALID_RAY_JOB_SPEC: &str = "InvalidRayJobSpec";
/// The status of a RayJob does not match its spec.
pub const INVALID_RAY_JOB_STATUS: &str = "InvalidRayJobStatus";
/// The RayCluster in the cluster selector does not exist.
pub const RAY_CLUSTER_NOT_FOUND: &str = "RayClusterNotFound";
/// The submitter Job was created.
pub const CREATED_RAY_JOB_SUBMITTER: &str = "CreatedRayJobSubmitter";
/// The submitter Job was deleted.
pub const DELETED_RAY_JOB_SUBMITTER: &str = "DeletedRayJobSubmitter";
/// The submitter Job cannot be created.
pub const FAILED_TO_CREATE_RAY_JOB_SUBMITTER: &str = "FailedToCreateRayJobSubmitter";
/// The Ray job could not be stopped before the RayJob was deleted.
pub const FAILED_TO_STOP_RAY_JOB: &str = "FailedToStopRayJob";
/// What the batch scheduler reserved was released.
pub const BATCH_SCHEDULER_CLEANED_UP: &str = "BatchSchedulerCleanedUp";

// RayJob and RayService.

/// A RayCluster was created.
pub const CREATED_RAY_CLUSTER: &str = "CreatedRayCluster";
/// A RayCluster was changed.
pub const UPDATED_RAY_CLUSTER: &str = "UpdatedRayCluster";
/// A RayCluster was deleted.
pub const DELETED_RAY_CLUSTER: &str = "DeletedRayCluster";
/// A RayCluster cannot be created.
pub const FAILED_TO_CREATE_RAY_CLUSTER: &str = "FailedToCreateRayCluster";
/// A Service was created.
pub const CREATED_SERVICE: &str = "CreatedService";
/// A Service was changed.
pub const UPDATED_SERVICE: &str = "UpdatedService";
/// A Service was deleted.
pub const DELETED_SERVICE: &str = "DeletedService";
/// A Service cannot be created.
pub const FAILED_TO_CREATE_SERVICE: &str = "FailedToCreateService";
/// A Service cannot be changed.
pub const FAILED_TO_UPDATE_SERVICE: &str = "FailedToUpdateService";

// RayService.

/// The metadata of a RayService is invalid.
pub const INVALID_RAY_SERVICE_METADATA: &str = "InvalidRayServiceMetadata";
/// The spec of a RayService is invalid.
pub const INVALID_RAY_SERVICE_SPEC: &str = "InvalidRayServiceSpec";
/// A RayService did not become ready in time.
pub const RAY_SERVICE_INITIALIZING_TIMEOUT: &str = "RayServiceInitializingTimeout";
/// An incremental upgrade cannot be rolled back.
pub const ROLLBACK_IMPOSSIBLE: &str = "RollbackImpossible";
/// The Serve config was deployed.
pub const UPDATED_SERVE_APPLICATIONS: &str = "UpdatedServeApplications";
/// The Serve config cannot be deployed.
pub const FAILED_TO_UPDATE_SERVE_APPLICATIONS: &str = "FailedToUpdateServeApplications";
/// The target capacity of a cluster was changed.
pub const UPDATED_SERVE_TARGET_CAPACITY: &str = "UpdatedServeTargetCapacity";
/// The target capacity of a cluster cannot be changed.
pub const FAILED_TO_UPDATE_TARGET_CAPACITY: &str = "FailedToUpdateTargetCapacity";
/// The serve label of the head Pod was changed.
pub const UPDATED_HEAD_POD_SERVE_LABEL: &str = "UpdatedHeadPodServeLabel";
/// The serve label of the head Pod cannot be changed.
pub const FAILED_TO_UPDATE_HEAD_POD_SERVE_LABEL: &str = "FailedToUpdateHeadPodServeLabel";

// RayCronJob.

/// The spec of a RayCronJob is invalid.
pub const INVALID_RAY_CRON_JOB_SPEC: &str = "InvalidRayCronJobSpec";
/// A RayCronJob is suspended.
pub const SUSPENDED_RAY_CRON_JOB: &str = "SuspendedRayCronJob";
/// More than one run was missed.
pub const MISSED_SCHEDULE: &str = "MissedSchedule";

/// An object was created: `CreatedRole`.
pub fn created(noun: &str) -> String {
    format!("Created{noun}")
}

/// An object was changed: `UpdatedGateway`.
pub fn updated(noun: &str) -> String {
    format!("Updated{noun}")
}

/// An object was deleted: `DeletedGateway`.
pub fn deleted(noun: &str) -> String {
    format!("Deleted{noun}")
}

/// A write failed: `FailedToCreateRole`. `verb` is `Create`, `Update` or `Delete`.
pub fn failed_to(verb: &str, noun: &str) -> String {
    format!("FailedTo{verb}{noun}")
}
