//! The descriptor of the Model Registry operator.

use std::sync::Arc;

use quintet_api::config::ComponentConfig;
use quintet_api::{aihub, conversion, modelregistry, platform};
use quintet_component::{Component, Operator, Process, Webhook};
use quintet_controller::Error;

use crate::settings::{self, Settings};
use crate::{Context, permissions};

/// ModelRegistry, Catalog and AIHub.
pub fn component() -> Component {
    Component {
        config: ComponentConfig::without_settings("registry"),
        replaces: "Model Registry operator",
        deployment_label: None,
        crds: || [modelregistry::definitions(), aihub::definitions(), vec![platform::aihub()]].concat(),
        convert: Some(conversion::convert),
        environment: settings::ENVIRONMENT,
        sensitive_fields: &[],
        configure: Some(configure),
    }
}

// The signature is that of components whose settings can be wrong.
#[expect(clippy::unnecessary_wraps, reason = "other components reject settings")]
fn configure(context: &quintet_component::Context<'_>) -> Result<Operator, String> {
    let settings = Arc::new(Settings::read(context.environment));
    Ok(Operator {
        permissions: permissions::of(&settings),
        webhooks: webhooks(&settings),
        services: Vec::new(),
        apis: Vec::new(),
        start: Box::new(move |process| start(settings, process)),
    })
}

fn webhooks(settings: &Arc<Settings>) -> Vec<Webhook> {
    if !settings.webhooks {
        return Vec::new();
    }
    let mut webhooks = crate::modelregistry::webhooks(settings);
    webhooks.push(crate::catalog::webhook(settings));
    webhooks
}

fn start(settings: Arc<Settings>, process: &Process<'_>) -> Result<(), Error> {
    crate::add(&Context {
        runtime: process.runtime.clone(),
        client: process.client.clone(),
        settings,
        clock: process.clock.clone(),
        concurrency: process.concurrency,
    })
}
