//! CodeFlare's API: AppWrapper.

use quintet_api::{appwrapper, config};
use quintet_component::Component;

/// The descriptor. There are no controllers yet: the kinds are served, stored and converted, and nothing reconciles them.
pub fn component() -> Component {
    Component {
        config: config::codeflare::CONFIG,
        replaces: "CodeFlare, AppWrapper",
        deployment_label: None,
        crds: appwrapper::definitions,
        convert: None,
        environment: &[],
        sensitive_fields: &[],
        configure: None,
    }
}
