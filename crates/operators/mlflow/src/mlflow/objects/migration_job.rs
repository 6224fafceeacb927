//! The Job that migrates the databases. Its pod is the server's, with another command.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::mlflow::metadata::{MIGRATION_INSTANCE, MIGRATION_JOB};

use super::container::{env, texts};
use super::{Inputs, Rendered, metadata, stores};
use crate::names::{MIGRATION, MLFLOW};

/// The container whose exit code says how the migration ended.
pub(in crate::mlflow) const CONTAINER: &str = "db-migrate";

/// How often the Job is repeated before it has failed.
const BACKOFF_LIMIT: i32 = 3;
/// How long a finished Job is kept unless the spec says so: a day.
const DEFAULT_TTL: i32 = 86400;

const SCRIPT: &str = include_str!("scripts/migrate.py");

/// The Job of this name. `None` if the server has no pod to derive it from.
pub(in crate::mlflow) fn migration_job(inputs: &Inputs<'_>, rendered: &Rendered, name: &str) -> Option<Job> {
    let server = rendered.server_pod()?;
    let labels = labels(server.metadata.as_ref()?.labels.clone().unwrap_or_default(), inputs);
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(labels.clone()), ..ObjectMeta::default() }),
        spec: Some(pod(server.spec.as_ref()?, &inputs.settings.version)),
    };
    let options = inputs.mlflow.spec.migration.as_ref();
    let ttl = options.and_then(|options| options.ttl_seconds_after_finished).unwrap_or(DEFAULT_TTL);
    let mut metadata = metadata(inputs, name, MLFLOW);
    metadata.labels = Some(labels);
    Some(Job {
        metadata,
        spec: Some(JobSpec {
            backoff_limit: Some(BACKOFF_LIMIT),
            ttl_seconds_after_finished: Some(ttl),
            template,
            ..JobSpec::default()
        }),
        status: None,
    })
}

/// The labels of the server without `app`, so that its Service does not lead here.
fn labels(mut labels: BTreeMap<String, String>, inputs: &Inputs<'_>) -> BTreeMap<String, String> {
    labels.remove("app");
    let instance = inputs.mlflow.metadata.name.as_deref().unwrap_or_default();
    labels.extend(
        [("component", MIGRATION), (MIGRATION_JOB, "true"), (MIGRATION_INSTANCE, instance)]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    labels
}

fn pod(server: &PodSpec, version: &str) -> PodSpec {
    let containers: Vec<_> = server
        .containers
        .iter()
        .filter(|container| container.name == MLFLOW)
        .map(|container| migration(container, version))
        .collect();
    let init_containers = server.init_containers.clone();
    let mounted: BTreeSet<_> = containers
        .iter()
        .chain(init_containers.iter().flatten())
        .flat_map(|container| container.volume_mounts.iter().flatten())
        .map(|mount| mount.name.clone())
        .collect();
    let volumes = server.volumes.iter().flatten().filter(|volume| mounted.contains(&volume.name));
    PodSpec {
        volumes: Some(volumes.cloned().collect()),
        restart_policy: Some("Never".to_owned()),
        resource_claims: None,
        init_containers,
        containers,
        ..server.clone()
    }
}

fn migration(server: &Container, version: &str) -> Container {
    let mut resources = server.resources.clone();
    if let Some(resources) = &mut resources {
        resources.claims = None;
    }
    Container {
        name: CONTAINER.to_owned(),
        command: Some(texts(&["/bin/sh", "-ec"])),
        args: Some(vec!["exec python3.12 -c \"$MIGRATION_PYTHON_SCRIPT\"".to_owned()]),
        env: Some(environment(server.env.as_deref().unwrap_or_default(), version)),
        ports: None,
        liveness_probe: None,
        readiness_probe: None,
        resources,
        ..server.clone()
    }
}

/// The variables of the server. A read replica must not be migrated, also if one comes from `envFrom`.
fn environment(server: &[EnvVar], version: &str) -> Vec<EnvVar> {
    let kept = server.iter().filter(|variable| variable.name != stores::READ_REPLICA).cloned();
    let no_replica = EnvVar { name: stores::READ_REPLICA.to_owned(), value: None, value_from: None };
    let own = [no_replica, env("MIGRATION_PYTHON_SCRIPT", SCRIPT), env("SUPPORTED_MLFLOW_VERSION", version)];
    kept.chain(own).collect()
}
