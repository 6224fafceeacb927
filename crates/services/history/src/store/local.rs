//! A directory as storage: one file for each key.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;

use super::{Objects, Result, StoreError};

/// Objects as files below a directory.
pub(crate) struct Local {
    directory: PathBuf,
    /// Numbers the files that are being written.
    written: AtomicU64,
}

impl Local {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), written: AtomicU64::new(0) }
    }

    /// The file of a key. Keys that would leave the directory have none.
    fn path(&self, key: &str) -> Result<PathBuf> {
        let relative = Path::new(key);
        if relative.components().any(|it| !matches!(it, Component::Normal(_))) {
            return Err(StoreError(format!("{key:?} is no key")));
        }
        Ok(self.directory.join(relative))
    }

    /// The file of a key that is to be read. Links that lead out of the directory are refused: others may write to it.
    fn existing(&self, key: &str) -> Result<PathBuf> {
        let path = self.path(key)?;
        let (Ok(real), Ok(directory)) = (path.canonicalize(), self.directory.canonicalize()) else {
            return Ok(path);
        };
        if real.starts_with(directory) {
            Ok(real)
        } else {
            Err(StoreError(format!("{key:?} is a link to a file outside the storage")))
        }
    }

    fn list_now(&self, prefix: &str, deep: bool) -> Result<Vec<String>> {
        let directory = self.path(prefix.trim_end_matches('/'))?;
        let mut found = Vec::new();
        collect(&directory, "", deep, &mut found)?;
        found.sort_unstable();
        Ok(found)
    }

    /// Writes beside the target, then renames: a reader sees all of an object or nothing.
    fn write_now(
        &self,
        key: &str,
        write: impl FnOnce(&mut std::fs::File) -> std::io::Result<()>,
    ) -> Result<()> {
        let path = self.path(key)?;
        let failed = |error: std::io::Error| StoreError(format!("cannot write {}: {error}", path.display()));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let temporary = self.directory.join(format!(".writing-{}-{number}", std::process::id()));
        let written = std::fs::File::create(&temporary)
            .and_then(|mut file| write(&mut file).and_then(|()| file.sync_all()))
            .and_then(|()| std::fs::rename(&temporary, &path));
        written.map_err(|error| {
            // The error counts; a file that is left over is harmless.
            let _ = std::fs::remove_file(&temporary);
            failed(error)
        })
    }
}

fn collect(directory: &Path, below: &str, deep: bool, found: &mut Vec<String>) -> Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(()),
        Err(error) => return Err(StoreError(format!("cannot list {}: {error}", directory.display()))),
    };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Ok(kind) = entry.file_type() else { continue };
        if name.starts_with(".writing-") {
            continue;
        }
        match (kind.is_dir(), deep) {
            (true, true) => collect(&entry.path(), &format!("{below}{name}/"), deep, found)?,
            (true, false) => found.push(format!("{below}{name}/")),
            (false, _) => found.push(format!("{below}{name}")),
        }
    }
    Ok(())
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

impl Objects for Local {
    fn list<'a>(&'a self, prefix: &'a str, deep: bool) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move { self.list_now(prefix, deep) })
    }

    fn size<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>>> {
        Box::pin(async move {
            let path = self.existing(key)?;
            match std::fs::metadata(&path) {
                Ok(metadata) => Ok(metadata.is_file().then_some(metadata.len())),
                Err(error) if is_absent(&error) || error.kind() == std::io::ErrorKind::InvalidFilename => {
                    Ok(None)
                }
                Err(error) => Err(StoreError(format!("cannot read {}: {error}", path.display()))),
            }
        })
    }

    fn read<'a>(&'a self, key: &'a str, offset: u64, length: u64) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            let path = self.existing(key)?;
            let read = || -> std::io::Result<Vec<u8>> {
                let mut file = std::fs::File::open(&path)?;
                file.seek(SeekFrom::Start(offset))?;
                let mut content = Vec::new();
                file.take(length).read_to_end(&mut content)?;
                Ok(content)
            };
            let content = read();
            content
                .map(Bytes::from)
                .map_err(|error| StoreError(format!("cannot read {}: {error}", path.display())))
        })
    }

    fn put<'a>(&'a self, key: &'a str, content: Bytes) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.write_now(key, |file| file.write_all(&content)) })
    }

    fn put_file<'a>(&'a self, key: &'a str, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.write_now(key, |file| {
                std::io::copy(&mut std::fs::File::open(path)?, file)?;
                Ok(())
            })
        })
    }

    fn prepare(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            std::fs::create_dir_all(&self.directory).map_err(|error| {
                StoreError(format!("cannot make the directory {}: {error}", self.directory.display()))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn links_out_of_the_storage_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let storage = directory.path().join("storage");
        std::fs::create_dir(&storage).unwrap();
        std::fs::write(directory.path().join("token"), "secret").unwrap();
        std::fs::write(storage.join("own"), "log").unwrap();
        std::os::unix::fs::symlink(directory.path().join("token"), storage.join("x.log")).unwrap();
        let local = Local::new(&storage);
        assert!(local.read("x.log", 0, 10).await.is_err());
        assert!(local.size("x.log").await.is_err());
        assert_eq!(local.read("own", 0, 10).await.unwrap(), "log");
    }
}
