//! Labels, annotations and finalizers of the MLflow kinds and of what is made for them.

/// Annotation of an MLflow: migrate once more. Its value does not matter.
pub const FORCE_MIGRATE: &str = "mlflow.opendatahub.io/force-migrate";
/// Label of migration Jobs and their pods.
pub const MIGRATION_JOB: &str = "mlflow.opendatahub.io/migration-job";
/// Label of migration Jobs and their pods: the name of the MLflow.
pub const MIGRATION_INSTANCE: &str = "mlflow.opendatahub.io/migration-instance";
/// Label of a namespace: the MLflow whose groups get access to it.
pub const WORKSPACE: &str = "opendatahub.io/global-mlflow-workspace";
/// Finalizer of an MLflowOperator: it stays while an MLflow exists.
pub const MODULE_PROTECTION: &str = "mlflow.opendatahub.io/mlflow-operator-protection";
/// Annotation of a Service: OpenShift issues a certificate for it.
pub const SERVING_CERT: &str = "service.beta.openshift.io/serving-cert-secret-name";
