//! Files that images bring along beside the programs of this machine: written once, shared by pods, never changed.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::digest;

/// Files of an image.
#[derive(Debug)]
pub(super) struct Bundle {
    /// Their texts, by path.
    files: &'static [(&'static str, &'static str)],
    /// Directories of it, and where containers see them.
    pub(super) places: &'static [(&'static str, &'static str)],
}

/// What sclorg's images of PostgreSQL have beside PostgreSQL, which needs nothing of the machine's `/usr/libexec`.
pub(super) static POSTGRESQL: Bundle = Bundle {
    files: &[
        ("bin/run-postgresql", include_str!("run-postgresql.sh")),
        ("libexec/check-container", include_str!("check-container.sh")),
    ],
    places: &[("bin", "/opt/quintet/bin"), ("libexec", "/usr/libexec")],
};

/// All bundles of a node. The name of a bundle follows from its content: a newer program writes another one, and pods
/// that run keep theirs.
#[derive(Debug)]
pub(super) struct Bundles {
    directory: PathBuf,
    writing: Mutex<()>,
}

impl Bundles {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, writing: Mutex::default() }
    }

    /// The directory of a bundle, if it was written.
    pub(super) fn existing(&self, bundle: &Bundle) -> Option<PathBuf> {
        Some(self.path(bundle)).filter(|path| path.is_dir())
    }

    /// The directory of a bundle; written if it does not exist.
    pub(super) fn get(&self, bundle: &Bundle) -> io::Result<PathBuf> {
        let _guard = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path(bundle);
        if path.is_dir() {
            return Ok(path);
        }
        // Complete or not there at all: it gets its name at the end.
        let unfinished = path.with_extension("unfinished");
        for (file, text) in bundle.files {
            write(&unfinished, Path::new(file), text)?;
        }
        fs::rename(&unfinished, &path)?;
        Ok(path)
    }

    fn path(&self, bundle: &Bundle) -> PathBuf {
        self.directory.join(digest(&format!("{:?}", bundle.files)))
    }
}

/// Any user may read and execute it, whatever the mask of this process is.
fn write(root: &Path, file: &Path, text: &str) -> io::Result<()> {
    let path = root.join(file);
    let directory = path.parent().unwrap_or(root);
    fs::create_dir_all(directory)?;
    fs::write(&path, text)?;
    for one in [root, directory, &path] {
        fs::set_permissions(one, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_written_once() {
        let directory = tempfile::tempdir().unwrap();
        let bundles = Bundles::new(directory.path().join("images"));
        assert_eq!(bundles.existing(&POSTGRESQL), None);
        let path = bundles.get(&POSTGRESQL).unwrap();
        assert_eq!(bundles.existing(&POSTGRESQL), Some(path.clone()));
        assert_eq!(bundles.get(&POSTGRESQL).unwrap(), path);
        let mode = fs::metadata(path.join("libexec/check-container")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(fs::read_dir(directory.path().join("images")).unwrap().count(), 1);
    }

    #[test]
    fn scripts_are_well_formed() {
        for (name, text) in POSTGRESQL.files {
            let checked = std::process::Command::new("bash").args(["-n", "-c", text]).output().unwrap();
            assert!(checked.status.success(), "{name}: {}", String::from_utf8_lossy(&checked.stderr));
        }
    }
}
