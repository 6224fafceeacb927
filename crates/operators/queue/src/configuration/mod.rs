//! Checks of the configuration beyond its types. Errors begin with the path of the field, as Kueue's do.

mod devices;
mod gates;
mod multikueue;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use quintet_api::config::kueue::{QueueConfiguration, WaitForPodsReady};
use quintet_api::names::problems;

pub(crate) use gates::resolved as resolved_gates;

use crate::jobs::ancestors;
use crate::settings::{FRAMEWORKS, matches};

const SPARK: &str = "sparkoperator.k8s.io/sparkapplication";
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// What cannot be honoured. `gates` are resolved.
pub(crate) fn check(
    configuration: &QueueConfiguration,
    gates: &BTreeMap<String, bool>,
    namespace: &str,
) -> Result<(), String> {
    gates::check(gates)?;
    if let Some(settings) = &configuration.wait_for_pods_ready {
        check_pods_ready(settings)?;
    }
    check_frameworks(configuration, gates)?;
    multikueue::check(configuration)?;
    check_weights(configuration)?;
    check_transformations(configuration)?;
    devices::check(&configuration.resources.device_class_mappings, gates)?;
    check_namespaces(configuration, namespace)?;
    match configuration.visibility_server.bind_port {
        0 => Err("visibilityServer.bindPort: name a port between 1 and 65535".to_owned()),
        _ => Ok(()),
    }
}

fn check_pods_ready(settings: &WaitForPodsReady) -> Result<(), String> {
    let strategy = &settings.requeuing_strategy;
    if settings.timeout.0.is_zero() {
        return Err("waitForPodsReady.timeout: it must be longer than 0s".to_owned());
    }
    for (name, value) in [
        ("backoffLimitCount", strategy.backoff_limit_count.unwrap_or_default()),
        ("backoffBaseSeconds", strategy.backoff_base_seconds),
        ("backoffMaxSeconds", strategy.backoff_max_seconds),
    ] {
        if value < 0 {
            return Err(format!("waitForPodsReady.requeuingStrategy.{name}: {value} is negative"));
        }
    }
    Ok(())
}

fn check_frameworks(
    configuration: &QueueConfiguration,
    gates: &BTreeMap<String, bool>,
) -> Result<(), String> {
    let integrations = &configuration.integrations;
    let path = "integrations.frameworks";
    let frameworks = &integrations.frameworks;
    if let Some((index, unknown)) =
        frameworks.iter().enumerate().find(|(_, name)| !FRAMEWORKS.contains(&name.as_str()))
    {
        let known = FRAMEWORKS.join(", ");
        return Err(format!("{path}[{index}]: unknown framework {unknown:?}; choose from {known}"));
    }
    unique(path, frameworks)?;
    let path = "integrations.externalFrameworks";
    for (index, name) in integrations.external_frameworks.iter().enumerate() {
        if !is_kind(name) {
            return Err(format!("{path}[{index}]: {name:?} is not a Kind.version.group"));
        }
        let is_taken =
            |framework: &String| ancestors::kind_argument(framework).as_deref() == Some(name.as_str());
        if frameworks.iter().any(is_taken) {
            return Err(format!("{path}[{index}]: {name:?} is one of integrations.frameworks"));
        }
    }
    unique(path, &integrations.external_frameworks)?;
    let has_spark = frameworks.iter().any(|name| name == SPARK);
    if has_spark && gates.get("SparkApplicationIntegration") != Some(&true) {
        return Err(format!(
            "integrations.frameworks: {SPARK} needs the feature gate SparkApplicationIntegration"
        ));
    }
    Ok(())
}

/// Whether a text is a `Kind.version.group`.
fn is_kind(text: &str) -> bool {
    text.splitn(3, '.').count() == 3
}

fn unique<T: Ord + std::fmt::Debug>(path: &str, names: &[T]) -> Result<(), String> {
    let mut known = BTreeSet::new();
    match names.iter().enumerate().find(|(_, name)| !known.insert(*name)) {
        Some((index, name)) => Err(format!("{path}[{index}]: {name:?} is there already")),
        None => Ok(()),
    }
}

fn check_weights(configuration: &QueueConfiguration) -> Result<(), String> {
    let weights = configuration.admission_fair_sharing.iter().flat_map(|sharing| &sharing.resource_weights);
    for (resource, weight) in weights {
        if *weight < 0.0 {
            return Err(format!("admissionFairSharing.resourceWeights[{resource}]: {weight} is negative"));
        }
    }
    Ok(())
}

fn check_transformations(configuration: &QueueConfiguration) -> Result<(), String> {
    let mut known = BTreeSet::new();
    for (index, own) in configuration.resources.transformations.iter().enumerate() {
        if !known.insert(&own.input) {
            return Err(format!(
                "resources.transformations[{index}].input: {:?} is there already",
                own.input
            ));
        }
    }
    Ok(())
}

/// Jobs of the system, and of the operator itself, must not wait for it.
fn check_namespaces(configuration: &QueueConfiguration, namespace: &str) -> Result<(), String> {
    let Some(selector) = &configuration.managed_jobs_namespace_selector else { return Ok(()) };
    check_selector("managedJobsNamespaceSelector", selector)?;
    for name in ["kube-system", namespace] {
        let labels = BTreeMap::from([(NAMESPACE_LABEL.to_owned(), name.to_owned())]);
        if matches(selector, &labels) {
            return Err(format!("managedJobsNamespaceSelector: it must not match the namespace {name}"));
        }
    }
    Ok(())
}

/// As `ValidateLabelSelector` of Kubernetes.
fn check_selector(path: &str, selector: &LabelSelector) -> Result<(), String> {
    let valid = |path: &str, problems: Vec<String>, text: &str| match problems.first() {
        Some(problem) => Err(format!("{path}: {text:?}: {problem}")),
        None => Ok(()),
    };
    for (key, value) in selector.match_labels.iter().flatten() {
        valid(&format!("{path}.matchLabels"), problems::qualified_name(key), key)?;
        valid(&format!("{path}.matchLabels[{key}]"), problems::label_value(value), value)?;
    }
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let values = requirement.values.as_deref().unwrap_or_default();
        match (requirement.operator.as_str(), values.is_empty()) {
            ("In" | "NotIn", false) | ("Exists" | "DoesNotExist", true) => {}
            ("In" | "NotIn", true) => return Err(format!("{path}.values: In and NotIn need values")),
            ("Exists" | "DoesNotExist", false) => {
                return Err(format!("{path}.values: Exists and DoesNotExist have no values"));
            }
            (unknown, _) => {
                let known = "In, NotIn, Exists, DoesNotExist";
                return Err(format!("{path}.operator: unknown operator {unknown:?}; choose from {known}"));
            }
        }
        valid(&format!("{path}.key"), problems::qualified_name(&requirement.key), &requirement.key)?;
        for (number, value) in values.iter().enumerate() {
            valid(&format!("{path}.values[{number}]"), problems::label_value(value), value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
