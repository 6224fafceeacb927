//! Object storage: a flat set of keys, as the collector writes it and the history server reads it.

mod azure;
mod config;
#[cfg(test)]
mod fake;
mod gcs;
mod local;
mod net;
mod s3;
#[cfg(test)]
mod tests;
mod token;
mod xml;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

pub use config::StorageConfig;
pub(crate) use local::Local;
pub(crate) use net::{Http, cause, content, percent_encoded};

/// Why the storage did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub(crate) String);

pub(crate) type Result<T> = std::result::Result<T, StoreError>;

/// Objects are read in pieces of this size.
pub(crate) const PIECE: u64 = 1024 * 1024;

/// What every kind of storage can do. Keys are complete: they include the root.
pub(crate) trait Objects: Send + Sync {
    /// The keys below a prefix that ends in `/`. With `deep` all of them; else the direct children, where those that
    /// have children of their own end in `/`. Returned relative to the prefix and sorted.
    fn list<'a>(&'a self, prefix: &'a str, deep: bool) -> BoxFuture<'a, Result<Vec<String>>>;

    /// The size of an object, if it exists.
    fn size<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>>>;

    /// Some bytes of an object: fewer at its end.
    fn read<'a>(&'a self, key: &'a str, offset: u64, length: u64) -> BoxFuture<'a, Result<Bytes>>;

    /// Writes an object, replacing an older one.
    fn put<'a>(&'a self, key: &'a str, content: Bytes) -> BoxFuture<'a, Result<()>>;

    /// Writes an object with the content of a file.
    fn put_file<'a>(&'a self, key: &'a str, path: &'a Path) -> BoxFuture<'a, Result<()>>;

    /// Makes the bucket, where that is usual.
    fn prepare(&self) -> BoxFuture<'_, Result<()>>;
}

/// A storage with the root of all keys.
#[derive(Clone)]
pub struct Store {
    objects: Arc<dyn Objects>,
    root: Arc<str>,
}

impl Store {
    pub(crate) fn new(objects: impl Objects + 'static, root: &str) -> Self {
        Self { objects: Arc::new(objects), root: root.trim_matches('/').into() }
    }

    /// A directory on this machine.
    pub fn directory(path: &Path, root: &str) -> Self {
        Self::new(Local::new(path), root)
    }

    fn key(&self, path: &str) -> String {
        let path = path.trim_start_matches('/');
        if self.root.is_empty() { path.to_owned() } else { format!("{}/{path}", self.root) }
    }

    /// The direct children of a directory; directories end in `/`.
    pub(crate) async fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.objects.list(&self.prefix(directory), false).await
    }

    /// The paths of all objects below a directory, relative to it.
    pub(crate) async fn list_all(&self, directory: &str) -> Result<Vec<String>> {
        self.objects.list(&self.prefix(directory), true).await
    }

    fn prefix(&self, directory: &str) -> String {
        let key = self.key(directory);
        format!("{}/", key.trim_end_matches('/'))
    }

    pub(crate) async fn size(&self, path: &str) -> Result<Option<u64>> {
        self.objects.size(&self.key(path)).await
    }

    pub(crate) async fn read(&self, path: &str, offset: u64, length: u64) -> Result<Bytes> {
        self.objects.read(&self.key(path), offset, length).await
    }

    /// A whole object, if it exists and is not larger than `limit`.
    pub(crate) async fn get(&self, path: &str, limit: u64) -> Result<Option<Bytes>> {
        let Some(size) = self.size(path).await? else { return Ok(None) };
        if size > limit {
            return Err(StoreError(format!("{path} has {size} bytes, more than the {limit} that are read")));
        }
        if size == 0 {
            return Ok(Some(Bytes::new()));
        }
        self.read(path, 0, size).await.map(Some)
    }

    pub(crate) async fn put(&self, path: &str, content: Bytes) -> Result<()> {
        self.objects.put(&self.key(path), content).await
    }

    pub(crate) async fn put_file(&self, path: &str, file: &Path) -> Result<()> {
        self.objects.put_file(&self.key(path), file).await
    }

    /// Makes the bucket, where that is usual.
    pub async fn prepare(&self) -> Result<()> {
        self.objects.prepare().await
    }

    /// Reads an object piece by piece, for code that blocks. Call it within the runtime, read outside of it.
    pub(crate) fn reader(&self, path: &str, size: u64) -> impl Read + Send + use<> {
        Pieces {
            store: self.clone(),
            path: path.to_owned(),
            runtime: tokio::runtime::Handle::current(),
            offset: 0,
            size,
            piece: Bytes::new(),
        }
    }
}

struct Pieces {
    store: Store,
    path: String,
    runtime: tokio::runtime::Handle,
    offset: u64,
    size: u64,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.piece.is_empty() && self.offset < self.size {
            let length = PIECE.min(self.size - self.offset);
            let read = self.store.read(&self.path, self.offset, length);
            self.piece = self.runtime.block_on(read).map_err(std::io::Error::other)?;
            if self.piece.is_empty() {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            self.offset += self.piece.len() as u64;
        }
        let length = buffer.len().min(self.piece.len());
        buffer[..length].copy_from_slice(&self.piece.split_to(length));
        Ok(length)
    }
}
