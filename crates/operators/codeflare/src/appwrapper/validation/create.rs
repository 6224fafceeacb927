//! New AppWrappers.

use quintet_api::appwrapper::AppWrapper;
use serde_json::{Value, json};

use crate::appwrapper::podsets;
use crate::field_errors::{forbidden, invalid, required};

/// Pod sets that Kueue accepts.
const MAX_POD_SETS: usize = 8;

/// A kind that an AppWrapper wraps, by component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrapped {
    pub(crate) api_version: String,
    pub(crate) kind: String,
}

/// The kinds of the components, in order.
pub(crate) fn wrapped(appwrapper: &AppWrapper) -> Vec<Wrapped> {
    let text = |template: &Value, field: &str| template[field].as_str().unwrap_or_default().to_owned();
    let components = appwrapper.spec.components.iter().map(|component| &component.template);
    components
        .map(|template| Wrapped { api_version: text(template, "apiVersion"), kind: text(template, "kind") })
        .collect()
}

/// Errors of a new AppWrapper. `denied` says of every component why its creator may not create it.
pub(crate) fn check_creation(appwrapper: &AppWrapper, denied: &[Option<String>]) -> Vec<String> {
    let mut errors = Vec::new();
    let mut pod_sets = 0;
    for (number, component) in appwrapper.spec.components.iter().enumerate() {
        let path = format!("spec.components[{number}]");
        let template = &component.template;
        let template_path = format!("{path}.template");
        if template["apiVersion"] == "workload.codeflare.dev/v1beta2" && template["kind"] == "AppWrapper" {
            errors.push(forbidden(&template_path, "Nested AppWrappers are forbidden"));
        }
        let namespace = template["metadata"]["namespace"].as_str().unwrap_or_default();
        if !namespace.is_empty() && Some(namespace) != appwrapper.metadata.namespace.as_deref() {
            let why = "AppWrappers cannot create objects in other namespaces";
            errors.push(forbidden(&format!("{template_path}.metadata.namespace"), why));
        }
        if let Some(Some(why)) = denied.get(number) {
            errors.push(forbidden(&template_path, why));
        }
        let declared = component.pod_sets.as_deref().unwrap_or_default();
        for (number, pod_set) in declared.iter().enumerate() {
            let path = format!("{path}.podSets[{number}].path");
            if pod_set.path.is_empty() {
                errors.push(required(&path, "podspec must specify path"));
            }
            if let Err(problem) = podsets::check_template(template, &pod_set.path) {
                let why = format!("path does not refer to a v1.PodSpecTemplate: {problem}");
                errors.push(invalid(&path, &json!(pod_set.path), &why));
            }
        }
        match podsets::infer(template) {
            Ok(inferred) => {
                pod_sets += declared.len().max(inferred.len());
                if let Err(why) = podsets::check_declared(declared, &inferred) {
                    errors.push(invalid(&format!("{path}.podSets"), &json!(declared), &why));
                }
            }
            Err(problem) => {
                errors.push(invalid(
                    &template_path,
                    template,
                    &format!("error inferring PodSets: {problem}"),
                ));
            }
        }
    }
    let components = || json!(appwrapper.spec.components);
    if pod_sets == 0 {
        errors.push(invalid("spec.components", &components(), "components contains no podspecs"));
    } else if pod_sets > MAX_POD_SETS {
        let why = format!("components contains {pod_sets} podspecs; at most {MAX_POD_SETS} are allowed");
        errors.push(invalid("spec.components", &components(), &why));
    }
    errors
}
