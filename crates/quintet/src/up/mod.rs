//! `quintet up`: the platform in one process.

mod operators;
mod platform;
mod pulls;
mod screen;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use quintet_api::config::{Configuration, Log, Webhook};
use quintet_api::conversion::ConversionError;
use quintet_api::crd::{self, WebhookService};
use quintet_apiserver::server::cluster::write_private;
use quintet_apiserver::store::Salvaged;
use quintet_apiserver::{Cluster, Controller, Converter, Settings};
use quintet_controller::api::FIELD_MANAGER;
use quintet_controller::clock::Clock;
use quintet_kubelet::network::rootless::{self, Entered};
use serde_json::Value;

use crate::catalog::Catalog;
use crate::names::DEFAULT_NAMESPACE;
use crate::operator::{ConfigurationArguments, machine_name};
use crate::session::{Held, Session, default_data_dir};
use crate::{logging, output, signals::Signals};
use platform::{NodeSettings, Parts, Platform};
use screen::Screen;

/// Run the platform on this machine: a Kubernetes API, a node that runs pods as processes, and the operators.
///
/// Nothing has to be installed: the API brings its own storage, certificates and credentials, and pods need neither a
/// container engine nor a registry. Only this machine can reach the API, unless `--host` says otherwise.
#[derive(Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Arguments {
    /// Where objects, keys, pods and the kubeconfig are kept [default: quintet in the data directory of the user].
    #[arg(long, value_name = "DIRECTORY", env = "QUINTET_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Keep objects in memory only; they are gone when it stops.
    #[arg(long)]
    in_memory: bool,
    /// Port to listen at; 0 takes any that is free.
    #[arg(long, default_value_t = 6443)]
    port: u16,
    /// Address to listen at.
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Where to write the kubeconfig [default: kubeconfig in the data directory].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Controllers of the API not to run, such as `garbage-collector-controller`; `*` for all: for test suites that are written for
    /// an API server alone.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = controllers)]
    disable_controllers: Vec<Vec<Controller>>,
    /// Start with what can be read of a data directory that is damaged or incomplete, and say what is lost.
    #[arg(long, conflicts_with = "in_memory")]
    recover: bool,
    /// Run no operators: their kinds are stored, and `quintet operator` may reconcile them from elsewhere.
    #[arg(long, help_heading = "Operators")]
    no_operator: bool,
    #[command(flatten)]
    node: NodeArguments,
    #[command(flatten, next_help_heading = "Operators")]
    configuration: ConfigurationArguments,
    /// What to log: error, warn, info, debug, trace, or a filter like `info,kube=warn`.
    #[arg(long, value_name = "LEVEL", default_value = "warn", help_heading = "Log")]
    log_level: String,
}

/// How pods run.
#[derive(Args)]
#[command(next_help_heading = "Node")]
struct NodeArguments {
    /// Run no pods: no node, no scheduler, no workload controllers. With --no-operator this is the API alone.
    #[arg(long)]
    no_node: bool,
    /// Simulate this many nodes, which run nothing but say they do, instead of running pods; see `quintet simulate-nodes`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "no_node")]
    simulate_nodes: Option<u32>,
    /// The name of the node [default: that of the machine].
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Make no Python environments: images that need one which is not there cannot be used.
    #[arg(long)]
    offline: bool,
    /// Let pods be privileged, use the network of the machine and any of its files.
    #[arg(long)]
    allow_privileged: bool,
    /// Offer this many graphics processors although there are none, to try out quotas.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pretend_gpus: u32,
}

pub(crate) fn run(arguments: Arguments, catalog: Catalog) -> anyhow::Result<ExitCode> {
    logging::start(&Log { level: arguments.log_level.clone(), ..Log::default() })?;
    let data_dir = arguments.data_dir.clone().map_or_else(default_data_dir, Ok)?;
    let data_dir = std::path::absolute(&data_dir).unwrap_or(data_dir);
    std::fs::create_dir_all(&data_dir).with_context(|| format!("cannot create {}", data_dir.display()))?;
    let configuration = arguments.configuration.clone().into_configuration(&catalog)?;
    // Before files are written that one which runs there uses. Taken for good by the process that becomes the platform.
    drop(Held::take(&data_dir, arguments.in_memory)?);
    let mut node = arguments.node.to_settings(&data_dir, arguments.in_memory, &configuration)?;
    if let Some(NodeSettings::Processes(settings)) = &mut node {
        settings.host_address = arguments.host;
        // Before the first thread: an ordinary user becomes root in namespaces of its own.
        match rootless::enter(&settings.data_directory)? {
            Entered::Here(placement) => settings.placement = placement,
            Entered::Ended(code) => return Ok(code),
        }
    }
    crate::cluster::block_on(up(arguments, data_dir, configuration, node, catalog))??;
    Ok(ExitCode::SUCCESS)
}

async fn up(
    arguments: Arguments,
    data_dir: PathBuf,
    configuration: Configuration,
    node: Option<NodeSettings>,
    catalog: Catalog,
) -> anyhow::Result<()> {
    let mut screen = Screen::new();
    let mut signals = Signals::listen()?;
    let in_memory = arguments.in_memory;
    let mut held = Held::take(&data_dir, in_memory)?;
    if arguments.recover {
        output::print(&recovery(&Cluster::recover(&data_dir)?))?;
    }
    screen.begin("Kubernetes API");
    let settings = Settings {
        data_dir: (!in_memory).then(|| data_dir.clone()),
        address: SocketAddr::new(arguments.host, arguments.port),
        converter: Some(converter(catalog.clone())),
        disabled_controllers: arguments.disable_controllers.into_iter().flatten().collect(),
    };
    let cluster = Cluster::start_unready(settings).await?;
    install(&cluster, &catalog).await?;
    // What is kept in memory has credentials of its own, and must not take those of what is kept on disk away.
    let default = if in_memory { "kubeconfig-in-memory" } else { "kubeconfig" };
    let path = arguments.kubeconfig.unwrap_or_else(|| data_dir.join(default));
    let path = std::path::absolute(&path).unwrap_or(path);
    refuse_foreign(&path)?;
    let config = cluster.kubeconfig().context("cannot make the kubeconfig")?;
    write_private(&path, config.as_bytes())?;
    screen.done(&cluster.url());
    let has_pods = matches!(node, Some(NodeSettings::Processes(_)));
    let parts = Parts { has_operators: !arguments.no_operator, node, removes_pods: in_memory };
    let platform = Platform::start(&cluster, parts, &configuration, &catalog, &mut screen).await?;
    cluster.api().set_ready(true);
    held.announce(&Session {
        pid: std::process::id(),
        url: cluster.url(),
        kubeconfig: path.clone(),
        started_at: Clock::system().now(),
    })?;
    let kept = if in_memory { "in memory only".to_owned() } else { format!("in {}", data_dir.display()) };
    let keeps_pods = has_pods && !in_memory;
    output::print(&format!(
        "Quintet is up at {} after {} ms; objects are kept {kept}\n\n  export KUBECONFIG={}\n  kubectl get nodes\n  quintet status\n\nPress ctrl-c to stop{}.\n",
        cluster.url(),
        screen.elapsed().as_millis(),
        path.display(),
        if keeps_pods { " and leave pods running; 'quintet down' stops them, too" } else { "" },
    ))?;
    platform.run(&cluster, &mut signals).await;
    output::print("\nStopping.\n")?;
    let stopped = platform.stop().await;
    cluster.stop().await;
    stopped
}

impl NodeArguments {
    /// The settings of the node, unless there is none.
    fn to_settings(
        &self,
        data_dir: &Path,
        in_memory: bool,
        configuration: &Configuration,
    ) -> anyhow::Result<Option<NodeSettings>> {
        if self.no_node {
            return Ok(None);
        }
        // Pods of objects that are kept in memory do not outlive them.
        let directory = data_dir.join(if in_memory { "node-in-memory" } else { "node" });
        if let Some(count) = self.simulate_nodes {
            return Ok(Some(NodeSettings::Simulated { count, directory }));
        }
        let name = self.node_name.clone().unwrap_or_else(|| machine_name().to_ascii_lowercase());
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut settings = quintet_kubelet::Settings::new(&name, directory, program);
        settings.images.clone_from(&configuration.node.images);
        settings.offline = self.offline;
        settings.allow_privileged = self.allow_privileged;
        settings.gpus = self.pretend_gpus;
        Ok(Some(NodeSettings::Processes(Box::new(settings))))
    }
}

/// The controllers that a name means.
fn controllers(name: &str) -> Result<Vec<Controller>, String> {
    if name == "*" {
        return Ok(Controller::ALL.to_vec());
    }
    let found = Controller::ALL.into_iter().find(|controller| controller.name() == name);
    found.map(|controller| vec![controller]).ok_or_else(|| {
        let names = Controller::ALL.map(Controller::name).join(", ");
        format!("there is no such controller; there are {names}, and * for all of them")
    })
}

/// What a recovery did, in words.
fn recovery(salvaged: &Salvaged) -> String {
    let Some(kept) = &salvaged.kept else {
        return "The data directory is complete; there is nothing to recover.\n".to_owned();
    };
    let losses: String = salvaged.losses.iter().flat_map(|loss| ["- ", loss, "\n"]).collect();
    format!(
        "Recovered {} objects; the files from before are in {}.\n{losses}",
        salvaged.objects,
        kept.display()
    )
}

/// Refuses to replace a kubeconfig that knows of other clusters than ours.
fn refuse_foreign(path: &Path) -> anyhow::Result<()> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(()) };
    let config: Value = serde_saphyr::from_str(&text).unwrap_or_default();
    let clusters = config.get("clusters").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    anyhow::ensure!(
        text.trim().is_empty()
            || (!clusters.is_empty() && clusters.iter().all(|one| one["name"] == "quintet")),
        "{} is not a kubeconfig of quintet and would be lost; choose another file with --kubeconfig",
        path.display()
    );
    Ok(())
}

/// Converts between versions of the components' kinds without a webhook.
fn converter(catalog: Catalog) -> Converter {
    Arc::new(move |object, wanted| match catalog.convert(object, wanted) {
        Err(ConversionError::Unknown { .. } | ConversionError::Untyped) => None,
        outcome => Some(outcome.map_err(|error| error.to_string())),
    })
}

/// Installs the CRDs of all components.
async fn install(cluster: &Cluster, catalog: &Catalog) -> anyhow::Result<()> {
    let webhooks =
        WebhookService { namespace: DEFAULT_NAMESPACE.into(), name: Webhook::default().service_name };
    let installed = cluster.api().define(FIELD_MANAGER, crd::makers(catalog.crds(), &webhooks)).await;
    installed.context("cannot install the CRDs")
}
