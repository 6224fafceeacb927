//! `quintet up`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use quintet_api::config::{Log, Webhook};
use quintet_api::conversion::ConversionError;
use quintet_api::crd::{self, WebhookService};
use quintet_apiserver::server::cluster::write_private;
use quintet_apiserver::store::Salvaged;
use quintet_apiserver::{Cluster, Controller, Converter, Settings};
use quintet_controller::api::FIELD_MANAGER;
use serde_json::Value;

use crate::catalog::Catalog;
use crate::names::DEFAULT_NAMESPACE;
use crate::{logging, output, signals::Signals};

/// Serve a Kubernetes API on this machine, with Quintet's kinds in it.
///
/// Nothing has to be installed: the API brings its own storage, certificates and credentials. Only this
/// machine can reach it, unless `--host` says otherwise.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Where objects, keys and the kubeconfig are kept [default: quintet in the data directory of the user].
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
    /// Controllers not to run, such as `garbage-collector-controller`; `*` for all: for test suites that are written for
    /// an API server alone.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = controllers)]
    disable_controllers: Vec<Vec<Controller>>,
    /// Start with what can be read of a data directory that is damaged or incomplete, and say what is lost.
    #[arg(long, conflicts_with = "in_memory")]
    recover: bool,
    /// What to log: error, warn, info, debug, trace, or a filter like `info,kube=warn`.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log_level: String,
}

pub(crate) fn run(arguments: Arguments, catalog: Catalog) -> anyhow::Result<()> {
    logging::start(&Log { level: arguments.log_level.clone(), ..Log::default() })?;
    crate::cluster::block_on(up(arguments, catalog))?
}

async fn up(arguments: Arguments, catalog: Catalog) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut signals = Signals::listen()?;
    let Arguments { data_dir, in_memory, port, host, kubeconfig, recover, disable_controllers, .. } =
        arguments;
    let data_dir = match data_dir {
        Some(path) => path,
        None => default_data_dir()?,
    };
    std::fs::create_dir_all(&data_dir).with_context(|| format!("cannot create {}", data_dir.display()))?;
    let settings = Settings {
        data_dir: (!in_memory).then(|| data_dir.clone()),
        address: SocketAddr::new(host, port),
        converter: Some(converter(catalog.clone())),
        disabled_controllers: disable_controllers.into_iter().flatten().collect(),
    };
    if recover {
        output::print(&recovery(&Cluster::recover(&data_dir)?))?;
    }
    let cluster = Cluster::start_unready(settings).await?;
    install(&cluster, &catalog).await?;
    // What is kept in memory has credentials of its own, and must not take those of what is kept on disk away.
    let default = if in_memory { "kubeconfig-in-memory" } else { "kubeconfig" };
    let path = kubeconfig.unwrap_or_else(|| data_dir.join(default));
    let path = std::path::absolute(&path).unwrap_or(path);
    refuse_foreign(&path)?;
    let config = cluster.kubeconfig().context("cannot make the kubeconfig")?;
    write_private(&path, config.as_bytes())?;
    cluster.api().set_ready(true);
    let kept = if in_memory { "in memory only".to_owned() } else { format!("in {}", data_dir.display()) };
    output::print(&format!(
        "Quintet is up at {} after {} ms; objects are kept {kept}\n\n  export KUBECONFIG={}\n  kubectl api-resources\n\nPress ctrl-c to stop.\n",
        cluster.url(),
        began.elapsed().as_millis(),
        path.display()
    ))?;
    signals.next().await;
    output::print("\nStopping.\n")?;
    cluster.stop().await;
    Ok(())
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

/// Where programs keep data of this user.
fn default_data_dir() -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    let base = base.context("there is no home directory; say where to keep data with --data-dir")?;
    Ok(base.join(Path::new("quintet")))
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
