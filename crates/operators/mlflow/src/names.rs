//! Names, ports and paths of what is made for an MLflow, all as upstream's.

/// The only name that an MLflow may have, and that of its main objects.
pub(crate) const MLFLOW: &str = "mlflow";
/// The field manager of applies. Objects of the Go operator are taken over without a write because it is the same.
pub(crate) const MANAGER: &str = "mlflow-operator";

/// The claim of the server's volume.
pub(crate) const CLAIM: &str = "mlflow-pvc";
/// The Secret with the server's certificate.
pub(crate) const TLS_SECRET: &str = "mlflow-tls";
/// The service account of servers whose spec names none.
pub(crate) const SERVICE_ACCOUNT: &str = "mlflow-sa";

/// The garbage collection: CronJob, ClusterRole and ClusterRoleBinding.
pub(crate) const GC: &str = "mlflow-gc";
/// The service account of the garbage collection.
pub(crate) const GC_SERVICE_ACCOUNT: &str = "mlflow-gc-sa";

/// The trace archival's CronJob.
pub(crate) const ARCHIVAL: &str = "mlflow-trace-archival";
/// The service account of the trace archival.
pub(crate) const ARCHIVAL_SERVICE_ACCOUNT: &str = "mlflow-trace-archival-sa";
/// The ConfigMap of the trace archival.
pub(crate) const ARCHIVAL_CONFIG: &str = "mlflow-trace-archival-config";

/// The NetworkPolicy of migration pods, and their component.
pub(crate) const MIGRATION: &str = "mlflow-migration";
/// The ServiceMonitor.
pub(crate) const SERVICE_MONITOR: &str = "mlflow-metrics-monitor";
/// The ConfigMap with the platform's CA certificates.
pub(crate) const PLATFORM_CA: &str = "odh-trusted-ca-bundle";
/// The Secret with a workspace's object store, which the server reads.
pub(crate) const ARTIFACT_CONNECTION: &str = "mlflow-artifact-connection";

/// The only name that an MLflowOperator may have.
pub(crate) const MODULE: &str = "default-mlflowoperator";
/// The ConfigMap with the version of the platform.
pub(crate) const MODULE_CONFIG: &str = "odh-mlflowoperator-config";
/// The only Auth that counts.
pub(crate) const AUTH: &str = "auth";
/// The RoleBinding of those who may view a workspace.
pub(crate) const VIEW_BINDING: &str = "odh-group-mlflow-view";
/// The RoleBinding of those who may edit a workspace.
pub(crate) const EDIT_BINDING: &str = "odh-group-mlflow-edit";

/// The seccomp profile of pods: that of the container runtime.
pub(crate) const SECCOMP_PROFILE: &str = "RuntimeDefault";

/// The server's port.
pub(crate) const PORT: i32 = 8443;
/// The name of the server's port.
pub(crate) const PORT_NAME: &str = "https";

/// The name of the migration Job for a generation, at most 63 characters long.
pub(crate) fn migration_job(version: &str, generation: i64) -> String {
    let version = version.to_lowercase();
    let version = version.strip_prefix('v').unwrap_or(&version);
    let mut digits: String = version.chars().filter(char::is_ascii_alphanumeric).collect();
    if digits.is_empty() {
        "unknown".clone_into(&mut digits);
    }
    let suffix = format!("-g{generation}");
    let mut base = format!("{MLFLOW}-mg-{digits}");
    base.truncate(63 - suffix.len());
    base.truncate(base.trim_end_matches('-').len());
    base + &suffix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_job_is_named_after_version_and_generation() {
        assert_eq!(migration_job("3.14.0", 1), "mlflow-mg-3140-g1");
        assert_eq!(migration_job("V3.14.0-RC.1", 12), "mlflow-mg-3140rc1-g12");
        assert_eq!(migration_job("", 1), "mlflow-mg-unknown-g1");
        let long = migration_job(&"1".repeat(80), i64::MAX);
        assert!(long.len() == 63 && long.ends_with("-g9223372036854775807"), "{long}");
    }
}
