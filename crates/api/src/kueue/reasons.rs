//! Reasons of the conditions of Kueue's kinds.
//!
//! One enum per condition (see [`super::conditions`]). Where the reason of one condition is repeated in
//! another, as eviction reasons are in `Requeued`, the enum of the first is used.

use super::string_enum;

string_enum! {
    /// Why quota is reserved for a Workload, or why not. `QuotaReserved` is also the reason with which
    /// `Evicted`, `Preempted` and `BlockedOnPreemptionGates` turn false at the next reservation.
    QuotaReservedReason {
        /// True: the scheduler reserved it.
        QuotaReserved,
        /// True (also of `Admitted`): the importer found the pods running.
        Imported,
        /// False: not evaluated since it last changed.
        PendingEvaluation,
        /// False: not enough unused quota, or nothing to preempt.
        WaitingForQuota,
        /// False: no flavor of the queue suits the pods.
        NoMatchingFlavor,
        /// False: the request exceeds what the queue can ever have.
        ExceedsMaxQuota,
        /// False: there is quota, but the topology has no room.
        TopologyPlacementFailed,
        /// False: preempted workloads have not released their quota yet.
        WaitingForPreemptedWorkloads,
        /// False: admission is blocked until the pods of admitted workloads are ready.
        WaitingForPodsReady,
        /// False: queue, namespace or resources are wrong.
        Misconfigured,
        /// False: a queue is stopped or cannot admit.
        Suspended,
        /// False: `spec.active` is false.
        Deactivated,
        /// False: an admission gate or a preemption gate is closed.
        AdmissionGated,
        /// False: held back from outside, and not to be queued.
        OnHold,
        /// False, with UnadmittedWorkloadsObservability off: any reason without a name of its own.
        Pending,
        /// False, with UnadmittedWorkloadsObservability off: WaitingForPodsReady.
        Waiting,
        /// False, with UnadmittedWorkloadsObservability off: the workload can never be admitted. Also a reason
        /// of `Requeued`.
        Inadmissible,
    }
}

string_enum! {
    /// Why a Workload is admitted, or why not.
    AdmittedReason {
        /// True: quota is reserved and all checks are Ready.
        Admitted,
        /// False: no quota is reserved.
        NoReservation,
        /// False: quota is reserved and a check is not Ready.
        UnsatisfiedAdmissionChecks,
        /// False: the same, with UnadmittedWorkloadsObservability off.
        UnsatisfiedChecks,
        /// False: neither quota nor checks, with UnadmittedWorkloadsObservability off.
        NoReservationUnsatisfiedChecks,
        /// False: the placement waits for the checks.
        PendingDelayedTopologyRequests,
    }
}

string_enum! {
    /// Why pods are ready, or not yet. The false ones are also underlying causes of a `PodsReadyTimeout`.
    PodsReadyReason {
        /// True: they became ready for the first time.
        Started,
        /// True: they are ready again.
        Recovered,
        /// False: they have not been ready yet.
        WaitForStart,
        /// False: some were ready and are not any more.
        WaitForRecovery,
        /// False: WaitForStart as older versions wrote it.
        PodsReady,
    }
}

string_enum! {
    /// Why a Workload is evicted.
    EvictionReason {
        /// In favor of another workload.
        Preempted,
        /// Its pods did not become ready in time.
        PodsReadyTimeout,
        /// An admission check is Retry.
        AdmissionCheck,
        /// Its ClusterQueue is drained.
        ClusterQueueStopped,
        /// Its LocalQueue is drained.
        LocalQueueStopped,
        /// Nodes of its placement failed and cannot be replaced.
        NodeFailures,
        /// `spec.active` was set to false. By the manager: see [`deactivated_due_to`].
        Deactivated,
        /// A more favorable variant takes its place.
        FlavorMigration,
        /// The variant that ran for it was evicted.
        VariantEvicted,
        /// It was admitted itself instead of one of its variants.
        ConcurrentAdmission,
    }
}

string_enum! {
    /// Why a Workload is preempted.
    PreemptionReason {
        /// Another workload of its queue goes first.
        InClusterQueue,
        /// Another queue reclaims its own quota.
        InCohortReclamation,
        /// Its queue has more than its fair share.
        InCohortFairSharing,
        /// Another queue that borrows goes first.
        InCohortReclaimWhileBorrowing,
    }
}

string_enum! {
    /// Why a Workload may be queued again. Where it may not, the reason is that of the eviction, or
    /// [`QuotaReservedReason::Inadmissible`].
    RequeuedReason {
        /// After a preemption.
        Preempted,
        /// After node failures.
        NodeFailures,
        /// `spec.active` is true again.
        Reactivated,
        /// The backoff is over.
        BackoffFinished,
        /// Its ClusterQueue is not stopped any more.
        ClusterQueueRestarted,
        /// Its LocalQueue is not stopped any more.
        LocalQueueRestarted,
    }
}

string_enum! {
    /// Why the manager deactivates a Workload.
    DeactivationReason {
        /// Its pods did not become ready in time too often.
        RequeuingLimitExceeded,
        /// It ran for as long as it may.
        MaximumExecutionTimeExceeded,
        /// An admission check rejected it.
        AdmissionCheck,
        /// It runs for a workload of another cluster, which was evicted there.
        EvictedOnManagerCluster,
    }
}

/// What the eviction reason of a Workload that the manager deactivated begins with.
pub const DEACTIVATED_DUE_TO: &str = "DeactivatedDueTo";

/// The eviction reason of a Workload that the manager deactivated.
pub fn deactivated_due_to(cause: DeactivationReason) -> String {
    format!("{DEACTIVATED_DUE_TO}{cause}")
}

string_enum! {
    /// How a Workload finished.
    FinishedReason {
        /// The job succeeded.
        Succeeded,
        /// The job failed.
        Failed,
        /// The Workload no longer describes its job.
        OutOfSync,
        /// Its job is gone.
        OwnerNotFound,
        /// The job could not be started as admitted.
        FailedToStart,
        /// A larger or smaller slice of the same job replaces it.
        WorkloadSliceReplaced,
    }
}

string_enum! {
    /// Whether a group waits for replacement pods. True is also written with the reason of an eviction.
    ReplacementPodsReason {
        /// True: pods failed.
        PodsFailed,
        /// False: all pods are there.
        PodsReady,
    }
}

string_enum! {
    /// Why a Workload may not preempt. False is written with the reason of an eviction, or
    /// [`QuotaReservedReason::QuotaReserved`].
    BlockedOnPreemptionGatesReason {
        /// True: it fits only with preemption, and a gate is closed.
        PreemptionGated,
    }
}

string_enum! {
    /// Whether a ClusterQueue can admit, or the first reason why not, in this order.
    ClusterQueueActiveReason {
        /// It can.
        Ready,
        /// It is being deleted.
        Terminating,
        /// Its stopPolicy is not None.
        Stopped,
        /// A ResourceFlavor does not exist.
        FlavorNotFound,
        /// An AdmissionCheck does not exist.
        AdmissionCheckNotFound,
        /// An AdmissionCheck is not active.
        AdmissionCheckInactive,
        /// It has several MultiKueue checks.
        MultipleMultiKueueAdmissionChecks,
        /// It has a MultiKueue check for some flavors only.
        MultiKueueAdmissionCheckAppliedPerFlavor,
        /// It has MultiKueue and ProvisioningRequest checks.
        MultiKueueWithProvisioningRequest,
        /// The Topology of a flavor does not exist.
        TopologyNotFound,
        /// Any other reason, such as a cycle of cohorts.
        Unknown,
        /// The manager does not know the queue yet.
        NotFound,
    }
}

string_enum! {
    /// Whether a LocalQueue can be used.
    LocalQueueActiveReason {
        /// It can.
        Ready,
        /// Its stopPolicy is not None.
        Stopped,
        /// Its ClusterQueue does not exist.
        ClusterQueueDoesNotExist,
        /// Its ClusterQueue cannot admit.
        ClusterQueueIsInactive,
    }
}

string_enum! {
    /// Whether an AdmissionCheck can be used.
    AdmissionCheckActiveReason {
        /// It can.
        Active,
        /// ProvisioningRequest: its parameters do not exist.
        BadParametersRef,
        /// MultiKueue: its configuration is missing or wrong.
        BadConfig,
        /// MultiKueue: none of its clusters is connected.
        NoUsableClusters,
        /// MultiKueue: some of its clusters are connected.
        SomeActiveClusters,
    }
}

string_enum! {
    /// Whether a MultiKueueCluster is connected.
    MultiKueueClusterActiveReason {
        /// It is.
        Active,
        /// The kubeconfig is missing or cannot be read.
        BadKubeConfig,
        /// The kubeconfig asks for something that is not allowed.
        InsecureKubeConfig,
        /// The ClusterProfile is missing or wrong.
        BadClusterProfile,
        /// No client can be made of it.
        BadRestConfig,
        /// It names a ClusterProfile and the feature gate is off.
        MultiKueueClusterProfileFeatureDisabled,
        /// The cluster does not answer.
        ClientConnectionFailed,
    }
}

string_enum! {
    /// Whether the quota of a ClusterQueue follows that of the worker clusters.
    QuotaAutomationReason {
        /// It does.
        QuotaAutomated,
        /// It is not configured.
        NotRequested,
        /// It cannot.
        UnsupportedConfiguration,
    }
}

string_enum! {
    /// Why Kueue failed a pod.
    PodConditionReason {
        /// Of `TerminatedByKueue`.
        UnschedulableOnAssignedNode,
        /// Of `KueueFailureRecovery`.
        KueueForcefullyDeleted,
    }
}
