//! Mounting below a new root without ever following a link out of it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::mount::{MsFlags, mount};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};

use super::InitError;
use crate::ids::Ids;
use crate::shim::protocol::{Mount, MountSource};

/// A directory that paths do not lead out of: the root of a container while it is put together, or a volume.
pub(super) struct NewRoot {
    directory: PathBuf,
    handle: OwnedFd,
}

impl NewRoot {
    /// Opens the directory that becomes the root.
    pub(super) fn open(directory: &Path) -> Result<Self, InitError> {
        let handle =
            openat(CWD, directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|error| InitError::create(directory.display(), error))?;
        Ok(Self { directory: directory.to_owned(), handle })
    }

    /// Mounts one entry, and makes the place where it goes.
    pub(super) fn mount(&self, entry: &Mount) -> Result<(), InitError> {
        let failed =
            |error: io::Error| InitError::create(format!("cannot mount {}", entry.target.display()), error);
        match &entry.source {
            MountSource::Bind(source) => {
                let is_directory = fs::metadata(source).map_err(failed)?.is_dir();
                let at = self.mount_point(&entry.target, is_directory).map_err(failed)?;
                bind(source, &at).map_err(failed)?;
            }
            MountSource::Part { volume, path } => {
                let source = Self::open(volume)?.part(path).map_err(failed)?;
                let is_directory = source.metadata().map_err(failed)?.is_dir();
                let at = self.mount_point(&entry.target, is_directory).map_err(failed)?;
                bind(&through(&source), &at).map_err(failed)?;
            }
            MountSource::Memory(size) => {
                let at = self.mount_point(&entry.target, true).map_err(failed)?;
                let size = size.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
                special("tmpfs", &at, &format!("mode=1777{size}"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV)
                    .map_err(failed)?;
            }
            MountSource::Overlay { lower, upper } => {
                let at = self.mount_point(&entry.target, true).map_err(failed)?;
                overlay(lower, upper, &at).map_err(failed)?;
            }
        }
        if entry.is_read_only {
            self.read_only(&entry.target).map_err(failed)?;
        }
        Ok(())
    }

    /// Mounts a file system of the kernel.
    pub(super) fn mount_special(
        &self,
        kind: &str,
        target: &str,
        options: &str,
        flags: MsFlags,
    ) -> Result<(), InitError> {
        let failed = |error: io::Error| InitError::create(format!("cannot mount {target}"), error);
        let at = self.mount_point(Path::new(target), true).map_err(failed)?;
        special(kind, &at, options, flags).map_err(failed)
    }

    /// Hides what the host has at a path, if it has something there.
    pub(super) fn mask(&self, target: &Path) -> Result<(), InitError> {
        let failed = |error: io::Error| InitError::create(format!("cannot hide {}", target.display()), error);
        let Ok(at) = self.resolve(target, OFlags::PATH) else { return Ok(()) };
        let at = File::from(at);
        if at.metadata().map_err(failed)?.is_dir() {
            let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            special("tmpfs", &at, "mode=755,size=0", flags).map_err(failed)
        } else {
            bind(Path::new("/dev/null"), &at).map_err(failed)
        }
    }

    /// Makes a mount and all mounts below it read-only.
    pub(super) fn read_only(&self, target: &Path) -> io::Result<()> {
        let handle = self.resolve(target, OFlags::PATH)?;
        let path = fs::read_link(through(&handle))?;
        for (below, flags) in mounts_below(&path)? {
            let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
            mount(None::<&str>, &below, None::<&str>, flags, None::<&str>)?;
        }
        Ok(())
    }

    /// Where the host sees a path of the container.
    pub(super) fn on_host(&self, target: &str) -> PathBuf {
        self.directory.join(target.trim_start_matches('/'))
    }

    /// Makes a symbolic link.
    pub(super) fn link(&self, path: &str, to: &Path) -> Result<(), InitError> {
        let path = self.on_host(path);
        match std::os::unix::fs::symlink(to, &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(InitError::create(path.display(), error))
            }
            _ => Ok(()),
        }
    }

    /// Opens something below a volume; a directory that is made has the permissions of the volume.
    fn part(&self, path: &Path) -> io::Result<File> {
        let is_new = self.resolve(path, OFlags::PATH).is_err();
        let part = self.mount_point(path, true)?;
        if is_new {
            fs::set_permissions(through(&part), fs::metadata(&self.directory)?.permissions())?;
        }
        Ok(part)
    }

    /// Opens the place of a mount, and makes it and its parents if they are missing.
    fn mount_point(&self, target: &Path, is_directory: bool) -> io::Result<File> {
        match self.resolve(target, OFlags::PATH) {
            Ok(handle) => return Ok(File::from(handle)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) => {}
        }
        let names: Vec<&Path> = target
            .components()
            .filter_map(|part| if let Component::Normal(name) = part { Some(Path::new(name)) } else { None })
            .collect();
        let Some((last, parents)) = names.split_last() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut so_far = PathBuf::from("/");
        for name in parents {
            self.make_directory(&so_far, name)?;
            so_far.push(name);
        }
        if is_directory {
            self.make_directory(&so_far, last)?;
        } else {
            let parent = self.resolve(&so_far, OFlags::PATH | OFlags::DIRECTORY)?;
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&parent, *last, flags, Mode::from_raw_mode(0o644))?;
        }
        Ok(File::from(self.resolve(target, OFlags::PATH)?))
    }

    fn make_directory(&self, parent: &Path, name: &Path) -> io::Result<()> {
        let parent = self.resolve(parent, OFlags::PATH | OFlags::DIRECTORY)?;
        match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a path as a process in the container would: links, also absolute ones, stay below the root.
    fn resolve(&self, target: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let inside = target.strip_prefix("/").unwrap_or(target);
        let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
        let flags = flags | OFlags::CLOEXEC;
        Ok(openat2(self.handle.as_fd(), inside, flags, Mode::empty(), ResolveFlags::IN_ROOT)?)
    }
}

/// The path that leads to an open file, whatever happens to its name.
fn through(handle: &impl std::os::fd::AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

fn special(kind: &str, at: &File, options: &str, flags: MsFlags) -> io::Result<()> {
    Ok(mount(Some(kind), &through(at), Some(kind), flags, Some(options))?)
}

fn bind(source: &Path, at: &File) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    Ok(mount(Some(source), &through(at), None::<&str>, flags, None::<&str>)?)
}

fn overlay(lower: &Path, upper: &Path, at: &File) -> io::Result<()> {
    let work = upper.with_extension("work");
    fs::create_dir_all(upper)?;
    fs::create_dir_all(&work)?;
    // In a user namespace attributes of the kernel itself cannot be written.
    let attributes = if Ids::read().are_limited() { ",userxattr" } else { "" };
    let options = format!(
        "lowerdir={},upperdir={},workdir={}{attributes}",
        lower.display(),
        upper.display(),
        work.display()
    );
    Ok(mount(Some("overlay"), &through(at), Some("overlay"), MsFlags::MS_NODEV, Some(options.as_str()))?)
}

/// The mounts at and below a path, with the flags a remount has to keep.
fn mounts_below(path: &Path) -> io::Result<Vec<(PathBuf, MsFlags)>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let mounts = table.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(4);
        let (at, options) = (unescape(fields.next()?), fields.next()?);
        at.starts_with(path).then(|| (at, flags_of(options)))
    });
    Ok(mounts.collect())
}

/// Where something is mounted at and below a path.
pub(crate) fn points_below(path: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(mounts_below(path)?.into_iter().map(|(at, _)| at).collect())
}

fn flags_of(options: &str) -> MsFlags {
    let known = [
        ("ro", MsFlags::MS_RDONLY),
        ("nosuid", MsFlags::MS_NOSUID),
        ("nodev", MsFlags::MS_NODEV),
        ("noexec", MsFlags::MS_NOEXEC),
        ("noatime", MsFlags::MS_NOATIME),
        ("nodiratime", MsFlags::MS_NODIRATIME),
        ("relatime", MsFlags::MS_RELATIME),
    ];
    let set = |name: &str| options.split(',').any(|option| option == name);
    known.into_iter().filter(|(name, _)| set(name)).fold(MsFlags::empty(), |flags, (_, flag)| flags | flag)
}

/// Blanks and backslashes are written in octal in the table of mounts.
fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend(before.as_bytes());
        if let Some(byte) = after.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            bytes.push(byte);
            rest = after.get(3..).unwrap_or_default();
        } else {
            bytes.push(b'\\');
            rest = after;
        }
    }
    bytes.extend(rest.as_bytes());
    PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_escapes_of_the_mount_table_are_read() {
        assert_eq!(unescape("/with\\040blank/and\\134slash"), Path::new("/with blank/and\\slash"));
        assert_eq!(unescape("/plain"), Path::new("/plain"));
    }

    #[test]
    fn flags_that_a_remount_must_keep_are_read() {
        assert_eq!(
            flags_of("rw,nosuid,nodev,relatime"),
            MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_RELATIME
        );
    }
}
