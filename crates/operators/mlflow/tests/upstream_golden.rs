//! The operator against recorded behaviour of the MLflow operator.
//!
//! `QUINTET_GOLDEN=DIR cargo test -p quintet-mlflow --test upstream_golden -- --nocapture` compares all cases in `DIR`.

use quintet_golden::{Case, ObjectId, Profile, Setting};

/// The namespace is a flag upstream, and a variable here.
fn setting(case: &Case) -> Result<Setting, String> {
    let mut variables = case.environment.variables.clone();
    let namespace = case.environment.namespace.clone();
    variables.extend(namespace.map(|namespace| ("POD_NAMESPACE".to_owned(), namespace)));
    let configuration = if case.name.ends_with("namespace-empty") {
        let text = "apiVersion: config.quintet.dev/v1alpha1\nkind: Configuration\nmlflow: {namespace: ''}";
        quintet_api::config::Schema(&[quintet_api::config::mlflow::CONFIG])
            .read(text)
            .map_err(|error| error.to_string())?
    } else {
        quintet_api::config::Configuration::default()
    };
    Ok(Setting { configuration, variables })
}

/// In the cases about namespace RBAC, the namespace of the server was not recorded.
fn is_recorded(case: &Case, id: &ObjectId) -> bool {
    let is_of_rbac = case.environment.variant.as_deref() == Some("namespace-rbac");
    !is_of_rbac || case.environment.namespace.as_deref() != Some(&id.namespace)
}

#[test]
fn the_operator_behaves_as_recorded() {
    let deliberate = include_str!("upstream_differences.yaml");
    let profile = Profile::new(quintet_mlflow::component(), deliberate, setting).recording(is_recorded);
    quintet_golden::check(&profile);
}
