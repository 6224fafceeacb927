//! `quintet down`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quintet_kubelet::network::rootless::{self, Entered};

use crate::cluster::block_on;
use crate::output;
use crate::session::{Held, Session, default_data_dir};

/// How long `quintet up` may take to stop.
const PATIENCE: Duration = Duration::from_secs(45);

/// Stop `quintet up` and all pods it has started
///
/// Leaves no process, namespace, mount, control group or network interface behind. Objects are kept: the next `quintet
/// up` starts their pods again.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The data directory of `quintet up` [default: quintet in the data directory of the user].
    #[arg(long, value_name = "DIRECTORY", env = "QUINTET_DATA_DIR")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let data_dir = arguments.data_dir.map_or_else(default_data_dir, Ok)?;
    if !data_dir.exists() {
        output::print(&format!("Nothing runs: {} does not exist.\n", data_dir.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let stopped = block_on(stop_all(&data_dir))??;
    let mut pods = 0;
    for node in ["node", "node-in-memory"].map(|name| data_dir.join(name)) {
        if let Entered::Ended(code) = rootless::enter_to_clear(&node)?
            && code != ExitCode::SUCCESS
        {
            return Ok(code);
        }
        let cleared = block_on(quintet_kubelet::clear(&node))?;
        pods += cleared.context("cannot stop all pods; run 'quintet down' again")?;
    }
    // One that was started again to clear speaks through the one that started it.
    if !rootless::is_inside() {
        match &stopped[..] {
            [] if pods > 0 => output::print(&format!("No quintet up runs; its pods are stopped: {pods}.\n"))?,
            [] => output::print("No quintet up runs; what it may have left is removed.\n")?,
            stopped => output::print(&format!("Stopped {} and its pods.\n", stopped.join(" and ")))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Stops every `quintet up` of a data directory; returns which.
async fn stop_all(data_dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut stopped = Vec::new();
    while let Some((session, in_memory)) = Session::find(data_dir)? {
        stop(&session)?;
        let released = tokio::time::timeout(PATIENCE, Held::released(data_dir, in_memory)).await;
        released.with_context(|| {
            format!("quintet up has not stopped after {} s; its log says why", PATIENCE.as_secs())
        })??;
        stopped.push(format!("quintet up at {}", session.url));
    }
    Ok(stopped)
}

fn stop(session: &Session) -> anyhow::Result<()> {
    let pid = i32::try_from(session.pid).context("the process of quintet up is unknown")?;
    match kill(Pid::from_raw(pid), Signal::SIGTERM) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot stop quintet up (process {pid})")),
    }
}
