//! A cluster in memory with an operator on it, which may do no more than its descriptor asks for.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use kube::Client;
use quintet_api::config::Configuration;
use quintet_api::crd::{self, WebhookService};
use quintet_apiserver::{Api, Caller, Clock, Rng};
use quintet_component::{Component, Context, Operator, Permissions, Platform, Process, Webhook, WebhookKind};
use quintet_controller::Runtime;
use quintet_controller::webhook::Routes;
use serde_json::{Value, json};

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
    hooks: Vec<Hook>,
    routes: Routes,
    /// A number that nothing else in this world was given.
    starts: u64,
}

/// An admission webhook of the operator.
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

/// An API with the kinds of a component and some of others, to fork worlds from.
pub async fn template(component: &Component, optional: &[String]) -> Result<Api, String> {
    let service = WebhookService { namespace: "quintet-system".into(), name: "quintet".into() };
    let own = crd::manifests(&(component.crds)(), &service);
    let mut definitions = Vec::new();
    for definition in own {
        definitions.push(serde_json::to_value(definition).map_err(|error| error.to_string())?);
    }
    for kind in optional {
        definitions.push(optional_kinds::definition(kind)?);
    }
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
        let mut world =
            Self { api, clock, client, kinds: Vec::new(), runtime: None, hooks, routes, starts: seed };
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
        self.grant(&operator.permissions).await?;
        let client = self.api.client(Caller::known(OPERATOR, []));
        self.starts += 1;
        let (runtime, metrics) = Runtime::alone(client.clone(), &self.clock, "golden", Some(self.starts));
        let clock = &self.clock;
        let process =
            Process { runtime: &runtime, client: &client, clock, metrics: &metrics, concurrency: 4 };
        (operator.start)(&process).map_err(|error| error.to_string())?;
        for webhook in operator.webhooks {
            let Webhook { kind, name, path, rules, handler, .. } = webhook;
            self.routes = handler(self.routes.clone(), &runtime).map_err(|error| error.to_string())?;
            self.hooks.push(Hook { kind, name, path, rules });
        }
        runtime.start();
        self.runtime = Some(runtime);
        Ok(())
    }

    /// Grants the rights of the descriptor, as [`World::start`] does first.
    pub async fn grant_to(&self, component: &Component, setting: &Setting) -> Result<(), String> {
        let operator = self.configure(component, setting).await?;
        self.grant(&operator.permissions).await
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

    async fn grant(&self, permissions: &Permissions) -> Result<(), String> {
        let mut rules = vec![json!({
            "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"],
        })];
        rules.extend(permissions.namespaced.iter().chain(&permissions.cluster).map(|rule| json!(rule)));
        let api_version = "rbac.authorization.k8s.io/v1";
        let metadata = json!({"name": OPERATOR});
        let role =
            json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": metadata, "rules": rules});
        let binding = json!({
            "apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": OPERATOR},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": OPERATOR}],
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

    /// Ends everything.
    pub async fn stop(self) {
        if let Some(runtime) = &self.runtime {
            runtime.shut_down().await;
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
        let (mut quiet, mut before) = (0, self.versions().await?);
        for _ in 0..LIMIT {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.versions().await?;
            let is_idle = self.runtime.as_ref().is_none_or(|runtime| runtime.queue().is_idle());
            quiet = if is_idle && now == before { quiet + 1 } else { 0 };
            if quiet == QUIET {
                return Ok(true);
            }
            before = now;
        }
        Ok(false)
    }

    /// The versions of all objects.
    async fn versions(&self) -> Result<BTreeMap<ObjectId, String>, String> {
        let objects = self.objects().await?;
        let version =
            |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        Ok(objects.iter().map(|(id, object)| (id.clone(), version(object))).collect())
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
    pub(crate) async fn events(&self) -> Result<Vec<Value>, String> {
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

    /// Creates an object.
    pub async fn create(&self, object: &Value) -> Result<Answer, String> {
        self.create_and_read(object).await.map(|(answer, _)| answer)
    }

    /// Creates an object, and returns it as it is stored.
    pub(crate) async fn create_and_read(&self, object: &Value) -> Result<(Answer, Value), String> {
        let id = ObjectId::of(object);
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let mut of_kind = self.kinds.iter().filter(|kind| kind.name == id.kind);
        let kind =
            of_kind.find(|kind| kind.api_version == api_version).map_or_else(|| self.kind(&id.kind), Ok)?;
        let (code, body) = self
            .send(Method::POST, &kind.collection(&id.namespace), Some(object), "application/json")
            .await?;
        Ok((answer(code, &body), body))
    }

    /// Replaces an object, and returns it as it is stored.
    pub(crate) async fn replace(&self, object: &Value) -> Result<(Answer, Value), String> {
        let id = ObjectId::of(object);
        let path = format!("{}/{}", self.kind(&id.kind)?.collection(&id.namespace), id.name);
        let (code, body) = self.send(Method::PUT, &path, Some(object), "application/json").await?;
        Ok((answer(code, &body), body))
    }

    /// Changes an object, or a subresource of it, by a merge patch.
    pub async fn patch(
        &self,
        id: &ObjectId,
        subresource: Option<&str>,
        body: &Value,
    ) -> Result<Answer, String> {
        let subresource = subresource.map(|name| format!("/{name}")).unwrap_or_default();
        let path = format!("{}/{}{subresource}", self.kind(&id.kind)?.collection(&id.namespace), id.name);
        let (code, body) =
            self.send(Method::PATCH, &path, Some(body), "application/merge-patch+json").await?;
        Ok(answer(code, &body))
    }

    /// Applies an object in the name of a field manager.
    pub async fn apply(&self, object: &Value, manager: &str) -> Result<Answer, String> {
        let id = ObjectId::of(object);
        let path = format!(
            "{}/{}?fieldManager={manager}&force=true",
            self.kind(&id.kind)?.collection(&id.namespace),
            id.name
        );
        let (code, body) =
            self.send(Method::PATCH, &path, Some(object), "application/apply-patch+yaml").await?;
        Ok(answer(code, &body))
    }

    /// Deletes an object; what it owns goes, too.
    pub async fn delete(&self, id: &ObjectId) -> Result<Answer, String> {
        let path = format!("{}/{}", self.kind(&id.kind)?.collection(&id.namespace), id.name);
        let options = json!({"propagationPolicy": "Background"});
        let (code, body) = self.send(Method::DELETE, &path, Some(&options), "application/json").await?;
        Ok(answer(code, &body))
    }

    /// One object.
    pub async fn get(&self, id: &ObjectId) -> Result<Option<Value>, String> {
        let path = format!("{}/{}", self.kind(&id.kind)?.collection(&id.namespace), id.name);
        let (code, body) = self.send(Method::GET, &path, None, "").await?;
        Ok((code == 200).then_some(body))
    }

    /// The time in this world.
    pub fn now(&self) -> jiff::Timestamp {
        self.api.now()
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
        for group in groups["groups"].as_array().into_iter().flatten() {
            versions.extend(group["preferredVersion"]["groupVersion"].as_str().map(str::to_owned));
        }
        let mut kinds = Vec::new();
        for version in versions {
            let root = if version.contains('/') { "/apis/" } else { "/api/" };
            let (_, resources) = self.send(Method::GET, &format!("{root}{version}"), None, "").await?;
            for resource in resources["resources"].as_array().into_iter().flatten() {
                let text = |field: &str| resource[field].as_str().unwrap_or_default().to_owned();
                let can =
                    |verb: &str| resource["verbs"].as_array().into_iter().flatten().any(|one| one == verb);
                if can("list") && can("create") && !text("name").contains('/') {
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

fn answer(code: u16, body: &Value) -> Answer {
    let text = |field: &str| body[field].as_str().filter(|_| code >= 400).map(str::to_owned);
    Answer { code, reason: text("reason"), message: text("message") }
}
