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
                "{} annotation and GcsFaultToleranceOptions are both set. Please use only GcsFaultToleranceOptions \
                 to configure GCS fault tolerance",
                labels::FT_ENABLED
            )
        })?;
        ensure(param("redis-password").is_empty(), || {
            use_option("`redis-password` in rayStartParams", "RedisPassword")
        })?;
        for (variable, field) in [("REDIS_PASSWORD", "RedisPassword"), ("RAY_REDIS_ADDRESS", "RedisAddress")]
        {
            ensure(!has_env(head, variable), || {
                use_option(&format!("`{variable}` env var in head Pod"), field)
            })?;
        }
        ensure(annotation(labels::EXTERNAL_STORAGE_NAMESPACE).is_empty(), || {
            let what = format!("`{}` annotation", labels::EXTERNAL_STORAGE_NAMESPACE);
            use_option(&what, "ExternalStorageNamespace")
        })?;
        validate_backend(spec, options, head, settings)?;
    } else if !by_annotation.eq_ignore_ascii_case("true") {
        ensure(!has_env(head, "RAY_REDIS_ADDRESS"), || {
            "RAY_REDIS_ADDRESS is set which implicitly enables GCS fault tolerance, but GcsFaultToleranceOptions is \
             not set. Please set GcsFaultToleranceOptions to enable GCS fault tolerance"
                .to_owned()
        })?;
    }
    ensure(param("redis-username").is_empty() && !has_env(head, "REDIS_USERNAME"), || {
        "cannot set redis username in rayStartParams or environment variables - use \
         GcsFaultToleranceOptions.RedisUsername instead"
            .to_owned()
    })
}

/// What the options replace is set beside them.
fn use_option(what: &str, field: &str) -> String {
    format!(
        "cannot set {what} when GcsFaultToleranceOptions is enabled - use GcsFaultToleranceOptions.{field} instead"
    )
}

fn validate_backend(
    spec: &RayClusterSpec,
    options: &GcsFaultToleranceOptions,
    head: &Container,
    settings: &Settings,
) -> Verdict {
    if !is_embedded_storage(spec) {
        return ensure(options.storage.is_none(), || {
            "cannot set GcsFaultToleranceOptions.Storage when backend is 'redis' - it only applies to the 'rocksdb' \
             backend"
                .to_owned()
        });
    }
    ensure(settings.gates.embedded_storage, || {
        "the embedded RocksDB GCS fault tolerance backend (GcsFaultToleranceOptions.Backend: 'rocksdb') requires the \
         GCSFaultToleranceEmbeddedStorage feature gate to be enabled"
            .to_owned()
    })?;
    let is_given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    for (field, is_set) in [
        ("RedisAddress", is_given(&options.redis_address)),
        ("RedisUsername", options.redis_username.is_some()),
        ("RedisPassword", options.redis_password.is_some()),
        ("ExternalStorageNamespace", is_given(&options.external_storage_namespace)),
    ] {
        ensure(!is_set, || format!("cannot set GcsFaultToleranceOptions.{field} when backend is 'rocksdb'"))?;
    }
    if let Some(storage) = &options.storage {
        let describes = storage.size.is_some()
            || storage.storage_class_name.is_some()
            || storage.access_modes.as_ref().is_some_and(|modes| !modes.is_empty());
        ensure(!(is_given(&storage.claim_name) && describes), || {
            "GcsFaultToleranceOptions.Storage.ClaimName is mutually exclusive with size, storageClassName, and \
             accessModes"
                .to_owned()
        })?;
    }
    let managed = |what: &str, place: &str| {
        format!("cannot set {what} in {place} when the embedded GCS FT backend is used - ")
    };
    ensure(!has_env(head, "RAY_gcs_storage") && !has_env(head, "RAY_gcs_storage_path"), || {
        managed("`RAY_gcs_storage` or `RAY_gcs_storage_path` env var", "head Pod")
            + "these are managed by KubeRay"
    })?;
    let mounts = head.volume_mounts.as_deref().unwrap_or_default();
    let is_taken = mounts.iter().any(|mount| mount.name == "gcs-storage" || mount.mount_path == "/data/gcs");
    ensure(!is_taken, || {
        let what = "a volume mount named \"gcs-storage\" or mounted at /data/gcs";
        managed(what, "the head container") + "it is managed by KubeRay"
    })?;
    let volumes = spec.head_group_spec.template.spec.as_ref().and_then(|pod| pod.volumes.as_deref());
    let has_volume = volumes.unwrap_or_default().iter().any(|volume| volume.name == "gcs-storage");
    ensure(!has_volume, || {
        managed("a volume named \"gcs-storage\"", "the head Pod") + "it is managed by KubeRay"
    })
}
