//! All metrics of Kueue: names, types, labels and buckets. Dashboards and alerts made for Kueue read them.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows.
    Counter,
    /// A present value.
    Gauge,
    /// Durations, in these buckets.
    Histogram(Buckets),
}

/// Bounds of a histogram in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buckets {
    /// 5 ms to 10 s.
    Usual,
    /// 10 ms to 10 s, each twice the one before.
    Creation,
    /// 1 s to about 3 hours.
    Waiting,
    /// 1 s to about 11 hours.
    Long,
}

/// A metric.
pub(crate) struct Family {
    /// Its name without prefix and, for counters, without `_total`.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Its labels beyond `replica_role`.
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

macro_rules! families {
    ($($metric:ident = $name:literal, $kind:expr, [$($label:literal),*], $help:literal;)+) => {
        /// A metric of Kueue.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Metric {
            $($metric,)+
        }

        impl Metric {
            /// All of them, in the order of [`Metric`].
            pub(crate) const ALL: &'static [Self] = &[$(Self::$metric,)+];

            pub(crate) const fn family(self) -> Family {
                match self {
                    $(Self::$metric => Family { name: $name, kind: $kind, labels: &[$($label),*], help: $help },)+
                }
            }
        }
    };
}

/// The object that a series is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    ClusterQueue(String),
    Cohort(String),
    LocalQueue { namespace: String, name: String },
}

impl Metric {
    /// What a series with these values is about, as its labels tell.
    pub(crate) fn subject(self, values: &[String]) -> Option<Subject> {
        let labels = self.family().labels;
        let value = |name: &str| {
            let index = labels.iter().position(|label| *label == name)?;
            values.get(index).cloned()
        };
        if let (Some(namespace), Some(name)) = (value("namespace"), value("name")) {
            return Some(Subject::LocalQueue { namespace, name });
        }
        let queue = value("cluster_queue").or_else(|| value("preempting_cluster_queue"));
        queue.map(Subject::ClusterQueue).or_else(|| value("cohort").map(Subject::Cohort))
    }
}

use Buckets::{Creation, Long, Usual, Waiting};
use Kind::{Counter, Gauge, Histogram};

families! {
    BuildInfo = "build_info", Gauge, ["git_version", "git_commit", "build_date", "go_version", "compiler", "platform"],
        "What is running; always 1";
    AdmissionAttempts = "admission_attempts", Counter, ["result"], "Scheduling cycles by whether a Workload was admitted";
    AdmissionAttemptDuration = "admission_attempt_duration_seconds", Histogram(Usual), ["result"], "Time of a scheduling cycle";
    PreemptionSkips = "admission_cycle_preemption_skips", Gauge, ["cluster_queue"],
        "Preemptions that the last cycle left out because others took their targets";
    PreemptionRecomputations = "preemption_target_recomputations", Counter, ["cluster_queue", "result"],
        "Times that victims were searched again within a cycle";
    PendingWorkloads = "pending_workloads", Gauge, ["cluster_queue", "status"], "Workloads that wait for quota";
    LocalPendingWorkloads = "local_queue_pending_workloads", Gauge, ["name", "namespace", "status"],
        "Workloads of a LocalQueue that wait for quota";
    PendingHashes = "pending_scheduling_hashes", Gauge, ["cluster_queue", "status"], "Different shapes of Workloads that wait";
    UnadmittedWorkloads = "unadmitted_workloads", Gauge, ["cluster_queue", "reason", "underlying_cause"],
        "Workloads that are not admitted, by what they wait for";
    LocalUnadmittedWorkloads = "local_queue_unadmitted_workloads", Gauge,
        ["name", "namespace", "cluster_queue", "reason", "underlying_cause"], "Workloads of a LocalQueue that are not admitted";
    FinishedNow = "finished_workloads", Gauge, ["cluster_queue"], "Finished Workloads that are not deleted";
    LocalFinishedNow = "local_queue_finished_workloads", Gauge, ["name", "namespace"],
        "Finished Workloads of a LocalQueue that are not deleted";
    ReservingWorkloads = "reserving_active_workloads", Gauge, ["cluster_queue"], "Workloads that hold quota";
    LocalReservingWorkloads = "local_queue_reserving_active_workloads", Gauge, ["name", "namespace"],
        "Workloads of a LocalQueue that hold quota";
    AdmittedNow = "admitted_active_workloads", Gauge, ["cluster_queue"], "Workloads that are admitted and not finished";
    LocalAdmittedNow = "local_queue_admitted_active_workloads", Gauge, ["name", "namespace"],
        "Workloads of a LocalQueue that are admitted and not finished";
    ClusterQueueStatus = "cluster_queue_status", Gauge, ["cluster_queue", "status"], "Whether a ClusterQueue admits; 1 for one status";
    LocalQueueStatus = "local_queue_status", Gauge, ["name", "namespace", "active"], "Whether a LocalQueue admits; 1 for one status";
    QuotaReserved = "quota_reserved_workloads", Counter, ["cluster_queue", "priority_class"], "Workloads that got quota";
    LocalQuotaReserved = "local_queue_quota_reserved_workloads", Counter, ["name", "namespace", "priority_class"],
        "Workloads of a LocalQueue that got quota";
    Admitted = "admitted_workloads", Counter, ["cluster_queue", "priority_class"], "Workloads that were admitted";
    LocalAdmitted = "local_queue_admitted_workloads", Counter, ["name", "namespace", "priority_class"],
        "Workloads of a LocalQueue that were admitted";
    Finished = "finished_workloads", Counter, ["cluster_queue", "priority_class"], "Workloads that have finished";
    LocalFinished = "local_queue_finished_workloads", Counter, ["name", "namespace", "priority_class"],
        "Workloads of a LocalQueue that have finished";
    QuotaReservedWait = "quota_reserved_wait_time_seconds", Histogram(Waiting), ["cluster_queue", "priority_class"],
        "Time from creation or requeuing until quota was reserved";
    LocalQuotaReservedWait = "local_queue_quota_reserved_wait_time_seconds", Histogram(Waiting),
        ["name", "namespace", "priority_class"], "The same of a LocalQueue";
    AdmissionWait = "admission_wait_time_seconds", Histogram(Long), ["cluster_queue", "priority_class"],
        "Time from creation or requeuing until admission";
    LocalAdmissionWait = "local_queue_admission_wait_time_seconds", Histogram(Waiting), ["name", "namespace", "priority_class"],
        "The same of a LocalQueue";
    ChecksWait = "admission_checks_wait_time_seconds", Histogram(Waiting), ["cluster_queue", "priority_class"],
        "Time from the reservation of quota until all checks were ready";
    LocalChecksWait = "local_queue_admission_checks_wait_time_seconds", Histogram(Waiting),
        ["name", "namespace", "priority_class"], "The same of a LocalQueue";
    ReadyWait = "ready_wait_time_seconds", Histogram(Waiting), ["cluster_queue", "priority_class"],
        "Time from creation or requeuing until all pods were ready";
    LocalReadyWait = "local_queue_ready_wait_time_seconds", Histogram(Waiting), ["name", "namespace", "priority_class"],
        "The same of a LocalQueue";
    AdmittedUntilReady = "admitted_until_ready_wait_time_seconds", Histogram(Waiting), ["cluster_queue", "priority_class"],
        "Time from admission until all pods were ready";
    LocalAdmittedUntilReady = "local_queue_admitted_until_ready_wait_time_seconds", Histogram(Waiting),
        ["name", "namespace", "priority_class"], "The same of a LocalQueue";
    ExecutionTime = "execution_time_seconds", Histogram(Long), ["cluster_queue", "priority_class"],
        "Time for which a finished Workload was admitted";
    LocalExecutionTime = "local_queue_execution_time_seconds", Histogram(Long), ["name", "namespace", "priority_class"],
        "The same of a LocalQueue";
    Evicted = "evicted_workloads", Counter, ["cluster_queue", "reason", "underlying_cause", "priority_class"], "Evictions";
    LocalEvicted = "local_queue_evicted_workloads", Counter,
        ["name", "namespace", "reason", "underlying_cause", "priority_class"], "Evictions of a LocalQueue";
    EvictedOnce = "evicted_workloads_once", Counter, ["cluster_queue", "reason", "underlying_cause", "priority_class"],
        "Workloads that were evicted, each counted once per reason";
    PodsReadyToEvicted = "pods_ready_to_evicted_time_seconds", Histogram(Waiting),
        ["cluster_queue", "reason", "underlying_cause"], "Time from ready pods until eviction";
    EvictionLatency = "workload_eviction_latency_seconds", Histogram(Waiting), ["cluster_queue", "reason"],
        "Time from eviction until the quota was given back";
    Preempted = "preempted_workloads", Counter, ["preempting_cluster_queue", "reason"], "Preemptions by the ClusterQueue they were for";
    CreationLatency = "workload_creation_latency_seconds", Histogram(Creation), ["job_kind"],
        "Time from the creation of a job until that of its Workload";
    GateRemoval = "pod_scheduling_gate_removal_seconds", Histogram(Usual), ["name", "cluster_queue", "is_group"],
        "Time from admission until the gate of a pod was removed";
    ResourceReservation = "cluster_queue_resource_reservation", Gauge, ["cohort", "cluster_queue", "flavor", "resource"],
        "Reserved resources";
    ResourceUsage = "cluster_queue_resource_usage", Gauge, ["cohort", "cluster_queue", "flavor", "resource"],
        "Resources of admitted Workloads";
    NominalQuota = "cluster_queue_nominal_quota", Gauge, ["cohort", "cluster_queue", "flavor", "resource"], "Nominal quota";
    BorrowingLimit = "cluster_queue_borrowing_limit", Gauge, ["cohort", "cluster_queue", "flavor", "resource"],
        "What may be borrowed; +Inf without a limit";
    LendingLimit = "cluster_queue_lending_limit", Gauge, ["cohort", "cluster_queue", "flavor", "resource"],
        "What may be lent; +Inf without a limit";
    ResourcePending = "cluster_queue_resource_pending", Gauge, ["cluster_queue", "resource"], "Resources that Workloads wait for";
    WeightedShare = "cluster_queue_weighted_share", Gauge, ["cluster_queue", "cohort"], "Fair share; NaN if it is infinite";
    LocalResourceReservation = "local_queue_resource_reservation", Gauge, ["name", "namespace", "flavor", "resource"],
        "Reserved resources of a LocalQueue";
    LocalResourceUsage = "local_queue_resource_usage", Gauge, ["name", "namespace", "flavor", "resource"],
        "Resources of admitted Workloads of a LocalQueue";
    LocalFairSharingUsage = "local_queue_admission_fair_sharing_usage", Gauge, ["name", "namespace", "cluster_queue"],
        "Usage that orders LocalQueues";
    CohortWeightedShare = "cohort_weighted_share", Gauge, ["cohort"], "Fair share of a Cohort; NaN if it is infinite";
    CohortQuota = "cohort_subtree_quota", Gauge, ["cohort", "flavor", "resource"], "Nominal quota of a Cohort and all below it";
    CohortReservations = "cohort_subtree_resource_reservations", Gauge, ["cohort", "flavor", "resource"],
        "Reserved resources of all below a Cohort";
    CohortAdmitted = "cohort_subtree_admitted_workloads", Counter, ["cohort", "priority_class"],
        "Workloads below a Cohort that were admitted";
    CohortAdmittedNow = "cohort_subtree_admitted_active_workloads", Gauge, ["cohort"],
        "Workloads below a Cohort that are admitted and not finished";
    CohortInfo = "cohort_info", Gauge, ["cohort", "parent_cohort", "root_cohort"], "Where a Cohort belongs; always 1";
    ClusterQueueInfo = "cluster_queue_info", Gauge, ["cluster_queue", "parent_cohort", "root_cohort"],
        "Where a ClusterQueue belongs; always 1";
    MultiKueueDispatched = "multikueue_workloads_dispatched", Counter, ["cluster_queue", "cluster"],
        "Workloads that were offered to a worker cluster";
    MultiKueueAdmitted = "multikueue_workloads_admitted", Counter, ["cluster_queue", "cluster"],
        "Workloads that a worker cluster has admitted";
}
