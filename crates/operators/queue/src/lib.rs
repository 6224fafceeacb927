//! Kueue's API: ClusterQueue, LocalQueue, Cohort, Workload and the rest of `kueue.x-k8s.io`.

use quintet_api::{config, conversion, kueue};
use quintet_component::Component;

/// The descriptor. There are no controllers yet: the kinds are served, stored and converted, and nothing reconciles them.
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
