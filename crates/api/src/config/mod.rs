//! The configuration file: Quintet's own format, and the formats of the operators it stands in for.
//!
//! A file holds one or more YAML documents, told apart by `apiVersion` and `kind`. Quintet's own document sets
//! up the process and has a section per component; a document in an upstream format sets up the
//! component it was made for, and the process where it speaks of it. Later documents win.
//!
//! ```
//! use quintet_api::config::Configuration;
//!
//! let configuration = Configuration::from_yaml(
//!     "apiVersion: config.kueue.x-k8s.io/v1beta2
//! kind: Configuration
//! fairSharing: {preemptionStrategies: [LessThanInitialShare]}",
//! )?;
//! assert!(configuration.queue.fair_sharing.is_some());
//! # Ok::<(), quintet_api::config::ConfigurationError>(())
//! ```

pub mod codeflare;
mod document;
pub mod gates;
pub mod kueue;
mod kueue_document;
mod process;
pub mod ray;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use document::ConfigurationError;
pub use process::{Client, LeaderElection, Log, LogFormat, Process, ResourceLock, Webhook};

/// The group and version of Quintet's own document.
pub const API_VERSION: &str = "config.quintet.dev/v1alpha1";
/// The kind of Quintet's own document, and of most of upstream's.
pub const KIND: &str = "Configuration";

/// Everything a configuration file can say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Configuration {
    /// The components to run; all, unless some are named.
    pub components: Option<Vec<Component>>,
    /// What all components share: addresses, leader election, logs, the connection to the API server.
    #[serde(flatten)]
    pub process: Process,
    /// Feature gates of any component, by upstream's names.
    pub feature_gates: BTreeMap<String, bool>,
    /// Ray clusters, jobs and services; the keys of KubeRay's own configuration.
    pub ray: ray::RayConfiguration,
    /// Queues and quotas; the keys of Kueue's own configuration.
    pub queue: kueue::QueueConfiguration,
    /// Hardening of Ray clusters, and AppWrappers; the keys of CodeFlare's own configuration.
    pub codeflare: codeflare::CodeFlareConfiguration,
}

/// A part of Quintet that can be switched on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Component {
    /// RayCluster, RayJob, RayService, RayCronJob.
    Ray,
    /// Quota, queues, fair sharing, preemption, topology.
    Queue,
    /// AppWrapper and the hardening of Ray clusters.
    CodeFlare,
    /// ModelRegistry, Catalog, AIHub.
    Registry,
    /// MLflow, MLflowConfig.
    MLflow,
}

impl Component {
    /// All of them, in the order they start.
    pub const ALL: [Self; 5] = [Self::Ray, Self::Queue, Self::CodeFlare, Self::Registry, Self::MLflow];
}

impl Configuration {
    /// What the types alone cannot rule out. Reading a file checks it; check again after changing it.
    pub fn check(&self) -> Result<(), String> {
        self.process.leader_election.check()?;
        if self.process.concurrency == 0 {
            return Err("concurrency (reconcileConcurrency in KubeRay's format) must be at least 1".into());
        }
        self.process.check_namespaces()?;
        gates::check(&self.feature_gates)?;
        self.queue.check()
    }

    /// The components to run.
    pub fn components(&self) -> &[Component] {
        self.components.as_deref().unwrap_or(&Component::ALL)
    }
}
