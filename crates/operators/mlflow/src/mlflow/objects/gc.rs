//! Garbage collection: a CronJob that removes what users have deleted.

use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, JobSpec, JobTemplateSpec};
use k8s_openapi::api::core::v1::{Container, PodTemplateSpec, Volume, VolumeMount};
use quintet_controller::Action;

use super::container::{PodInputs, env, resources};
use super::stores::{self, StoreUri};
use super::{Inputs, apply, ca, metadata};
use crate::names::{GC, GC_SERVICE_ACCOUNT};

/// CPU and memory that a task requests by default.
pub(super) const REQUESTS: [&str; 2] = ["100m", "256Mi"];
/// CPU and memory that a task is limited to by default.
pub(super) const LIMITS: [&str; 2] = ["500m", "512Mi"];

/// The CronJob, if the spec wants it. It does not get the variables of the spec.
pub(super) fn cron_job(pod: &PodInputs<'_>) -> Option<Action> {
    let collection = pod.spec().garbage_collection.as_ref()?;
    let mut environment = vec![env("MLFLOW_DISABLE_TELEMETRY", "true")];
    environment.extend(pod.workspace_env());
    // With the path that the server has, unlike upstream's: it deletes artifacts through the server.
    environment.push(env("MLFLOW_TRACKING_URI", &pod.inputs.settings.tracking_uri()));
    environment.push(env("MLFLOW_TRACKING_INSECURE_TLS", "false"));
    environment.push(env("MLFLOW_TRACKING_AUTH", "kubernetes"));
    environment.extend(ca::client_env(pod.inputs.bundles));
    let container = Container {
        args: Some(arguments(pod, collection.older_than.as_deref())),
        resources: Some(resources(collection.resources.as_ref(), REQUESTS, LIMITS)),
        volume_mounts: Some(mounts(pod)),
        ..pod.container(GC, &["mlflow"], environment)
    };
    let template = pod.pod(GC, GC_SERVICE_ACCOUNT, vec![container], volumes(pod));
    Some(periodic(pod.inputs, GC, &collection.schedule, template))
}

fn arguments(pod: &PodInputs<'_>, older_than: Option<&str>) -> Vec<String> {
    let store = match stores::backend(pod.spec()) {
        StoreUri::Text(text) => text,
        // The kubelet puts the value of the variable in.
        StoreUri::Secret(_) => format!("$({})", stores::BACKEND),
    };
    let mut arguments = vec!["gc".to_owned(), format!("--backend-store-uri={store}")];
    let age = older_than.filter(|age| !age.is_empty());
    arguments.extend(age.map(|age| format!("--older-than={age}")));
    arguments.push("--all-workspaces".to_owned());
    arguments
}

/// The volumes of a task.
pub(super) fn volumes(pod: &PodInputs<'_>) -> Vec<Volume> {
    let mut volumes = pod.volumes();
    volumes.extend(ca::volumes(pod.inputs.bundles));
    volumes
}

/// Where the volumes of a task are mounted.
pub(super) fn mounts(pod: &PodInputs<'_>) -> Vec<VolumeMount> {
    let mut mounts = pod.mounts();
    mounts.extend(ca::mounts(pod.inputs.bundles));
    mounts
}

/// A CronJob, of which no two runs overlap.
pub(super) fn periodic(
    inputs: &Inputs<'_>,
    name: &str,
    schedule: &str,
    mut template: PodTemplateSpec,
) -> Action {
    if let Some(pod) = &mut template.spec {
        pod.restart_policy = Some("Never".to_owned());
    }
    let job = JobSpec { backoff_limit: Some(1), template, ..JobSpec::default() };
    apply(&CronJob {
        metadata: metadata(inputs, name, name),
        spec: CronJobSpec {
            schedule: schedule.to_owned(),
            concurrency_policy: Some("Forbid".to_owned()),
            successful_jobs_history_limit: Some(3),
            failed_jobs_history_limit: Some(3),
            job_template: JobTemplateSpec { metadata: None, spec: Some(job) },
            ..CronJobSpec::default()
        },
        status: None,
    })
}
