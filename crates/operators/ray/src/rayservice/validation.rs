//! What a RayService must be like.

use quintet_api::{duration::GoDuration, ray::v1::RayService};

use crate::{
    labels, names, raycluster::validation as raycluster, rayservice::upgrade, settings::Settings,
    validation::metadata,
};

/// The rules for `metadata`, which a webhook can check before anything is stored.
pub fn validate_metadata(service: &RayService) -> Result<(), String> {
    let name = service.metadata.name.as_deref().unwrap_or_default();
    let wrong = |error| format!("The RayService metadata is invalid: {error}");
    metadata::name("RayService", name, names::MAX_WORKLOAD_NAME).map_err(wrong)?;
    let timeout = initializing_timeout(service);
    timeout.map(|_| ()).map_err(|error| wrong(format!("RayService annotations is invalid: {error}")))
}

/// How long the first cluster may take, if there is a limit.
pub fn initializing_timeout(service: &RayService) -> Result<Option<std::time::Duration>, String> {
    let annotations = service.metadata.annotations.as_ref();
    let Some(text) = annotations.and_then(|all| all.get(labels::INITIALIZING_TIMEOUT)) else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(None);
    }
    let annotation = labels::INITIALIZING_TIMEOUT;
    let size = text.strip_prefix('-').unwrap_or(text);
    if let Ok(GoDuration(duration)) = size.parse() {
        return if size == text && !duration.is_zero() {
            Ok(Some(duration))
        } else {
            Err(format!("annotation {annotation} must be a positive duration, got: {text}"))
        };
    }
    match text.parse::<i64>().map(u64::try_from) {
        Ok(Ok(seconds)) if seconds > 0 => Ok(Some(std::time::Duration::from_secs(seconds))),
        Ok(_) => Err(format!("annotation {annotation} must be a positive integer (seconds), got: {text}")),
        Err(_) => Err(format!(
            "annotation {annotation} has invalid format: {text}. Expected Go duration format (e.g., '5m', '1h') or \
             positive integer seconds"
        )),
    }
}

fn wrong(text: impl AsRef<str>) -> Result<(), String> {
    Err(format!("The RayService spec is invalid: {}", text.as_ref()))
}

/// The rules for `spec`.
pub fn validate_spec(service: &RayService, settings: &Settings) -> Result<(), String> {
    let spec = &service.spec;
    let config = &spec.ray_cluster_config;
    if config.auth_options.as_ref().is_some_and(|options| options.enable_k8s_token_auth == Some(true)) {
        return wrong("K8s token auth mode is currently not supported for RayService");
    }
    let annotations = service.metadata.annotations.clone().unwrap_or_default();
    raycluster::validate_spec(config, &annotations, settings)
        .map_err(|error| format!("The RayService spec is invalid: {error}"))?;
    let head_service = config.head_group_spec.head_service.as_ref();
    if head_service.is_some_and(|service| service.metadata.name.as_ref().is_some_and(|name| !name.is_empty()))
    {
        return wrong("spec.rayClusterConfig.headGroupSpec.headService.metadata.name should not be set");
    }
    let strategy = spec.upgrade_strategy.as_ref();
    let kind = strategy.and_then(|strategy| strategy.type_.as_deref());
    if let Some(kind) = kind
        && !upgrade::TYPES.contains(&kind)
    {
        return wrong(format!(
            "Spec.UpgradeStrategy.Type value {kind} is invalid, valid options are {}, {}, or {}",
            upgrade::INCREMENTAL,
            upgrade::NEW_CLUSTER,
            upgrade::NONE
        ));
    }
    if let Some(seconds) = spec.ray_cluster_deletion_delay_seconds.filter(|seconds| *seconds < 0) {
        return wrong(format!(
            "Spec.RayClusterDeletionDelaySeconds should be a non-negative integer, got {seconds}"
        ));
    }
    if kind == Some(upgrade::INCREMENTAL) { validate_incremental(service) } else { Ok(()) }
}

fn validate_incremental(service: &RayService) -> Result<(), String> {
    if service.spec.ray_cluster_config.enable_in_tree_autoscaling != Some(true) {
        return wrong("Ray Autoscaler is required for NewClusterWithIncrementalUpgrade");
    }
    let strategy = service.spec.upgrade_strategy.as_ref();
    let Some(options) = strategy.and_then(|strategy| strategy.cluster_upgrade_options.as_ref()) else {
        return wrong("ClusterUpgradeOptions are required for NewClusterWithIncrementalUpgrade");
    };
    let surge = options.max_surge_percent.unwrap_or(100);
    if !(0..=100).contains(&surge) {
        return wrong("maxSurgePercent must be between 0 and 100");
    }
    let step = options.step_size_percent;
    if !(0..=100).contains(&step) {
        return wrong("stepSizePercent must be between 0 and 100");
    }
    if step > surge {
        return wrong("stepSizePercent must be less than or equal to maxSurgePercent");
    }
    if options.interval_seconds <= 0 {
        return wrong("intervalSeconds must be greater than 0");
    }
    if options.gateway_class_name.is_empty() {
        return wrong("gatewayClassName is required for NewClusterWithIncrementalUpgrade");
    }
    Ok(())
}
