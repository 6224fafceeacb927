//! Metrics of the proxy.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The type of the text format.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResponse {
    route: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRoute {
    route: &'static str,
}

/// What the proxy counts.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<ByResponse, Counter>,
    seconds: Family<ByRoute, Histogram>,
    retries: Counter,
    connections: Gauge,
    tunnels: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let requests: Family<ByResponse, Counter> = Family::default();
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.005, 2.0, 14));
        let seconds: Family<ByRoute, Histogram> = Family::new_with_constructor(histogram);
        let (retries, connections, tunnels) = (Counter::default(), Gauge::default(), Gauge::default());
        let mut registry = Registry::with_prefix("quintet_api_proxy");
        registry.register("requests", "Requests by route and status code", requests.clone());
        let help = "Time to the headers of the response, by route";
        registry.register("response_seconds", help, seconds.clone());
        registry.register("retries", "Requests sent to the Kubernetes API again", retries.clone());
        registry.register("connections", "Open connections of clients", connections.clone());
        registry.register("upgraded_connections", "Open connections that were upgraded", tunnels.clone());
        Self { registry, requests, seconds, retries, connections, tunnels }
    }

    pub(crate) fn responded(&self, route: &'static str, code: u16, after: Duration) {
        self.requests.get_or_create(&ByResponse { route, code }).inc();
        self.seconds.get_or_create(&ByRoute { route }).observe(after.as_secs_f64());
    }

    pub(crate) fn retried(&self) {
        self.retries.inc();
    }

    /// Counts a connection until the value is dropped.
    pub(crate) fn connected(self: &Arc<Self>) -> Counted {
        Counted::new(self.connections.clone())
    }

    /// Counts an upgraded connection until the value is dropped.
    pub(crate) fn upgraded(self: &Arc<Self>) -> Counted {
        Counted::new(self.tunnels.clone())
    }

    /// All metrics in the text format.
    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// One of what a gauge counts.
pub(crate) struct Counted(Gauge);

impl Counted {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
