//! What is made for a RayJob: a cluster, a submitter, a Service, and the submission itself.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::{
            Container, EnvVar, EnvVarSource, PodSpec, PodTemplateSpec, ResourceRequirements,
            SecretKeySelector, Service,
        },
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use quintet_api::{
    owners::controller_reference,
    ray::v1::{RayCluster, RayJob, RayJobStatus},
};

use super::{
    command::{Place, command},
    plan::submission::CONTAINER,
};
use crate::{
    dashboard::{self, Submission},
    k8s_service::{self, Behalf},
    labels,
    rayjob::validation::{Mode, runtime_env},
    schedulers,
    settings::Settings,
};

/// Attempts of the submitter Job beyond the first.
const SUBMITTER_RETRIES: i32 = 2;

fn behalf(job: &RayJob) -> Behalf<'_> {
    Behalf { kind: "RayJob", name: job.metadata.name.as_deref().unwrap_or_default() }
}

/// The cluster of a RayJob that brings its own. The error is for the user to fix.
pub(super) fn cluster(job: &RayJob, name: &str, settings: &Settings) -> Result<RayCluster, String> {
    let Some(mut spec) = job.spec.ray_cluster_spec.clone() else {
        return Err("one of rayClusterSpec or clusterSelector must be set".to_owned());
    };
    let mut given = job.metadata.labels.clone().unwrap_or_default();
    given.extend(behalf(job).labels());
    let mode = job.spec.submission_mode.clone().filter(|mode| !mode.is_empty());
    given.insert(labels::SUBMISSION_MODE.to_owned(), mode.unwrap_or_else(|| "K8sJobMode".to_owned()));
    let mut annotations = job.metadata.annotations.clone().unwrap_or_default();
    let metadata = |labels, annotations| ObjectMeta {
        name: Some(name.to_owned()),
        namespace: job.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations),
        owner_references: controller_reference(job).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    if Mode::of(&job.spec) == Mode::Sidecar {
        annotations.insert(labels::DISABLE_HEAD_RESTART.to_owned(), "true".to_owned());
        let bare = RayCluster {
            metadata: metadata(BTreeMap::new(), BTreeMap::new()),
            spec: spec.clone(),
            status: None,
        };
        let container = sidecar(job, &bare, settings)?;
        let pod = spec.head_group_spec.template.spec.get_or_insert_default();
        pod.containers.push(container);
        pod.restart_policy = Some("Never".to_owned());
    }
    let mut cluster = RayCluster { metadata: metadata(given, annotations), spec, status: None };
    if let Some(template) = submitter_template(job, &cluster) {
        schedulers::mark_cluster(&mut cluster, &template, settings);
    }
    Ok(cluster)
}

/// The pods of the submitter Job, as far as the user has a say in them. `None` if there is no such Job.
pub(super) fn submitter_template(job: &RayJob, cluster: &RayCluster) -> Option<PodTemplateSpec> {
    if Mode::of(&job.spec) != Mode::K8sJob {
        return None;
    }
    let own = job.spec.submitter_pod_template.clone();
    Some(own.unwrap_or_else(|| PodTemplateSpec {
        metadata: None,
        spec: Some(PodSpec {
            containers: vec![default_container(cluster)],
            restart_policy: Some("Never".to_owned()),
            ..PodSpec::default()
        }),
    }))
}

/// The container that submits from within the head pod.
fn sidecar(job: &RayJob, cluster: &RayCluster, settings: &Settings) -> Result<Container, String> {
    let restarts = settings.gates.sidecar_submitter_restart;
    let port =
        k8s_service::head_port(&cluster.spec, k8s_service::DASHBOARD).unwrap_or(k8s_service::DASHBOARD_PORT);
    let status = job.status.clone().unwrap_or_default();
    let mut container = default_container(cluster);
    let id = status.job_id.as_deref().unwrap_or_default();
    container.command = Some(shell(settings));
    container.args = Some(vec![command(&job.spec, id, &Place::HeadPod { port, restarts })?]);
    container.restart_policy = restarts.then(|| "OnFailure".to_owned());
    // Where the dashboard will be found from outside is not known yet.
    add_environment(&mut container, "", id, cluster);
    Ok(container)
}

/// The Job that submits. The error is for the user to fix.
pub(super) fn submitter(
    job: &RayJob,
    status: &RayJobStatus,
    cluster: &RayCluster,
    settings: &Settings,
) -> Result<Job, String> {
    let mut template = submitter_template(job, cluster).unwrap_or_default();
    let host = status.dashboard_url.clone().unwrap_or_default();
    let id = status.job_id.clone().unwrap_or_default();
    // Built whether it is used or not, so that a mistake shows before anything runs.
    let text = command(&job.spec, &id, &Place::OwnPod(host.clone()))?;
    let containers = template.spec.as_mut().map(|pod| pod.containers.as_mut_slice()).unwrap_or_default();
    let Some(container) = containers.first_mut() else {
        return Err("spec.submitterPodTemplate has no containers; add one".to_owned());
    };
    if container.command.as_ref().is_none_or(Vec::is_empty) {
        container.command = Some(shell(settings));
        container.args = Some(vec![text]);
    }
    add_environment(container, &host, &id, cluster);
    let mut given = behalf(job).labels();
    given.insert(labels::APP_CREATED_BY.to_owned(), labels::CREATOR.to_owned());
    template.metadata.get_or_insert_default().labels.get_or_insert_default().extend(given.clone());
    schedulers::mark_submitter(&mut template, cluster, settings);
    let retries = job.spec.submitter_config.as_ref().and_then(|config| config.backoff_limit);
    Ok(Job {
        metadata: ObjectMeta {
            name: job.metadata.name.clone(),
            namespace: job.metadata.namespace.clone(),
            labels: Some(given),
            owner_references: controller_reference(job).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: retries.or(Some(SUBMITTER_RETRIES)),
            template,
            ..JobSpec::default()
        }),
        status: None,
    })
}

/// A shell that ends at the first command that fails.
fn shell(settings: &Settings) -> Vec<String> {
    let flags = if settings.login_shell { "-cel" } else { "-ce" };
    ["/bin/bash", flags, "--"].map(str::to_owned).to_vec()
}

/// A container with the head's image and little to do. Kueue reckons with the same resources.
fn default_container(cluster: &RayCluster) -> Container {
    let pod = cluster.spec.head_group_spec.template.spec.as_ref();
    let quantities = |cpu: &str, memory: &str| {
        let quantity = |text: &str| Quantity(text.to_owned());
        BTreeMap::from([("cpu".to_owned(), quantity(cpu)), ("memory".to_owned(), quantity(memory))])
    };
    Container {
        name: CONTAINER.to_owned(),
        image: pod.and_then(|pod| pod.containers.first()?.image.clone()),
        resources: Some(ResourceRequirements {
            requests: Some(quantities("500m", "200Mi")),
            limits: Some(quantities("1", "1Gi")),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    }
}

fn add_environment(container: &mut Container, host: &str, job_id: &str, cluster: &RayCluster) {
    let variable = |name: &str, value: &str| EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    };
    let variables = container.env.get_or_insert_default();
    variables.push(variable("PYTHONUNBUFFERED", "1"));
    variables.push(variable("RAY_DASHBOARD_ADDRESS", host));
    variables.push(variable("RAY_JOB_SUBMISSION_ID", job_id));
    let Some(secret) = dashboard::token_secret(cluster) else { return };
    let mut add_missing = |wanted: EnvVar| {
        if !variables.iter().any(|present| present.name == wanted.name) {
            variables.push(wanted);
        }
    };
    add_missing(variable("RAY_AUTH_MODE", "token"));
    add_missing(EnvVar {
        name: "RAY_AUTH_TOKEN".to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: secret,
                key: "auth_token".to_owned(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
    });
}

/// The RayJob's own Service in front of the head.
pub(super) fn head_service(job: &RayJob, cluster: &RayCluster, settings: &Settings) -> Service {
    let mut service = k8s_service::head_service(cluster, Some(behalf(job)), settings);
    service.metadata.owner_references = controller_reference(job).map(|owner| vec![owner]);
    service
}

/// What the operator itself posts to Ray. The error is for the user to fix.
pub(super) fn submission(job: &RayJob, id: &str) -> Result<Submission, String> {
    let spec = &job.spec;
    let resources = spec.entrypoint_resources.as_deref().filter(|text| !text.is_empty());
    let entrypoint_resources = match resources {
        Some(text) => serde_json::from_str(text).map_err(|error| {
            format!("entrypointResources is not a JSON object of numbers, such as {{\"disk\": 1}}: {error}")
        })?,
        None => BTreeMap::new(),
    };
    Ok(Submission {
        entrypoint: spec.entrypoint.clone().unwrap_or_default(),
        submission_id: id.to_owned(),
        runtime_env: runtime_env(spec)?,
        metadata: spec.metadata.clone().unwrap_or_default(),
        entrypoint_num_cpus: spec.entrypoint_num_cpus.unwrap_or_default(),
        entrypoint_num_gpus: spec.entrypoint_num_gpus.unwrap_or_default(),
        entrypoint_resources,
    })
}
