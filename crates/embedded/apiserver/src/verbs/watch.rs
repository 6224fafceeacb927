//! Watch: initial objects, then events, for as long as the client reads.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use tokio::{sync::watch as channel, time::Instant};

use super::{RequestContext, filter::Filter};
use crate::{
    api::Api,
    encoding::response::{self, EventType},
    request::{
        negotiate::{Accepted, Format, View},
        options::ListOptions,
    },
    resources::Resource,
    status::Failure,
    store::{ChangeType, Entry, Event},
};

/// How many events are taken at a time.
const BATCH: usize = 256;
/// How many bytes are sent at once, about.
const PIECE: usize = 64 << 10;
/// The interval of bookmarks on a quiet watch.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// Bookmarks come this long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// A watch without a timeout of its own ends after this; clients resume.
const TIMEOUT: Duration = Duration::from_mins(45);

/// A watch that is being read.
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact of the watch")]
struct Watch {
    api: Api,
    resource: Arc<Resource>,
    filter: Filter,
    accepted: Accepted,
    include_object: quintet_objects::table::IncludeObject,
    /// Everything up to here was sent.
    cursor: u64,
    changes: channel::Receiver<u64>,
    /// What was there at the beginning and was not sent yet.
    initial: std::vec::IntoIter<(Arc<str>, Arc<Entry>)>,
    /// A mark follows what was there.
    marks_initial: bool,
    ready: VecDeque<Bytes>,
    is_first: bool,
    allow_bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    sent_final_bookmark: bool,
    is_over: bool,
    cut: tokio_util::sync::CancellationToken,
}

/// Starts a watch.
pub(crate) async fn watch(
    context: &RequestContext,
    options: &ListOptions,
    accepted: Accepted,
    include_object: quintet_objects::table::IncludeObject,
) -> Result<impl futures::Stream<Item = Bytes> + Send + 'static, Failure> {
    let namespace = Some(context.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let filter = Filter::new(&context.resource, namespace, options)?;
    let store = context.api.store();
    let now = Instant::now();
    let mut watch = Watch {
        api: context.api.clone(),
        resource: Arc::clone(&context.resource),
        filter,
        accepted,
        include_object,
        cursor: options.resource_version.unwrap_or(0),
        changes: store.follow(&context.resource.bucket),
        initial: Vec::new().into_iter(),
        marks_initial: false,
        ready: VecDeque::new(),
        is_first: true,
        allow_bookmarks: options.allow_bookmarks,
        next_bookmark: now + BOOKMARK_EVERY,
        end: now + options.timeout.unwrap_or(TIMEOUT),
        sent_final_bookmark: false,
        is_over: false,
        cut: context.api.watch_cut(),
    };
    let from_start = options.resource_version.unwrap_or(0) == 0;
    let initial = options.send_initial_events.unwrap_or(from_start);
    if initial {
        if let Some(rv) = options.resource_version.filter(|rv| *rv > 0) {
            super::list::wait_for(context, rv).await?;
        }
        let listed = store.list(&watch.resource.bucket, &watch.filter.prefix, None, None);
        let (entries, rv) = listed.map_err(|_| Failure::internal("the present cannot be listed"))?;
        watch.initial = entries.into_iter();
        watch.marks_initial = options.send_initial_events == Some(true) && options.allow_bookmarks;
        watch.cursor = rv;
    } else if from_start {
        watch.cursor = store.version();
    }
    Ok(stream::unfold(watch, |mut watch| async move {
        let piece = watch.next().await?;
        Some((piece, watch))
    }))
}

impl Watch {
    /// Makes some more of what was there ready, and then, if the client asked for it, the mark where that ends. As
    /// much as is sent at once: a slow client of a large list must not hold all of it twice.
    async fn collect_initial(&mut self) -> Result<(), Failure> {
        let mut length = 0;
        while length < PIECE {
            let Some((key, entry)) = self.initial.next() else {
                if std::mem::take(&mut self.marks_initial) {
                    self.push_bookmark(true)?;
                }
                break;
            };
            if self.filter.is_open() || self.matches(&key, &entry).await? {
                self.push(EventType::Added, &entry).await?;
                length += self.ready.back().map_or(0, Bytes::len);
            }
        }
        Ok(())
    }

    /// The next piece of the response; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Also a watch that is never idle comes to its end.
            if self.cut.is_cancelled() || Instant::now() >= self.end {
                return None;
            }
            if let Some(piece) = self.take_ready() {
                return Some(piece);
            }
            if self.is_over {
                return None;
            }
            // Events from before the definition was deleted are still sent.
            let is_defined = self.refresh_resource();
            self.changes.borrow_and_update();
            let is_complete = match self.collect().await {
                Ok(is_complete) => is_complete,
                Err(failure) => {
                    self.fail(&failure);
                    continue;
                }
            };
            if !is_complete || !self.ready.is_empty() {
                continue;
            }
            if !is_defined {
                return None;
            }
            let final_bookmark = self.end.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(self.end);
            let wake = match (self.allow_bookmarks, self.sent_final_bookmark) {
                (true, false) => self.next_bookmark.min(final_bookmark),
                _ => self.end,
            };
            tokio::select! {
                biased;
                () = self.cut.cancelled() => return None,
                changed = self.changes.changed() => if changed.is_err() { return None },
                () = tokio::time::sleep_until(wake) => {
                    let now = Instant::now();
                    if now >= self.end {
                        return None;
                    }
                    if self.allow_bookmarks {
                        self.sent_final_bookmark |= now >= final_bookmark;
                        self.next_bookmark = now + BOOKMARK_EVERY;
                        if let Err(failure) = self.push_bookmark(false) {
                            self.fail(&failure);
                        }
                    }
                }
            }
        }
    }

    /// Ends the watch, and says why if the client can be told in the format of the stream.
    fn fail(&mut self, failure: &Failure) {
        match response::error_event(self.accepted, failure) {
            Ok(piece) => self.ready.push_back(piece),
            Err(error) => tracing::error!("a watch ends with an error that cannot be encoded: {error}"),
        }
        self.is_over = true;
    }

    /// Ready events as one piece, so that many small ones cost one write.
    fn take_ready(&mut self) -> Option<Bytes> {
        let first = self.ready.pop_front()?;
        if self.ready.is_empty() {
            return Some(first);
        }
        let mut piece = first.to_vec();
        while let Some(next) = self.ready.front() {
            if piece.len() + next.len() > PIECE {
                break;
            }
            piece.extend_from_slice(next);
            self.ready.pop_front();
        }
        Some(piece.into())
    }

    /// Shows objects as they are defined by now; whether they still are.
    fn refresh_resource(&mut self) -> bool {
        if self.resource.as_custom().is_none() {
            return true;
        }
        let registry = self.api.registry();
        let Resource { group, version, plural, .. } = &*self.resource;
        match registry.get(group, version, plural) {
            Some(resource) => self.resource = Arc::clone(resource),
            None => return false,
        }
        true
    }

    /// Takes what is to be sent next; whether that was all there is.
    async fn collect(&mut self) -> Result<bool, Failure> {
        self.collect_initial().await?;
        if !self.ready.is_empty() {
            return Ok(false);
        }
        let events = self.api.store().events_after(&self.resource.bucket, self.cursor, BATCH);
        let (events, complete) = events.map_err(|too_old| {
            Failure::expired(format!("too old resource version: {} ({})", self.cursor, too_old.oldest))
        })?;
        let is_all = events.len() < BATCH;
        for event in events {
            if self.filter.covers(&event.key) {
                self.send(&event).await?;
            }
            // A slow client of large objects must not hold many of them.
            if self.ready.iter().map(Bytes::len).sum::<usize>() >= PIECE {
                self.cursor = self.cursor.max(event.rv);
                return Ok(false);
            }
        }
        // A version from the future stays where it is until the present reaches it.
        self.cursor = self.cursor.max(complete);
        Ok(is_all)
    }

    /// Sends a change as this client sees it: objects enter and leave what it selects.
    async fn send(&mut self, event: &Arc<Event>) -> Result<(), Failure> {
        if self.filter.is_open() {
            let kind = match event.change {
                ChangeType::Added => EventType::Added,
                ChangeType::Modified => EventType::Modified,
                ChangeType::Deleted => EventType::Deleted,
            };
            if self.accepted == response::PLAIN && Api::reads_raw(&self.resource, &event.entry) {
                let frame =
                    event.frame.get_or_init(|| response::event_json(&self.resource, kind, &event.entry));
                self.ready.push_back(frame.clone());
                return Ok(());
            }
            return self.push(kind, &event.entry).await;
        }
        let was = match &event.previous {
            Some(previous) => self.matches(&event.key, previous).await?,
            None => false,
        };
        let is = event.change != ChangeType::Deleted && self.matches(&event.key, &event.entry).await?;
        match (was, is) {
            (false, false) => Ok(()),
            (false, true) => self.push(EventType::Added, &event.entry).await,
            (true, true) => self.push(EventType::Modified, &event.entry).await,
            (true, false) => {
                let Some(previous) = &event.previous else { return Ok(()) };
                let last = Entry {
                    rv: event.rv,
                    version: Arc::clone(&previous.version),
                    body: previous.body.clone(),
                    head: previous.head.clone(),
                    epoch: previous.epoch,
                };
                self.push(EventType::Deleted, &last).await
            }
        }
    }

    async fn matches(&self, key: &str, entry: &Entry) -> Result<bool, Failure> {
        self.filter.matches(&self.api, &self.resource, key, entry).await
    }

    async fn push(&mut self, kind: EventType, entry: &Entry) -> Result<(), Failure> {
        let piece = if self.accepted == response::PLAIN && Api::reads_raw(&self.resource, entry) {
            response::event_json(&self.resource, kind, entry)
        } else {
            let object = self.api.load(&self.resource, entry).await?;
            let is_first = std::mem::replace(&mut self.is_first, false);
            response::event(
                &self.resource,
                self.accepted,
                self.include_object,
                kind,
                object,
                is_first,
                self.api.now(),
            )?
        };
        self.ready.push_back(piece);
        Ok(())
    }

    fn push_bookmark(&mut self, ends_initial: bool) -> Result<(), Failure> {
        let is_first = self.accepted.view == View::Table && std::mem::replace(&mut self.is_first, false);
        let object = response::bookmark(&self.resource, self.cursor, ends_initial);
        let piece = response::event(
            &self.resource,
            self.accepted,
            self.include_object,
            EventType::Bookmark,
            object,
            is_first,
            self.api.now(),
        )?;
        self.ready.push_back(piece);
        debug_assert!(self.accepted.format != Format::Yaml, "watches are never YAML");
        Ok(())
    }
}
