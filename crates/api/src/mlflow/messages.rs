//! Messages of conditions of the MLflow kinds.

use super::metadata::FORCE_MIGRATE;

/// `Available`: all replicas are ready.
pub const DEPLOYMENT_READY: &str = "MLflow deployment is ready and available";
/// `Progressing`: nothing is left to do.
pub const RECONCILE_COMPLETE: &str = "MLflow reconciliation completed successfully";
/// `Ready` of an MLflowOperator, and `MLflowOperatorReady`.
pub const MODULE_READY: &str = "MLflowOperator is ready to manage MLflow custom resources";

/// `MLflowOperatorReady`: there is no MLflowOperator.
pub const MODULE_MISSING: &str =
    "Waiting for MLflowOperator custom resource to be created before reconciling MLflow custom resources";
/// `MLflowOperatorReady`: the MLflowOperator has no `Ready` condition.
pub const MODULE_UNREPORTED: &str =
    "Waiting for MLflowOperator to report Ready before reconciling MLflow custom resources";

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

/// `Available`: some replicas are not ready.
pub fn deployment_not_ready(ready: i32, desired: i32) -> String {
    format!("MLflow deployment not ready: {ready}/{desired} replicas ready")
}

/// `Available`: the ConfigMap with CA certificates does not exist.
pub fn ca_bundle_not_found(config_map: &str, namespace: &str) -> String {
    format!("CA bundle ConfigMap {config_map:?} not found in namespace {namespace:?}")
}

/// `Available` and `Progressing`: the spec cannot be rendered.
pub fn render_failed(error: &str) -> String {
    format!("Failed to render Helm chart: {error}")
}

/// `MLflowOperatorReady`: the status of the MLflowOperator is older than `generation`.
pub fn module_stale(generation: i64) -> String {
    format!(
        "Waiting for MLflowOperator status to observe generation {generation} before reconciling MLflow custom \
         resources"
    )
}

/// `MLflowOperatorReady`: the `Ready` condition of the MLflowOperator is not true, and says `message`.
pub fn module_not_ready(message: &str) -> String {
    let waiting = "Waiting for MLflowOperator to become ready before reconciling MLflow custom resources";
    if message.is_empty() { waiting.to_owned() } else { format!("{waiting}: {message}") }
}

/// `Ready` of an MLflowOperator: fields of its spec are `missing`.
pub fn module_config_pending(missing: &[String]) -> String {
    let missing = missing.join(", ");
    format!("Waiting for MLflowOperator spec fields before managing MLflow custom resources: {missing}")
}

/// `Ready` of an MLflowOperator: it cannot be deleted because of so many MLflows.
pub fn mlflow_instances_present(count: usize) -> String {
    format!("cannot delete MLflowOperator while {count} MLflow instance(s) still exist")
}

/// A migration found another MLflow version in the image than `supported`.
pub fn image_version_mismatch(supported: &str) -> String {
    format!("migration image reports an unexpected MLflow version; expected {supported}")
}

/// A migration failed after so many attempts, and nothing says why.
pub fn unknown_failure(attempts: i32) -> String {
    match attempts {
        0 => "migration Job failed".to_owned(),
        attempts => format!("migration Job failed after {attempts} attempt(s)"),
    }
}

/// `Migration`: done.
pub fn migration_succeeded(generation: i64) -> String {
    format!("Migration for generation {generation} completed successfully")
}

/// A failed migration that needs the user, because of `cause`.
pub fn migration_failed(cause: &str) -> String {
    let cause = cause.strip_suffix('.').unwrap_or(cause);
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
