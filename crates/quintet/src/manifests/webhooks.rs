//! Webhook configurations of the operators.

use std::collections::BTreeMap;

use quintet_component::{WebhookKind, WebhookScope};
use serde_json::{Value, json};

use super::labels;
use crate::catalog::Configured;
use crate::names::shared_name;

/// Webhook configurations by kind and name, each with its entries.
pub(crate) fn configurations(operators: &[Configured], scope: &WebhookScope<'_>) -> Vec<Value> {
    let mut configurations: BTreeMap<(WebhookKind, String), Vec<Value>> = BTreeMap::new();
    let webhooks = operators.iter().flat_map(|configured| &configured.operator.webhooks);
    for webhook in webhooks.filter(|webhook| !webhook.rules.is_empty()) {
        let name = shared_name(scope.namespace, webhook.configuration);
        configurations.entry((webhook.kind, name)).or_default().push(webhook.registration(scope));
    }
    let object = |((kind, name), webhooks): ((WebhookKind, String), Vec<Value>)| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind.configuration_kind(),
            "metadata": { "name": name, "labels": labels() },
            "webhooks": webhooks,
        })
    };
    configurations.into_iter().map(object).collect()
}
