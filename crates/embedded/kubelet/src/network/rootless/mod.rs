//! A platform of an ordinary user.
//!
//! Pods need namespaces, a bridge and mounts, which only root may make. A user may make a user namespace and is root
//! there. So `quintet up` starts itself again in a user, a mount and a network namespace, where everything runs as it
//! does for root, and stays outside as a small parent:
//!
//! ```text
//!   machine's namespaces              │  user, mount and network namespace
//!                                     │
//!   quintet up (parent) ──────────────┼── quintet up ── bridge ── pods
//!     │ makes sockets of the machine, │     │ listens and connects with these sockets:
//!     │ passes signals on             │     │ API, node ports, name servers, connections of pods to other machines
//! ```
//!
//! - **Sockets.** A socket belongs to the network it was made in. The parent makes sockets and passes them over a socket
//!   pair (`SocketClient`); everything else, such as binding, is done inside. No packet passes through the parent.
//! - **Other machines.** TCP connections of pods and of programs inside are redirected (nf_tables of the namespace) to
//!   a forwarder that opens the same connection from the machine. Other protocols do not leave; names are resolved by
//!   the cluster's name server, which asks the servers of the machine.
//! - **Users.** With `newuidmap`, `newgidmap` and ranges in `/etc/subuid` and `/etc/subgid`, pods have user ids of these
//!   ranges. Without them there is one user id: all processes are root inside, which is the user outside.
//! - **Crashes.** Pods live on in the namespaces when `quintet up` is killed. The next start finds a process of theirs and
//!   joins; the network namespace is found by a mount in the mount namespace. When the last pod ends, the kernel removes
//!   all of it: there is nothing to clear.
//!
//! Where user namespaces are forbidden, as in a container without privileges, [`Placement::HostNetwork`] says why: pods
//! then share the network of the machine, and only one of them can listen at a port.

mod ids;
mod names;
mod parent;
mod saved;
mod stage;

pub use names::NameFiles;
pub(crate) use stage::{COMMAND, main};

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use parking_lot::Mutex;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use super::{HostSockets, NetworkError};

/// Set for the process inside: the directory with what is mounted there.
const INSIDE: &str = "QUINTET_ROOTLESS";
/// In the data directory.
const DIRECTORY: &str = "namespaces";
/// Longer messages are cut.
const MESSAGE: usize = 1024;

/// Where the platform runs.
#[derive(Clone, Debug)]
pub enum Placement {
    /// In the namespaces of the machine, as root.
    Machine {
        /// How programs of the platform resolve names, if it is not as on the machine.
        names: Option<NameFiles>,
    },
    /// In namespaces of its own.
    Private(Private),
    /// In the network of the machine, which pods share.
    HostNetwork {
        /// Why not otherwise.
        why: String,
    },
}

impl Default for Placement {
    fn default() -> Self {
        Self::Machine { names: None }
    }
}

impl Placement {
    /// How programs of the platform resolve names, if it is not as on the machine.
    pub(super) fn names(&self) -> Option<&NameFiles> {
        match self {
            Self::Machine { names } => names.as_ref(),
            Self::Private(private) => Some(&private.names),
            Self::HostNetwork { .. } => None,
        }
    }

    /// Where sockets of the machine are made.
    pub(super) fn sockets(&self) -> HostSockets {
        match self {
            Self::Private(private) => private.sockets.clone(),
            Self::Machine { .. } | Self::HostNetwork { .. } => HostSockets::default(),
        }
    }
}

/// Namespaces of an ordinary user.
#[derive(Clone, Debug)]
pub struct Private {
    sockets: HostSockets,
    names: NameFiles,
}

impl Private {
    /// How many user ids there are inside; with one, all processes are root.
    pub fn user_ids() -> u64 {
        ids::mapped(&std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default())
    }
}

/// What became of [`enter`].
#[derive(Debug)]
pub enum Entered {
    /// This process goes on here.
    Here(Placement),
    /// The platform ran in another process and has ended.
    Ended(ExitCode),
}

/// The network namespace, mounted in the directory.
const NETWORK: &str = "net";

/// Puts this process where pods can be run; the first thing that `quintet up` does, before it starts a thread. As root,
/// it only lets this process resolve names of the cluster. As an ordinary user, it starts this program again with the
/// same arguments in namespaces of its own, and returns when that has ended. The program calls
/// [`crate::hidden_command`] first thing in `main`.
pub fn enter(data_directory: &Path) -> Result<Entered, NetworkError> {
    if let Some(directory) = std::env::var_os(INSIDE) {
        let client =
            inherited().map_err(|error| NetworkError::because("talk to the parent process", error))?;
        let sockets = HostSockets::of(client);
        let names = NameFiles::at(Path::new(&directory));
        return Ok(Entered::Here(Placement::Private(Private { sockets, names })));
    }
    let directory = data_directory.join(DIRECTORY);
    std::fs::create_dir_all(&directory)
        .map_err(|error| NetworkError::because(format!("create {}", directory.display()), error))?;
    if !may_change_the_machine() {
        return parent::run(&directory);
    }
    let names = own_names(&directory);
    if let Err(error) = &names {
        tracing::warn!(
            "programs of the platform resolve names as this machine does, without those of the cluster: {error}"
        );
    }
    Ok(Entered::Here(Placement::Machine { names: names.ok() }))
}

/// Puts this process where it may clear away what pods left: an ordinary user is root only in namespaces of its own, and
/// files of pods can be owned by other users there. As [`enter`], it may start this program again with the same arguments;
/// that process is the one that clears.
pub fn enter_to_clear(data_directory: &Path) -> Result<Entered, NetworkError> {
    let directory = data_directory.join(DIRECTORY);
    if is_inside() || may_change_the_machine() || !directory.exists() {
        return Ok(Entered::Here(Placement::default()));
    }
    parent::run(&directory)
}

/// Whether this process was started again in namespaces of an ordinary user.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Gives this process, which has one thread, a mount namespace with files of its own. Mounts of the machine still appear
/// in it.
fn own_names(directory: &Path) -> io::Result<NameFiles> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)?;
    NameFiles::mount(directory)
}

/// Whether this process is root with the capabilities that networks and mounts need.
fn may_change_the_machine() -> bool {
    let needed = rustix::thread::CapabilitySet::NET_ADMIN | rustix::thread::CapabilitySet::SYS_ADMIN;
    rustix::process::geteuid().is_root()
        && rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// The socket to the parent, which is the standard input; nothing can be read from that afterwards.
fn inherited() -> io::Result<SocketClient> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    // Anything else was set by mistake.
    rustix::net::getsockname(&socket)?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(SocketClient(Mutex::new(socket)))
}

/// Asks the parent for sockets.
#[derive(Debug)]
pub(super) struct SocketClient(Mutex<OwnedFd>);

impl SocketClient {
    /// A new socket of the machine. The parent only makes it: this takes microseconds.
    pub(super) fn socket(&self, is_ipv4: bool, is_stream: bool) -> io::Result<OwnedFd> {
        let socket = self.0.lock();
        send(socket.as_fd(), &[u8::from(is_ipv4), u8::from(is_stream)], None)?;
        match receive(socket.as_fd())? {
            (_, Some(made)) => Ok(made),
            (error, None) => match error.try_into().map(i32::from_ne_bytes) {
                Ok(code) => Err(io::Error::from_raw_os_error(code)),
                Err(_) => Err(io::Error::other("the parent process of quintet up has ended")),
            },
        }
    }
}

/// Sends a message, with a file descriptor.
fn send(socket: BorrowedFd<'_>, message: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let parts = [io::IoSlice::new(message)];
    rustix::net::sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message, with a file descriptor. An empty one means that the peer is gone.
fn receive(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut message = vec![0; MESSAGE];
    let received = {
        let mut parts = [io::IoSliceMut::new(&mut message)];
        rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?
    };
    message.truncate(received.bytes);
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((message, descriptor))
}
