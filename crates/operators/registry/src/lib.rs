//! The Model Registry operator's API: ModelRegistry, Catalog, AIHub.

use quintet_api::config::ComponentConfig;
use quintet_api::{aihub, conversion, modelregistry, platform};
use quintet_component::Component;

/// The descriptor. There are no controllers yet: the kinds are served, stored and converted, and nothing reconciles them.
pub fn component() -> Component {
    Component {
        config: ComponentConfig::without_settings("registry"),
        replaces: "Model Registry operator",
        deployment_label: None,
        crds: || [modelregistry::definitions(), aihub::definitions(), vec![platform::aihub()]].concat(),
        convert: Some(conversion::convert),
        environment: &[],
        sensitive_fields: &[],
        configure: None,
    }
}
