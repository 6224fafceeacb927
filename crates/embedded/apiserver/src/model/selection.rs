//! Fields and labels that objects are selected by, and where kinds keep their scale.

use std::borrow::Cow;

use quintet_api::selector::Selector;
use quintet_objects::builtin;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::resources::Model;
use crate::resources::Resource;
use crate::verbs::scale::ScalePaths;

/// Fields a kind can be selected by, besides name and namespace.
pub(crate) fn selectable_fields(resource: &Resource) -> Vec<Cow<'static, str>> {
    match &resource.model {
        Model::Custom(custom) => custom.selectable.iter().cloned().map(Cow::Owned).collect(),
        Model::BuiltIn(kind) => kind.selectable_fields().iter().map(|field| Cow::Borrowed(*field)).collect(),
    }
}

/// The text of a field, as field selectors compare it.
pub(crate) fn field_value(object: &Value, field: &str) -> String {
    builtin::field_value(object, field).into_owned()
}

/// Where a kind keeps its replicas.
pub(crate) fn scale_paths(resource: &Resource) -> Option<ScalePaths> {
    match &resource.model {
        Model::BuiltIn(_) => {
            let path = |parts: [&str; 2]| parts.iter().map(|part| (*part).to_owned()).collect();
            Some(ScalePaths {
                spec: path(["spec", "replicas"]),
                status: path(["status", "replicas"]),
                selector: None,
            })
        }
        Model::Custom(custom) => {
            let scale = custom.scale.as_ref()?;
            let path = |key: &str| -> Vec<String> {
                let path = scale.get(key).and_then(Value::as_str).unwrap_or_default();
                path.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect()
            };
            let selector = Some(path("labelSelectorPath")).filter(|path| !path.is_empty());
            Some(ScalePaths { spec: path("specReplicasPath"), status: path("statusReplicasPath"), selector })
        }
    }
}

/// A selector of an object, parsed; a plain map of labels counts as one. `None` selects nothing.
pub(crate) fn label_selector(selector: Option<&Value>) -> Option<Selector> {
    let selector = selector?;
    let is_structured = selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some();
    let structured = if is_structured || selector.as_object().is_some_and(Map::is_empty) {
        selector.clone()
    } else {
        json!({"matchLabels": selector})
    };
    let structured: k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector =
        serde_json::from_value(structured).ok()?;
    Selector::try_from(&structured).ok()
}

/// A selector of an object in text form.
pub(crate) fn selector_text(selector: Option<&Value>) -> String {
    label_selector(selector).map(|selector| selector.to_string()).unwrap_or_default()
}
