//! The spec of a registry with everything that the operator fills in.

use quintet_api::modelregistry::v1beta1::{ModelRegistrySpec, PostgresConfig, RouteState, SecretKeyValue};
use serde_json::{Map, Value};

use crate::names::{RegistryNames, proxy_certificate};
use crate::objects::server_requirements;
use crate::settings::Settings;

/// The database of registries whose database the operator runs.
pub(crate) const DATABASE: &str = "model_registry";
/// Its user.
pub(crate) const USER: &str = "modelregistry";
/// Its port.
pub(crate) const POSTGRES_PORT: i32 = 5432;

/// Fills in what is absent.
pub(crate) fn with_defaults(
    name: &str,
    stored: &ModelRegistrySpec,
    settings: &Settings,
    domain: &str,
) -> ModelRegistrySpec {
    let mut spec = stored.clone();
    let rest = spec.rest.get_or_insert_default();
    rest.resources.get_or_insert_with(server_requirements);
    fill(&mut rest.image, &settings.rest_image);
    if let Some(postgres) = &mut spec.postgres {
        fill(&mut postgres.image, &settings.postgres_image);
    }
    if let Some(proxy) = &mut spec.kube_rbac_proxy {
        if proxy.tls_certificate_secret.is_none() {
            let secret =
                |key: &str| Some(SecretKeyValue { name: proxy_certificate(name), key: key.to_owned() });
            proxy.tls_certificate_secret = secret("tls.crt");
            proxy.tls_key_secret = secret("tls.key");
        }
        fill(&mut proxy.domain, domain);
        fill(&mut proxy.image, &settings.proxy_image);
    }
    spec
}

fn fill(text: &mut Option<String>, default: &str) {
    if text.as_deref().unwrap_or_default().is_empty() {
        *text = Some(default.to_owned());
    }
}

/// Whether the operator runs the database.
pub(crate) fn is_generated(spec: &ModelRegistrySpec) -> bool {
    spec.postgres.as_ref().is_some_and(|postgres| postgres.generate_deployment == Some(true))
}

/// The same with the connection to the database that the operator runs, whatever users say about it.
pub(crate) fn with_generated_database(name: &str, spec: &ModelRegistrySpec) -> ModelRegistrySpec {
    if !is_generated(spec) {
        return spec.clone();
    }
    let names = RegistryNames(name);
    let password = SecretKeyValue { name: names.credentials(), key: "password".to_owned() };
    let postgres = PostgresConfig {
        host: Some(names.database()),
        port: Some(POSTGRES_PORT),
        username: Some(USER.to_owned()),
        database: Some(DATABASE.to_owned()),
        password_secret: Some(password),
        ..PostgresConfig::default()
    };
    ModelRegistrySpec { postgres: Some(postgres), ..spec.clone() }
}

/// Whether the proxy has a Route, as users have said it or by default.
pub(crate) fn has_https_route(spec: &ModelRegistrySpec) -> bool {
    let state = |route: Option<RouteState>| route.unwrap_or_default() == RouteState::Enabled;
    spec.kube_rbac_proxy.as_ref().is_some_and(|proxy| state(proxy.service_route))
}

/// What was filled in, as the text of a JSON merge patch.
pub(crate) fn filled_in(stored: &ModelRegistrySpec, effective: &ModelRegistrySpec) -> String {
    let json = |spec: &ModelRegistrySpec| without_empty(serde_json::to_value(spec).unwrap_or_default());
    let patch = difference(&json(stored), &json(effective)).unwrap_or_else(|| Value::Object(Map::new()));
    // As Go's encoder writes them.
    patch.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Go leaves out empty texts, and flags that are off unless they may be absent.
fn without_empty(value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    let is_said = |(name, value): &(String, Value)| {
        *value != "" && !value.is_null() && !(name == "skipDBCreation" && *value == false)
    };
    let fields = fields.into_iter().filter(is_said).map(|(name, value)| (name, without_empty(value)));
    Value::Object(fields.collect())
}

/// The merge patch from one value to another.
fn difference(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    let mut patch: Map<String, Value> = removed.map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in after {
        let change = before.get(name).map_or_else(|| Some(value.clone()), |old| difference(old, value));
        patch.extend(change.map(|change| (name.clone(), change)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: Value) -> ModelRegistrySpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_is_filled_in_is_a_merge_patch() {
        let stored = spec(json!({
            "rest": {"image": "i", "resources": {}},
            "postgres": {"generateDeployment": true, "port": 6432, "sslMode": "disable", "skipDBCreation": false, "image": "p"},
        }));
        let effective = with_generated_database("n", &with_defaults("n", &stored, &Settings::default(), ""));
        let expected = concat!(
            r#"{"postgres":{"database":"model_registry","generateDeployment":null,"host":"n-postgres","image":null,"#,
            r#""passwordSecret":{"key":"password","name":"n-postgres-credentials"},"port":5432,"sslMode":null,"#,
            r#""username":"modelregistry"}}"#
        );
        assert_eq!(filled_in(&stored, &effective), expected);
    }

    #[test]
    fn nothing_is_filled_in_where_all_is_said() {
        let stored = spec(
            json!({"rest": {"image": "i", "resources": {}}, "mysql": {"host": "h", "username": "u", "database": "d"}}),
        );
        assert_eq!(filled_in(&stored, &with_defaults("n", &stored, &Settings::default(), "")), "{}");
    }

    #[test]
    fn a_proxy_with_a_certificate_keeps_it() {
        let own = json!({"tlsCertificateSecret": {"name": "a", "key": "b"}, "tlsKeySecret": {"name": "a", "key": "c"}});
        let stored = spec(json!({"rest": {}, "kubeRBACProxy": own}));
        let proxy = with_defaults("n", &stored, &Settings::default(), "d").kube_rbac_proxy.unwrap();
        assert_eq!(proxy.tls_certificate_secret.unwrap().name, "a");
        assert_eq!(proxy.domain.as_deref(), Some("d"));
    }
}
