//! The way from caches, writer and readers to the owner task. Nobody ever waits to put something in.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Index, WriteOutcome};
use crate::object::ObjectKey;

/// Which of the caches that feed an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SourceId(pub(super) usize);

/// Something for the owner task.
pub(super) enum Message<I: Index> {
    /// An object changed.
    Event(I::Event),
    /// A write has its outcome.
    Outcome(I::Decision, WriteOutcome),
    /// Somebody reads the index.
    Read(Box<dyn FnOnce(&I) + Send>),
    /// Somebody wants an audit.
    Audit(tokio::sync::oneshot::Sender<super::Audit>),
}

/// Messages in order of arrival, but only the newest event of each object. Outcomes are bounded by the writes that
/// are outstanding, and readers wait for their answer.
pub(super) struct Inbox<I: Index> {
    state: Mutex<State<I>>,
    ready: Notify,
}

struct State<I: Index> {
    messages: BTreeMap<u64, Message<I>>,
    /// Where the pending event of an object is.
    events: HashMap<(SourceId, ObjectKey), u64>,
    next: u64,
    /// Nobody takes anything out any more.
    closed: bool,
}

impl<I: Index> Inbox<I> {
    pub(super) fn new() -> Self {
        let state = State { messages: BTreeMap::new(), events: HashMap::new(), next: 0, closed: false };
        Self { state: Mutex::new(state), ready: Notify::new() }
    }

    /// Adds the newest state of an object, in place of an older one. It moves to the end: what is taken out is what
    /// happened, in order, with gaps.
    pub(super) fn event(&self, source: SourceId, key: ObjectKey, event: I::Event) {
        let mut state = self.state.lock();
        let Some(position) = state.push(Message::Event(event)) else { return };
        let older = state.events.insert((source, key), position);
        if let Some(older) = older {
            state.messages.remove(&older);
        }
        drop(state);
        self.ready.notify_one();
    }

    pub(super) fn send(&self, message: Message<I>) {
        self.state.lock().push(message);
        self.ready.notify_one();
    }

    /// Takes everything out at once.
    pub(super) fn drain(&self) -> impl Iterator<Item = Message<I>> + use<I> {
        let mut state = self.state.lock();
        state.events.clear();
        std::mem::take(&mut state.messages).into_values()
    }

    /// Drops everything, now and later: whoever waits for an answer hears that there is none.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.events.clear();
        let messages = std::mem::take(&mut state.messages);
        drop(state);
        drop(messages);
    }

    /// Whether an event or an outcome waits.
    pub(super) fn has_news(&self) -> bool {
        let state = self.state.lock();
        let is_news = |message: &Message<I>| matches!(message, Message::Event(_) | Message::Outcome(..));
        state.messages.values().any(is_news)
    }

    /// Resolves when something has arrived since the last time.
    pub(super) async fn ready(&self) {
        self.ready.notified().await;
    }
}

impl<I: Index> State<I> {
    /// Returns where the message is; `None` if the inbox is closed.
    fn push(&mut self, message: Message<I>) -> Option<u64> {
        if self.closed {
            return None;
        }
        let position = self.next;
        self.next += 1;
        self.messages.insert(position, message);
        Some(position)
    }
}
