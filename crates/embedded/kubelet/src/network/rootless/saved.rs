//! The namespaces of an earlier start, which pods may still run in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// In the directory of the namespaces.
const FILE: &str = "namespaces.json";

/// The namespaces of a platform, as `/proc/<pid>/ns` shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    user: PathBuf,
    mount: PathBuf,
    /// Numbers of namespaces mean nothing after a reboot.
    boot: String,
}

impl Saved {
    /// Those of this process.
    pub(super) fn own() -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let namespaces = Path::new("/proc/self/ns");
        Ok(Self {
            user: fs::read_link(namespaces.join("user"))?,
            mount: fs::read_link(namespaces.join("mnt"))?,
            boot,
        })
    }

    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        fs::write(directory.join(FILE), serde_json::to_vec(self)?)
    }

    /// A process that is in the namespaces of an earlier start, if there is one. What cannot be read is as good as
    /// nothing: then new namespaces are made.
    pub(super) fn find(directory: &Path) -> Option<u32> {
        let saved: Self = serde_json::from_slice(&fs::read(directory.join(FILE)).ok()?).ok()?;
        let is_now = Self::own().is_ok_and(|own| own.boot == saved.boot);
        let processes = fs::read_dir("/proc").ok().filter(|_| is_now)?;
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        pids.into_iter().find(|pid| {
            let is_in = |name: &str, namespace: &Path| {
                fs::read_link(format!("/proc/{pid}/ns/{name}")).is_ok_and(|own| own == namespace)
            };
            is_in("user", &saved.user) && is_in("mnt", &saved.mount)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_the_namespaces_is_found_unless_the_machine_was_restarted() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Saved::find(directory.path()), None);
        let own = Saved::own().unwrap();
        own.write(directory.path()).unwrap();
        assert!(Saved::find(directory.path()).is_some(), "this process is one");
        Saved { user: "user:[1]".into(), ..own.clone() }.write(directory.path()).unwrap();
        assert_eq!(Saved::find(directory.path()), None);
        Saved { boot: "before".into(), ..own }.write(directory.path()).unwrap();
        assert_eq!(Saved::find(directory.path()), None);
    }
}
