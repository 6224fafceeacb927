//! Python environments in place of images: made on first use, shared by pods, never made twice at once.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::sync::Mutex;

use super::{Reference, mlflow};

/// Written when an environment is complete.
const READY: &str = "quintet-environment.json";
/// Lines of the installer's output in an error.
const LAST_WORDS: usize = 6;

/// A complete environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    /// Its directory; `bin` in it belongs in `PATH`.
    pub directory: PathBuf,
    /// Directories of the interpreter it is based on.
    pub interpreter: Vec<PathBuf>,
    /// Its size on disk.
    pub bytes: u64,
    /// What was installed.
    pub packages: Vec<String>,
}

/// Why an environment cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// It is not there and must not be made.
    #[error("the Python environment with {0} is not on this machine, and --offline forbids to make it")]
    Offline(String),
    /// A step failed.
    #[error("cannot {step}: {why}")]
    Failed {
        /// What was tried.
        step: String,
        /// What it said.
        why: String,
    },
}

/// All environments of a data directory.
#[derive(Debug)]
pub struct Environments {
    directory: PathBuf,
    is_offline: bool,
    inflight: std::sync::Mutex<HashMap<String, Arc<Mutex<()>>>>,
}

impl Environments {
    /// Environments are kept below `directory`; with `is_offline` only those that exist are used.
    pub fn new(directory: PathBuf, is_offline: bool) -> Self {
        Self { directory, is_offline, inflight: std::sync::Mutex::default() }
    }

    /// The environment with these packages, if it is complete.
    pub fn existing(&self, packages: &[String]) -> Option<Environment> {
        let text = fs::read(self.path(packages).join(READY)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The environment with these packages; made if it does not exist. Others that want it at the same time wait.
    pub async fn get(&self, packages: &[String]) -> Result<Environment, EnvironmentError> {
        let path = self.path(packages);
        let lock = self.lock_of(&path);
        let _guard = lock.lock().await;
        if let Some(environment) = self.existing(packages) {
            return Ok(environment);
        }
        if self.is_offline {
            return Err(EnvironmentError::Offline(packages.join(", ")));
        }
        make(&path, packages).await
    }

    fn path(&self, packages: &[String]) -> PathBuf {
        let identity = format!("{}{}", packages.join("\n"), mlflow::identity(packages));
        self.directory.join(super::digest(&identity))
    }

    fn lock_of(&self, path: &Path) -> Arc<Mutex<()>> {
        let mut inflight = self.inflight.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(inflight.entry(path.display().to_string()).or_default())
    }
}

/// Requirements for an image. A requirement of the version that the image does not name stands without it; versions that the
/// mapping names stay.
pub(super) fn requirements(packages: &[String], image: &Reference) -> Vec<String> {
    let resolve = |package: &String| match image.version() {
        Some(version) => package.replace("{version}", version).replace("{tag}", &image.tag),
        None if package.contains("{version}") || package.contains("{tag}") => {
            package.split_once("==").map_or(package.as_str(), |(name, _)| name).to_owned()
        }
        None => package.clone(),
    };
    packages.iter().map(resolve).collect()
}

/// An environment is not complete before its last file, so one that was interrupted is made again.
async fn make(path: &Path, packages: &[String]) -> Result<Environment, EnvironmentError> {
    let failed =
        |step: &str, why: io::Error| EnvironmentError::Failed { step: step.into(), why: why.to_string() };
    if path.exists() {
        fs::remove_dir_all(path).map_err(|why| failed("remove an incomplete environment", why))?;
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|why| failed("make a directory for environments", why))?;
    }
    run("make a Python environment", Command::new("python3").args(["-m", "venv"]).arg(path)).await?;
    let python = path.join("bin/python3");
    if !packages.is_empty() {
        let mut install = Command::new(&python);
        install
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"])
            .args(packages);
        run(&format!("install {}", packages.join(", ")), &mut install).await?;
    }
    let modules = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let modules = run("ask Python for its modules", Command::new(&python).args(["-c", modules])).await?;
    mlflow::complete(path, Path::new(modules.trim()), packages)
        .map_err(|why| failed("complete an environment with MLflow", why))?;
    let script =
        "import sys, sysconfig; print(sys.base_prefix); print(sysconfig.get_config_var('LIBDIR') or '')";
    let output = run("ask Python where it lives", Command::new(&python).args(["-c", script])).await?;
    let environment = Environment {
        directory: path.to_owned(),
        interpreter: interpreter_directories(&output),
        bytes: size_of(path),
        packages: packages.to_vec(),
    };
    let text = serde_json::to_vec(&environment).map_err(io::Error::from);
    text.and_then(|text| fs::write(path.join(READY), text))
        .map_err(|why| failed("finish a Python environment", why))?;
    Ok(environment)
}

/// What is not below `/usr`, which every container sees.
fn interpreter_directories(output: &str) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = output
        .lines()
        .map(|line| PathBuf::from(line.trim()))
        .filter(|path| path.is_absolute() && !path.starts_with("/usr") && path.is_dir())
        .collect();
    directories.sort();
    directories.dedup_by(|below, above| below.starts_with(above.as_path()));
    directories
}

async fn run(step: &str, command: &mut Command) -> Result<String, EnvironmentError> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let failed = |why: String| EnvironmentError::Failed { step: step.to_owned(), why };
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    // Debian's venv says on its standard output which package it needs.
    let said = [&output.stderr, &output.stdout].map(|stream| last_words(stream));
    let why = said.into_iter().find(|words| !words.is_empty());
    Err(failed(why.unwrap_or_else(|| output.status.to_string())))
}

fn last_words(stream: &[u8]) -> String {
    let text = String::from_utf8_lossy(stream);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.get(lines.len().saturating_sub(LAST_WORDS)..).unwrap_or_default().join("\n")
}

/// The size of all files below a directory.
fn size_of(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_take_the_version_of_the_image() {
        let packages = ["ray[default]=={version}", "wheel", "torch==2.9.0"].map(str::to_owned);
        let of = |image: &str| requirements(&packages, &Reference::parse(image).unwrap());
        assert_eq!(of("rayproject/ray:2.52.0-py311"), ["ray[default]==2.52.0", "wheel", "torch==2.9.0"]);
        assert_eq!(of("rayproject/ray:nightly"), ["ray[default]", "wheel", "torch==2.9.0"]);
        assert_eq!(of("rayproject/ray"), ["ray[default]", "wheel", "torch==2.9.0"]);
    }

    #[tokio::test]
    async fn an_environment_is_made_once_and_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let environments = Environments::new(directory.path().to_owned(), false);
        assert_eq!(environments.existing(&[]), None);
        let (first, second) = tokio::join!(environments.get(&[]), environments.get(&[]));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!(first, second);
        assert!(first.directory.join("bin/python3").exists() && first.bytes > 0);
        let offline = Environments::new(directory.path().to_owned(), true);
        assert_eq!(offline.get(&[]).await.unwrap(), first);
    }

    #[tokio::test]
    async fn a_step_that_fails_says_why_on_either_stream() {
        let why = async |script: &str| {
            run("try", Command::new("sh").args(["-c", script])).await.unwrap_err().to_string()
        };
        assert_eq!(why("echo out; echo err >&2; exit 1").await, "cannot try: err");
        assert_eq!(why("echo; echo out; exit 1").await, "cannot try: out");
        assert_eq!(why("exit 3").await, "cannot try: exit status: 3");
    }

    #[tokio::test]
    async fn offline_says_what_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let environments = Environments::new(directory.path().to_owned(), true);
        let error = environments.get(&["ray==2.52.0".into()]).await.unwrap_err().to_string();
        assert!(error.contains("ray==2.52.0") && error.contains("--offline"), "{error}");
    }

    #[tokio::test]
    async fn an_incomplete_environment_is_made_again_and_a_failure_tells_why() {
        let directory = tempfile::tempdir().unwrap();
        let environments = Environments::new(directory.path().to_owned(), false);
        let packages = ["./no-such-directory".to_owned()];
        let error = environments.get(&packages).await.unwrap_err().to_string();
        assert!(error.contains("install ./no-such-directory"), "{error}");
        assert_eq!(environments.existing(&packages), None);
        assert!(environments.get(&packages).await.is_err());
    }
}
