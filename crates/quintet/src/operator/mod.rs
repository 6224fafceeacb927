//! `quintet operator`: the operators, webhooks and services, against a cluster.

mod addresses;
mod arguments;
mod process;

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use arguments::Arguments;
use process::Process;

use crate::{cluster, logging};

/// How long everything may take to end; Kubernetes kills after 30 seconds.
const PATIENCE: Duration = Duration::from_secs(25);

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let (configuration, cluster) = arguments.into_configuration()?;
    logging::start(&configuration.process.log)?;
    cluster::block_on(async move {
        let stopped = stop_signal()?;
        let process = Process::start(configuration, cluster.connect().await?).await?;
        let tasks = process.tasks.clone();
        tokio::select! {
            signal = stopped => tracing::info!("stopping on {signal}"),
            () = tasks.stopping() => tracing::error!("stopping because a task failed"),
        }
        let panicked = !tasks.panicked().is_empty();
        let late = process.stop(PATIENCE).await;
        if !late.is_empty() {
            tracing::warn!("stopped without waiting for: {}", late.join(", "));
        }
        if panicked {
            bail!("a task panicked, which is a bug in Quintet; the log says where");
        }
        tracing::info!("stopped");
        Ok(())
    })?
}

/// Resolves with the name of the signal that asks us to stop.
fn stop_signal() -> anyhow::Result<impl Future<Output = &'static str>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => "interrupt",
            _ = terminate.recv() => "terminate",
        }
    })
}
