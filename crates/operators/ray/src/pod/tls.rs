//! TLS between the processes of a cluster.

use k8s_openapi::api::core::v1::{Container, PodSpec, SecretVolumeSource, Volume, VolumeMount};
use quintet_api::ray::v1::{RayCluster, RayClusterSpec};

use super::{Role, environment, volumes::equal_resources, waiting};

/// Name of the volume with the certificates.
pub const VOLUME: &str = "ray-tls";
/// Where it is mounted.
pub const PATH: &str = "/etc/ray/tls";
/// Variables by which Ray finds the certificates.
pub const VARIABLES: [(&str, &str); 4] = [
    ("RAY_USE_TLS", "1"),
    ("RAY_TLS_SERVER_CERT", "/etc/ray/tls/tls.crt"),
    ("RAY_TLS_SERVER_KEY", "/etc/ray/tls/tls.key"),
    ("RAY_TLS_CA_CERT", "/etc/ray/tls/ca.crt"),
];

pub(super) const WAIT_NAME: &str = "wait-for-tls-ip-san";

/// Ends when the pod's certificate names its address, which cert-manager learns only after the pod has one.
const WAIT_SCRIPT: &str = r#"address="${POD_IP:-$(hostname -i | awk '{print $1}')}"
command -v openssl >/dev/null || { echo "this image has no openssl to read the certificate with" >&2; exit 1; }
until openssl x509 -in /etc/ray/tls/tls.crt -noout -text 2>/dev/null | grep -qE "IP Address:${address}([^0-9.]|$)"; do
  echo "The certificate does not name ${address} yet."
  sleep 5
done
echo "The certificate names ${address}."
"#;

/// Whether the processes of a cluster use TLS.
pub fn is_enabled(spec: &RayClusterSpec) -> bool {
    spec.tls_options.as_ref().is_some_and(|options| options.enabled == Some(true))
}

/// The Secret with the certificate of the head or of the workers.
pub fn secret_name(cluster: &str, role: Role) -> String {
    match role {
        Role::Head => format!("ray-head-secret-{cluster}"),
        Role::Worker => format!("ray-worker-secret-{cluster}"),
    }
}

/// Lets a container use the certificates, if there are any.
pub(super) fn configure(container: &mut Container, spec: &RayClusterSpec) {
    if !is_enabled(spec) {
        return;
    }
    for (name, value) in VARIABLES {
        environment::set_missing(container, name, value);
    }
    let mounts = container.volume_mounts.get_or_insert_default();
    if !mounts.iter().any(|mount| mount.name == VOLUME || mount.mount_path == PATH) {
        mounts.push(mount());
    }
}

pub(super) fn configure_pod(pod: &mut PodSpec, cluster: &RayCluster, role: Role) {
    if !is_enabled(&cluster.spec) {
        return;
    }
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.volumes.get_or_insert_default();
    if !volumes.iter().any(|volume| volume.name == VOLUME) {
        let secret = SecretVolumeSource {
            secret_name: Some(secret_name(name, role)),
            ..SecretVolumeSource::default()
        };
        volumes.push(Volume { name: VOLUME.to_owned(), secret: Some(secret), ..Volume::default() });
    }
    let Some(ray) = pod.containers.first_mut() else {
        return;
    };
    configure(ray, &cluster.spec);
    let wait = wait(ray);
    let init_containers = pod.init_containers.get_or_insert_default();
    for container in init_containers.iter_mut().filter(|container| container.name == waiting::NAME) {
        configure(container, &cluster.spec);
    }
    if !init_containers.iter().any(|container| container.name == WAIT_NAME) {
        init_containers.insert(0, wait);
    }
}

fn wait(ray: &Container) -> Container {
    let mut container = Container {
        name: WAIT_NAME.to_owned(),
        image: ray.image.clone(),
        image_pull_policy: ray.image_pull_policy.clone(),
        security_context: ray.security_context.clone(),
        command: Some(vec!["sh".to_owned(), "-c".to_owned()]),
        args: Some(vec![WAIT_SCRIPT.to_owned()]),
        volume_mounts: Some(vec![mount()]),
        resources: Some(equal_resources("50m", "64Mi")),
        ..Container::default()
    };
    environment::set_from_field(&mut container, "POD_IP", "status.podIP");
    container
}

fn mount() -> VolumeMount {
    VolumeMount {
        name: VOLUME.to_owned(),
        mount_path: PATH.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}
