//! Kueue's API: ClusterQueue, LocalQueue, Cohort, Workload and the rest of `kueue.x-k8s.io`.

pub mod defaulting;
pub mod scheduler;
pub mod validation;
pub mod webhook;

use quintet_api::{config, conversion, kueue};
use quintet_component::Component;

/// The descriptor. There are no controllers yet: the kinds are served, stored and converted, and nothing reconciles them.
/// [`webhook::webhooks`] are to be registered together with the controllers, as without these nothing removes the
/// finalizers that they add.
pub fn component() -> Component {
    Component {
        config: config::kueue::CONFIG,
        replaces: "Kueue",
        deployment_label: None,
        crds: kueue::definitions,
        convert: Some(conversion::convert),
        environment: &[],
        sensitive_fields: &[],
        configure: None,
    }
}
