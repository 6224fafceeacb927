//! What users' dashboards read about RayServices, under upstream's names.

use quintet_api::ray::v1::RayService;
use quintet_controller::{
    cache::{Cache, Entry},
    metrics::MetricsRegistry,
};

use super::status;
use crate::gauges::{self, Labels, Listing};

/// Shows gauges of the RayServices in `services`.
pub(super) fn register(registry: &MetricsRegistry, services: &Cache<RayService>) {
    gauges::register(
        registry,
        services,
        [
            Listing {
                name: "kuberay_service_info",
                help: "Metadata information about RayService custom resources",
                series: |entry| vec![gauges::identity(entry)],
            },
            Listing {
                name: "kuberay_service_condition_ready",
                help: "Whether the RayService is ready",
                series: |entry| vec![condition(entry, status::READY)],
            },
            Listing {
                name: "kuberay_service_condition_upgrade_in_progress",
                help: "Whether the RayService is being upgraded",
                series: |entry| vec![condition(entry, status::UPGRADING)],
            },
        ],
    );
}

fn condition(entry: &Entry<RayService>, type_: &str) -> Labels {
    let mut labels = gauges::identity(entry);
    let holds = entry.object.status.as_ref().is_some_and(|status| status::holds(status, type_));
    labels.push(("condition", holds.to_string()));
    labels
}
