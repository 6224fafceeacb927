//! Authorization from the head of a request. Bodies are read after it.

use http::{Method, request::Parts};
use quintet_objects::field_selector::FieldSelector;

use super::{Caller, Wanted, impersonation, rbac};
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
        let query = Query::parse(head.uri.query());
        let route = url::route(head.uri.path()).ok_or_else(Failure::no_page)?;
        let field_name = named_by_selector(&query);
        let path = url::decode(head.uri.path(), false).ok_or_else(Failure::no_page)?;
        let verb = head.method.as_str().to_ascii_lowercase();
        let wanted = match &route {
            Route::Resource(path) => {
                Wanted::Resource(attributes(&head.method, path, &query, field_name.as_deref()))
            }
            _ => Wanted::Path { verb: &verb, path: &path },
        };
        let caller = impersonation::effective(self, caller, &head.headers, &wanted)?;
        wanted.authorize(self, &caller)?;
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

/// The name that a field selector requires.
fn named_by_selector(query: &Query) -> Option<String> {
    let fields = FieldSelector::parse(query.get("fieldSelector")?).ok()?;
    fields.required("metadata.name").map(str::to_owned)
}

/// A request for a resource, as authorization sees it.
fn attributes<'a>(
    method: &Method,
    path: &'a ResourcePath,
    query: &Query,
    field_name: Option<&'a str>,
) -> rbac::Attributes<'a> {
    let namespace = match &path.namespace {
        Some(namespace) => namespace.as_str(),
        None if path.group.is_empty() && path.resource == "namespaces" => {
            path.name.as_deref().unwrap_or_default()
        }
        None => "",
    };
    let verb = verb(method, path, query);
    rbac::Attributes {
        verb,
        group: &path.group,
        version: &path.version,
        resource: &path.resource,
        subresource: path.subresource.as_deref().unwrap_or_default(),
        namespace,
        // A list of one name is a request for that name.
        name: path
            .name
            .as_deref()
            .or_else(|| field_name.filter(|_| matches!(verb, "list" | "watch")))
            .unwrap_or_default(),
    }
}
