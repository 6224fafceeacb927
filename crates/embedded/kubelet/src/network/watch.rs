//! Follows Services, EndpointSlices and namespaces, for the service proxy and the name server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::{Mutex, RwLock};
use quintet_controller::api::{Api, ApiSettings};
use quintet_controller::cache::{Cache, Caches, Entry, ObjectMetadata, WatchSpec};
use quintet_controller::clock::Clock;
use quintet_controller::events::{Recorder, Regarding};
use quintet_controller::limiter::{Limiter, LimiterSettings};
use quintet_controller::metrics::{Metrics, MetricsRegistry};
use quintet_controller::tasks::Tasks;
use quintet_controller::{ApiKind, Error, Event, ObjectKey};
use tokio::sync::{Notify, oneshot};

use super::dns::Zone;
use super::service_range::ServiceRange;
use super::services::{Clients, SERVICE_NAME, ServiceProxy, ServiceView, Unavailable};

/// The name that events are reported under.
const REPORTER: &str = "service-proxy";
/// The index of slices by the Service they belong to.
const BY_SERVICE: &str = "service";
/// Ports that could not be opened are tried again this often.
const RETRY: Duration = Duration::from_secs(10);
/// The Service of the API.
const API: (&str, &str) = ("default", "kubernetes");
/// The Service of the name server, which listens at its address itself.
pub(super) const NAME_SERVER: (&str, &str) = ("kube-system", "kube-dns");

/// What the network watches.
pub(super) struct Watches {
    services: Cache<Service>,
    slices: Cache<EndpointSlice>,
    namespaces: Cache<ObjectMetadata>,
    recorder: Recorder,
    changed: Arc<Changed>,
}

/// Services that changed since they were last looked at.
#[derive(Default)]
struct Changed {
    keys: Mutex<BTreeSet<ObjectKey>>,
    notify: Notify,
}

impl Changed {
    fn add(&self, keys: impl IntoIterator<Item = ObjectKey>) {
        self.keys.lock().extend(keys);
        self.notify.notify_one();
    }
}

impl Watches {
    /// Begins to watch.
    pub(super) fn begin(client: kube::Client, tasks: &Tasks) -> Result<Self, Error> {
        let metrics = Metrics::register(&MetricsRegistry::new());
        let limiter = Limiter::adaptive(LimiterSettings::default());
        let api = Api::new(client, limiter, ApiSettings::default(), Arc::clone(&metrics));
        let recorder = Recorder::start(api.clone(), Clock::system(), Arc::clone(&metrics), tasks, REPORTER);
        let caches = Caches::new(api, tasks.clone(), metrics, None);
        let services = caches.watch(WatchSpec::<Service>::typed())?;
        let slices = WatchSpec::<EndpointSlice>::typed()
            .index(BY_SERVICE, |slice| service_of(slice).map(|key| key.to_string()).into_iter().collect());
        let slices = caches.watch(slices)?;
        let namespaces = caches.watch(WatchSpec::metadata(ApiKind::of::<Namespace>()))?;
        let changed = Arc::new(Changed::default());
        let of_services = Arc::clone(&changed);
        services.subscribe(move |change| of_services.add(change.states().map(|service| service.key.clone())));
        let of_slices = Arc::clone(&changed);
        slices.subscribe(move |change| of_slices.add(change.states().filter_map(|slice| service_of(slice))));
        Ok(Self { services, slices, namespaces, recorder, changed })
    }

    /// Keeps the zone and the proxy up to date until the tasks stop. `ready` is signaled when both know everything that
    /// exists now.
    pub(super) async fn follow(
        self,
        range: ServiceRange,
        zone: Arc<RwLock<Zone>>,
        mut proxy: ServiceProxy,
        tasks: Tasks,
        ready: oneshot::Sender<()>,
    ) {
        let of_namespaces = Arc::clone(&zone);
        self.namespaces.subscribe(move |change| {
            if let Some(namespace) = change.states().next() {
                of_namespaces.write().set_namespace(namespace.key.name(), change.new.is_some());
            }
        });
        let synced = async {
            self.services.synced().await;
            self.slices.synced().await;
            self.namespaces.synced().await;
        };
        tokio::select! {
            () = synced => {}
            () = tasks.stopping() => return,
        }
        let mut ready = Some(ready);
        let mut failed: BTreeSet<ObjectKey> = BTreeSet::new();
        let mut reported = Reported::default();
        loop {
            let keys = std::mem::take(&mut *self.changed.keys.lock());
            for key in keys {
                let is_available = self.update(&key, range, &zone, &mut proxy, &mut reported).await;
                if is_available {
                    failed.remove(&key)
                } else {
                    failed.insert(key)
                };
            }
            if let Some(ready) = ready.take() {
                // The receiver is gone only if the start was cancelled.
                let _ = ready.send(());
            }
            tokio::select! {
                () = tasks.stopping() => break,
                () = self.changed.notify.notified() => {}
                () = tokio::time::sleep(RETRY), if !failed.is_empty() => {
                    self.changed.keys.lock().append(&mut failed);
                }
            }
        }
        proxy.ended().await;
    }

    /// Brings one Service up to date; returns whether all of it is served.
    async fn update(
        &self,
        key: &ObjectKey,
        range: ServiceRange,
        zone: &RwLock<Zone>,
        proxy: &mut ServiceProxy,
        reported: &mut Reported,
    ) -> bool {
        let service = self.services.get(key);
        let slices = self.slices.by_index(BY_SERVICE, key.as_str());
        let slices = slices.iter().map(|slice| &slice.object);
        let view = service.as_ref().and_then(|service| ServiceView::new(&service.object, slices));
        let view = view.map(|view| view.served_in(range));
        let is = |(namespace, name)| (key.namespace(), key.name()) == (Some(namespace), name);
        // The API itself may listen for programs of this machine only.
        let view = view.map(|view| if is(API) { view } else { view.without_local_targets() });
        let served = view.as_ref().filter(|_| !is(NAME_SERVER));
        let unavailable = proxy.update(key, served).await;
        zone.write().set_service(key, view);
        for problem in &unavailable {
            self.report(service.as_deref(), problem, reported);
        }
        unavailable.is_empty()
    }

    fn report(&self, service: Option<&Entry<Service>>, problem: &Unavailable, reported: &mut Reported) {
        let Unavailable { frontend, why } = problem;
        let (address, protocol) = (frontend.address, frontend.protocol.label().to_uppercase());
        if frontend.clients == Clients::Machine {
            return reported.other_platform(why);
        }
        let Some(service) = service else { return };
        let advice = match frontend.clients {
            Clients::Node | Clients::Host => "stop the program that uses the port, or set another nodePort",
            Clients::Pods | Clients::Machine => "stop the program that uses the address",
        };
        let note = format!("cannot listen at {address} ({protocol}): {why}; {advice}");
        let regarding = Regarding {
            kind: self.services.kind().clone(),
            key: service.key.clone(),
            uid: service.uid.clone(),
        };
        self.recorder.record(REPORTER, regarding, Event::warning("FailedToOpenPort", "OpenPort", note));
    }
}

/// What was said once.
#[derive(Default)]
struct Reported {
    other_platform: bool,
}

impl Reported {
    fn other_platform(&mut self, why: &std::io::Error) {
        if !std::mem::replace(&mut self.other_platform, true) {
            tracing::warn!(
                "programs of this machine cannot use the cluster IPs of this platform ({why}): another platform on \
                 this machine serves the same ones. Pods are not affected; node ports and port-forward work too"
            );
        }
    }
}

/// The Service of a slice.
fn service_of(slice: &Entry<EndpointSlice>) -> Option<ObjectKey> {
    let service = slice.object.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    Some(ObjectKey::new(slice.key.namespace()?, service))
}
