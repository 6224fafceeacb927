//! `kueue.x-k8s.io`: queues, quotas, workloads and admission checks, stored as v1beta2; v1beta1 is
//! deprecated.

mod lifecycle;
mod rules;
mod topology_assignment;

pub mod conditions;
pub mod events;
pub mod metadata;
pub mod reasons;
pub mod v1beta1;
pub mod v1beta2;

pub use lifecycle::{WorkloadLifecycle, WorkloadPhase};
pub use topology_assignment::Domain;

use crate::crd::{Column, Definition, Version};

/// Declares an enum whose variants are written in the API by their own names.
macro_rules! string_enum {
    ($(#[$attribute:meta])* $name:ident { $($(#[$variant_attribute:meta])* $variant:ident,)+ }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_attribute])* $variant,)+
        }

        impl $name {
            /// All values, in the order in which they are declared.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in the API.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }

            /// The value of this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == name)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
use string_enum;

const DEPRECATED: &str = "This version is deprecated. Use v1beta2 instead.";

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::conditions::{
        ACTIVE, MULTIKUEUE_MANAGER_QUOTA_AUTOMATION, PodCondition, ProvisioningRequestCondition,
        WorkloadCondition,
    };
    use super::events::{JobEvent, OtherEvent, WorkloadEvent, evicted_due_to};
    use super::reasons::*;

    macro_rules! all_names {
        ($($name:ident),+ $(,)?) => {
            vec![$((stringify!($name), $name::ALL.iter().map(|value| {
                assert_eq!($name::from_name(value.as_str()), Some(*value));
                value.as_str()
            }).collect::<Vec<&str>>())),+]
        };
    }

    fn names() -> Vec<(&'static str, Vec<&'static str>)> {
        all_names![
            WorkloadCondition,
            PodCondition,
            ProvisioningRequestCondition,
            QuotaReservedReason,
            AdmittedReason,
            PodsReadyReason,
            EvictionReason,
            PreemptionReason,
            RequeuedReason,
            DeactivationReason,
            FinishedReason,
            ReplacementPodsReason,
            BlockedOnPreemptionGatesReason,
            ClusterQueueActiveReason,
            LocalQueueActiveReason,
            AdmissionCheckActiveReason,
            MultiKueueClusterActiveReason,
            QuotaAutomationReason,
            PodConditionReason,
            WorkloadEvent,
            JobEvent,
            OtherEvent,
        ]
    }

    /// The API server checks reasons against `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$` and 1,024
    /// characters; Kueue's own are CamelCase.
    #[test]
    fn names_are_camel_case_and_unique_in_their_set() {
        for (set, names) in names() {
            for name in &names {
                let is_camel_case = name.starts_with(|first: char| first.is_ascii_uppercase())
                    && name.chars().all(|own| own.is_ascii_alphanumeric());
                assert!(is_camel_case && name.len() <= 64, "{set}: {name}");
            }
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{set}");
        }
        for name in [ACTIVE, MULTIKUEUE_MANAGER_QUOTA_AUTOMATION] {
            assert_eq!(WorkloadCondition::from_name(name), None, "{name} is of other kinds");
        }
    }

    #[test]
    fn composed_reasons_read_as_upstream_writes_them() {
        let deactivated = deactivated_due_to(DeactivationReason::RequeuingLimitExceeded);
        assert_eq!(deactivated, "DeactivatedDueToRequeuingLimitExceeded");
        assert_eq!(evicted_due_to(EvictionReason::Preempted.as_str()), "EvictedDueToPreempted");
        assert_eq!(evicted_due_to(&deactivated), "EvictedDueToDeactivatedDueToRequeuingLimitExceeded");
    }
}
