//! A kubelet that runs pods as processes of this machine, without a container engine and without images.
//!
//! Every container has a PID and a mount namespace of its own; containers of a pod share network, IPC and UTS
//! namespaces. A [shim] per pod is the parent of its processes, so that they outlive the kubelet.
//!
//! Programs that start pods call [`hidden_command`] first thing in `main`, before they start a thread: the shim and the
//! first process of every container are the same program again.

pub mod cgroups;
mod ids;
pub mod images;
mod init;
mod kubelet;
pub mod machine;
pub mod network;
mod node;
pub mod pod;
mod process;
mod server;
pub mod shim;
pub mod volumes;
mod worker;

pub use kubelet::{Handler, HandlerBody, Kubelet, KubeletError, Settings, clear, start};

use std::path::Path;
use std::process::ExitCode;

/// Runs a hidden command if the arguments of this process name one.
pub fn hidden_command() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next()?;
    if command == init::COMMAND {
        Some(init::main())
    } else if command == shim::COMMAND {
        Some(shim::main(Path::new(&arguments.next()?)))
    } else if command == network::rootless::COMMAND {
        let directory = arguments.next()?;
        Some(network::rootless::main(Path::new(&directory), arguments.collect()))
    } else {
        None
    }
}
