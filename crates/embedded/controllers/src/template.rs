//! Pod templates: equality and hashes.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::Serialize;

/// The label that distinguishes the pods of a Deployment's ReplicaSets.
pub(crate) const POD_TEMPLATE_HASH: &str = "pod-template-hash";
/// Letters and digits that never make a word, as Kubernetes uses for hashes in names.
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Whether two templates are equal, whatever their label [`POD_TEMPLATE_HASH`]. Both have been through the defaulting of
/// the API server.
pub(crate) fn are_equal(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    without_hash(a) == without_hash(b)
}

/// A template without the label [`POD_TEMPLATE_HASH`].
pub(crate) fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
        labels.remove(POD_TEMPLATE_HASH);
    }
    template
}

/// A hash for names and labels. It depends on nothing but the JSON of the object and the number of collisions, so that it
/// is the same after a restart.
pub(crate) fn hash(object: &impl Serialize, collisions: Option<i32>) -> String {
    let text = serde_json::to_string(object).unwrap_or_default();
    let collisions = collisions.map(i32::to_le_bytes);
    let bytes = text.bytes().chain(collisions.into_iter().flatten());
    // FNV-1a of 32 bits.
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let safe = |digit: u8| char::from(SAFE.get(usize::from(digit) % SAFE.len()).copied().unwrap_or(b'x'));
    hash.to_string().bytes().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hashes_are_stable_and_count_collisions() {
        let template = json!({ "spec": { "containers": [] } });
        assert_eq!(hash(&template, None), hash(&template, None));
        assert_ne!(hash(&template, None), hash(&template, Some(1)));
        assert_eq!(hash(&json!("quintet"), None), "6b6b68cb97", "the same in every release");
    }

    #[test]
    fn the_hash_label_does_not_count() {
        let template = |labels: serde_json::Value| -> PodTemplateSpec {
            serde_json::from_value(json!({ "metadata": { "labels": labels } })).unwrap()
        };
        assert!(are_equal(
            &template(json!({ "a": "b" })),
            &template(json!({ "a": "b", "pod-template-hash": "x" }))
        ));
        assert!(!are_equal(&template(json!({ "a": "b" })), &template(json!({ "a": "c" }))));
    }
}
