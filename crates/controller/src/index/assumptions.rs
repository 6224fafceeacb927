//! What an index has decided and not yet seen.

use std::collections::{BTreeMap, BTreeSet};

use super::{Update, WriteOutcome};
use crate::object::{ObjectKey, ResourceVersion};

/// Decisions that count as if they had taken effect, until their outcome is known.
///
/// It relies on writes that carry the resource version they were decided on, as [`Write::status`](super::Write::status)
/// does: as soon as a newer version of the object is observed, such a write has either produced that version or
/// cannot take effect any more. So the observed state is the truth again.
#[derive(Clone, Debug)]
pub struct Assumptions<V> {
    by_object: BTreeMap<ObjectKey, Assumption<V>>,
    /// Those whose write has to be decided again.
    lost: BTreeSet<ObjectKey>,
}

#[derive(Clone, Debug)]
struct Assumption<V> {
    /// The version of the object that the decision was made on.
    base: ResourceVersion,
    value: V,
}

impl<V> Default for Assumptions<V> {
    fn default() -> Self {
        Self { by_object: BTreeMap::new(), lost: BTreeSet::new() }
    }
}

impl<V> Assumptions<V> {
    /// Assumes `value` of an object, as decided on version `base` of it.
    pub fn assume(&mut self, key: ObjectKey, base: ResourceVersion, value: V) {
        self.by_object.insert(key, Assumption { base, value });
    }

    /// What is assumed of an object.
    pub fn get(&self, key: &ObjectKey) -> Option<&V> {
        self.by_object.get(key).map(|assumption| &assumption.value)
    }

    /// Whether something is assumed of an object.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.by_object.contains_key(key)
    }

    /// Everything that is assumed, by object.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &V)> {
        self.by_object.iter().map(|(key, assumption)| (key, &assumption.value))
    }

    /// Of how many objects something is assumed.
    pub fn len(&self) -> usize {
        self.by_object.len()
    }

    /// Whether nothing is assumed.
    pub fn is_empty(&self) -> bool {
        self.by_object.is_empty()
    }

    /// Takes a change of an object in; returns what is no longer assumed.
    pub fn observe<T>(&mut self, update: &Update<T>) -> Option<V> {
        let base = self.by_object.get(update.key())?.base;
        match update {
            Update::Applied(entry) if entry.version <= base => None,
            Update::Applied(_) | Update::Deleted(_) => self.drop_assumption(update.key()),
        }
    }

    /// Takes the outcome of a write in that was decided on version `base`; returns what is no longer assumed.
    pub fn outcome(&mut self, key: &ObjectKey, base: ResourceVersion, outcome: &WriteOutcome) -> Option<V> {
        // The outcome may be that of an older decision.
        let assumption = self.by_object.get(key).filter(|assumption| assumption.base == base)?;
        match outcome {
            // Usually the new version was observed before. It was not if nothing changed or no cache watches the object.
            WriteOutcome::Written { version } if version.is_none_or(|version| version <= assumption.base) => {
                self.drop_assumption(key)
            }
            WriteOutcome::Written { .. } | WriteOutcome::Superseded => None,
            WriteOutcome::Conflict | WriteOutcome::Refused(_) => self.drop_assumption(key),
            WriteOutcome::Lost => {
                self.lost.insert(key.clone());
                None
            }
        }
    }

    /// The write of what is assumed has to be made again.
    pub fn repeat(&mut self, key: &ObjectKey) {
        self.lost.insert(key.clone());
    }

    /// The objects whose write is lost: decide it again, on the same version.
    pub fn take_lost(&mut self) -> impl Iterator<Item = ObjectKey> + use<V> {
        let mut lost = std::mem::take(&mut self.lost);
        lost.retain(|key| self.by_object.contains_key(key));
        lost.into_iter()
    }

    fn drop_assumption(&mut self, key: &ObjectKey) -> Option<V> {
        self.by_object.remove(key).map(|assumption| assumption.value)
    }
}
