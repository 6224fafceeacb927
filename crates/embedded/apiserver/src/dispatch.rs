//! Dispatch: from an authorized HTTP request to the verb that serves it, and to the response.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, Request, Response, header};
use quintet_api::duration::{GoDuration, ParseDurationError};
use quintet_objects::table::IncludeObject;
use serde_json::json;

use crate::{
    aggregation,
    api::Api,
    auth::{
        Caller, MASTERS,
        permit::{self, Permitted},
    },
    compression, decode, discovery,
    encoding::{
        list,
        response::{self, Representation},
    },
    faults::Injected,
    request::{
        body::ResponseBody,
        negotiate::{self, Accepted, Offer},
        options::{DeleteOptions, ListOptions, Since, WriteOptions},
        url::{Query, ResourcePath, Route},
    },
    resources::Resource,
    status::Failure,
    verbs::{self, Output, RequestContext, patch::PatchType},
};

/// The longest deadline of a read, and of any request with a `timeout` parameter.
const READ_DEADLINE: Duration = Duration::from_mins(1);
/// The longest deadline of a write.
const WRITE_DEADLINE: Duration = Duration::from_secs(34);

impl Api {
    /// Serves a request of an authenticated user.
    pub async fn handle(&self, request: Request<Bytes>, caller: Caller) -> Response<ResponseBody> {
        let (parts, body) = request.into_parts();
        match self.permit(&parts, caller) {
            Ok(permitted) => self.respond(&parts, permitted, body).await,
            Err(failure) => self.refuse(&failure),
        }
    }

    /// Serves an authorized request.
    pub(crate) async fn respond(
        &self,
        parts: &http::request::Parts,
        permitted: Permitted,
        body: Bytes,
    ) -> Response<ResponseBody> {
        let warnings = Arc::default();
        let mut response = self
            .dispatch(parts, permitted, body, &warnings)
            .await
            .unwrap_or_else(|failure| response::failure(&failure));
        self.sign(&mut response);
        response::warnings(response.headers_mut(), &warnings.lock());
        compression::compress(parts, response).await
    }

    /// The response to a request that is not authorized.
    pub(crate) fn refuse(&self, failure: &Failure) -> Response<ResponseBody> {
        let mut response = response::failure(failure);
        self.sign(&mut response);
        response
    }

    /// Adds the headers of every response.
    fn sign(&self, response: &mut Response<ResponseBody>) {
        let headers = response.headers_mut();
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        if let Ok(id) = HeaderValue::from_str(&self.rng().uuid()) {
            headers.insert("audit-id", id);
        }
    }

    async fn dispatch(
        &self,
        parts: &http::request::Parts,
        Permitted { caller, query, route }: Permitted,
        body: Bytes,
        warnings: &Arc<parking_lot::Mutex<Vec<String>>>,
    ) -> Result<Response<ResponseBody>, Failure> {
        if body.len() > decode::BODY_AT_MOST {
            return Err(Failure::too_large(decode::BODY_AT_MOST));
        }
        if let Route::Version { group, version } | Route::Resource(ResourcePath { group, version, .. }) =
            &route
            && let Some(service) = self.services().remote(self, group, version)
        {
            return aggregation::forward(self, &service, &caller, parts, body).await;
        }
        let Route::Resource(path) = route else {
            return discovery::serve(self, parts, &route, &query);
        };
        if path.subresource.as_deref() == Some("proxy") && path.group.is_empty() {
            let registry = self.registry();
            let resource = registry.get("", &path.version, &path.resource);
            let is_served = resource.is_some_and(|resource| {
                resource.subresource("proxy").is_some() && resource.is_namespaced == path.namespace.is_some()
            });
            if !is_served {
                return Err(Failure::no_resource());
            }
            return verbs::proxy::serve(self, &path, parts, body).await;
        }
        let call = Call {
            api: self.clone(),
            parts,
            query,
            caller: Arc::new(caller),
            warnings: Arc::clone(warnings),
        };
        call.serve(path, body).await
    }
}

/// A request for a resource on its way to a verb.
struct Call<'a> {
    api: Api,
    parts: &'a http::request::Parts,
    query: Query,
    caller: Arc<Caller>,
    warnings: Arc<parking_lot::Mutex<Vec<String>>>,
}

impl Call<'_> {
    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.parts.headers.get(name)?.to_str().ok()
    }

    async fn serve(self, path: ResourcePath, body: Bytes) -> Result<Response<ResponseBody>, Failure> {
        let registry = self.api.registry();
        let verb = permit::verb(&self.parts.method, &path, &self.query);
        let Some(resource) = registry.get(&path.group, &path.version, &path.resource) else {
            return Err(match registry.group(&path.group) {
                Some(_) => Failure::no_resource(),
                None => Failure::no_page(),
            });
        };
        let is_read = matches!(verb, "get" | "list" | "watch");
        let name = path.name.as_deref().unwrap_or_default();
        let Injected { stale, lost, breaks_after } =
            self.api.faults().meet(verb, &path.resource, name).await?;
        let deadline = self.deadline(if is_read { READ_DEADLINE } else { WRITE_DEADLINE })?;
        let stale = stale.map(|changes| self.api.store().version().saturating_sub(changes));
        let work = self.verb(verb, Arc::clone(resource), path, body, (stale, breaks_after));
        match tokio::time::timeout(deadline, work).await {
            Ok(outcome) => match lost {
                Some(failure) => Err(failure),
                None => outcome,
            },
            Err(_) => Err(Failure::new(
                504,
                "Timeout",
                "Timeout: request did not complete within the allotted timeout",
            )),
        }
    }

    /// How long the request may take: what the client says, if that is less.
    fn deadline(&self, longest: Duration) -> Result<Duration, Failure> {
        let Some(asked) = self.query.get("timeout").filter(|asked| !asked.is_empty()) else {
            return Ok(longest);
        };
        let asked: GoDuration = asked.parse().map_err(|_: ParseDurationError| {
            let why = format!("time: invalid duration {asked:?}");
            Failure::bad_request(format!("invalid timeout specified in the request URL - {why}"))
        })?;
        Ok(if asked.0.is_zero() { longest } else { asked.0.min(longest) })
    }

    fn wanted(
        &self,
        resource: &Resource,
        path: &ResourcePath,
        is_watch: bool,
    ) -> Result<Representation, Failure> {
        let has_protobuf = resource.as_built_in().is_some();
        let is_action = matches!(path.subresource.as_deref(), Some("binding" | "eviction" | "token"));
        let has_table = resource.allows("get") && !is_action;
        let offer = Offer { has_protobuf, is_watch, is_resource: true, has_table };
        let include = match self.query.get("includeObject") {
            None | Some("Metadata") => IncludeObject::Metadata,
            Some("None") => IncludeObject::None,
            Some("Object") => IncludeObject::Object,
            Some(other) => {
                return Err(Failure::bad_request(format!("unrecognized includeObject value: {other:?}")));
            }
        };
        let accepted: Accepted = negotiate::negotiate(self.header(header::ACCEPT), offer)?;
        let agent = self.header(header::USER_AGENT).unwrap_or_default();
        let is_person = ["curl", "Wget", "Mozilla"].iter().any(|browser| agent.starts_with(browser));
        let is_pretty = match self.query.get("pretty") {
            Some(_) => self.query.is_set("pretty"),
            None => is_person,
        };
        Ok(Representation { accepted, include, is_pretty: is_pretty && !is_watch })
    }

    async fn verb(
        self,
        verb: &'static str,
        resource: Arc<Resource>,
        path: ResourcePath,
        body: Bytes,
        (stale, breaks_after): (Option<u64>, Option<u64>),
    ) -> Result<Response<ResponseBody>, Failure> {
        let is_watch = verb == "watch";
        let wanted = self.wanted(&resource, &path, is_watch)?;
        if resource.is_namespaced && path.namespace.is_none() && !matches!(verb, "list" | "watch") {
            // Only the collection of all namespaces has a path without one.
            let is_collection = path.name.is_none();
            return Err(if is_collection { Failure::method_not_allowed() } else { Failure::no_resource() });
        }
        if !resource.is_namespaced && path.namespace.is_some() {
            return Err(Failure::no_resource());
        }
        let options_kind = match verb {
            "create" => "CreateOptions",
            "patch" => "PatchOptions",
            "update" => "UpdateOptions",
            _ => "DeleteOptions",
        };
        let options = WriteOptions::parse(&self.query, options_kind)?;
        let agent = self.header(header::USER_AGENT).unwrap_or_default();
        let manager = options.field_manager.clone().unwrap_or_else(|| {
            let agent = agent.split('/').next().unwrap_or_default();
            let agent: String = agent.chars().filter(|c| !c.is_control()).take(128).collect();
            if agent.is_empty() { "unknown".into() } else { agent }
        });
        let subresource = path.subresource.clone().unwrap_or_default();
        let context = RequestContext {
            api: self.api.clone(),
            caller: Arc::clone(&self.caller),
            resource: Arc::clone(&resource),
            namespace: path.namespace.clone().unwrap_or_default(),
            name: path.name.clone().unwrap_or_default(),
            subresource: subresource.clone(),
            options,
            manager,
            now: self.api.now(),
            warnings: Arc::clone(&self.warnings),
        };
        // Whatever becomes of the request: clients of this version have to move on.
        if let Some(warning) = resource.as_custom().and_then(|custom| custom.deprecation.as_deref()) {
            context.warn(warning);
        }
        if !subresource.is_empty() {
            let Some(sub) = resource.subresource(&subresource) else {
                return Err(if resource.as_custom().is_some() {
                    Failure::not_found(context.named())
                } else {
                    Failure::no_resource()
                });
            };
            if !sub.verbs.iter().any(|one| one == verb) && !verbs::connect::takes_any_verb(&subresource) {
                return Err(Failure::method_not_allowed());
            }
        } else if !resource.allows(verb)
            || (verb == "create" && path.name.is_some())
            || (matches!(verb, "update" | "patch") && path.name.is_none())
        {
            return Err(Failure::method_not_allowed());
        }
        if let Some(response) =
            verbs::connect::serve(&context, verb, &self.query, self.parts, &body, wanted).await
        {
            return response;
        }
        match verb {
            "get" => {
                if let Some(rv) = self.query.get("resourceVersion").filter(|rv| !rv.is_empty()) {
                    let rv = rv.parse().map_err(|_| {
                        let why = format!("strconv.ParseUint: parsing {rv:?}: invalid syntax");
                        Failure::untyped(format!("resourceVersion: Invalid value: {rv:?}: {why}"))
                    })?;
                    verbs::list::wait_for(&context, rv).await?;
                }
                let entry = match stale {
                    None => context.entry()?,
                    Some(rv) => context.entry_at(rv)?,
                };
                if subresource == "scale" {
                    let object = self.api.load(&resource, &entry).await?;
                    return response::value(200, &verbs::scale::of(&context, &object)?, wanted);
                }
                response::object(&self.api, &resource, 200, Output::Entry(entry), wanted).await
            }
            "list" => {
                let mut options = ListOptions::parse(&self.query, false)?;
                let is_known = |rv: &u64| self.api.store().keeps(&resource.bucket, *rv);
                if let Some(rv) = stale.filter(is_known).filter(|_| options.continue_token.is_none()) {
                    options.since = Since::Exactly(rv);
                }
                let page = verbs::list::list(&context, &options).await?;
                let is_privileged = self.caller.is_in(MASTERS);
                list::list(&self.api, &resource, page, wanted, is_privileged).await
            }
            "watch" => {
                let options = ListOptions::parse(&self.query, true)?;
                let events = verbs::watch::watch(&context, &options, wanted.accepted, wanted.include).await?;
                let events = match breaks_after {
                    None => ResponseBody::stream(events),
                    Some(count) => {
                        ResponseBody::stream(events.take(usize::try_from(count).unwrap_or(usize::MAX)))
                    }
                };
                let mut response = Response::new(events);
                let content_type = wanted.accepted.format.content_type(true);
                response.headers_mut().insert(header::CONTENT_TYPE, content_type.header());
                Ok(response)
            }
            "create" => {
                let object = decode::object(&context, self.header(header::CONTENT_TYPE), &body)?;
                let shown = verbs::create::create(&context, object).await?;
                response::object(&self.api, &resource, 201, shown, wanted).await
            }
            "update" => {
                let object = decode::object(&context, self.header(header::CONTENT_TYPE), &body)?;
                if subresource == "scale" {
                    let outcome = verbs::scale::change(&context, true, |_| Ok(object.clone())).await?;
                    return response::value(200, &outcome, wanted);
                }
                let (written, is_new) = verbs::update::replace(&context, object).await?;
                response::object(&self.api, &resource, if is_new { 201 } else { 200 }, written, wanted).await
            }
            "patch" => {
                let is_custom = resource.as_custom().is_some() && subresource != "scale";
                let kind = PatchType::of(decode::media_type(self.header(header::CONTENT_TYPE)), is_custom)?;
                let (patched, is_new) = verbs::patch::patch(&context, kind, &body).await?;
                if subresource == "scale"
                    && let Output::Value(scale) = &patched
                {
                    return response::value(200, scale, wanted);
                }
                response::object(&self.api, &resource, if is_new { 201 } else { 200 }, patched, wanted).await
            }
            "delete" => {
                let options = self.delete_options(&body)?;
                let context = context.with_dry_run(options.is_dry_run);
                let shown = verbs::delete::delete(&context, &options).await?;
                response::object(&self.api, &resource, 200, shown, wanted).await
            }
            "deletecollection" => {
                let list = ListOptions::parse(&self.query, false)?;
                let options = self.delete_options(&body)?;
                let context = context.with_dry_run(options.is_dry_run);
                let items = verbs::delete::delete_collection(&context, &list, &options).await?;
                let rv = self.api.store().version().to_string();
                let list = json!({
                    "kind": &*resource.list_kind, "apiVersion": &*resource.api_version,
                    "metadata": {"resourceVersion": rv}, "items": items,
                });
                response::value(200, &list, Representation { accepted: response::PLAIN, ..wanted })
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// A body replaces all options of the query.
    fn delete_options(&self, body: &Bytes) -> Result<DeleteOptions, Failure> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return DeleteOptions::from_query(&self.query);
        }
        DeleteOptions::from_value(&decode::any(
            self.header(header::CONTENT_TYPE),
            body,
            Some(("meta.k8s.io/v1", "DeleteOptions")),
            None,
        )?)
    }
}
