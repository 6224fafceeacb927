//! What the server needs to know about a kind, whether it is built in or defined by a CRD.

use std::borrow::Cow;

use bytes::Bytes;
use quintet_api::selector::Selector;
use quintet_objects::{
    FieldError, builtin,
    patch::{self, PatchError},
    types,
};
use serde_json::{Map, Value, json};

use crate::{
    crd::CustomVersion,
    json::{self, carry},
    resources::{Model, Resource},
    status::Failure,
    verbs::{Ask, scale::ScalePaths},
};

/// Whether built-in kinds can be written as protobuf.
pub(crate) const HAS_PROTOBUF: bool = false;

/// Fills in what the client left out.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    if is_definition(resource) {
        crate::crd::default(object);
    }
    if let Model::Custom(custom) = &resource.model {
        custom.default(object);
    }
}

/// What a new object starts with, before admission.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value) {
    if has_generation(resource) {
        json::metadata(object).insert("generation".into(), 1.into());
    }
    if resource.has_status() {
        json::as_map(object).remove("status");
    }
    if resource.is("", "namespaces") {
        let name = json::text(object, "/metadata/name").to_owned();
        json::child(json::metadata(object), "labels")
            .insert("kubernetes.io/metadata.name".into(), name.into());
        let map = json::as_map(object);
        map.insert("spec".into(), json!({"finalizers": ["kubernetes"]}));
        map.insert("status".into(), json!({"phase": "Active"}));
    }
    if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
        crate::crd::prepare_create(object);
    }
}

/// What a new object gets once it has its identity.
pub(crate) fn finish_create(_resource: &Resource, _object: &mut Value) {}

/// Keeps what this request cannot change.
pub(crate) fn prepare_update(resource: &Resource, subresource: &str, new: &mut Value, old: &Value) {
    let nothing = Map::new();
    let before = old.as_object().unwrap_or(&nothing);
    if subresource == "status" {
        let status = new.get("status").cloned();
        if resource.as_custom().is_some() {
            let kept = new.pointer("/metadata/managedFields").cloned();
            *new = old.clone();
            if let Some(fields) = kept {
                json::metadata(new).insert("managedFields".into(), fields);
            }
        } else {
            let metadata = new.get("metadata").cloned();
            let rest = before.clone();
            *new = Value::Object(rest);
            if let Some(Value::Object(mut metadata)) = metadata {
                let old_metadata = old.get("metadata").and_then(Value::as_object).unwrap_or(&nothing);
                carry(old_metadata, &mut metadata, "labels");
                json::as_map(new).insert("metadata".into(), Value::Object(metadata));
            }
        }
        match status {
            Some(status) => json::as_map(new).insert("status".into(), status),
            None => json::as_map(new).remove("status"),
        };
        return;
    }
    let map = json::as_map(new);
    if resource.has_status() && !matches!(subresource, "approval" | "binding") {
        carry(before, map, "status");
    }
    if resource.is("", "namespaces") {
        if subresource != "finalize" {
            carry(before, map, "spec");
        }
        let name = json::text(old, "/metadata/name").to_owned();
        json::child(json::metadata(new), "labels").insert("kubernetes.io/metadata.name".into(), name.into());
    }
}

fn has_generation(resource: &Resource) -> bool {
    resource.as_built_in().is_none_or(|kind| kind.has_generation)
}

/// Counts a change that controllers have to act on.
pub(crate) fn count_generation(resource: &Resource, new: &mut Value, old: &Value) {
    let is_new = match &resource.model {
        Model::BuiltIn(kind) => kind.is_new_generation(old, new),
        Model::Custom(custom) => {
            let significant = |object: &Value| -> Map<String, Value> {
                let members = object.as_object().into_iter().flatten();
                members
                    .filter(|(key, _)| {
                        *key != "metadata"
                            && *key != "apiVersion"
                            && *key != "kind"
                            && !(custom.has_status && *key == "status")
                    })
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect()
            };
            significant(new) != significant(old)
        }
    };
    if is_new {
        bump_generation(resource, new);
    }
}

/// Counts one more generation, if the kind counts them.
pub(crate) fn bump_generation(resource: &Resource, object: &mut Value) {
    if has_generation(resource) {
        let metadata = json::metadata(object);
        let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
        metadata.insert("generation".into(), (generation + 1).into());
    }
}

/// What besides metadata tells that an object is being deleted.
pub(crate) fn mark_terminating(resource: &Resource, object: &mut Value) {
    if resource.is("", "namespaces") {
        json::child(json::as_map(object), "status").insert("phase".into(), "Terminating".into());
    }
}

/// Whether something other than finalizers keeps an object from going.
pub(crate) fn holds_back(resource: &Resource, object: &Value) -> bool {
    resource.is("", "namespaces") && !json::items(object, "/spec/finalizers").is_empty()
}

/// Whether a PUT must say which version it replaces.
pub(crate) fn needs_resource_version(resource: &Resource) -> bool {
    resource.as_built_in().is_none_or(|kind| kind.needs_resource_version)
}

fn is_definition(resource: &Resource) -> bool {
    resource.is("apiextensions.k8s.io", "customresourcedefinitions")
}

/// What is wrong with a new object.
pub(crate) fn validate_create(ask: &Ask, object: &Value) -> Vec<FieldError> {
    match &ask.resource.model {
        Model::BuiltIn(_) if is_definition(&ask.resource) => crate::crd::validate(object, None),
        Model::BuiltIn(_) => Vec::new(),
        Model::Custom(custom) => {
            let (errors, warnings) = custom.validate(object, None);
            for warning in warnings {
                ask.warn(warning);
            }
            errors
        }
    }
}

/// What is wrong with a changed object.
pub(crate) fn validate_update(ask: &Ask, new: &Value, old: &Value) -> Vec<FieldError> {
    match &ask.resource.model {
        Model::BuiltIn(_) if is_definition(&ask.resource) => crate::crd::validate(new, Some(old)),
        Model::BuiltIn(_) => Vec::new(),
        Model::Custom(custom) => {
            let (errors, warnings) = custom.validate(new, Some(old));
            for warning in warnings {
                ask.warn(warning);
            }
            errors
        }
    }
}

/// Whether an update changes nothing that counts: times of field ownership do not.
pub(crate) fn is_same(_resource: &Resource, new: &Value, old: &Value) -> bool {
    let stripped = |object: &Value| {
        let mut object = object.clone();
        let metadata = json::metadata(&mut object);
        metadata.remove("resourceVersion");
        object
    };
    stripped(new) == stripped(old)
}

/// Records who owns the fields of a written object.
#[expect(clippy::unnecessary_wraps, reason = "ownership can fail to be told")]
pub(crate) fn own(_ask: &Ask, _new: &mut Value, _old: Option<&Value>) -> Result<(), Failure> {
    Ok(())
}

/// Server-side apply.
#[expect(clippy::unnecessary_wraps, reason = "apply conflicts")]
pub(crate) fn apply(_ask: &Ask, live: Option<&Value>, config: &Value) -> Result<Value, Failure> {
    let mut new = live.cloned().unwrap_or_else(|| config.clone());
    merge_patch(&mut new, config);
    Ok(new)
}

fn patch_failure(error: &PatchError) -> Failure {
    match error {
        PatchError::Malformed(why) => Failure::bad_request(why.as_str()),
        PatchError::Rejected { .. } => Failure::new(422, "Invalid", error.to_string()),
        PatchError::TooLong(_) => Failure::new(413, "RequestEntityTooLarge", error.to_string()),
        PatchError::Strategic(why) => Failure::untyped(why.as_str()),
    }
}

/// RFC 6902.
pub(crate) fn json_patch(object: &mut Value, patch: &Value) -> Result<(), Failure> {
    patch::json_patch(object, patch).map_err(|error| patch_failure(&error))
}

/// RFC 7386.
pub(crate) fn merge_patch(object: &mut Value, patch: &Value) {
    patch::merge_patch(object, patch);
}

/// Strategic merge patch.
pub(crate) fn strategic_merge(resource: &Resource, object: &mut Value, patch: &Value) -> Result<(), Failure> {
    let (api_version, kind) = (json::text(object, "/apiVersion"), json::text(object, "/kind"));
    let Some(schema) =
        types::kind(api_version, kind).or_else(|| types::kind(&resource.api_version, &resource.kind))
    else {
        return Err(Failure::internal(format!("{} has no merge keys", resource.kind)));
    };
    patch::strategic_merge(object, patch, schema).map_err(|error| patch_failure(&error))
}

/// Makes a built-in object one of the resource's version.
pub(crate) fn convert_built_in(resource: &Resource, mut object: Value) -> Value {
    if resource.as_built_in().is_some() && json::text(&object, "/apiVersion") != &*resource.api_version {
        builtin::convert(&mut object, &resource.api_version);
    }
    object
}

/// Prunes a custom object of a request; returns what was dropped.
pub(crate) fn fit_custom(custom: &CustomVersion, object: &mut Value) -> Result<Vec<String>, String> {
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    let mut unknown = Vec::new();
    if let Some(schema) = types::by_name("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") {
        let decoded = types::decode(schema, &mut metadata).map_err(|error| error.to_string())?;
        unknown = decoded.unknown.into_iter().map(|path| format!("metadata.{path}")).collect();
        json::as_map(object).insert("metadata".into(), metadata);
    }
    unknown.extend(custom.prune(object));
    Ok(unknown)
}

/// Makes a stored custom object what it would be if it were written now.
pub(crate) fn refresh_custom(custom: &CustomVersion, object: &mut Value) {
    custom.prune(object);
    custom.default(object);
}

/// Fields a kind can be selected by, besides name and namespace.
pub(crate) fn selectable_fields(resource: &Resource) -> Vec<Cow<'static, str>> {
    match &resource.model {
        Model::Custom(custom) => custom.selectable.iter().cloned().map(Cow::Owned).collect(),
        Model::BuiltIn(kind) => {
            let fields: &[&'static str] = match (kind.group, kind.plural) {
                ("", "pods") => &[
                    "spec.nodeName",
                    "spec.restartPolicy",
                    "spec.schedulerName",
                    "spec.serviceAccountName",
                    "spec.hostNetwork",
                    "status.phase",
                    "status.podIP",
                    "status.podIPs",
                    "status.nominatedNodeName",
                ],
                ("", "events") => &[
                    "involvedObject.kind",
                    "involvedObject.namespace",
                    "involvedObject.name",
                    "involvedObject.uid",
                    "involvedObject.apiVersion",
                    "involvedObject.resourceVersion",
                    "involvedObject.fieldPath",
                    "reason",
                    "reportingComponent",
                    "source",
                    "type",
                ],
                ("events.k8s.io", "events") => &[
                    "regarding.kind",
                    "regarding.namespace",
                    "regarding.name",
                    "regarding.uid",
                    "regarding.apiVersion",
                    "regarding.resourceVersion",
                    "regarding.fieldPath",
                    "reason",
                    "reportingController",
                    "type",
                ],
                ("", "namespaces") => &["status.phase"],
                ("", "nodes") => &["spec.unschedulable"],
                ("", "replicationcontrollers") | ("apps", "replicasets") => &["status.replicas"],
                ("", "secrets") => &["type"],
                ("", "services") => &["spec.clusterIP", "spec.type"],
                ("batch", "jobs") => &["status.successful"],
                ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
                ("resource.k8s.io", "resourceslices") => &["spec.nodeName", "spec.driver"],
                _ => &[],
            };
            fields.iter().map(|field| Cow::Borrowed(*field)).collect()
        }
    }
}

/// The text of a field, as field selectors compare it.
pub(crate) fn field_value(resource: &Resource, object: &Value, field: &str) -> String {
    let at = |path: &str| path.split('.').try_fold(object, |value, step| value.get(step));
    let found = match field {
        "status.podIPs" => return json::text(object, "/status/podIP").to_owned(),
        "source" => return json::text(object, "/source/component").to_owned(),
        "status.successful" => at("status.succeeded"),
        other => at(other),
    };
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ if matches!(field, "spec.unschedulable" | "spec.hostNetwork") => "false".into(),
        _ if field.ends_with("replicas") || field == "status.successful" => "0".into(),
        _ => {
            let _ = resource;
            String::new()
        }
    }
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

/// Objects as rows of a table, without the objects themselves.
pub(crate) fn table(resource: &Resource, objects: &[Value]) -> Value {
    let _ = resource;
    let rows: Vec<Value> =
        objects.iter().map(|object| json!({"cells": [json::text(object, "/metadata/name")]})).collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": [
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}], "rows": rows})
}

/// Reads a protobuf body.
pub(crate) fn from_protobuf(_bytes: &[u8]) -> Result<Value, Failure> {
    Err(Failure::unsupported_body("application/json, application/yaml"))
}

/// Writes an object as protobuf.
pub(crate) fn to_protobuf(_value: &Value) -> Result<Vec<u8>, Failure> {
    Err(Failure::internal("no protobuf"))
}

/// A watch event as protobuf.
pub(crate) fn watch_event_protobuf(_resource: &Resource, _kind: &str, _object: &Value) -> Option<Bytes> {
    None
}

/// The OpenAPI v3 document of a group version.
pub(crate) fn openapi_v3(_group: &str, _version: &crate::resources::GroupVersion) -> Option<Value> {
    None
}

/// The OpenAPI v2 document of everything.
pub(crate) fn openapi_v2(_registry: &crate::resources::Registry) -> Value {
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.0"}, "paths": {}, "definitions": {}})
}
