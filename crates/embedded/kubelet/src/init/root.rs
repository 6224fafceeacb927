//! The file system of a container: the system's directories read-only, everything else its own.

use std::fs;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::pivot_root;

use super::{InitError, mounts::NewRoot};
use crate::shim::protocol::{Identity, Mount, MountSource, RootConfig};

/// Devices every container has.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];
/// Top-level directories that hold programs. Where they are links into `/usr`, links are made.
const SYSTEM: [&str; 7] = ["bin", "lib", "lib32", "lib64", "libx32", "sbin", "usr"];
/// Settings of the machine in `/proc`, which a process of the root user could change.
const READ_ONLY_PROC: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// Secrets of the kernel in `/proc` and `/sys`.
const MASKED: [&str; 6] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/timer_list",
    "/sys/firmware",
];
/// Directories that exist in every container, with their modes.
const OWN: [(&str, u32); 9] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("proc", 0o555),
    ("root", 0o755),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
];

/// Puts the file system together in `directory` and makes it the root of this process.
pub(super) fn enter(config: &RootConfig, directory: &Path, identity: &Identity) -> Result<(), InitError> {
    let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
        .map_err(|error| InitError::create("cannot make mounts private", error))?;
    let root = directory.join("root");
    prepare(&root, identity)?;
    // Only a mount point can become the root.
    mount(Some(&root), &root, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|error| InitError::create(root.display(), error))?;
    let new = NewRoot::open(&root)?;
    system(&new, directory)?;
    kernel(&new)?;
    for entry in &config.mounts {
        new.mount(entry)?;
    }
    for path in MASKED.iter().map(Path::new).chain(config.masked.iter().map(PathBuf::as_path)) {
        new.mask(path)?;
    }
    change_root(&root)
}

/// Makes the root of this process read-only.
pub(super) fn make_read_only() -> Result<(), InitError> {
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
        .map_err(|error| InitError::create("cannot make the root read-only", error))
}

/// Whether containers see a path of the host without a mount of their own.
pub(crate) fn is_visible(path: &Path) -> bool {
    let mut names = path.components().skip(1);
    let first = names.next().and_then(|name| name.as_os_str().to_str());
    first.is_some_and(|first| SYSTEM.contains(&first) || first == "etc" || first == "sys")
}

/// The directories are those of the container's user: nothing of the host is in them.
fn prepare(root: &Path, identity: &Identity) -> Result<(), InitError> {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    fs::create_dir_all(root)
        .and_then(|()| chown(root, Some(identity.uid), Some(identity.gid)))
        .map_err(|error| InitError::create(root.display(), error))?;
    for (name, mode) in OWN.into_iter().chain([("var/tmp", 0o1777), ("var/log", 0o755), ("var/lib", 0o755)]) {
        let path = root.join(name);
        fs::create_dir_all(&path)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
            .and_then(|()| chown(&path, Some(identity.uid), Some(identity.gid)))
            .map_err(|error| InitError::create(path.display(), error))?;
    }
    Ok(())
}

/// Programs and libraries of the machine, read-only, and a copy of `/etc` that can be changed.
fn system(new: &NewRoot, directory: &Path) -> Result<(), InitError> {
    for name in SYSTEM {
        let host = Path::new("/").join(name);
        if let Ok(to) = fs::read_link(&host) {
            new.link(name, &to)?;
        } else if host.is_dir() {
            new.mount(&Mount { target: host.clone(), source: MountSource::Bind(host), is_read_only: true })?;
        }
    }
    let source = MountSource::Overlay { lower: "/etc".into(), upper: directory.join("etc") };
    new.mount(&Mount { target: "/etc".into(), source, is_read_only: false })?;
    new.link("var/run", Path::new("/run"))
}

/// What the kernel shows: its own processes, harmless devices, and a view of the hardware.
fn kernel(new: &NewRoot) -> Result<(), InitError> {
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    new.mount_special("proc", "/proc", "", quiet)?;
    for target in READ_ONLY_PROC {
        let path = new.on_host(target);
        if path.exists() {
            new.mount(&Mount { target: target.into(), source: MountSource::Bind(path), is_read_only: true })?;
        }
    }
    let sys = MountSource::Bind("/sys".into());
    new.mount(&Mount { target: "/sys".into(), source: sys, is_read_only: true })?;
    new.mount_special("tmpfs", "/dev", "mode=755,size=64k", MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC)?;
    for name in DEVICES {
        let device = Path::new("/dev").join(name);
        if device.exists() {
            let source = MountSource::Bind(device.clone());
            new.mount(&Mount { target: device, source, is_read_only: false })?;
        }
    }
    new.mount_special("devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=0620", MsFlags::MS_NOSUID)?;
    new.mount_special("tmpfs", "/dev/shm", "mode=1777,size=64m", MsFlags::MS_NOSUID | MsFlags::MS_NODEV)?;
    let links = [
        ("dev/ptmx", "pts/ptmx"),
        ("dev/fd", "/proc/self/fd"),
        ("dev/stdin", "/proc/self/fd/0"),
        ("dev/stdout", "/proc/self/fd/1"),
        ("dev/stderr", "/proc/self/fd/2"),
    ];
    links.iter().try_for_each(|(path, to)| new.link(path, Path::new(to)))
}

/// If this failed and the process went on, the workload would write to the host.
fn change_root(root: &Path) -> Result<(), InitError> {
    let failed = |error| InitError::create("cannot change the root", error);
    std::env::set_current_dir(root).map_err(|error| InitError::create(root.display(), error))?;
    // Stacks the old root on the new one, so no directory for it is needed; then the old one goes.
    pivot_root(".", ".").map_err(failed)?;
    umount2(".", MntFlags::MNT_DETACH).map_err(failed)?;
    std::env::set_current_dir("/").map_err(|error| InitError::create("/", error))
}
