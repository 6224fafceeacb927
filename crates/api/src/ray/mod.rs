//! `ray.io`: Ray clusters, jobs, services and cron jobs, stored as v1; v1alpha1 is deprecated.

pub mod conditions;
pub mod events;
pub mod reasons;
mod rules;
pub mod v1;
pub mod v1alpha1;

use crate::crd::{Column, Definition, Version};

const DEPRECATED: &str = "v1alpha1 is deprecated and receives no new fields; use ray.io/v1";

const RAY_CLUSTER_COLUMNS: &[Column] = &[
    Column("desired workers", "integer", ".status.desiredWorkerReplicas", 0),
    Column("available workers", "integer", ".status.availableWorkerReplicas", 0),
    Column("cpus", "string", ".status.desiredCPU", 0),
    Column("memory", "string", ".status.desiredMemory", 0),
    Column("gpus", "string", ".status.desiredGPU", 0),
    Column("tpus", "string", ".status.desiredTPU", 1),
    Column("status", "string", ".status.state", 0),
    Column("age", "date", ".metadata.creationTimestamp", 0),
    Column("head pod IP", "string", ".status.head.podIP", 1),
    Column("head service IP", "string", ".status.head.serviceIP", 1),
];

const RAY_JOB_COLUMNS: &[Column] = &[
    Column("job status", "string", ".status.jobStatus", 0),
    Column("deployment status", "string", ".status.jobDeploymentStatus", 0),
    Column("ray cluster name", "string", ".status.rayClusterName", 0),
    Column("start time", "string", ".status.startTime", 0),
    Column("end time", "string", ".status.endTime", 0),
    Column("age", "date", ".metadata.creationTimestamp", 0),
];

const RAY_SERVICE_COLUMNS: &[Column] = &[
    Column("service status", "string", ".status.serviceStatus", 0),
    Column("num serve endpoints", "string", ".status.numServeEndpoints", 0),
];

const RAY_CRON_JOB_COLUMNS: &[Column] = &[
    Column("schedule", "string", ".spec.schedule", 0),
    Column("timezone", "string", ".spec.timeZone", 0),
    Column("last schedule", "date", ".status.lastScheduleTime", 0),
    Column("age", "date", ".metadata.creationTimestamp", 0),
    Column("suspend", "boolean", ".spec.suspend", 0),
];

/// The CRDs of this group.
pub fn definitions() -> Vec<Definition> {
    vec![
        Definition::stored::<v1::RayCluster>(Version::plain().columns(RAY_CLUSTER_COLUMNS).with_status())
            .served::<v1alpha1::RayCluster>(
                Version::plain().columns(RAY_CLUSTER_COLUMNS).with_status().deprecated(DEPRECATED),
            )
            .categories(&["all"]),
        Definition::stored::<v1::RayJob>(Version::plain().columns(RAY_JOB_COLUMNS).with_status())
            .served::<v1alpha1::RayJob>(Version::plain().with_status().deprecated(DEPRECATED))
            .categories(&["all"]),
        Definition::stored::<v1::RayService>(Version::plain().columns(RAY_SERVICE_COLUMNS).with_status())
            .served::<v1alpha1::RayService>(Version::plain().with_status().deprecated(DEPRECATED))
            .categories(&["all"]),
        Definition::stored::<v1::RayCronJob>(Version::plain().columns(RAY_CRON_JOB_COLUMNS).with_status())
            .categories(&["all"]),
    ]
}
