//! The request path: from an HTTP request to its answer, without a socket in sight.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use parking_lot::RwLock;
use quintet_api::{
    crd::Maker,
    duration::{GoDuration, ParseDurationError},
};
use quintet_objects::table::IncludeObject;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission, aggregation,
    auth::{
        self, Caller,
        permit::{self, Permitted},
        rbac,
    },
    chance::Chance,
    clock::Clock,
    collector, compression, crd, decode, discovery,
    faults::{Faults, Twist},
    model,
    request::{
        body::Answer,
        negotiate::{self, Accepted, Offer},
        options::{DeleteOptions, ListOptions, Since, WriteOptions},
        url::{Place, Query, ResourcePath},
    },
    resources::{Registry, Resource},
    show::{self, Wanted},
    status::Failure,
    store::{Entry, Put, Store, Write, WriteError},
    verbs::{self, Ask, Shown, patch::PatchType},
};

/// Longest a read may take, and any request whatever the client asks for.
const READ_DEADLINE: Duration = Duration::from_mins(1);
/// Longest a write may take.
const WRITE_DEADLINE: Duration = Duration::from_secs(34);

/// The largest object that is kept: as large as a request may be.
const OBJECT_AT_MOST: usize = decode::BODY_AT_MOST;
/// The deepest one: JSON is read up to 128 levels, and an object must be readable again.
const DEPTH_AT_MOST: usize = 120;

/// How long the end of the server waits for requests under way.
const STOP_DEADLINE: Duration = Duration::from_secs(3);

/// Converts objects of custom kinds without a webhook: the object, and the API version wanted. `None` if
/// it does not know the kind.
pub type Converter = Arc<dyn Fn(&Value, &str) -> Option<Result<Value, String>> + Send + Sync>;

/// What an API is made of.
pub struct Parts {
    /// Where objects are.
    pub store: Store,
    /// Signs and checks tokens of service accounts.
    pub tokens: auth::tokens::Tokens,
    /// Converts custom kinds in process.
    pub converter: Option<Converter>,
    /// The certificates that clients trust, as PEM.
    pub ca: String,
    /// Where clients reach the server, as `host:port`.
    pub address: String,
    /// What time it is.
    pub clock: Clock,
    /// What is made up.
    pub chance: Chance,
}

/// A Kubernetes API. Clones are the same one.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

struct Inner {
    parts: Parts,
    registry: RwLock<Arc<Registry>>,
    /// Held while the registry is made anew, so that an older one never replaces a newer one.
    renewal: parking_lot::Mutex<()>,
    faults: Faults,
    pub(crate) rbac: rbac::Cache,
    pub(crate) webhooks: admission::webhooks::Webhooks,
    pub(crate) documents: discovery::Documents,
    ledger: admission::Ledger,
    policies: admission::Policies,
    services: aggregation::Services,
    /// Ends every watch when the server stops.
    stop: CancellationToken,
    /// Ends every watch once, when a fault says so; then replaced.
    cut: RwLock<CancellationToken>,
    tasks: TaskTracker,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("store", &self.0.parts.store).finish_non_exhaustive()
    }
}

impl Api {
    /// An API on a store, with the objects every cluster has. Needs a Tokio runtime for its background work.
    pub async fn start(parts: Parts) -> Result<Self, Failure> {
        let api = Self::new(parts, Arc::new(Registry::new(Vec::new())));
        crd::refresh(&api);
        collector::bootstrap::install(&api).await?;
        aggregation::publish(&api).await?;
        api.catch_up().await;
        api.run();
        Ok(api)
    }

    /// An API that keeps nothing and listens nowhere, with definitions of custom kinds installed as they are: for
    /// tests, and for simulations to [fork](Self::fork) from.
    pub async fn in_memory(definitions: &[Value]) -> Result<Self, Failure> {
        let (tokens, _) = auth::tokens::Tokens::generate().map_err(Failure::internal)?;
        let parts = Parts {
            store: Store::in_memory(),
            tokens,
            converter: None,
            ca: String::new(),
            address: "127.0.0.1:6443".into(),
            clock: Clock::system(),
            chance: Chance::seeded(0),
        };
        let api = Self::start(parts).await?;
        let makers = definitions.iter().map(|definition| -> Maker {
            let definition = definition.clone();
            Box::new(|| Some(definition))
        });
        api.define("quintet", makers).await?;
        Ok(api)
    }

    fn new(parts: Parts, registry: Arc<Registry>) -> Self {
        let stop = CancellationToken::new();
        Self(Arc::new(Inner {
            parts,
            registry: RwLock::new(registry),
            renewal: parking_lot::Mutex::new(()),
            faults: Faults::default(),
            rbac: rbac::Cache::default(),
            webhooks: admission::webhooks::Webhooks::default(),
            documents: discovery::Documents::default(),
            ledger: admission::Ledger::default(),
            policies: admission::Policies::default(),
            services: aggregation::Services::default(),
            cut: RwLock::new(stop.child_token()),
            stop,
            tasks: TaskTracker::new(),
        }))
    }

    fn run(&self) {
        collector::start(self);
        aggregation::start(self);
    }

    /// Another API that begins with the objects of this one, and has a time and a chance of its own. It shares what
    /// does not change, so that a simulation can make thousands of them. What is written to one is not seen in the
    /// other, and the other is not written to disk.
    #[must_use]
    pub fn fork(&self, clock: Clock, chance: Chance) -> Self {
        let Parts { store, tokens, converter, ca, address, .. } = &self.0.parts;
        let parts = Parts {
            store: store.fork(),
            tokens: tokens.clone(),
            converter: converter.clone(),
            ca: ca.clone(),
            address: address.clone(),
            clock,
            chance,
        };
        let fork = Self::new(parts, self.registry());
        fork.run();
        fork
    }

    /// Ends watches and background work.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        // Requests under way are answered, unless they take too long.
        let _ = tokio::time::timeout(STOP_DEADLINE, self.0.tasks.wait()).await;
    }

    /// Where objects are.
    pub fn store(&self) -> &Store {
        &self.0.parts.store
    }

    /// Ways to make it fail on purpose; none are on unless turned on here.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// What is served at the moment.
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.0.registry.read())
    }

    /// Ends all watches that are being read; clients resume.
    pub fn drop_watches(&self) {
        let fresh = self.0.stop.child_token();
        let old = std::mem::replace(&mut *self.0.cut.write(), fresh);
        old.cancel();
    }

    /// Replaces the registry by what `make` makes of it.
    pub(crate) fn renew_registry(&self, make: impl FnOnce(&Registry) -> Registry) {
        let _renewal = self.0.renewal.lock();
        let fresh = Arc::new(make(&self.registry()));
        *self.0.registry.write() = fresh;
        self.0.documents.forget();
    }

    /// What time it is for this API.
    pub fn now(&self) -> jiff::Timestamp {
        self.0.parts.clock.now()
    }

    pub(crate) fn chance(&self) -> &Chance {
        &self.0.parts.chance
    }

    pub(crate) fn watch_cut(&self) -> CancellationToken {
        self.0.cut.read().clone()
    }

    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.0.stop
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.0.stop.clone();
        self.0.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Work that ends by itself soon after the server stops.
    pub(crate) fn spawn_draining<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.0.tasks.spawn(task)
    }

    pub(crate) fn rbac(&self) -> &rbac::Cache {
        &self.0.rbac
    }

    pub(crate) fn webhooks(&self) -> &admission::webhooks::Webhooks {
        &self.0.webhooks
    }

    pub(crate) fn ledger(&self) -> &admission::Ledger {
        &self.0.ledger
    }

    pub(crate) fn policies(&self) -> &admission::Policies {
        &self.0.policies
    }

    pub(crate) fn services(&self) -> &aggregation::Services {
        &self.0.services
    }

    pub(crate) fn documents(&self) -> &discovery::Documents {
        &self.0.documents
    }

    pub(crate) fn tokens(&self) -> &auth::tokens::Tokens {
        &self.0.parts.tokens
    }

    pub(crate) fn converter(&self) -> Option<&Converter> {
        self.0.parts.converter.as_ref()
    }

    pub(crate) fn ca(&self) -> &str {
        &self.0.parts.ca
    }

    /// Where clients reach the server, as `host:port`.
    pub fn address(&self) -> &str {
        &self.0.parts.address
    }

    /// A resource that is always there.
    pub(crate) fn built_in(&self, group: &str, plural: &str) -> Result<Arc<Resource>, Failure> {
        let registry = self.registry();
        let found = registry.get(group, "v1", plural).cloned();
        found.ok_or_else(|| Failure::internal(format!("{plural} are not served")))
    }

    /// Carries out a change, unless a fault is in the way.
    pub(crate) async fn write(&self, write: Write) -> Result<Arc<Entry>, WriteError> {
        self.store().write(write).await
    }

    /// Whether stored bytes are what a reader of this resource gets.
    pub(crate) fn reads_raw(resource: &Resource, entry: &Entry) -> bool {
        resource.reads_as_stored()
            && entry.version == resource.storage_version
            && entry.epoch == resource.epoch
    }

    /// A stored object in the version of a resource.
    pub(crate) async fn load(&self, resource: &Resource, entry: &Entry) -> Result<Value, Failure> {
        let group = resource.storage_api_version.split_once('/').map_or("", |(group, _)| group);
        let stored = crate::resources::api_version(group, &entry.version);
        let object = entry.to_value(&stored, &resource.kind);
        match resource.as_custom() {
            None => Ok(model::convert_built_in(resource, object)),
            Some(custom) => {
                let mut object = if stored == *resource.api_version {
                    object
                } else {
                    crd::conversion::convert(self, custom, object, &resource.api_version).await?
                };
                if entry.epoch != resource.epoch || stored != *resource.api_version {
                    model::refresh_custom(custom, &mut object);
                }
                Ok(object)
            }
        }
    }

    /// An object as it is stored.
    pub(crate) async fn encode(&self, resource: &Resource, object: &Value) -> Result<Put, Failure> {
        let object = if resource.reads_as_stored() {
            Cow::Borrowed(object)
        } else {
            let mut object = object.clone();
            match resource.as_custom() {
                None => quintet_objects::builtin::convert(&mut object, &resource.storage_api_version),
                Some(custom) => {
                    object =
                        crd::conversion::convert(self, custom, object, &resource.storage_api_version).await?;
                }
            }
            Cow::Owned(object)
        };
        if crate::json::is_deeper(&object, DEPTH_AT_MOST) {
            return Err(Failure::bad_request(format!(
                "the object is nested too deeply: at most {DEPTH_AT_MOST} levels can be stored"
            )));
        }
        let put = Put::new(Arc::clone(&resource.storage_version), &object, resource.epoch);
        if put.body.len() > OBJECT_AT_MOST {
            return Err(Failure::too_large(OBJECT_AT_MOST));
        }
        Ok(put)
    }

    /// Answers a request of somebody whose identity is known.
    pub async fn handle(&self, request: Request<Bytes>, caller: Caller) -> Response<Answer> {
        let (parts, body) = request.into_parts();
        match self.permit(&parts, caller) {
            Ok(permitted) => self.answer(&parts, permitted, body).await,
            Err(failure) => self.refuse(&failure),
        }
    }

    /// Answers a request that is permitted.
    pub(crate) async fn answer(
        &self,
        parts: &http::request::Parts,
        permitted: Permitted,
        body: Bytes,
    ) -> Response<Answer> {
        let warnings = Arc::default();
        let mut response = self
            .dispatch(parts, permitted, body, &warnings)
            .await
            .unwrap_or_else(|failure| show::failure(&failure));
        self.sign(&mut response);
        show::warnings(response.headers_mut(), &warnings.lock());
        compression::compress(parts, response).await
    }

    /// The answer to a request that is not.
    pub(crate) fn refuse(&self, failure: &Failure) -> Response<Answer> {
        let mut response = show::failure(failure);
        self.sign(&mut response);
        response
    }

    /// Adds what every answer has.
    fn sign(&self, response: &mut Response<Answer>) {
        let headers = response.headers_mut();
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        if let Ok(id) = HeaderValue::from_str(&self.chance().uuid()) {
            headers.insert("audit-id", id);
        }
    }

    async fn dispatch(
        &self,
        parts: &http::request::Parts,
        Permitted { caller, query, place }: Permitted,
        body: Bytes,
        warnings: &Arc<parking_lot::Mutex<Vec<String>>>,
    ) -> Result<Response<Answer>, Failure> {
        if body.len() > decode::BODY_AT_MOST {
            return Err(Failure::too_large(decode::BODY_AT_MOST));
        }
        if let Place::Version { group, version } | Place::Resource(ResourcePath { group, version, .. }) =
            &place
            && let Some(service) = self.services().remote(self, group, version)
        {
            return aggregation::pass_on(self, &service, &caller, parts, body).await;
        }
        let Place::Resource(path) = place else {
            return discovery::serve(self, parts, &place, &query);
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
            headers: &parts.headers,
            method: &parts.method,
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
    headers: &'a HeaderMap,
    method: &'a Method,
    query: Query,
    caller: Arc<Caller>,
    warnings: Arc<parking_lot::Mutex<Vec<String>>>,
}

impl Call<'_> {
    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    async fn serve(self, path: ResourcePath, body: Bytes) -> Result<Response<Answer>, Failure> {
        let registry = self.api.registry();
        let verb = permit::verb(self.method, &path, &self.query);
        let Some(resource) = registry.get(&path.group, &path.version, &path.resource) else {
            return Err(match registry.group(&path.group) {
                Some(_) => Failure::no_resource(),
                None => Failure::no_page(),
            });
        };
        let is_read = matches!(verb, "get" | "list" | "watch");
        let name = path.name.as_deref().unwrap_or_default();
        let Twist { stale, lost, breaks_after } = self.api.faults().meet(verb, &path.resource, name).await?;
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

    fn wanted(&self, resource: &Resource, is_watch: bool) -> Result<Wanted, Failure> {
        let has_protobuf = resource.as_built_in().is_some();
        let offer = Offer { has_protobuf, is_watch, is_resource: true };
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
        Ok(Wanted { accepted, include, is_pretty: is_pretty && !is_watch })
    }

    async fn verb(
        self,
        verb: &'static str,
        resource: Arc<Resource>,
        path: ResourcePath,
        body: Bytes,
        (stale, breaks_after): (Option<u64>, Option<u64>),
    ) -> Result<Response<Answer>, Failure> {
        let is_watch = verb == "watch";
        let wanted = self.wanted(&resource, is_watch)?;
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
        let ask = Ask {
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
        if !subresource.is_empty() {
            let Some(sub) = resource.subresource(&subresource) else {
                return Err(if resource.as_custom().is_some() {
                    Failure::not_found(ask.named())
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
            verbs::connect::serve(&ask, verb, &self.query, self.header(header::CONTENT_TYPE), &body, wanted)
                .await
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
                    verbs::list::wait_for(&ask, rv).await?;
                }
                let entry = match stale {
                    None => ask.entry()?,
                    Some(rv) => ask.entry_at(rv)?,
                };
                if subresource == "scale" {
                    let object = self.api.load(&resource, &entry).await?;
                    return show::value(200, &verbs::scale::of(&ask, &object)?, wanted);
                }
                show::object(&self.api, &resource, 200, Shown::Entry(entry), wanted).await
            }
            "list" => {
                let mut options = ListOptions::parse(&self.query, false)?;
                if let Some(rv) = stale.filter(|_| options.continue_token.is_none()) {
                    options.since = Since::Exactly(rv);
                }
                let page = verbs::list::list(&ask, &options).await?;
                show::list(&self.api, &resource, page, wanted).await
            }
            "watch" => {
                let options = ListOptions::parse(&self.query, true)?;
                let events = verbs::watch::watch(&ask, &options, wanted.accepted, wanted.include).await?;
                let events = match breaks_after {
                    None => Answer::stream(events),
                    Some(count) => Answer::stream(events.take(usize::try_from(count).unwrap_or(usize::MAX))),
                };
                let mut response = Response::new(events);
                let content_type = wanted.accepted.format.content_type(true);
                response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
                Ok(response)
            }
            "create" => {
                let object = decode::object(&ask, self.header(header::CONTENT_TYPE), &body)?;
                let shown = verbs::create::create(&ask, object).await?;
                show::object(&self.api, &resource, 201, shown, wanted).await
            }
            "update" => {
                let object = decode::object(&ask, self.header(header::CONTENT_TYPE), &body)?;
                if subresource == "scale" {
                    let outcome = verbs::scale::change(&ask, true, |_| Ok(object.clone())).await?;
                    return show::value(200, &outcome, wanted);
                }
                let (written, is_new) = verbs::update::replace(&ask, object).await?;
                show::object(&self.api, &resource, if is_new { 201 } else { 200 }, written, wanted).await
            }
            "patch" => {
                let is_custom = resource.as_custom().is_some() && subresource != "scale";
                let kind = PatchType::of(decode::media_type(self.header(header::CONTENT_TYPE)), is_custom)?;
                let (patched, is_new) = verbs::patch::patch(&ask, kind, &body).await?;
                if subresource == "scale"
                    && let Shown::Value(scale) = &patched
                {
                    return show::value(200, scale, wanted);
                }
                show::object(&self.api, &resource, if is_new { 201 } else { 200 }, patched, wanted).await
            }
            "delete" => {
                let options = self.delete_options(&body)?;
                let ask = ask.for_show(options.is_dry_run);
                let shown = verbs::delete::delete(&ask, &options).await?;
                show::object(&self.api, &resource, 200, shown, wanted).await
            }
            "deletecollection" => {
                let list = ListOptions::parse(&self.query, false)?;
                let options = self.delete_options(&body)?;
                let ask = ask.for_show(options.is_dry_run);
                let items = verbs::delete::delete_collection(&ask, &list, &options).await?;
                let rv = self.api.store().version().to_string();
                let list = json!({
                    "kind": &*resource.list_kind, "apiVersion": &*resource.api_version,
                    "metadata": {"resourceVersion": rv}, "items": items,
                });
                show::value(200, &list, Wanted { accepted: show::PLAIN, ..wanted })
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
