//! The first process of a container: it prepares its namespaces and file system, and becomes the command.
//!
//! The shim starts this program again with a hidden command, in a new PID namespace and with a socket as standard
//! input. The configuration arrives there; an error goes back there; and when the command is executed the socket
//! closes by itself: for the shim, the container runs then. The process has one thread, as joining and
//! leaving namespaces demands.

mod identity;
mod mounts;
mod root;

pub(crate) use mounts::points_below as mounts_below;
pub(crate) use root::is_visible;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::sched::{CloneFlags, setns, unshare};
use rustix::process::{Resource, Rlimit, Signal};
use serde::{Deserialize, Serialize};

use crate::shim::protocol::{Failure, ProcessConfig, Response, RootConfig, read_message, write_message};

/// The hidden command that runs [`main`].
pub(crate) const COMMAND: &str = "container-init";

/// Files that a process may open, where the kernel allows that many.
const OPEN_FILES: u64 = 1 << 20;

/// What the shim sends to the new process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InitConfig {
    pub process: ProcessConfig,
    pub place: Place,
    /// Directories of control groups to join.
    pub cgroups: Vec<PathBuf>,
    pub oom_score_adj: i32,
    /// What becomes the standard input; nothing can be read from it if absent.
    pub stdin: Option<PathBuf>,
}

/// Where the process runs.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Place {
    /// In a container of its own.
    New {
        /// What it sees of the file system.
        root: RootConfig,
        /// Where its file system is put together.
        directory: PathBuf,
    },
    /// In the container of a running process.
    Of {
        /// The process, as the host sees it.
        pid: i32,
    },
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct InitError {
    failure: Failure,
    message: String,
}

impl InitError {
    fn create(what: impl std::fmt::Display, why: impl std::fmt::Display) -> Self {
        Self { failure: Failure::Create, message: format!("{what}: {why}") }
    }
}

/// Becomes the command. Returns only if that failed, after it has reported the error to the shim.
pub(crate) fn main() -> ExitCode {
    let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut shim = UnixStream::from(stdin);
    let Err(error) = read_message(&mut shim)
        .map_err(|error| InitError::create("cannot read the configuration of the container", error))
        .and_then(|config| become_command(&config));
    let response = Response::Failed { failure: error.failure, message: error.message };
    match write_message(&mut shim, &response) {
        Ok(()) => ExitCode::from(128),
        Err(_) => ExitCode::FAILURE,
    }
}

fn become_command(config: &InitConfig) -> Result<std::convert::Infallible, InitError> {
    let InitConfig { process, place, cgroups, oom_score_adj, stdin } = config;
    join(cgroups)?;
    match fs::write("/proc/self/oom_score_adj", oom_score_adj.to_string()) {
        // An ordinary user cannot protect its processes.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && *oom_score_adj < 0 => {}
        outcome => outcome.map_err(|error| InitError::create("cannot set oom_score_adj", error))?,
    }
    // Opened before the root changes: the path is the host's.
    let stdin = open_stdin(stdin.as_deref())?;
    match place {
        Place::New { root, directory } => {
            unshare(CloneFlags::CLONE_NEWNS).map_err(|error| InitError::create("unshare", error))?;
            root::enter(root, directory, &process.identity)?;
        }
        Place::Of { pid } => enter(*pid)?,
    }
    connect_streams(process, &stdin)?;
    if matches!(place, Place::New { .. }) {
        make_home(process)?;
    }
    change_directory(process)?;
    if matches!(place, Place::New { root, .. } if root.is_read_only) {
        // Not before the user has a home and a working directory.
        root::make_read_only()?;
    }
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    raise_open_files();
    identity::assume(&process.identity)?;
    // Survives the execution: a container never outlives the shim that knows of it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| InitError::create("prctl", error))?;
    execute(process)
}

/// Lets the container open as many files as container engines do. Without the right to, it keeps the limit of the user.
fn raise_open_files() {
    let most = fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    let most = most.unwrap_or(OPEN_FILES).min(OPEN_FILES);
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    let _ = rustix::process::setrlimit(Resource::Nofile, limit);
}

fn join(cgroups: &[PathBuf]) -> Result<(), InitError> {
    for group in cgroups {
        let file = group.join("cgroup.procs");
        // 0 is the writing process.
        fs::write(&file, "0")
            .map_err(|error| InitError::create(format!("cannot join {}", file.display()), error))?;
    }
    Ok(())
}

fn open_stdin(path: Option<&Path>) -> Result<File, InitError> {
    let path = path.unwrap_or_else(|| Path::new("/dev/null"));
    OpenOptions::new()
        .read(true)
        .open(path)
        .map_err(|error| InitError::create(format!("cannot open {}", path.display()), error))
}

/// Joins the file system of a running container. The shim has joined its PID namespace already.
fn enter(pid: i32) -> Result<(), InitError> {
    let path = format!("/proc/{pid}/ns/mnt");
    let namespace = File::open(&path).map_err(|error| InitError::create(path, error))?;
    setns(namespace, CloneFlags::CLONE_NEWNS).map_err(|error| InitError::create("setns", error))
}

/// With a terminal all three streams are the terminal, which the shim has opened as standard output.
fn connect_streams(process: &ProcessConfig, stdin: &File) -> Result<(), InitError> {
    let failed = |error| InitError::create("cannot connect the standard streams", error);
    if !process.tty {
        return rustix::stdio::dup2_stdin(stdin).map_err(failed);
    }
    rustix::process::setsid().map_err(failed)?;
    let terminal = io::stdout();
    rustix::process::ioctl_tiocsctty(terminal.as_fd()).map_err(failed)?;
    rustix::stdio::dup2_stdin(terminal.as_fd()).map_err(failed)
}

/// The user has a home, as programs expect.
fn make_home(process: &ProcessConfig) -> Result<(), InitError> {
    let home = process.environment.iter().find(|(name, _)| name == "HOME");
    match home.map(|(_, path)| Path::new(path)).filter(|path| path.is_absolute()) {
        Some(home) => make_own(home, process),
        None => Ok(()),
    }
}

/// Makes a directory of the user, unless it exists.
fn make_own(directory: &Path, process: &ProcessConfig) -> Result<(), InitError> {
    if directory.exists() {
        return Ok(());
    }
    let identity = &process.identity;
    fs::create_dir_all(directory)
        .and_then(|()| std::os::unix::fs::chown(directory, Some(identity.uid), Some(identity.gid)))
        .map_err(|error| InitError::create(format!("cannot make {}", directory.display()), error))
}

/// A working directory that does not exist is made, as container engines do.
fn change_directory(process: &ProcessConfig) -> Result<(), InitError> {
    let directory = &process.working_directory;
    make_own(directory, process)?;
    std::env::set_current_dir(directory)
        .map_err(|error| InitError::create(format!("cannot enter {}", directory.display()), error))
}

fn execute(process: &ProcessConfig) -> Result<std::convert::Infallible, InitError> {
    let Some((program, arguments)) = process.command.split_first() else {
        return Err(InitError { failure: Failure::Start, message: "no command specified".into() });
    };
    let variables = process.environment.iter().map(|(name, value)| (name, value));
    let error = Command::new(program).args(arguments).env_clear().envs(variables).exec();
    let why = match error.kind() {
        io::ErrorKind::NotFound if program.contains('/') => {
            format!("stat {program}: no such file or directory")
        }
        io::ErrorKind::NotFound => "executable file not found in $PATH".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    };
    Err(InitError { failure: Failure::Start, message: format!("exec: {program:?}: {why}") })
}
