//! The sandbox of a pod: its shim, its network, and the files that name it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::context::Context;
use super::handle::{PodHandle, member};
use super::{publish, storage};
use crate::cgroups::Cgroups;
use crate::pod::names::{hostname, hosts_file};
use crate::pod::observe::{absorb, lost};
use crate::pod::status::{End, PodRecord};
use crate::shim::protocol::ContainerState;
use crate::shim::{NetworkMode, SandboxConfig, Shim};

/// Last words that are kept of one container.
const MESSAGE_BYTES: u64 = 4096;
/// Lines and bytes of the log that stand in for last words.
const LOG_LINES: usize = 80;
const LOG_BYTES: usize = 2048;

/// Starts the sandbox, if it does not exist.
pub(super) async fn ensure(
    context: &Arc<Context>,
    handle: &Arc<PodHandle>,
    pod: &core::Pod,
) -> Result<(), String> {
    if handle.record().has_sandbox {
        return Ok(());
    }
    let is_on_host = is_on_host(pod);
    if is_on_host && !context.settings.allow_privileged {
        return Err("hostNetwork is not allowed; start quintet up with --allow-privileged".into());
    }
    storage::make(&handle.directory).map_err(|error| error.to_string())?;
    let is_shared = is_on_host || context.network.is_shared();
    let network = if is_shared { NetworkMode::Host } else { NetworkMode::Pod };
    let config = SandboxConfig { hostname: hostname(pod), network };
    let (_, pid) = Shim::start(&context.settings.program, &handle.directory, &config)
        .await
        .map_err(|error| error.to_string())?;
    handle.set_shim(storage::started(pid).map(|started| (pid, started)));
    let kept = connect(context, handle, pod, pid).await.and_then(|address| {
        handle.update(|record| {
            record.pod_ips = vec![address.to_string()];
            record.has_sandbox = true;
        });
        // Before the first container: the next kubelet ends a sandbox that it finds no record of.
        publish::keep(handle).map_err(|error| format!("cannot write the record of the pod: {error}"))
    });
    if kept.is_err() {
        handle.update(|record| record.has_sandbox = false);
        discard(context, handle).await;
    } else {
        follow(context, handle);
    }
    kept
}

/// Ends a sandbox that no container was started in.
async fn discard(context: &Context, handle: &PodHandle) {
    storage::kill_shim(&handle.directory, &handle.saved()).await;
    disconnect(context, handle).await;
}

async fn disconnect(context: &Context, handle: &PodHandle) {
    if let Err(error) = context.network.detach(&handle.uid).await {
        tracing::warn!("cannot disconnect pod {}: {error}", handle.key);
    }
}

/// Gives the sandbox an address, names and ports of the node.
async fn connect(
    context: &Context,
    handle: &PodHandle,
    pod: &core::Pod,
    shim: u32,
) -> Result<Ipv4Addr, String> {
    let network = &context.network;
    let address = if is_on_host(pod) {
        context.node_address
    } else {
        network.attach(shim, &handle.uid).await.map_err(|error| error.to_string())?
    };
    write_names(context, handle, pod, &[address.to_string()]).map_err(|error| error.to_string())?;
    network.open_host_ports(pod, &handle.uid, address).await.map_err(|error| error.to_string())?;
    Ok(address)
}

/// Finds the sandbox that an earlier kubelet started, whatever it managed to write down.
pub(super) async fn adopt(context: &Arc<Context>, handle: &Arc<PodHandle>) {
    let saved = storage::load(&handle.directory).unwrap_or_default();
    let shim = saved.shim.zip(saved.shim_started.clone());
    let restored = saved.clone().restore();
    let was_over = restored.is_over;
    handle.update(|record| {
        let rejection = record.verdict.take();
        *record = PodRecord { verdict: restored.verdict.clone().or(rejection), ..restored };
    });
    if was_over {
        return;
    }
    handle.set_shim(shim);
    if !saved.has_sandbox {
        discard(context, handle).await;
        return;
    }
    let states = handle.shim().status().await;
    let address = context.network.adopt(&handle.uid).map(|address| address.to_string());
    let address = address.or_else(|| saved.pod_ips().first().cloned());
    match (states, address) {
        (Ok(states), Some(address)) => {
            reopen_host_ports(context, handle, &address).await;
            let ended = handle.update(|record| {
                record.has_sandbox = true;
                record.pod_ips = vec![address];
                absorb(record, states)
            });
            for (name, state) in ended {
                keep_last_words(handle, &name, &state);
            }
            follow(context, handle);
        }
        (Ok(_), None) => storage::kill_shim(&handle.directory, &saved).await,
        (Err(_), _) => handle.update(|record| lost(record, context.clock.now())),
    }
}

/// Ports of the node are served by the kubelet, so they end with it.
async fn reopen_host_ports(context: &Context, handle: &PodHandle, address: &str) {
    let (Some(pod), Ok(address)) = (handle.pod(), address.parse()) else { return };
    if let Err(error) = context.network.open_host_ports(&pod, &handle.uid, address).await {
        tracing::warn!("pod {}: {error}", handle.key);
    }
}

/// Ends everything that is left of the sandbox.
pub(super) async fn tear_down(context: &Context, handle: &PodHandle) {
    handle.update(|record| record.has_sandbox = false);
    storage::kill_shim(&handle.directory, &handle.saved()).await;
    disconnect(context, handle).await;
    if let Err(error) = context.cgroups.remove_pod(&handle.uid).await {
        tracing::warn!("cannot remove control groups of pod {}: {error}", handle.key);
    }
    if let Err(error) = storage::unmount_below(&handle.directory) {
        tracing::warn!("cannot unmount volumes of pod {}: {error}", handle.key);
    }
}

pub(super) fn is_on_host(pod: &core::Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true)
}

fn write_names(
    context: &Context,
    handle: &PodHandle,
    pod: &core::Pod,
    addresses: &[String],
) -> std::io::Result<()> {
    let etc = handle.directory.join("etc");
    fs::create_dir_all(&etc)?;
    let mut files = BTreeMap::from([("resolv.conf", context.network.resolv_conf(pod, &context.resolver))]);
    if !is_on_host(pod) {
        files.insert("hosts", hosts_file(pod, addresses));
        files.insert("hostname", format!("{}\n", hostname(pod)));
    }
    for (name, text) in files {
        fs::write(etc.join(name), text)?;
    }
    Ok(())
}

/// Follows the states of the pod's containers until the shim is gone.
fn follow(context: &Arc<Context>, handle: &Arc<PodHandle>) {
    let (context, handle) = (Arc::clone(context), Arc::clone(handle));
    let name = format!("containers of {}", handle.key);
    context.clone().tasks.spawn(name, async move {
        tokio::select! {
            () = handle.cancel.cancelled() => {}
            () = follow_states(&context, &handle) => {}
        }
    });
}

async fn follow_states(context: &Context, handle: &PodHandle) {
    if let Ok(mut watch) = handle.shim().watch().await {
        while let Ok(states) = watch.next().await {
            let before = handle.record();
            let mut after = before.clone();
            // The termination message is read before the end is reported.
            for (name, state) in absorb(&mut after, states.clone()) {
                keep_last_words(handle, &name, &state);
                let group = Cgroups::name(&handle.uid, &name, state.attempt);
                if let Err(error) = context.cgroups.remove(&group).await {
                    tracing::debug!("cannot remove control group {group}: {error}");
                }
            }
            handle.update(|record| drop(absorb(record, states)));
        }
    }
    // One that was shut down on purpose has no sandbox any more.
    if handle.record().has_sandbox {
        handle.update(|record| lost(record, context.clock.now()));
    }
}

/// Keeps what an instance said last, for its status.
fn keep_last_words(handle: &PodHandle, name: &str, state: &ContainerState) {
    let Some(exit) = &state.exit else { return };
    let written = read_start(&handle.instance(name, state.attempt).join(TERMINATION_LOG));
    let falls_back = handle.pod().is_some_and(|pod| {
        let policy = member(&pod, name).and_then(|member| member.spec.termination_message_policy.clone());
        policy.as_deref() == Some("FallbackToLogsOnError")
    });
    let message = if written.is_empty() && falls_back && exit.code != 0 {
        last_lines(&handle.log(name, state.attempt))
    } else {
        written
    };
    if !message.is_empty() {
        let end = End { reason: None, message: Some(message) };
        handle.update(|record| record.ends.insert(state.id.clone(), end));
    }
}

/// Where an instance writes its last words, in its directory.
pub(super) const TERMINATION_LOG: &str = "termination-log";

fn read_start(path: &Path) -> String {
    let mut bytes = Vec::new();
    // Absent if the container never got so far.
    let _ = fs::File::open(path).and_then(|file| file.take(MESSAGE_BYTES).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The end of a log, without times and streams.
fn last_lines(path: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default()).collect();
    let lines = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
    let mut message: String = lines.iter().flat_map(|line| [*line, "\n"]).collect();
    while message.len() > LOG_BYTES {
        let (first, _) = message.split_once('\n').unwrap_or_default();
        let cut = if first.is_empty() || first.len() + 1 >= message.len() {
            message.len() - LOG_BYTES
        } else {
            first.len() + 1
        };
        let cut = (cut..=message.len()).find(|at| message.is_char_boundary(*at)).unwrap_or(message.len());
        message.drain(..cut);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_stands_in_for_last_words() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let line = |text: &str| format!("2026-01-01T00:00:00.000000000Z stdout F {text}\n");
        fs::write(&path, (0..100).map(|number| line(&format!("line {number}"))).collect::<String>()).unwrap();
        let message = last_lines(&path);
        assert!(message.starts_with("line 20\n") && message.ends_with("line 99\n"), "{message}");
        fs::write(&path, line(&"x".repeat(5000))).unwrap();
        assert_eq!(last_lines(&path).len(), LOG_BYTES);
        assert_eq!(last_lines(Path::new("/no/such/log")), "");
    }
}
