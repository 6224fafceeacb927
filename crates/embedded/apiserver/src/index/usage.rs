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
    /// Keys of its quotas.
    quotas: HashSet<Arc<str>>,
    /// What every object uses.
    objects: HashMap<Id, Arc<Usage>>,
    /// What objects use whose content does not matter, by bucket.
    plain: HashMap<Arc<str>, Arc<Usage>>,
    totals: Totals,
    /// Objects that changed and were not counted yet.
    changed: HashMap<Id, Option<Arc<Entry>>>,
}

impl UsageIndex {
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
                    }
                }
            }
            // The first quota: everything in its namespace counts from now on.
            None if is_quota && entry.is_some() => {
                let changed = objects_in(name).into_iter().map(|(id, entry)| (id, Some(entry)));
                let namespace = Namespace {
                    quotas: [Arc::clone(key)].into(),
                    changed: changed.collect(),
                    ..Namespace::default()
                };
                self.namespaces.insert(name.to_owned(), namespace);
            }
            None => {}
        }
    }

    /// Counts what changed in a namespace.
    pub(super) fn catch_up(&mut self, namespace: &str) {
        let Some(namespace) = self.namespaces.get_mut(namespace) else { return };
        for (id, entry) in std::mem::take(&mut namespace.changed) {
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
        let id = (Arc::from(bucket), Arc::from(key));
        self.namespaces.get(namespace).is_some_and(|namespace| namespace.objects.contains_key(&id))
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
            let namespaces = index.namespaces.iter();
            namespaces
                .map(|(name, one)| {
                    (name.clone(), (one.objects.keys().cloned().collect(), one.totals.clone()))
                })
                .collect()
        };
        known(self) == known(other)
    }
}

impl Namespace {
    /// Counts an object as it is now instead of as it was.
    fn count(&mut self, id: Id, entry: Option<&Entry>) {
        if let Some(before) = self.objects.remove(&id) {
            self.subtract(&id.0, &before);
        }
        let Some(entry) = entry else { return };
        let (group, plural) = split_bucket(&id.0);
        let now = if depends_on_content(group, plural) {
            Arc::new(usage(group, plural, &entry.parse()))
        } else {
            let plain = self.plain.entry(Arc::clone(&id.0));
            Arc::clone(plain.or_insert_with(|| Arc::new(usage(group, plural, &Value::Null))))
        };
        let totals = self.totals.entry((Arc::clone(&id.0), now.traits.clone())).or_default();
        for (resource, amount) in now.amounts.iter().filter(|(_, amount)| **amount != Quantity::ZERO) {
            *totals.entry(resource.clone()).or_default() += *amount;
        }
        self.objects.insert(id, now);
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
