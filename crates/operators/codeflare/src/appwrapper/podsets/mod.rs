//! Pod sets: where the pod templates of a component are, and how many pods come from each.

mod strict;
#[cfg(test)]
mod tests;

use quintet_api::appwrapper::{AppWrapperComponent, AppWrapperPodSet, pod_sets};
use serde_json::Value;

pub(crate) use quintet_api::appwrapper::pod_sets::{at_path, at_path_mut};

/// The pod sets of a template, each of which leads to a pod template; none if its kind is not known. The error is for the
/// user to fix.
pub(crate) fn infer(template: &Value) -> Result<Vec<AppWrapperPodSet>, String> {
    let inferred = pod_sets::infer(template)?;
    for pod_set in &inferred {
        check_template(template, &pod_set.path)
            .map_err(|error| format!("{} does not refer to a v1.PodSpecTemplate: {error}", pod_set.path))?;
    }
    Ok(inferred)
}

/// Pods of a pod set.
pub(crate) fn replicas(pod_set: &AppWrapperPodSet) -> i32 {
    pod_set.replicas.unwrap_or(1)
}

/// The pod sets of a component: as declared, or else as found. A component whose pod sets cannot be found has none; the
/// webhook rejects such.
pub(crate) fn of_component(component: &AppWrapperComponent) -> Vec<AppWrapperPodSet> {
    match &component.pod_sets {
        Some(declared) if !declared.is_empty() => declared.clone(),
        _ => infer(&component.template).unwrap_or_default(),
    }
}

/// Whether a path leads to a pod template; the error says why not.
pub(crate) fn check_template(template: &Value, path: &str) -> Result<(), String> {
    let found = at_path(template, path)?;
    if !found.is_object() {
        return Err(format!("at path position '{path}' non-map value"));
    }
    let spec = found.get("spec").filter(|spec| spec.is_object());
    let spec = spec.ok_or_else(|| format!("content at {path} does not contain a spec"))?;
    strict::check_pod_spec(spec)
        .map_err(|error| format!("content at {path}.spec not parseable as a v1.PodSpec: {error}"))
}

/// Whether declared pod sets agree with those that were found; the error says how they do not.
pub(crate) fn check_declared(
    declared: &[AppWrapperPodSet],
    inferred: &[AppWrapperPodSet],
) -> Result<(), String> {
    for (number, pod_set) in declared.iter().enumerate() {
        if declared.iter().take(number).any(|other| other.path == pod_set.path) {
            return Err(format!("multiple DeclaredPodSets with path '{}'", pod_set.path));
        }
    }
    if declared.is_empty() || inferred.is_empty() {
        return Ok(());
    }
    if declared.len() != inferred.len() {
        return Err(format!(
            "DeclaredPodSet count {} differs from inferred count {}",
            declared.len(),
            inferred.len()
        ));
    }
    for expected in inferred {
        let path = &expected.path;
        let found = declared.iter().find(|pod_set| pod_set.path == *path);
        let found = found.ok_or_else(|| format!("PodSet with path '{path}' is missing"))?;
        let (is, should_be) = (replicas(found), replicas(expected));
        if is != should_be {
            return Err(format!(
                "replica count {is} differs from inferred count {should_be} for PodSet at path position '{path}'"
            ));
        }
    }
    Ok(())
}
