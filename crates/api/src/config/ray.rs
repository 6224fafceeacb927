//! KubeRay's `config.ray.io/v1alpha1`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar};
use serde::{Deserialize, Serialize};

use super::document::is_typed;
use super::process::{LogFormat, rate};
use super::{ComponentConfig, Configuration, Format, KIND, gates};

/// What the Ray operator adds to the configuration file.
pub const CONFIG: ComponentConfig = ComponentConfig {
    component: "ray",
    check: Some(|configuration| configuration.section::<RayConfiguration>("ray").map(drop)),
    gates: gates::RAY,
    controllers: &[],
    formats: &[Format {
        name: "KubeRay",
        description: "Configuration of config.ray.io/v1alpha1",
        matches: |document| is_typed(document, "config.ray.io/v1alpha1", KIND),
        apply: |document, configuration| Document::deserialize(document)?.apply(configuration),
    }],
};

/// How Ray clusters are made. Unknown keys are ignored, as KubeRay ignores them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RayConfiguration {
    /// The gang scheduler to work with: `volcano`, `yunikorn`, `kai-scheduler` or `scheduler-plugins`.
    pub batch_scheduler: Option<String>,
    /// The old way to say `batchScheduler: volcano`.
    pub enable_batch_scheduler: bool,
    /// Reach Ray dashboards through the API server instead of directly.
    pub use_kubernetes_proxy: bool,
    /// Delete a RayJob, and not only its cluster, once it has finished and its time to live is over.
    pub delete_ray_job_after_job_finishes: bool,
    /// Containers to add to every head pod.
    pub head_sidecar_containers: Vec<Container>,
    /// Containers to add to every worker pod.
    pub worker_sidecar_containers: Vec<Container>,
    /// Environment of every Ray container, unless its template says otherwise.
    pub default_container_envs: Vec<EnvVar>,
    /// Annotations of every pod, unless its template says otherwise.
    pub default_pod_annotations: BTreeMap<String, String>,
    /// Labels of every pod, unless its template says otherwise.
    pub default_pod_labels: BTreeMap<String, String>,
}

/// The whole upstream document: what concerns Ray, and what concerns the process.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(flatten)]
    ray: RayConfiguration,
    metrics_addr: Option<String>,
    probe_addr: Option<String>,
    enable_leader_election: Option<bool>,
    leader_election_namespace: Option<String>,
    reconcile_concurrency: Option<usize>,
    watch_namespace: Option<String>,
    log_stdout_encoder: Option<LogFormat>,
    #[serde(default, deserialize_with = "rate")]
    qps: Option<u32>,
    burst: Option<u32>,
}

impl Document {
    fn apply(self, configuration: &mut Configuration) -> Result<(), serde_json::Error> {
        configuration.set_section(CONFIG.component, &self.ray)?;
        let process = &mut configuration.process;
        set(&mut process.metrics_bind_address, self.metrics_addr.map(Some));
        set(&mut process.health_bind_address, self.probe_addr.map(Some));
        set(&mut process.leader_election.leader_elect, self.enable_leader_election);
        set(&mut process.concurrency, self.reconcile_concurrency);
        let names = self.watch_namespace.unwrap_or_default();
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let namespaces: Vec<String> = names.map(Into::into).collect();
        set(&mut process.watch_namespaces, Some(namespaces).filter(|names| !names.is_empty()));
        let namespace = self.leader_election_namespace.filter(|namespace| !namespace.is_empty());
        process.leader_election.resource_namespace =
            namespace.or_else(|| process.leader_election.resource_namespace.take());
        process.log.format = self.log_stdout_encoder.or(process.log.format);
        process.client.qps = self.qps.or(process.client.qps);
        process.client.burst = self.burst.or(process.client.burst);
        Ok(())
    }
}

/// Overwrites a setting, if the document has one.
pub(super) fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}
