//! The `scale` subresource: the number of replicas of anything that has such a number.

use serde_json::{Value, json};

use super::{Output, RequestContext, update};
use crate::{
    json::{child, text},
    model,
    status::Failure,
};

/// Where a kind keeps its numbers.
pub(crate) struct ScalePaths {
    /// Wanted replicas.
    pub(crate) spec: Vec<String>,
    /// Present replicas.
    pub(crate) status: Vec<String>,
    /// A selector in text form, if the kind has one.
    pub(crate) selector: Option<Vec<String>>,
}

fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, step| value.get(step))
}

/// The scale of an object.
pub(crate) fn of(context: &RequestContext, object: &Value) -> Result<Value, Failure> {
    let paths = model::scale_paths(&context.resource).ok_or_else(Failure::no_resource)?;
    let mut metadata = serde_json::Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.pointer(&format!("/metadata/{key}")) {
            metadata.insert(key.into(), value.clone());
        }
    }
    let number = |path: &[String]| at(object, path).and_then(Value::as_i64);
    let mut spec = serde_json::Map::new();
    if let Some(replicas) = number(&paths.spec).filter(|replicas| *replicas != 0) {
        spec.insert("replicas".into(), replicas.into());
    }
    let mut status = json!({"replicas": number(&paths.status).unwrap_or(0)});
    let selector = match &paths.selector {
        Some(path) => at(object, path).and_then(Value::as_str).unwrap_or_default().to_owned(),
        None if context.resource.as_built_in().is_some() => {
            model::selector_text(object.pointer("/spec/selector"))
        }
        None => String::new(),
    };
    if let Some(status) = status.as_object_mut()
        && !selector.is_empty()
    {
        status.insert("selector".into(), selector.into());
    }
    Ok(
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}),
    )
}

/// Writes the number of replicas of a scale into its object.
fn put(context: &RequestContext, object: &mut Value, scale: &Value) -> Result<(), Failure> {
    let paths = model::scale_paths(&context.resource).ok_or_else(Failure::no_resource)?;
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if replicas < 0 {
        let path = quintet_objects::Path::new("spec");
        let error = quintet_objects::FieldError::invalid(
            &path.field("replicas"),
            &replicas.into(),
            "must be greater than or equal to 0",
        );
        let named = crate::status::Named { group: "autoscaling", resource: "Scale", name: &context.name };
        return Err(Failure::invalid(named, &[error]));
    }
    let Some((last, parents)) = paths.spec.split_last() else { return Ok(()) };
    let mut map = crate::json::as_map(object);
    for step in parents {
        map = child(map, step);
    }
    map.insert(last.clone(), replicas.into());
    Ok(())
}

/// Changes the scale of an object.
pub(crate) async fn change(
    context: &RequestContext,
    is_put: bool,
    edit: impl Fn(Value) -> Result<Value, Failure>,
) -> Result<Value, Failure> {
    let edit = &edit;
    let shown = update::update(context, is_put, update::Made::Changed, move |mut object: Value| async move {
        let scale = edit(of(context, &object)?)?;
        put(context, &mut object, &scale)?;
        let asked = text(&scale, "/metadata/resourceVersion").to_owned();
        crate::json::metadata(&mut object).insert("resourceVersion".into(), asked.into());
        Ok(object)
    })
    .await?;
    let object = match shown {
        Output::Entry(entry) => context.api.load(&context.resource, &entry).await?,
        Output::Value(object) => object,
    };
    of(context, &object)
}
