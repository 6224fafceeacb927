//! Servers that emulate object storage, from package indexes.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Names a directory with installed emulators; otherwise they are installed below cargo's directory, once.
const DIRECTORY: &str = "QUINTET_EMULATORS";

/// One installation at a time: some emulators are for several cases.
static INSTALLING: Mutex<()> = Mutex::new(());

/// A program that is killed when it is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) enum Emulator {
    Moto,
    Gcs,
    Azurite,
}

fn directory() -> PathBuf {
    let named = std::env::var_os(DIRECTORY).map(PathBuf::from);
    named.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulators"))
}

/// Runs a program to its end; the error is the last line that it printed.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it fails silently").to_owned())
}

fn python(package: &str, program: &str) -> Result<PathBuf, String> {
    let environment = directory().join("python");
    let program = environment.join("bin").join(program);
    if !program.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        run(Command::new(environment.join("bin/pip")).args(["install", "-q", package]))?;
    }
    Ok(program)
}

fn node(package: &str, program: &str) -> Result<PathBuf, String> {
    let directory = directory().join("node");
    let program = directory.join("node_modules/.bin").join(program);
    if !program.exists() {
        std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let options = ["install", "--no-audit", "--no-fund", "--fetch-retries=0", "--prefix"];
        run(Command::new("npm").args(options).arg(&directory).arg(package))?;
    }
    Ok(program)
}

impl Emulator {
    /// The command that serves on a port; an error says why it cannot be installed.
    fn command(&self, port: &str) -> Result<Command, String> {
        let (program, arguments) = match self {
            Self::Moto => {
                (python("moto[server]==5.2.5", "moto_server")?, vec!["-H", "127.0.0.1", "-p", port])
            }
            Self::Gcs => (
                python("gcp-storage-emulator", "gcp-storage-emulator")?,
                vec!["start", "--host=127.0.0.1", "--port", port, "--in-memory", "--default-bucket=history"],
            ),
            Self::Azurite => (
                node("azurite@3", "azurite-blob")?,
                vec!["--blobPort", port, "--inMemoryPersistence", "--skipApiVersionCheck", "--silent"],
            ),
        };
        let mut command = Command::new(program);
        command.args(arguments);
        Ok(command)
    }

    /// Starts it, and waits until it accepts connections.
    pub(crate) fn start(&self) -> Result<(Running, SocketAddr), String> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a port");
        let installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = self.command(&address.port().to_string())?;
        drop(installing);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut running = Running(child.map_err(|error| error.to_string())?);
        let deadline = Instant::now() + Duration::from_mins(1);
        while TcpStream::connect(address).is_err() {
            let ended = running.0.try_wait().expect("a child");
            assert!(ended.is_none() && Instant::now() < deadline, "{command:?} does not start: {ended:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok((running, address))
    }
}
