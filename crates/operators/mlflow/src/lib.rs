//! The MLflow operator's API: MLflow, MLflowConfig, MLflowOperator.

use quintet_api::config::ComponentConfig;
use quintet_api::{mlflow, platform};
use quintet_component::Component;

/// The descriptor. There are no controllers yet: the kinds are served, stored and converted, and nothing reconciles them.
pub fn component() -> Component {
    Component {
        config: ComponentConfig::without_settings("mlflow"),
        replaces: "MLflow operator",
        deployment_label: None,
        crds: || [mlflow::definitions(), vec![platform::mlflow_operator()]].concat(),
        convert: None,
        environment: &[],
        sensitive_fields: &[],
        configure: None,
    }
}
