//! The namespaces that the containers of a pod share.

use std::io;

use nix::sched::{CloneFlags, unshare};
use serde::{Deserialize, Serialize};

/// The sandbox of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxConfig {
    /// The name the pod's processes see as that of their machine.
    pub hostname: String,
    /// Which network they see.
    pub network: NetworkMode,
}

/// Which network a pod sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NetworkMode {
    /// Its own, which the kubelet connects when the shim is ready.
    Pod,
    /// That of the host.
    Host,
}

/// Moves this process, and so all containers it starts, into the namespaces of the pod.
pub(super) fn enter(config: &SandboxConfig) -> io::Result<()> {
    let own = CloneFlags::CLONE_NEWIPC;
    let flags = match config.network {
        NetworkMode::Pod => own | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS,
        NetworkMode::Host => own,
    };
    unshare(flags)
        .map_err(|error| io::Error::other(format!("cannot make the namespaces of the pod: {error}")))?;
    if config.network == NetworkMode::Pod {
        nix::unistd::sethostname(&config.hostname)?;
    }
    Ok(())
}
