//! A cluster in memory with an operator on it, which may do no more than its descriptor asks for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{Method, Request};
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use kube::Client;
use quintet_api::config::Configuration;
use quintet_api::crd::{self, Definition, WebhookService};
use quintet_apiserver::kubelet::Handler;
use quintet_apiserver::server::{self, certificates::Authority};
use quintet_apiserver::{Api, Caller, Clock, Rng};
use quintet_component::{
    Component, Context, Operator, Permissions, Platform, Process, Webhook, WebhookKind, WebhookScope,
};
use quintet_controller::Runtime;
use quintet_controller::aggregated::ApiHandler;
use quintet_controller::metrics::MetricsRegistry;
use quintet_controller::webhook::Routes;
use serde_json::{Value, json};

use crate::admission::Admission;
use crate::case::Answer;
use crate::optional_kinds;

/// When every world begins.
const START: &str = "2026-01-01T00:00:00Z";
/// Who the operator is.
const OPERATOR: &str = "quintet-operator";

/// How an operator is configured.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// The configuration file.
    pub configuration: Configuration,
    /// Environment variables.
    pub variables: BTreeMap<String, String>,
}

/// Namespace and name of an object of a kind, as recordings write it: `Kind namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The kind.
    pub kind: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectId {
    /// Reads `Kind namespace/name` or `Kind name`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (kind, key) = text.split_once(' ').ok_or_else(|| format!("not an object: {text}"))?;
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        Ok(Self { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// That of an object.
    pub fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        Self {
            kind: text(&object["kind"]),
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
        }
    }
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// A kind that the cluster serves.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    name: String,
    api_version: String,
    plural: String,
    namespaced: bool,
}

impl Kind {
    fn collection(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "/apis/" } else { "/api/" };
        let place = if self.namespaced && !namespace.is_empty() {
            format!("namespaces/{namespace}/")
        } else {
            String::new()
        };
        format!("{root}{}/{place}{}", self.api_version, self.plural)
    }
}

/// The cluster.
pub struct World {
    api: Api,
    clock: Clock,
    client: Client,
    kinds: Vec<Kind>,
    runtime: Option<Runtime>,
    metrics: MetricsRegistry,
    hooks: Vec<Hook>,
    routes: Routes,
    /// Asked about creations by clients of [`World::admitting_client`].
    admission: Admission,
    /// What Kubernetes itself does, if it does.
    cluster: Option<Cluster>,
    /// A number that nothing else in this world was given.
    starts: u64,
    /// Ends what else runs in this world.
    at_stop: Mutex<Vec<BoxFuture<'static, ()>>>,
}

/// Controllers of Kubernetes and simulated nodes.
struct Cluster {
    controllers: quintet_controllers::Controllers,
    nodes: quintet_node::Simulation,
}

/// An admission webhook of the operator.
#[derive(Clone)]
pub(crate) struct Hook {
    pub(crate) kind: WebhookKind,
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    rules: Vec<RuleWithOperations>,
}

impl Hook {
    /// Whether it is asked about an operation on an object of this group, version and resource.
    pub(crate) fn wants(&self, operation: &str, group: &str, version: &str, resource: &str) -> bool {
        let names = |list: &Option<Vec<String>>, one: &str| {
            list.iter().flatten().any(|name| name == one || name == "*")
        };
        self.rules.iter().any(|rule| {
            names(&rule.operations, operation)
                && names(&rule.api_groups, group)
                && names(&rule.api_versions, version)
                && names(&rule.resources, resource)
        })
    }
}

/// The Service by which the API reaches the operator's webhooks.
const SERVICE: (&str, &str) = ("quintet-system", "quintet");

/// An API with the kinds of a component and some of others, to fork worlds from.
pub async fn template(component: &Component, optional: &[String]) -> Result<Api, String> {
    template_of(&(component.crds)(), optional).await
}

/// An API with these kinds and some of others, to fork worlds from.
pub async fn template_of(definitions: &[Definition], optional: &[String]) -> Result<Api, String> {
    let others = optional.iter().map(|kind| optional_kinds::definition(kind));
    template_with(definitions, others.collect::<Result<_, _>>()?).await
}

/// An API with these kinds and others whose CustomResourceDefinitions are given as they are, to fork worlds from.
pub async fn template_with(definitions: &[Definition], others: Vec<Value>) -> Result<Api, String> {
    let service = WebhookService { namespace: SERVICE.0.into(), name: SERVICE.1.into() };
    let own = crd::manifests(definitions, &service);
    let mut definitions = Vec::new();
    for definition in own {
        definitions.push(serde_json::to_value(definition).map_err(|error| error.to_string())?);
    }
    definitions.extend(others);
    Api::in_memory(&definitions).await.map_err(|error| format!("cannot start the API: {error:?}"))
}

impl World {
    /// A world of its own with these namespaces. What is random in it follows from the seed.
    pub async fn new(template: &Api, seed: u64, namespaces: &[String]) -> Result<Self, String> {
        let start = START.parse().map_err(|error| format!("{START}: {error}"))?;
        let clock = Clock::simulated(start);
        let api = template.fork(clock.clone(), Rng::seeded(seed));
        let client = api.admin_client();
        let (hooks, routes) = (Vec::new(), Routes::new());
        let mut world = Self {
            api,
            clock,
            client,
            kinds: Vec::new(),
            runtime: None,
            metrics: MetricsRegistry::default(),
            hooks,
            routes,
            admission: Admission::default(),
            cluster: None,
            starts: seed,
            at_stop: Mutex::default(),
        };
        world.kinds = world.discover().await?;
        for namespace in namespaces {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            let answer = world.create(&object).await?;
            if answer.code != 201 {
                return Err(format!("cannot create namespace {namespace}: {answer:?}"));
            }
        }
        Ok(world)
    }

    /// Starts the operator as it would be started on a cluster, with the rights of its descriptor.
    pub async fn start(&mut self, component: &Component, setting: &Setting) -> Result<(), String> {
        let operator = self.configure(component, setting).await?;
        self.grant(OPERATOR, &operator.permissions).await?;
        let client = self.api.client(Caller::known(OPERATOR, []));
        self.starts += 1;
        let (runtime, metrics) = Runtime::alone(client.clone(), &self.clock, "golden", Some(self.starts));
        let clock = &self.clock;
        let process =
            Process { runtime: &runtime, client: &client, clock, metrics: &metrics, concurrency: 4 };
        (operator.start)(&process).map_err(|error| error.to_string())?;
        for api in operator.apis {
            for version in api.versions {
                let served =
                    self.api.serve_group((api.group, version), api.service.name, serve(&api.handler));
                served.await.map_err(|error| error.to_string())?;
            }
        }
        for webhook in operator.webhooks {
            let Webhook { kind, name, path, rules, handler, .. } = webhook;
            self.routes = handler(self.routes.clone(), &runtime).map_err(|error| error.to_string())?;
            self.hooks.push(Hook { kind, name, path, rules });
        }
        self.admission.set(self.hooks.clone(), self.routes.clone());
        runtime.start();
        (self.runtime, self.metrics) = (Some(runtime), metrics);
        Ok(())
    }

    /// Runs the controllers of Kubernetes and simulated nodes. From now on the creations of users and controllers are
    /// admitted by the webhooks of the operator, if it runs.
    pub async fn run_cluster(&mut self, nodes: quintet_node::NodeShape) -> Result<(), String> {
        self.client = self.admission.client(self.api.admin_client());
        let seed = Some(self.starts);
        let settings = quintet_controllers::Settings { seed, ..quintet_controllers::Settings::default() };
        let controllers = quintet_controllers::start(self.client.clone(), &self.clock, &settings).await;
        let controllers = controllers.map_err(|error| error.to_string())?;
        let settings = quintet_node::Settings { nodes, schedule: false };
        let nodes =
            quintet_node::Simulation::start_at(self.client.clone(), settings, self.clock.clone(), seed).await;
        let nodes = nodes.map_err(|error| error.to_string())?;
        self.cluster = Some(Cluster { controllers, nodes });
        Ok(())
    }

    /// Lets the API ask the operator's webhooks about every request, as on a cluster.
    pub async fn serve_webhooks(&self, component: &Component, setting: &Setting) -> Result<(), String> {
        let operator = self.configure(component, setting).await?;
        let scope = WebhookScope { namespace: SERVICE.0, service: SERVICE.1, watched: &[] };
        for kind in [WebhookKind::Mutating, WebhookKind::Validating] {
            let of_kind = operator.webhooks.iter().filter(|webhook| webhook.kind == kind);
            let webhooks: Vec<_> = of_kind.map(|webhook| webhook.registration(&scope)).collect();
            if webhooks.is_empty() {
                continue;
            }
            let object = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind.configuration_kind(),
                "metadata": {"name": OPERATOR}, "webhooks": webhooks,
            });
            let answer = self.create(&object).await?;
            if !matches!(answer.code, 201 | 409) {
                return Err(format!("cannot register webhooks: {answer:?}"));
            }
        }
        self.answer(self.routes.clone(), component);
        Ok(())
    }

    /// Serves the API on a port of this machine until the world ends, and returns a kubeconfig of its administrator.
    /// Time has to be real: simulated time does not wait for sockets.
    pub async fn serve_https(&self) -> Result<String, String> {
        let failed = |error: &dyn std::fmt::Display| format!("cannot serve HTTPS: {error}");
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = server::listen(address).await.map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        let authority = Authority::generate().map_err(|error| failed(&error))?;
        let tls = server::tls(&authority, &[address.ip().to_string()]).map_err(|error| failed(&error))?;
        let served = server::serve(self.api.clone(), listener, tls);
        #[expect(clippy::disallowed_methods, reason = "ends with the API")]
        drop(tokio::spawn(served));
        authority.kubeconfig(&format!("https://{address}")).map_err(|error| failed(&error))
    }

    /// Lets the API ask how objects of the component are converted between versions.
    pub fn serve_conversion(&self, component: &Component) {
        self.answer(Routes::new(), component);
    }

    fn answer(&self, mut routes: Routes, component: &Component) {
        if let Some(convert) = component.convert {
            routes = routes.convert(crd::CONVERSION_PATH, move |object, api_version| {
                convert(object, api_version).map_err(|error| error.to_string())
            });
        }
        self.api.answer_webhooks(
            SERVICE.0,
            SERVICE.1,
            Some(Arc::new(move |path, review, limit| {
                let routes = routes.clone();
                async move { routes.handle(&path, review, limit).await.map_err(|error| error.to_string()) }
                    .boxed()
            })),
        );
    }

    /// A client for a user of the world.
    pub fn client(&self, caller: Caller) -> Client {
        self.api.client(caller)
    }

    /// The clock of the world.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Grants the rights of the descriptor, as [`World::start`] does first.
    pub async fn grant_to(&self, component: &Component, setting: &Setting) -> Result<(), String> {
        let operator = self.configure(component, setting).await?;
        self.grant(OPERATOR, &operator.permissions).await
    }

    /// Starts another operator, with rights of its own and without its webhooks. It runs until the world ends.
    pub async fn accompany(&mut self, component: &Component, setting: &Setting) -> Result<(), String> {
        let operator = self.configure(component, setting).await?;
        let name = format!("{OPERATOR}-{}", component.name());
        self.grant(&name, &operator.permissions).await?;
        let client = self.api.client(Caller::known(name, []));
        self.starts += 1;
        let (runtime, metrics) = Runtime::alone(client.clone(), &self.clock, "golden", Some(self.starts));
        let clock = &self.clock;
        let process =
            Process { runtime: &runtime, client: &client, clock, metrics: &metrics, concurrency: 4 };
        (operator.start)(&process).map_err(|error| error.to_string())?;
        runtime.start();
        self.at_stop(async move { drop(runtime.shut_down().await) });
        Ok(())
    }

    async fn configure(&self, component: &Component, setting: &Setting) -> Result<Operator, String> {
        let platform = Platform::discover(&self.client).await.map_err(|error| error.to_string())?;
        let environment = |name: &str| setting.variables.get(name).cloned();
        let context = Context {
            configuration: &setting.configuration,
            environment: &environment,
            platform: &platform,
            is_outside: false,
        };
        let configure = component.configure.ok_or("the component has no controllers")?;
        configure(&context)
    }

    async fn grant(&self, user: &str, permissions: &Permissions) -> Result<(), String> {
        let mut rules = vec![json!({
            "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"],
        })];
        let Permissions { namespaced, cluster, own } = permissions;
        rules.extend([namespaced, cluster, own].into_iter().flatten().map(|rule| json!(rule)));
        let api_version = "rbac.authorization.k8s.io/v1";
        let metadata = json!({"name": user});
        let role =
            json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": metadata, "rules": rules});
        let binding = json!({
            "apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        for object in [role, binding] {
            let answer = self.create(&object).await?;
            // An operator that is started again has them.
            if !matches!(answer.code, 201 | 409) {
                return Err(format!("cannot grant the operator its rights: {answer:?}"));
            }
        }
        Ok(())
    }

    /// Ends the operator in the middle of what it does.
    pub fn kill(&mut self) {
        (self.hooks, self.routes) = (Vec::new(), Routes::new());
        self.admission.set(Vec::new(), Routes::new());
        if let Some(runtime) = self.runtime.take() {
            runtime.queue().close();
            runtime.tasks().stop();
        }
    }

    /// Whether the operator was started and not killed.
    pub fn is_running(&self) -> bool {
        self.runtime.is_some()
    }

    /// The admission webhooks of the operator, in the order of its descriptor.
    pub(crate) fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// What answers them.
    pub(crate) fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The name of a kind in paths.
    pub(crate) fn resource(&self, kind: &str) -> Result<&str, String> {
        self.kind(kind).map(|kind| kind.plural.as_str())
    }

    /// Asks a webhook of the operator directly.
    pub async fn ask(&self, path: &str, review: Value) -> Result<Value, String> {
        const LIMIT: Duration = Duration::from_secs(10);
        self.routes.handle(path, review, LIMIT).await.map_err(|error| error.to_string())
    }

    /// What goes wrong in this world.
    pub fn faults(&self) -> &quintet_apiserver::faults::Faults {
        self.api.faults()
    }

    /// Lets the cluster serve another kind.
    pub async fn serve(&mut self, kind: &str) -> Result<(), String> {
        let answer = self.create(&optional_kinds::definition(kind)?).await?;
        if answer.code != 201 {
            return Err(format!("cannot define {kind}: {answer:?}"));
        }
        // It is established by the time that the response is read.
        self.kinds = self.discover().await?;
        Ok(())
    }

    /// Ends something that was started in this world together with it.
    pub fn at_stop(&mut self, end: impl Future<Output = ()> + Send + 'static) {
        self.at_stop.get_mut().unwrap_or_else(PoisonError::into_inner).push(end.boxed());
    }

    /// Ends everything.
    pub async fn stop(self) {
        if let Some(runtime) = &self.runtime {
            runtime.shut_down().await;
        }
        if let Some(Cluster { controllers, nodes }) = self.cluster {
            controllers.stop().await;
            nodes.leave().await;
        }
        for end in self.at_stop.into_inner().unwrap_or_else(PoisonError::into_inner) {
            end.await;
        }
        self.api.stop().await;
    }

    /// Waits until nothing changes any more. Time is simulated: it advances when all tasks wait.
    /// Returns whether things came to rest.
    pub async fn settle(&self) -> Result<bool, String> {
        /// As long as recordings waited at most.
        const QUIET: u32 = 14;
        /// A world that takes longer never settles.
        const LIMIT: u32 = 600;
        let (mut quiet, mut version, mut before) = (0, self.version(), self.versions().await?);
        for _ in 0..LIMIT {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut is_same = true;
            if self.version() != version {
                version = self.version();
                let now = self.versions().await?;
                is_same = now == before;
                before = now;
            }
            let is_idle = self.runtime.as_ref().is_none_or(|runtime| runtime.queue().is_idle());
            quiet = if is_idle && is_same { quiet + 1 } else { 0 };
            if quiet == QUIET {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A number that changes with every write.
    pub(crate) fn version(&self) -> u64 {
        self.api.store().version()
    }

    /// The versions of all objects.
    async fn versions(&self) -> Result<BTreeMap<ObjectId, String>, String> {
        let objects = self.objects().await?;
        let version =
            |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        // Nodes renew their leases without end.
        let counts = |id: &&ObjectId| !matches!(id.kind.as_str(), "Lease" | "Node");
        Ok(objects.keys().filter(counts).map(|id| (id.clone(), version(&objects[id]))).collect())
    }

    /// All objects but events.
    pub async fn objects(&self) -> Result<BTreeMap<ObjectId, Value>, String> {
        let mut all = BTreeMap::new();
        for kind in self.kinds.iter().filter(|kind| kind.name != "Event") {
            for object in self.list(kind).await? {
                all.insert(ObjectId::of(&object), object);
            }
        }
        Ok(all)
    }

    /// All events.
    pub async fn events(&self) -> Result<Vec<Value>, String> {
        match self.kinds.iter().find(|kind| kind.name == "Event" && kind.api_version == "events.k8s.io/v1") {
            Some(kind) => self.list(kind).await,
            None => Ok(Vec::new()),
        }
    }

    async fn list(&self, kind: &Kind) -> Result<Vec<Value>, String> {
        let (code, list) = self.send(Method::GET, &kind.collection(""), None, "").await?;
        if code != 200 {
            return Err(format!("cannot list {}: {list}", kind.name));
        }
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let typed = |mut item: Value| {
            (item["apiVersion"], item["kind"]) = (kind.api_version.clone().into(), kind.name.clone().into());
            item
        };
        Ok(items.into_iter().map(typed).collect())
    }

    fn kind(&self, name: &str) -> Result<&Kind, String> {
        self.kinds
            .iter()
            .find(|kind| kind.name == name)
            .ok_or_else(|| format!("the cluster does not serve {name}"))
    }

    /// The kind of an object, in the version that it has.
    fn kind_of(&self, object: &Value) -> Result<Kind, String> {
        let name = object["kind"].as_str().unwrap_or_default();
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let mut of_kind = self.kinds.iter().filter(|kind| kind.name == name);
        let is_of_group = |kind: &&Kind| group_of(&kind.api_version) == group_of(api_version);
        let kind = of_kind.find(is_of_group).map_or_else(|| self.kind(name), Ok)?;
        Ok(Kind { api_version: api_version.to_owned(), ..kind.clone() })
    }

    /// Creates an object.
    pub async fn create(&self, object: &Value) -> Result<Answer, String> {
        self.create_and_read(object).await.map(|(answer, _)| answer)
    }

    /// Creates an object in the name of a user, and returns it as it is stored.
    pub async fn create_as(&self, caller: Caller, object: &Value) -> Result<(Answer, Value), String> {
        self.of_user(caller).create_and_read(object).await
    }

    /// The same world without its operator, as a user sees it.
    pub(crate) fn of_user(&self, caller: Caller) -> Self {
        Self { client: self.client(caller), ..self.borrowed() }
    }

    /// The same world without its operator.
    fn borrowed(&self) -> Self {
        Self {
            api: self.api.clone(),
            clock: self.clock.clone(),
            client: self.client.clone(),
            kinds: self.kinds.clone(),
            runtime: None,
            metrics: MetricsRegistry::default(),
            hooks: Vec::new(),
            routes: Routes::new(),
            admission: Admission::default(),
            cluster: None,
            starts: self.starts,
            at_stop: Mutex::default(),
        }
    }

    /// Creates an object, and returns it as it is stored.
    pub async fn create_and_read(&self, object: &Value) -> Result<(Answer, Value), String> {
        let id = ObjectId::of(object);
        let kind = self.kind_of(object)?;
        let (code, body) = self
            .send(Method::POST, &kind.collection(&id.namespace), Some(object), "application/json")
            .await?;
        Ok((answer(code, &body), body))
    }

    /// Replaces an object, and returns it as it is stored.
    pub(crate) async fn replace(&self, object: &Value) -> Result<(Answer, Value), String> {
        let id = ObjectId::of(object);
        let path = format!("{}/{}", self.kind_of(object)?.collection(&id.namespace), id.name);
        let (code, body) = self.send(Method::PUT, &path, Some(object), "application/json").await?;
        Ok((answer(code, &body), body))
    }

    /// Changes an object, or a subresource of it, by a merge patch, or by a JSON patch if it is a list.
    pub async fn patch(
        &self,
        id: &ObjectId,
        subresource: Option<&str>,
        body: &Value,
    ) -> Result<Answer, String> {
        let subresource = subresource.map(|name| format!("/{name}")).unwrap_or_default();
        let (code, body) = self.send_patch(id, &subresource, body).await?;
        Ok(answer(code, &body))
    }

    /// What a patch would make of an object, or of a subresource of it; `None` if it is refused.
    pub async fn preview(
        &self,
        id: &ObjectId,
        subresource: Option<&str>,
        body: &Value,
    ) -> Result<Option<Value>, String> {
        let subresource = subresource.map(|name| format!("/{name}")).unwrap_or_default();
        let (code, body) = self.send_patch(id, &format!("{subresource}?dryRun=All"), body).await?;
        Ok((code == 200).then_some(body))
    }

    async fn send_patch(&self, id: &ObjectId, rest: &str, body: &Value) -> Result<(u16, Value), String> {
        let path = format!("{}/{}{rest}", self.kind(&id.kind)?.collection(&id.namespace), id.name);
        let content_type = if body.is_array() { "json-patch" } else { "merge-patch" };
        self.send(Method::PATCH, &path, Some(body), &format!("application/{content_type}+json")).await
    }

    /// Applies an object, or a subresource of it, in the name of a field manager.
    pub async fn apply(
        &self,
        object: &Value,
        subresource: Option<&str>,
        manager: &str,
    ) -> Result<Answer, String> {
        let id = ObjectId::of(object);
        let subresource = subresource.map(|name| format!("/{name}")).unwrap_or_default();
        let path = format!(
            "{}/{}{subresource}?fieldManager={manager}&force=true",
            self.kind(&id.kind)?.collection(&id.namespace),
            id.name
        );
        let (code, body) =
            self.send(Method::PATCH, &path, Some(object), "application/apply-patch+yaml").await?;
        Ok(answer(code, &body))
    }

    /// Deletes an object; what it owns goes, too.
    pub async fn delete(&self, id: &ObjectId) -> Result<Answer, String> {
        self.delete_with(id, "Background").await
    }

    /// Deletes an object; the propagation policy says what becomes of what it owns.
    pub async fn delete_with(&self, id: &ObjectId, propagation: &str) -> Result<Answer, String> {
        let path = format!("{}/{}", self.kind(&id.kind)?.collection(&id.namespace), id.name);
        let options = json!({ "propagationPolicy": propagation });
        let (code, body) = self.send(Method::DELETE, &path, Some(&options), "application/json").await?;
        Ok(answer(code, &body))
    }

    /// One object.
    pub async fn get(&self, id: &ObjectId) -> Result<Option<Value>, String> {
        let path = format!("{}/{}", self.kind(&id.kind)?.collection(&id.namespace), id.name);
        let (code, body) = self.send(Method::GET, &path, None, "").await?;
        Ok((code == 200).then_some(body))
    }

    /// What the operator, as it was started last, shows at `/metrics`.
    pub fn exposition(&self) -> String {
        self.metrics.encode()
    }

    /// The time in this world.
    pub fn now(&self) -> jiff::Timestamp {
        self.api.now()
    }

    /// What a user reads at a path: the code and the body, also of a refusal.
    pub async fn read_as(&self, caller: Caller, path: &str) -> Result<(u16, Value), String> {
        let failed = |error: &dyn std::fmt::Display| format!("GET {path}: {error}");
        let request = Request::get(path).body(kube::client::Body::empty()).map_err(|error| failed(&error))?;
        let response = self.client(caller).send(request).await.map_err(|error| failed(&error))?;
        let code = response.status().as_u16();
        let body = response.into_body().collect_bytes().await.map_err(|error| failed(&error))?;
        Ok((code, serde_json::from_slice(&body).unwrap_or_default()))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        content_type: &str,
    ) -> Result<(u16, Value), String> {
        let failed = |error: &dyn std::fmt::Display| format!("{method} {path}: {error}");
        let mut request = Request::builder().method(method.clone()).uri(path);
        if body.is_some() {
            request = request.header("content-type", content_type);
        }
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let created = method == Method::POST;
        let request = request.body(body).map_err(|error| failed(&error))?;
        match self.client.request::<Value>(request).await {
            Ok(body) => Ok((if created { 201 } else { 200 }, body)),
            Err(kube::Error::Api(status)) => {
                let body = json!({"reason": status.reason, "message": status.message});
                Ok((status.code, body))
            }
            Err(error) => Err(failed(&error)),
        }
    }

    /// The kinds that the cluster serves, those of the core group first.
    async fn discover(&self) -> Result<Vec<Kind>, String> {
        let mut versions = vec!["v1".to_owned()];
        let (_, groups) = self.send(Method::GET, "/apis", None, "").await?;
        // The preferred version of a group first: a kind is used in the first version that has it.
        for group in groups["groups"].as_array().into_iter().flatten() {
            let preferred = std::iter::once(&group["preferredVersion"]);
            let all = preferred.chain(group["versions"].as_array().into_iter().flatten());
            versions.extend(all.filter_map(|version| version["groupVersion"].as_str().map(str::to_owned)));
        }
        let mut kinds: Vec<Kind> = Vec::new();
        for version in versions {
            let root = if version.contains('/') { "/apis/" } else { "/api/" };
            let (_, resources) = self.send(Method::GET, &format!("{root}{version}"), None, "").await?;
            for resource in resources["resources"].as_array().into_iter().flatten() {
                let text = |field: &str| resource[field].as_str().unwrap_or_default().to_owned();
                let can =
                    |verb: &str| resource["verbs"].as_array().into_iter().flatten().any(|one| one == verb);
                // Some kinds are in other versions than the preferred one only.
                let is_known = kinds.iter().any(|known: &Kind| {
                    known.name == text("kind") && group_of(&known.api_version) == group_of(&version)
                });
                if can("list") && can("create") && !text("name").contains('/') && !is_known {
                    kinds.push(Kind {
                        name: text("kind"),
                        api_version: version.clone(),
                        plural: text("name"),
                        namespaced: resource["namespaced"] == true,
                    });
                }
            }
        }
        Ok(kinds)
    }
}

/// The group of a group and version; empty for the core.
fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn answer(code: u16, body: &Value) -> Answer {
    let text = |field: &str| body[field].as_str().filter(|_| code >= 400).map(str::to_owned);
    Answer { code, reason: text("reason"), message: text("message") }
}

/// An aggregated API as the API server calls it.
fn serve(handler: &ApiHandler) -> Handler {
    let handler = Arc::clone(handler);
    Arc::new(move |request: Request<Bytes>| {
        let response = handler(request.into_parts().0);
        async move { response.await.map(|body| stream::once(ready(Bytes::from(body))).boxed()) }.boxed()
    })
}
