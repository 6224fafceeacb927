//! Requests of the kubelet.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::container::{Input, Launch, StartFailure, out_of_memory_kills};
use super::log::Log;
use super::output::Output;
use super::protocol::{
    Channel, ContainerConfig, ContainerState, ExecConfig, Exit, Failure, ProcessConfig, Request, Response,
    TerminalSize, read_frame, read_message, write_message,
};
use super::{SOCKET, sandbox};

/// Serves the pod in `directory` until it is shut down.
pub(super) fn run(directory: &Path) -> io::Result<()> {
    // A kubelet that dies before it knows of this shim leaves no trace of it: the next one starts another.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let config = read_message(&mut io::stdin().lock())?;
    // Not to be killed with the terminal the kubelet was started from.
    match rustix::process::setsid() {
        // It leads a process group already.
        Ok(_) | Err(rustix::io::Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    sandbox::enter(&config)?;
    // A path of a socket has at most 107 bytes; one relative to the directory is always short enough.
    std::env::set_current_dir(directory)?;
    if fs::exists(SOCKET)? {
        fs::remove_file(SOCKET)?;
    }
    let listener = UnixListener::bind(SOCKET)?;
    fs::set_permissions(SOCKET, Permissions::from_mode(0o600))?;
    let shim = Arc::new(Shim::default());
    println_ready()?;
    rustix::process::set_parent_process_death_signal(None)?;
    for client in listener.incoming() {
        let (client, shim) = (client?, Arc::clone(&shim));
        thread::Builder::new()
            .name("request".into())
            .stack_size(256 << 10)
            .spawn(move || shim.serve(client))?;
    }
    Ok(())
}

fn println_ready() -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(b"ready\n")?;
    stdout.flush()
}

/// What the shim knows of its pod.
#[derive(Default)]
struct Shim {
    containers: Mutex<BTreeMap<String, Arc<Container>>>,
    /// Counts changes of container states.
    changes: Mutex<u64>,
    changed: Condvar,
    execs: AtomicU32,
}

/// The newest instance of a container.
struct Container {
    config: ContainerConfig,
    output: Arc<Output>,
    input: Input,
    state: Mutex<ContainerState>,
}

impl Container {
    fn state(&self) -> ContainerState {
        lock(&self.state).clone()
    }
}

impl Shim {
    fn serve(self: &Arc<Self>, mut client: UnixStream) {
        let Ok(request) = read_message(&mut client) else { return };
        // A client that went away has lost interest in the outcome.
        drop(self.respond(request, client));
    }

    fn respond(self: &Arc<Self>, request: Request, mut client: UnixStream) -> io::Result<()> {
        match request {
            Request::Status => write_message(&mut client, &Response::Status(self.status())),
            Request::Watch => self.watch(&mut client),
            Request::Start(config) => write_message(&mut client, &self.start(*config)),
            Request::Signal { container, signal } => {
                write_message(&mut client, &self.signal(&container, signal))
            }
            Request::Exec(config) => self.exec(config, client),
            Request::Attach { container, stdin } => self.attach(&container, stdin, client),
            Request::Forward { port } => forward(port, client),
            Request::Shutdown => {
                // Containers are killed by the kernel when the shim is gone.
                write_message(&mut client, &Response::Done)?;
                std::process::exit(0)
            }
        }
    }

    fn status(&self) -> BTreeMap<String, ContainerState> {
        lock(&self.containers).iter().map(|(name, container)| (name.clone(), container.state())).collect()
    }

    fn watch(&self, client: &mut UnixStream) -> io::Result<()> {
        let mut known = None;
        loop {
            let mut changes = lock(&self.changes);
            while known == Some(*changes) {
                changes = self.changed.wait(changes).unwrap_or_else(PoisonError::into_inner);
            }
            known = Some(*changes);
            drop(changes);
            write_message(client, &Response::Status(self.status()))?;
        }
    }

    fn has_changed(&self) {
        *lock(&self.changes) += 1;
        self.changed.notify_all();
    }

    fn running(&self, name: &str) -> Option<Arc<Container>> {
        let container = lock(&self.containers).get(name).cloned()?;
        let is_running = lock(&container.state).exit.is_none();
        is_running.then_some(container)
    }

    fn start(self: &Arc<Self>, config: ContainerConfig) -> Response {
        if self.running(&config.name).is_some() {
            return failed(Failure::Other, format!("container {} runs already", config.name));
        }
        match self.try_start(config) {
            Ok(()) => Response::Done,
            Err(StartFailure { failure, message }) => failed(failure, message),
        }
    }

    fn try_start(self: &Arc<Self>, config: ContainerConfig) -> Result<(), StartFailure> {
        fs::create_dir_all(&config.directory)?;
        let output = Arc::new(Output::logged(Log::open(&config.log)?));
        let kills_before = out_of_memory_kills(&config.cgroups);
        let (shim, name, cgroups) = (Arc::clone(self), config.name.clone(), config.cgroups.clone());
        // The state of the container is there when its end is reported, however soon that is.
        let mut containers = lock(&self.containers);
        let target = config.processes_of.as_ref().map(|target| {
            let state = containers.get(target).map(|one| lock(&one.state).clone());
            let running = state.filter(|state| state.exit.is_none());
            running.map(|state| state.pid).ok_or_else(|| StartFailure {
                failure: Failure::NotRunning,
                message: format!("container {target}, whose processes it should see, does not run"),
            })
        });
        let process = Launch::container(&config, target.transpose()?).start(&output, move |mut exit| {
            exit.is_out_of_memory =
                exit.signal == Signal::SIGKILL as i32 && out_of_memory_kills(&cgroups) > kills_before;
            shim.ended(&name, exit);
        })?;
        let state = ContainerState {
            id: config.id.clone(),
            attempt: config.attempt,
            pid: process.pid,
            started_at: process.started_at,
            exit: None,
        };
        let name = config.name.clone();
        let container = Container { config, output, input: process.input, state: Mutex::new(state) };
        containers.insert(name, Arc::new(container));
        drop(containers);
        self.has_changed();
        Ok(())
    }

    fn ended(&self, name: &str, exit: Exit) {
        if let Some(container) = lock(&self.containers).get(name) {
            lock(&container.state).exit = Some(exit);
        }
        self.has_changed();
    }

    fn signal(&self, name: &str, signal: i32) -> Response {
        let Some(container) = self.running(name) else { return not_running(name) };
        let outcome =
            Signal::try_from(signal).and_then(|signal| kill(Pid::from_raw(container.state().pid), signal));
        match outcome {
            Ok(()) => Response::Done,
            Err(nix::errno::Errno::ESRCH) => not_running(name),
            Err(error) => failed(Failure::Other, error.to_string()),
        }
    }

    fn exec(&self, config: ExecConfig, mut client: UnixStream) -> io::Result<()> {
        let Some(container) = self.running(&config.container) else {
            return write_message(&mut client, &not_running(&config.container));
        };
        let number = self.execs.fetch_add(1, Ordering::Relaxed);
        let fifo = container.config.directory.join(format!("exec-{number}"));
        let stdin = (config.stdin && !config.tty).then(|| fifo.clone());
        let output = Arc::new(Output::default());
        output.attach(client.try_clone()?)?;
        let report = Arc::clone(&output);
        let process =
            ProcessConfig { command: config.command, tty: config.tty, ..container.config.process.clone() };
        let launch = Launch::exec(&container.config, process, container.state().pid, stdin);
        let started = launch.start(&output, move |exit| {
            if let Ok(message) = serde_json::to_vec(&Response::Exited(exit)) {
                report.write(Channel::Control, &message);
            }
        });
        remove(&fifo);
        match started {
            Ok(process) => feed(&mut client, process.input),
            Err(StartFailure { failure, message }) => write_message(&mut client, &failed(failure, message)),
        }
    }

    fn attach(&self, name: &str, stdin: bool, mut client: UnixStream) -> io::Result<()> {
        let Some(container) = self.running(name) else {
            return write_message(&mut client, &not_running(name));
        };
        write_message(&mut client, &Response::Done)?;
        if !container.output.attach(client.try_clone()?)? {
            return Ok(());
        }
        let input = if stdin { container.input.try_clone()? } else { Input::None };
        feed(&mut client, input)
    }
}

/// Copies what the client sends into the standard input of a process, until the client goes.
fn feed(client: &mut UnixStream, input: Input) -> io::Result<()> {
    let mut open = Some(input);
    while let Some((channel, payload)) = read_frame(client)? {
        match (channel, &open) {
            // The end of the input: the process sees it when the last handle closes.
            (Channel::Stdin, _) if payload.is_empty() => open = None,
            (Channel::Stdin, Some(input)) => input.write(&payload)?,
            (Channel::Resize, Some(input)) => {
                input.resize(serde_json::from_slice::<TerminalSize>(&payload)?)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Connects a client with a port on the loopback interface of the pod.
fn forward(port: u16, mut client: UnixStream) -> io::Result<()> {
    let addresses: [std::net::SocketAddr; 2] =
        [([127, 0, 0, 1], port).into(), (std::net::Ipv6Addr::LOCALHOST, port).into()];
    let mut server = match TcpStream::connect(addresses.as_slice()) {
        Ok(server) => server,
        Err(error) => return write_message(&mut client, &failed(Failure::Other, error.to_string())),
    };
    write_message(&mut client, &Response::Done)?;
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    let back = thread::Builder::new().name("forward".into()).stack_size(128 << 10).spawn(move || {
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(std::net::Shutdown::Write));
    })?;
    drop(io::copy(&mut client, &mut server));
    drop(server.shutdown(std::net::Shutdown::Write));
    drop(back.join());
    Ok(())
}

fn remove(fifo: &PathBuf) {
    // It is gone already if there was none.
    drop(fs::remove_file(fifo));
}

fn failed(failure: Failure, message: String) -> Response {
    Response::Failed { failure, message }
}

fn not_running(name: &str) -> Response {
    failed(Failure::NotRunning, format!("container not found ({name:?})"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
