//! The directories of pods, and what of a pod outlives the kubelet.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::context::PODS;
use crate::cgroups::Cgroups;
use crate::pod::observe::Saved;
use crate::process::Running;
use crate::shim::Shim;

/// The file with what outlives the kubelet.
const RECORD: &str = "record.json";
/// How long a shim may take to end everything; it only has to be scheduled.
const SHIM_END: Duration = Duration::from_secs(10);

/// Makes the directory of a pod, which only the root user may enter.
pub(super) fn make(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Writes a record, whole or not at all.
pub(super) fn save(directory: &Path, saved: &Saved) -> io::Result<()> {
    let temporary = directory.join("record.json.new");
    fs::write(&temporary, serde_json::to_vec(saved)?)?;
    fs::rename(temporary, directory.join(RECORD))
}

/// Reads a record; one that cannot be read is as good as none.
pub(super) fn load(directory: &Path) -> Option<Saved> {
    let text = fs::read(directory.join(RECORD)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// All pods that left something behind.
pub(super) fn saved_pods(data_directory: &Path) -> Vec<(String, Saved)> {
    let entries = fs::read_dir(data_directory.join(PODS)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .map(|uid| {
            let saved = load(&data_directory.join(PODS).join(&uid)).unwrap_or_default();
            (uid, saved)
        })
        .collect()
}

/// Removes the directory of a pod and everything mounted in it.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    unmount_below(directory)?;
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Unmounts everything at and below a path, the innermost first.
pub(crate) fn unmount_below(path: &Path) -> io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut mounts: Vec<PathBuf> = crate::init::mounts_below(&path)?;
    mounts.sort();
    for mount in mounts.iter().rev() {
        match umount2(mount, MntFlags::MNT_DETACH) {
            Ok(()) | Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// When a process started, in the kernel's clock ticks since boot. With the boot it identifies the process.
pub(super) fn started(pid: u32) -> Option<(String, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().nth(19)?.parse().ok()?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some((boot.trim().to_owned(), ticks))
}

/// Kills the shim of a pod, and with it everything that it runs. Returns when all of it is gone.
pub(super) async fn kill_shim(directory: &Path, saved: &Saved) {
    let shim = Shim::of(directory);
    let states = tokio::time::timeout(SHIM_END, shim.status()).await;
    let states = states.ok().and_then(Result::ok).unwrap_or_default();
    let containers: Vec<Running> = states
        .values()
        .filter(|state| state.exit.is_none())
        .filter_map(|state| Running::find(u32::try_from(state.pid).ok()?))
        .collect();
    // One that does not respond any more is killed below.
    let _ = tokio::time::timeout(SHIM_END, shim.shut_down()).await;
    if let Some((pid, identity)) = saved.shim.zip(saved.shim_started.clone())
        && let Some(running) = Running::find(pid)
        && started(pid).as_ref() == Some(&identity)
    {
        if let Ok(pid) = i32::try_from(pid) {
            // It may have ended by now.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        running.ended(SHIM_END).await;
    }
    // The kernel kills containers with their shim; the first process of each ends after all others.
    for container in containers {
        container.ended(SHIM_END).await;
    }
}

/// Ends all pods of a data directory whose kubelet does not run, and removes what they left. Returns how many there were.
pub(crate) async fn clear_pods(data_directory: &Path) -> io::Result<usize> {
    let pods = saved_pods(data_directory);
    let count = pods.len();
    for (uid, saved) in pods {
        let directory = data_directory.join(PODS).join(&uid);
        kill_shim(&directory, &saved).await;
        Cgroups::detect().remove_pod(&uid).await?;
        remove(&directory)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = std::process::id();
        assert_eq!(started(own), started(own));
        assert!(started(own).is_some());
        assert_ne!(started(own), started(1));
        assert_eq!(started(u32::MAX), None);
    }

    #[test]
    fn records_are_found_again() {
        let data = tempfile::tempdir().unwrap();
        let directory = data.path().join(PODS).join("uid-1");
        make(&directory).unwrap();
        let saved = Saved::of(&crate::pod::status::PodRecord::default(), ("team", "p"));
        save(&directory, &saved).unwrap();
        assert_eq!(saved_pods(data.path()), [("uid-1".to_owned(), saved)]);
        fs::write(directory.join(RECORD), "{").unwrap();
        assert_eq!(saved_pods(data.path()), [("uid-1".to_owned(), Saved::default())]);
        remove(&directory).unwrap();
        assert_eq!(saved_pods(data.path()), []);
    }
}
