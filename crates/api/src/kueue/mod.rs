//! `kueue.x-k8s.io`: queues, quotas, workloads and admission checks, stored as v1beta2; v1beta1 is
//! deprecated.

mod rules;
mod topology_assignment;
pub mod v1beta1;
pub mod v1beta2;

pub use topology_assignment::Domain;

use crate::crd::{Column, Definition, Version};

const DEPRECATED: &str = "v1beta1 is deprecated; use kueue.x-k8s.io/v1beta2";

const WORKLOAD_COLUMNS: &[Column] = &[
    Column("Queue", "string", ".spec.queueName", 0),
    Column("Reserved in", "string", ".status.admission.clusterQueue", 0),
    Column("Admitted", "string", ".status.conditions[?(@.type=='Admitted')].status", 0),
    Column("Finished", "string", ".status.conditions[?(@.type=='Finished')].status", 0),
    Column("Age", "date", ".metadata.creationTimestamp", 0),
];

const CLUSTER_QUEUE_COLUMNS: &[Column] = &[
    Column("Cohort", "string", ".spec.cohortName", 0),
    Column("Strategy", "string", ".spec.queueingStrategy", 1),
    Column("Pending Workloads", "integer", ".status.pendingWorkloads", 0),
    Column("Admitted Workloads", "integer", ".status.admittedWorkloads", 1),
];

const CLUSTER_QUEUE_V1BETA1_COLUMNS: &[Column] = &[
    Column("Cohort", "string", ".spec.cohort", 0),
    Column("Strategy", "string", ".spec.queueingStrategy", 1),
    Column("Pending Workloads", "integer", ".status.pendingWorkloads", 0),
    Column("Admitted Workloads", "integer", ".status.admittedWorkloads", 1),
];

const LOCAL_QUEUE_COLUMNS: &[Column] = &[
    Column("ClusterQueue", "string", ".spec.clusterQueue", 0),
    Column("Pending Workloads", "integer", ".status.pendingWorkloads", 0),
    Column("Admitted Workloads", "integer", ".status.admittedWorkloads", 0),
];

const MULTIKUEUE_CLUSTER_COLUMNS: &[Column] = &[
    Column("Connected", "string", ".status.conditions[?(@.type=='Active')].status", 0),
    Column("Age", "date", ".metadata.creationTimestamp", 0),
];

const WORKLOAD_PRIORITY_CLASS_COLUMNS: &[Column] = &[Column("Value", "integer", ".value", 0)];

/// The CRDs of this group.
pub fn definitions() -> Vec<Definition> {
    vec![
        Definition::stored::<v1beta2::Workload>(
            Version::plain()
                .columns(WORKLOAD_COLUMNS)
                .with_status()
                .selectable(&[".status.admission.clusterQueue"]),
        )
        .served::<v1beta1::Workload>(
            Version::plain().columns(WORKLOAD_COLUMNS).with_status().deprecated(DEPRECATED),
        )
        .short_names(&["kwl", "kueueworkload", "kueueworkloads"])
        .converted(),
        Definition::stored::<v1beta2::ClusterQueue>(
            Version::plain().columns(CLUSTER_QUEUE_COLUMNS).with_status(),
        )
        .served::<v1beta1::ClusterQueue>(
            Version::plain().columns(CLUSTER_QUEUE_V1BETA1_COLUMNS).with_status().deprecated(DEPRECATED),
        )
        .short_names(&["cq"])
        .converted(),
        Definition::stored::<v1beta2::LocalQueue>(
            Version::plain().columns(LOCAL_QUEUE_COLUMNS).with_status(),
        )
        .served::<v1beta1::LocalQueue>(
            Version::plain().columns(LOCAL_QUEUE_COLUMNS).with_status().deprecated(DEPRECATED),
        )
        .short_names(&["queue", "queues", "lq"])
        .converted(),
        Definition::stored::<v1beta2::Cohort>(Version::plain().with_status())
            .served::<v1beta1::Cohort>(Version::plain().with_status().deprecated(DEPRECATED))
            .short_names(&["co"])
            .converted(),
        Definition::stored::<v1beta2::ResourceFlavor>(Version::plain())
            .served::<v1beta1::ResourceFlavor>(Version::plain().deprecated(DEPRECATED))
            .short_names(&["flavor", "flavors", "rf"]),
        Definition::stored::<v1beta2::Topology>(Version::plain())
            .served::<v1beta1::Topology>(Version::plain().deprecated(DEPRECATED))
            .short_names(&["topo"]),
        Definition::stored::<v1beta2::AdmissionCheck>(Version::plain().with_status())
            .served::<v1beta1::AdmissionCheck>(Version::plain().with_status().deprecated(DEPRECATED))
            .short_names(&["ac"]),
        Definition::stored::<v1beta2::MultiKueueCluster>(
            Version::plain().columns(MULTIKUEUE_CLUSTER_COLUMNS).with_status(),
        )
        .served::<v1beta1::MultiKueueCluster>(
            Version::plain().columns(MULTIKUEUE_CLUSTER_COLUMNS).with_status().deprecated(DEPRECATED),
        )
        .short_names(&["mkc"])
        .converted(),
        Definition::stored::<v1beta2::MultiKueueConfig>(Version::plain())
            .served::<v1beta1::MultiKueueConfig>(Version::plain())
            .short_names(&["mkconf"]),
        Definition::stored::<v1beta2::ProvisioningRequestConfig>(Version::plain())
            .served::<v1beta1::ProvisioningRequestConfig>(Version::plain().deprecated(DEPRECATED))
            .short_names(&["prc"]),
        Definition::stored::<v1beta2::WorkloadPriorityClass>(
            Version::plain().columns(WORKLOAD_PRIORITY_CLASS_COLUMNS),
        )
        .served::<v1beta1::WorkloadPriorityClass>(
            Version::plain().columns(WORKLOAD_PRIORITY_CLASS_COLUMNS).deprecated(DEPRECATED),
        )
        .short_names(&["wpc"]),
    ]
}
