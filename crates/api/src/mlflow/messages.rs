//! Messages of conditions of the MLflow kinds.

use super::metadata::FORCE_MIGRATE;

/// `Available`: all replicas are ready.
pub const DEPLOYMENT_READY: &str = "MLflow deployment is ready and available";
/// `Progressing`: nothing is left to do.
pub const RECONCILE_COMPLETE: &str = "MLflow reconciliation completed successfully";
/// `Ready` of an MLflowOperator, and `MLflowOperatorReady`.
pub const MODULE_READY: &str = "MLflowOperator is ready to manage MLflow custom resources";

/// A migration found another MLflow version in the image.
pub const IMAGE_VERSION_MISMATCH: &str =
    "the MLflow version of the image does not match the version supported by the operator";
/// A migration found a backend store that is no database.
pub const BACKEND_NOT_SQL: &str = "operator-managed migration only supports SQL backend store URIs";
/// A migration found a registry store that is no database.
pub const REGISTRY_NOT_SQL: &str = "operator-managed migration only supports SQL registry store URIs";
/// A migration ended at another schema than the image's.
pub const SCHEMA_NOT_AT_HEAD: &str =
    "migration completed but the resulting schema revision does not match the image's Alembic head";
/// A migration found a schema of unknown origin.
pub const REVISION_GRAPH_UNRESOLVED: &str =
    "migration failed because Alembic could not resolve the schema revision graph";
/// A migration met an error that may pass.
pub const RETRYABLE_FAILURE: &str = "migration failed due to a retryable database or migration error";
/// A migration failed, and nothing says why.
pub const UNKNOWN_FAILURE: &str = "migration Job failed";

/// `Available`: some replicas are not ready.
pub fn deployment_not_ready(ready: i32, desired: i32) -> String {
    format!("MLflow deployment not ready: {ready}/{desired} replicas ready")
}

/// `Migration`: done.
pub fn migration_succeeded(generation: i64) -> String {
    format!("Migration for generation {generation} completed successfully")
}

/// A failed migration that needs the user, because of `cause`.
pub fn migration_failed(cause: &str) -> String {
    format!(
        "{cause}. After fixing the issue, add the {FORCE_MIGRATE} annotation to the MLflow resource to force a rerun."
    )
}

/// A failed migration that is repeated at `time`.
pub fn migration_retrying(cause: &str, time: &str) -> String {
    format!(
        "{cause} Retrying automatically after {time}. If you want to rerun immediately after fixing the issue, add the \
         {FORCE_MIGRATE} annotation."
    )
}
