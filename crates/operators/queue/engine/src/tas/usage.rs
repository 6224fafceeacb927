//! What placed pods use of the leaves.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::names::{FlavorId, ResourceId};
use crate::requests::Requests;

/// Pods of an admitted workload in one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TasUse {
    /// The flavor whose topology the domain belongs to.
    pub flavor: FlavorId,
    /// The domain.
    pub domain: Arc<str>,
    /// What one pod requests, without the `pods` it counts as.
    pub per_pod: Requests,
    /// How many pods.
    pub count: i32,
}

impl TasUse {
    /// What all pods use, including the `pods` they count as.
    pub fn total(&self) -> Requests {
        let mut total = self.per_pod.times(i64::from(self.count));
        let pods = total.get(ResourceId::PODS).saturating_add(i64::from(self.count));
        total.set(ResourceId::PODS, pods);
        total
    }
}

/// What pods of an admitted workload use of one leaf, where it is accounted.
#[derive(Clone, Debug)]
pub struct LeafUse {
    pub(super) ledger: usize,
    pub(super) slot: Slot,
    pub(super) amount: Arc<Requests>,
}

/// Changes remembered at most: more than any topology has leaves worth recounting one by one.
const MOST_CHANGES: usize = 1 << 16;

/// A position in a [`Ledger`].
pub(super) type Slot = usize;

/// Usage per domain. Domains stay known when their nodes vanish, because the usage of admitted
/// workloads comes back with the nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    slots: HashMap<Arc<str>, Slot>,
    usage: Vec<Requests>,
    /// Slots whose usage changed, latest last; older changes are only counted.
    changes: Vec<Slot>,
    forgotten: u64,
}

impl Ledger {
    pub(super) fn slot(&mut self, domain: &Arc<str>) -> Slot {
        *self.slots.entry(Arc::clone(domain)).or_insert_with(|| {
            self.usage.push(Requests::new());
            self.usage.len() - 1
        })
    }

    pub(super) fn usage(&self, slot: Slot) -> Option<&Requests> {
        self.usage.get(slot)
    }

    /// Grows with every change.
    pub(super) const fn version(&self) -> u64 {
        self.forgotten + self.changes.len() as u64
    }

    /// Slots changed since a version, if that is still known.
    pub(super) fn changes_since(&self, version: u64) -> Option<&[Slot]> {
        let known = usize::try_from(version.checked_sub(self.forgotten)?).ok()?;
        self.changes.get(known..)
    }

    pub(super) fn clear(&mut self) {
        self.usage.fill(Requests::new());
    }

    pub(super) fn change(&mut self, slot: Slot, amount: &Requests, factor: i64) {
        if let Some(usage) = self.usage.get_mut(slot) {
            usage.add_scaled(amount, factor);
            if self.changes.len() >= MOST_CHANGES {
                self.forgotten += self.changes.len() as u64;
                self.changes.clear();
            }
            self.changes.push(slot);
        }
    }
}

/// Pods placed earlier in the same decision, on top of the ledgers. Keyed by ledger and domain.
#[derive(Clone, Debug, Default)]
pub struct Assumed {
    pub(super) usage: BTreeMap<(usize, Slot), Requests>,
}

impl Assumed {
    pub(super) fn add(&mut self, ledger: usize, slot: Slot, amount: &Requests) {
        self.usage.entry((ledger, slot)).or_default().add(amount);
    }

    /// Where in a ledger there are any.
    pub(super) fn slots(&self, ledger: usize) -> impl Iterator<Item = Slot> {
        self.usage.range((ledger, 0)..=(ledger, Slot::MAX)).map(|((_, slot), _)| *slot)
    }

    pub(super) fn get(&self, ledger: usize, slot: Slot) -> Option<&Requests> {
        if self.usage.is_empty() { None } else { self.usage.get(&(ledger, slot)) }
    }
}
