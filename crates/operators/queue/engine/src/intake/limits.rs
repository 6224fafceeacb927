//! LimitRanges, RuntimeClasses and limits: what fills in requests, and what forbids them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Unreadable;
use super::json::{at, list, text};
use super::pod::{Quantities, pod_requests, quantities, requests};
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
        let value = serde_json::to_string(&self.value).unwrap_or_default();
        write!(f, "{}: Invalid value: {value}: {}", self.field, self.detail)
    }
}

impl FieldError {
    /// Several errors as one text; one alone stands without brackets.
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
    pub default: Map<String, Value>,
    /// The first default request, as written.
    pub default_request: Map<String, Value>,
    /// The smallest ratio.
    pub max_ratio: Quantities,
}

impl LimitSummary {
    /// Summarises LimitRange objects.
    pub fn new<'v>(ranges: impl IntoIterator<Item = &'v Value>) -> Result<Self, Unreadable> {
        let mut summary = Self::default();
        for range in ranges {
            for item in list(range, "spec.limits") {
                let kind = text(item, "type").unwrap_or("").to_owned();
                summary.items.entry(kind).or_default().add(item)?;
            }
        }
        Ok(summary)
    }

    /// Reads a summary from its items.
    pub fn from_items(items: &Value) -> Result<Self, Unreadable> {
        let mut summary = Self::default();
        for (kind, item) in items.as_object().into_iter().flatten() {
            summary.items.entry(kind.clone()).or_default().add(item)?;
        }
        Ok(summary)
    }

    /// Checks a pod spec found at `path`.
    pub fn validate(
        &self,
        spec: &Value,
        path: &str,
        names: &mut Names,
    ) -> Result<Vec<FieldError>, Unreadable> {
        let mut errors = Vec::new();
        if let Some(limits) = self.items.get("Container") {
            for kind in ["initContainers", "containers"] {
                for (index, container) in list(spec, kind).iter().enumerate() {
                    let asked = quantities(at(container, "resources.requests"))?;
                    let most = quantities(at(container, "resources.limits"))?;
                    let (mut least, mut greatest) = (asked.clone(), asked);
                    merge(&mut least, &most, Ord::min);
                    merge(&mut greatest, &most, Ord::max);
                    limits.check(&least, &greatest, &format!("{path}.{kind}[{index}]"), names, &mut errors);
                }
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
    fn add(&mut self, item: &Value) -> Result<(), Unreadable> {
        merge(&mut self.max, &quantities(at(item, "max"))?, Ord::min);
        merge(&mut self.min, &quantities(at(item, "min"))?, Ord::max);
        merge(&mut self.max_ratio, &quantities(at(item, "maxLimitRequestRatio"))?, Ord::min);
        keep_first(&mut self.default, at(item, "default"));
        keep_first(&mut self.default_request, at(item, "defaultRequest"));
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
            let (a, b) = (requests(a, names), requests(b, names));
            let value: Vec<String> = a.greater_keys(&b, names).into_iter().map(ToOwned::to_owned).collect();
            if !value.is_empty() {
                errors.push(FieldError { field: path.to_owned(), value, detail });
            }
        };
        compare(greatest, &self.max, "requests must not be above the limitRange max");
        compare(&self.min, least, "requests must not be below the limitRange min");
    }
}

fn merge(
    into: &mut Quantities,
    other: &Quantities,
    pick: fn(quintet_api::Quantity, quintet_api::Quantity) -> quintet_api::Quantity,
) {
    for (name, quantity) in other {
        into.entry(name.clone()).and_modify(|known| *known = pick(*known, *quantity)).or_insert(*quantity);
    }
}

fn keep_first(into: &mut Map<String, Value>, other: &Value) {
    for (name, value) in other.as_object().into_iter().flatten() {
        into.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

/// Fills in what pods ask for without saying so: the overhead of their RuntimeClass, the defaults of
/// their namespace's LimitRanges, and limits as requests.
pub fn adjust_resources(workload: &mut Value, runtime_classes: &[&Value], limits: &LimitSummary) {
    let pod_sets = workload.pointer_mut("/spec/podSets").and_then(Value::as_array_mut);
    for pod_set in pod_sets.into_iter().flatten() {
        let Some(spec) = pod_set.pointer_mut("/template/spec").and_then(Value::as_object_mut) else {
            continue;
        };
        add_overhead(spec, runtime_classes);
        let container = limits.items.get("Container");
        let pod = limits.items.get("Pod");
        for kind in ["initContainers", "containers"] {
            let containers = spec.get_mut(kind).and_then(Value::as_array_mut);
            for container_spec in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                let resources =
                    container_spec.entry("resources").or_insert_with(|| Value::Object(Map::new()));
                fill(resources, container);
                if resources.as_object().is_some_and(Map::is_empty) {
                    container_spec.remove("resources");
                }
            }
        }
        if let Some(resources) = spec.get_mut("resources").filter(|resources| !resources.is_null()) {
            fill(resources, pod);
        }
    }
}

fn add_overhead(spec: &mut Map<String, Value>, runtime_classes: &[&Value]) {
    let has_overhead =
        spec.get("overhead").and_then(Value::as_object).is_some_and(|overhead| !overhead.is_empty());
    let class = spec.get("runtimeClassName").and_then(Value::as_str);
    let found = class
        .and_then(|class| runtime_classes.iter().find(|object| text(object, "metadata.name") == Some(class)));
    let fixed = found.map(|class| at(class, "overhead.podFixed").clone()).filter(|fixed| !fixed.is_null());
    if let Some(fixed) = fixed.filter(|_| !has_overhead) {
        spec.insert("overhead".to_owned(), fixed);
    }
}

/// Defaults into limits and requests, then limits into requests.
fn fill(resources: &mut Value, limits: Option<&Limits>) {
    let Some(resources) = resources.as_object_mut() else {
        return;
    };
    let mut add = |key: &str, values: &Map<String, Value>| {
        if !values.is_empty() {
            let target = resources.entry(key).or_insert_with(|| Value::Object(Map::new()));
            if let Some(target) = target.as_object_mut() {
                keep_first(target, &Value::Object(values.clone()));
            }
        }
    };
    if let Some(limits) = limits {
        add("limits", &limits.default);
        add("requests", &limits.default_request);
    }
    let own = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    if !own.is_empty() {
        let target = resources.entry("requests").or_insert_with(|| Value::Object(Map::new()));
        if let Some(target) = target.as_object_mut() {
            keep_first(target, &Value::Object(own));
        }
    }
}

/// Containers and pods that ask for more than their own limits.
pub fn validate_resources(workload: &Value, names: &mut Names) -> Result<Vec<FieldError>, Unreadable> {
    let mut errors = Vec::new();
    for (index, pod_set) in list(workload, "spec.podSets").iter().enumerate() {
        let spec = at(pod_set, "template.spec");
        let path = format!("spec.podSets[{index}].template.spec");
        let mut check = |resources: &Value, field: String| -> Result<(), Unreadable> {
            let asked = requests(&quantities(at(resources, "requests"))?, names);
            let limits = requests(&quantities(at(resources, "limits"))?, names);
            let value: Vec<String> =
                asked.greater_keys(&limits, names).into_iter().map(ToOwned::to_owned).collect();
            if !value.is_empty() {
                errors.push(FieldError { field, value, detail: "requests must not exceed its limits" });
            }
            Ok(())
        };
        for kind in ["initContainers", "containers"] {
            for (index, container) in list(spec, kind).iter().enumerate() {
                check(at(container, "resources"), format!("{path}.{kind}[{index}]"))?;
            }
        }
        check(at(spec, "resources"), format!("{path}.resources"))?;
    }
    Ok(errors)
}
