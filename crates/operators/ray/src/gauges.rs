//! Gauges whose series are made from the caches when they are scraped, with upstream's names.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};
use quintet_controller::{
    cache::{Cache, Entry},
    metrics::MetricsRegistry,
};

/// The labels of one series.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// One gauge with a series of value 1 for every set of labels that an object has.
pub(crate) struct Listing<T> {
    /// Its name.
    pub name: &'static str,
    /// What it tells.
    pub help: &'static str,
    /// The series of an object.
    pub series: fn(&Entry<T>) -> Vec<Labels>,
}

struct Listed<T> {
    listing: Listing<T>,
    cache: Cache<T>,
}

impl<T> fmt::Debug for Listed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.listing.name)
    }
}

impl<T: Send + Sync + 'static> Collector for Listed<T> {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Listing { name, help, series } = &self.listing;
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for entry in self.cache.all() {
            for labels in series(&entry) {
                ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// One gauge with a series for every object that has a value.
pub(crate) struct Measure<T> {
    /// Its name.
    pub name: &'static str,
    /// What it tells.
    pub help: &'static str,
    /// The value of an object.
    pub value: fn(&Entry<T>) -> Option<f64>,
}

struct Measured<T> {
    measure: Measure<T>,
    cache: Cache<T>,
}

impl<T> fmt::Debug for Measured<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.measure.name)
    }
}

impl<T: Send + Sync + 'static> Collector for Measured<T> {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Measure { name, help, value } = &self.measure;
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for entry in self.cache.all() {
            if let Some(value) = value(&entry) {
                ConstGauge::new(value).encode(family.encode_family(&identity(&entry))?)?;
            }
        }
        Ok(())
    }
}

/// Shows a value of every object in `cache` that has one.
pub(crate) fn register_measure<T: Send + Sync + 'static>(
    registry: &MetricsRegistry,
    cache: &Cache<T>,
    measure: Measure<T>,
) {
    let measured = Measured { measure, cache: cache.clone() };
    registry.register(|registry| registry.register_collector(Box::new(measured)));
}

/// Shows gauges of what is in `cache`.
pub(crate) fn register<T: Send + Sync + 'static>(
    registry: &MetricsRegistry,
    cache: &Cache<T>,
    listings: impl IntoIterator<Item = Listing<T>>,
) {
    registry.register(|registry| {
        for listing in listings {
            registry.register_collector(Box::new(Listed { listing, cache: cache.clone() }));
        }
    });
}

/// The labels that tell an object from all others.
pub(crate) fn identity<T>(entry: &Entry<T>) -> Labels {
    vec![
        ("name", entry.key.name().to_owned()),
        ("namespace", entry.key.namespace().unwrap_or_default().to_owned()),
        ("uid", entry.uid.to_string()),
    ]
}
