//! Settings of MultiKueue.

use quintet_api::config::kueue::{AccessProvider, ClusterProfileAccess, MultiKueue, QueueConfiguration};
use quintet_api::names::problems;

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
fn check_providers(access: &ClusterProfileAccess) -> Result<(), String> {
    let path = "multiKueue.clusterProfile";
    if !access.access_providers.is_empty() && !access.credentials_providers.is_empty() {
        return Err(format!("{path}.credentialsProviders: leave it out, because there are accessProviders"));
    }
    let name = if access.access_providers.is_empty() { "credentialsProviders" } else { "accessProviders" };
    for AccessProvider { name: provider, exec_config } in access.providers() {
        for (field, value) in [
            ("name", provider),
            ("execConfig.command", &exec_config.command),
            ("execConfig.apiVersion", &exec_config.api_version),
            ("execConfig.interactiveMode", &exec_config.interactive_mode),
        ] {
            if value.is_empty() {
                return Err(format!("{path}.{name}.{field}: it is missing"));
            }
        }
        if exec_config.env.iter().any(|variable| variable.name.is_empty()) {
            return Err(format!("{path}.{name}.execConfig.env.name: it is missing"));
        }
        let mode = exec_config.interactive_mode.as_str();
        if !["Never", "IfAvailable", "Always"].contains(&mode) {
            let known = "Never, IfAvailable, Always";
            return Err(format!(
                "{path}.{name}.execConfig.interactiveMode: unknown mode {mode:?}; choose from {known}"
            ));
        }
    }
    Ok(())
}
