//! Checks of the configuration beyond its types. Errors begin with the path of the field, as Kueue's do.

use std::collections::{BTreeMap, BTreeSet};

use quintet_api::config::kueue::QueueConfiguration;

use crate::settings::{FRAMEWORKS, matches};

/// Gates that cannot be switched off.
const LOCKED: [&str; 2] = ["ManagedJobsNamespaceSelectorAlwaysRespected", "TLSOptions"];
const SPARK: &str = "sparkoperator.k8s.io/sparkapplication";
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// What cannot be honoured.
pub(crate) fn check(
    configuration: &QueueConfiguration,
    gates: &BTreeMap<String, bool>,
    namespace: &str,
) -> Result<(), String> {
    check_gates(gates)?;
    check_frameworks(configuration, gates)?;
    check_weights(configuration)?;
    check_device_classes(configuration)?;
    check_multikueue(configuration)?;
    check_namespaces(configuration, namespace)
}

fn check_gates(gates: &BTreeMap<String, bool>) -> Result<(), String> {
    match LOCKED.iter().find(|name| gates.get(**name) == Some(&false)) {
        Some(name) => Err(format!("featureGates.{name}: it cannot be switched off")),
        None => Ok(()),
    }
}

fn check_frameworks(
    configuration: &QueueConfiguration,
    gates: &BTreeMap<String, bool>,
) -> Result<(), String> {
    let integrations = &configuration.integrations;
    let path = "integrations.frameworks";
    if let Some(unknown) = integrations.frameworks.iter().find(|name| !FRAMEWORKS.contains(&name.as_str())) {
        return Err(format!("{path}: unknown framework {unknown:?}; choose from {}", FRAMEWORKS.join(", ")));
    }
    unique(path, &integrations.frameworks)?;
    unique("integrations.externalFrameworks", &integrations.external_frameworks)?;
    let has_spark = integrations.frameworks.iter().any(|name| name == SPARK);
    if has_spark && gates.get("SparkApplicationIntegration") != Some(&true) {
        return Err(format!("{path}: {SPARK} needs the feature gate SparkApplicationIntegration"));
    }
    Ok(())
}

fn unique(path: &str, names: &[String]) -> Result<(), String> {
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

fn check_device_classes(configuration: &QueueConfiguration) -> Result<(), String> {
    let mut known = BTreeSet::new();
    for (index, mapping) in configuration.resources.device_class_mappings.iter().enumerate() {
        let path = format!("resources.deviceClassMappings[{index}].deviceClassNames");
        let classes = mapping["deviceClassNames"].as_array().cloned().unwrap_or_default();
        if classes.is_empty() {
            return Err(format!("{path}: name at least one device class"));
        }
        for (number, class) in classes.iter().enumerate() {
            let class = class.as_str().unwrap_or_default().to_owned();
            if !known.insert(class.clone()) {
                return Err(format!("{path}[{number}]: {class:?} is mapped already"));
            }
        }
    }
    Ok(())
}

fn check_multikueue(configuration: &QueueConfiguration) -> Result<(), String> {
    let settings = &configuration.multi_kueue;
    let origin = &settings.origin;
    if origin.is_empty() {
        return Err("multiKueue.origin: set a name for this cluster".to_owned());
    }
    if !is_label_value(origin) {
        return Err(format!("multiKueue.origin: {origin:?} is not a valid value of a label"));
    }
    let step = settings.incremental_dispatcher_config.step_size;
    if step < 1 {
        return Err(format!("multiKueue.incrementalDispatcherConfig.stepSize: {step} is less than 1"));
    }
    let names: Vec<String> = settings.external_frameworks.iter().map(|own| own.name.clone()).collect();
    let path = "multiKueue.externalFrameworks";
    if let Some(name) =
        names.iter().find(|name| name.splitn(3, '.').filter(|part| !part.is_empty()).count() < 3)
    {
        return Err(format!("{path}: {name:?} is not a Kind.version.group"));
    }
    unique(path, &names)
}

fn is_label_value(text: &str) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(is_plain)
        && bytes.last().is_some_and(is_plain)
        && bytes.iter().all(|byte| is_plain(byte) || b"-_.".contains(byte))
}

/// Jobs of the system, and of the operator itself, must not wait for it.
fn check_namespaces(configuration: &QueueConfiguration, namespace: &str) -> Result<(), String> {
    let Some(selector) = &configuration.managed_jobs_namespace_selector else { return Ok(()) };
    for name in ["kube-system", namespace] {
        let labels = BTreeMap::from([(NAMESPACE_LABEL.to_owned(), name.to_owned())]);
        if matches(selector, &labels) {
            return Err(format!("managedJobsNamespaceSelector: it must not match the namespace {name}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(configuration: serde_json::Value, gates: &[(&str, bool)]) -> Result<(), String> {
        let configuration = serde_json::from_value(configuration).unwrap();
        let gates = gates.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
        check(&configuration, &gates, "kueue-system")
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_with_its_path() {
        let table = [
            (json!({ "integrations": { "frameworks": ["batch/jobs"] } }), "integrations.frameworks: unknown"),
            (json!({ "integrations": { "frameworks": ["pod", "pod"] } }), "integrations.frameworks[1]:"),
            (
                json!({ "integrations": { "externalFrameworks": ["F", "F"] } }),
                "integrations.externalFrameworks[1]:",
            ),
            (json!({ "integrations": { "frameworks": [SPARK] } }), "integrations.frameworks: sparkoperator"),
            (
                json!({ "admissionFairSharing": { "resourceWeights": { "cpu": -1.0 } } }),
                "admissionFairSharing.resourceWeights[cpu]:",
            ),
            (
                json!({ "resources": { "deviceClassMappings": [{ "name": "a", "deviceClassNames": [] }] } }),
                "resources.deviceClassMappings[0].deviceClassNames:",
            ),
            (json!({ "managedJobsNamespaceSelector": {} }), "managedJobsNamespaceSelector:"),
            (json!({ "multiKueue": { "origin": "Q_" } }), "multiKueue.origin:"),
            (
                json!({ "multiKueue": { "incrementalDispatcherConfig": { "stepSize": 0 } } }),
                "multiKueue.incrementalDispatcherConfig.stepSize:",
            ),
            (
                json!({ "multiKueue": { "externalFrameworks": [{ "name": "Kind" }] } }),
                "multiKueue.externalFrameworks:",
            ),
        ];
        for (configuration, expected) in table {
            let error = checked(configuration.clone(), &[]).unwrap_err();
            assert!(error.starts_with(expected), "{configuration}: {error}");
        }
        assert_eq!(checked(json!({}), &[]), Ok(()));
        assert!(
            checked(json!({}), &[("TLSOptions", false)]).unwrap_err().starts_with("featureGates.TLSOptions")
        );
        let spark = json!({ "integrations": { "frameworks": [SPARK] } });
        assert_eq!(checked(spark, &[("SparkApplicationIntegration", true)]), Ok(()));
    }
}
