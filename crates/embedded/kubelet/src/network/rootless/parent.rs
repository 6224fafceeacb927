//! The process that stays outside.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::{COMMAND, Entered, Placement, ids, receive, send};
use crate::network::NetworkError;

/// What the process inside says: its namespaces are made, it becomes the platform, or why not.
pub(super) const UNSHARED: &str = "unshared";
pub(super) const READY: &str = "ready";
pub(super) const FAILED: &str = "failed: ";
/// The response to [`UNSHARED`] if user ids are mapped; otherwise the process maps its one user.
pub(super) const MAPPED: &str = "mapped";
/// Starts this program again in namespaces of its own, serves it, and returns when it has ended.
pub(super) fn run(directory: &Path) -> Result<Entered, NetworkError> {
    let failed = |error: io::Error| NetworkError::because("run as an ordinary user", error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(run_child(directory)).map_err(failed)
}

async fn run_child(directory: &Path) -> io::Result<Entered> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg(COMMAND)
        .arg(std::path::absolute(directory)?)
        .args(std::env::args_os().skip(1))
        .stdin(Stdio::from(theirs))
        // A signal of the terminal comes here only, and is passed on once.
        .process_group(0)
        .spawn()?;
    if let Err(why) = begin(&ours, &child) {
        child.wait().await?;
        return Ok(Entered::Here(Placement::HostNetwork { why: why.to_string() }));
    }
    std::thread::Builder::new().name("sockets".into()).spawn(move || serve(&ours))?;
    let status = pass_signals(&mut child).await?;
    Ok(Entered::Ended(exit_code(status)))
}

/// Waits until the child is the platform.
fn begin(socket: &OwnedFd, child: &Child) -> io::Result<()> {
    loop {
        let (message, _) = receive(socket.as_fd())?;
        match std::str::from_utf8(&message).map_err(io::Error::other)? {
            READY => return Ok(()),
            UNSHARED => {
                let is_mapped = child.id().is_some_and(ids::map_ranges);
                send(socket.as_fd(), if is_mapped { MAPPED.as_bytes() } else { b"-" }, None)?;
            }
            "" => return Err(io::Error::other("the process in the namespaces ended at once")),
            text => return Err(io::Error::other(text.strip_prefix(FAILED).unwrap_or(text).to_owned())),
        }
    }
}

/// Makes sockets until the child has ended.
fn serve(socket: &OwnedFd) {
    while let Ok((request, _)) = receive(socket.as_fd()) {
        let [is_ipv4, is_stream] = request.as_slice() else { return };
        let family = if *is_ipv4 == 1 { AddressFamily::INET } else { AddressFamily::INET6 };
        let kind = if *is_stream == 1 { SocketType::STREAM } else { SocketType::DGRAM };
        let sent = match rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None) {
            Ok(made) => send(socket.as_fd(), b"made", Some(made.as_fd())),
            Err(error) => send(socket.as_fd(), &error.raw_os_error().to_ne_bytes(), None),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Passes on the signals that ask to stop, until the child has ended.
async fn pass_signals(child: &mut Child) -> io::Result<ExitStatus> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    loop {
        let passed = tokio::select! {
            status = child.wait() => return status,
            _ = interrupt.recv() => Signal::INT,
            _ = terminate.recv() => Signal::TERM,
            _ = hang_up.recv() => Signal::TERM,
        };
        if let Some(pid) = pid {
            // It may have ended in the meantime.
            let _ = rustix::process::kill_process(pid, passed);
        }
    }
}

/// As a shell reports it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
