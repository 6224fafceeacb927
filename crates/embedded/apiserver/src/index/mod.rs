//! Indexes over stored objects: service addresses and ports, and what namespaces with quotas use.
//!
//! The store notes every change here in the same step in which it publishes it, so that an index is never behind what
//! readers see. Noting keeps a pointer; an object is parsed once, by the first reader of the index after its change.
//! Changes that were noted have locks of their own, so that writers never wait for a reader that parses.
//! The cost of an index follows what changed, never how many objects there are. A start rebuilds the indexes, since
//! recovery publishes what it reads; a fork copies them.

mod services;
#[cfg(test)]
mod tests;
mod usage;

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use crate::store::{Entry, Id};

pub(crate) use services::{Allocation, NodePort, ServiceIndex, protocol};
use usage::UsageChanges;
pub(crate) use usage::UsageIndex;

/// Objects that changed and were not parsed yet: their new states, `None` if deleted.
type Changed<K> = HashMap<K, Option<Arc<Entry>>>;

/// Readers lock an index before its changes; writers lock the changes only.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    services: Mutex<ServiceIndex>,
    changed_services: Mutex<Changed<Arc<str>>>,
    usage: Mutex<UsageIndex>,
    usage_changes: Mutex<UsageChanges>,
}

impl Indexes {
    /// Notes a change: the new state of an object, or `None` if it was deleted. Called under the lock of the store, as
    /// is `objects_in`, which lists a namespace.
    pub(crate) fn note(
        &self,
        bucket: &Arc<str>,
        key: &Arc<str>,
        entry: Option<&Arc<Entry>>,
        objects_in: impl FnOnce(&str) -> Vec<(Id, Arc<Entry>)>,
    ) {
        if &**bucket == services::BUCKET {
            self.changed_services.lock().insert(Arc::clone(key), entry.map(Arc::clone));
        }
        self.usage_changes.lock().note(bucket, key, entry, objects_in);
    }

    /// A copy for a fork of the store, without what requests of this one hold.
    pub(crate) fn fork(&self) -> Self {
        let services = self.services.lock();
        let changed_services = self.changed_services.lock().clone();
        let usage = self.usage.lock();
        let usage_changes = self.usage_changes.lock().clone();
        Self {
            services: Mutex::new(services.fork()),
            changed_services: Mutex::new(changed_services),
            usage: Mutex::new(usage.clone()),
            usage_changes: Mutex::new(usage_changes),
        }
    }

    /// Addresses and ports of services. Whoever holds the guard must not call the store.
    pub(crate) fn services(&self) -> MutexGuard<'_, ServiceIndex> {
        let mut services = self.services.lock();
        let changed = std::mem::take(&mut *self.changed_services.lock());
        services.catch_up(changed);
        services
    }

    /// What namespaces with quotas use, up to date for one of them. Whoever holds the guard must not call the store.
    pub(crate) fn usage(&self, namespace: &str) -> MutexGuard<'_, UsageIndex> {
        let mut usage = self.usage.lock();
        let (ended, changed) = self.usage_changes.lock().take(namespace);
        usage.catch_up(namespace, &ended, changed);
        usage
    }
}
