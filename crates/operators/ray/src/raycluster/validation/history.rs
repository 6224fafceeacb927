//! History collectors: where they write to has to be complete before pods depend on it.

use k8s_openapi::api::core::v1::EnvVar;
use quintet_api::ray::v1::{CollectorOptions, RayClusterSpec};

use super::groups;
use crate::{
    settings::Settings,
    validation::{Verdict, ensure},
};

const CONTAINER: &str = "ray-history-collector";
/// Variables of the collector that the operator sets.
const RESERVED: [&str; 8] = [
    "POD_IP",
    "FQ_RAY_IP",
    "RAY_CLUSTER_NAME",
    "RAY_CLUSTER_NAMESPACE",
    "RAY_ROLE",
    "OWNER_KIND",
    "OWNER_NAME",
    "EVENTS_PORT",
];

pub(crate) fn validate(spec: &RayClusterSpec, settings: &Settings) -> Verdict {
    let Some(options) = &spec.history_server_options else {
        return Ok(());
    };
    ensure(settings.gates.history_server, || {
        "historyServerOptions needs the feature gate RayClusterHistoryServer".to_owned()
    })?;
    let Some(collector) = &options.collector_options else {
        return Err("historyServerOptions.collectorOptions must be set".to_owned());
    };
    validate_collector(collector)?;
    let head = [("head", &spec.head_group_spec.template)];
    let workers = groups(spec).iter().map(|group| (group.group_name.as_str(), &group.template));
    for (name, template) in head.into_iter().chain(workers) {
        let containers = template.spec.iter().flat_map(|pod| &pod.containers);
        ensure(!containers.into_iter().any(|container| container.name == CONTAINER), || {
            format!("the template of {name} must not have a container named {CONTAINER}; one is added")
        })?;
    }
    Ok(())
}

fn validate_collector(options: &CollectorOptions) -> Verdict {
    ensure(options.image.as_deref().is_some_and(|image| !image.is_empty()), || {
        "historyServerOptions.collectorOptions.image must be set".to_owned()
    })?;
    let env = options.env.as_deref().unwrap_or_default();
    let find = |name: &str| env.iter().find(|variable| variable.name == name);
    let is_set = |name: &str| {
        find(name).is_some_and(|EnvVar { value, value_from, .. }| {
            value_from.is_some() || value.as_deref().is_some_and(|value| !value.is_empty())
        })
    };
    if let Some(name) = RESERVED.iter().find(|name| find(name).is_some()) {
        return Err(format!("collectorOptions.env must not contain {name}, which is set by the operator"));
    }
    let literal = |name: &str| find(name).and_then(|variable| variable.value.as_deref()).unwrap_or_default();
    let backend = literal("STORAGE_BACKEND").to_uppercase();
    ensure(!backend.is_empty(), || {
        "collectorOptions.env must contain STORAGE_BACKEND with a literal value, such as S3 or GCS".to_owned()
    })?;
    let needed: &[&str] = match backend.as_str() {
        "GCS" => &["GCS_BUCKET"],
        "S3" => &["S3_REGION"],
        "ALIYUNOSS" => &["OSS_BUCKET", "OSS_ENDPOINT", "OSS_REGION"],
        "AZUREBLOB" => match literal("AZURE_STORAGE_AUTH_MODE") {
            "connection_string" => &["AZURE_STORAGE_CONNECTION_STRING"],
            "workload_identity" | "default" => &["AZURE_STORAGE_ACCOUNT_URL"],
            _ if is_set("AZURE_STORAGE_ACCOUNT_URL") => &[],
            _ => &["AZURE_STORAGE_CONNECTION_STRING"],
        },
        _ => &[],
    };
    match needed.iter().find(|name| !is_set(name)) {
        Some(name) => Err(format!("collectorOptions.env must contain {name} for STORAGE_BACKEND {backend}")),
        None => Ok(()),
    }
}
