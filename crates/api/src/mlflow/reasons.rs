//! Reasons of conditions of the MLflow kinds.

// `Available` and `Progressing`.

/// All replicas are ready.
pub const DEPLOYMENT_READY: &str = "DeploymentReady";
/// Some replicas are not ready.
pub const DEPLOYMENT_NOT_READY: &str = "DeploymentNotReady";
/// Replicas are starting.
pub const DEPLOYMENT_PROGRESSING: &str = "DeploymentProgressing";
/// Nothing is left to do.
pub const RECONCILE_COMPLETE: &str = "ReconcileComplete";
/// The spec cannot be turned into objects.
pub const RENDER_FAILED: &str = "RenderFailed";
/// The API server rejected an object.
pub const APPLY_FAILED: &str = "ApplyFailed";
/// The API server rejected the ConsoleLink.
pub const CONSOLE_LINK_FAILED: &str = "ConsoleLinkFailed";
/// The API server rejected the HTTPRoute.
pub const HTTP_ROUTE_FAILED: &str = "HttpRouteFailed";
/// The ConfigMap of `spec.caBundleConfigMap` does not exist.
pub const CA_BUNDLE_CONFIG_MAP_ERROR: &str = "CABundleConfigMapError";

// All of `Available`, `Progressing` and `Migration`, while the database is migrated.

/// The migration Job runs.
pub const MIGRATION_RUNNING: &str = "MigrationRunning";
/// Server pods have to end before the migration begins.
pub const MIGRATION_SCALING_DOWN: &str = "MigrationScalingDown";
/// The Job failed in a way that may pass; it is repeated.
pub const MIGRATION_RETRYING: &str = "MigrationRetrying";
/// The Job failed in a way that needs the user.
pub const MIGRATION_FAILED: &str = "MigrationFailed";
/// The API server rejected what the migration needs.
pub const MIGRATION_ERROR: &str = "MigrationError";
/// `Migration`: the database has the supported schema.
pub const MIGRATION_SUCCEEDED: &str = "MigrationSucceeded";
/// As `MigrationRunning`, on request by annotation.
pub const FORCE_MIGRATION_RUNNING: &str = "ForceMigrationRunning";
/// As `MigrationScalingDown`, on request by annotation.
pub const FORCE_MIGRATION_SCALING_DOWN: &str = "ForceMigrationScalingDown";
/// An earlier Job is deleted, so that the requested migration can run.
pub const FORCE_MIGRATION_RESTART_REQUESTED: &str = "ForceMigrationRestartRequested";

// `MLflowOperatorReady`, and `Available` and `Progressing` while it is not.

/// Module mode is on, and there is no MLflowOperator.
pub const MLFLOW_OPERATOR_MISSING: &str = "MLflowOperatorMissing";
/// The status of the MLflowOperator is older than its spec.
pub const MLFLOW_OPERATOR_STATUS_STALE: &str = "MLflowOperatorStatusStale";
/// The MLflowOperator has no `Ready` condition.
pub const MLFLOW_OPERATOR_NOT_READY: &str = "MLflowOperatorNotReady";

// `Ready` of MLflowOperators.

/// The settings are complete. Also `MLflowOperatorReady`.
pub const READY: &str = "Ready";
/// Settings are missing.
pub const CONFIG_PENDING: &str = "ConfigPending";
/// An MLflow exists, so the MLflowOperator cannot go.
pub const MLFLOW_INSTANCES_PRESENT: &str = "MLflowInstancesPresent";
