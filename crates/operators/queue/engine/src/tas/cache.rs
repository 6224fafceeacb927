//! What every domain can take, remembered between placements.
//!
//! Counting all leaves and summing them up costs as much as there are nodes; one decision changes a few
//! of them. So the counts of the last placement of the same request are kept, and only leaves whose usage
//! changed since are counted again. Pods of the same workload that were placed just before count on top, and
//! are not remembered.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use super::counting::{Counted, Counting};
use super::params::Params;
use super::placement::Placer;
use super::stats::Shortages;
use super::tree::{DomainIdx, DomainState};
use super::usage::{Assumed, Ledger, Slot};
use crate::model::PodShape;
use crate::names::{FlavorId, ResourceId};
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

/// States and shortages before they were changed, latest last.
#[derive(Debug, Default)]
pub(super) struct Undo {
    pub(super) states: Vec<(DomainIdx, DomainState)>,
    shortages: Vec<(usize, Option<ResourceId>)>,
}

impl Placer<'_> {
    /// Counts what every domain can take. With a key, the counts can be remembered once they are as they
    /// were: [`Placer::remember`] undoes what is changed from then on. What `replaces` all states leaves nothing
    /// to remember.
    pub(super) fn count(
        &mut self,
        params: &Params,
        counting: &Counting<'_>,
        replaces: bool,
    ) -> Option<CountKey> {
        if replaces || !counting.is_plain() {
            self.count_all(params, counting);
            self.count_assumed(params, counting);
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
        self.undo = Some(Undo::default());
        self.count_assumed(params, counting);
        Some(key)
    }

    /// Counts again the leaves whose usage changed, and what is above them.
    fn catch_up(&mut self, version: u64, params: &Params, counting: &Counting<'_>) {
        let tas = self.tas;
        let changed = tas.ledger(self.flavor).and_then(|ledger| ledger.changes_since(version));
        match changed.filter(|changed| changed.len() < self.tree.leaves.len()) {
            Some(changed) => self.recount(changed.iter().copied(), params, &|placer, leaf| {
                counting.count(placer, leaf, &Assumed::default())
            }),
            None => self.count_all(params, counting),
        }
    }

    /// Counts again the leaves where pods of the same workload go.
    fn count_assumed(&mut self, params: &Params, counting: &Counting<'_>) {
        let assumed = counting.assumed();
        self.recount(assumed.slots(self.flavor.ledger), params, &|placer, leaf| {
            counting.count(placer, leaf, assumed)
        });
    }

    /// Counts leaves again, by their place in the ledger, and what is above them.
    fn recount(
        &mut self,
        slots: impl Iterator<Item = Slot>,
        params: &Params,
        count: &dyn Fn(&Self, usize) -> Counted,
    ) {
        let leaves: BTreeSet<usize> =
            slots.filter_map(|slot| self.flavor.leaf_of.get(slot).copied().flatten()).collect();
        let mut dirty: BTreeSet<DomainIdx> = BTreeSet::new();
        for leaf in leaves {
            let counted = count(self, leaf);
            dirty.extend(self.set_leaf(leaf, counted));
        }
        // A domain comes after its parent in the arena, so the last dirty one has no dirty child left.
        while let Some(domain) = dirty.pop_last() {
            let level = self.tree.domain(domain).values.len().saturating_sub(1);
            let before = *self.state(domain);
            self.sum_domain(domain, level, params);
            if *self.state(domain) != before || self.tree.domain(domain).leaf.is_some() {
                dirty.extend(self.tree.domain(domain).parent);
            }
        }
    }

    /// Counts every leaf and sums up the tree.
    fn count_all(&mut self, params: &Params, counting: &Counting<'_>) {
        self.states.clear();
        self.states.resize(self.tree.domains.len(), DomainState::default());
        self.shortages = Shortages::none(self.tree.leaves.len());
        let nothing = Assumed::default();
        for leaf in 0..self.tree.leaves.len() {
            let counted = counting.count(self, leaf, &nothing);
            self.set_leaf(leaf, counted);
        }
        for level in (0..self.tree.levels.len()).rev() {
            for domain in self.tree.by_level.get(level).map_or(&[][..], |domains| domains) {
                self.sum_domain(*domain, level, params);
            }
        }
    }

    /// Records what a leaf can take; returns its domain.
    fn set_leaf(&mut self, leaf: usize, (state, lacking): Counted) -> Option<DomainIdx> {
        let domain = self.tree.leaves.get(leaf)?.domain;
        *self.state_mut(domain) = state;
        let before = self.shortages.set(leaf, lacking);
        if let Some(undo) = &mut self.undo {
            undo.shortages.push((leaf, before));
        }
        Some(domain)
    }

    /// Sums a domain from its children, which are summed already.
    pub(super) fn sum_domain(&mut self, domain: DomainIdx, level: usize, params: &Params) {
        let children = &self.tree.domain(domain).children;
        if children.is_empty() {
            if level == params.slice_level {
                let state = self.state_mut(domain);
                state.slices = state.pods / params.slice_size;
                state.slices_with_leader = state.pods_with_leader / params.slice_size;
            }
            return;
        }
        let inner = params.inner.get(&(level + 1)).copied().unwrap_or(1).max(1);
        let mut sum = DomainState::default();
        let mut least_loss: Option<(i32, i32)> = None;
        for child in children {
            let state = self.state(*child);
            let pods = state.pods / inner * inner;
            let pods_with_leader = state.pods_with_leader / inner * inner;
            sum.pods = sum.pods.saturating_add(pods);
            sum.slices = sum.slices.saturating_add(state.slices);
            sum.leaders = sum.leaders.max(state.leaders);
            sum.affinity += state.affinity;
            if params.leaders == 0 || state.leaders > 0 {
                let loss = (pods - pods_with_leader, state.slices - state.slices_with_leader);
                let least = least_loss.get_or_insert(loss);
                *least = (least.0.min(loss.0), least.1.min(loss.1));
            }
        }
        if let Some((pods, slices)) = least_loss {
            sum.pods_with_leader = sum.pods - pods;
            sum.slices_with_leader = sum.slices - slices;
        }
        if level == params.slice_level {
            sum.slices = sum.pods / params.slice_size;
            sum.slices_with_leader = sum.pods_with_leader / params.slice_size;
        }
        *self.state_mut(domain) = sum;
    }

    /// Undoes what was changed since counting and keeps the counts for the next placement.
    pub(super) fn remember(&mut self, key: Option<CountKey>) {
        let Some(key) = key else {
            return;
        };
        let undo = self.undo.take().unwrap_or_default();
        for (domain, state) in undo.states.into_iter().rev() {
            *self.state_mut(domain) = state;
        }
        for (leaf, lacking) in undo.shortages.into_iter().rev() {
            self.shortages.set(leaf, lacking);
        }
        let version = self.tas.ledger(self.flavor).map_or(0, Ledger::version);
        let states = std::mem::take(&mut self.states);
        let shortages = std::mem::take(&mut self.shortages);
        self.tas.counts.put(key, Counts { states, shortages, version, used: 0 });
    }
}
