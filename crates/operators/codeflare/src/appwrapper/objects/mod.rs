//! The objects of an AppWrapper: its templates with what admission, the scheduler and Autopilot add.

mod affinity;
mod merge;
#[cfg(test)]
mod tests;

use quintet_api::appwrapper::metadata::APP_WRAPPER;
use quintet_api::appwrapper::{AppWrapper, AppWrapperComponent, AppWrapperPodSet, AppWrapperPodSetInfo};
use quintet_api::config::codeflare::AppWrapperConfiguration;
use quintet_api::names;
use quintet_api::owners::controller_reference;
use serde_json::{Map, Value, json};

use super::podsets::at_path_mut;
use crate::fields;
pub(super) use affinity::container_uses;

/// The name of a component. One with `generateName` gets a name that every attempt to create it chooses again, so that a
/// response that is lost does not leave an object behind; a retry of the AppWrapper has another.
pub(super) fn name_of(appwrapper: &AppWrapper, number: usize, resets: i32) -> String {
    let metadata = |field: &str| {
        let component = appwrapper.spec.components.get(number);
        let text = component.and_then(|component| component.template["metadata"][field].as_str());
        text.unwrap_or_default()
    };
    match (metadata("name"), metadata("generateName")) {
        ("", "") => String::new(),
        ("", prefix) => {
            let uid = appwrapper.metadata.uid.as_deref().unwrap_or_default();
            format!("{prefix}{}", names::suffix((uid, number, resets)))
        }
        (name, _) => name.to_owned(),
    }
}

/// A component as it is created. The error is one that no retry can help.
pub(super) fn render(
    appwrapper: &AppWrapper,
    component: &AppWrapperComponent,
    pod_sets: &[AppWrapperPodSet],
    name: &str,
    config: &AppWrapperConfiguration,
) -> Result<Value, String> {
    let owner = appwrapper.metadata.name.as_deref().unwrap_or_default();
    let namespace = appwrapper.metadata.namespace.as_deref().unwrap_or_default();
    let mut object = component.template.clone();
    let metadata = object_at(&mut object, "metadata")?;
    match metadata.get("namespace").and_then(Value::as_str).unwrap_or_default() {
        "" => {}
        own if own == namespace => {}
        own => {
            return Err(format!(
                "component namespace \"{own}\" is different from appwrapper namespace \"{namespace}\""
            ));
        }
    }
    metadata.insert("namespace".to_owned(), namespace.into());
    metadata.insert("name".to_owned(), name.into());
    // As upstream: a value of another AppWrapper stays, except on pods, where it is a conflict.
    fields::object(metadata, "labels")?.entry(APP_WRAPPER).or_insert_with(|| owner.into());
    metadata.insert("ownerReferences".to_owned(), json!([controller_reference(appwrapper)]));
    let infos = component.pod_set_infos.as_deref().unwrap_or_default();
    for (number, pod_set) in pod_sets.iter().enumerate() {
        let template = at_path_mut(&mut object, &pod_set.path)
            .ok_or_else(|| format!("cannot find the pod template at {}", pod_set.path))?;
        let info = infos.get(number).cloned().unwrap_or_default();
        complete_template(template, owner, &info, config)?;
    }
    Ok(object)
}

/// Adds to a pod template what its pods need.
fn complete_template(
    template: &mut Value,
    owner: &str,
    info: &AppWrapperPodSetInfo,
    config: &AppWrapperConfiguration,
) -> Result<(), String> {
    let metadata = object_at(template, "metadata")?;
    if let Some(annotations) = &info.annotations {
        merge::texts(metadata, "annotations", annotations)?;
    }
    let mut labels = info.labels.clone().unwrap_or_default();
    labels.entry(APP_WRAPPER.to_owned()).or_insert_with(|| owner.to_owned());
    merge::texts(metadata, "labels", &labels)?;
    let spec = object_at(template, "spec")?;
    if let Some(selector) = &info.node_selector {
        merge::texts(spec, "nodeSelector", selector)?;
    }
    if let Some(tolerations) = info.tolerations.as_ref().filter(|list| !list.is_empty()) {
        fields::list(spec, "tolerations")?.extend(tolerations.iter().map(|one| json!(one)));
    }
    if let Some(gates) = info.scheduling_gates.as_ref().filter(|list| !list.is_empty()) {
        let list = fields::list(spec, "schedulingGates")?;
        for gate in gates {
            if !list.iter().any(|one| one["name"] == *gate.name) {
                list.push(json!({"name": gate.name}));
            }
        }
    }
    let has_scheduler =
        spec.get("schedulerName").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    if !config.scheduler_name.is_empty() && !has_scheduler {
        spec.insert("schedulerName".to_owned(), config.scheduler_name.clone().into());
    }
    if config.autopilot.inject_anti_affinities {
        affinity::inject(spec, &config.autopilot);
    }
    Ok(())
}

/// An object in a field of another.
fn object_at<'a>(value: &'a mut Value, field: &str) -> Result<&'a mut Map<String, Value>, String> {
    let object = value.as_object_mut().ok_or_else(|| "the template is not an object".to_owned())?;
    fields::object(object, field)
}
