//! `quintet operator`: the operators, webhooks and services, against a cluster.

pub(crate) mod addresses;
mod arguments;
mod assembly;
mod process;

use std::time::Duration;

use anyhow::{bail, ensure};
use quintet_api::config::Configuration;

pub(crate) use arguments::{Arguments, ConfigurationArguments};
pub(crate) use assembly::{admin_components, conversion_route, machine_name, start_operators};
use process::{End, Process};

use crate::catalog::Catalog;
use crate::cluster::{self, Cluster, ClusterArguments, is_in_pod};
use crate::{logging, signals::Signals};

/// How long everything may take to end; Kubernetes kills after 30 seconds.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(25);

/// How often an API server that does not respond is tried again, as leader election does.
const RECONNECT: Duration = Duration::from_secs(2);

pub(crate) fn run(arguments: Arguments, catalog: &Catalog) -> anyhow::Result<()> {
    let (configuration, cluster) = arguments.into_configuration(catalog)?;
    catalog.must_run(&configuration)?;
    logging::start(&configuration.process.log)?;
    cluster::block_on(async move {
        let mut signals = Signals::listen()?;
        let mut connection = tokio::select! {
            connection = cluster.clone().connect() => connection?,
            signal = signals.next() => bail!("stopped by {signal} before the cluster answered"),
        };
        loop {
            match run_until_end(&configuration, &connection, catalog, &mut signals).await? {
                End::Stopped => return Ok(()),
                End::LostContact(message) if is_in_pod() => bail!(message),
                End::LostContact(message) => {
                    // A process outside a pod is not restarted.
                    tracing::warn!("{message}; waiting for the API to start again");
                    connection = tokio::select! {
                        connection = reconnect(&cluster) => connection,
                        signal = signals.next() => bail!("stopped by {signal} while the cluster did not answer"),
                    };
                }
                End::LostLease(message) => bail!(message),
            }
        }
    })?
}

/// Runs the operators until a signal, or until they cannot go on.
async fn run_until_end(
    configuration: &Configuration,
    cluster: &Cluster,
    catalog: &Catalog,
    signals: &mut Signals,
) -> anyhow::Result<End> {
    let process = Process::start(configuration, cluster, catalog).await?;
    let tasks = process.tasks.clone();
    tokio::select! {
        signal = signals.next() => tracing::info!("stopping on {signal}"),
        () = tasks.stopping() => {}
    }
    let (end, panicked) = (process.end(), tasks.panicked());
    let late = tokio::select! {
        late = process.stop(SHUTDOWN_TIMEOUT) => late,
        signal = signals.next() => bail!("stopped at once by a second {signal}"),
    };
    if !late.is_empty() {
        tracing::warn!("stopped without waiting for: {}", late.join(", "));
    }
    ensure!(
        panicked.is_empty(),
        "{} panicked, which is a bug in Quintet; the log says where",
        panicked.join(", ")
    );
    tracing::info!("stopped");
    Ok(end)
}

/// Connects as soon as the API server responds. The kubeconfig is read each time: a restarted cluster has
/// other credentials.
async fn reconnect(cluster: &ClusterArguments) -> Cluster {
    loop {
        match cluster.clone().connect().await {
            Ok(connection) => {
                tracing::info!(address = connection.address, "the Kubernetes API responds again");
                return connection;
            }
            Err(error) => tracing::debug!("{error:#}"),
        }
        tokio::time::sleep(RECONNECT).await;
    }
}
