//! Defaults of ModelRegistries, on objects as they are sent: what is empty has to be seen before a schema rejects it.

use quintet_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::settings::Settings;

/// What the mutating webhook makes of a registry of any version.
pub(super) fn admit(registry: &mut Value, settings: &Settings, is_openshift: bool) {
    let is_alpha = is_alpha(registry);
    if let Some(spec) = registry.get_mut("spec").and_then(Value::as_object_mut) {
        rewrite(spec, is_alpha);
    }
    set_defaults(registry, settings, is_openshift);
}

fn is_alpha(registry: &Value) -> bool {
    registry["apiVersion"].as_str().is_some_and(|version| version.ends_with("/v1alpha1"))
}

/// Fields that Go's type always writes, so that the schema, which requires them, never misses them.
const ALWAYS: [(&str, &[&str]); 2] = [("rest", &[]), ("mysql", &["host", "username", "database"])];

/// Texts that may be said to be empty.
const MAY_BE_EMPTY: [&str; 3] =
    ["sslRootCertificatesConfigMapName", "sslRootCertificatesSecretName", "sslCipher"];

/// Writes a spec as upstream's webhook does, which sends back what its type has taken in: texts that are required are there,
/// other empty ones are not, and amounts are canonical.
fn rewrite(spec: &mut Map<String, Value>, is_alpha: bool) {
    spec.entry("rest").or_insert_with(|| json!({}));
    if spec["rest"].is_null() {
        spec["rest"] = json!({});
    }
    for (name, section) in spec.iter_mut() {
        let Some(section) = section.as_object_mut() else { continue };
        section
            .retain(|name, value| !value.is_null() && (value != "" || MAY_BE_EMPTY.contains(&name.as_str())));
        let required = ALWAYS.iter().find(|(always, _)| always == name).map_or(&[][..], |(_, fields)| fields);
        let of_alpha: &[&str] = if is_alpha && name == "postgres" { &["database"] } else { &[] };
        require(section, required);
        require(section, of_alpha);
        for (name, value) in section.iter_mut() {
            let Some(object) = value.as_object_mut() else { continue };
            if name == "resources" {
                canonicalize(object);
            } else if name.ends_with("Secret") || name.ends_with("ConfigMap") {
                require(object, &["name", "key"]);
            }
        }
    }
}

fn require(object: &mut Map<String, Value>, fields: &[&str]) {
    for field in fields {
        object.entry(*field).or_insert_with(|| "".into());
    }
}

/// Amounts as the API server itself writes them. What is no amount is left to the schema.
fn canonicalize(resources: &mut Map<String, Value>) {
    for part in ["requests", "limits"] {
        let Some(amounts) = resources.get_mut(part).and_then(Value::as_object_mut) else { continue };
        for amount in amounts.values_mut() {
            let text = match &*amount {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => continue,
            };
            if let Ok(quantity) = text.trim().parse::<Quantity>() {
                *amount = quantity.to_string().into();
            }
        }
        if amounts.is_empty() {
            resources.remove(part);
        }
    }
}

/// Sets the defaults of a registry of any version.
pub(crate) fn set_defaults(registry: &mut Value, settings: &Settings, is_openshift: bool) {
    let is_alpha = is_alpha(registry);
    let is_undefaulted = matches!(registry["status"]["specDefaults"].as_str().unwrap_or_default(), "" | "{}");
    let Some(spec) = registry.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    set_if_empty(spec, ["rest", "serviceRoute"], "disabled");
    // Upstream's type has it in every object that it writes.
    if spec["grpc"].is_null() {
        spec["grpc"] = json!({});
    }
    remove_empty_databases(spec, is_alpha);
    if is_alpha {
        replace_istio(spec);
        if spec["oauthProxy"].is_null() && is_openshift {
            spec["oauthProxy"] = json!({});
        }
        set_if_empty(spec, ["oauthProxy", "serviceRoute"], "enabled");
    } else {
        replace_oauth_proxy(spec);
        if is_openshift && spec["kubeRBACProxy"].is_null() {
            spec["kubeRBACProxy"] = json!({});
        }
        set_if_empty(spec, ["kubeRBACProxy", "serviceRoute"], "enabled");
    }
    if is_undefaulted {
        forget_default_image(spec, settings);
    }
}

/// Sets a text, if the object around it exists.
fn set_if_empty(spec: &mut Value, [object, field]: [&str; 2], default: &str) {
    let Some(object) = spec.get_mut(object).filter(|object| object.is_object()) else { return };
    if object[field].as_str().unwrap_or_default().is_empty() {
        object[field] = default.into();
    }
}

/// A database without a host is none.
fn remove_empty_databases(spec: &mut Value, is_alpha: bool) {
    let is_empty = |value: &Value| value.as_str().unwrap_or_default().is_empty();
    let Some(fields) = spec.as_object_mut() else { return };
    fields.retain(|name, database| match name.as_str() {
        "postgres" => {
            let is_generated = !is_alpha && database["generateDeployment"] == true;
            is_generated || !is_empty(&database["host"]) || !is_empty(&database["hostAddress"])
        }
        "mysql" => !is_empty(&database["host"]),
        _ => true,
    });
}

/// The former proxy becomes the current one, but for its image.
pub(crate) fn replace_oauth_proxy(spec: &mut Value) {
    let Some(fields) = spec.as_object_mut() else { return };
    if fields.get("kubeRBACProxy").is_some_and(|proxy| !proxy.is_null()) {
        return;
    }
    if let Some(mut proxy) = fields.remove("oauthProxy").filter(|proxy| !proxy.is_null()) {
        if let Some(proxy) = proxy.as_object_mut() {
            proxy.remove("image");
        }
        fields.insert("kubeRBACProxy".to_owned(), proxy);
    }
}

/// Istio becomes the former proxy, as conversion does it.
fn replace_istio(spec: &mut Value) {
    let Some(istio) = spec.as_object_mut().and_then(|fields| fields.remove("istio")) else { return };
    if istio.is_null() {
        return;
    }
    spec["oauthProxy"] = quintet_api::conversion::proxy_of_istio(&istio);
}

/// An image of the default repository and the resources beside it were defaults that older versions stored.
pub(crate) fn forget_default_image(spec: &mut Value, settings: &Settings) -> bool {
    let repository = |image: &str| image.split(':').next().unwrap_or_default().to_owned();
    let Some(rest) = spec.get_mut("rest").and_then(Value::as_object_mut) else { return false };
    let image = rest.get("image").and_then(Value::as_str).unwrap_or_default();
    if image.is_empty() || repository(image) != repository(&settings.rest_image) {
        return false;
    }
    rest.remove("image");
    rest.remove("resources");
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaulted(version: &str, spec: &Value, is_openshift: bool) -> Value {
        let mut registry =
            json!({"apiVersion": format!("modelregistry.opendatahub.io/{version}"), "spec": spec});
        set_defaults(&mut registry, &Settings::default(), is_openshift);
        registry["spec"].take()
    }

    #[test]
    fn empty_databases_are_none() {
        let cases = [
            (json!({"postgres": {}}), json!({})),
            (json!({"postgres": {"generateDeployment": false}}), json!({})),
            (json!({"mysql": {"host": ""}}), json!({})),
            (
                json!({"postgres": {"hostAddress": "1.2.3.4"}}),
                json!({"postgres": {"hostAddress": "1.2.3.4"}}),
            ),
            (
                json!({"postgres": {"generateDeployment": true}}),
                json!({"postgres": {"generateDeployment": true}}),
            ),
        ];
        for (spec, mut expected) in cases {
            expected["grpc"] = json!({});
            assert_eq!(defaulted("v1beta1", &spec, false), expected, "{spec}");
        }
        let alpha = defaulted("v1alpha1", &json!({"postgres": {"generateDeployment": true}}), false);
        assert!(alpha["postgres"].is_null(), "v1alpha1 has no such field");
    }

    #[test]
    fn a_spec_is_written_as_upstreams_type_writes_it() {
        let cases = [
            ("v1beta1", json!({}), json!({})),
            ("v1beta1", json!({"rest": null}), json!({})),
            (
                "v1beta1",
                json!({"rest": {"image": "", "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {}}}}),
                json!({"rest": {"serviceRoute": "disabled", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}}),
            ),
            (
                "v1beta1",
                json!({"mysql": {"host": "h", "sslCipher": "", "passwordSecret": {"name": "s"}}}),
                json!({"mysql": {
                    "host": "h", "username": "", "database": "", "sslCipher": "", "passwordSecret": {"name": "s", "key": ""},
                }}),
            ),
            (
                "v1beta1",
                json!({"postgres": {"generateDeployment": true, "host": "", "port": 5432}}),
                json!({"postgres": {"generateDeployment": true, "port": 5432}}),
            ),
            (
                "v1alpha1",
                json!({"postgres": {"host": "h"}}),
                json!({"postgres": {"host": "h", "database": ""}}),
            ),
        ];
        for (version, spec, mut expected) in cases {
            let mut registry =
                json!({"apiVersion": format!("modelregistry.opendatahub.io/{version}"), "spec": spec});
            admit(&mut registry, &Settings::default(), false);
            expected["grpc"] = json!({});
            if expected["rest"].is_null() {
                expected["rest"] = json!({"serviceRoute": "disabled"});
            }
            assert_eq!(registry["spec"], expected, "{version} {spec}");
        }
    }

    #[test]
    fn proxies_are_migrated_and_added_on_openshift() {
        let enabled = json!({"serviceRoute": "enabled"});
        let own = json!({"port": 9443, "image": "i"});
        let cases = [
            ("v1beta1", json!({}), false, "kubeRBACProxy", Value::Null),
            ("v1beta1", json!({}), true, "kubeRBACProxy", enabled.clone()),
            (
                "v1beta1",
                json!({"oauthProxy": own}),
                false,
                "kubeRBACProxy",
                json!({"port": 9443, "serviceRoute": "enabled"}),
            ),
            ("v1beta1", json!({"oauthProxy": own}), true, "oauthProxy", Value::Null),
            ("v1alpha1", json!({}), true, "oauthProxy", enabled),
            (
                "v1alpha1",
                json!({"istio": {}}),
                false,
                "oauthProxy",
                json!({"port": 8443, "routePort": 443, "serviceRoute": "disabled"}),
            ),
        ];
        for (version, spec, is_openshift, field, expected) in cases {
            let found = defaulted(version, &spec, is_openshift);
            assert_eq!(found[field], expected, "{version} {spec} {is_openshift}");
        }
    }

    #[test]
    fn stored_default_images_are_forgotten() {
        let resources = json!({"limits": {"cpu": "1"}});
        let cases = [
            ("quay.io/opendatahub/model-registry:v1", "", true),
            ("quay.io/opendatahub/model-registry:v1", "{}", true),
            ("quay.io/opendatahub/model-registry:v1", r#"{"rest":{}}"#, false),
            ("quay.io/opendatahub/model-registry@sha256:1", "", false),
            ("example.com/model-registry:v1", "", false),
        ];
        for (image, defaults, is_forgotten) in cases {
            let mut registry = json!({
                "apiVersion": "modelregistry.opendatahub.io/v1beta1",
                "spec": {"rest": {"image": image, "resources": resources}},
                "status": {"specDefaults": defaults},
            });
            set_defaults(&mut registry, &Settings::default(), false);
            assert_eq!(registry["spec"]["rest"]["image"].is_null(), is_forgotten, "{image} {defaults}");
            assert_eq!(registry["spec"]["rest"]["resources"].is_null(), is_forgotten, "{image} {defaults}");
        }
    }
}
