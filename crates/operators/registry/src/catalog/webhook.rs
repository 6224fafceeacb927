//! The webhook of Catalogs.

use std::sync::Arc;

use quintet_api::platform::AIHub;
use quintet_component::Webhook;
use quintet_controller::cache::WatchSpec;
use quintet_controller::webhook::{Admission, Operation, Verdict};
use serde_json::Value;

use crate::aihub;
use crate::field_errors::{check_namespace, invalid, of_object};
use crate::names::THE_CATALOG;
use crate::settings::Settings;

const VALIDATE: &str = "/validate-aihub-opendatahub-io-catalog";

/// The webhook. Changes are always allowed.
pub(crate) fn webhook(settings: &Arc<Settings>) -> Webhook {
    let settings = Arc::clone(settings);
    let configuration = "model-registry-operator-catalog-validating-webhook-configuration";
    let webhook = Webhook::validating(
        configuration,
        "vcatalog.aihub.opendatahub.io",
        VALIDATE,
        move |routes, runtime| {
            let hubs = runtime.caches().watch(WatchSpec::<AIHub>::typed())?;
            Ok(routes.validate(VALIDATE, move |admission: Admission<Value>| {
                let (settings, hubs) = (Arc::clone(&settings), hubs.clone());
                async move {
                    hubs.synced().await;
                    let only = aihub::effective(&settings, &hubs).registries_namespace.clone();
                    let denial = match admission.request.operation {
                        Operation::Create => check(&admission.object, only.as_deref()),
                        _ => None,
                    };
                    denial.map_or_else(Verdict::allow, Verdict::deny)
                }
            }))
        },
    );
    webhook.on(&["CREATE", "UPDATE"], "aihub.opendatahub.io", "v1alpha1", &["catalogs"])
}

/// Why a Catalog cannot be created.
fn check(catalog: &Value, only: Option<&str>) -> Option<String> {
    let text = |field: &str| catalog["metadata"][field].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    if text("name") != THE_CATALOG {
        let why = format!("catalog resource name must be '{THE_CATALOG}'");
        errors.push(invalid("metadata.name", text("name"), &why));
    }
    errors.extend(check_namespace(text("namespace"), only));
    of_object("Catalog.aihub.opendatahub.io", text("name"), &errors)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_rule_has_its_message() {
        let cases = [
            ("catalog", "ns", None, None),
            ("catalog", "ns", Some("ns"), None),
            (
                "other",
                "ns",
                None,
                Some(r#"metadata.name: Invalid value: "other": catalog resource name must be 'catalog'"#),
            ),
            (
                "catalog",
                "ns",
                Some("models"),
                Some(r#"metadata.namespace: Invalid value: "ns": namespace must be models"#),
            ),
        ];
        for (name, namespace, only, expected) in cases {
            let catalog = json!({"metadata": {"name": name, "namespace": namespace}});
            let expected =
                expected.map(|why| format!("Catalog.aihub.opendatahub.io {name:?} is invalid: {why}"));
            assert_eq!(check(&catalog, only), expected);
        }
    }
}
