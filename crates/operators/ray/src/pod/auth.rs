//! Tokens that Ray demands from whoever talks to it.

use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, PodSpec, ProjectedVolumeSource, SecretKeySelector,
    ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use quintet_api::ray::v1::{AuthMode, AuthOptions, RayClusterSpec};

use super::{environment, waiting};
use crate::names;

/// Key of the token in its Secret.
pub const TOKEN_KEY: &str = "auth_token";

const TOKEN_VOLUME: &str = "ray-token";
const TOKEN_PATH: &str = "/var/run/secrets/ray.io/serviceaccount";

/// Whether Ray demands a token.
pub fn is_enabled(spec: &RayClusterSpec) -> bool {
    spec.auth_options.as_ref().is_some_and(|options| options.mode == Some(AuthMode::Token))
}

/// Whether Kubernetes' own tokens are taken.
pub fn takes_kubernetes_tokens(options: Option<&AuthOptions>) -> bool {
    options.is_some_and(|options| options.enable_k8s_token_auth == Some(true))
}

/// The Secret with the token: the user's, or one named like the cluster.
pub fn secret_name(cluster: &str, options: Option<&AuthOptions>) -> String {
    let own = options.and_then(|options| options.secret_name.clone()).filter(|name| !name.is_empty());
    own.unwrap_or_else(|| names::object_name(cluster))
}

/// Gives a container the token, if Ray demands one.
pub fn configure(container: &mut Container, cluster: &str, spec: &RayClusterSpec) {
    if !is_enabled(spec) {
        return;
    }
    let options = spec.auth_options.as_ref();
    environment::set_missing(container, "RAY_AUTH_MODE", "token");
    if takes_kubernetes_tokens(options) {
        environment::set_missing(container, "RAY_ENABLE_K8S_TOKEN_AUTH", "true");
        let mounts = container.volume_mounts.get_or_insert_default();
        if !mounts.iter().any(|mount| mount.name == TOKEN_VOLUME) {
            mounts.push(VolumeMount {
                name: TOKEN_VOLUME.to_owned(),
                mount_path: TOKEN_PATH.to_owned(),
                read_only: Some(true),
                ..VolumeMount::default()
            });
        }
    } else if !environment::has(container.env.as_deref(), "RAY_AUTH_TOKEN") {
        let key = SecretKeySelector {
            name: secret_name(cluster, options),
            key: TOKEN_KEY.to_owned(),
            optional: None,
        };
        let source = EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() };
        let name = "RAY_AUTH_TOKEN".to_owned();
        environment::push(container, EnvVar { name, value: None, value_from: Some(source) });
    }
}

/// Gives the containers of a pod that talk to Ray the token.
pub(super) fn configure_pod(pod: &mut PodSpec, cluster: &str, spec: &RayClusterSpec) {
    if !is_enabled(spec) {
        return;
    }
    if let Some(ray) = pod.containers.first_mut() {
        configure(ray, cluster, spec);
    }
    let waiting =
        pod.init_containers.iter_mut().flatten().filter(|container| container.name == waiting::NAME);
    for container in waiting {
        configure(container, cluster, spec);
    }
    if takes_kubernetes_tokens(spec.auth_options.as_ref()) {
        let volumes = pod.volumes.get_or_insert_default();
        if !volumes.iter().any(|volume| volume.name == TOKEN_VOLUME) {
            volumes.push(token_volume());
        }
    }
}

fn token_volume() -> Volume {
    let token = ServiceAccountTokenProjection {
        path: "token".to_owned(),
        ..ServiceAccountTokenProjection::default()
    };
    let projection = VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() };
    let projected =
        ProjectedVolumeSource { sources: Some(vec![projection]), ..ProjectedVolumeSource::default() };
    Volume { name: TOKEN_VOLUME.to_owned(), projected: Some(projected), ..Volume::default() }
}
