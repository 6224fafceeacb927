//! Condition types of the MLflow kinds.

/// MLflow: enough replicas of the server are ready.
pub const AVAILABLE: &str = "Available";
/// MLflow: the operator works towards the spec.
pub const PROGRESSING: &str = "Progressing";
/// MLflow: the database has the schema of the supported MLflow version.
pub const MIGRATION: &str = "Migration";
/// MLflow: the platform's MLflowOperator allows it to be reconciled; in module mode only.
pub const MLFLOW_OPERATOR_READY: &str = "MLflowOperatorReady";
/// MLflowOperator: its settings are complete.
pub const READY: &str = "Ready";
