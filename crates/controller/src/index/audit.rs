//! Compares an index with one that is rebuilt from the caches.

use jiff::Timestamp;
use serde::Serialize;

use super::Index;

/// What an audit found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Audit {
    /// The index is what its objects make of it.
    Equal,
    /// It was not. It has been replaced by the rebuilt one.
    Diverged,
    /// Writes were outstanding or objects changed meanwhile: ask again later.
    Busy,
}

impl Audit {
    /// The metric label.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Diverged => "diverged",
            Self::Busy => "busy",
        }
    }
}

/// Gives everything a cache holds as events, consistent with what its subscribers have been told.
pub(super) type Snapshot<I> = Box<dyn Fn() -> Vec<<I as Index>::Event> + Send>;

/// An index like `index`, fed from `snapshots`.
pub(super) fn rebuild<I: Index>(index: &I, snapshots: &[Snapshot<I>], now: Timestamp) -> I {
    let mut rebuilt = index.empty();
    for event in snapshots.iter().flat_map(|snapshot| snapshot()) {
        rebuilt.apply(event, now);
    }
    rebuilt
}
