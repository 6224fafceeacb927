//! What every domain can take, remembered between placements.
//!
//! Counting all leaves and summing them up costs as much as there are nodes; one decision changes a few
//! of them. So the counts of the last placement of the same request are kept, and only leaves whose usage
//! changed since are counted again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use super::counting::Counting;
use super::params::Params;
use super::placement::Placer;
use super::stats::Shortages;
use super::tree::DomainState;
use super::usage::Ledger;
use crate::model::PodShape;
use crate::names::FlavorId;
use crate::requests::Requests;

/// Requests remembered at most; each costs one state per domain.
const MOST_ENTRIES: usize = 64;

/// What counts depend on, besides usage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CountKey {
    flavor: FlavorId,
    requests: Requests,
    leader: Option<Requests>,
    /// The pods, if nodes are chosen by more than their capacity.
    filtered_by: Option<Arc<PodShape>>,
    slice_size: i32,
    slice_level: usize,
    inner: Vec<(usize, i32)>,
    simulate_empty: bool,
}

/// Counts as of a version of the ledger.
#[derive(Debug)]
pub(super) struct Counts {
    states: Vec<DomainState>,
    shortages: Shortages,
    version: u64,
    /// When it was used last, counted in uses of the cache.
    used: u64,
}

/// Remembered counts. A copy starts with none.
#[derive(Debug, Default)]
pub(super) struct CountCache {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<CountKey, Counts>,
    uses: u64,
}

impl Clone for CountCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl CountCache {
    fn take(&self, key: &CountKey) -> Option<Counts> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).by_key.remove(key)
    }

    /// Remembers counts, and forgets those not used for the longest time if they are too many.
    fn put(&self, key: CountKey, mut counts: Counts) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let Entries { by_key, uses } = &mut *entries;
        if by_key.len() >= MOST_ENTRIES
            && let Some(oldest) =
                by_key.iter().min_by_key(|(_, counts)| counts.used).map(|(key, _)| key.clone())
        {
            by_key.remove(&oldest);
        }
        *uses += 1;
        counts.used = *uses;
        by_key.insert(key, counts);
    }

    /// Forgets everything: nodes or levels changed.
    pub(super) fn clear(&mut self) {
        self.entries.get_mut().unwrap_or_else(PoisonError::into_inner).by_key.clear();
    }
}

impl Placer<'_> {
    /// Counts what every domain can take. With a key, the counts can be remembered once they are as they
    /// were: [`Placer::remember`] undoes what choosing domains changes.
    pub(super) fn count(&mut self, params: &Params, counting: &Counting<'_>) -> Option<CountKey> {
        if !counting.is_plain() || self.gates.tas_balanced_placement {
            self.count_all(params, counting);
            return None;
        }
        let (requests, leader) = counting.requests();
        let key = CountKey {
            flavor: self.id,
            requests: requests.clone(),
            leader: leader.cloned(),
            filtered_by: counting.filtered_by().cloned(),
            slice_size: params.slice_size,
            slice_level: params.slice_level,
            inner: params.inner.iter().map(|(level, size)| (*level, *size)).collect(),
            simulate_empty: self.options.simulate_empty,
        };
        match self.tas.counts.take(&key) {
            None => self.count_all(params, counting),
            Some(counts) => {
                (self.states, self.shortages) = (counts.states, counts.shortages);
                if !self.options.simulate_empty {
                    self.catch_up(counts.version, params, counting);
                }
            }
        }
        self.undo = Some(Vec::new());
        Some(key)
    }

    /// Counts again the leaves whose usage changed, and what is above them.
    fn catch_up(&mut self, version: u64, params: &Params, counting: &Counting<'_>) {
        let tas = self.tas;
        let changed = tas.ledger(self.flavor).and_then(|ledger| ledger.changes_since(version));
        let Some(changed) = changed.filter(|changed| changed.len() < self.tree.leaves.len()) else {
            self.count_all(params, counting);
            return;
        };
        let mut dirty = BTreeSet::new();
        for position in changed.iter().filter_map(|slot| self.flavor.leaf_of.get(*slot).copied().flatten()) {
            dirty.extend(self.count_leaf(position, counting));
        }
        // A domain comes after its parent in the arena, so the last dirty one has no dirty child left.
        while let Some(domain) = dirty.pop_last() {
            let level = self.tree.domain(domain).values.len().saturating_sub(1);
            self.sum_domain(domain, level, params);
            dirty.extend(self.tree.domain(domain).parent);
        }
    }

    /// Undoes what choosing domains changed and keeps the counts for the next placement.
    pub(super) fn remember(&mut self, key: Option<CountKey>) {
        let Some(key) = key else {
            return;
        };
        for (domain, state) in self.undo.take().unwrap_or_default().into_iter().rev() {
            *self.state_mut(domain) = state;
        }
        let version = self.tas.ledger(self.flavor).map_or(0, Ledger::version);
        let states = std::mem::take(&mut self.states);
        let shortages = std::mem::take(&mut self.shortages);
        self.tas.counts.put(key, Counts { states, shortages, version, used: 0 });
    }
}
