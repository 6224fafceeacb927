//! The file by which other commands find a running `quintet up`: locked while it runs, so that a stale one is noticed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, ClusterArguments};

/// A running `quintet up`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Session {
    pub(crate) pid: u32,
    /// The address of the API.
    pub(crate) url: String,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) started_at: Timestamp,
}

/// Marks this process as the one that runs; the mark is gone with it.
pub(crate) struct Held {
    file: File,
}

/// What is kept in memory runs beside what is kept on disk.
fn path(data_dir: &Path, in_memory: bool) -> PathBuf {
    data_dir.join(if in_memory { "up-in-memory.json" } else { "up.json" })
}

fn open(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true).mode(0o600);
    options.open(path).with_context(|| format!("cannot open {}", path.display()))
}

impl Held {
    /// Takes the place of the one that runs; fails if there is one.
    pub(crate) fn take(data_dir: &Path, in_memory: bool) -> anyhow::Result<Self> {
        let path = path(data_dir, in_memory);
        let file = open(&path)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0)?;
                Ok(Self { file })
            }
            Err(TryLockError::WouldBlock) => bail!(
                "{} is in use by another quintet up; stop that one with 'quintet down', or choose another --data-dir",
                data_dir.display()
            ),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
    }

    /// Waits until the one that runs has released its place.
    pub(crate) async fn released(data_dir: &Path, in_memory: bool) -> anyhow::Result<()> {
        let file = open(&path(data_dir, in_memory))?;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        // Not a task of the runtime, which would wait for it at its end. The receiver is gone if the caller gave up.
        std::thread::spawn(move || drop(sender.send(file.lock())));
        receiver
            .await
            .context("cannot wait for quintet up to stop")?
            .context("cannot lock the data directory")
    }

    /// Says where it can be reached.
    pub(crate) fn announce(&mut self, session: &Session) -> anyhow::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(&serde_json::to_vec(session)?).context("cannot announce that it is up")
    }
}

impl Session {
    /// Whether the root user runs it, whose pods are reached from this machine by their addresses.
    pub(crate) fn is_of_root(&self) -> bool {
        std::fs::metadata(&self.kubeconfig).is_ok_and(|file| file.uid() == 0)
    }

    /// Whether this is the address of its API.
    fn is_at(&self, address: &str) -> bool {
        self.url.trim_end_matches('/') == address.trim_end_matches('/')
    }

    /// The `quintet up` that runs on a data directory: the one whose objects are on disk, otherwise the one in memory.
    pub(crate) fn find(data_dir: &Path) -> anyhow::Result<Option<(Self, bool)>> {
        for in_memory in [false, true] {
            let path = path(data_dir, in_memory);
            if !path.exists() {
                continue;
            }
            let mut file = open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("cannot lock {}", path.display()));
                }
                Err(TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    file.read_to_string(&mut text)?;
                    let session = serde_json::from_str(&text).with_context(|| {
                        format!("quintet up on {} is starting; try again", data_dir.display())
                    })?;
                    return Ok(Some((session, in_memory)));
                }
            }
        }
        Ok(None)
    }
}

/// Which cluster to look at: `quintet up` of this machine, or another one.
#[derive(Args)]
pub(crate) struct PlaceArguments {
    /// The data directory of `quintet up` [default: quintet in the data directory of the user].
    #[arg(long, value_name = "DIRECTORY", env = "QUINTET_DATA_DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
}

impl PlaceArguments {
    /// Connects to the cluster that the user names; otherwise to `quintet up` of this machine, if it runs.
    pub(crate) async fn connect(self) -> anyhow::Result<(Cluster, Option<Session>)> {
        let is_named = self.data_dir.is_some();
        let data_dir = self.data_dir.map_or_else(default_data_dir, Ok);
        // A data directory that is named comes before a kubeconfig of the environment.
        let is_elsewhere = if is_named { self.cluster.is_given() } else { !self.cluster.is_default() };
        if is_elsewhere {
            let cluster = self.cluster.connect().await?;
            // The kubeconfig may be that of the one that runs here.
            let session = data_dir.and_then(|data_dir| Session::find(&data_dir)).ok().flatten();
            let session =
                session.map(|(session, _)| session).filter(|session| session.is_at(&cluster.address));
            return Ok((cluster, session));
        }
        let data_dir = data_dir?;
        if let Some((session, _)) = Session::find(&data_dir)? {
            return Ok((ClusterArguments::of(&session.kubeconfig).connect().await?, Some(session)));
        }
        ensure!(
            !is_named,
            "no quintet up runs on {}; start it with 'quintet up --data-dir {0}'",
            data_dir.display()
        );
        let outcome = self.cluster.connect().await;
        let cluster = outcome.context("no quintet up runs on this machine, and no other cluster answers")?;
        Ok((cluster, None))
    }
}

/// The data directory of `quintet up` without `--data-dir`: below that of this user.
pub(crate) fn default_data_dir() -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    let base = base.context("there is no home directory; say where to keep data with --data-dir")?;
    Ok(base.join(Path::new("quintet")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("quintet-session-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn session() -> Session {
        Session {
            pid: 7,
            url: "https://127.0.0.1:6443".into(),
            kubeconfig: "/here/kubeconfig".into(),
            started_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_session_is_found_while_it_is_held() {
        let directory = directory("held");
        assert_eq!(Session::find(&directory).unwrap(), None);
        let mut held = Held::take(&directory, true).unwrap();
        assert!(Session::find(&directory).unwrap_err().to_string().contains("is starting"));
        held.announce(&session()).unwrap();
        assert_eq!(Session::find(&directory).unwrap(), Some((session(), true)));
        drop(held);
        assert_eq!(Session::find(&directory).unwrap(), None, "what is left of it is stale");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_session_is_known_by_its_address() {
        assert!(session().is_at("https://127.0.0.1:6443/"));
        assert!(!session().is_at("https://127.0.0.1:7443"));
    }

    #[test]
    fn there_is_one_per_data_directory_and_storage() {
        let directory = directory("one");
        let _held = Held::take(&directory, false).unwrap();
        let refused = Held::take(&directory, false).err().unwrap().to_string();
        assert!(refused.contains("is in use by another quintet up"), "{refused}");
        Held::take(&directory, true).unwrap();
        std::fs::remove_dir_all(directory).unwrap();
    }
}
