//! Starting and stopping a kubelet.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use quintet_api::quantity::Quantity;
use quintet_controller::api::{Api, ApiSettings};
use quintet_controller::cache::{Caches, WatchSpec};
use quintet_controller::clock::Clock;
use quintet_controller::events::Recorder;
use quintet_controller::limiter::{Limiter, LimiterSettings};
use quintet_controller::metrics::{Metrics, MetricsRegistry};
use quintet_controller::tasks::Tasks;
use quintet_foundation::rng::Rng;

use crate::cgroups::Cgroups;
use crate::ids::Ids;
use crate::images::{Environments, Images, Mapping, Table};
use crate::machine::{Machine, busy_nanos};
use crate::network::rootless::Placement;
use crate::network::{self, Network, NetworkError};
use crate::node::{Description, Node};
use crate::pod::names::Resolver;
use crate::server::{self, metrics::Samples};
use crate::worker::{self, Context, Pods};

/// How long tasks may take to end when the kubelet stops.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// How a kubelet runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of its Node.
    pub node_name: String,
    /// Where it keeps pods, their volumes and logs, and Python environments. Pods do not see it.
    pub data_directory: PathBuf,
    /// The program that runs shims: one that calls [`crate::hidden_command`] first thing in `main`.
    pub program: PathBuf,
    /// What runs in place of images, before the mappings every node has.
    pub images: Vec<Mapping>,
    /// Whether Python environments that are not there must not be made.
    pub offline: bool,
    /// Whether pods may ask for `privileged`, further capabilities, `hostNetwork` and any `hostPath`.
    pub allow_privileged: bool,
    /// Pretended graphics processors, where the machine has fewer.
    pub gpus: u32,
    /// Where persistent volumes are directories.
    pub volumes: Option<PathBuf>,
    /// The home directory of the user, below which pods may use `hostPath`.
    pub home: Option<PathBuf>,
    /// Directories with keys and tokens, which no pod may mount: where the data directory is, unless set.
    pub private: Vec<PathBuf>,
    /// Between two looks at the disk usage of pods that have limits; ten seconds if `None`.
    pub usage_period: Option<Duration>,
    /// Where pods are connected, as [`network::rootless::enter`] says.
    pub placement: Placement,
    /// The address of this machine where node ports are served.
    pub host_address: IpAddr,
    /// Pods at a time.
    pub max_pods: u32,
    /// Further labels of the Node.
    pub labels: BTreeMap<String, String>,
}

impl Settings {
    /// The usual settings of a node.
    pub fn new(node_name: &str, data_directory: PathBuf, program: PathBuf) -> Self {
        Self {
            node_name: node_name.to_owned(),
            volumes: Some(data_directory.join("volumes")),
            private: vec![data_directory.parent().unwrap_or(&data_directory).to_owned()],
            data_directory,
            program,
            images: Vec::new(),
            offline: false,
            allow_privileged: false,
            gpus: 0,
            home: std::env::var_os("HOME").map(PathBuf::from),
            usage_period: None,
            placement: Placement::default(),
            host_address: Ipv4Addr::LOCALHOST.into(),
            max_pods: 110,
            labels: BTreeMap::new(),
        }
    }
}

/// Why a kubelet cannot start.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// Namespaces without a user namespace need the root user.
    #[error(
        "pods run in namespaces of their own, which needs the root user: start quintet up as root, or with --no-node"
    )]
    NotRoot,
    /// The data directory cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Every container sees the system's directories.
    #[error("{} is below a directory of the system, which pods see; choose another data directory", .0.display())]
    VisibleDirectory(PathBuf),
    /// Pods cannot be connected.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A request to the cluster failed.
    #[error(transparent)]
    Refused(#[from] quintet_controller::Error),
}

/// The body of a response of the kubelet's API.
pub type HandlerBody = BoxStream<'static, Bytes>;

/// The kubelet's API, which the API server calls: `/containerLogs/…`, `/exec/…`, `/attach/…`, `/portForward/…`. Requests that
/// upgrade their connection carry hyper's `OnUpgrade` in their extensions.
pub type Handler =
    Arc<dyn Fn(http::Request<Bytes>) -> BoxFuture<'static, http::Response<HandlerBody>> + Send + Sync>;

/// A running kubelet.
pub struct Kubelet {
    tasks: Tasks,
    pods: Pods,
    network: Network,
}

/// Registers the node and runs the pods that are bound to it. Pods of an earlier kubelet of the same data directory go on.
pub async fn start(client: kube::Client, clock: &Clock, settings: Settings) -> Result<Kubelet, KubeletError> {
    if !rustix::process::geteuid().is_root() {
        return Err(KubeletError::NotRoot);
    }
    prepare(&settings)?;
    let metrics = Metrics::register(&MetricsRegistry::new());
    let limiter = Limiter::adaptive(LimiterSettings::default());
    let api = Api::new(client.clone(), limiter, ApiSettings::default(), Arc::clone(&metrics));
    let tasks = Tasks::new();
    let of_network = network::Settings::new(&settings.data_directory, &settings.node_name);
    let (placement, host_address) = (settings.placement.clone(), settings.host_address);
    let of_network = network::Settings { host_address, placement, ..of_network };
    let network = Network::start(client, of_network).await?;
    let description = describe(&settings, &network);
    let directory = settings.data_directory.clone();
    let node = Node::new(api.clone(), clock.clone(), description.clone(), directory.clone());
    let uid = node.register().await?;
    tasks.spawn("node", node.maintain(uid, tasks.clone()));
    let caches = Caches::new(api.clone(), tasks.clone(), Arc::clone(&metrics), None);
    let services = caches.watch(WatchSpec::typed())?;
    services.synced().await;
    let environments = Environments::new(directory.join("environments"), settings.offline);
    let cgroups = Cgroups::detect();
    if let Err(error) = cgroups.weigh(description.machine.processors) {
        tracing::warn!("pods have the weight of a single process: {error}");
    }
    let context = Context {
        recorder: Recorder::start(api.clone(), clock.clone(), metrics, &tasks, &settings.node_name),
        api,
        clock: clock.clone(),
        rng: Rng::from_entropy(),
        tasks: tasks.clone(),
        images: Images::new(
            Table::new(settings.images.clone()),
            environments,
            directory.join("images"),
            settings.program.clone(),
        ),
        cgroups,
        ids: Ids::read(),
        network: network.clone(),
        services,
        allocatable: amounts(&description),
        node_address: description.address,
        machine: description.machine,
        resolver: Resolver::parse(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default()),
        samples: Samples::default(),
        started: (clock.now(), busy_nanos(&std::fs::read_to_string("/proc/stat").unwrap_or_default())),
        settings,
    };
    let missing = context.cgroups.missing();
    if !missing.is_empty() {
        tracing::warn!("this machine does not let us limit {} of pods", missing.join(", "));
    }
    let pods = Pods::start(Arc::new(context), &caches).await?;
    Ok(Kubelet { tasks, pods, network })
}

impl Kubelet {
    /// The kubelet's API, for the API server of this process: `api.kubelets().register(node, kubelet.handler())`.
    pub fn handler(&self) -> Handler {
        let pods = self.pods.clone();
        Arc::new(move |request| {
            let pods = pods.clone();
            Box::pin(async move { server::serve(&pods, request).await })
        })
    }

    /// The network of its pods.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Stops the kubelet and leaves its pods running: the next one finds them again.
    pub async fn stop(self) {
        let late = self.tasks.shut_down(SHUTDOWN).await;
        if !late.is_empty() {
            tracing::warn!("stopped without waiting for: {}", late.join(", "));
        }
        self.network.stop().await;
    }

    /// Stops the kubelet, ends all pods and removes what they left on this machine.
    pub async fn shut_down(self) -> Result<(), KubeletError> {
        let directory = self.pods.context().settings.data_directory.clone();
        self.stop().await;
        clear(&directory).await.map(drop)
    }
}

/// Ends all pods of a data directory whose kubelet does not run, and removes what they left: processes, mounts, control
/// groups, interfaces and files. Python environments stay. Returns how many pods there were.
pub async fn clear(data_directory: &Path) -> Result<usize, KubeletError> {
    let failed = |source| KubeletError::Directory { path: data_directory.to_owned(), source };
    let pods = worker::clear_pods(data_directory).await.map_err(failed)?;
    worker::unmount_below(data_directory).map_err(failed)?;
    Cgroups::detect().clear();
    Network::clear(data_directory).await?;
    Ok(pods)
}

/// Makes the data directory, which only its owner may enter.
fn prepare(settings: &Settings) -> Result<(), KubeletError> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = &settings.data_directory;
    let failed = |source| KubeletError::Directory { path: path.clone(), source };
    std::fs::create_dir_all(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    let real = path.canonicalize().map_err(failed)?;
    if crate::init::is_visible(&real) {
        return Err(KubeletError::VisibleDirectory(real));
    }
    Ok(())
}

fn describe(settings: &Settings, network: &Network) -> Description {
    Description {
        name: settings.node_name.clone(),
        machine: Machine::read(&settings.data_directory),
        address: network.node_address(),
        labels: settings.labels.clone(),
        gpus: settings.gpus,
        max_pods: settings.max_pods,
        pod_cidr: network.pod_subnet().to_string(),
    }
}

fn amounts(description: &Description) -> BTreeMap<String, Quantity> {
    let amounts = description.allocatable().into_iter();
    amounts.filter_map(|(name, amount)| Some((name, amount.parse().ok()?))).collect()
}
