//! Defaults of Kueue's own kinds beyond those of their schemas. Pure, for the admission webhooks.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::kueue::metadata::RESOURCE_IN_USE;
use quintet_api::kueue::v1beta2::Workload;

use crate::validation::Gates;

/// An object that others refer to stays until they are gone: ClusterQueues and ResourceFlavors.
pub fn protect(metadata: &mut ObjectMeta) {
    let finalizers = metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == RESOURCE_IN_USE) {
        finalizers.push(RESOURCE_IN_USE.into());
    }
}

/// Without partial admission, pod sets have no minimum.
pub fn workload(workload: &mut Workload, gates: &Gates) {
    if !gates.scheduling.partial_admission {
        for set in workload.spec.pod_sets.iter_mut().flatten() {
            set.min_count = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_finalizer_is_added_once_and_behind_others() {
        let mut metadata = ObjectMeta { finalizers: Some(vec!["other".into()]), ..ObjectMeta::default() };
        protect(&mut metadata);
        protect(&mut metadata);
        assert_eq!(metadata.finalizers.unwrap(), ["other", "kueue.x-k8s.io/resource-in-use"]);
    }

    #[test]
    fn a_minimum_is_dropped_only_without_partial_admission() {
        let object = json!({ "metadata": {}, "spec": { "podSets": [
            { "name": "main", "count": 4, "minCount": 2, "template": {} }] } });
        let mut gates = Gates::default();
        let minimum = |gates: &Gates| {
            let mut object: Workload = serde_json::from_value(object.clone()).unwrap();
            workload(&mut object, gates);
            object.spec.pod_sets.unwrap()[0].min_count
        };
        assert_eq!(minimum(&gates), Some(2));
        gates.scheduling.partial_admission = false;
        assert_eq!(minimum(&gates), None);
    }
}
