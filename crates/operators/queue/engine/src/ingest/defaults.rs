//! LimitRanges and RuntimeClasses as the engine follows them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::api::node::v1::RuntimeClass;
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
        if reservation(&object).is_none() {
            adjust_resources(object.to_mut(), |name| self.runtime_classes.get(name), limits);
            match self.devices.claims(&object, &settings.requests, &settings.gates)? {
                Ok(claims) if claims.is_empty() => {}
                Ok(claims) => options.to_mut().claims.extend(claims),
                Err(why) => rejected = Some(why),
            }
        }
        let mut workload = workload(&object, &options, &settings.gates, names)?;
        if let Some(invalid) =
            rejected.map_or_else(|| invalid(&object, limits, names), |why| Ok(Some(why)))?
        {
            workload.links.get_or_insert_default().invalid = Some(invalid);
        }
        Ok(workload)
    }
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
