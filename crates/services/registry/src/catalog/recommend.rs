//! Which measurements of a model are worth a look.
//!
//! Of each type of hardware, a measurement is kept if nothing at most as dear is faster, and if it is faster than the
//! next cheaper one by a margin that a user would notice.

use std::collections::{BTreeMap, BTreeSet};

use super::item::{Item, Value};
use crate::api::query::Query;
use crate::error::Error;
use crate::text;

/// The least gain in latency that is worth more hardware; and the one below [`FAST`] milliseconds.
const GAIN: f64 = 0.05;
const GAIN_IF_FAST: f64 = 0.1;
const FAST: f64 = 100.0;

/// The parameters of a recommendation.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) is_recommendation: bool,
    target_rps: i32,
    latency: String,
    rps: String,
    hardware_count: String,
    hardware_type: String,
}

impl Wish {
    pub(crate) fn read(query: &Query) -> Result<Self, Error> {
        let malformed = |name: &str, why: String| Error::BadRequest(format!("{name}: {why}"));
        let target_rps = match query.get("targetRPS") {
            "" => 0,
            digits => text::int32(digits).map_err(|why| malformed("targetRPS", why))?,
        };
        let named = |parameter: &str, default: &str| match query.get(parameter) {
            "" => default.to_owned(),
            name => name.to_owned(),
        };
        Ok(Self {
            is_recommendation: flag(query, "recommendations")?,
            target_rps,
            latency: named("latencyProperty", "ttft_p90"),
            rps: named("rpsProperty", "requests_per_second"),
            hardware_count: named("hardwareCountProperty", "hardware_count"),
            hardware_type: named("hardwareTypeProperty", "hardware_type"),
        })
    }

    /// Checks that each property occurs in some measurement.
    pub(crate) fn check(&self, measurements: &[Item]) -> Result<(), Error> {
        let names: BTreeSet<&String> =
            [&self.latency, &self.rps, &self.hardware_count, &self.hardware_type].into_iter().collect();
        let is_missing = |name: &&String| !measurements.iter().any(|it| it.custom(name).is_some());
        let missing: Vec<&str> = names.into_iter().filter(is_missing).map(String::as_str).collect();
        if measurements.is_empty() || missing.is_empty() {
            return Ok(());
        }
        let why = format!("properties not found in any performance artifacts: [{}]", missing.join(" "));
        Err(Error::Internal(format!("failed to get performance artifacts: invalid custom properties: {why}")))
    }

    /// Adds how many replicas reach the wanted rate, if one is wanted.
    pub(crate) fn add_replicas(&self, measurements: &mut [Item]) {
        let target = if self.is_recommendation { self.target_rps.max(1) } else { self.target_rps };
        if target <= 0 {
            return;
        }
        for item in measurements {
            let rps = Some(double(item, &self.rps, 1.0)).filter(|it| *it > 0.0).unwrap_or(1.0);
            let replicas = (f64::from(target) / rps).ceil().clamp(1.0, f64::from(i32::MAX));
            #[expect(clippy::cast_possible_truncation, reason = "clamped to the range just before")]
            item.put_custom("replicas", Value::Int(replicas as i32));
            item.put_custom("total_requests_per_second", Value::Double(replicas * rps));
        }
    }

    /// The measurements that are worth a look, in their order.
    pub(crate) fn recommended(&self, measurements: Vec<Item>) -> Vec<Item> {
        let mut by_hardware: BTreeMap<String, Vec<&Item>> = BTreeMap::new();
        for item in &measurements {
            let hardware = item.custom(&self.hardware_type).and_then(Value::as_text).unwrap_or_default();
            by_hardware.entry(hardware).or_default().push(item);
        }
        let kept: BTreeSet<i32> = by_hardware.into_values().flat_map(|group| self.kept(group)).collect();
        measurements.into_iter().filter(|item| kept.contains(&item.id)).collect()
    }

    /// The ids of what is kept of one type of hardware.
    fn kept(&self, mut group: Vec<&Item>) -> Vec<i32> {
        let positive = |value: f64| if value > 0.0 { value } else { f64::MAX };
        let latency = |item: &Item| positive(double(item, &self.latency, f64::MAX));
        let count = |item: &Item| Some(int(item, &self.hardware_count, i32::MAX)).filter(|it| *it > 0);
        group.sort_by(|left, right| {
            let by_latency = latency(left).total_cmp(&latency(right));
            let counts = count(left).unwrap_or(i32::MAX).cmp(&count(right).unwrap_or(i32::MAX));
            by_latency.then(counts)
        });
        let mut cheaper = Vec::new();
        let mut cheapest = i32::MAX;
        for item in group {
            // As upstream (generateRecommended), whose costs have 32 bits.
            let cost = int(item, &self.hardware_count, 1).wrapping_mul(int(item, "replicas", 1));
            if cost < cheapest {
                cheaper.push(item);
                cheapest = cost;
            }
        }
        let mut cheaper = cheaper.into_iter().rev();
        let Some(first) = cheaper.next() else { return Vec::new() };
        let mut kept = vec![first.id];
        let mut last = double(first, &self.latency, 0.0);
        for item in cheaper {
            let gain = if last <= FAST { GAIN_IF_FAST } else { GAIN };
            let latency = double(item, &self.latency, last);
            if (last - latency) / last > gain {
                kept.push(item.id);
                last = latency;
            }
        }
        kept
    }

    /// The best latency among what is recommended.
    pub(crate) fn best_latency(&self, mut measurements: Vec<Item>) -> Option<f64> {
        self.check(&measurements).ok()?;
        self.add_replicas(&mut measurements);
        let latencies =
            self.recommended(measurements).into_iter().filter_map(|item| match item.custom(&self.latency) {
                Some(Value::Double(number)) => Some(*number),
                _ => None,
            });
        latencies.min_by(f64::total_cmp)
    }

    /// The same wish, as a recommendation.
    pub(crate) fn into_recommendation(self) -> Self {
        Self { is_recommendation: true, ..self }
    }
}

/// Reads a parameter that is true or false, as Go spells them.
pub(crate) fn flag(query: &Query, name: &str) -> Result<bool, Error> {
    match query.get(name) {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => {
            let why = format!("strconv.ParseBool: parsing {}: invalid syntax", text::quoted(other));
            Err(Error::BadRequest(format!("{name}: {why}")))
        }
    }
}

fn double(item: &Item, name: &str, default: f64) -> f64 {
    match item.custom(name) {
        Some(Value::Double(number)) => *number,
        _ => default,
    }
}

fn int(item: &Item, name: &str, default: i32) -> i32 {
    match item.custom(name) {
        Some(Value::Int(number)) => *number,
        _ => default,
    }
}

#[cfg(test)]
mod tests {
    use super::{Item, Value, Wish};
    use crate::api::query::Query;
    use crate::catalog::item::ItemKind;

    fn measured(id: i32, hardware: &str, count: i32, rps: f64, latency: f64) -> Item {
        let mut item = Item::new(ItemKind::MetricsArtifact, "s");
        item.id = id;
        item.put_custom("hardware_type", Value::Text(hardware.to_owned()));
        item.put_custom("hardware_count", Value::Int(count));
        item.put_custom("requests_per_second", Value::Double(rps));
        item.put_custom("ttft_p90", Value::Double(latency));
        item
    }

    fn recommended(query: &str, mut measurements: Vec<Item>) -> Vec<i32> {
        let wish = Wish::read(&Query::parse(query)).expect("a wish");
        wish.add_replicas(&mut measurements);
        wish.recommended(measurements).iter().map(|it| it.id).collect()
    }

    #[test]
    fn dearer_hardware_must_be_noticeably_faster() {
        let measurements = vec![
            measured(1, "H100", 1, 10.0, 50.0),
            measured(2, "H100", 2, 20.0, 40.0),
            // Five percent faster than the cheaper one; below 100 ms, ten are asked for.
            measured(3, "H100", 4, 40.0, 38.0),
            measured(4, "A100", 1, 4.0, 150.0),
            measured(5, "A100", 2, 9.0, 90.0),
            // Slower and dearer.
            measured(6, "A100", 4, 3.0, 300.0),
        ];
        assert_eq!(recommended("recommendations=true", measurements), [1, 2, 4, 5]);
    }

    #[test]
    fn costs_include_the_replicas_for_the_wanted_rate() {
        let measurements = vec![measured(1, "H", 1, 1.0, 90.0), measured(2, "H", 2, 20.0, 40.0)];
        assert_eq!(recommended("recommendations=true", measurements.clone()), [1, 2]);
        // Twenty replicas of the first would be needed.
        assert_eq!(recommended("recommendations=true&targetRPS=20", measurements), [2]);
    }
}
