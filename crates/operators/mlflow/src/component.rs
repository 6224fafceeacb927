//! The descriptor of the MLflow operator.

use std::sync::Arc;

use quintet_api::config::{self, mlflow::MLflowConfiguration};
use quintet_api::{mlflow, platform};
use quintet_component::{Component, Operator, Process};
use quintet_controller::Error;

use crate::settings::{self, Settings};
use crate::{Context, permissions};

/// The variables of upstream's operator that Quintet honours.
const ENVIRONMENT: &[&str] = &[
    settings::APPLICATIONS_NAMESPACE,
    settings::GATEWAY_NAME,
    settings::IMAGE,
    settings::MODULE_MODE,
    settings::NAMESPACE_RBAC,
    settings::RELATED_IMAGE,
    settings::RESOURCE_NAME_PREFIX,
    settings::SECTION_TITLE,
    settings::URL,
];

/// MLflow, MLflowConfig and MLflowOperator.
pub fn component() -> Component {
    Component {
        config: config::mlflow::CONFIG,
        replaces: "MLflow operator",
        deployment_label: None,
        crds: || [mlflow::definitions(), vec![platform::mlflow_operator()]].concat(),
        convert: None,
        environment: ENVIRONMENT,
        // URIs of databases hold passwords; the garbage collection gets one as an argument.
        sensitive_fields: &["args", "backendStoreUri", "readReplicaBackendStoreUri", "registryStoreUri"],
        configure: Some(configure),
    }
}

fn configure(context: &quintet_component::Context<'_>) -> Result<Operator, String> {
    let section: MLflowConfiguration =
        context.configuration.section(config::mlflow::CONFIG.component).map_err(|error| error.to_string())?;
    let settings = Settings::read(&section, context.environment)?;
    Ok(Operator {
        permissions: permissions::of(&settings),
        webhooks: Vec::new(),
        services: Vec::new(),
        start: Box::new(|process| start(settings, process)),
    })
}

fn start(settings: Settings, process: &Process<'_>) -> Result<(), Error> {
    crate::add(&Context {
        runtime: process.runtime.clone(),
        settings: Arc::new(settings),
        clock: process.clock.clone(),
        metrics: process.metrics.clone(),
        concurrency: process.concurrency,
    })
}
