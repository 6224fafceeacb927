//! `quintet operator`: the operators, webhooks and services, against a cluster.

pub(crate) mod addresses;
mod arguments;
mod process;

use std::time::Duration;

use anyhow::{bail, ensure};

pub(crate) use arguments::{Arguments, ConfigurationArguments};
use process::Process;

use crate::{catalog::Catalog, cluster, logging, signals::Signals};

/// How long everything may take to end; Kubernetes kills after 30 seconds.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(25);

pub(crate) fn run(arguments: Arguments, catalog: &Catalog) -> anyhow::Result<()> {
    let (configuration, cluster) = arguments.into_configuration(catalog)?;
    logging::start(&configuration.process.log)?;
    cluster::block_on(async move {
        let mut signals = Signals::listen()?;
        let cluster = tokio::select! {
            cluster = cluster.connect() => cluster?,
            signal = signals.next() => bail!("stopped by {signal} before the cluster answered"),
        };
        let process = Process::start(&configuration, &cluster, catalog).await?;
        let tasks = process.tasks.clone();
        tokio::select! {
            signal = signals.next() => tracing::info!("stopping on {signal}"),
            () = tasks.stopping() => {}
        }
        let (lost_lease, panicked) = (process.lost_lease(), tasks.panicked());
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
        ensure!(!lost_lease, "another replica leads now; start again to stand by");
        tracing::info!("stopped");
        Ok(())
    })?
}
