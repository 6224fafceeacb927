//! Starting containers and commands in them, and waiting for their end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use jiff::Timestamp;
use nix::sched::{CloneFlags, setns, unshare};

use super::output::Output;
use super::protocol::{
    Channel, ContainerConfig, Exit, Failure, ProcessConfig, Response, TerminalSize, read_message,
    write_message,
};
use crate::init::{self, InitConfig, Place};

/// Why a process did not start.
#[derive(Debug)]
pub(super) struct StartFailure {
    pub failure: Failure,
    pub message: String,
}

impl From<io::Error> for StartFailure {
    fn from(error: io::Error) -> Self {
        Self { failure: Failure::Create, message: error.to_string() }
    }
}

/// A process that was started.
pub(super) struct Process {
    /// As the host sees it.
    pub pid: i32,
    pub started_at: Timestamp,
    /// Where its standard input comes from.
    pub input: Input,
}

/// The other end of a standard input.
pub(super) enum Input {
    None,
    Pipe(File),
    Terminal(OwnedFd),
}

impl Input {
    /// Another handle for the same standard input.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::None => Self::None,
            Self::Pipe(file) => Self::Pipe(file.try_clone()?),
            Self::Terminal(terminal) => Self::Terminal(terminal.try_clone()?),
        })
    }

    pub(super) fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = match self {
                Self::None => return Ok(()),
                Self::Pipe(file) => rustix::io::write(file, bytes)?,
                Self::Terminal(terminal) => rustix::io::write(terminal, bytes)?,
            };
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    pub(super) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let Self::Terminal(terminal) = self else { return Ok(()) };
        let size =
            rustix::termios::Winsize { ws_col: size.width, ws_row: size.height, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(terminal, size)?)
    }
}

/// What a process writes to.
type OutputStreams = Vec<(File, Channel)>;

/// A process to start.
pub(super) struct Launch {
    pub init: InitConfig,
    pub namespace: PidNamespace,
    /// The FIFO that is its standard input, made here.
    pub stdin: Option<PathBuf>,
}

/// The PID namespace of a new process.
pub(super) enum PidNamespace {
    /// One of its own, in which it is process 1.
    New,
    /// That of a running process.
    Of(i32),
}

impl Launch {
    /// The first process of a container, in the PID namespace of `target` if it shares that.
    pub(super) fn container(config: &ContainerConfig, target: Option<i32>) -> Self {
        let stdin = (config.stdin && !config.process.tty).then(|| config.directory.join("stdin"));
        Self {
            init: InitConfig {
                process: config.process.clone(),
                place: Place::New { root: config.root.clone(), directory: config.directory.clone() },
                cgroups: config.cgroups.clone(),
                oom_score_adj: config.oom_score_adj,
                stdin: stdin.clone(),
            },
            namespace: target.map_or(PidNamespace::New, PidNamespace::Of),
            stdin,
        }
    }

    /// A further process of a container, in whose directory its standard input goes by `name`.
    pub(super) fn exec(
        config: &ContainerConfig,
        process: ProcessConfig,
        pid: i32,
        stdin: Option<PathBuf>,
    ) -> Self {
        Self {
            init: InitConfig {
                process,
                place: Place::Of { pid },
                cgroups: config.cgroups.clone(),
                oom_score_adj: config.oom_score_adj,
                stdin: stdin.clone(),
            },
            namespace: PidNamespace::Of(pid),
            stdin,
        }
    }

    /// Starts the process on a thread that then waits for its end.
    ///
    /// It has to be one thread: a PID namespace is joined by a thread for the processes it starts, and the kernel kills a
    /// container when the thread that started it is gone. Such a thread cannot start threads, and an ordinary user cannot
    /// bring it back, so the output is copied by threads that the caller starts.
    pub(super) fn start(
        self,
        output: &Arc<Output>,
        ended: impl FnOnce(Exit) + Send + 'static,
    ) -> Result<Process, StartFailure> {
        let (sender, receiver) = sync_channel(1);
        let (pumps_sender, pumps_receiver) = sync_channel::<Vec<thread::JoinHandle<()>>>(1);
        let finished = Arc::clone(output);
        thread::Builder::new().name("process".into()).stack_size(256 << 10).spawn(move || {
            match self.spawn() {
                Err(failure) => drop(sender.send(Err(failure))),
                Ok((process, child, streams)) => {
                    drop(sender.send(Ok((process, streams))));
                    let exit = wait(child);
                    for pump in pumps_receiver.recv().unwrap_or_default() {
                        drop(pump.join());
                    }
                    // The log is complete before the end is reported.
                    finished.finish_log();
                    ended(exit);
                    finished.finish();
                }
            }
        })?;
        let lost = |_| StartFailure { failure: Failure::Other, message: "the starting thread ended".into() };
        let (process, streams) = receiver.recv().map_err(lost)??;
        let pumps = streams.into_iter().map(|(stream, channel)| pump(stream, channel, output));
        let pumps = pumps.collect::<io::Result<Vec<_>>>()?;
        // The thread is gone only if the process is, and with it what it would have waited for.
        drop(pumps_sender.send(pumps));
        Ok(process)
    }

    fn spawn(&self) -> Result<(Process, Child, OutputStreams), StartFailure> {
        self.join_namespace()?;
        let (mut ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(init::COMMAND).env_clear().stdin(OwnedFd::from(theirs));
        let (input, terminal) = self.open_streams(&mut command)?;
        let mut child = command.spawn()?;
        // The command holds the other end of the socket, and the slave of a terminal, which would never end.
        drop(command);
        write_message(&mut ours, &self.init)?;
        match read_message(&mut ours) {
            Ok(Response::Failed { failure, message }) => {
                child.wait()?;
                return Err(StartFailure { failure, message });
            }
            Ok(other) => return Err(io::Error::other(format!("unexpected {other:?}")).into()),
            // Closed by the execution of the command.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(error.into()),
        }
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        let mut streams = Vec::new();
        streams.extend(terminal.map(|terminal| (File::from(terminal), Channel::Stdout)));
        streams.extend(child.stdout.take().map(|out| (File::from(OwnedFd::from(out)), Channel::Stdout)));
        streams.extend(child.stderr.take().map(|err| (File::from(OwnedFd::from(err)), Channel::Stderr)));
        Ok((Process { pid, started_at: super::now(), input }, child, streams))
    }

    fn join_namespace(&self) -> Result<(), StartFailure> {
        match self.namespace {
            PidNamespace::New => unshare(CloneFlags::CLONE_NEWPID).map_err(io::Error::from)?,
            PidNamespace::Of(pid) => {
                let namespace = File::open(format!("/proc/{pid}/ns/pid")).map_err(|_| StartFailure {
                    failure: Failure::NotRunning,
                    message: "the container has ended".into(),
                })?;
                setns(namespace, CloneFlags::CLONE_NEWPID).map_err(io::Error::from)?;
            }
        }
        Ok(())
    }

    /// Pipes, or a terminal whose other end is returned as well.
    fn open_streams(&self, command: &mut Command) -> io::Result<(Input, Option<OwnedFd>)> {
        if self.init.process.tty {
            let (ours, theirs) = open_terminal()?;
            command.stdout(theirs.try_clone()?).stderr(theirs);
            return Ok((Input::Terminal(ours.try_clone()?), Some(ours)));
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let Some(path) = &self.stdin else { return Ok((Input::None, None)) };
        Ok((Input::Pipe(make_fifo(path)?), None))
    }
}

/// Opened for reading as well: opening it for writing alone would wait for a reader, and the reader would see its end
/// when the first writer goes.
fn make_fifo(path: &Path) -> io::Result<File> {
    match nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR) {
        Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
        Err(error) => return Err(error.into()),
    }
    OpenOptions::new().read(true).write(true).open(path)
}

fn open_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty())?;
    Ok((ours, theirs))
}

/// Copies a stream of the process into the output until it ends.
fn pump(mut from: File, channel: Channel, output: &Arc<Output>) -> io::Result<thread::JoinHandle<()>> {
    let output = Arc::clone(output);
    thread::Builder::new().name("output".into()).stack_size(128 << 10).spawn(move || {
        let mut buffer = vec![0; 32 << 10];
        loop {
            match from.read(&mut buffer) {
                // A terminal ends with an error when its last process is gone.
                Ok(0) => break,
                Ok(length) => output.write(channel, buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    })
}

fn wait(mut child: Child) -> Exit {
    let status = child.wait().unwrap_or_else(|_| ExitStatus::from_raw(0xff00));
    let signal = status.signal().unwrap_or_default();
    let code = status.code().unwrap_or(128 + signal);
    Exit { code, signal, finished_at: super::now(), is_out_of_memory: false }
}

/// How often the kernel killed a process of these control groups for want of memory.
pub(super) fn out_of_memory_kills(cgroups: &[PathBuf]) -> u64 {
    let counters = ["memory.events", "memory.oom_control"];
    let files = cgroups.iter().flat_map(|group| counters.map(|name| group.join(name)));
    files.filter_map(|file| fs::read_to_string(file).ok()).map(|text| count_of(&text)).sum()
}

fn count_of(text: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_of_the_kernel_are_counted_in_both_formats() {
        assert_eq!(count_of("low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n"), 2);
        assert_eq!(count_of("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"), 1);
        assert_eq!(count_of(""), 0);
    }
}
