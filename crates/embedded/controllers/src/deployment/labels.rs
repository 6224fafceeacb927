//! Annotations, conditions and reasons of Deployments, as upstream's `deployment/util` names them.

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotations that are not copied between a Deployment and its ReplicaSets.
pub(super) const NOT_COPIED: [&str; 6] =
    [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO];

pub(super) const AVAILABLE: &str = "Available";
pub(super) const PROGRESSING: &str = "Progressing";
pub(super) const REPLICA_FAILURE: &str = crate::replicaset::REPLICA_FAILURE;

pub(super) const MINIMUM_REPLICAS_AVAILABLE: &str = "MinimumReplicasAvailable";
pub(super) const MINIMUM_REPLICAS_UNAVAILABLE: &str = "MinimumReplicasUnavailable";
pub(super) const NEW_REPLICA_SET_CREATED: &str = "NewReplicaSetCreated";
pub(super) const FOUND_NEW_REPLICA_SET: &str = "FoundNewReplicaSet";
pub(super) const REPLICA_SET_UPDATED: &str = "ReplicaSetUpdated";
pub(super) const NEW_REPLICA_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
pub(super) const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
pub(super) const REPLICA_SET_CREATE_ERROR: &str = "ReplicaSetCreateError";
pub(super) const DEPLOYMENT_PAUSED: &str = "DeploymentPaused";
pub(super) const DEPLOYMENT_RESUMED: &str = "DeploymentResumed";

pub(super) const SCALING_REPLICA_SET: &str = "ScalingReplicaSet";
pub(super) const SELECTING_ALL: &str = "SelectingAll";
pub(super) const ROLLBACK_DONE: &str = "DeploymentRollback";
pub(super) const ROLLBACK_REVISION_NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";
pub(super) const ROLLBACK_TEMPLATE_UNCHANGED: &str = "DeploymentRollbackTemplateUnchanged";
