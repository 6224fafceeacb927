//! The shim: one small process per pod that is the parent of its containers.
//!
//! It holds the namespaces that containers of a pod share, writes their logs and knows how they ended, so that a
//! kubelet can be restarted, or killed, without any container noticing. It is this program again, started with a
//! hidden command; it uses threads and blocking calls only, and stays small.
//!
//! ```text
//!   kubelet ── Unix socket ──> shim ── container-init ──> command      one PID and mount namespace per container,
//!                               │ └── container-init ──> command      network, IPC and UTS namespaces of the pod
//!                               └── logs, exit codes
//! ```

mod client;
mod container;
mod log;
mod output;
pub mod protocol;
mod sandbox;
mod server;

pub use client::{Shim, ShimError, StreamReceiver, StreamSender, Streams, Watch};
pub use log::{files as log_files, rotated as rotated_log};
pub use sandbox::{NetworkMode, SandboxConfig};

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// The hidden command that runs [`main`].
pub const COMMAND: &str = "pod-shim";
/// The shim's socket in the directory of its pod.
pub const SOCKET: &str = "shim.sock";

/// Makes the sandbox of a pod and serves its containers until it is stopped. `directory` is the directory of the
/// pod; the configuration of the sandbox is read from the standard input, and `ready` is printed when the socket
/// takes requests.
pub fn main(directory: &Path) -> ExitCode {
    match server::run(directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The kubelet reads the standard output for the first line: `ready`, or why it failed.
            drop(writeln!(std::io::stdout(), "{error}"));
            ExitCode::FAILURE
        }
    }
}

/// What happens to processes happens in real time.
fn now() -> jiff::Timestamp {
    quintet_foundation::clock::Clock::system().now()
}
