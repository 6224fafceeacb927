//! The log: text for people, JSON for machines, always on standard error.

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use quintet_api::config::{Log, LogFormat};
use tracing_subscriber::EnvFilter;

/// Starts logging.
pub(crate) fn start(log: &Log) -> anyhow::Result<()> {
    // The client's errors are returned to us and logged once, by us.
    let filter = EnvFilter::try_new(format!("kube_client::client::builder=off,{}", log.level))
        .with_context(|| format!("log level \"{}\" is not one of error, warn, info, debug, trace, nor a filter like info,kube=warn", log.level))?;
    let is_terminal = io::stderr().is_terminal();
    let format = log.format.unwrap_or(if is_terminal { LogFormat::Text } else { LogFormat::Json });
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match format {
        LogFormat::Text => {
            builder.with_ansi(is_terminal && std::env::var_os("NO_COLOR").is_none()).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))
}
