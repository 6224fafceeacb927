//! The databases of an MLflow server.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};
use quintet_api::mlflow::MLflowSpec;

use super::container;

pub(super) const BACKEND: &str = "MLFLOW_BACKEND_STORE_URI";
pub(super) const READ_REPLICA: &str = "MLFLOW_READ_REPLICA_BACKEND_STORE_URI";
pub(super) const REGISTRY: &str = "MLFLOW_REGISTRY_STORE_URI";

/// The backend of objects that are older than the rule that one must be named.
const LEGACY_BACKEND: &str = "sqlite:////mlflow/mlflow.db";

/// The address of a database.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StoreUri {
    /// As text.
    Text(String),
    /// In a Secret.
    Secret(SecretKeySelector),
}

impl StoreUri {
    /// A reference counts more than text.
    fn of(text: Option<&String>, reference: Option<&SecretKeySelector>) -> Option<Self> {
        let reference = reference.filter(|reference| !reference.name.is_empty()).cloned().map(Self::Secret);
        reference.or_else(|| text.filter(|text| !text.is_empty()).cloned().map(Self::Text))
    }

    /// The variable that holds it.
    pub(super) fn env(&self, name: &str) -> EnvVar {
        match self {
            Self::Text(text) => container::env(name, text),
            Self::Secret(reference) => EnvVar {
                name: name.to_owned(),
                value: None,
                value_from: Some(EnvVarSource {
                    secret_key_ref: Some(reference.clone()),
                    ..EnvVarSource::default()
                }),
            },
        }
    }
}

/// Experiments, runs and traces.
pub(super) fn backend(spec: &MLflowSpec) -> StoreUri {
    StoreUri::of(spec.backend_store_uri.as_ref(), spec.backend_store_uri_from.as_ref())
        .unwrap_or_else(|| StoreUri::Text(LEGACY_BACKEND.to_owned()))
}

/// A copy of the backend that is only read.
pub(super) fn read_replica(spec: &MLflowSpec) -> Option<StoreUri> {
    StoreUri::of(
        spec.read_replica_backend_store_uri.as_ref(),
        spec.read_replica_backend_store_uri_from.as_ref(),
    )
}

/// Registered models.
pub(super) fn registry(spec: &MLflowSpec) -> StoreUri {
    StoreUri::of(spec.registry_store_uri.as_ref(), spec.registry_store_uri_from.as_ref())
        .unwrap_or_else(|| backend(spec))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str) -> SecretKeySelector {
        SecretKeySelector { name: name.to_owned(), key: "uri".to_owned(), optional: Some(true) }
    }

    #[test]
    fn a_reference_wins_over_text_and_keeps_that_it_is_optional() {
        let spec = MLflowSpec {
            backend_store_uri: Some("postgresql://db".to_owned()),
            backend_store_uri_from: Some(secret("s")),
            ..MLflowSpec::default()
        };
        assert_eq!(backend(&spec), StoreUri::Secret(secret("s")));
        assert_eq!(registry(&spec), backend(&spec), "the registry is the backend unless it is named");
        let reference = backend(&spec).env(BACKEND).value_from.and_then(|from| from.secret_key_ref);
        assert_eq!(reference.and_then(|reference| reference.optional), Some(true));
    }

    #[test]
    fn an_object_without_a_backend_keeps_the_legacy_one() {
        assert_eq!(backend(&MLflowSpec::default()), StoreUri::Text(LEGACY_BACKEND.to_owned()));
        assert_eq!(read_replica(&MLflowSpec::default()), None);
    }
}
