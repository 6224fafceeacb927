//! The process: everything that runs between start and stop.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Namespace;
use quintet_api::config::{self, Configuration};
use quintet_component::{AggregatedApi, Component, Platform, WebhookKind};
use quintet_controller::admin::{self, Admin};
use quintet_controller::aggregated::{Access, ApiServer};
use quintet_controller::api::{Api, ApiSettings};
use quintet_controller::cache::Caches;
use quintet_controller::clock::Clock;
use quintet_controller::contact::Contact;
use quintet_controller::events::Recorder;
use quintet_controller::leader::{Election, Leadership, LeaseSettings, Loss, replica_identity};
use quintet_controller::limiter::{Limiter, LimiterSettings};
use quintet_controller::metrics::{Metrics, MetricsRegistry};
use quintet_controller::queue::Queue;
use quintet_controller::tasks::Tasks;
use quintet_controller::webhook::{
    CertificateManager, CertificateManagerSettings, CertificateSource, Publication, WebhookServer,
    WebhookSettings,
};
use quintet_controller::{ObjectKey, Runtime, RuntimeParts, RuntimeSettings};

use tokio::net::TcpListener;

use super::addresses::{Endpoints, Placement};
use super::assembly::{admin_components, conversion_route, machine_name, start_operators};
use crate::catalog::{Catalog, Configured};
use crate::cluster::{Cluster, is_in_pod};
use crate::names::{DEFAULT_NAMESPACE, shared_name};
use crate::version::VERSION;

/// How long the endpoints of a Service name a pod that is no longer ready.
const ENDPOINTS_LAG: Duration = Duration::from_secs(5);

/// A running process.
pub(super) struct Process {
    pub(super) tasks: Tasks,
    runtime: Runtime,
    /// Stopped last: the lease is released after the last write.
    election: Tasks,
    leadership: Leadership,
    contact: Contact,
    /// The Lease, for messages.
    lease: ObjectKey,
}

/// Why a process ended.
pub(super) enum End {
    /// By a signal.
    Stopped,
    /// The API server did not respond for longer than the Lease lasts: what happened, in words.
    LostContact(String),
    /// Another replica has the Lease, or this one could not renew it: what happened, in words.
    LostLease(String),
}

/// The addresses of the process, taken before anything else happens: one that is in use is the user's to
/// fix, and nothing has to be undone.
struct Listeners {
    webhooks: WebhookServer,
    health: Option<TcpListener>,
    metrics: Option<TcpListener>,
}

impl Process {
    /// Starts everything.
    pub(super) async fn start(
        configuration: &Configuration,
        cluster: &Cluster,
        catalog: &Catalog,
    ) -> anyhow::Result<Self> {
        let settings = &configuration.process;
        let placement = if is_in_pod() { Placement::Pod } else { Placement::Machine };
        let endpoints = Endpoints::of(settings, placement)?;
        let listeners = Listeners::bind(&endpoints).await?;
        let namespace = own_namespace(settings, cluster);
        must_exist(&namespace, cluster).await?;
        let platform = Platform::discover(&cluster.client).await;
        let platform = platform.context("cannot discover the APIs of the cluster")?;
        let operators = catalog.configure(configuration, &namespace, &platform)?;
        let apis = bind_apis(&operators, placement).await?;
        let components = catalog.enabled(configuration);
        let (able, idle): (Vec<&Component>, Vec<_>) =
            components.iter().partition(|component| component.configure.is_some());
        let names = |components: &[&Component]| {
            components.iter().map(|component| component.name()).collect::<Vec<_>>().join(", ")
        };
        let (able, idle) = (names(&able), names(&idle));
        let admin_components = admin_components(&components);
        let clock = Clock::system();
        let (tasks, election) = (Tasks::new(), Tasks::new());
        let registry = MetricsRegistry::new();
        let metrics = Metrics::register(&registry);
        let limiter = Limiter::adaptive(limits(&settings.client));
        let contact = Contact::new(cluster.address.as_str());
        let connection = |limiter| {
            let settings = ApiSettings { contact: contact.clone(), ..ApiSettings::default() };
            Api::new(cluster.client.clone(), limiter, settings, Arc::clone(&metrics))
        };
        let api = connection(limiter);
        // The lease and the certificates must not wait behind everything else.
        let urgent = connection(Limiter::none());
        let identity = replica_identity(&machine_name(), clock.now());

        let caches = Caches::new(api.clone(), tasks.clone(), Arc::clone(&metrics), None);
        let caches = caches.in_namespaces(&settings.watch_namespaces);
        let queue = Queue::new(Arc::clone(&metrics), None);
        let recorder = Recorder::start(api.clone(), clock.clone(), Arc::clone(&metrics), &tasks, &identity);
        let publications = publications(&components, &operators, &namespace);
        let api_services = apis.iter().map(|(api, _)| ObjectKey::new(&namespace, api.service.name)).collect();
        let published = (publications, api_services);
        let certificates = manage_certificates(&urgent, &clock, settings, &namespace, published, &tasks);
        let lease = lease_settings(settings, &namespace, &identity);
        let lease_key = ObjectKey::new(&lease.namespace, &lease.name);
        let leadership = if settings.leader_election.leader_elect {
            elect(&urgent, &clock, lease, &election)
        } else {
            Leadership::always()
        };
        let parts = RuntimeParts {
            api: api.clone(),
            caches,
            queue,
            recorder,
            leadership: leadership.clone(),
            metrics: Arc::clone(&metrics),
            tasks: tasks.clone(),
        };
        let runtime = Runtime::new(parts, RuntimeSettings::default());
        let process = quintet_component::Process {
            runtime: &runtime,
            client: &cluster.client,
            clock: &clock,
            metrics: &registry,
            concurrency: settings.concurrency,
        };
        let routes = start_operators(operators, &process, conversion_route(components))?;
        let mut listening = listeners.addresses();
        if !apis.is_empty() {
            let access = Access::start(api.clone(), &tasks);
            for (own, server) in apis {
                listening = format!("{listening}, {} {}", own.service.port_name, server.address());
                let served =
                    server.serve(own.group, own.handler, access.clone(), certificates.clone(), &tasks);
                served.with_context(|| format!("cannot serve {}", own.group))?;
            }
        }
        listeners.webhooks.serve(routes, certificates.clone(), &tasks).context("cannot serve webhooks")?;
        let admin = Admin {
            components: admin_components,
            registry,
            runtime: runtime.clone(),
            leadership: leadership.clone(),
            certificates: Some(certificates),
            api,
            tasks: tasks.clone(),
        };
        for listener in [listeners.health, listeners.metrics].into_iter().flatten() {
            admin.clone().serve(listener);
        }
        runtime.start();
        tracing::info!(
            version = VERSION,
            cluster = cluster.address,
            namespace,
            identity,
            listening,
            components = able,
            "started"
        );
        if !idle.is_empty() {
            tracing::warn!(
                components = idle,
                "no controllers yet: their objects are stored, and nothing reconciles them"
            );
        }
        Ok(Self { tasks, runtime, election, leadership, contact, lease: lease_key })
    }

    /// Why it ends.
    pub(super) fn end(&self) -> End {
        let lease = &self.lease;
        match self.leadership.loss() {
            None | Some(Loss::Stopped) => End::Stopped,
            Some(Loss::Taken { by }) => End::LostLease(format!(
                "replica {by} took the Lease {lease} and leads now; start again to stand by"
            )),
            Some(Loss::NotRenewed { reason }) if self.contact.is_lost() => End::LostContact(format!(
                "lost contact with the Kubernetes API at {}: {reason}; the Lease {lease} could not be renewed, so \
                 another replica may lead",
                self.contact.address(),
            )),
            Some(Loss::NotRenewed { reason }) => End::LostLease(format!(
                "the Lease {lease} could not be renewed in time, so another replica may lead: {reason}"
            )),
        }
    }

    /// Stops everything in order; returns what did not end in time.
    pub(super) async fn stop(self, patience: Duration) -> Vec<String> {
        let late = match tokio::time::timeout(patience, self.runtime.shut_down()).await {
            Ok(late) => late,
            Err(_) => self.tasks.running(),
        };
        // Whoever still writes keeps the lease until it expires.
        if late.is_empty() { self.election.shut_down(patience).await } else { late }
    }
}

impl Listeners {
    async fn bind(endpoints: &Endpoints) -> anyhow::Result<Self> {
        let Endpoints { metrics, health, webhooks } = *endpoints;
        let mut webhooks = WebhookSettings::new(webhooks);
        if is_in_pod() {
            webhooks.linger = ENDPOINTS_LAG;
        }
        Ok(Self {
            webhooks: WebhookServer::bind(webhooks).await.context("cannot serve webhooks")?,
            health: listen(health, "health", "--health-probe-bind-address").await?,
            // Both are served at each address, so that one address may be enough.
            metrics: listen(
                metrics.filter(|address| Some(*address) != health),
                "metrics",
                "--metrics-bind-address",
            )
            .await?,
        })
    }

    /// What is served where.
    fn addresses(&self) -> String {
        let of = |listener: &Option<TcpListener>| listener.as_ref().and_then(|one| one.local_addr().ok());
        let webhooks = [("webhooks", Some(self.webhooks.address()))];
        let all = webhooks.into_iter().chain([("health", of(&self.health)), ("metrics", of(&self.metrics))]);
        let served = all.filter_map(|(what, address)| Some(format!("{what} {}", address?)));
        served.collect::<Vec<_>>().join(", ")
    }
}

async fn listen(address: Option<SocketAddr>, what: &str, flag: &str) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    let listener = admin::bind(address)
        .await
        .with_context(|| format!("cannot serve {what} at {address}; choose another {flag}"))?;
    Ok(Some(listener))
}

fn limits(client: &config::Client) -> LimiterSettings {
    let rate = client.qps.map(|qps| (qps, client.burst.unwrap_or(qps)));
    LimiterSettings { rate, ..LimiterSettings::default() }
}

fn own_namespace(settings: &config::Process, cluster: &Cluster) -> String {
    let of_pod = is_in_pod().then(|| cluster.namespace.clone());
    settings.namespace.clone().or(of_pod).unwrap_or_else(|| DEFAULT_NAMESPACE.into())
}

/// Fails early without the namespace: nothing would work.
async fn must_exist(namespace: &str, cluster: &Cluster) -> anyhow::Result<()> {
    let api: kube::Api<Namespace> = kube::Api::all(cluster.client.clone());
    // Without the right to read it, later requests tell.
    let is_missing = matches!(api.get_metadata_opt(namespace).await, Ok(None));
    ensure!(
        !is_missing,
        "the namespace {namespace} does not exist at {}; create it, or name another with --namespace",
        cluster.address
    );
    Ok(())
}

fn lease_settings(settings: &config::Process, namespace: &str, identity: &str) -> LeaseSettings {
    let election = &settings.leader_election;
    LeaseSettings {
        namespace: election.resource_namespace.clone().unwrap_or_else(|| namespace.to_owned()),
        name: election.resource_name.clone(),
        identity: identity.to_owned(),
        duration: election.lease_duration.0,
        renew_deadline: election.renew_deadline.0,
        retry: election.retry_period.0,
    }
}

fn elect(api: &Api, clock: &Clock, lease: LeaseSettings, tasks: &Tasks) -> Leadership {
    let election = Election::new(api.clone(), clock.clone(), lease);
    let leadership = election.leadership();
    tasks.spawn("leader election", election.run(tasks.clone()));
    leadership
}

fn manage_certificates(
    api: &Api,
    clock: &Clock,
    settings: &config::Process,
    namespace: &str,
    (publications, api_services): (Vec<Publication>, Vec<ObjectKey>),
    tasks: &Tasks,
) -> CertificateManager {
    let service = ObjectKey::new(namespace, &settings.webhook.service_name);
    let secret = ObjectKey::new(namespace, &settings.webhook.secret_name);
    let mut manager = CertificateManagerSettings::own(secret, service, publications);
    manager.api_services = api_services;
    if let Some(directory) = &settings.webhook.cert_dir {
        manager.source = CertificateSource::Directory(PathBuf::from(directory));
    }
    CertificateManager::start(api.clone(), clock.clone(), manager, tasks)
}

/// Where the certificate authority is published: only for components that are switched on.
fn publications(components: &[Component], operators: &[Configured], namespace: &str) -> Vec<Publication> {
    let converted = components.iter().flat_map(Component::converted_crds).map(Publication::Conversion);
    let mut admission: Vec<_> = operators
        .iter()
        .flat_map(|configured| &configured.operator.webhooks)
        .map(|webhook| (webhook.kind, shared_name(namespace, webhook.configuration)))
        .collect();
    admission.sort();
    admission.dedup();
    let admission = admission.into_iter().map(|(kind, name)| match kind {
        WebhookKind::Mutating => Publication::Mutating(name),
        WebhookKind::Validating => Publication::Validating(name),
    });
    let apis = operators.iter().flat_map(|configured| &configured.operator.apis);
    let aggregated = apis.flat_map(AggregatedApi::api_services).map(Publication::Aggregated);
    converted.chain(admission).chain(aggregated).collect()
}

/// The aggregated APIs, and where each listens. Outside a pod no other machine reaches them.
async fn bind_apis(
    operators: &[Configured],
    placement: Placement,
) -> anyhow::Result<Vec<(AggregatedApi, ApiServer)>> {
    let mut bound = Vec::new();
    for api in operators.iter().flat_map(|configured| &configured.operator.apis) {
        let host = match placement {
            Placement::Machine if api.address.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
            _ => api.address,
        };
        let address = SocketAddr::new(host, api.service.target_port);
        let server = ApiServer::bind(address).await.with_context(|| {
            format!("cannot serve {} at {address}; configure another address for it", api.group)
        })?;
        bound.push((api.clone(), server));
    }
    Ok(bound)
}
