//! LimitRanges and RuntimeClasses as the engine follows them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::api::node::v1::RuntimeClass;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::v1beta2;

use super::limits::{FieldError, LimitSummary, adjust_resources, validate_limits, validate_resources};
use super::workload::{reservation, workload};
use super::{Devices, IngestError, queues};
use crate::model::Workload;
use crate::names::Names;
use crate::settings::Settings;

/// What fills in and forbids the requests of pods.
#[derive(Clone, Debug, Default)]
pub struct PodDefaults {
    limit_ranges: BTreeMap<String, BTreeMap<String, LimitRange>>,
    limits: BTreeMap<String, LimitSummary>,
    runtime_classes: BTreeMap<String, RuntimeClass>,
    /// What pods claim.
    pub(super) devices: Devices,
}

impl PodDefaults {
    /// A LimitRange was created or changed.
    pub fn apply_limit_range(&mut self, object: &LimitRange) -> Result<(), IngestError> {
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let ranges = self.limit_ranges.entry(namespace.clone()).or_default();
        ranges.insert(queues::name(&object.metadata).to_owned(), object.clone());
        self.summarise(namespace)
    }

    /// A LimitRange was deleted.
    pub fn delete_limit_range(&mut self, namespace: &str, name: &str) -> Result<(), IngestError> {
        if let Some(ranges) = self.limit_ranges.get_mut(namespace) {
            ranges.remove(name);
        }
        self.summarise(namespace.to_owned())
    }

    fn summarise(&mut self, namespace: String) -> Result<(), IngestError> {
        let ranges = self.limit_ranges.get(&namespace).map(BTreeMap::values);
        let summary = LimitSummary::new(ranges.into_iter().flatten())?;
        self.limits.insert(namespace, summary);
        Ok(())
    }

    /// A RuntimeClass was created or changed.
    pub fn apply_runtime_class(&mut self, object: &RuntimeClass) {
        self.runtime_classes.insert(queues::name(&object.metadata).to_owned(), object.clone());
    }

    /// A RuntimeClass was deleted.
    pub fn delete_runtime_class(&mut self, name: &str) {
        self.runtime_classes.remove(name);
    }

    /// A Workload with the requests of its pods filled in while it is pending, and marked as invalid if they
    /// break its own limits or those of its namespace.
    pub fn workload(
        &self,
        object: &v1beta2::Workload,
        settings: &Settings,
        names: &mut Names,
    ) -> Result<Workload, IngestError> {
        let none = LimitSummary::default();
        let namespace = object.metadata.namespace.as_deref().unwrap_or("");
        let limits = self.limits.get(namespace).unwrap_or(&none);
        let mut object = Cow::Borrowed(object);
        let mut options = Cow::Borrowed(&settings.requests);
        let mut rejected = None;
        let is_pending = reservation(&object).is_none();
        // One that has quota is placed later, or again: what its pods request decides where they fit.
        if is_pending || !object.is_admitted() || has_failed_nodes(&object) {
            adjust_resources(object.to_mut(), |name| self.runtime_classes.get(name), limits);
        }
        if is_pending {
            match self.devices.claims(&object, &settings.requests, &settings.gates)? {
                Ok(claims) if claims.is_empty() => {}
                Ok(claims) => options.to_mut().claims.extend(claims),
                Err(why) => rejected = Some(why),
            }
        }
        let mut workload = workload(&object, &options, &settings.gates, names)?;
        let has_invalid_devices = rejected.is_some();
        if let Some(invalid) =
            rejected.map_or_else(|| invalid(&object, limits, names), |why| Ok(Some(why)))?
        {
            let links = workload.links.get_or_insert_default();
            (links.invalid, links.has_invalid_devices) = (Some(invalid), has_invalid_devices);
        }
        Ok(workload)
    }
}

fn has_failed_nodes(object: &v1beta2::Workload) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| status.unhealthy_nodes.as_ref().is_some_and(|nodes| !nodes.is_empty()))
}

/// What is wrong with the requests of a Workload, as `nominate` in Kueue's `pkg/scheduler/scheduler.go`
/// reports it.
fn invalid(
    object: &v1beta2::Workload,
    limits: &LimitSummary,
    names: &mut Names,
) -> Result<Option<String>, IngestError> {
    let resources = validate_resources(object, names)?;
    if !resources.is_empty() {
        return Ok(Some(format!("resources validation failed: {}", FieldError::join(&resources))));
    }
    let limits = validate_limits(object, limits, names)?;
    let message =
        || format!("resources didn't satisfy LimitRange constraints: {}", FieldError::join(&limits));
    Ok((!limits.is_empty()).then(message))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::ingest::decode;

    fn requested(status: &Value) -> bool {
        let object: v1beta2::Workload = decode(
            "Workload",
            &json!({ "metadata": { "name": "w", "namespace": "ns" }, "status": status, "spec": { "podSets": [{
                "name": "main", "count": 2, "template": { "spec": { "containers": [
                    { "name": "c", "resources": { "limits": { "cpu": "1" } } }] } } }] } }),
        )
        .unwrap();
        let mut names = Names::default();
        let workload = PodDefaults::default().workload(&object, &Settings::default(), &mut names).unwrap();
        !workload.pod_sets[0].pod.requests.is_empty()
    }

    #[test]
    fn limits_are_requests_until_the_pods_have_their_places() {
        let condition = |kind: &str| {
            json!({ "type": kind, "status": "True", "reason": kind, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        let admission = json!({ "clusterQueue": "cq", "podSetAssignments": [
            { "name": "main", "count": 2, "flavors": { "cpu": "f" }, "resourceUsage": { "cpu": "2" },
                "delayedTopologyRequest": "Pending" }] });
        let reserved = json!({ "admission": admission, "conditions": [condition("QuotaReserved")] });
        assert!(requested(&json!({})));
        assert!(requested(&reserved), "its places are chosen later");
        let mut failed = json!({ "admission": admission, "unhealthyNodes": [{ "name": "n" }],
            "conditions": [condition("QuotaReserved"), condition("Admitted")] });
        assert!(requested(&failed), "a place is chosen again");
        failed["unhealthyNodes"] = json!([]);
        assert!(!requested(&failed));
    }
}
