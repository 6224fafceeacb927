//! `quintet operator`: the operators, webhooks and services, against a cluster.

pub(crate) mod addresses;
mod arguments;
mod components;
mod process;

use std::time::Duration;

use anyhow::{bail, ensure};

pub(crate) use arguments::{Arguments, Duties};
pub(crate) use components::ray_settings;
use process::Process;

use crate::{cluster, logging, signals::Signals};

/// How long everything may take to end; Kubernetes kills after 30 seconds.
const PATIENCE: Duration = Duration::from_secs(25);

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let (configuration, cluster) = arguments.into_configuration()?;
    logging::start(&configuration.process.log)?;
    cluster::block_on(async move {
        let mut signals = Signals::listen()?;
        let cluster = tokio::select! {
            cluster = cluster.connect() => cluster?,
            signal = signals.next() => bail!("stopped by {signal} before the cluster answered"),
        };
        let process = Process::start(configuration, cluster).await?;
        let tasks = process.tasks.clone();
        tokio::select! {
            signal = signals.next() => tracing::info!("stopping on {signal}"),
            () = tasks.stopping() => {}
        }
        let (has_lost_the_lead, panicked) = (process.has_lost_the_lead(), tasks.panicked());
        let late = tokio::select! {
            late = process.stop(PATIENCE) => late,
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
        ensure!(!has_lost_the_lead, "another replica leads now; start again to stand by");
        tracing::info!("stopped");
        Ok(())
    })?
}
