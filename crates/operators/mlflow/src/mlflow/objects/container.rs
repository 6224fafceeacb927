//! What the containers and pods of the server and its tasks have in common.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, EmptyDirVolumeSource, EnvVar, PersistentVolumeClaimVolumeSource,
    PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements, SeccompProfile, SecurityContext,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::mlflow::{ImagePullPolicy, MLflowSpec};

use super::{Inputs, ca, labels, stores};
use crate::names;

/// Where the server's volume is mounted.
const STORAGE_PATH: &str = "/mlflow";

/// What all pods follow from.
pub(super) struct PodInputs<'a> {
    /// The MLflow and its surroundings.
    pub inputs: &'a Inputs<'a>,
    /// The image of all containers.
    pub image: &'a str,
    /// The selector of workspaces, if not all namespaces are.
    pub workspaces: Option<&'a str>,
    /// Whether traces are archived.
    pub archives: bool,
}

impl<'a> PodInputs<'a> {
    pub(super) fn spec(&self) -> &'a MLflowSpec {
        &self.inputs.mlflow.spec
    }

    /// A container of the image, with `env`, which runs `command`.
    pub(super) fn container(&self, name: &str, command: &[&str], env: Vec<EnvVar>) -> Container {
        Container {
            name: name.to_owned(),
            image: Some(self.image.to_owned()),
            image_pull_policy: pull_policy(self.spec()).map(str::to_owned),
            command: Some(texts(command)),
            env: Some(env),
            env_from: non_empty(self.spec().env_from.as_ref()),
            security_context: Some(security_context(self.spec())),
            ..Container::default()
        }
    }

    /// `/tmp`, and the server's volume if there is one.
    pub(super) fn volumes(&self) -> Vec<Volume> {
        let limit = self.spec().temporary_storage.as_ref().and_then(|tmp| tmp.size_limit.clone());
        let mut volumes = vec![scratch("tmp", limit.unwrap_or_else(|| quantity("1Gi")))];
        if self.spec().storage.is_some() {
            let claim_name = names::CLAIM.to_owned();
            volumes.push(Volume {
                name: "mlflow-storage".to_owned(),
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name,
                    ..PersistentVolumeClaimVolumeSource::default()
                }),
                ..Volume::default()
            });
        }
        volumes
    }

    /// Where [`PodInputs::volumes`] are mounted.
    pub(super) fn mounts(&self) -> Vec<VolumeMount> {
        let mut mounts = vec![mount("tmp", "/tmp")];
        if self.spec().storage.is_some() {
            mounts.push(mount("mlflow-storage", STORAGE_PATH));
        }
        mounts
    }

    /// The variables that make a task work on all workspaces.
    pub(super) fn workspace_env(&self) -> Vec<EnvVar> {
        let mut env =
            vec![env("MLFLOW_ENABLE_WORKSPACES", "true"), env("MLFLOW_WORKSPACE_STORE_URI", "kubernetes://")];
        env.extend(self.selector_env());
        env.push(stores::backend(self.spec()).env(stores::BACKEND));
        env
    }

    /// The variable with the selector of workspaces.
    pub(super) fn selector_env(&self) -> Option<EnvVar> {
        self.workspaces.map(|selector| env("MLFLOW_K8S_WORKSPACE_LABEL_SELECTOR", selector))
    }

    /// A pod of `app` with `containers`, whose service account token is mounted.
    pub(super) fn pod(
        &self,
        app: &str,
        service_account: &str,
        containers: Vec<Container>,
        volumes: Vec<Volume>,
    ) -> PodTemplateSpec {
        let spec = self.spec();
        let mut labels = labels(app);
        labels.insert("app.kubernetes.io/instance".to_owned(), names::MLFLOW.to_owned());
        PodTemplateSpec {
            metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
            spec: Some(PodSpec {
                service_account_name: Some(service_account.to_owned()),
                automount_service_account_token: Some(true),
                security_context: Some(pod_security_context(spec)),
                node_selector: spec.node_selector.clone().filter(|selector| !selector.is_empty()),
                affinity: spec.affinity.clone().filter(|affinity| *affinity != Affinity::default()),
                tolerations: non_empty(spec.tolerations.as_ref()),
                init_containers: ca::init_container(self).map(|container| vec![container]),
                containers,
                volumes: Some(volumes),
                ..PodSpec::default()
            }),
        }
    }
}

/// The image of all containers: that of the spec, also if it is empty, which the API server rejects, as upstream. The
/// error is for the user to fix.
pub(super) fn image<'a>(inputs: &'a Inputs<'_>) -> Result<&'a str, String> {
    let own = inputs.mlflow.spec.image.as_ref().and_then(|image| image.image.as_deref());
    own.or(inputs.settings.image.as_deref())
        .ok_or_else(|| "set spec.image.image, or the operator's variable MLFLOW_IMAGE".to_owned())
}

fn pull_policy(spec: &MLflowSpec) -> Option<&'static str> {
    Some(match spec.image.as_ref()?.image_pull_policy? {
        ImagePullPolicy::Always => "Always",
        ImagePullPolicy::IfNotPresent => "IfNotPresent",
        ImagePullPolicy::Never => "Never",
    })
}

fn security_context(spec: &MLflowSpec) -> SecurityContext {
    spec.security_context.clone().unwrap_or_else(|| SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        ..SecurityContext::default()
    })
}

fn pod_security_context(spec: &MLflowSpec) -> PodSecurityContext {
    spec.pod_security_context.clone().unwrap_or_else(|| PodSecurityContext {
        run_as_non_root: Some(true),
        seccomp_profile: Some(SeccompProfile {
            type_: names::SECCOMP_PROFILE.to_owned(),
            ..SeccompProfile::default()
        }),
        ..PodSecurityContext::default()
    })
}

/// The resources that a user wants, merged into the defaults one by one: a request above a default limit needs a limit.
pub(super) fn resources(
    wanted: Option<&ResourceRequirements>,
    requests: [&str; 2],
    limits: [&str; 2],
) -> ResourceRequirements {
    let merged = |[cpu, memory]: [&str; 2], wanted: Option<&BTreeMap<String, Quantity>>| {
        let mut all =
            BTreeMap::from([("cpu".to_owned(), quantity(cpu)), ("memory".to_owned(), quantity(memory))]);
        all.extend(wanted.into_iter().flatten().map(|(name, amount)| (name.clone(), amount.clone())));
        all
    };
    ResourceRequirements {
        requests: Some(merged(requests, wanted.and_then(|wanted| wanted.requests.as_ref()))),
        limits: Some(merged(limits, wanted.and_then(|wanted| wanted.limits.as_ref()))),
        claims: non_empty(wanted.and_then(|wanted| wanted.claims.as_ref())),
    }
}

pub(super) fn env(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

pub(super) fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount { name: volume.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

pub(super) fn read_only(mount: VolumeMount) -> VolumeMount {
    VolumeMount { read_only: Some(true), ..mount }
}

/// An `emptyDir` of limited size.
pub(super) fn scratch(name: &str, limit: Quantity) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource { size_limit: Some(limit), ..EmptyDirVolumeSource::default() }),
        ..Volume::default()
    }
}

pub(super) fn quantity(text: &str) -> Quantity {
    Quantity(text.to_owned())
}

pub(super) fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A list of the specification, unless it is empty.
pub(super) fn non_empty<T: Clone>(list: Option<&Vec<T>>) -> Option<Vec<T>> {
    list.filter(|list| !list.is_empty()).cloned()
}
