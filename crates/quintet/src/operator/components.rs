//! The operators, as far as they are wanted.

use std::sync::Arc;

use anyhow::{Context as _, Error};
use quintet_api::config::{Component, Configuration};
use quintet_controller::{Runtime, clock::Clock, metrics::MetricsRegistry};
use quintet_ray::{
    dashboard::Pollers,
    settings::{Platform, Settings},
};

use crate::cluster::Cluster;

/// API groups that only OpenShift has.
const OPENSHIFT: [&str; 3] = ["route.openshift.io", "security.openshift.io", "config.openshift.io"];

/// Adds the controllers of every component that is wanted.
pub(super) async fn add(
    runtime: &Runtime,
    configuration: &Configuration,
    cluster: &Cluster,
    clock: &Clock,
    metrics: &MetricsRegistry,
) -> anyhow::Result<()> {
    if configuration.components().contains(&Component::Ray) {
        let settings = Settings { platform: platform(cluster).await?, ..ray_settings(configuration)? };
        if settings.gates.sidecar_submitter_restart {
            let version =
                cluster.client.apiserver_version().await.context("cannot ask for the cluster's version")?;
            settings.check_server(&version.major, &version.minor).map_err(Error::msg)?;
        }
        let context = quintet_ray::Context {
            settings: Arc::new(settings),
            clock: clock.clone(),
            seed: None,
            concurrency: configuration.process.concurrency,
        };
        let pollers = Pollers::http(runtime, &context, cluster.client.clone());
        quintet_ray::add(runtime, &context)
            .and_then(|()| quintet_ray::add_workloads(runtime, &context, &pollers, Some(metrics)))
            .context("cannot run the Ray operator")?;
    }
    Ok(())
}

/// What the configuration and the environment say of the Ray operator.
pub(crate) fn ray_settings(configuration: &Configuration) -> anyhow::Result<Settings> {
    let environment = |name: &str| std::env::var(name).ok();
    Settings::read(&configuration.ray, &configuration.feature_gates, environment).map_err(Error::msg)
}

/// What the cluster offers beyond Kubernetes.
async fn platform(cluster: &Cluster) -> anyhow::Result<Platform> {
    let groups =
        cluster.client.list_api_groups().await.context("cannot ask which APIs the cluster serves")?;
    let has = |name: &str| groups.groups.iter().any(|group| group.name == name);
    let prefers_ingress =
        std::env::var("USE_INGRESS_ON_OPENSHIFT").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
    Ok(Platform {
        routes: OPENSHIFT.into_iter().any(has) && !prefers_ingress,
        cert_manager: groups.groups.iter().any(|group| {
            group.name == "cert-manager.io" && group.versions.iter().any(|version| version.version == "v1")
        }),
    })
}
