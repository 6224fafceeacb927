//! ResourceFlavors. As Kueue's `pkg/webhooks/resourceflavor_webhook.go`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Taint;
use quintet_api::kueue::v1beta2::ResourceFlavor;
use quintet_api::names::problems;

use super::field::Errors;
use super::metadata;

/// Whether a ResourceFlavor is valid, new or changed.
pub fn validate(flavor: &ResourceFlavor) -> Errors {
    let mut errors = Errors::default();
    let spec = &flavor.spec;
    metadata::labels(spec.node_labels.as_ref(), "spec.nodeLabels", &mut errors);
    validate_taints(spec.node_taints.as_deref().unwrap_or(&[]), &mut errors);
    metadata::tolerations(spec.tolerations.as_ref(), "spec.tolerations", &mut errors);
    errors
}

fn validate_taints(taints: &[Taint], errors: &mut Errors) {
    let mut known = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = format!("spec.nodeTaints[{index}]");
        errors.each(&format!("{path}.key"), &taint.key, problems::qualified_name(&taint.key));
        let value = taint.value.as_deref().unwrap_or_default();
        let wrong = problems::label_value(value);
        if !wrong.is_empty() {
            errors.invalid(format!("{path}.value"), value, wrong.join(";"));
        }
        if !known.insert((&taint.effect, &taint.key)) {
            errors.duplicate_with(path, taint, "taints must be unique by key and effect pair");
        }
    }
}
