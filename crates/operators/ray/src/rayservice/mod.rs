//! RayService: Serve applications on a cluster, moved to another one without a pause.

mod events;
mod gateway;
mod metrics;
mod objects;
mod observe;
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

use k8s_openapi::api::discovery::v1::EndpointSlice;
use quintet_api::ray::v1::{RayCluster, RayService};
use quintet_controller::{
    Action, ApiKind, Controller, Error, ObjectKey, OnError, Runtime,
    cache::{Cache, Entry, Selector, WatchSpec},
    clock::Clock,
    metrics::MetricsRegistry,
};
use serde_json::Value;

pub use observe::{Observed, ObservedSide};
pub use preview::preview;

use crate::{
    Context,
    dashboard::{Dashboard, HealthPoll, Poller, Pollers, ServeChange, ServePoll, ServeRequest},
    k8s_service::events as service_events,
    labels, names,
    pod_view::PodView,
    settings::Settings,
    watches::{self, ServiceView},
};
use events::Deletion;
use upgrade::Side;

/// How often Ray is polled: `ServiceDefaultRequeueDuration` in KubeRay's rayservice_controller.go.
const POLL: Duration = Duration::from_secs(2);

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
    watches::origin_of_kind("RayService", key, given)
}

impl Controller for ServiceController {
    type Observed = Observed;
    type Call = ServeRequest;

    const NAME: &'static str = "rayservice-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        Ok(self.read(key))
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
    // Users go on learning how the service is.
    let mut status = plan::status_after_failure(observed);
    let cause = error.cause();
    let event = if let Action::Call(ServeRequest::DeployServeConfig { change, cluster, .. }) = action {
        match change {
            ServeChange::Applications => {
                // The request to Ray comes last: everything else has been done.
                status = plan::plan(observed).status;
                events::failed_to_update_applications(cluster, &cause)
            }
            ServeChange::TargetCapacity => events::failed_to_update_capacity(cluster, &cause),
        }
    } else {
        let Some((kind, target)) = action.kind().zip(action.target()) else {
            return OnError::default();
        };
        let why = if plan::is_suspending(observed) { Deletion::Suspension } else { Deletion::Unused };
        match (&*kind.kind, action) {
            (kind, Action::Delete { .. }) => events::failed_to_delete(kind, &target, why, &cause),
            ("RayCluster", Action::Create { .. }) => events::failed_to_create_cluster(&target, &cause),
            ("RayCluster", _) => {
                let is_active = observed.active.cluster.as_ref().is_some_and(|one| one.key == target);
                let side = if is_active { Side::Active } else { Side::Pending };
                events::failed_to_update_cluster(side, &target, &cause)
            }
            ("Service", Action::Create { .. }) => service_events::failed_to_create(&target, &cause),
            ("Service", _) => service_events::failed_to_update(&target, &cause),
            ("Pod", Action::Patch { patch, .. }) => {
                let label = patch["metadata"]["labels"][labels::SERVE].as_str().unwrap_or_default();
                events::failed_to_update_serve_label(&target, label, &cause)
            }
            ("Gateway" | "HTTPRoute", Action::Create { .. }) => {
                events::failed_to_create_routing(&kind.kind, &target, &cause)
            }
            ("Gateway" | "HTTPRoute", _) => events::failed_to_update_routing(&kind.kind, &target, &cause),
            _ => return OnError::default(),
        }
    };
    OnError { status, events: vec![event], ..OnError::default() }
}
