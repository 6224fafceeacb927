//! The manager configuration.

use std::collections::BTreeMap;

use quintet_api::config::kueue::{
    PreemptionStrategy, QueueConfiguration, QuotaCheckStrategy, RequeuingTimestamp as ApiTimestamp,
    TransformationStrategy,
};
use quintet_api::duration::GoDuration;
use serde_json::Value;

use super::{DeviceQuota, DeviceSource, RequestOptions, Selector, Transformation};
use crate::engine::Engine;
use crate::names::Names;
use crate::settings::{AdmissionFairSharing, FairStrategy, Gates, QuotaCheck, RequeuingTimestamp, Settings};
use crate::time::Span;

impl Engine {
    /// An engine without objects, with this configuration.
    pub fn configured(config: &QueueConfiguration, gates: Gates) -> Self {
        let mut engine = Self::default();
        let names = &mut engine.state.names;
        let settings = settings(config, names);
        names.write_in_bytes(settings.requests.in_bytes());
        engine.state.settings = Settings { gates, ..settings };
        engine
    }
}

/// The parts of the manager configuration that change decisions. Feature gates are set apart.
pub fn settings(config: &QueueConfiguration, names: &mut Names) -> Settings {
    let ready = config.wait_for_pods_ready.as_ref();
    let timestamp = ready.map_or(ApiTimestamp::Eviction, |ready| ready.requeuing_strategy.timestamp);
    Settings {
        fair_sharing: config.fair_sharing.as_ref().map(|sharing| strategies(&sharing.preemption_strategies)),
        admission_fair_sharing: config.admission_fair_sharing.as_ref().map(|sharing| AdmissionFairSharing {
            half_life: span(sharing.usage_half_life_time),
            sampling_interval: span(sharing.usage_sampling_interval),
            resource_weights: sharing
                .resource_weights
                .iter()
                .map(|(name, weight)| (names.resource(name), *weight))
                .collect(),
        }),
        quota_check: match config.resources.quota_check_strategy {
            QuotaCheckStrategy::BlockUndeclared => QuotaCheck::BlockUndeclared,
            QuotaCheckStrategy::IgnoreUndeclared => QuotaCheck::IgnoreUndeclared,
        },
        block_admission: ready.is_some_and(|ready| ready.block_admission),
        requeuing_timestamp: match timestamp {
            ApiTimestamp::Eviction => RequeuingTimestamp::Eviction,
            ApiTimestamp::Creation => RequeuingTimestamp::Creation,
        },
        requests: request_options(config),
        ..Settings::default()
    }
}

fn strategies(configured: &[PreemptionStrategy]) -> Vec<FairStrategy> {
    if configured.is_empty() {
        return Settings::DEFAULT_STRATEGIES.to_vec();
    }
    let strategy = |own: &PreemptionStrategy| match own {
        PreemptionStrategy::LessThanInitialShare => FairStrategy::LessThanInitialShare,
        PreemptionStrategy::LessThanOrEqualToFinalShare => FairStrategy::LessThanOrEqualToFinalShare,
    };
    configured.iter().map(strategy).collect()
}

fn span(duration: GoDuration) -> Span {
    Span::nanos(i64::try_from(duration.0.as_nanos()).unwrap_or(i64::MAX))
}

fn request_options(config: &QueueConfiguration) -> RequestOptions {
    let transformations = config.resources.transformations.iter().map(|own| Transformation {
        input: own.input.clone(),
        replaces_input: own.strategy == TransformationStrategy::Replace,
        outputs: own.outputs.clone(),
        multiply_by: own.multiply_by.clone().filter(|name| !name.is_empty()),
    });
    RequestOptions {
        excluded_prefixes: config.resources.exclude_resource_prefixes.clone(),
        transformations: transformations.collect(),
        claims: Vec::new(),
        device_classes: device_classes(config),
    }
}

/// Devices count as the first mapping of their class says; counters and capacities each as their own.
fn device_classes(config: &QueueConfiguration) -> BTreeMap<String, DeviceQuota> {
    let mut classes = BTreeMap::new();
    for mapping in &config.resources.device_class_mappings {
        let resource = text(&mapping["name"]);
        let sources = |kind: &str| -> Vec<DeviceSource> {
            let sources = mapping["sources"].as_array().into_iter().flatten();
            let sources = sources.map(|source| &source[kind]).filter(|source| !source.is_null());
            sources.map(|source| device_source(&resource, source)).collect()
        };
        let (counters, capacities) = (sources("counter"), sources("capacity"));
        for class in mapping["deviceClassNames"].as_array().into_iter().flatten() {
            let quota: &mut DeviceQuota = classes.entry(text(class)).or_default();
            if quota.resource.is_empty() {
                quota.resource.clone_from(&resource);
            }
            quota.counters.extend(counters.iter().cloned());
            quota.capacities.extend(capacities.iter().cloned());
        }
    }
    classes
}

fn device_source(resource: &str, source: &Value) -> DeviceSource {
    DeviceSource {
        resource: resource.to_owned(),
        name: text(&source["name"]),
        driver: text(&source["driver"]),
        selector: Selector::new(source["deviceSelector"]["cel"]["expression"].as_str().unwrap_or_default()),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
