//! Gauges of MLflows. Upstream has none; these show the conditions without a client.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use quintet_api::mlflow::MLflow;
use quintet_controller::cache::Cache;
use quintet_controller::metrics::MetricsRegistry;

/// Shows the conditions of the MLflows in `cache`.
pub(super) fn register(registry: &MetricsRegistry, cache: &Cache<MLflow>) {
    let conditions = Conditions(cache.clone());
    registry.register(|registry| registry.register_collector(Box::new(conditions)));
}

struct Conditions(Cache<MLflow>);

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("conditions of MLflows")
    }
}

impl Collector for Conditions {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let help = "Whether a condition of the MLflow has a status";
        let mut family =
            encoder.encode_descriptor("quintet_mlflow_condition", help, None, MetricType::Gauge)?;
        for mlflow in self.0.all() {
            let conditions = mlflow.object.status.iter().filter_map(|status| status.conditions.as_ref());
            for condition in conditions.flatten() {
                let labels =
                    [("name", mlflow.key.name()), ("type", &condition.type_), ("status", &condition.status)];
                ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
