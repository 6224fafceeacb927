//! Resource requests: a few resources with an integer each.

use quintet_api::Quantity;

use crate::names::{Names, ResourceId};

/// The integer a request for a quantity is: milli-units, as of `cpu`, or units.
pub fn request_of(quantity: Quantity, milli: bool) -> i64 {
    if milli { quantity.millis() } else { quantity.units() }
}

/// Integers per resource, sorted by id. Missing means zero, except that [`Requests::is_empty`] and the
/// scan order see only what is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requests {
    entries: Vec<(ResourceId, i64)>,
}

impl Requests {
    /// Nothing.
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// The listed value of a resource, or zero.
    pub fn get(&self, resource: ResourceId) -> i64 {
        self.find(resource).unwrap_or_default()
    }

    /// The listed value of a resource.
    pub fn find(&self, resource: ResourceId) -> Option<i64> {
        self.entries.iter().find(|(id, _)| *id == resource).map(|(_, value)| *value)
    }

    /// Lists `value` for a resource, replacing what was there.
    pub fn set(&mut self, resource: ResourceId, value: i64) {
        match self.entries.binary_search_by_key(&resource, |(id, _)| *id) {
            Ok(at) => {
                if let Some(entry) = self.entries.get_mut(at) {
                    entry.1 = value;
                }
            }
            Err(at) => self.entries.insert(at, (resource, value)),
        }
    }

    /// All listed resources by id.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceId, i64)> + '_ {
        self.entries.iter().copied()
    }

    /// How many resources are listed.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no resource is listed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds `other × factor`, saturating; every resource `other` lists is listed afterwards.
    pub fn add_scaled(&mut self, other: &Self, factor: i64) {
        for (resource, value) in other.iter() {
            let sum = self.get(resource).saturating_add(value.saturating_mul(factor));
            self.set(resource, sum);
        }
    }

    /// Adds `other`, saturating.
    pub fn add(&mut self, other: &Self) {
        self.add_scaled(other, 1);
    }

    /// Takes `other` away, saturating.
    pub fn sub(&mut self, other: &Self) {
        for (resource, value) in other.iter() {
            let rest = self.get(resource).saturating_sub(value);
            self.set(resource, rest);
        }
    }

    /// Every value times `factor`, saturating.
    #[must_use]
    pub fn times(&self, factor: i64) -> Self {
        let entries = self.entries.iter().map(|(id, value)| (*id, value.saturating_mul(factor))).collect();
        Self { entries }
    }

    /// Every value divided by `divisor`, towards zero; nothing divided by nothing is nothing.
    #[must_use]
    pub fn divided(&self, divisor: i64) -> Self {
        let divide = |value: i64| {
            if value == 0 { 0 } else { value.checked_div(divisor).unwrap_or(value) }
        };
        Self { entries: self.entries.iter().map(|(id, value)| (*id, divide(*value))).collect() }
    }

    /// Every negative value becomes zero.
    #[must_use]
    pub fn floor_zero(&self) -> Self {
        Self { entries: self.entries.iter().map(|(id, value)| (*id, (*value).max(0))).collect() }
    }

    /// The resources in the order in which flavor search scans them.
    pub fn scan_order(&self, names: &Names) -> Vec<ResourceId> {
        let mut order: Vec<_> = self.entries.iter().map(|(id, _)| *id).collect();
        if order.len() > 1 {
            names.sort_for_scan(&mut order);
        }
        order
    }

    /// How many times these requests fit into what there is, at most `i32::MAX`; none listed fit zero times.
    pub fn count_in(&self, there_is: impl Fn(ResourceId) -> i64) -> i32 {
        self.entries.iter().map(|(id, value)| times_in(*value, there_is(*id))).min().unwrap_or(0)
    }

    /// As [`Requests::count_in`], with the resource that limits it; ties go to the smaller name.
    pub fn count_in_limited(
        &self,
        there_is: impl Fn(ResourceId) -> i64,
        names: &Names,
    ) -> (i32, Option<ResourceId>) {
        let mut best: Option<(i32, ResourceId)> = None;
        for (id, value) in self.iter() {
            let count = times_in(value, there_is(id));
            let better = best.is_none_or(|(least, limiting)| {
                count < least || count == least && names.resource_name(id) < names.resource_name(limiting)
            });
            if better {
                best = Some((count, id));
            }
        }
        best.map_or((0, None), |(count, id)| (count, Some(id)))
    }

    /// The names of resources listed in both whose value here is greater, sorted.
    pub fn greater_keys<'n>(&self, other: &Self, names: &'n Names) -> Vec<&'n str> {
        let mut keys: Vec<_> = self
            .iter()
            .filter(|(id, value)| other.find(*id).is_some_and(|limit| *value > limit))
            .map(|(id, _)| names.resource_name(id))
            .collect();
        keys.sort_unstable();
        keys
    }
}

impl FromIterator<(ResourceId, i64)> for Requests {
    fn from_iter<T: IntoIterator<Item = (ResourceId, i64)>>(iter: T) -> Self {
        let mut requests = Self::new();
        for (resource, value) in iter {
            requests.set(resource, value);
        }
        requests
    }
}

/// Sums per resource, wide enough never to saturate, so that what was added can be taken away again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Total {
    sums: Vec<(ResourceId, i128)>,
}

impl Total {
    pub(crate) fn add(&mut self, resource: ResourceId, amount: i128) {
        match self.sums.iter_mut().find(|(id, _)| *id == resource) {
            Some((_, sum)) => *sum += amount,
            None => self.sums.push((resource, amount)),
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.sums.iter().all(|(_, sum)| *sum == 0)
    }

    /// The sums that are not zero, clamped.
    pub(crate) fn requests(&self) -> Requests {
        let clamp =
            |sum: i128| i64::try_from(sum.clamp(i64::MIN.into(), i64::MAX.into())).unwrap_or(i64::MAX);
        self.sums.iter().filter(|(_, sum)| *sum != 0).map(|(id, sum)| (*id, clamp(*sum))).collect()
    }
}

/// How many requests of `value` fit into `capacity`.
#[expect(clippy::cast_possible_truncation, reason = "clamped to the range of i32 just before")]
fn times_in(value: i64, capacity: i64) -> i32 {
    if value == 0 {
        i32::MAX
    } else {
        capacity.checked_div(value).unwrap_or(i64::MAX).clamp(0, i64::from(i32::MAX)) as i32
    }
}
