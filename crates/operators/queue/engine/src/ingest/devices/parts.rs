//! Parts of devices that count as quota: counters of partitionable devices, capacities of devices that are shared.

use quintet_api::Quantity;
use quintet_cel::quoted;

use super::problem::Problem;
use super::selector::Candidate;
use super::slices::{Capacity, Device, Policy, Range, of_complete_pools};
use super::templates::{Exactly, Template};
use super::{DeviceQuota, DeviceSource, Devices};
use crate::ingest::pod::{Quantities, add};
use crate::ingest::workload::RequestOptions;

impl Template {
    /// What is taken of counters.
    pub(super) fn counters(
        &self,
        devices: &Devices,
        options: &RequestOptions,
    ) -> &Result<Quantities, Vec<Problem>> {
        let count = || self.parts(devices, options, |quota| &quota.counters, charged_counter);
        self.counted.counters.get_or_init(count)
    }

    /// What is taken of capacities.
    pub(super) fn capacities(
        &self,
        devices: &Devices,
        options: &RequestOptions,
    ) -> &Result<Quantities, Vec<Problem>> {
        let count = || self.parts(devices, options, |quota| &quota.capacities, charged_capacity);
        self.counted.capacities.get_or_init(count)
    }

    fn parts(
        &self,
        devices: &Devices,
        options: &RequestOptions,
        sources: fn(&DeviceQuota) -> &[DeviceSource],
        charge: Charge,
    ) -> Result<Quantities, Vec<Problem>> {
        let mut sum = Quantities::new();
        for (path, exactly) in self.exact_requests() {
            let Some(quota) = options.device_classes.get(&exactly.class) else { continue };
            for source in sources(quota) {
                let matching = devices.matching(source, exactly, &path)?;
                let amount = charge(source, exactly, &matching).map_err(|problem| vec![problem.at(&path)])?;
                add(&mut sum, &Quantities::from([(source.resource.clone(), amount)]));
            }
        }
        Ok(sum)
    }
}

/// What a request costs of a source, given the devices that it may get.
type Charge = fn(&DeviceSource, &Exactly, &[&Device]) -> Result<Quantity, Uncharged>;

/// Why a request cannot be charged.
enum Uncharged {
    /// It may be well as soon as other objects change.
    Lacking(String),
    Wrong(String),
}

impl Uncharged {
    fn at(self, path: &str) -> Problem {
        match self {
            Self::Lacking(detail) => Problem::internal(path.to_owned(), detail),
            Self::Wrong(detail) => Problem::null(path.to_owned(), detail),
        }
    }
}

impl Devices {
    /// The devices that a request may get from a source.
    fn matching(
        &self,
        source: &DeviceSource,
        exactly: &Exactly,
        path: &str,
    ) -> Result<Vec<&Device>, Vec<Problem>> {
        let of_class = self.selectors_of(&exactly.class, path).map_err(|problem| vec![problem])?;
        let of_source = std::slice::from_ref(&source.selector);
        let errors = Problem::of_selectors(of_source, path, "deviceSelector CEL compilation failed");
        if !errors.is_empty() {
            return Err(errors);
        }
        let selectors = [
            ("deviceSelector", of_source),
            ("DeviceClass selector", of_class),
            ("request selector", exactly.selectors.as_slice()),
        ];
        let mut matching = Vec::new();
        'devices: for device in of_complete_pools(self.slices.values(), &source.driver) {
            let candidate = Candidate::new(&source.driver, device);
            for (which, selectors) in selectors {
                match candidate.is_selected(selectors) {
                    Ok(true) => {}
                    Ok(false) => continue 'devices,
                    Err(why) => {
                        let detail =
                            format!("CEL evaluation error in {which} for device {}: {why}", device.name);
                        return Err(vec![Problem::internal(path.to_owned(), detail)]);
                    }
                }
            }
            matching.push(device);
        }
        Ok(matching)
    }
}

fn check_count(kind: &str, exactly: &Exactly, matching: &[&Device]) -> Result<(), Uncharged> {
    let (found, count) = (i64::try_from(matching.len()).unwrap_or(i64::MAX), exactly.count);
    if found >= count {
        return Ok(());
    }
    Err(Uncharged::Lacking(format!(
        "insufficient matching devices for {kind} driver: {found} device(s) match but {count} requested"
    )))
}

/// The most that one device takes, for each of them: which devices a claim gets is not known beforehand.
fn charged(most: Quantity, count: i64) -> Quantity {
    let units = most.units().max(0);
    let units = if count > 1 { units.saturating_mul(count) } else { units };
    Quantity::from_units(units, most.notation())
}

fn charged_counter(
    source: &DeviceSource,
    exactly: &Exactly,
    matching: &[&Device],
) -> Result<Quantity, Uncharged> {
    check_count("counter", exactly, matching)?;
    let taken = matching.iter().flat_map(|device| &device.counters);
    let most = taken.filter(|(name, _)| *name == source.name).map(|(_, amount)| *amount).max();
    most.map(|most| charged(most, exactly.count)).ok_or_else(|| {
        let counter = quoted(&source.name);
        Uncharged::Lacking(format!("matched devices have no consumesCounters entry for counter {counter}"))
    })
}

fn charged_capacity(
    source: &DeviceSource,
    exactly: &Exactly,
    matching: &[&Device],
) -> Result<Quantity, Uncharged> {
    check_count("capacity", exactly, matching)?;
    let capacities: Vec<&Capacity> =
        matching.iter().filter_map(|device| device.capacities.get(&source.name)).collect();
    let dimension = quoted(&source.name);
    if capacities.is_empty() {
        return Err(Uncharged::Lacking(format!("matched devices have no capacity dimension {dimension}")));
    }
    let requested = exactly.capacities.get(&source.name).copied();
    let most = capacities.iter().filter_map(|capacity| capacity.taken(requested)).max();
    most.map(|most| charged(most, exactly.count)).ok_or_else(|| {
        Uncharged::Wrong(format!(
            "capacity request cannot be satisfied by any matched device's RequestPolicy for dimension {dimension}"
        ))
    })
}

impl Capacity {
    /// What a request takes of the capacity, if its policy allows that.
    fn taken(&self, requested: Option<Quantity>) -> Option<Quantity> {
        let default = self.policy.as_ref().and_then(|policy| policy.default);
        let amount = requested.or(default).unwrap_or(self.value);
        self.policy.as_ref().map_or(Some(amount), |policy| policy.rounded(amount))
    }
}

impl Policy {
    fn rounded(&self, amount: Quantity) -> Option<Quantity> {
        if !self.values.is_empty() {
            return self.values.iter().find(|value| **value >= amount).copied();
        }
        self.range.as_ref().map_or(Some(amount), |range| range.rounded(amount))
    }
}

impl Range {
    /// The next amount that is a number of steps above the least.
    fn rounded(&self, amount: Quantity) -> Option<Quantity> {
        let min = self.min.units();
        let mut units = amount.units().max(min);
        let step = self.step.map_or(0, Quantity::units);
        if step > 0 {
            let above = units.saturating_sub(min);
            if above % step != 0 {
                units = min.saturating_add((above / step).saturating_add(1).saturating_mul(step));
            }
        }
        let is_allowed = self.max.is_none_or(|max| units <= max.units());
        is_allowed.then(|| Quantity::from_units(units, amount.notation()))
    }
}
