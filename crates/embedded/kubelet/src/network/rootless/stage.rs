//! The way into the namespaces: a process with one thread makes or joins them, and becomes the platform.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use rustix::process::Signal;

use super::saved::Saved;
use super::{INSIDE, NETWORK, NameFiles, ids, names, parent, receive, send};

/// The hidden command that runs [`main`].
pub(crate) const COMMAND: &str = "rootless-enter";

/// Becomes the platform: this program with the remaining arguments, in the namespaces of `directory`. Returns only if
/// that failed, after it has reported the error to the parent.
pub(crate) fn main(directory: &Path, arguments: Vec<OsString>) -> ExitCode {
    let stdin = io::stdin();
    let Err(error) = become_platform(stdin.as_fd(), directory, arguments);
    match send(stdin.as_fd(), format!("{}{error}", parent::FAILED).as_bytes(), None) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn become_platform(
    parent: BorrowedFd<'_>,
    directory: &Path,
    arguments: Vec<OsString>,
) -> io::Result<std::convert::Infallible> {
    let current = std::env::current_dir()?;
    match Saved::find(directory) {
        Some(pid) => join(pid, directory)?,
        None => make(parent, directory)?,
    }
    std::env::set_current_dir(current)?;
    // Without the parent there are no sockets of the machine: the platform stops, and the next start joins its pods.
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    send(parent, parent::READY.as_bytes(), None)?;
    let mut platform = Command::new(std::env::current_exe()?);
    Err(platform.args(arguments).env(INSIDE, directory).exec())
}

/// Joins the namespaces that a process is in.
fn join(pid: u32, directory: &Path) -> io::Result<()> {
    let failed =
        |what: &str, why: io::Error| context(&format!("cannot join the {what} namespace of the pods"), &why);
    let open = |name: &str| File::open(format!("/proc/{pid}/ns/{name}"));
    let user = open("user").map_err(|error| failed("user", error))?;
    let mounts = open("mnt").map_err(|error| failed("mount", error))?;
    setns(user, CloneFlags::CLONE_NEWUSER).map_err(|error| failed("user", error.into()))?;
    setns(mounts, CloneFlags::CLONE_NEWNS).map_err(|error| failed("mount", error.into()))?;
    // Processes of pods are in networks of their own; that of the node is mounted.
    let network = File::open(directory.join(NETWORK)).map_err(|error| failed("network", error))?;
    setns(network, CloneFlags::CLONE_NEWNET).map_err(|error| failed("network", error.into()))
}

/// Makes new namespaces, with this user as root.
fn make(parent: BorrowedFd<'_>, directory: &Path) -> io::Result<()> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
        .map_err(|error| context("this machine does not allow user namespaces", &error.into()))?;
    send(parent, parent::UNSHARED.as_bytes(), None)?;
    let (mapped, _) = receive(parent)?;
    if mapped != parent::MAPPED.as_bytes() {
        ids::map_one(uid, gid).map_err(|error| context("cannot map the user into its namespace", &error))?;
    }
    prepare(directory).map_err(|error| context("cannot prepare the mount namespace", &error))?;
    Saved::own()?.write(directory)
}

/// Keeps the network namespace in the mount namespace, and lets programs inside resolve names by files of ours.
fn prepare(directory: &Path) -> io::Result<()> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    names::bind(Path::new("/proc/self/ns/net"), &directory.join(NETWORK))?;
    NameFiles::mount(directory).map(drop)
}

fn context(what: &str, why: &io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("{what}: {why}"))
}
