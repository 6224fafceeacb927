//! Reasons of a requeue. As `RequeueReason` in Kueue's `pkg/cache/queue/cluster_queue.go`.

use crate::model::Strategy;

/// Why a workload goes back to its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequeueReason {
    /// No particular reason.
    #[default]
    Generic,
    /// It was chosen but could not be admitted.
    FailedAfterNomination,
    /// Its namespace is not served.
    NamespaceMismatch,
    /// It needs to preempt but may not.
    PreemptionGated,
    /// It waits for its victims.
    PendingPreemption,
    /// It waits for its sibling to leave.
    PendingMigration,
    /// Its victims could not be evicted.
    PreemptionFailed,
    /// It does not fit.
    NoFit,
    /// It would need victims and there are none.
    PreemptionNoCandidates,
}

impl RequeueReason {
    /// The reason of this name.
    pub fn parse(text: &str) -> Self {
        match text {
            "FailedAfterNomination" => Self::FailedAfterNomination,
            "NamespaceMismatch" => Self::NamespaceMismatch,
            "PreemptionGated" => Self::PreemptionGated,
            "PendingPreemption" => Self::PendingPreemption,
            "PendingMigration" => Self::PendingMigration,
            "PreemptionFailed" => Self::PreemptionFailed,
            "NoFit" => Self::NoFit,
            "PreemptionNoCandidates" => Self::PreemptionNoCandidates,
            _ => Self::Generic,
        }
    }

    /// Whether it goes to the front of the queue again at once.
    pub fn is_immediate(self, strategy: Strategy) -> bool {
        if strategy == Strategy::StrictFifo {
            return self != Self::NamespaceMismatch;
        }
        matches!(
            self,
            Self::FailedAfterNomination
                | Self::PendingPreemption
                | Self::PendingMigration
                | Self::PreemptionFailed
        )
    }

    pub(super) fn is_about_shape(self) -> bool {
        matches!(self, Self::NoFit | Self::PreemptionNoCandidates)
    }
}
