//! Settings of MultiKueue.

use quintet_api::config::kueue::{MultiKueue, QueueConfiguration};
use quintet_api::names::problems;
use serde_json::Value;

use super::{is_kind, unique};
use crate::jobs::ancestors;

const INCREMENTAL: &str = "kueue.x-k8s.io/multikueue-dispatcher-incremental";

pub(super) fn check(configuration: &QueueConfiguration) -> Result<(), String> {
    let settings = &configuration.multi_kueue;
    if let Some(problem) = problems::label_value(&settings.origin).first() {
        return Err(format!("multiKueue.origin: {:?}: {problem}", settings.origin));
    }
    check_kinds(settings, &configuration.integrations.frameworks)?;
    if let Some(profile) = &settings.cluster_profile {
        check_providers(profile)?;
    }
    let Some(incremental) = &settings.incremental_dispatcher_config else { return Ok(()) };
    let path = "multiKueue.incrementalDispatcherConfig";
    if settings.dispatcher_name != INCREMENTAL {
        return Err(format!("{path}: it needs dispatcherName {INCREMENTAL}"));
    }
    match incremental.step_size {
        step if step < 1 => Err(format!("{path}.stepSize: {step} is less than 1")),
        _ => Ok(()),
    }
}

fn check_kinds(settings: &MultiKueue, frameworks: &[String]) -> Result<(), String> {
    let path = "multiKueue.externalFrameworks";
    let names: Vec<&str> = settings.external_frameworks.iter().map(|own| own.name.as_str()).collect();
    for (index, name) in names.iter().enumerate() {
        if !is_kind(name) {
            return Err(format!("{path}[{index}].name: {name:?} is not a Kind.version.group"));
        }
        let is_taken = |framework: &String| ancestors::kind_argument(framework).as_deref() == Some(*name);
        if frameworks.iter().any(is_taken) {
            return Err(format!("{path}[{index}].name: {name:?} is one of integrations.frameworks"));
        }
    }
    unique(path, &names).map_err(|why| why.replacen("]: ", "].name: ", 1))
}

/// Programs that give credentials for ClusterProfiles.
fn check_providers(profile: &Value) -> Result<(), String> {
    let path = "multiKueue.clusterProfile";
    let listed = |name: &str| profile[name].as_array().filter(|list| !list.is_empty());
    let (name, providers) = match (listed("accessProviders"), listed("credentialsProviders")) {
        (Some(_), Some(_)) => {
            return Err(format!(
                "{path}.credentialsProviders: leave it out, because there are accessProviders"
            ));
        }
        (Some(list), None) => ("accessProviders", list),
        (None, Some(list)) => ("credentialsProviders", list),
        (None, None) => return Ok(()),
    };
    for provider in providers {
        let command = &provider["execConfig"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for (field, value) in [
            ("name", text(&provider["name"])),
            ("execConfig.command", text(&command["command"])),
            ("execConfig.apiVersion", text(&command["apiVersion"])),
            ("execConfig.interactiveMode", text(&command["interactiveMode"])),
        ] {
            if value.is_empty() {
                return Err(format!("{path}.{name}.{field}: it is missing"));
            }
        }
        let mut variables = command["env"].as_array().into_iter().flatten();
        if variables.any(|variable| text(&variable["name"]).is_empty()) {
            return Err(format!("{path}.{name}.execConfig.env.name: it is missing"));
        }
        let mode = text(&command["interactiveMode"]);
        if !["Never", "IfAvailable", "Always"].contains(&mode.as_str()) {
            let known = "Never, IfAvailable, Always";
            return Err(format!(
                "{path}.{name}.execConfig.interactiveMode: unknown mode {mode:?}; choose from {known}"
            ));
        }
    }
    Ok(())
}
