//! Matching of requests by the rules and selectors of webhooks and policies.

use std::sync::Arc;

use quintet_objects::types;
use serde_json::{Value, json};

use super::Operation;
use crate::{
    json::{items, text, texts},
    model,
    resources::Resource,
    status::Failure,
    verbs::{RequestContext, filter::selects},
};

/// The resource as which a hook, or whatever else is bound to rules and selectors, wants to see a request: the one that
/// was asked for, or another version of it that the rules name. `None` if it is not about the request.
pub(super) fn matching_resource(
    context: &RequestContext,
    hook: &Value,
    operation: Operation<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Option<Arc<Resource>> {
    if *context.resource.group == *"admissionregistration.k8s.io" {
        return None;
    }
    let name = match (context.name.as_str(), object) {
        ("", Some(object)) => text(object, "/metadata/name"),
        (name, _) => name,
    };
    let named = |list: &str| -> Option<Arc<Resource>> {
        let names = |resource: &Resource| {
            items(hook, list).iter().any(|rule| matches_rule(context, rule, operation, resource, name))
        };
        if items(hook, list).is_empty() {
            return None;
        }
        if names(&context.resource) {
            return Some(Arc::clone(&context.resource));
        }
        if text(hook, "/matchPolicy") == "Exact" {
            return None;
        }
        let registry = context.api.registry();
        let mut others = registry.all().filter(|other| other.bucket == context.resource.bucket);
        others.find(|other| names(other)).cloned()
    };
    let seen = named("/rules")?;
    let is_meant = named("/excludeResourceRules").is_none()
        && matches_namespace(context, hook, object, old)
        && matches_object(hook, object, old);
    is_meant.then_some(seen)
}

/// Whether a rule names what is done to a resource.
fn matches_rule(
    context: &RequestContext,
    rule: &Value,
    operation: Operation<'_>,
    resource: &Resource,
    name: &str,
) -> bool {
    let has = |key: &str, wanted: &str| texts(rule, key).any(|one| one == "*" || one == wanted);
    let matches_resource = texts(rule, "/resources").any(|one| match one.split_once('/') {
        None => context.subresource.is_empty() && (one == "*" || one == &*resource.plural),
        Some((parent, sub)) => {
            (parent == "*" || parent == &*resource.plural) && (sub == "*" || sub == context.subresource)
        }
    });
    let matches_scope = match text(rule, "/scope") {
        "Namespaced" => resource.is_namespaced,
        "Cluster" => !resource.is_namespaced,
        _ => true,
    };
    has("/operations", operation.name())
        && has("/apiGroups", &resource.group)
        && has("/apiVersions", &resource.version)
        && matches_resource
        && matches_scope
        && (items(rule, "/resourceNames").is_empty() || texts(rule, "/resourceNames").any(|one| one == name))
}

fn labels_head(labels: Option<&Value>) -> crate::store::Head {
    let object = json!({"metadata": {"labels": labels.cloned().unwrap_or_default()}});
    crate::store::Put::new("v1".into(), &object, 0).head
}

fn matches_namespace(
    context: &RequestContext,
    hook: &Value,
    object: Option<&Value>,
    old: Option<&Value>,
) -> bool {
    let selector = hook.get("namespaceSelector");
    let Some(selector) = selector.and_then(|selector| model::label_selector(Some(selector))) else {
        return true;
    };
    if selector.selects_all() {
        return true;
    }
    if context.resource.is("", "namespaces") {
        let labels = object.or(old).and_then(|object| object.pointer("/metadata/labels"));
        return selects(&selector, &labels_head(labels));
    }
    if !context.resource.is_namespaced {
        return true;
    }
    let namespace = context.api.store().get("core/namespaces", &context.namespace);
    namespace.is_some_and(|namespace| selects(&selector, &namespace.head))
}

fn matches_object(hook: &Value, object: Option<&Value>, old: Option<&Value>) -> bool {
    let selector = hook.get("objectSelector");
    let Some(selector) = selector.and_then(|selector| model::label_selector(Some(selector))) else {
        return true;
    };
    selector.selects_all()
        || [object, old]
            .into_iter()
            .flatten()
            .any(|object| selects(&selector, &labels_head(object.pointer("/metadata/labels"))))
}

/// An object in the version a hook wants.
pub(super) async fn in_version_of(
    context: &RequestContext,
    seen: &Resource,
    object: Option<&Value>,
) -> Result<Value, Failure> {
    let Some(object) = object else { return Ok(Value::Null) };
    if seen.api_version == context.resource.api_version {
        return Ok(object.clone());
    }
    match context.resource.as_custom() {
        Some(custom) => {
            crate::crd::conversion::convert(&context.api, custom, object.clone(), &seen.api_version).await
        }
        None => Ok(model::convert_built_in(seen, object.clone())),
    }
}

/// An object that a hook or policy changed in a version of its own, as the request has it: in its version, with
/// known fields only, and defaulted.
pub(super) async fn accept_changed(
    context: &RequestContext,
    seen: &Resource,
    mut changed: Value,
) -> Result<Value, String> {
    let resource = &context.resource;
    if let Some(custom) = resource.as_custom() {
        if seen.api_version != resource.api_version {
            let converted =
                crate::crd::conversion::convert(&context.api, custom, changed, &resource.api_version);
            changed = converted.await.map_err(|failure| failure.message().to_owned())?;
        }
        model::fit_custom(custom, &mut changed)?;
    } else {
        changed = model::convert_built_in(resource, changed);
        if let Some(schema) = types::kind(&resource.api_version, &resource.kind) {
            types::decode(schema, &mut changed).map_err(|error| error.to_string())?;
        }
    }
    model::default(resource, &mut changed);
    Ok(changed)
}
