//! What a ModelRegistry must be, beyond its schema.

use serde_json::Value;

use crate::field_errors::{check_namespace, duplicate, invalid, of_object, required};
use crate::settings::Settings;

const KIND: &str = "ModelRegistry.modelregistry.opendatahub.io";
const NO_DATABASE: &str = "required one of `postgres` or `mysql` database";

/// Why a registry of this name cannot be created: names are unique in the cluster. `others` are the namespaces of
/// registries of this name.
pub(crate) fn check_name(name: &str, others: &[String]) -> Option<String> {
    let namespace = others.first()?;
    let why = format!("registry named {name} already exists in namespace {namespace}");
    of_object(KIND, name, &[duplicate("metadata.name", &why)])
}

/// Why a registry is rejected.
pub(crate) fn check(registry: &Value, settings: &Settings) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (metadata, spec) = (&registry["metadata"], &registry["spec"]);
    let mut errors = Vec::new();
    errors.extend(check_namespace(&text(&metadata["namespace"]), settings.registries_namespace.as_deref()));
    let postgres = &spec["postgres"];
    if postgres.is_null() && spec["mysql"].is_null() {
        errors.push(required("spec.postgres", NO_DATABASE));
        errors.push(required("spec.mysql", NO_DATABASE));
    }
    if postgres["generateDeployment"] == true {
        let (host, address) = (text(&postgres["host"]), text(&postgres["hostAddress"]));
        if !host.is_empty() || !address.is_empty() {
            // As upstream, the error shows the host, even if it is the address that is wrong.
            let why = "host should not be set when auto-provisioning is enabled";
            errors.push(invalid("spec.postgres.host", &host, why));
        }
    }
    of_object(KIND, &text(&metadata["name"]), &errors)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(spec: &Value, only: Option<&str>) -> Option<String> {
        let settings = Settings { registries_namespace: only.map(str::to_owned), ..Settings::default() };
        check(&json!({"metadata": {"name": "x", "namespace": "ns"}, "spec": spec}), &settings)
    }

    #[test]
    fn every_rule_has_its_message() {
        let postgres = json!({"postgres": {"host": "db"}});
        let both = json!({"postgres": {"generateDeployment": true, "host": "db"}});
        let address = json!({"postgres": {"generateDeployment": true, "hostAddress": "1.2.3.4"}});
        let prefix = r#"ModelRegistry.modelregistry.opendatahub.io "x" is invalid: "#;
        let cases = [
            (
                json!({}),
                None,
                "[spec.postgres: Required value: required one of `postgres` or `mysql` database, spec.mysql: Required value: \
                 required one of `postgres` or `mysql` database]",
            ),
            (
                postgres.clone(),
                Some("models"),
                r#"metadata.namespace: Invalid value: "ns": namespace must be models"#,
            ),
            (
                both,
                None,
                r#"spec.postgres.host: Invalid value: "db": host should not be set when auto-provisioning is enabled"#,
            ),
            (
                address,
                None,
                r#"spec.postgres.host: Invalid value: "": host should not be set when auto-provisioning is enabled"#,
            ),
        ];
        for (spec, only, expected) in cases {
            assert_eq!(checked(&spec, only), Some(format!("{prefix}{expected}")));
        }
        assert_eq!(checked(&postgres, None), None);
        assert_eq!(checked(&postgres, Some("ns")), None);
        assert_eq!(checked(&json!({"mysql": {}}), None), None);
    }

    #[test]
    fn names_are_unique() {
        assert_eq!(check_name("x", &[]), None);
        let expected = concat!(
            r#"ModelRegistry.modelregistry.opendatahub.io "x" is invalid: metadata.name: Duplicate value: "#,
            r#""registry named x already exists in namespace other""#
        );
        assert_eq!(check_name("x", &["other".to_owned()]).as_deref(), Some(expected));
    }
}
