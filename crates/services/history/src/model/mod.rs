//! The event model: what a session's events say about its tasks, actors, jobs and nodes.
//!
//! Events arrive in any order, twice, or in part. Merging is idempotent: replaying the same events changes nothing.

pub(crate) mod actor;
mod decode;
pub(crate) mod event;
pub(crate) mod ids;
pub(crate) mod job;
pub(crate) mod log_event;
pub(crate) mod node;
pub(crate) mod snapshot;
pub(crate) mod strings;
pub(crate) mod task;
pub(crate) mod time;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::hash::Hash;

use strings::Symbol;

/// A change of state, at a time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Transition {
    pub(crate) time: i64,
    pub(crate) state: Symbol,
}

/// Few transitions are compared with each other; more of them are looked up in a set.
const FEW: usize = 32;

/// Adds what is new of `added` to `known`: transitions are the same if state and time are. Sorted by time.
fn merge<T>(known: &mut Vec<T>, added: Vec<T>, key: impl Fn(&T) -> Transition) {
    extend_unique(known, added, &key);
    if !known.is_sorted_by_key(|it| key(it).time) {
        known.sort_by_key(|it| key(it).time);
    }
}

/// Appends the elements whose keys are new.
fn extend_unique<T, K: Eq + Hash>(known: &mut Vec<T>, added: Vec<T>, key: impl Fn(&T) -> K) {
    let many = known.len() + added.len() > FEW;
    let mut keys: HashSet<K> = if many { known.iter().map(&key).collect() } else { HashSet::new() };
    for element in added {
        let new = key(&element);
        let is_known = if many { keys.contains(&new) } else { known.iter().any(|it| key(it) == new) };
        if is_known {
            continue;
        }
        if many {
            keys.insert(new);
        }
        known.push(element);
    }
}
