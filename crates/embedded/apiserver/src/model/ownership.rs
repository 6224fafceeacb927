//! Field ownership and server-side apply.

use quintet_objects::apply;
use quintet_objects::apply::ApplyError;
use quintet_objects::apply::Node;
use quintet_objects::apply::Writer;
use quintet_objects::types;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::json;
use crate::resources::Model;
use crate::resources::Resource;
use crate::status::Failure;
use crate::verbs::RequestContext;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The schema by which fields are owned and merged.
fn node(resource: &Resource) -> Node<'_> {
    match &resource.model {
        Model::BuiltIn(kind) => kind.schema().map_or(Node::Unknown, Node::builtin),
        Model::Custom(custom) => custom.schema().map_or(Node::Unknown, Node::custom),
    }
}

/// Top-level fields that a request cannot change, and so cannot own.
fn ignored(context: &RequestContext, object: &Value) -> Vec<String> {
    match context.subresource.as_str() {
        "status" => {
            let keys = object.as_object().into_iter().flat_map(Map::keys);
            keys.filter(|key| !matches!(key.as_str(), "status" | "apiVersion" | "kind")).cloned().collect()
        }
        _ if context.resource.has_status() => vec!["status".to_owned()],
        _ => Vec::new(),
    }
}

/// Records who owns the fields of a written object.
pub(crate) fn own(context: &RequestContext, new: &mut Value, old: Option<&Value>) {
    let now = json::timestamp(context.now);
    let ignored = ignored(context, new);
    let ignored: Vec<&str> = ignored.iter().map(String::as_str).collect();
    let writer = Writer {
        manager: &context.manager,
        api_version: &context.resource.api_version,
        subresource: &context.subresource,
        now: &now,
        ignored: &ignored,
    };
    apply::update(old, new, node(&context.resource), &writer);
}

/// Server-side apply.
pub(crate) fn apply(
    context: &RequestContext,
    live: Option<&Value>,
    config: &Value,
) -> Result<Value, Failure> {
    let now = json::timestamp(context.now);
    let ignored = ignored(context, live.unwrap_or(config));
    let ignored: Vec<&str> = ignored.iter().map(String::as_str).collect();
    let writer = Writer {
        manager: &context.manager,
        api_version: &context.resource.api_version,
        subresource: &context.subresource,
        now: &now,
        ignored: &ignored,
    };
    let force = context.options.force.unwrap_or(false);
    apply::apply(live, config, node(&context.resource), &writer, force).map_err(|error| match error {
        ApplyError::Conflict(conflicts) => {
            Failure::from_status(&conflicts.status(), 409, conflicts.to_string())
        }
        ApplyError::Schema(why) => Failure::untyped(why),
        ApplyError::BadRequest(why) => Failure::bad_request(why),
    })
}

/// Makes an applied object what it would be had it been sent as a whole: numbers and quantities as they are written,
/// nothing of a wrong type.
pub(crate) fn fit_applied(context: &RequestContext, object: &mut Value) -> Result<(), Failure> {
    let resource = &context.resource;
    let namespace = json::text(object, "/metadata/namespace").to_owned();
    let failed = |error: &dyn std::fmt::Display| {
        let kind = format!("{}, Kind={}", resource.api_version, resource.kind);
        Failure::untyped(format!(
            "failed to convert new object ({namespace}/{}; {kind}) to proper version: unable to convert unstructured object to {kind}: {error}",
            context.name
        ))
    };
    if resource.as_custom().is_some() {
        let Some(schema) = types::by_name(OBJECT_META) else { return Ok(()) };
        let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
        types::decode(schema, &mut metadata).map_err(|error| failed(&error))?;
        json::as_map(object).insert("metadata".into(), metadata);
        return Ok(());
    }
    let Some(schema) = types::kind(&resource.api_version, &resource.kind) else { return Ok(()) };
    types::decode(schema, object).map(drop).map_err(|error| failed(&error))
}

/// An object with a configuration merged into it, as apply does, without a change of owners.
pub(crate) fn merge_configuration(
    resource: &Resource,
    object: &Value,
    config: &Value,
) -> Result<Value, String> {
    apply::merge(object, config, node(resource))
}
