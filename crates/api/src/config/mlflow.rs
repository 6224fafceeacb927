//! The section of the MLflow operator, which upstream is configured by flags and environment variables alone.

use serde::{Deserialize, Serialize};

use super::ComponentConfig;

/// What the MLflow operator adds to the configuration file.
pub const CONFIG: ComponentConfig = ComponentConfig {
    component: "mlflow",
    check: Some(|configuration| configuration.section::<MLflowConfiguration>("mlflow").map(drop)),
    gates: &[],
    controllers: &[],
    formats: &[],
};

/// Where the MLflow server runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MLflowConfiguration {
    /// The namespace of the MLflow server; upstream's flag `--namespace`. Absent: `POD_NAMESPACE`, or else
    /// `opendatahub`.
    pub namespace: Option<String>,
}
