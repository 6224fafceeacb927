//! The reflector of a cache: list, then watch, forever.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::AsyncBufReadExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{sync::watch as signal, time::Instant};

use super::{Cause, Inner, Phase, Progress, store::StreamId};
use crate::{
    api::{Api, Page},
    backoff::Backoff,
    error::{Class, Error},
    object::{Head, ObjectKey, ResourceVersion},
    rng::Rng,
    tasks::Tasks,
};

/// How long a watch lasts before the server ends it, as long as client-go's shortest: a new one now and
/// then repairs what went wrong unnoticed.
const WATCH_LENGTH: Duration = Duration::from_secs(290);

/// How much longer than that a silent watch is kept.
const WATCH_GRACE: Duration = Duration::from_secs(10);

/// Servers send a bookmark about once a minute: a connection that is silent for longer is half open.
const SILENCE: Duration = Duration::from_secs(150);

/// After this many failures in a row the version we watch from may be one the server does not know, as after a
/// restore from a backup: list again.
const GIVE_UP: u32 = 5;

/// The interval between checks whether an absent kind is served.
const ABSENT_POLL: Duration = Duration::from_secs(10);

/// A watch that keeps failing tries again at least twice a minute.
const RETRY: Backoff = Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(30) };

pub(super) struct Task<T> {
    api: Api,
    cache: Arc<Inner<T>>,
    /// Which of the streams that feed the cache this is.
    stream: StreamId,
    must_catch_up: signal::Receiver<bool>,
    tasks: Tasks,
    rng: Rng,
    failures: u32,
    /// Watches in a row that ended without an event.
    barren: u32,
    /// The version we watch from may be one the server does not know.
    unwatchable: bool,
}

/// How a watch ended.
enum End {
    /// The server closed it; go on from the last version.
    Closed,
    /// The last version is too old, or we were asked to make sure that nothing is missing: list again.
    Gap,
}

#[derive(Deserialize)]
struct ListPage<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow, default)]
    /// An empty list of metadata has `null` here.
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    r#continue: Option<String>,
}

#[derive(Deserialize)]
struct WatchLine<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: ListMeta,
}

impl<T: Send + Sync + 'static> Task<T> {
    pub(super) fn new(api: Api, cache: Arc<Inner<T>>, stream: StreamId, tasks: Tasks, rng: Rng) -> Self {
        let must_catch_up = cache.must_catch_up.subscribe();
        Self { api, cache, stream, must_catch_up, tasks, rng, failures: 0, barren: 0, unwatchable: false }
    }

    pub(super) async fn run(mut self) {
        let tasks = self.tasks.clone();
        tokio::select! {
            () = tasks.stopping() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&mut self) {
        loop {
            match self.list().await {
                Ok(version) => self.watch_from(version).await,
                Err(error) if error.is_not_found() => self.wait_for_kind().await,
                Err(error) => {
                    if error.has_code(403) {
                        self.leave_alone();
                    }
                    self.wait_after(&error).await;
                }
            }
        }
    }

    /// Watches from `version` until there is a gap.
    async fn watch_from(&mut self, mut version: String) {
        loop {
            let opened = Instant::now();
            self.barren = self.barren.saturating_add(1);
            let ended = match self.watch(&mut version).await {
                Ok(end) => end,
                Err(error) if error.is_not_found() || error.has_code(410) => End::Gap,
                Err(error) => {
                    self.wait_after(&error).await;
                    if self.failures >= GIVE_UP {
                        self.unwatchable = true;
                        return;
                    }
                    continue;
                }
            };
            // Back off from a server or proxy that ends watches at once.
            if self.barren > 1 && opened.elapsed() < Duration::from_secs(1) {
                tokio::time::sleep(RETRY.wait(self.barren, &self.rng)).await;
            }
            match ended {
                End::Closed => {}
                End::Gap => return,
            }
        }
    }

    /// Lists everything, page by page, and returns the version to watch from.
    async fn list(&mut self) -> Result<String, Error> {
        let (labels, fields) = self.selectors();
        let first = !self.progress().synced;
        let catches_up = *self.must_catch_up.borrow_and_update();
        let cause = if first { Cause::Initial } else { Cause::Relist };
        self.cache.store.write().begin_list(self.stream);
        let mut listed = HashSet::new();
        let mut token: Option<String> = None;
        let version = loop {
            let page = Page { token: token.as_deref(), ..self.page(&labels, &fields) };
            let text = self.api.list(&self.cache.spec.kind, page).await?;
            let page: ListPage<'_> =
                serde_json::from_str(&text).map_err(|error| self.garbled("list", &error))?;
            if token.is_none() && self.unwatchable {
                self.cache
                    .store
                    .write()
                    .list_is_at(self.stream, page.metadata.resource_version.as_str().into());
            }
            for item in page.items.into_iter().flatten() {
                self.take_listed(item.get(), cause, &mut listed);
            }
            match page.metadata.r#continue.filter(|token| !token.is_empty()) {
                Some(next) => token = Some(next),
                None => break page.metadata.resource_version,
            }
        };
        let up_to = ResourceVersion::from(version.as_str());
        let namespace = self.namespace().map(str::to_owned);
        let is_elsewhere = |name: &str| {
            namespace
                .as_deref()
                .is_some_and(|namespace| name.split_once('/').map(|(one, _)| one) != Some(namespace))
        };
        self.cache
            .health
            .lock()
            .unreadable
            .retain(|name, _| is_elsewhere(name) || listed.iter().any(|key| key.as_str() == name));
        self.cache.update(|store| store.end_list(self.stream, &listed, up_to));
        self.unwatchable = false;
        self.in_step(true);
        if catches_up {
            self.note(|stream| stream.caught_up = true);
        }
        Ok(version)
    }

    fn take_listed(&self, text: &str, cause: Cause, listed: &mut HashSet<ObjectKey>) {
        match Head::read(text, self.cache.spec.form) {
            Ok(head) => {
                listed.insert(head.key.clone());
                if let Some(entry) = self.cache.decode(&head) {
                    self.cache.update(|store| store.put_listed(entry, cause));
                }
            }
            Err(error) => self.nameless(&error),
        }
    }

    async fn watch(&mut self, version: &mut String) -> Result<End, Error> {
        let kind = self.cache.spec.kind.clone();
        let (labels, fields) = self.selectors();
        // A little shorter each time at random, so that watches do not all end together.
        let length = WATCH_LENGTH.saturating_sub(Duration::from_secs(self.rng.below(60)));
        let mut lines = Box::pin(self.api.watch(&kind, self.page(&labels, &fields), version, length).await?);
        let end = Instant::now() + length + WATCH_GRACE;
        self.in_step(false);
        let mut line = Vec::new();
        loop {
            line.clear();
            let silence = end.min(Instant::now() + SILENCE);
            let read = tokio::time::timeout_at(silence, lines.read_until(b'\n', &mut line));
            let read = tokio::select! {
                biased;
                Ok(()) = self.must_catch_up.changed() => return Ok(End::Gap),
                read = read => read,
            };
            match read {
                Err(_) | Ok(Ok(0)) => return Ok(End::Closed),
                Ok(Err(error)) => {
                    let error = kube::Error::ReadEvents(error);
                    return Err(Error::request("watch", &kind, None, error));
                }
                Ok(Ok(_)) => {}
            }
            if let Some(end) = self.take_line(&line, version)? {
                return Ok(end);
            }
            self.barren = 0;
            self.cache.health.lock().last_event = Some(Instant::now());
        }
    }

    fn take_line(&self, line: &[u8], version: &mut String) -> Result<Option<End>, Error> {
        let event: WatchLine<'_> =
            serde_json::from_slice(line).map_err(|error| self.garbled("watch", &error))?;
        let text = event.object.get();
        match event.r#type {
            "BOOKMARK" => {
                let mark: Bookmark =
                    serde_json::from_str(text).map_err(|error| self.garbled("watch", &error))?;
                *version = mark.metadata.resource_version;
                return Ok(None);
            }
            "ERROR" => {
                let status: kube::core::Status =
                    serde_json::from_str(text).map_err(|error| self.garbled("watch", &error))?;
                if status.code == 410 {
                    return Ok(Some(End::Gap));
                }
                let error = kube::Error::Api(status.boxed());
                return Err(Error::request("watch", &self.cache.spec.kind, None, error));
            }
            _ => {}
        }
        match Head::read(text, self.cache.spec.form) {
            Ok(head) => {
                if head.version != ResourceVersion::default() {
                    *version = head.version.to_string();
                }
                if event.r#type == "DELETED" {
                    self.cache.health.lock().unreadable.remove(head.key.as_str());
                    self.cache.update(|store| store.remove(&head.key, &head.uid, head.version));
                } else if let Some(entry) = self.cache.decode(&head) {
                    self.cache.update(|store| store.put(entry, Cause::Watch));
                }
            }
            Err(error) => self.nameless(&error),
        }
        Ok(None)
    }

    /// The kind is not served: an optional one counts as complete and empty meanwhile.
    async fn wait_for_kind(&mut self) {
        self.cache.update(|store| store.clear(self.stream));
        self.set_phase(Phase::Absent);
        let (optional, catches_up) = (self.cache.spec.optional, *self.must_catch_up.borrow());
        self.note(|stream| {
            let failing = stream.failing;
            *stream = Progress { synced: optional, caught_up: catches_up, served: false, failing };
        });
        self.failures = 0;
        let _ = tokio::time::timeout(ABSENT_POLL, self.must_catch_up.changed()).await;
    }

    /// One namespace of several that we may no longer read: neither may we write there, and the others must not
    /// wait for it.
    fn leave_alone(&self) {
        let Some(namespace) = self.namespace() else { return };
        if *self.must_catch_up.borrow() && !self.progress().caught_up {
            tracing::warn!(
                kind = %self.cache.spec.kind,
                namespace,
                "beginning without knowing what the last leader did here: give the right to list it back, or watch \
                 other namespaces"
            );
            self.note(|stream| stream.caught_up = true);
        }
    }

    async fn wait_after(&mut self, error: &Error) {
        self.failures = self.failures.saturating_add(1);
        self.set_phase(Phase::Failing(error.to_string()));
        self.cache.metrics.watch_failed(&self.cache.spec.kind, error.class());
        let wait = RETRY.wait(self.failures, &self.rng).max(error.retry_after().unwrap_or_default());
        if error.is_quiet() {
            tracing::debug!(?wait, "{error}; retrying");
        } else {
            tracing::warn!(?wait, "{error}; retrying");
        }
        tokio::time::sleep(wait).await;
    }

    fn in_step(&mut self, listed: bool) {
        self.failures = 0;
        self.set_phase(Phase::Watching);
        let mut health = self.cache.health.lock();
        health.last_event = Some(Instant::now());
        health.lists += u64::from(listed);
        drop(health);
        self.note(|stream| (stream.synced, stream.served) = (true, true));
    }

    fn set_phase(&self, phase: Phase) {
        let is_failing = match phase {
            Phase::Failing(_) => true,
            Phase::Absent => !self.cache.spec.optional,
            Phase::Starting | Phase::Watching => false,
        };
        self.cache.health.lock().phases[self.stream.0] = phase;
        self.cache.progress.send_if_modified(|streams| {
            let failing = &mut streams[self.stream.0].failing;
            std::mem::replace(failing, is_failing) != is_failing
        });
    }

    fn progress(&self) -> Progress {
        self.cache.progress.borrow()[self.stream.0]
    }

    fn note(&self, change: impl FnOnce(&mut Progress)) {
        self.cache.progress.send_modify(|streams| change(&mut streams[self.stream.0]));
    }

    /// The only namespace that is watched, if not all are.
    fn namespace(&self) -> Option<&str> {
        self.cache.spec.selector.namespaces.get(self.stream.0).map(String::as_str)
    }

    /// The label selector and the field selector of requests.
    fn selectors(&self) -> (String, String) {
        let selector = &self.cache.spec.selector;
        (selector.labels_text(), selector.fields_text())
    }

    fn page<'a>(&'a self, labels: &'a str, fields: &'a str) -> Page<'a> {
        let spec = &self.cache.spec;
        Page { namespace: self.namespace(), labels, fields, form: spec.form, limit: spec.page, token: None }
    }

    /// An object without a name: it can only be reported.
    fn nameless(&self, error: &serde_json::Error) {
        self.cache.metrics.unreadable(&self.cache.spec.kind);
        self.cache.health.lock().note_unreadable(&self.cache.spec.kind, "?", error);
    }

    fn garbled(&self, verb: &str, error: &serde_json::Error) -> Error {
        let attempt = format!("cannot {verb} {}", self.cache.spec.kind);
        Error::new(Class::Transient, attempt, format!("the answer is not what the API promises: {error}"))
    }
}
