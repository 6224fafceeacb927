//! LimitRanges, RuntimeClasses and limits: what fills in requests, and what forbids them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem, PodSpec, ResourceRequirements};
use k8s_openapi::api::node::v1::RuntimeClass;
use quintet_api::Quantity;
use quintet_api::kueue::v1beta2;

use super::IngestError;
use super::pod::{Quantities, ResourceList, pod_requests, quantities, requests};
use crate::names::Names;

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field.
    pub field: String,
    /// The offending resources.
    pub value: Vec<String>,
    /// What is wrong.
    pub detail: &'static str,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: Invalid value: {}: {}", self.field, serde_json::json!(self.value), self.detail)
    }
}

impl FieldError {
    /// Several errors as one text; one alone stands without brackets. As `ErrorList.ToAggregate` in
    /// Kubernetes' `apimachinery/pkg/util/validation/field`.
    pub fn join(errors: &[Self]) -> String {
        match errors {
            [one] => one.to_string(),
            several => {
                let texts: Vec<String> = several.iter().map(ToString::to_string).collect();
                format!("[{}]", texts.join(", "))
            }
        }
    }
}

/// All LimitRanges of a namespace, by the type of what they limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitSummary {
    /// Limits by type (`Container`, `Pod`, …).
    pub items: BTreeMap<String, Limits>,
}

/// The limits for one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// The smallest maximum.
    pub max: Quantities,
    /// The largest minimum.
    pub min: Quantities,
    /// The first default limit, as written.
    pub default: ResourceList,
    /// The first default request, as written.
    pub default_request: ResourceList,
    /// The smallest ratio.
    pub max_ratio: Quantities,
}

impl LimitSummary {
    /// Summarises LimitRanges. As `Summarize` in Kueue's `pkg/util/limitrange`.
    pub fn new<'r>(ranges: impl IntoIterator<Item = &'r LimitRange>) -> Result<Self, IngestError> {
        let specs = ranges.into_iter().filter_map(|range| range.spec.as_ref());
        Self::of_items(specs.flat_map(|spec| &spec.limits))
    }

    /// Summarises items of LimitRanges.
    pub fn of_items<'r>(items: impl IntoIterator<Item = &'r LimitRangeItem>) -> Result<Self, IngestError> {
        let mut summary = Self::default();
        for item in items {
            summary.items.entry(item.type_.clone()).or_default().add(item)?;
        }
        Ok(summary)
    }

    /// Checks a pod spec found at `path`.
    pub fn validate(
        &self,
        spec: &PodSpec,
        path: &str,
        names: &mut Names,
    ) -> Result<Vec<FieldError>, IngestError> {
        let mut errors = Vec::new();
        if let Some(limits) = self.items.get("Container") {
            for (resources, field) in containers(spec, path) {
                let requested = quantities(resources.and_then(|resources| resources.requests.as_ref()))?;
                let most = quantities(resources.and_then(|resources| resources.limits.as_ref()))?;
                let (mut least, mut greatest) = (requested.clone(), requested);
                merge(&mut least, &most, Ord::min);
                merge(&mut greatest, &most, Ord::max);
                limits.check(&least, &greatest, &field, names, &mut errors);
            }
        }
        if let Some(limits) = self.items.get("Pod") {
            let total = pod_requests(spec)?;
            limits.check(&total, &total, path, names, &mut errors);
        }
        Ok(errors)
    }
}

impl Limits {
    fn add(&mut self, item: &LimitRangeItem) -> Result<(), IngestError> {
        merge(&mut self.max, &quantities(item.max.as_ref())?, Ord::min);
        merge(&mut self.min, &quantities(item.min.as_ref())?, Ord::max);
        merge(&mut self.max_ratio, &quantities(item.max_limit_request_ratio.as_ref())?, Ord::min);
        keep_first(&mut self.default, item.default.as_ref());
        keep_first(&mut self.default_request, item.default_request.as_ref());
        Ok(())
    }

    fn check(
        &self,
        least: &Quantities,
        greatest: &Quantities,
        path: &str,
        names: &mut Names,
        errors: &mut Vec<FieldError>,
    ) {
        let mut compare = |a: &Quantities, b: &Quantities, detail: &'static str| {
            errors.extend(excess(a, b, path.to_owned(), detail, names));
        };
        compare(greatest, &self.max, "requests must not be above the limitRange max");
        compare(&self.min, least, "requests must not be below the limitRange min");
    }
}

/// An error that names the resources of which `a` has more than `b`.
fn excess(
    a: &Quantities,
    b: &Quantities,
    field: String,
    detail: &'static str,
    names: &mut Names,
) -> Option<FieldError> {
    let (a, b) = (requests(a, names), requests(b, names));
    let value: Vec<String> = a.greater_keys(&b, names).into_iter().map(ToOwned::to_owned).collect();
    (!value.is_empty()).then_some(FieldError { field, value, detail })
}

/// The resources of all containers, with the paths of these: init containers first.
fn containers<'s>(
    spec: &'s PodSpec,
    path: &str,
) -> impl Iterator<Item = (Option<&'s ResourceRequirements>, String)> {
    let of = |kind: &'static str, containers: &'s [k8s_openapi::api::core::v1::Container]| {
        let path = path.to_owned();
        containers
            .iter()
            .enumerate()
            .map(move |(index, own)| (own.resources.as_ref(), format!("{path}.{kind}[{index}]")))
    };
    let init = spec.init_containers.as_deref().unwrap_or_default();
    of("initContainers", init).chain(of("containers", &spec.containers))
}

fn merge(into: &mut Quantities, other: &Quantities, pick: fn(Quantity, Quantity) -> Quantity) {
    for (name, quantity) in other {
        into.entry(name.clone()).and_modify(|known| *known = pick(*known, *quantity)).or_insert(*quantity);
    }
}

fn keep_first(into: &mut ResourceList, other: Option<&ResourceList>) {
    for (name, value) in other.into_iter().flatten() {
        into.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

/// Fills in what pods request without saying so: the overhead of their RuntimeClass, the defaults of
/// their namespace's LimitRanges, and limits as requests. As `AdjustResources` in Kueue's
/// `pkg/workload/resources.go`.
pub fn adjust_resources<'c>(
    workload: &mut v1beta2::Workload,
    runtime_class: impl Fn(&str) -> Option<&'c RuntimeClass>,
    limits: &LimitSummary,
) {
    for pod_set in workload.spec.pod_sets.iter_mut().flatten() {
        let Some(spec) = pod_set.template.spec.as_mut() else {
            continue;
        };
        add_overhead(spec, &runtime_class);
        fill_pod(spec, limits);
    }
}

/// Limits as requests, where there are none. As `UseLimitsAsMissingRequestsInPod` in Kueue's
/// `pkg/workload/resources.go`.
pub fn limits_into_requests(spec: &mut PodSpec) {
    fill_pod(spec, &LimitSummary::default());
}

fn fill_pod(spec: &mut PodSpec, limits: &LimitSummary) {
    let container_limits = limits.items.get("Container");
    let init = spec.init_containers.iter_mut().flatten();
    for container in init.chain(&mut spec.containers) {
        let resources = container.resources.get_or_insert_default();
        fill(resources, container_limits);
        if *resources == ResourceRequirements::default() {
            container.resources = None;
        }
    }
    if let Some(resources) = &mut spec.resources {
        fill(resources, limits.items.get("Pod"));
    }
}

fn add_overhead<'c>(spec: &mut PodSpec, runtime_class: &impl Fn(&str) -> Option<&'c RuntimeClass>) {
    if spec.overhead.as_ref().is_some_and(|overhead| !overhead.is_empty()) {
        return;
    }
    let class = spec.runtime_class_name.as_deref().and_then(runtime_class);
    if let Some(overhead) = class.and_then(|class| class.overhead.as_ref()) {
        spec.overhead.clone_from(&overhead.pod_fixed);
    }
}

/// Defaults into limits and requests, then limits into requests.
fn fill(resources: &mut ResourceRequirements, limits: Option<&Limits>) {
    let add = |target: &mut Option<ResourceList>, values: &ResourceList| {
        if !values.is_empty() {
            keep_first(target.get_or_insert_default(), Some(values));
        }
    };
    if let Some(limits) = limits {
        add(&mut resources.limits, &limits.default);
        add(&mut resources.requests, &limits.default_request);
    }
    if let Some(own) = &resources.limits {
        add(&mut resources.requests, own);
    }
}

/// Containers and pods that request more than their own limits. As `ValidateResources` in Kueue's
/// `pkg/workload/resources.go`.
pub fn validate_resources(
    workload: &v1beta2::Workload,
    names: &mut Names,
) -> Result<Vec<FieldError>, IngestError> {
    let mut errors = Vec::new();
    for (spec, path) in pod_specs(workload) {
        let pod_level = spec.resources.as_ref();
        for (resources, field) in containers(spec, &path).chain([(pod_level, format!("{path}.resources"))]) {
            let requested = quantities(resources.and_then(|resources| resources.requests.as_ref()))?;
            let limits = quantities(resources.and_then(|resources| resources.limits.as_ref()))?;
            errors.extend(excess(&requested, &limits, field, "requests must not exceed its limits", names));
        }
    }
    Ok(errors)
}

/// Containers and pods that break the limits of their namespace. As `ValidateLimitRange` in Kueue's
/// `pkg/workload/resources.go`.
pub fn validate_limits(
    workload: &v1beta2::Workload,
    limits: &LimitSummary,
    names: &mut Names,
) -> Result<Vec<FieldError>, IngestError> {
    let mut errors = Vec::new();
    for (spec, path) in pod_specs(workload) {
        errors.extend(limits.validate(spec, &path, names)?);
    }
    Ok(errors)
}

fn pod_specs(workload: &v1beta2::Workload) -> impl Iterator<Item = (&PodSpec, String)> {
    workload.spec.pod_sets.iter().flatten().enumerate().filter_map(|(index, pod_set)| {
        let spec = pod_set.template.spec.as_ref()?;
        Some((spec, format!("spec.podSets[{index}].template.spec")))
    })
}
