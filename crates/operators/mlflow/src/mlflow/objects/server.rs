//! The Deployment of the server.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, PodTemplateSpec,
    Probe, SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use quintet_api::mlflow::MLflowSpec;

use super::container::{PodInputs, env, mount, non_empty, quantity, read_only, resources, scratch};
use super::{archival, ca, cors, metadata, stores};
use crate::names::{MLFLOW, PORT, PORT_NAME, SERVICE_ACCOUNT, TLS_SECRET};

/// Where served artifacts go unless the spec names a place.
const DEFAULT_DESTINATION: &str = "file:///mlflow/artifacts";
/// Where the server keeps its metrics.
const METRICS_PATH: &str = "/prometheus";
/// Chooses the ciphers of OpenShift's crypto policy.
const CIPHERS: &str = "UVICORN_SSL_CIPHERS";

/// The Deployment, without the number of replicas.
pub(super) fn deployment(pod: &PodInputs<'_>) -> Deployment {
    let selector = [("app".to_owned(), MLFLOW.to_owned())].into();
    Deployment {
        metadata: metadata(pod.inputs, MLFLOW, MLFLOW),
        spec: Some(DeploymentSpec {
            strategy: Some(strategy(pod.spec())),
            selector: LabelSelector { match_labels: Some(selector), ..LabelSelector::default() },
            template: template(pod),
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// The service account of the server. An empty name is none: an object without a name cannot be applied.
pub(super) fn service_account(spec: &MLflowSpec) -> &str {
    spec.service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(SERVICE_ACCOUNT)
}

/// Two pods cannot share a volume of access mode ReadWriteOnce, nor SQLite's file.
fn strategy(spec: &MLflowSpec) -> DeploymentStrategy {
    if spec.storage.is_some() {
        return DeploymentStrategy { type_: Some("Recreate".to_owned()), rolling_update: None };
    }
    DeploymentStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdateDeployment {
            max_surge: Some(IntOrString::Int(1)),
            max_unavailable: Some(IntOrString::Int(0)),
        }),
    }
}

fn template(pod: &PodInputs<'_>) -> PodTemplateSpec {
    let spec = pod.spec();
    let containers = std::iter::once(server(pod)).chain(ca::sidecar(pod)).collect();
    let mut template = pod.pod(MLFLOW, service_account(spec), containers, volumes(pod));
    if let Some(metadata) = &mut template.metadata {
        let labels = spec.pod_labels.iter().flatten();
        let labels = labels.map(|(name, value)| (name.clone(), value.clone()));
        metadata.labels.get_or_insert_default().extend(labels);
        metadata.annotations = spec.pod_annotations.clone().filter(|annotations| !annotations.is_empty());
    }
    if let Some(template) = &mut template.spec {
        template.resource_claims = non_empty(spec.resource_claims.as_ref());
    }
    template
}

fn server(pod: &PodInputs<'_>) -> Container {
    let spec = pod.spec();
    Container {
        args: Some(arguments(pod)),
        ports: Some(vec![ContainerPort {
            name: Some(PORT_NAME.to_owned()),
            container_port: PORT,
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        liveness_probe: Some(probe("/mlflow/health", 30, 10)),
        readiness_probe: Some(probe("/mlflow/api/3.0/mlflow/server-info", 5, 5)),
        resources: Some(resources(spec.resources.as_ref(), ["1", "2Gi"], ["4", "3Gi"])),
        volume_mounts: Some(mounts(pod)),
        ..pod.container(MLFLOW, &["mlflow"], environment(pod))
    }
}

fn arguments(pod: &PodInputs<'_>) -> Vec<String> {
    let spec = pod.spec();
    let mut arguments = vec!["server".to_owned()];
    if spec.serve_artifacts == Some(true) {
        let destination = spec.artifacts_destination.as_deref();
        arguments.push("--serve-artifacts".to_owned());
        arguments.push(format!("--artifacts-destination={}", destination.unwrap_or(DEFAULT_DESTINATION)));
    } else {
        arguments.push("--no-serve-artifacts".to_owned());
    }
    let root = spec.default_artifact_root.as_deref().filter(|root| !root.is_empty());
    arguments.extend(root.map(|root| format!("--default-artifact-root={root}")));
    arguments.extend(
        [
            "--app-name=kubernetes-auth",
            "--enable-workspaces",
            "--workspace-store-uri=kubernetes://",
            "--host=0.0.0.0",
        ]
        .map(str::to_owned),
    );
    arguments.push(format!("--port={PORT}"));
    arguments.push(format!("--workers={}", spec.workers.unwrap_or(1)));
    arguments.push(
        "--uvicorn-opts=--ssl-keyfile=/etc/tls/private/tls.key --ssl-certfile=/etc/tls/private/tls.crt --proxy-headers"
            .to_owned(),
    );
    arguments.extend(["--allowed-hosts", "*", "--static-prefix=/mlflow"].map(str::to_owned));
    if pod.inputs.apis.service_monitors {
        arguments.push(format!("--expose-prometheus={METRICS_PATH}"));
    }
    arguments
}

fn environment(pod: &PodInputs<'_>) -> Vec<EnvVar> {
    let spec = pod.spec();
    let mut all =
        vec![env("MLFLOW_DISABLE_TELEMETRY", "true"), env("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")];
    all.extend(pod.archives.then(archival::env));
    all.push(stores::backend(spec).env(stores::BACKEND));
    all.extend(stores::read_replica(spec).map(|replica| replica.env(stores::READ_REPLICA)));
    all.push(stores::registry(spec).env(stores::REGISTRY));
    all.push(env("MLFLOW_K8S_AUTH_AUTHORIZATION_MODE", "self_subject_access_review"));
    let origins = cors::allowed_origins(spec, pod.inputs.settings);
    all.push(env("MLFLOW_SERVER_CORS_ALLOWED_ORIGINS", &origins));
    all.extend(pod.selector_env());
    all.extend(own_env(pod));
    all.push(env("MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE", "false"));
    all.extend(ca::client_env(pod.inputs.bundles));
    all
}

/// The variables of the spec, and on OpenShift the ciphers, unless the spec chooses them.
pub(super) fn own_env(pod: &PodInputs<'_>) -> Vec<EnvVar> {
    let mut own = pod.spec().env.clone().unwrap_or_default();
    for variable in &mut own {
        // As upstream: a source counts more than a value, and an empty one is none.
        variable.value_from = variable.value_from.take().filter(|source| *source != EnvVarSource::default());
        variable.value = variable.value.take().filter(|_| variable.value_from.is_none());
    }
    if pod.inputs.apis.console_links && !own.iter().any(|variable| variable.name == CIPHERS) {
        own.push(env(CIPHERS, "PROFILE=SYSTEM"));
    }
    own
}

fn probe(path: &str, delay: i32, period: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(PORT_NAME.to_owned()),
            scheme: Some("HTTPS".to_owned()),
            ..HTTPGetAction::default()
        }),
        initial_delay_seconds: Some(delay),
        period_seconds: Some(period),
        timeout_seconds: Some(1),
        success_threshold: Some(1),
        failure_threshold: Some(3),
        ..Probe::default()
    }
}

fn volumes(pod: &PodInputs<'_>) -> Vec<Volume> {
    let mut volumes = pod.volumes();
    // OpenShift's service CA operator expects group access.
    let mode = if pod.inputs.apis.console_links { 0o640 } else { 0o644 };
    volumes.push(Volume {
        name: "mlflow-tls".to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(TLS_SECRET.to_owned()),
            default_mode: Some(mode),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    });
    volumes.extend(ca::volumes(pod.inputs.bundles));
    volumes.extend(pod.inputs.apis.service_monitors.then(|| scratch("metrics", quantity("100Mi"))));
    volumes.extend(pod.archives.then(archival_volume));
    volumes
}

/// The configuration of the trace archival.
pub(super) fn archival_volume() -> Volume {
    Volume {
        name: "trace-archival-config".to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: crate::names::ARCHIVAL_CONFIG.to_owned(),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn mounts(pod: &PodInputs<'_>) -> Vec<VolumeMount> {
    let mut mounts = pod.mounts();
    mounts.push(read_only(mount("mlflow-tls", "/etc/tls/private")));
    mounts.extend(ca::mounts(pod.inputs.bundles));
    mounts.extend(pod.inputs.apis.service_monitors.then(|| mount("metrics", METRICS_PATH)));
    mounts.extend(pod.archives.then(archival::mount));
    mounts
}
