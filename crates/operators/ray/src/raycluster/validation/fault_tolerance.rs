//! GCS fault tolerance: one way to ask for it, and nothing that contradicts it.

use k8s_openapi::api::core::v1::Container;
use quintet_api::ray::v1::{GcsFaultToleranceOptions, RayClusterSpec};

use super::{Annotations, has_env};
use crate::{
    labels,
    pod::is_embedded_storage,
    settings::Settings,
    validation::{Verdict, ensure},
};

pub(crate) fn validate(
    spec: &RayClusterSpec,
    annotations: &Annotations,
    head: &Container,
    settings: &Settings,
) -> Verdict {
    let annotation = |name| annotations.get(name).map_or("", String::as_str);
    let param = |name: &str| {
        let params = spec.head_group_spec.ray_start_params.as_ref();
        params.and_then(|params| params.get(name)).map_or("", String::as_str)
    };
    let by_annotation = annotation(labels::FT_ENABLED);
    if let Some(options) = &spec.gcs_fault_tolerance_options {
        ensure(by_annotation.is_empty(), || {
            format!(
                "the annotation {} and gcsFaultToleranceOptions are both set; remove the annotation",
                labels::FT_ENABLED
            )
        })?;
        ensure(param("redis-password").is_empty(), || {
            "redis-password cannot be set in rayStartParams; use gcsFaultToleranceOptions.redisPassword"
                .to_owned()
        })?;
        for (variable, field) in [("REDIS_PASSWORD", "redisPassword"), ("RAY_REDIS_ADDRESS", "redisAddress")]
        {
            ensure(!has_env(head, variable), || {
                format!(
                    "{variable} cannot be set in the head's environment; use gcsFaultToleranceOptions.{field}"
                )
            })?;
        }
        ensure(annotation(labels::EXTERNAL_STORAGE_NAMESPACE).is_empty(), || {
            format!(
                "the annotation {} cannot be set; use gcsFaultToleranceOptions.externalStorageNamespace",
                labels::EXTERNAL_STORAGE_NAMESPACE
            )
        })?;
        validate_backend(spec, options, head, settings)?;
    } else if !by_annotation.eq_ignore_ascii_case("true") {
        ensure(!has_env(head, "RAY_REDIS_ADDRESS"), || {
            "RAY_REDIS_ADDRESS in the head's environment turns GCS fault tolerance on behind the operator's back; \
             use gcsFaultToleranceOptions"
                .to_owned()
        })?;
    }
    ensure(param("redis-username").is_empty() && !has_env(head, "REDIS_USERNAME"), || {
        "the Redis user cannot be set in rayStartParams or the environment; use \
         gcsFaultToleranceOptions.redisUsername"
            .to_owned()
    })
}

fn validate_backend(
    spec: &RayClusterSpec,
    options: &GcsFaultToleranceOptions,
    head: &Container,
    settings: &Settings,
) -> Verdict {
    if !is_embedded_storage(spec) {
        return ensure(options.storage.is_none(), || {
            "gcsFaultToleranceOptions.storage belongs to backend rocksdb; remove it or choose that backend"
                .to_owned()
        });
    }
    ensure(settings.gates.embedded_storage, || {
        "gcsFaultToleranceOptions.backend rocksdb needs the feature gate GCSFaultToleranceEmbeddedStorage"
            .to_owned()
    })?;
    let is_given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    for (field, is_set) in [
        ("redisAddress", is_given(&options.redis_address)),
        ("redisUsername", options.redis_username.is_some()),
        ("redisPassword", options.redis_password.is_some()),
        ("externalStorageNamespace", is_given(&options.external_storage_namespace)),
    ] {
        ensure(!is_set, || {
            format!("gcsFaultToleranceOptions.{field} belongs to backend redis; remove it for rocksdb")
        })?;
    }
    if let Some(storage) = &options.storage {
        let describes = storage.size.is_some()
            || storage.storage_class_name.is_some()
            || storage.access_modes.as_ref().is_some_and(|modes| !modes.is_empty());
        ensure(!(is_given(&storage.claim_name) && describes), || {
            "gcsFaultToleranceOptions.storage.claimName names an existing claim and excludes size, \
             storageClassName and accessModes"
                .to_owned()
        })?;
    }
    for variable in ["RAY_gcs_storage", "RAY_gcs_storage_path"] {
        ensure(!has_env(head, variable), || {
            format!("{variable} cannot be set in the head's environment with backend rocksdb, which sets it")
        })?;
    }
    let mounts = head.volume_mounts.as_deref().unwrap_or_default();
    let is_taken = mounts.iter().any(|mount| mount.name == "gcs-storage" || mount.mount_path == "/data/gcs");
    let volumes = spec.head_group_spec.template.spec.as_ref().and_then(|pod| pod.volumes.as_deref());
    let has_volume = volumes.unwrap_or_default().iter().any(|volume| volume.name == "gcs-storage");
    ensure(!is_taken && !has_volume, || {
        "the volume gcs-storage and the path /data/gcs of the head belong to backend rocksdb; choose others"
            .to_owned()
    })
}
