//! Clusters whose state outlives the head: in Redis, or on a volume.

use k8s_openapi::api::core::v1::{EnvVar, PersistentVolumeClaimVolumeSource, Volume, VolumeMount};
use quintet_api::ray::v1::{GcsFaultToleranceOptions, RayCluster, RedisCredential};

use super::{Draft, environment, is_embedded_storage, is_true, ray_start::Params};
use crate::labels;

const STORAGE_VOLUME: &str = "gcs-storage";
const STORAGE_PATH: &str = "/data/gcs";

/// Whether the cluster's state outlives the head.
pub fn is_fault_tolerant(cluster: &RayCluster) -> bool {
    cluster.spec.gcs_fault_tolerance_options.is_some()
        || is_true(cluster.metadata.annotations.as_ref(), labels::FT_ENABLED)
}

/// The claim that the head's state is kept on.
pub fn claim_name(cluster: &RayCluster) -> String {
    let options = cluster.spec.gcs_fault_tolerance_options.as_ref();
    let own = options.and_then(|options| options.storage.as_ref()?.claim_name.clone());
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    own.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("{name}-gcs-pvc"))
}

pub(super) fn configure_worker(draft: &mut Draft, cluster: &RayCluster) {
    if is_fault_tolerant(cluster) {
        // Longer than a new head needs to come up.
        environment::set_missing(draft.ray(), "RAY_gcs_rpc_server_reconnect_timeout_s", "600");
    }
}

pub(super) fn configure_head(draft: &mut Draft, params: &mut Params, cluster: &RayCluster) {
    let enabled = is_fault_tolerant(cluster);
    annotate(draft, labels::FT_ENABLED, &enabled.to_string());
    if !enabled {
        return;
    }
    let options = cluster.spec.gcs_fault_tolerance_options.as_ref();
    if is_embedded_storage(&cluster.spec) {
        mount_storage(draft, cluster, options);
    } else {
        use_redis(draft, params, cluster, options);
    }
}

fn mount_storage(draft: &mut Draft, cluster: &RayCluster, options: Option<&GcsFaultToleranceOptions>) {
    let ray = draft.ray();
    environment::set_missing(ray, "RAY_gcs_storage", "rocksdb");
    environment::set_missing(ray, "RAY_gcs_storage_path", STORAGE_PATH);
    let storage = options.and_then(|options| options.storage.as_ref());
    ray.volume_mounts.get_or_insert_default().push(VolumeMount {
        name: STORAGE_VOLUME.to_owned(),
        mount_path: STORAGE_PATH.to_owned(),
        sub_path: storage.and_then(|storage| storage.sub_path.clone()).filter(|path| !path.is_empty()),
        ..VolumeMount::default()
    });
    let claim = PersistentVolumeClaimVolumeSource { claim_name: claim_name(cluster), read_only: None };
    draft.pod.volumes.get_or_insert_default().push(Volume {
        name: STORAGE_VOLUME.to_owned(),
        persistent_volume_claim: Some(claim),
        ..Volume::default()
    });
}

fn use_redis(
    draft: &mut Draft,
    params: &mut Params,
    cluster: &RayCluster,
    options: Option<&GcsFaultToleranceOptions>,
) {
    let namespace = storage_namespace(cluster);
    annotate(draft, labels::EXTERNAL_STORAGE_NAMESPACE, &namespace);
    let ray = draft.ray();
    environment::set_missing(ray, "RAY_external_storage_namespace", namespace);
    let Some(options) = options else {
        // The Job that clears Redis needs the password too.
        if let Some(password) = params.get("redis-password") {
            environment::set_missing(ray, "REDIS_PASSWORD", password);
        }
        return;
    };
    environment::set(ray, "RAY_REDIS_ADDRESS", options.redis_address.clone().unwrap_or_default());
    let credentials = [
        ("redis-username", "REDIS_USERNAME", &options.redis_username),
        ("redis-password", "REDIS_PASSWORD", &options.redis_password),
    ];
    for (flag, variable, credential) in credentials {
        if let Some(RedisCredential { value, value_from }) = credential {
            params.set(flag, format!("${variable}"));
            let (value, value_from) = (value.clone(), value_from.clone());
            environment::push(ray, EnvVar { name: variable.to_owned(), value, value_from });
        }
    }
}

/// What this cluster's keys in Redis begin with.
pub fn storage_namespace(cluster: &RayCluster) -> String {
    let options = cluster.spec.gcs_fault_tolerance_options.as_ref();
    let by_option = options.and_then(|options| options.external_storage_namespace.clone());
    let annotations = cluster.metadata.annotations.as_ref();
    let by_annotation = || annotations.and_then(|all| all.get(labels::EXTERNAL_STORAGE_NAMESPACE).cloned());
    let by_option = by_option.filter(|namespace| !namespace.is_empty());
    by_option.or_else(by_annotation).or_else(|| cluster.metadata.uid.clone()).unwrap_or_default()
}

fn annotate(draft: &mut Draft, name: &str, value: &str) {
    draft.metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}
