//! What users' dashboards read about RayClusters, under upstream's names.

use quintet_api::{conditions, ray::v1::RayCluster};
use quintet_controller::{
    cache::{Cache, Entry},
    metrics::MetricsRegistry,
};

use super::status::{PROVISIONED, has};
use crate::{
    gauges::{self, Labels, Listing, Measure},
    labels,
};

/// Shows gauges of RayClusters.
pub(crate) fn register(registry: &MetricsRegistry, clusters: &Cache<RayCluster>) {
    let listings = [
        Listing {
            name: "kuberay_cluster_info",
            help: "Metadata information about RayCluster custom resources",
            series: |entry| vec![info(entry)],
        },
        Listing {
            name: "kuberay_cluster_condition_provisioned",
            help: "Whether the RayCluster has been provisioned",
            series: |entry| vec![provisioned(entry)],
        },
    ];
    gauges::register(registry, clusters, listings);
    let took = Measure {
        name: "kuberay_cluster_provisioned_duration_seconds",
        help: "Seconds from the RayCluster's creation until all of its pods were ready",
        value: |entry| duration(&entry.object),
    };
    gauges::register_measure(registry, clusters, took);
}

fn info(entry: &Entry<RayCluster>) -> Labels {
    let owner = entry.object.metadata.labels.as_ref().and_then(|all| all.get(labels::ORIGIN_KIND));
    let mut series = gauges::identity(entry);
    series.push(("owner_kind", owner.map_or("None", String::as_str).to_owned()));
    series
}

fn provisioned(entry: &Entry<RayCluster>) -> Labels {
    let holds = entry.object.status.as_ref().is_some_and(|status| has(status, PROVISIONED));
    let mut series = gauges::identity(entry);
    series.push(("condition", holds.to_string()));
    series
}

/// From creation until the cluster was provisioned; after a suspension, until it was again.
fn duration(cluster: &RayCluster) -> Option<f64> {
    let conditions = cluster.status.as_ref()?.conditions.as_deref()?;
    let since = conditions::find(conditions, PROVISIONED).filter(|one| one.status == "True")?;
    let created = cluster.metadata.creation_timestamp.as_ref()?;
    Some(since.last_transition_time.0.duration_since(created.0).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn provisioning_took_from_creation_to_the_condition() {
        let cluster = |status: &str| -> RayCluster {
            serde_json::from_value(json!({
                "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
                "status": {"conditions": [{
                    "type": "RayClusterProvisioned", "status": status, "reason": "x", "message": "",
                    "lastTransitionTime": "2026-01-01T00:01:30Z",
                }]},
            }))
            .unwrap()
        };
        assert_eq!(duration(&cluster("True")), Some(90.0));
        assert_eq!(duration(&cluster("False")), None);
    }
}
