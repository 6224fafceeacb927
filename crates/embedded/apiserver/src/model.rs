//! What the server needs to know about a kind, whether it is built in or defined by a CRD.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use quintet_api::selector::Selector;
use quintet_objects::{
    FieldError,
    apply::{self, ApplyError, Node, Writer},
    builtin,
    meta::{self, NameRule},
    openapi::{self, CustomKind},
    patch::{self, PatchError},
    protobuf,
    table::{IncludeObject, Printer},
    types,
};
use serde_json::{Map, Value, json};

use crate::{
    crd::CustomVersion,
    json::{self, carry},
    resources::{GroupVersion, Model, Registry, Resource},
    status::Failure,
    verbs::{Ask, scale::ScalePaths},
};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Fills in what the client left out.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    match &resource.model {
        Model::BuiltIn(kind) => kind.apply_defaults(object),
        Model::Custom(custom) => custom.default(object),
    }
}

/// What a new object starts with, before admission.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value) {
    // Nodes register with their status.
    if resource.has_status() && !resource.is("", "nodes") {
        json::as_map(object).remove("status");
    }
    if resource.is("", "namespaces") {
        let name = json::text(object, "/metadata/name").to_owned();
        let labels = json::child(json::metadata(object), "labels");
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
    }
}

/// What a new object gets once it has its identity.
pub(crate) fn finish_create(resource: &Resource, object: &mut Value) {
    match &resource.model {
        Model::BuiltIn(kind) => {
            kind.prepare_create(object);
            if is_definition(resource) {
                crate::crd::prepare_create(object);
            }
        }
        Model::Custom(custom) => {
            json::metadata(object).insert("generation".into(), 1.into());
            if custom.has_status {
                json::as_map(object).remove("status");
            }
        }
    }
}

/// Keeps what this request cannot change.
pub(crate) fn prepare_update(resource: &Resource, subresource: &str, new: &mut Value, old: &Value) {
    let nothing = Map::new();
    let before = old.as_object().unwrap_or(&nothing);
    match (&resource.model, subresource) {
        (Model::BuiltIn(kind), "status") => kind.prepare_status_update(new, old),
        (Model::BuiltIn(_), "binding") => {}
        (Model::BuiltIn(_), "ephemeralcontainers") => {
            let wanted = new.pointer("/spec/ephemeralContainers").cloned();
            keep_all_but(new, old, |spec| match wanted {
                Some(wanted) => drop(spec.insert("ephemeralContainers".into(), wanted)),
                None => drop(spec.remove("ephemeralContainers")),
            });
        }
        (Model::BuiltIn(_), "resize") => {
            let wanted = json::items(new, "/spec/containers").to_vec();
            keep_all_but(new, old, |spec| {
                let containers = spec.get_mut("containers").and_then(Value::as_array_mut);
                for container in containers.into_iter().flatten() {
                    let is_same = |one: &&Value| json::text(one, "/name") == json::text(container, "/name");
                    if let Some(found) = wanted.iter().find(is_same).and_then(Value::as_object) {
                        carry(found, json::as_map(container), "resources");
                        carry(found, json::as_map(container), "resizePolicy");
                    }
                }
            });
        }
        (Model::BuiltIn(_), "approval") => carry(before, json::as_map(new), "spec"),
        (Model::BuiltIn(_), "finalize") => carry(before, json::as_map(new), "status"),
        (Model::BuiltIn(kind), _) => {
            kind.prepare_update(new, old);
            if resource.is("", "namespaces") {
                let name = json::text(old, "/metadata/name").to_owned();
                let labels = json::child(json::metadata(new), "labels");
                labels.insert("kubernetes.io/metadata.name".into(), name.into());
            }
        }
        (Model::Custom(_), "status") => {
            let status = new.get("status").cloned();
            let fields = new.pointer("/metadata/managedFields").cloned();
            let version = new.pointer("/metadata/resourceVersion").cloned();
            *new = old.clone();
            for (key, value) in [("managedFields", fields), ("resourceVersion", version)] {
                match value {
                    Some(value) => json::metadata(new).insert(key.into(), value),
                    None => json::metadata(new).remove(key),
                };
            }
            match status {
                Some(status) => json::as_map(new).insert("status".into(), status),
                None => json::as_map(new).remove("status"),
            };
        }
        (Model::Custom(custom), _) => {
            if custom.has_status {
                carry(before, json::as_map(new), "status");
            }
        }
    }
}

/// Puts the old object in the place of the new one, with a change to its spec. Who owns which fields, and which version
/// is replaced, is what the request says.
fn keep_all_but(new: &mut Value, old: &Value, change: impl FnOnce(&mut Map<String, Value>)) {
    let said = ["managedFields", "resourceVersion"].map(|key| new["metadata"].get(key).cloned());
    *new = old.clone();
    for (key, value) in ["managedFields", "resourceVersion"].into_iter().zip(said) {
        match value {
            Some(value) => json::metadata(new).insert(key.into(), value),
            None => json::metadata(new).remove(key),
        };
    }
    change(json::child(json::as_map(new), "spec"));
}

fn has_generation(resource: &Resource) -> bool {
    resource.as_built_in().is_none_or(|kind| kind.has_generation)
}

/// Counts a change that controllers have to act on.
pub(crate) fn count_generation(resource: &Resource, new: &mut Value, old: &Value) {
    let is_new = match &resource.model {
        // Counted when the update was prepared.
        Model::BuiltIn(_) => false,
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

/// Adds what the server itself wants to do before an object goes.
pub(crate) fn hold_back(resource: &Resource, object: &mut Value) {
    if is_definition(resource)
        && !json::texts(object, "/metadata/finalizers").any(|one| one == crate::crd::CLEANUP)
    {
        let finalizers = json::metadata(object).entry("finalizers").or_insert_with(|| json!([]));
        if let Some(finalizers) = finalizers.as_array_mut() {
            finalizers.push(crate::crd::CLEANUP.into());
        }
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
    validate(ask, object, None)
}

/// What is wrong with a changed object.
pub(crate) fn validate_update(ask: &Ask, new: &Value, old: &Value) -> Vec<FieldError> {
    validate(ask, new, Some(old))
}

fn validate(ask: &Ask, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match &ask.resource.model {
        Model::BuiltIn(kind) => match ask.subresource.as_str() {
            // These change what the object itself may not.
            "binding" | "finalize" => Vec::new(),
            "resize" => kind.validate(new, None),
            "ephemeralcontainers" => {
                let mut errors = kind.validate(new, None);
                errors.extend(old.into_iter().flat_map(|old| changed_ephemeral(new, old)));
                errors
            }
            _ => {
                // Schemas are dear to check; what did not change was checked when it was written.
                let is_unchanged = old.is_some_and(|old| old.get("spec") == new.get("spec"));
                let mut errors = if is_definition(&ask.resource) && is_unchanged {
                    old.into_iter().flat_map(|old| meta::validate_update(new, old)).collect()
                } else {
                    kind.validate(new, old)
                };
                // Definitions may have finalizers without a slash, as the one that empties them.
                if is_definition(&ask.resource) {
                    errors.retain(|error| !error.path.starts_with("metadata.finalizers["));
                }
                errors
            }
        },
        Model::Custom(custom) => {
            let mut errors = meta::validate(new, NameRule::Subdomain, ask.resource.is_namespaced, false);
            errors.extend(old.into_iter().flat_map(|old| meta::validate_update(new, old)));
            let (found, warnings) = custom.validate(new, old);
            for warning in warnings {
                ask.warn(warning);
            }
            errors.extend(found);
            errors
        }
    }
}

/// Ephemeral containers are added and never changed.
fn changed_ephemeral(new: &Value, old: &Value) -> Vec<FieldError> {
    let spec = quintet_objects::Path::new("spec");
    let path = spec.field("ephemeralContainers");
    let present = json::items(new, "/spec/ephemeralContainers");
    let is_kept = |container: &&Value| {
        present
            .iter()
            .any(|one| json::text(one, "/name") == json::text(container, "/name") && one == *container)
    };
    let containers = json::items(old, "/spec/ephemeralContainers").iter();
    let changed = containers.filter(|container| !is_kept(container));
    changed
        .map(|container| {
            let name = json::text(container, "/name");
            FieldError::forbidden(&path, format!("existing ephemeral containers {name:?} may not be changed"))
        })
        .collect()
}

/// Whether an update changes nothing but the resource version.
pub(crate) fn is_same(new: &Value, old: &Value) -> bool {
    fn all_but<'a>(value: Option<&'a Value>, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
        value.and_then(Value::as_object).into_iter().flatten().filter(move |(name, _)| *name != key)
    }
    all_but(Some(new), "metadata").eq(all_but(Some(old), "metadata"))
        && all_but(new.get("metadata"), "resourceVersion").eq(all_but(old.get("metadata"), "resourceVersion"))
}

/// The schema by which fields are owned and merged.
fn node(resource: &Resource) -> Node<'_> {
    match &resource.model {
        Model::BuiltIn(kind) => kind.schema().map_or(Node::Unknown, Node::builtin),
        Model::Custom(custom) => custom.schema().map_or(Node::Unknown, Node::custom),
    }
}

/// Top-level fields that a request cannot change, and so nobody owns through it.
fn ignored(ask: &Ask, object: &Value) -> Vec<String> {
    match ask.subresource.as_str() {
        "status" => {
            let keys = object.as_object().into_iter().flat_map(Map::keys);
            keys.filter(|key| !matches!(key.as_str(), "status" | "apiVersion" | "kind")).cloned().collect()
        }
        _ if ask.resource.has_status() => vec!["status".to_owned()],
        _ => Vec::new(),
    }
}

/// Records who owns the fields of a written object.
pub(crate) fn own(ask: &Ask, new: &mut Value, old: Option<&Value>) {
    let now = json::timestamp(ask.now);
    let ignored = ignored(ask, new);
    let ignored: Vec<&str> = ignored.iter().map(String::as_str).collect();
    let writer = Writer {
        manager: &ask.manager,
        api_version: &ask.resource.api_version,
        subresource: &ask.subresource,
        now: &now,
        ignored: &ignored,
    };
    apply::update(old, new, node(&ask.resource), &writer);
}

/// Server-side apply.
pub(crate) fn apply(ask: &Ask, live: Option<&Value>, config: &Value) -> Result<Value, Failure> {
    let now = json::timestamp(ask.now);
    let ignored = ignored(ask, live.unwrap_or(config));
    let ignored: Vec<&str> = ignored.iter().map(String::as_str).collect();
    let writer = Writer {
        manager: &ask.manager,
        api_version: &ask.resource.api_version,
        subresource: &ask.subresource,
        now: &now,
        ignored: &ignored,
    };
    let force = ask.options.force.unwrap_or(false);
    apply::apply(live, config, node(&ask.resource), &writer, force).map_err(|error| match error {
        ApplyError::Conflict(conflicts) => {
            Failure::from_status(&conflicts.status(), 409, conflicts.to_string())
        }
        ApplyError::Schema(why) => Failure::untyped(why),
        ApplyError::BadRequest(why) => Failure::bad_request(why),
    })
}

/// Makes an applied object what it would be had it been sent as a whole: numbers and quantities as they are written,
/// nothing of a wrong type.
pub(crate) fn fit_applied(ask: &Ask, object: &mut Value) -> Result<(), Failure> {
    let resource = &ask.resource;
    let failed = |error: &dyn std::fmt::Display| {
        Failure::untyped(format!(
            "failed to create typed patch object ({}/{}; {}, Kind={}): {error}",
            ask.namespace, ask.name, resource.api_version, resource.kind
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
    if let Some(schema) = types::by_name(OBJECT_META) {
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

/// Objects as rows of a table.
pub(crate) fn table(
    resource: &Resource,
    objects: &[Value],
    metadata: &Value,
    include: IncludeObject,
    with_definitions: bool,
    now: jiff::Timestamp,
) -> Value {
    match &resource.model {
        Model::BuiltIn(kind) => {
            Printer::builtin(kind).table(objects, metadata, include, with_definitions, now)
        }
        Model::Custom(custom) => custom.printer.table(objects, metadata, include, with_definitions, now),
    }
}

/// Reads a protobuf body; `fallback` is what it is taken for if it does not say.
pub(crate) fn from_protobuf(bytes: &[u8], fallback: Option<(&str, &str)>) -> Result<Value, Failure> {
    protobuf::decode(bytes, fallback).map_err(|error| Failure::bad_request(error.to_string()))
}

/// Writes an object as protobuf.
pub(crate) fn to_protobuf(value: &Value) -> Result<Vec<u8>, Failure> {
    protobuf::encode(value).map_err(Failure::internal)
}

/// A watch event as protobuf.
pub(crate) fn watch_event_protobuf(kind: &str, object: &Value) -> Option<Bytes> {
    protobuf::encode_watch_event(kind, object).ok().map(Bytes::from)
}

/// Custom resources with their schemas as they were written.
fn custom_schemas<'a>(
    resources: impl Iterator<Item = &'a Arc<Resource>>,
) -> Vec<(&'a Resource, bool, Value)> {
    let custom = resources.filter_map(|resource| Some((resource, resource.as_custom()?)));
    custom.map(|(resource, custom)| (&**resource, custom.has_status, custom.raw_schema())).collect()
}

fn custom_kinds<'a>(schemas: &'a [(&'a Resource, bool, Value)]) -> Vec<CustomKind<'a>> {
    let kind = |(resource, has_status, schema): &'a (&'a Resource, bool, Value)| CustomKind {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
        list_kind: &resource.list_kind,
        plural: &resource.plural,
        is_namespaced: resource.is_namespaced,
        has_status: *has_status,
        schema,
    };
    schemas.iter().map(kind).collect()
}

/// The OpenAPI v3 document of a group version.
pub(crate) fn openapi_v3(group: &str, version: &GroupVersion, server: &str) -> Value {
    let schemas = custom_schemas(version.resources.iter());
    if schemas.is_empty() {
        openapi::builtin_v3(&crate::resources::api_version(group, &version.version), server)
    } else {
        openapi::custom_v3(&custom_kinds(&schemas), server)
    }
}

/// The OpenAPI v2 document of everything.
pub(crate) fn openapi_v2(registry: &Registry, server: &str) -> Value {
    let schemas = custom_schemas(registry.all());
    openapi::v2(&custom_kinds(&schemas), server)
}
