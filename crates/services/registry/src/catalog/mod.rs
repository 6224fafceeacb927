//! The model catalog: a read-only REST server over files that list models, MCP servers and agents.
//!
//! It speaks the API of the Kubeflow Model Catalog. What is served is one value in memory, made of the sources' files
//! ([`load`]) and replaced as a whole when one of them changes; requests read it and wait for nothing. All but `load`
//! and this module is pure.
//!
//! ```text
//! sources   the files that list sources, labels, named queries
//! files     catalog files, to items        metrics   benchmark results, to artifacts
//! filter    filterQuery over items         page      order and pages
//! options   what can be filtered           recommend measurements worth a look
//! ```

mod api;
mod custom;
mod encode;
mod files;
mod filter;
mod item;
mod license;
mod load;
mod metrics;
mod models;
mod multipart;
mod options;
mod page;
mod patterns;
mod preview;
mod recommend;
mod sources;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use quintet_foundation::clock::Clock;
use tokio::net::TcpListener;

use self::load::{Catalog, Ids, Paths, Watched};
use crate::api::Request;
use crate::http_server::{self, Origins};

/// How often files are looked at for changes. A look is a `stat` per file; users wait about as long after an edit.
const LOOK: Duration = Duration::from_secs(1);

/// A catalog server.
#[derive(Clone)]
pub struct CatalogServer {
    state: Arc<State>,
    origins: Origins,
}

struct State {
    paths: Paths,
    clock: Clock,
    catalog: RwLock<Option<Arc<Catalog>>>,
    loading: Mutex<(Ids, Watched)>,
}

impl CatalogServer {
    /// A server of the sources in these files, where later files override earlier ones, with the benchmark results
    /// below these directories.
    #[must_use]
    pub fn new(sources: Vec<PathBuf>, performance: Vec<PathBuf>) -> Self {
        let state = State {
            paths: Paths { sources, performance },
            clock: Clock::system(),
            catalog: RwLock::default(),
            loading: Mutex::default(),
        };
        Self { state: Arc::new(state), origins: Origins::default() }
    }

    /// Lets pages of these origins read answers; `*` stands for all.
    #[must_use]
    pub fn with_allowed_origins(mut self, origins: Vec<String>) -> Self {
        self.origins = Origins::new(origins);
        self
    }

    /// Reads the sources. After a failure, what was read before is still served.
    pub fn load(&self) -> Result<(), String> {
        let state = &self.state;
        let before = state.catalog.read().clone().unwrap_or_default();
        let mut loading = state.loading.lock();
        let (ids, watched) = &mut *loading;
        let now = state.clock.now().as_millisecond();
        match load::load(&state.paths, &before, ids, now) {
            Ok((catalog, looked_at)) => {
                *watched = looked_at;
                *state.catalog.write() = Some(Arc::new(catalog));
                Ok(())
            }
            Err(why) => {
                // What is wrong now is tried again when it changes, not every time.
                for path in &state.paths.sources {
                    watched.insert(path.clone(), load::look(path));
                }
                Err(why)
            }
        }
    }

    /// Serves connections until `stop` completes. Files that change are read again.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let server = self.clone();
        let origins = self.origins.clone();
        let serving = http_server::serve(listener, stop, origins, move |request: Request| {
            let server = server.clone();
            async move { server.answer(&request) }
        });
        tokio::select! {
            () = serving => {}
            () = self.watch() => {}
        }
    }

    fn answer(&self, request: &Request) -> crate::api::response::Response {
        let catalog = self.state.catalog.read().clone();
        let directory = self.state.paths.sources.first().and_then(|it| it.parent());
        api::answer(catalog.as_deref(), request, directory.unwrap_or_else(|| Path::new("")))
    }

    async fn watch(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let server = self.clone();
            // Files are read on a thread that may wait.
            let looked = tokio::task::spawn_blocking(move || {
                if server.is_changed()
                    && let Err(why) = server.load()
                {
                    tracing::error!(
                        why,
                        "the catalog cannot be loaded; what was loaded before is still served"
                    );
                }
            });
            if let Err(error) = looked.await {
                tracing::error!(%error, "looking for changes of the catalog failed");
            }
        }
    }

    fn is_changed(&self) -> bool {
        let loading = self.state.loading.lock();
        loading.1.iter().any(|(path, seen)| load::look(path) != *seen)
    }
}
