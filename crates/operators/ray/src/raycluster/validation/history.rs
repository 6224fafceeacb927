//! History collectors: where they write to has to be complete before pods depend on it.

use k8s_openapi::api::core::v1::EnvVar;
use quintet_api::ray::v1::{CollectorOptions, RayClusterSpec};

use super::groups;
use crate::{
    settings::Settings,
    validation::{Verdict, ensure},
};

const CONTAINER: &str = "ray-history-collector";
const AZURE_CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";
const AZURE_ACCOUNT: &str = "AZURE_STORAGE_ACCOUNT_URL";
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
        "RayClusterHistoryServer feature gate is not enabled".to_owned()
    })?;
    let Some(collector) = &options.collector_options else {
        return Err("historyServerOptions.collectorOptions must be set".to_owned());
    };
    validate_collector(collector)?;
    let head = [("head".to_owned(), &spec.head_group_spec.template)];
    let workers =
        groups(spec).iter().map(|group| (format!("worker group {}", group.group_name), &group.template));
    for (name, template) in head.into_iter().chain(workers) {
        let containers = template.spec.iter().flat_map(|pod| &pod.containers);
        ensure(!containers.into_iter().any(|container| container.name == CONTAINER), || {
            format!(
                "{name} pod template must not define a container with name '{CONTAINER}' when history server \
                 collector options are enabled"
            )
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
        return Err(format!(
            "historyServerOptions.collectorOptions.env must not contain {name}: it is managed by KubeRay and injected \
             automatically into the collector container"
        ));
    }
    let literal = |name: &str| find(name).and_then(|variable| variable.value.as_deref()).unwrap_or_default();
    let backend = literal("STORAGE_BACKEND").to_uppercase();
    ensure(!backend.is_empty(), || {
        "STORAGE_BACKEND environment variable must be set with a literal string value in \
         historyServerOptions.collectorOptions.env"
            .to_owned()
    })?;
    let mode = literal("AZURE_STORAGE_AUTH_MODE").trim().to_lowercase();
    let needs = |names: &[&str], why: &str| match names.iter().find(|name| !is_set(name)) {
        Some(name) => {
            Err(format!("{name} environment variable must be set when STORAGE_BACKEND is {backend}{why}"))
        }
        None => Ok(()),
    };
    let by_mode = format!(" and AZURE_STORAGE_AUTH_MODE is {mode}");
    match (backend.as_str(), mode.as_str()) {
        ("GCS", _) => needs(&["GCS_BUCKET"], ""),
        ("S3", _) => needs(&["S3_REGION"], ""),
        ("ALIYUNOSS", _) => needs(&["OSS_BUCKET", "OSS_ENDPOINT", "OSS_REGION"], ""),
        ("AZUREBLOB", "connection_string") => needs(&[AZURE_CONNECTION], &by_mode),
        ("AZUREBLOB", "workload_identity" | "default") => needs(&[AZURE_ACCOUNT], &by_mode),
        ("AZUREBLOB", _) => ensure(is_set(AZURE_CONNECTION) || is_set(AZURE_ACCOUNT), || {
            format!(
                "either {AZURE_CONNECTION} or {AZURE_ACCOUNT} environment variable must be set when STORAGE_BACKEND \
                 is AZUREBLOB"
            )
        }),
        _ => Ok(()),
    }
}
