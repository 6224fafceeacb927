//! `modelregistry.opendatahub.io`: `v1alpha1`, which knew Istio, and `v1beta1`.
#![expect(
    clippy::unnecessary_wraps,
    reason = "conversions share one signature, whether or not they can fail"
)]

use serde_json::{Map, Value, json};

use super::ConversionError;
use super::object::{child, is_empty, text};
use super::stash::Stash;

type Object = Map<String, Value>;

const NEW_PROXY: &[&str] = &["kubeRBACProxy"];
const GENERATED_POSTGRES: &[&str] = &["generateDeployment"];
const POSTGRES_IMAGE: &[&str] = &["image"];

pub(super) fn up(object: &mut Object) -> Result<(), ConversionError> {
    let mut stash = Stash::from_annotation(object);
    if let Some(spec) = child(object, "spec") {
        if let Some(Value::Object(mut istio)) = spec.remove("istio") {
            spec.insert("oauthProxy".into(), proxy_instead_of(&mut istio));
        }
        write_required(spec);
        // What the older version's client has set since wins over its rival.
        if !spec.contains_key("oauthProxy") {
            stash.put_back("spec", Some(&mut *spec), NEW_PROXY);
        }
        if let Some(postgres) = child(spec, "postgres") {
            if is_empty(postgres.get("database")) {
                postgres.remove("database");
            }
            if is_empty(postgres.get("host")) && is_empty(postgres.get("hostAddress")) {
                stash.put_back("spec.postgres", Some(&mut *postgres), GENERATED_POSTGRES);
            }
            stash.put_back("spec.postgres", Some(postgres), POSTGRES_IMAGE);
        }
    }
    Ok(())
}

pub(super) fn down(object: &mut Object) -> Result<(), ConversionError> {
    let mut stash = Stash::default();
    if let Some(spec) = child(object, "spec") {
        stash.take("spec", Some(&mut *spec), NEW_PROXY);
        // The older version requires it, if only in name.
        if let Some(postgres) = child(spec, "postgres") {
            stash.take("spec.postgres", Some(&mut *postgres), GENERATED_POSTGRES);
            stash.take("spec.postgres", Some(&mut *postgres), POSTGRES_IMAGE);
            postgres.entry("database").or_insert_with(|| json!(""));
        }
        write_required(spec);
    }
    stash.into_annotation(object);
    Ok(())
}

/// Adds what both of upstream's types write, even if it is empty.
fn write_required(spec: &mut Object) {
    for section in ["rest", "grpc"] {
        spec.entry(section).or_insert_with(|| json!({}));
    }
    if let Some(mysql) = child(spec, "mysql") {
        for field in ["host", "username", "database"] {
            mysql.entry(field).or_insert_with(|| json!(""));
        }
    }
}

/// The `oauthProxy` that takes the place of an `istio`.
pub fn proxy_of_istio(istio: &Value) -> Value {
    proxy_instead_of(&mut istio.as_object().cloned().unwrap_or_default())
}

/// A proxy that is as open to the outside as the Istio gateway was.
fn proxy_instead_of(istio: &mut Object) -> Value {
    let mut proxy = json!({ "port": 8443, "routePort": 443, "serviceRoute": "disabled" });
    let Some(gateway) = child(istio, "gateway") else { return proxy };
    let domain = text(gateway, "domain").filter(|domain| !domain.is_empty()).map(ToOwned::to_owned);
    let rest = child(gateway, "rest");
    let is_routed = rest.as_deref().and_then(|rest| text(rest, "gatewayRoute")) != Some("disabled");
    let tls_port = rest.filter(|rest| rest.contains_key("tls")).and_then(|rest| rest.remove("port"));
    if let Value::Object(proxy) = &mut proxy {
        proxy.insert("serviceRoute".into(), if is_routed { "enabled" } else { "disabled" }.into());
        proxy.extend(domain.map(|domain| ("domain".into(), domain.into())));
        proxy.extend(tls_port.map(|port| ("routePort".into(), port)));
    }
    proxy
}
