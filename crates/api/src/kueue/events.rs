//! Reasons and reporters of the events that Kueue records.

use super::string_enum;

string_enum! {
    /// The reason of an event about a Workload. Warnings about one that was not admitted carry its
    /// [`QuotaReservedReason`](super::reasons::QuotaReservedReason), evictions [`evicted_due_to`].
    WorkloadEvent {
        /// Quota was reserved.
        QuotaReserved,
        /// The job may start.
        Admitted,
        /// It was preempted.
        Preempted,
        /// It preempted another one.
        PreemptedWorkload,
        /// Quota is reserved, and no placement was found.
        SecondPassFailed,
        /// It ran for as long as it may.
        MaximumExecutionTimeExceeded,
        /// A check rejected it.
        AdmissionCheckRejected,
        /// A check changed its state.
        AdmissionCheckUpdated,
        /// An admission gate was closed.
        AdmissionGated,
        /// The last admission gate was removed.
        AdmissionGateCleared,
        /// It was deleted after its retention time.
        Deleted,
        /// What became of it on other clusters.
        MultiKueue,
        /// Another slice of its job replaces it.
        WorkloadSliceReplaced,
        /// It belongs to one more job.
        OwnerReferencesAdded,
        /// A ProvisioningRequest was created for it.
        ProvisioningRequestCreated,
        /// A ProvisioningRequest could not be created.
        FailedCreate,
        /// A variant was created for it.
        CreatedVariant,
        /// One of its variants was deleted.
        DeletedVariant,
        /// One of its variants may be queued.
        ActivatedVariant,
        /// One of its variants may not be queued any more.
        DeactivatedVariant,
        /// One of its variants may preempt.
        PreemptionUngatedVariant,
    }
}

string_enum! {
    /// The reason of an event about a job.
    JobEvent {
        /// It was started.
        Started,
        /// It was suspended.
        Suspended,
        /// It was stopped after an eviction.
        Stopped,
        /// It was deleted after its retention time.
        Deleted,
        /// Its Workload was created.
        CreatedWorkload,
        /// Its Workload was deleted.
        DeletedWorkload,
        /// Its Workload was changed.
        UpdatedWorkload,
        /// Its Workload is finished.
        FinishedWorkload,
        /// No Workload can be made of it.
        ErrWorkloadCompose,
        /// A check of its Workload changed.
        UpdatedAdmissionCheck,
        /// Too many owners are above it.
        JobNestingTooDeep,
        /// Its priority class does not exist.
        WorkloadPriorityClassNotFound,
        /// A pod is more than its group needs.
        ExcessPodDeleted,
        /// The Workload of that name is not that of the group.
        WorkloadNameConflict,
    }
}

string_enum! {
    /// The reason of an event about another object.
    OtherEvent {
        /// A pod was failed because its assigned node cannot run it.
        PodTerminatedByKueue,
        /// A pod was failed because its node is unreachable.
        KueueForcefullyDeleted,
        /// A MultiKueueCluster reads its kubeconfig from a path that is not allowed any more.
        DeprecatedPathUsage,
    }
}

/// The reason of the event about an eviction. `reason` is that of the `Evicted` condition.
pub fn evicted_due_to(reason: &str) -> String {
    format!("EvictedDueTo{reason}")
}

/// Reporting controller of the scheduler, and the field manager of admissions.
pub const SCHEDULER: &str = "kueue-admission";
/// Reporting controller of the Workload controller.
pub const WORKLOAD_CONTROLLER: &str = "kueue-workload-controller";
/// Reporting controller of ProvisioningRequest checks.
pub const PROVISIONING_CONTROLLER: &str = "kueue-provisioning-request-controller";

/// Reporting controller of a job framework.
pub fn job_controller(framework: &str) -> String {
    format!("{framework}-kueue-controller")
}
