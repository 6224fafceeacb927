//! Condition types of Kueue's kinds, and of the pods Kueue marks.
//!
//! The reasons of each condition are in [`super::reasons`].

use super::string_enum;

/// Whether a ClusterQueue, LocalQueue, AdmissionCheck or MultiKueueCluster can be
/// used.
pub const ACTIVE: &str = "Active";

/// Whether the quota of a ClusterQueue follows that of the worker clusters.
pub const MULTIKUEUE_MANAGER_QUOTA_AUTOMATION: &str = "MultiKueueManagerQuotaAutomation";

string_enum! {
    /// A condition of a Workload.
    WorkloadCondition {
        /// Quota is reserved in a ClusterQueue.
        QuotaReserved,
        /// Quota is reserved, all admission checks are Ready and no placement is pending: the job may start.
        Admitted,
        /// All pods are ready.
        PodsReady,
        /// The workload has to stop and to give back its quota.
        Evicted,
        /// The workload is evicted in favor of another one.
        Preempted,
        /// The workload may be queued again after an eviction.
        Requeued,
        /// The workload is about to be deactivated by the manager.
        DeactivationTarget,
        /// The job ended, or there is no job any more.
        Finished,
        /// Pods of a group ended and wait for their replacement.
        WaitingForReplacementPods,
        /// The workload fits only with preemption and a preemption gate is closed.
        BlockedOnPreemptionGates,
    }
}

string_enum! {
    /// A condition that Kueue sets on pods.
    PodCondition {
        /// The pod was failed because its assigned node cannot run it.
        TerminatedByKueue,
        /// The pod was failed because its node is unreachable.
        KueueFailureRecovery,
    }
}

string_enum! {
    /// A condition of a ProvisioningRequest that decides about its admission check.
    ProvisioningRequestCondition {
        /// The autoscaler works on the request.
        Accepted,
        /// The capacity is there.
        Provisioned,
        /// The request failed.
        Failed,
        /// The capacity was reserved and not used in time.
        BookingExpired,
        /// The capacity was taken away.
        CapacityRevoked,
    }
}
