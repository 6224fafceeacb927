//! Authorization from the head of a request. Bodies are read after it.

use http::{Method, request::Parts};
use quintet_objects::field_selector::FieldSelector;

use super::{Caller, authorize_path, impersonation, rbac};
use crate::{
    api::Api,
    request::url::{self, Query, ResourcePath, Route},
    status::Failure,
};

/// A request that is permitted.
#[derive(Debug)]
pub(crate) struct Permitted {
    pub(crate) caller: Caller,
    pub(crate) query: Query,
    pub(crate) route: Route,
}

impl Api {
    /// Refuses what the caller, or whom they impersonate, may not do.
    pub(crate) fn permit(&self, head: &Parts, caller: Caller) -> Result<Permitted, Failure> {
        let caller = impersonation::effective(self, caller, &head.headers)?;
        let query = Query::parse(head.uri.query());
        let route = url::route(head.uri.path()).ok_or_else(Failure::no_page)?;
        match &route {
            Route::Resource(path) => authorize(self, &caller, &head.method, path, &query)?,
            _ => authorize_path(self, &caller, &head.method, head.uri.path())?,
        }
        Ok(Permitted { caller, query, route })
    }
}

/// The verb of a request, as authorization names it.
pub(crate) fn verb(method: &Method, path: &ResourcePath, query: &Query) -> &'static str {
    let is_watch = path.name.is_none() && (path.is_watch || query.is_set("watch"));
    match (method.as_str(), &path.name) {
        ("GET" | "HEAD", Some(_)) => "get",
        ("GET" | "HEAD", None) if is_watch => "watch",
        ("GET" | "HEAD", None) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", Some(_)) => "delete",
        ("DELETE", None) => "deletecollection",
        _ => "",
    }
}

/// Refuses what the caller may not do to a resource.
fn authorize(
    api: &Api,
    caller: &Caller,
    method: &Method,
    path: &ResourcePath,
    query: &Query,
) -> Result<(), Failure> {
    let namespace = match &path.namespace {
        Some(namespace) => namespace.as_str(),
        None if path.group.is_empty() && path.resource == "namespaces" => {
            path.name.as_deref().unwrap_or_default()
        }
        None => "",
    };
    // A list of one name is a request for that name.
    let fields = query.get("fieldSelector").and_then(|fields| FieldSelector::parse(fields).ok());
    let field_name = fields.as_ref().and_then(|fields| fields.required("metadata.name"));
    let verb = verb(method, path, query);
    let attributes = rbac::Attributes {
        verb,
        group: &path.group,
        version: &path.version,
        resource: &path.resource,
        subresource: path.subresource.as_deref().unwrap_or_default(),
        namespace,
        name: path
            .name
            .as_deref()
            .or_else(|| field_name.filter(|_| matches!(verb, "list" | "watch")))
            .unwrap_or_default(),
    };
    super::authorize(api, caller, &attributes)
}
