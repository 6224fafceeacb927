//! The process: everything that runs between start and stop.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use quintet_api::config::{self, Configuration};
use quintet_api::conversion;
use quintet_api::crd::{self, WebhookService};
use quintet_controller::admin::Admin;
use quintet_controller::api::{Api, ApiSettings};
use quintet_controller::cache::Caches;
use quintet_controller::clock::Clock;
use quintet_controller::events::Recorder;
use quintet_controller::leader::{Election, Leadership, LeaseSettings, replica_identity};
use quintet_controller::limiter::{Limiter, LimiterSettings};
use quintet_controller::metrics::{Metrics, MetricsRegistry};
use quintet_controller::queue::Queue;
use quintet_controller::tasks::Tasks;
use quintet_controller::webhook::{
    CertificateSource, Keeper, KeeperSettings, Publication, Routes, WebhookServer, WebhookSettings,
};
use quintet_controller::{ObjectKey, Runtime, RuntimeParts, RuntimeSettings};

use super::addresses;
use crate::cluster::Cluster;

/// The namespace of a process that runs neither in a pod nor with a namespace of its own.
const DEFAULT_NAMESPACE: &str = "quintet-system";

/// A running process.
pub(super) struct Process {
    pub(super) tasks: Tasks,
    runtime: Runtime,
}

impl Process {
    /// Starts everything; an address that is in use, or a setting that cannot be, is an error.
    pub(super) async fn start(configuration: Configuration, cluster: Cluster) -> anyhow::Result<Self> {
        let settings = &configuration.process;
        let namespace = own_namespace(settings, &cluster);
        let clock = Clock::system();
        let tasks = Tasks::new();
        let registry = MetricsRegistry::new();
        let metrics = Metrics::register(&registry);
        let limiter = Limiter::adaptive(LimiterSettings::default());
        let api = Api::new(cluster.client.clone(), limiter, ApiSettings::default(), Arc::clone(&metrics));
        let identity = replica_identity(&host_name(), Timestamp::now());

        // Elected first, given back last.
        let leadership = elect(&api, &clock, settings, &namespace, &identity, &tasks);
        let caches = Caches::new(api.clone(), tasks.clone(), Arc::clone(&metrics), None);
        let queue = Queue::new(Arc::clone(&metrics), None);
        let recorder = Recorder::start(api.clone(), clock.clone(), Arc::clone(&metrics), &tasks, &identity);
        let keeper = keep_certificates(&api, &clock, settings, &namespace, &tasks);
        let webhooks = WebhookServer::start(
            WebhookSettings::new(addresses::listen(&settings.webhook.host, settings.webhook.port)?),
            routes(),
            keeper.clone(),
            &tasks,
        )
        .await
        .context("cannot serve webhooks")?;

        let parts = RuntimeParts {
            api: api.clone(),
            caches: caches.clone(),
            queue: queue.clone(),
            recorder,
            leadership: leadership.clone(),
            metrics,
            tasks: tasks.clone(),
        };
        let runtime = Runtime::new(parts, RuntimeSettings::default());
        let admin =
            Admin { registry, caches, queue, leadership, keeper: Some(keeper), api, tasks: tasks.clone() };
        serve_admin(&admin, settings).await?;
        runtime.start();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            cluster = cluster.address,
            namespace,
            identity,
            webhooks = %webhooks.address(),
            components = ?configuration.components(),
            "started"
        );
        Ok(Self { tasks, runtime })
    }

    /// Stops everything in order; returns what did not end in time.
    pub(super) async fn stop(self, patience: Duration) -> Vec<String> {
        match tokio::time::timeout(patience, self.runtime.shut_down()).await {
            Ok(late) => late,
            Err(_) => self.tasks.running(),
        }
    }
}

fn own_namespace(settings: &config::Process, cluster: &Cluster) -> String {
    let is_in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let of_pod = is_in_pod.then(|| cluster.namespace.clone());
    settings.namespace.clone().or(of_pod).unwrap_or_else(|| DEFAULT_NAMESPACE.into())
}

fn host_name() -> String {
    let from_environment = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let from_kernel =
        || std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
    from_environment.or_else(from_kernel).unwrap_or_else(|| "quintet".into())
}

fn elect(
    api: &Api,
    clock: &Clock,
    settings: &config::Process,
    namespace: &str,
    identity: &str,
    tasks: &Tasks,
) -> Leadership {
    let election = &settings.leader_election;
    if !election.leader_elect {
        return Leadership::always();
    }
    let lease = LeaseSettings {
        namespace: election.resource_namespace.clone().unwrap_or_else(|| namespace.to_owned()),
        name: election.resource_name.clone(),
        identity: identity.to_owned(),
        duration: election.lease_duration.0,
        renew_deadline: election.renew_deadline.0,
        retry: election.retry_period.0,
    };
    let election = Election::new(api.clone(), clock.clone(), lease);
    let leadership = election.leadership();
    tasks.spawn("leader election", election.run(tasks.clone()));
    leadership
}

fn keep_certificates(
    api: &Api,
    clock: &Clock,
    settings: &config::Process,
    namespace: &str,
    tasks: &Tasks,
) -> Keeper {
    let service = &settings.webhook.service_name;
    let names =
        vec![format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")];
    let webhooks = WebhookService { namespace: namespace.to_owned(), name: service.clone() };
    let secret = ObjectKey::new(namespace, &settings.webhook.secret_name);
    let mut keeper = KeeperSettings::own(secret, names, conversions(&webhooks));
    if let Some(directory) = &settings.webhook.cert_dir {
        keeper.source = CertificateSource::Directory(PathBuf::from(directory));
    }
    Keeper::start(api.clone(), clock.clone(), keeper, tasks)
}

/// The CRDs whose versions are converted by webhook.
fn conversions(webhooks: &WebhookService) -> Vec<Publication> {
    crd::all(webhooks)
        .into_iter()
        .filter(|crd| crd.spec.conversion.is_some())
        .filter_map(|crd| crd.metadata.name.map(Publication::Conversion))
        .collect()
}

fn routes() -> Routes {
    Routes::new().convert(crd::CONVERSION_PATH, |object, api_version| {
        conversion::convert(object, api_version).map_err(|error| error.to_string())
    })
}

/// Health and metrics may share an address.
async fn serve_admin(admin: &Admin, settings: &config::Process) -> anyhow::Result<()> {
    let health = addresses::optional(&settings.health_bind_address, "--health-probe-bind-address")?;
    let metrics = addresses::optional(&settings.metrics_bind_address, "--metrics-bind-address")?;
    if let Some(address) = health {
        admin
            .clone()
            .start(address)
            .await
            .context("cannot serve health; choose another --health-probe-bind-address")?;
    }
    if let Some(address) = metrics.filter(|address| Some(*address) != health) {
        admin
            .clone()
            .start(address)
            .await
            .context("cannot serve metrics; choose another --metrics-bind-address")?;
    }
    Ok(())
}
