//! The configuration file: Quintet's own format, and the formats of the operators it replaces.
//!
//! A file holds one or more YAML documents, told apart by `apiVersion` and `kind`. Quintet's own document configures
//! the process and has a section per component; a document in an upstream format configures the component it was made
//! for, and the process where it has settings for it. Later documents win.
//!
//! What a component adds to the file is data ([`ComponentConfig`]); [`Schema`] reads files for a given set of
//! components and knows none of them by name.
//!
//! ```
//! use quintet_api::config::{Schema, kueue};
//!
//! let components = [kueue::CONFIG];
//! let configuration = Schema(&components).read(
//!     "apiVersion: config.kueue.x-k8s.io/v1beta2
//! kind: Configuration
//! fairSharing: {preemptionStrategies: [LessThanInitialShare]}",
//! )?;
//! let queue: kueue::QueueConfiguration = configuration.section(kueue::CONFIG.component)?;
//! assert!(queue.fair_sharing.is_some());
//! # Ok::<(), quintet_api::config::ConfigurationError>(())
//! ```

pub mod codeflare;
mod controllers;
mod document;
pub mod gates;
pub mod kueue;
mod kueue_document;
pub mod mlflow;
pub mod node;
mod process;
pub mod ray;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use controllers::Controllers;
pub use document::ConfigurationError;
pub use process::{Client, LeaderElection, Log, LogFormat, Process, ResourceLock, Webhook};

/// The group and version of Quintet's own document.
pub const API_VERSION: &str = "config.quintet.dev/v1alpha1";
/// The kind of Quintet's own document, and of most of upstream's.
pub const KIND: &str = "Configuration";

/// Everything a configuration file can say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Configuration {
    /// The components to run; all, unless some are named.
    pub components: Option<Vec<String>>,
    /// The controllers of the components to run, as kube-controller-manager takes them; all, unless some are named.
    #[serde(skip_serializing_if = "Controllers::is_empty")]
    pub controllers: Controllers,
    /// What all components share: addresses, leader election, logs, the connection to the API server.
    #[serde(flatten)]
    pub process: Process,
    /// Feature gates of any component, by upstream's names.
    pub feature_gates: BTreeMap<String, bool>,
    /// The node of `quintet up`.
    #[serde(skip_serializing_if = "is_default")]
    pub node: node::Node,
    /// Settings of single components, by component. [`Configuration::section`] reads them.
    #[serde(flatten)]
    sections: BTreeMap<String, Value>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Configuration {
    /// Whether a component is to run.
    pub fn enables(&self, component: &str) -> bool {
        self.components.as_ref().is_none_or(|names| names.iter().any(|name| name == component))
    }

    /// The settings of a component, or its defaults if the file has no section for it.
    pub fn section<T: Default + DeserializeOwned>(&self, component: &str) -> Result<T, ConfigurationError> {
        let Some(section) = self.sections.get(component) else { return Ok(T::default()) };
        document::decoded(section.clone()).map_err(|error| ConfigurationError::Section {
            component: component.to_owned(),
            reason: error.to_string(),
        })
    }

    /// Replaces the settings of a component.
    fn set_section(&mut self, component: &str, section: &impl Serialize) -> Result<(), serde_json::Error> {
        self.sections.insert(component.to_owned(), serde_json::to_value(section)?);
        Ok(())
    }
}

/// Checks the settings of one component.
pub type Check = fn(&Configuration) -> Result<(), ConfigurationError>;

/// What a component adds to the configuration file.
#[derive(Clone, Copy, Debug)]
pub struct ComponentConfig {
    /// Name of the component: in `components`, and of its section.
    pub component: &'static str,
    /// Checks its settings; `None` if it has no section.
    pub check: Option<Check>,
    /// Names of its feature gates.
    pub gates: &'static [&'static str],
    /// Names of its controllers that can be left out.
    pub controllers: &'static [&'static str],
    /// Upstream documents that configure it.
    pub formats: &'static [Format],
}

impl ComponentConfig {
    /// A component without settings of its own.
    pub const fn without_settings(component: &'static str) -> Self {
        Self { component, check: None, gates: &[], controllers: &[], formats: &[] }
    }
}

/// A configuration document in the format of another operator.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Whose format it is, for messages.
    pub name: &'static str,
    /// How users recognize it, for messages: `Configuration of config.ray.io/v1alpha1`.
    pub description: &'static str,
    /// Whether a document is in this format.
    pub matches: fn(&Value) -> bool,
    /// Carries a document over into the configuration.
    pub apply: fn(Value, &mut Configuration) -> Result<(), serde_json::Error>,
}

/// Reads and checks configuration files for a set of components.
#[derive(Clone, Copy, Debug)]
pub struct Schema<'a>(pub &'a [ComponentConfig]);

impl Schema<'_> {
    /// What the types alone cannot rule out. Reading a file checks it; check again after changing it.
    pub fn check(&self, configuration: &Configuration) -> Result<(), ConfigurationError> {
        let contradiction = ConfigurationError::Contradiction;
        let process = &configuration.process;
        process.leader_election.check().map_err(contradiction)?;
        if process.concurrency == 0 {
            let text = "concurrency (reconcileConcurrency in KubeRay's format) must be at least 1";
            return Err(contradiction(text.into()));
        }
        process.check_namespaces().map_err(contradiction)?;
        for name in configuration.components.iter().flatten() {
            self.check_component(name).map_err(contradiction)?;
        }
        configuration.controllers.check(self.0).map_err(contradiction)?;
        gates::check(&configuration.feature_gates, self.0).map_err(contradiction)?;
        self.0.iter().filter_map(|component| component.check).try_for_each(|check| check(configuration))
    }

    /// Rejects names of components that do not exist.
    pub fn check_component(&self, name: &str) -> Result<(), String> {
        if self.0.iter().any(|component| component.component == name) {
            return Ok(());
        }
        let names: Vec<_> = self.0.iter().map(|component| component.component).collect();
        Err(format!("unknown component \"{name}\"; choose from {}", names.join(", ")))
    }
}
