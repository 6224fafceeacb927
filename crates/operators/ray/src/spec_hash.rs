//! Hashes by which a changed spec is noticed. They ignore what changes without anybody wanting other pods:
//! replica counts, which the autoscaler writes, and tolerations and scheduling gates, which queueing adds.
//!
//! Upstream hashes Go's JSON and we hash ours, so that the two never agree. That is why objects also
//! carry the version of their maker: what another operator made is marked anew and otherwise left alone.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use quintet_api::{names::base32_hash, ray::v1::RayClusterSpec};

/// What decides whether a RayCluster with upgrade strategy `Recreate` is made anew.
pub fn recreate_hash(spec: &RayClusterSpec) -> String {
    hash(&lasting(spec))
}

/// What decides whether a RayService gets a new cluster.
pub fn upgrade_hash(spec: &RayClusterSpec) -> String {
    hash(&upgrade_relevant(spec))
}

/// What of a spec decides whether a RayService gets a new cluster.
pub(crate) fn upgrade_relevant(spec: &RayClusterSpec) -> RayClusterSpec {
    RayClusterSpec { suspend: None, ..lasting(spec) }
}

fn hash(spec: &RayClusterSpec) -> String {
    base32_hash(&serde_json::to_vec(spec).unwrap_or_default())
}

fn lasting(spec: &RayClusterSpec) -> RayClusterSpec {
    let mut spec = spec.clone();
    spec.upgrade_strategy = None;
    forget_scheduling(&mut spec.head_group_spec.template);
    for group in spec.worker_group_specs.iter_mut().flatten() {
        group.replicas = None;
        group.min_replicas = None;
        group.max_replicas = None;
        group.scale_strategy = None;
        forget_scheduling(&mut group.template);
    }
    spec
}

fn forget_scheduling(template: &mut PodTemplateSpec) {
    if let Some(pod) = &mut template.spec {
        pod.tolerations = None;
        pod.scheduling_gates = None;
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodSpec, Toleration};
    use quintet_api::ray::v1::{ScaleStrategy, WorkerGroupSpec};

    use super::*;

    fn spec() -> RayClusterSpec {
        let mut spec = RayClusterSpec::default();
        spec.head_group_spec.template.spec = Some(PodSpec::default());
        spec.worker_group_specs =
            Some(vec![WorkerGroupSpec { group_name: "small".into(), ..WorkerGroupSpec::default() }]);
        spec
    }

    #[test]
    fn scaling_and_scheduling_do_not_count() {
        let mut scaled = spec();
        let group = &mut scaled.worker_group_specs.as_mut().unwrap()[0];
        group.replicas = Some(7);
        group.max_replicas = Some(9);
        group.scale_strategy = Some(ScaleStrategy { workers_to_delete: Some(vec!["a".into()]) });
        scaled.head_group_spec.template.spec.as_mut().unwrap().tolerations =
            Some(vec![Toleration::default()]);
        assert_eq!(recreate_hash(&scaled), recreate_hash(&spec()));
        assert_eq!(recreate_hash(&spec()).len(), 32);
    }

    #[test]
    fn everything_else_counts() {
        let mut changed = spec();
        changed.ray_version = Some("2.53.0".into());
        assert_ne!(recreate_hash(&changed), recreate_hash(&spec()));
        let mut suspended = spec();
        suspended.suspend = Some(true);
        assert_ne!(recreate_hash(&suspended), recreate_hash(&spec()));
        assert_eq!(
            upgrade_hash(&suspended),
            upgrade_hash(&spec()),
            "queueing suspends clusters of a service"
        );
    }
}
