//! Interned names: every name becomes a small integer once, at ingestion.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

use crate::model::PodShape;

/// An integer that stands for a name.
pub trait Id: Copy + Eq + Ord + Hash {
    /// The id of position `index`.
    fn from_index(index: usize) -> Self;
    /// The position of this id.
    fn index(self) -> usize;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl Id for $name {
            #[expect(clippy::cast_possible_truncation, reason = "four thousand million names do not fit in memory")]
            fn from_index(index: usize) -> Self {
                Self(index as u32)
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}

ids! {
    /// A resource name such as `cpu` or `nvidia.com/gpu`.
    ResourceId,
    /// A ResourceFlavor.
    FlavorId,
    /// A ClusterQueue.
    QueueId,
    /// A Cohort.
    CohortId,
    /// A LocalQueue, named by namespace and name.
    LocalQueueId,
    /// A namespace.
    NamespaceId,
    /// A Topology.
    TopologyId,
    /// A workload's slot in the engine.
    WorkloadId,
}

impl ResourceId {
    /// `cpu`, counted in milli-units.
    pub const CPU: Self = Self(0);
    /// `pods`, the resource every pod uses one of.
    pub const PODS: Self = Self(1);
}

/// A map keyed by ids. Ids are small consecutive integers: mixing their bits is hash enough.
pub type IdMap<I, T> = HashMap<I, T, BuildHasherDefault<IdHasher>>;

/// Hashes one id.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = fnv1a(bytes);
    }

    fn write_u32(&mut self, value: u32) {
        // Fibonacci hashing: the upper bits, which the map uses, depend on all of the id.
        self.0 = u64::from(value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

/// Both ways between names and ids. Ids are given in order of first use and never change.
#[derive(Clone, Debug)]
pub struct Interner<I> {
    names: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, I>,
}

impl<I> Default for Interner<I> {
    fn default() -> Self {
        Self { names: Vec::new(), ids: HashMap::new() }
    }
}

impl<I: Id> Interner<I> {
    /// The id of `name`, given now if it had none.
    pub fn intern(&mut self, name: &str) -> I {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = I::from_index(self.names.len());
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.ids.insert(name, id);
        id
    }

    /// The id of `name`, if it has one.
    pub fn get(&self, name: &str) -> Option<I> {
        self.ids.get(name).copied()
    }

    /// The name behind `id`.
    pub fn name(&self, id: I) -> &str {
        self.names.get(id.index()).map_or("", |name| name)
    }

    /// The name behind `id`, shared.
    pub fn shared(&self, id: I) -> Arc<str> {
        self.names.get(id.index()).map_or_else(|| "".into(), Arc::clone)
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no name yet.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// All names the engine knows.
#[derive(Clone, Debug)]
pub struct Names {
    /// Resource names; `cpu` and `pods` always come first.
    pub resources: Interner<ResourceId>,
    /// ResourceFlavor names.
    pub flavors: Interner<FlavorId>,
    /// ClusterQueue names.
    pub queues: Interner<QueueId>,
    /// Cohort names.
    pub cohorts: Interner<CohortId>,
    /// LocalQueue names as `namespace/name`.
    pub local_queues: Interner<LocalQueueId>,
    /// Namespace names.
    pub namespaces: Interner<NamespaceId>,
    /// Topology names.
    pub topologies: Interner<TopologyId>,
    /// FNV-1a of every resource name: Kueue visits the resources of a request in that order
    /// (`pkg/resources/slice_requests.go`), and the order decides which failure is reported when several resource
    /// groups fail.
    scan_keys: Vec<u64>,
    /// Resources that are written as memory is.
    in_bytes: BTreeSet<String>,
    /// Pod shapes in use.
    pub(crate) pod_shapes: Shared<PodShape>,
}

/// Equal values kept once.
#[derive(Clone, Debug)]
pub(crate) struct Shared<T> {
    values: HashSet<Arc<T>>,
    /// At this size unused values are dropped.
    limit: usize,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), limit: 64 }
    }
}

impl<T: Eq + Hash> Shared<T> {
    /// The value, shared with all equal ones.
    pub(crate) fn share(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.values.get(&value) {
            return Arc::clone(known);
        }
        if self.values.len() >= self.limit {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.limit = 64.max(self.values.len() * 2);
        }
        let value = Arc::new(value);
        self.values.insert(Arc::clone(&value));
        value
    }
}

impl Default for Names {
    fn default() -> Self {
        let mut names = Self {
            resources: Interner::default(),
            flavors: Interner::default(),
            queues: Interner::default(),
            cohorts: Interner::default(),
            local_queues: Interner::default(),
            namespaces: Interner::default(),
            topologies: Interner::default(),
            scan_keys: Vec::new(),
            in_bytes: BTreeSet::new(),
            pod_shapes: Shared::default(),
        };
        names.resource("cpu");
        names.resource("pods");
        names
    }
}

impl Names {
    /// The id of a resource name.
    pub fn resource(&mut self, name: &str) -> ResourceId {
        let id = self.resources.intern(name);
        if self.scan_keys.len() < self.resources.len() {
            self.scan_keys.push(fnv1a(name.as_bytes()));
        }
        id
    }

    /// The id of a LocalQueue.
    pub fn local_queue(&mut self, namespace: &str, name: &str) -> LocalQueueId {
        self.local_queues.intern(&format!("{namespace}/{name}"))
    }

    /// The id of a LocalQueue, if it was ever named.
    pub fn find_local_queue(&self, namespace: &str, name: &str) -> Option<LocalQueueId> {
        self.local_queues.get(&format!("{namespace}/{name}"))
    }

    /// The name of a resource.
    pub fn resource_name(&self, id: ResourceId) -> &str {
        self.resources.name(id)
    }

    /// The name of a flavor.
    pub fn flavor_name(&self, id: FlavorId) -> &str {
        self.flavors.name(id)
    }

    /// The name of a ClusterQueue.
    pub fn queue_name(&self, id: QueueId) -> &str {
        self.queues.name(id)
    }

    /// The name of a Cohort.
    pub fn cohort_name(&self, id: CohortId) -> &str {
        self.cohorts.name(id)
    }

    /// Sorts resources into the order in which a request is scanned.
    pub fn sort_for_scan(&self, resources: &mut [ResourceId]) {
        resources.sort_by(|a, b| {
            let key = |id: &ResourceId| self.scan_keys.get(id.index()).copied().unwrap_or_default();
            key(a).cmp(&key(b)).then_with(|| self.resource_name(*a).cmp(self.resource_name(*b)))
        });
    }

    /// The canonical text of an integer amount of a resource.
    pub fn format(&self, resource: ResourceId, value: i64) -> String {
        let name = self.resource_name(resource);
        format_resource(name, value, self.in_bytes.contains(name))
    }

    /// Says which further resources are written as memory is.
    pub fn write_in_bytes(&mut self, resources: BTreeSet<String>) {
        self.in_bytes = resources;
    }
}

/// The canonical quantity for `value` of the resource `name`; `binary` names an extra resource that is
/// printed with binary suffixes like memory.
pub fn format_resource(name: &str, value: i64, binary: bool) -> String {
    use quintet_api::Quantity;
    use quintet_api::quantity::Notation::{BinarySi, DecimalSi};
    if name == "cpu" {
        return Quantity::from_millis(value, DecimalSi).to_string();
    }
    if !(binary || name == "memory" || name == "ephemeral-storage" || name.starts_with("hugepages-")) {
        return Quantity::from_units(value, DecimalSi).to_string();
    }
    // Read again, because what needs no binary suffix is written as decimals are: 100k, not 100000.
    let text = Quantity::from_units(value, BinarySi).to_string();
    text.parse::<Quantity>().map_or(text, |canonical| canonical.to_string())
}

/// 64-bit FNV-1a.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::Shared;

    #[test]
    fn equal_values_are_kept_once_and_unused_ones_are_dropped() {
        let mut shared = Shared::default();
        let kept = shared.share(0);
        assert!(std::sync::Arc::ptr_eq(&kept, &shared.share(0)));
        for value in 1..10_000 {
            shared.share(value);
        }
        assert!(shared.values.len() <= 64);
        assert!(std::sync::Arc::ptr_eq(&kept, &shared.share(0)));
    }
}
