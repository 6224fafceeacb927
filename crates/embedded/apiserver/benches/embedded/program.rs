//! The real program as a process.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::Error;

/// Where the program keeps objects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    Memory,
    Disk,
}

/// Builds the program and says where it is.
pub(crate) fn build() -> Result<PathBuf, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo).args(["build", "--release", "--locked", "-p", "quintet"]).status()?;
    if !built.success() {
        return Err("the program cannot be built".into());
    }
    // This is in `release/deps`.
    let here = std::env::current_exe()?;
    let release = here.parent().and_then(Path::parent).ok_or("there is no target directory")?;
    Ok(release.join("quintet"))
}

/// A running `quintet up`; it goes with the value.
pub(crate) struct Program {
    process: Child,
    /// From its start to its first line, which it writes when it is ready.
    pub(crate) ready_after: Duration,
    pub(crate) kubeconfig: PathBuf,
}

impl Program {
    pub(crate) fn start(program: &Path, directory: &Path, storage: Storage) -> Result<Self, Error> {
        let kubeconfig = directory.join("kubeconfig");
        let mut command = Command::new(program);
        command.args(["up", "--no-operator", "--no-node", "--port", "0", "--data-dir"]).arg(directory);
        command.arg("--kubeconfig").arg(&kubeconfig).stdout(Stdio::piped());
        if storage == Storage::Memory {
            command.arg("--in-memory");
        }
        let began = Instant::now();
        let mut process = command.spawn()?;
        let mut line = String::new();
        let output = process.stdout.as_mut().ok_or("the program has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let ready_after = began.elapsed();
        let running = Self { process, ready_after, kubeconfig };
        if line.starts_with("Quintet is up") { Ok(running) } else { Err(line.into()) }
    }

    /// Resident memory now, and the most it ever was, in MB.
    pub(crate) fn memory(&self) -> Result<(f64, f64), Error> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let field = |name: &str| -> Result<f64, Error> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kilobytes = line.and_then(|line| line.trim().split(' ').next()).ok_or("no such field")?;
            Ok(kilobytes.parse::<f64>()? / 1024.0)
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
