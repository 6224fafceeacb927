//! The devices that drivers publish in ResourceSlices.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1 as api;
use quintet_api::Quantity;

use crate::ingest::IngestError;
use crate::ingest::pod::quantity;

/// A part of a pool of devices.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub(super) driver: String,
    pub(super) devices: Vec<Device>,
    pool: String,
    generation: i64,
    /// How many slices the pool has.
    slices: i64,
}

/// What selectors and quota look at.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) attributes: BTreeMap<String, api::DeviceAttribute>,
    pub(super) capacities: BTreeMap<String, Capacity>,
    /// What an allocation takes, by counter. The same counter may be in several sets.
    pub(super) counters: Vec<(String, Quantity)>,
}

#[derive(Clone, Debug)]
pub(super) struct Capacity {
    pub(super) value: Quantity,
    pub(super) policy: Option<Policy>,
}

/// How much of a capacity may be requested.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    /// What a request gets that asks for no amount.
    pub(super) default: Option<Quantity>,
    /// The only amounts there are, in ascending order.
    pub(super) values: Vec<Quantity>,
    pub(super) range: Option<Range>,
}

#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) min: Quantity,
    pub(super) max: Option<Quantity>,
    pub(super) step: Option<Quantity>,
}

impl Slice {
    pub(super) fn new(object: &api::ResourceSlice) -> Result<Self, IngestError> {
        let spec = &object.spec;
        let devices = spec.devices.iter().flatten().map(Device::new).collect::<Result<_, _>>()?;
        Ok(Self {
            driver: spec.driver.clone(),
            devices,
            pool: spec.pool.name.clone(),
            generation: spec.pool.generation,
            slices: spec.pool.resource_slice_count,
        })
    }
}

impl Device {
    fn new(object: &api::Device) -> Result<Self, IngestError> {
        let capacities = object.capacity.iter().flatten();
        let counters = object.consumes_counters.iter().flatten().flat_map(|set| &set.counters);
        Ok(Self {
            name: object.name.clone(),
            attributes: object.attributes.clone().unwrap_or_default(),
            capacities: capacities
                .map(|(name, capacity)| Ok((name.clone(), Capacity::new(capacity)?)))
                .collect::<Result<_, IngestError>>()?,
            counters: counters
                .map(|(name, counter)| Ok((name.clone(), quantity(&counter.value)?)))
                .collect::<Result<_, IngestError>>()?,
        })
    }
}

impl Capacity {
    fn new(object: &api::DeviceCapacity) -> Result<Self, IngestError> {
        let policy = object.request_policy.as_ref().map(Policy::new).transpose()?;
        Ok(Self { value: quantity(&object.value)?, policy })
    }
}

impl Policy {
    fn new(object: &api::CapacityRequestPolicy) -> Result<Self, IngestError> {
        let values = object.valid_values.iter().flatten();
        Ok(Self {
            default: object.default.as_ref().map(quantity).transpose()?,
            values: values.map(quantity).collect::<Result<_, _>>()?,
            range: object.valid_range.as_ref().map(Range::new).transpose()?,
        })
    }
}

impl Range {
    fn new(object: &api::CapacityRequestPolicyRange) -> Result<Self, IngestError> {
        Ok(Self {
            min: quantity(&object.min)?,
            max: object.max.as_ref().map(quantity).transpose()?,
            step: object.step.as_ref().map(quantity).transpose()?,
        })
    }
}

/// The devices of a driver that are in complete pools, in their latest generation.
pub(super) fn of_complete_pools<'s>(
    slices: impl Iterator<Item = &'s Slice>,
    driver: &str,
) -> impl Iterator<Item = &'s Device> {
    let mut pools: BTreeMap<&str, Vec<&Slice>> = BTreeMap::new();
    for slice in slices.filter(|slice| slice.driver == driver) {
        let pool = pools.entry(&slice.pool).or_default();
        match pool.first().map(|known| slice.generation.cmp(&known.generation)) {
            Some(Ordering::Less) => {}
            Some(Ordering::Greater) => *pool = vec![slice],
            Some(Ordering::Equal) | None => pool.push(slice),
        }
    }
    let is_complete = |pool: &Vec<&Slice>| {
        pool.first().is_some_and(|first| usize::try_from(first.slices).is_ok_and(|count| count == pool.len()))
    };
    pools.into_values().filter(is_complete).flatten().flat_map(|slice| &slice.devices)
}
