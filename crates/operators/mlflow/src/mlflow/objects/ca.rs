//! Extra CA certificates: ConfigMaps, combined with the system's certificates into one file that all clients trust.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, Volume, VolumeMount,
};
use serde::{Deserialize, Serialize};

use super::container::{PodInputs, env, mount, read_only, resources};
use crate::names;

/// Where the combined certificates are mounted.
const COMBINED: &str = "/etc/pki/tls/certs/combined";
/// The combined certificates.
const COMBINED_FILE: &str = "/etc/pki/tls/certs/combined/ca-bundle.crt";
/// The certificates that the image has.
const SYSTEM_FILE: &str = "/etc/pki/tls/certs/ca-bundle.crt";

/// Combines once, before the other containers start.
const COMBINE: &str = concat!("set -eu\n", include_str!("scripts/combine.sh"), "combine\n");
/// Combines again whenever a source has changed.
const WATCH: &str =
    concat!("set -eu\n", include_str!("scripts/combine.sh"), include_str!("scripts/watch.sh"));

/// The ConfigMaps with CA certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bundles {
    /// Whether the platform's exists.
    pub platform: bool,
    /// The one that the spec names.
    pub custom: Option<String>,
}

struct Source<'a> {
    config_map: &'a str,
    path: &'static str,
}

impl Bundles {
    fn sources(&self) -> Vec<Source<'_>> {
        let platform = self
            .platform
            .then_some(Source { config_map: names::PLATFORM_CA, path: "/etc/pki/tls/certs/platform" });
        let custom = self.custom.as_deref();
        let custom = custom.map(|config_map| Source { config_map, path: "/etc/pki/tls/certs/custom" });
        platform.into_iter().chain(custom).collect()
    }

    fn is_empty(&self) -> bool {
        !self.platform && self.custom.is_none()
    }
}

/// The volumes of the sources and of what is combined from them.
pub(super) fn volumes(bundles: &Bundles) -> Vec<Volume> {
    let sources = bundles.sources();
    let mut volumes: Vec<_> = (0..).zip(&sources).map(|(number, source)| volume(number, source)).collect();
    if !volumes.is_empty() {
        volumes.push(Volume {
            name: "combined-ca-bundle".to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        });
    }
    volumes
}

fn volume(number: usize, source: &Source<'_>) -> Volume {
    Volume {
        name: format!("ca-bundle-{number}"),
        config_map: Some(ConfigMapVolumeSource {
            name: source.config_map.to_owned(),
            // Pods start without it, too.
            optional: Some(true),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// How a client sees the combined certificates.
pub(super) fn mounts(bundles: &Bundles) -> Option<VolumeMount> {
    (!bundles.is_empty()).then(|| read_only(mount("combined-ca-bundle", COMBINED)))
}

/// What makes clients trust the combined certificates, and those of PostgreSQL verify them.
pub(super) fn client_env(bundles: &Bundles) -> Vec<EnvVar> {
    if bundles.is_empty() {
        return Vec::new();
    }
    vec![
        env("SSL_CERT_FILE", COMBINED_FILE),
        env("REQUESTS_CA_BUNDLE", COMBINED_FILE),
        env("CURL_CA_BUNDLE", COMBINED_FILE),
        env("AWS_CA_BUNDLE", COMBINED_FILE),
        env("PGSSLROOTCERT", COMBINED_FILE),
        env("PGSSLMODE", "verify-full"),
        env("MLFLOW_MYSQL_CA", COMBINED_FILE),
        env("MLFLOW_S3_IGNORE_TLS", "false"),
    ]
}

/// The init container that combines the certificates.
pub(super) fn init_container(pod: &PodInputs<'_>) -> Option<Container> {
    let sources = pod.inputs.bundles.sources();
    (!sources.is_empty()).then(|| Container {
        resources: Some(resources(None, ["10m", "16Mi"], ["100m", "64Mi"])),
        ..combiner(pod, "combine-ca-bundles", COMBINE, combine_env(&sources), &sources)
    })
}

/// The sidecar that combines them again when they change: pods need no restart.
pub(super) fn sidecar(pod: &PodInputs<'_>) -> Option<Container> {
    let sources = pod.inputs.bundles.sources();
    let mut env = vec![env("CA_BUNDLE_WATCH_INTERVAL", "30")];
    env.extend(combine_env(&sources));
    (!sources.is_empty()).then(|| Container {
        resources: Some(resources(None, ["5m", "8Mi"], ["50m", "32Mi"])),
        ..combiner(pod, "ca-bundle-watcher", WATCH, env, &sources)
    })
}

fn combine_env(sources: &[Source<'_>]) -> Vec<EnvVar> {
    let paths: Vec<_> = sources.iter().map(|source| source.path).collect();
    vec![
        env("CA_BUNDLE_FILE_PATHS", SYSTEM_FILE),
        env("CA_BUNDLE_MOUNT_PATHS", &paths.join(" ")),
        env("CA_BUNDLE_OUTPUT", COMBINED_FILE),
    ]
}

fn combiner(
    pod: &PodInputs<'_>,
    name: &str,
    script: &str,
    env: Vec<EnvVar>,
    sources: &[Source<'_>],
) -> Container {
    let mut mounts = vec![mount("tmp", "/tmp"), mount("combined-ca-bundle", COMBINED)];
    mounts.extend(
        (0..).zip(sources).map(|(number, source): (usize, _)| {
            read_only(mount(&format!("ca-bundle-{number}"), source.path))
        }),
    );
    Container {
        volume_mounts: Some(mounts),
        env_from: None,
        ..pod.container(name, &["/bin/sh", "-c", script], env)
    }
}
