//! Trace archival: a CronJob that moves old traces to an object store, and its configuration.

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, VolumeMount};
use quintet_api::mlflow::TraceArchival;
use quintet_controller::Action;

use super::container::{self, PodInputs, read_only, resources};
use super::{Inputs, apply, ca, gc, metadata, server};
use crate::names::{ARCHIVAL, ARCHIVAL_CONFIG, ARCHIVAL_SERVICE_ACCOUNT, MLFLOW};

/// When it runs unless the spec says so.
const DEFAULT_SCHEDULE: &str = "0 */6 * * *";
/// How many traces a run archives unless the spec says so.
const DEFAULT_TRACES: i32 = 1000;
/// The key of the configuration, and the name of its file.
const FILE: &str = "trace-archival.yaml";

/// The archival that the spec wants, if it is on. The error is for the user to fix.
pub(super) fn settings<'a>(inputs: &Inputs<'a>) -> Result<Option<&'a TraceArchival>, String> {
    let spec = &inputs.mlflow.spec;
    let Some(archival) = spec.trace_archival.as_ref().filter(|archival| archival.enabled == Some(true))
    else {
        return Ok(None);
    };
    let is_on_disk = archival.location.as_deref().is_some_and(|location| location.starts_with("file://"));
    if is_on_disk && spec.storage.is_none() {
        return Err(
            "storage must be configured when traceArchival.location uses file-based storage (file:// prefix)"
                .to_owned(),
        );
    }
    Ok(Some(archival))
}

/// The variable that names the configuration.
pub(super) fn env() -> EnvVar {
    container::env("MLFLOW_TRACE_ARCHIVAL_CONFIG", "/etc/mlflow/trace-archival.yaml")
}

/// Where the configuration is mounted.
pub(super) fn mount() -> VolumeMount {
    read_only(container::mount("trace-archival-config", "/etc/mlflow"))
}

/// The configuration.
pub(super) fn config_map(inputs: &Inputs<'_>, archival: &TraceArchival) -> Action {
    apply(&ConfigMap {
        metadata: metadata(inputs, ARCHIVAL_CONFIG, MLFLOW),
        data: Some([(FILE.to_owned(), document(archival))].into()),
        ..ConfigMap::default()
    })
}

/// The configuration as MLflow reads it. JSON strings are YAML strings.
fn document(archival: &TraceArchival) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let field = |text: &Option<String>| quoted(text.as_deref().unwrap_or_default());
    let mut lines = vec![
        "trace_archival:".to_owned(),
        "  enabled: true".to_owned(),
        format!("  location: {}", field(&archival.location)),
        format!("  retention: {}", field(&archival.retention)),
        format!("  max_traces_per_pass: {}", archival.max_traces_per_pass.unwrap_or(DEFAULT_TRACES)),
    ];
    let allowed = archival.long_retention_allowlist.as_deref().unwrap_or_default();
    if !allowed.is_empty() {
        lines.push("  long_retention_allowlist:".to_owned());
        lines.extend(allowed.iter().map(|experiment| format!("    - {}", quoted(experiment))));
    }
    lines.join("\n") + "\n"
}

/// The CronJob.
pub(super) fn cron_job(pod: &PodInputs<'_>, archival: &TraceArchival) -> Action {
    let run = "from mlflow.tracing.trace_archival_service import run_trace_archival_scheduler; \
               run_trace_archival_scheduler()";
    let mut environment = vec![container::env("MLFLOW_DISABLE_TELEMETRY", "true"), env()];
    environment.extend(pod.workspace_env());
    environment.extend(ca::client_env(pod.inputs.bundles));
    environment.extend(server::own_env(pod));
    let mut mounts = gc::mounts(pod);
    mounts.insert(1, mount());
    let container = Container {
        resources: Some(resources(archival.resources.as_ref(), gc::REQUESTS, gc::LIMITS)),
        volume_mounts: Some(mounts),
        ..pod.container(ARCHIVAL, &["python", "-c", run], environment)
    };
    let mut volumes = gc::volumes(pod);
    // Lists keep upstream's order, so that taking over changes nothing.
    volumes.insert(1, server::archival_volume());
    let template = pod.pod(ARCHIVAL, ARCHIVAL_SERVICE_ACCOUNT, vec![container], volumes);
    let schedule = archival.schedule.as_deref().filter(|schedule| !schedule.is_empty());
    gc::periodic(pod.inputs, ARCHIVAL, schedule.unwrap_or(DEFAULT_SCHEDULE), template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_in_the_configuration_are_quoted() {
        let archival = TraceArchival {
            location: Some("s3://b/\"t\"".to_owned()),
            retention: Some("30d".to_owned()),
            long_retention_allowlist: Some(vec!["1".to_owned(), "a: b".to_owned()]),
            ..TraceArchival::default()
        };
        assert_eq!(
            document(&archival),
            "trace_archival:\n  enabled: true\n  location: \"s3://b/\\\"t\\\"\"\n  retention: \"30d\"\n  \
             max_traces_per_pass: 1000\n  long_retention_allowlist:\n    - \"1\"\n    - \"a: b\"\n"
        );
    }
}
