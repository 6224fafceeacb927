//! How programs of the platform resolve names: by files of our own, which only they see.
//!
//! The operators connect to Services by their names, as on other clusters. The machine's name servers do not know these,
//! so the platform sees another `/etc/resolv.conf` in a mount namespace of its own, with the cluster's name server in it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

use super::super::NetworkError;

/// The `resolv.conf` of the machine, mounted in the directory.
const HOST_RESOLV_CONF: &str = "host-resolv.conf";
/// What programs of the platform see as `/etc/resolv.conf`.
const RESOLV_CONF: &str = "resolv.conf";
/// What they see as `/etc/nsswitch.conf`.
const NSSWITCH_CONF: &str = "nsswitch.conf";

/// The files that say how names are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFiles {
    directory: PathBuf,
}

impl NameFiles {
    /// Mounts the files in the mount namespace of this process, which is not that of the machine. Names are resolved as
    /// on the machine until [`Self::resolve_by`].
    pub(super) fn mount(directory: &Path) -> io::Result<Self> {
        let system = fs::canonicalize("/etc/resolv.conf")?;
        bind(&system, &directory.join(HOST_RESOLV_CONF))?;
        cover(&system, &directory.join(RESOLV_CONF), &fs::read_to_string(&system)?)?;
        if let Ok(system) = fs::canonicalize("/etc/nsswitch.conf") {
            let text = plain_sources(&fs::read_to_string(&system)?);
            cover(&system, &directory.join(NSSWITCH_CONF), &text)?;
        }
        Ok(Self::at(directory))
    }

    /// Files that are mounted.
    pub(super) fn at(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// The `resolv.conf` of the machine.
    pub(crate) fn of_machine(&self) -> PathBuf {
        self.directory.join(HOST_RESOLV_CONF)
    }

    /// Lets programs of the platform resolve names by this server.
    pub(crate) fn resolve_by(&self, server: Ipv4Addr) -> Result<(), NetworkError> {
        let path = self.directory.join(RESOLV_CONF);
        let text = by_server(&fs::read_to_string(self.of_machine()).unwrap_or_default(), server);
        // The file is mounted: it is changed, not replaced.
        let opened = fs::OpenOptions::new().write(true).truncate(true).open(&path);
        opened
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| NetworkError::because(format!("write {}", path.display()), error))
    }
}

/// The same `resolv.conf` with another name server.
fn by_server(text: &str, server: Ipv4Addr) -> String {
    let others = text.lines().filter(|line| !line.trim_start().starts_with("nameserver"));
    others
        .map(str::to_owned)
        .chain([format!("nameserver {server}")])
        .flat_map(|line| [line, "\n".into()])
        .collect()
}

/// Shows a file of ours in place of one of the system.
fn cover(system: &Path, own: &Path, text: &str) -> io::Result<()> {
    fs::write(own, text)?;
    let none: Option<&str> = None;
    Ok(mount(Some(own), system, none, MsFlags::MS_BIND, none)?)
}

/// Mounts a file at a path that may not exist yet.
pub(super) fn bind(source: &Path, target: &Path) -> io::Result<()> {
    // What is mounted there already must not be truncated.
    File::options().create(true).truncate(false).write(true).open(target)?;
    let none: Option<&str> = None;
    Ok(mount(Some(source), target, none, MsFlags::MS_BIND, none)?)
}

/// The same sources of names, but hosts by files and name servers only: other services of the machine do not know those
/// of the cluster, and some answer for all names that end with `local`.
fn plain_sources(text: &str) -> String {
    let line = |line: &str| {
        if line.trim_start().starts_with("hosts:") {
            "hosts: files dns\n".to_owned()
        } else {
            format!("{line}\n")
        }
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_domains_of_the_machine_stay() {
        let text = "search corp.example\nnameserver 127.0.0.53\noptions edns0\n";
        let expected = "search corp.example\noptions edns0\nnameserver 10.96.0.10\n";
        assert_eq!(by_server(text, [10, 96, 0, 10].into()), expected);
    }

    #[test]
    fn hosts_are_looked_up_in_files_and_by_name_servers_only() {
        let text = "passwd: files systemd\nhosts: files mdns4_minimal [NOTFOUND=return] resolve dns\nnetworks: files\n";
        assert_eq!(plain_sources(text), "passwd: files systemd\nhosts: files dns\nnetworks: files\n");
    }
}
