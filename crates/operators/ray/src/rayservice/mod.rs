//! RayService: Serve applications on a cluster, moved to another one without a pause.

mod gateway;
mod metrics;
mod objects;
mod plan;
mod preview;
mod status;
#[cfg(test)]
mod tests;
pub mod upgrade;
pub mod validation;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use quintet_api::ray::events;
use quintet_api::ray::v1::{RayCluster, RayService, RayServiceClusterStatus};
use quintet_controller::{
    Action, ApiKind, Controller, Error, Event, ObjectKey, OnError, Runtime,
    cache::{Cache, Entry, Selector, WatchSpec},
    clock::Clock,
    metrics::MetricsRegistry,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use plan::serve;
pub use preview::preview;

use crate::{
    Context,
    dashboard::{
        self, Address, Applications, Dashboard, HealthPoll, Observation, Poller, Pollers, ProxyAddress,
        ServeChange, ServePoll, ServeRequest,
    },
    k8s_service, labels, names,
    pod_view::PodView,
    settings::Settings,
    watches::{self, ServiceView},
};
use upgrade::Side;

/// How often Ray is asked; upstream looks as often.
const POLL: Duration = Duration::from_secs(2);

/// Everything that a decision about a RayService needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// The RayService.
    pub service: Arc<Entry<RayService>>,
    /// All clusters that were made for it.
    pub clusters: Vec<Arc<Entry<RayCluster>>>,
    /// The cluster that serves.
    pub active: ObservedSide,
    /// The cluster that will.
    pub pending: ObservedSide,
    /// All Services that were made for it.
    pub services: Vec<Arc<Entry<ServiceView>>>,
    /// Its Service in front of the head.
    pub head_service: Option<Arc<Entry<ServiceView>>>,
    /// Its Service for requests.
    pub serve_service: Option<Arc<Entry<ServiceView>>>,
    /// Its Gateway.
    pub gateway: Option<Arc<Entry<Value>>>,
    /// Its HTTPRoute.
    pub route: Option<Arc<Entry<Value>>>,
    /// Pods that take requests.
    pub endpoints: usize,
    /// What is the same for all.
    pub settings: Arc<Settings>,
    /// The time.
    pub now: Timestamp,
}

/// One of the two clusters of a RayService.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedSide {
    /// The cluster.
    pub cluster: Option<Arc<Entry<RayCluster>>>,
    /// Its head.
    pub head: Option<Arc<Entry<PodView>>>,
    /// Its own Service for requests.
    pub serve_service: Option<Arc<Entry<ServiceView>>>,
    /// Where its dashboard is.
    pub address: Option<Address>,
    /// What Ray last said of its applications.
    pub applications: Option<Observation<Applications>>,
    /// Whether Serve's proxy on its head takes requests.
    pub healthy: Option<Observation<bool>>,
}

impl Observed {
    fn object(&self) -> &RayService {
        &self.service.object
    }

    fn side(&self, side: Side) -> &ObservedSide {
        match side {
            Side::Active => &self.active,
            Side::Pending => &self.pending,
        }
    }
}

/// What is done about a RayService, with requests to Ray.
type Plan = quintet_controller::Plan<ServeRequest>;
type Step = quintet_controller::Step<ServeRequest>;

/// What is kept of an EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SliceView {
    /// The Service it is of.
    pub service: String,
    /// UIDs of what answers.
    pub ready: BTreeSet<String>,
}

/// The controller of RayServices.
struct ServiceController {
    rayservices: Cache<RayService>,
    clusters: Cache<RayCluster>,
    services: Cache<ServiceView>,
    pods: Cache<PodView>,
    slices: Cache<SliceView>,
    routing: Option<Routing>,
    applications: Poller<ServePoll>,
    health: Poller<HealthPoll>,
    dashboard: Arc<dyn Dashboard>,
    settings: Arc<Settings>,
    clock: Clock,
}

/// Gateways and HTTPRoutes, where they may be used.
#[derive(Clone)]
struct Routing {
    gateways: Cache<Value>,
    routes: Cache<Value>,
}

/// Index of EndpointSlices by `namespace/service`.
const BY_SERVICE: &str = "service";
/// Label of EndpointSlices: the Service they are of.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

fn slices() -> WatchSpec<SliceView> {
    WatchSpec::projected(ApiKind::of::<EndpointSlice>(), |text| {
        let slice: EndpointSlice = serde_json::from_str(text)?;
        let service = slice.metadata.labels.and_then(|mut given| given.remove(SERVICE_NAME));
        let answers = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| {
            endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true)
        };
        let ready = slice.endpoints.into_iter().flatten().filter(answers);
        let uids = ready.filter_map(|endpoint| endpoint.target_ref?.uid);
        Ok(SliceView { service: service.unwrap_or_default(), ready: uids.collect() })
    })
    .select(Selector::all().has_label(SERVICE_NAME))
    .index(BY_SERVICE, |entry| {
        let namespace = entry.key.namespace().unwrap_or_default();
        vec![ObjectKey::new(namespace, &entry.object.service).to_string()]
    })
}

/// Adds the controller of RayServices.
pub fn add(
    runtime: &Runtime,
    context: &Context,
    pollers: &Pollers,
    metrics: Option<&MetricsRegistry>,
) -> Result<(), Error> {
    let caches = runtime.caches();
    let raw = |kind| WatchSpec::projected(kind, |text| serde_json::from_str::<Value>(text)).optional();
    let routing = if context.settings.gates.incremental_upgrade {
        Some(Routing {
            gateways: caches.watch(raw(gateway::gateway_kind()))?,
            routes: caches.watch(raw(gateway::route_kind()))?,
        })
    } else {
        None
    };
    let controller = ServiceController {
        rayservices: caches.watch(WatchSpec::typed().index(SERVED_BY, serve_services))?,
        clusters: caches.watch(watches::clusters())?,
        services: caches.watch(watches::services())?,
        pods: caches.watch(watches::pods())?,
        slices: caches.watch(slices())?,
        routing: routing.clone(),
        applications: Poller::new(POLL, context.seed),
        health: Poller::new(POLL, context.seed),
        dashboard: Arc::clone(&pollers.dashboard),
        settings: Arc::clone(&context.settings),
        clock: context.clock.clone(),
    };
    let root = controller.rayservices.clone();
    let (clusters, services) = (controller.clusters.clone(), controller.services.clone());
    let (pods, slices) = (controller.pods.clone(), controller.slices.clone());
    let (applications, health) = (controller.applications.clone(), controller.health.clone());
    if let Some(registry) = metrics {
        metrics::register(registry, &root);
    }
    let of_cluster = {
        let clusters = clusters.clone();
        move |cluster: ObjectKey| {
            let cluster = clusters.get(&cluster)?;
            origin(&cluster.key, cluster.object.metadata.labels.as_ref()?)
        }
    };
    let (of_pod, of_service) = (of_cluster.clone(), of_cluster);
    let all = root.clone();
    let mut setup = runtime
        .add(controller, &root, context.concurrency)
        .watches(&clusters, |entry| {
            let given = entry.object.metadata.labels.as_ref();
            given.and_then(|given| origin(&entry.key, given)).into_iter().collect()
        })
        .watches(&services, move |entry| {
            let mut roots: Vec<_> = origin(&entry.key, &entry.object.labels).into_iter().collect();
            roots.extend(watches::cluster_of(entry, &entry.object.selector).and_then(&of_service));
            roots
        })
        .watches(&pods, move |entry| {
            let cluster = watches::cluster_of(entry, &entry.object.labels).filter(|_| entry.object.is_head());
            cluster.and_then(&of_pod).into_iter().collect()
        })
        .watches(&slices, move |entry| {
            let namespace = entry.key.namespace().unwrap_or_default();
            let service = ObjectKey::new(namespace, &entry.object.service);
            all.by_index(SERVED_BY, service.as_str()).into_iter().map(|root| root.key.clone()).collect()
        });
    for (cache, suffix) in
        routing.iter().flat_map(|both| [(&both.gateways, "-gateway"), (&both.routes, "-httproute")])
    {
        setup = setup.watches(cache, move |entry| {
            let name = entry.key.name().strip_suffix(suffix);
            name.map(|name| ObjectKey::new(entry.key.namespace().unwrap_or_default(), name))
                .into_iter()
                .collect()
        });
    }
    applications.start("Serve applications", pollers, setup.trigger());
    health.start("Serve proxies", pollers, setup.trigger());
    setup.done();
    Ok(())
}

/// Index of RayServices by the Services that take their requests.
const SERVED_BY: &str = "served by";

fn serve_services(entry: &Entry<RayService>) -> Vec<String> {
    let namespace = entry.key.namespace().unwrap_or_default();
    let key = |name: String| ObjectKey::new(namespace, &name).to_string();
    let status = entry.object.status.as_ref();
    let sides = status.map(|status| [&status.active_service_status, &status.pending_service_status]);
    let clusters = sides.into_iter().flatten().filter_map(|side| side.as_ref()?.ray_cluster_name.as_deref());
    let mut keys: Vec<_> = clusters.map(|cluster| key(names::serve_service(cluster))).collect();
    keys.push(key(objects::serve_service_name(&entry.object)));
    keys
}

/// The RayService that an object was made for.
fn origin(key: &ObjectKey, given: &BTreeMap<String, String>) -> Option<ObjectKey> {
    let name = given.get(labels::ORIGIN_NAME)?;
    let is_service = given.get(labels::ORIGIN_KIND).is_some_and(|kind| kind == "RayService");
    is_service.then(|| ObjectKey::new(key.namespace().unwrap_or_default(), name))
}

impl ServiceController {
    fn side(&self, namespace: &str, status: Option<&RayServiceClusterStatus>) -> ObservedSide {
        let name = status.and_then(|side| side.ray_cluster_name.as_deref()).filter(|name| !name.is_empty());
        let Some(name) = name else { return ObservedSide::default() };
        let named = |name: &str| ObjectKey::new(namespace, name);
        let cluster = self.clusters.get(&named(name));
        let heads = self.pods.by_index(watches::BY_CLUSTER, named(name).as_str());
        let own = cluster.as_ref().map(|cluster| k8s_service::head_service_name(&cluster.object));
        let own = own.and_then(|name| self.services.get(&named(&name)));
        let host = own.and_then(|service| dashboard::host(&service, &self.settings.cluster_domain));
        ObservedSide {
            address: cluster.as_ref().zip(host).map(|(cluster, host)| Address::of(&cluster.object, &host)),
            head: heads.into_iter().find(|pod| pod.object.is_head() && !pod.deleting),
            serve_service: self.services.get(&named(&names::serve_service(name))),
            cluster,
            applications: None,
            healthy: None,
        }
    }

    /// Has Ray asked about both clusters, and says what it said.
    fn listen(&self, root: &Entry<RayService>, sides: &mut [ObservedSide; 2]) {
        let conditions_are_on = self.settings.gates.status_conditions;
        let mut asked = Vec::new();
        let mut checked = Vec::new();
        let wants_heads = root.object.spec.exclude_head_pod_from_serve_svc != Some(true);
        for (index, side) in sides.iter().enumerate() {
            if let Some(at) = side.address.as_ref().filter(|_| serve::head_is_ready(side, conditions_are_on))
            {
                asked.push((index, ServePoll(at.clone())));
            }
            if let Some(head) = side.head.as_ref().filter(|head| wants_heads && !head.object.ip.is_empty()) {
                let port = head.object.ray_port(k8s_service::SERVE).unwrap_or(k8s_service::SERVE_PORT);
                let at = ProxyAddress {
                    namespace: head.key.namespace().unwrap_or_default().to_owned(),
                    pod: head.key.name().to_owned(),
                    ip: head.object.ip.to_string(),
                    port,
                };
                checked.push((index, HealthPoll(at)));
            }
        }
        let polls: Vec<_> = asked.iter().map(|(_, poll)| poll.clone()).collect();
        for ((index, _), heard) in asked.iter().zip(self.applications.watch(&root.key, &polls)) {
            sides[*index].applications = heard;
        }
        let polls: Vec<_> = checked.iter().map(|(_, poll)| poll.clone()).collect();
        for ((index, _), heard) in checked.iter().zip(self.health.watch(&root.key, &polls)) {
            sides[*index].healthy = heard;
        }
    }

    fn endpoints(&self, root: &Entry<RayService>) -> usize {
        let namespace = root.key.namespace().unwrap_or_default();
        let names = if upgrade::is_incremental(&root.object.spec, &self.settings) {
            let status = root.object.status.as_ref();
            let sides = status.map(|status| [&status.active_service_status, &status.pending_service_status]);
            let clusters =
                sides.into_iter().flatten().filter_map(|side| side.as_ref()?.ray_cluster_name.as_deref());
            clusters.map(names::serve_service).collect()
        } else {
            vec![objects::serve_service_name(&root.object)]
        };
        let slices = names
            .iter()
            .flat_map(|name| self.slices.by_index(BY_SERVICE, ObjectKey::new(namespace, name).as_str()));
        // A pod with two addresses is in two slices.
        let uids: BTreeSet<_> = slices.flat_map(|slice| slice.object.ready.clone()).collect();
        uids.len()
    }
}

impl Controller for ServiceController {
    type Observed = Observed;
    type Call = ServeRequest;

    const NAME: &'static str = "rayservice-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(service) = self.rayservices.get(key) else {
            self.applications.forget(key);
            self.health.forget(key);
            return Ok(None);
        };
        let namespace = key.namespace().unwrap_or_default();
        let named = |name: &str| ObjectKey::new(namespace, name);
        let status = service.object.status.as_ref();
        let active = status.and_then(|status| status.active_service_status.as_ref());
        let pending = status.and_then(|status| status.pending_service_status.as_ref());
        let mut sides = [self.side(namespace, active), self.side(namespace, pending)];
        self.listen(&service, &mut sides);
        let [active, pending] = sides;
        let origin = watches::origin(namespace, "RayService", key.name());
        let routing = self.routing.as_ref();
        Ok(Some(Observed {
            clusters: self.clusters.by_index(watches::BY_ORIGIN, &origin),
            services: self.services.by_index(watches::BY_ORIGIN, &origin),
            head_service: self.services.get(&named(&names::head_service(key.name()))),
            serve_service: self.services.get(&named(&objects::serve_service_name(&service.object))),
            gateway: routing.and_then(|both| both.gateways.get(&named(&gateway::gateway_name(key.name())))),
            route: routing.and_then(|both| both.routes.get(&named(&gateway::route_name(key.name())))),
            endpoints: self.endpoints(&service),
            active,
            pending,
            settings: Arc::clone(&self.settings),
            now: self.clock.now(),
            service,
        }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }

    async fn call(&self, request: &ServeRequest) -> Result<(), Error> {
        let ServeRequest::DeployServeConfig { root, cluster, at, config, .. } = request;
        let response = self.dashboard.deploy(at, config).await;
        // Whatever came of it, what Ray said before is out of date.
        self.applications.poll_again(root);
        response.map_err(|error| {
            error.while_trying(format!("cannot deploy the Serve config on RayCluster {cluster}"))
        })
    }

    fn on_error(observed: &Observed, action: &Action<ServeRequest>, error: &Error) -> OnError {
        on_error(observed, action, error)
    }

    async fn polled(&self, key: &ObjectKey) {
        self.applications.answered(key).await;
        self.health.answered(key).await;
    }
}

fn on_error(observed: &Observed, action: &Action<ServeRequest>, error: &Error) -> OnError {
    let root = &observed.service.key;
    // Users go on learning how the service is.
    let mut status = plan::status_after_failure(observed);
    let (reason, verb) = match (action, action.kind().map(|kind| kind.kind.as_ref())) {
        (Action::Call(ServeRequest::DeployServeConfig { change, .. }), _) => {
            let reason = match change {
                ServeChange::Applications => {
                    // Ray is told last: all else has been done.
                    status = plan::plan(observed).status;
                    events::FAILED_TO_UPDATE_SERVE_APPLICATIONS
                }
                ServeChange::TargetCapacity => events::FAILED_TO_UPDATE_TARGET_CAPACITY,
            };
            (reason.to_owned(), "Update")
        }
        (_, Some("Pod")) => (events::FAILED_TO_UPDATE_HEAD_POD_SERVE_LABEL.to_owned(), "Update"),
        (Action::Create { .. }, Some(kind)) => (events::failed_to("Create", kind), "Create"),
        (Action::Delete { .. }, Some(kind)) => (events::failed_to("Delete", kind), "Delete"),
        (_, Some("RayService") | None) => return OnError::default(),
        (_, Some(kind)) => (events::failed_to("Update", kind), "Update"),
    };
    let note = format!("RayService {root}: {error}");
    OnError { status, events: vec![Event::warning(&reason, verb, note)] }
}
