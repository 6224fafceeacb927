//! What the objects of every namespace with a ResourceQuota use.
//!
//! Totals are kept by what the scopes of quotas can tell apart, so that they serve every quota of a namespace. A
//! namespace without quotas is not followed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use quintet_api::Quantity;
use serde_json::Value;

use super::Changed;
use crate::{
    admission::{ScopeTraits, Usage, depends_on_content, usage},
    resources::split_bucket,
    store::{Entry, Id, split_key},
};

const QUOTAS: &str = "core/resourcequotas";

/// What objects of one bucket that no scope tells apart use together.
type Totals = HashMap<(Arc<str>, Option<ScopeTraits>), BTreeMap<String, Quantity>>;

#[derive(Clone, Debug, Default)]
pub(crate) struct UsageIndex {
    namespaces: HashMap<String, Namespace>,
    #[cfg(test)]
    pub(super) parsed: usize,
}

#[derive(Clone, Debug, Default)]
struct Namespace {
    /// What every object uses, by bucket and key.
    objects: HashMap<Arc<str>, HashMap<Arc<str>, Arc<Usage>>>,
    /// What objects use whose content does not matter, by bucket.
    plain: HashMap<Arc<str>, Arc<Usage>>,
    totals: Totals,
}

/// Which namespaces have quotas, and what changed in them since they were counted.
#[derive(Clone, Debug, Default)]
pub(super) struct UsageChanges {
    namespaces: HashMap<String, Followed>,
    /// Namespaces whose last quota was deleted. What was counted there is void, even if they have a quota again.
    ended: HashSet<String>,
}

/// A namespace with quotas.
#[derive(Clone, Debug, Default)]
struct Followed {
    /// Keys of its quotas.
    quotas: HashSet<Arc<str>>,
    /// Objects that changed and were not counted yet.
    changed: Changed<Id>,
}

impl UsageChanges {
    pub(super) fn note(
        &mut self,
        bucket: &Arc<str>,
        key: &Arc<str>,
        entry: Option<&Arc<Entry>>,
        objects_in: impl FnOnce(&str) -> Vec<(Id, Arc<Entry>)>,
    ) {
        let (name, _) = split_key(key);
        if name.is_empty() {
            return;
        }
        let id = (Arc::clone(bucket), Arc::clone(key));
        let is_quota = &**bucket == QUOTAS;
        match self.namespaces.get_mut(name) {
            Some(namespace) => {
                namespace.changed.insert(id, entry.map(Arc::clone));
                if is_quota {
                    match entry {
                        Some(_) => namespace.quotas.insert(Arc::clone(key)),
                        None => namespace.quotas.remove(key),
                    };
                    if namespace.quotas.is_empty() {
                        self.namespaces.remove(name);
                        self.ended.insert(name.to_owned());
                    }
                }
            }
            // The first quota: everything in its namespace counts from now on.
            None if is_quota && entry.is_some() => {
                let changed = objects_in(name).into_iter().map(|(id, entry)| (id, Some(entry)));
                let followed = Followed { quotas: [Arc::clone(key)].into(), changed: changed.collect() };
                self.namespaces.insert(name.to_owned(), followed);
            }
            None => {}
        }
    }

    /// Takes out which namespaces are no longer followed, and what changed in one; `None` if that has no quotas.
    pub(super) fn take(&mut self, namespace: &str) -> (HashSet<String>, Option<Changed<Id>>) {
        let followed = self.namespaces.get_mut(namespace);
        (std::mem::take(&mut self.ended), followed.map(|one| std::mem::take(&mut one.changed)))
    }
}

impl UsageIndex {
    /// Forgets the namespaces that have `ended`, and counts what changed in a namespace.
    pub(super) fn catch_up(
        &mut self,
        namespace: &str,
        ended: &HashSet<String>,
        changed: Option<Changed<Id>>,
    ) {
        self.namespaces.retain(|name, _| !ended.contains(name));
        let Some(changed) = changed.filter(|changed| !changed.is_empty()) else { return };
        let namespace = self.namespaces.entry(namespace.to_owned()).or_default();
        for (id, entry) in changed {
            #[cfg(test)]
            {
                let (group, plural) = split_bucket(&id.0);
                self.parsed += usize::from(entry.is_some() && depends_on_content(group, plural));
            }
            namespace.count(id, entry.as_deref());
        }
    }

    /// Whether an object is stored. Only known of namespaces with quotas.
    pub(crate) fn contains(&self, namespace: &str, bucket: &str, key: &str) -> bool {
        let objects = self.namespaces.get(namespace).and_then(|namespace| namespace.objects.get(bucket));
        objects.is_some_and(|objects| objects.contains_key(key))
    }

    /// What the stored objects of some buckets in a namespace use that a quota is about.
    pub(crate) fn used(
        &self,
        namespace: &str,
        quota: &Value,
        buckets: &BTreeSet<String>,
    ) -> BTreeMap<String, Quantity> {
        let mut used: BTreeMap<String, Quantity> = BTreeMap::new();
        let totals = self.namespaces.get(namespace).map(|namespace| &namespace.totals);
        for ((bucket, traits), amounts) in totals.into_iter().flatten() {
            if buckets.contains(&**bucket) && ScopeTraits::are_in_scope(traits.as_ref(), quota) {
                for (resource, amount) in amounts {
                    *used.entry(resource.clone()).or_default() += *amount;
                }
            }
        }
        used
    }

    /// Whether two indexes know the same.
    #[cfg(test)]
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        let known = |index: &Self| -> BTreeMap<String, (BTreeSet<Id>, Totals)> {
            let ids = |namespace: &Namespace| -> BTreeSet<Id> {
                let keys = namespace.objects.iter().map(|(bucket, objects)| (bucket, objects.keys()));
                keys.flat_map(|(bucket, keys)| keys.map(|key| (Arc::clone(bucket), Arc::clone(key))))
                    .collect()
            };
            let namespaces = index.namespaces.iter();
            namespaces.map(|(name, one)| (name.clone(), (ids(one), one.totals.clone()))).collect()
        };
        known(self) == known(other)
    }
}

impl Namespace {
    /// Counts an object as it is now instead of as it was.
    fn count(&mut self, (bucket, key): Id, entry: Option<&Entry>) {
        let before = self.objects.get_mut(&bucket).and_then(|objects| objects.remove(&key));
        if let Some(before) = before {
            self.subtract(&bucket, &before);
        }
        let Some(entry) = entry else { return };
        let (group, plural) = split_bucket(&bucket);
        let now = if depends_on_content(group, plural) {
            Arc::new(usage(group, plural, &entry.parse()))
        } else {
            let plain = self.plain.entry(Arc::clone(&bucket));
            Arc::clone(plain.or_insert_with(|| Arc::new(usage(group, plural, &Value::Null))))
        };
        let totals = self.totals.entry((Arc::clone(&bucket), now.traits.clone())).or_default();
        for (resource, amount) in now.amounts.iter().filter(|(_, amount)| **amount != Quantity::ZERO) {
            *totals.entry(resource.clone()).or_default() += *amount;
        }
        self.objects.entry(bucket).or_default().insert(key, now);
    }

    fn subtract(&mut self, bucket: &Arc<str>, usage: &Usage) {
        let class = (Arc::clone(bucket), usage.traits.clone());
        let Some(totals) = self.totals.get_mut(&class) else { return };
        for (resource, amount) in &usage.amounts {
            if let Some(total) = totals.get_mut(resource) {
                *total -= *amount;
            }
        }
        // Nothing has no notation: what comes next is written its own way.
        totals.retain(|_, total| *total != Quantity::ZERO);
        if totals.is_empty() {
            self.totals.remove(&class);
        }
    }
}
