//! The descriptor of the MLflow operator.

use std::sync::Arc;

use quintet_api::config::{self, Configuration, mlflow::MLflowConfiguration};
use quintet_api::{mlflow, platform};
use quintet_component::{Component, Operator, Permissions, Process, Start};
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
    let mut settings = Settings::read(&section, context.environment)?;
    if context.is_outside {
        // `quintet up` has a runtime for this image, so that an MLflow needs no settings.
        settings.image.get_or_insert_with(|| format!("mlflow/mlflow:v{}", settings.version));
    }
    let is_watched = is_watched(context.configuration, &settings.namespace)?;
    let permissions = if is_watched { permissions::of(&settings) } else { Permissions::default() };
    let start: Start = if is_watched {
        Box::new(|process| start(settings, process))
    } else {
        Box::new(move |_| {
            tracing::info!(
                namespace = settings.namespace,
                "MLflow is not reconciled: its namespace is not watched"
            );
            Ok(())
        })
    };
    Ok(Operator { permissions, webhooks: Vec::new(), services: Vec::new(), apis: Vec::new(), start })
}

/// Whether the process works in the namespace of the server. It is an error if not, and MLflow is asked for by name.
fn is_watched(configuration: &Configuration, namespace: &str) -> Result<bool, String> {
    let watched = &configuration.process.watch_namespaces;
    let is_watched = watched.is_empty() || watched.iter().any(|one| one == namespace);
    let is_named =
        configuration.components.iter().flatten().any(|name| name == config::mlflow::CONFIG.component);
    if is_named && !is_watched {
        return Err(format!(
            "MLflow's namespace {namespace} is not watched; add it to the watched namespaces, or set mlflow.namespace to \
             one of them"
        ));
    }
    Ok(is_watched)
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

#[cfg(test)]
mod tests {
    use quintet_api::config::Schema;
    use quintet_component::{Context, Platform};

    use super::*;

    fn configured(text: &str) -> Result<Operator, String> {
        let text = format!("apiVersion: config.quintet.dev/v1alpha1\nkind: Configuration\n{text}");
        let configuration = Schema(&[config::mlflow::CONFIG]).read(&text).unwrap();
        let (environment, platform) = (|_: &str| None, Platform::default());
        let context = Context {
            configuration: &configuration,
            environment: &environment,
            platform: &platform,
            is_outside: false,
        };
        configure(&context)
    }

    #[test]
    fn a_process_that_watches_other_namespaces_asks_for_no_rights() {
        let rights = |text: &str| configured(text).map(|operator| operator.permissions);
        assert_eq!(rights("watchNamespaces: [a]"), Ok(Permissions::default()));
        assert_ne!(rights("watchNamespaces: [a, opendatahub]"), Ok(Permissions::default()));
        assert_ne!(rights("watchNamespaces: [a]\nmlflow: {namespace: a}"), Ok(Permissions::default()));
        assert_ne!(rights(""), Ok(Permissions::default()));
    }

    #[test]
    fn mlflow_by_name_needs_its_namespace_to_be_watched() {
        let error = configured("components: [mlflow]\nwatchNamespaces: [a]").map(drop).unwrap_err();
        assert!(error.starts_with("MLflow's namespace opendatahub is not watched; add it"), "{error}");
    }
}
