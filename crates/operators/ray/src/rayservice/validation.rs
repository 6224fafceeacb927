//! What a RayService must be like.

use quintet_api::{duration::GoDuration, ray::v1::RayService};

use crate::{
    labels, names, raycluster::validation as raycluster, rayservice::upgrade, settings::Settings,
    validation::metadata,
};

/// The rules for `metadata`, which a webhook can check before anything is stored.
pub fn validate_metadata(service: &RayService) -> Result<(), String> {
    metadata::name(
        "RayService",
        service.metadata.name.as_deref().unwrap_or_default(),
        names::MAX_WORKLOAD_NAME,
    )?;
    initializing_timeout(service).map(|_| ())
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
    let parsed = match text.parse::<u64>() {
        Ok(seconds) => Some(std::time::Duration::from_secs(seconds)),
        Err(_) => text.parse::<GoDuration>().ok().map(|duration| duration.0),
    };
    match parsed {
        Some(timeout) if !timeout.is_zero() => Ok(Some(timeout)),
        _ => Err(format!(
            "annotation {} is {text:?}; it must be a positive duration such as 30m, or a positive number of seconds",
            labels::INITIALIZING_TIMEOUT
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
        return wrong("authOptions.enableK8sTokenAuth is not supported for RayService");
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
            "spec.upgradeStrategy.type value {kind} is invalid, valid options are {}",
            upgrade::TYPES.join(", ")
        ));
    }
    if spec.ray_cluster_deletion_delay_seconds.is_some_and(|seconds| seconds < 0) {
        return wrong("spec.rayClusterDeletionDelaySeconds should be a non-negative integer");
    }
    if kind == Some(upgrade::INCREMENTAL) { validate_incremental(service) } else { Ok(()) }
}

fn validate_incremental(service: &RayService) -> Result<(), String> {
    if service.spec.ray_cluster_config.enable_in_tree_autoscaling != Some(true) {
        return wrong("Ray Autoscaler is required for NewClusterWithIncrementalUpgrade");
    }
    let strategy = service.spec.upgrade_strategy.as_ref();
    let Some(options) = strategy.and_then(|strategy| strategy.cluster_upgrade_options.as_ref()) else {
        return wrong("clusterUpgradeOptions are required for NewClusterWithIncrementalUpgrade");
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
