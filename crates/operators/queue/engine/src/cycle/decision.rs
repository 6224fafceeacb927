//! What a cycle decided.

use std::collections::BTreeMap;
use std::sync::Arc;

use quintet_api::kueue::reasons::QuotaReservedReason;

use crate::model::Admission;
use crate::names::{QueueId, WorkloadId};
use crate::preemption::Target;
use crate::queue::RequeueReason;

/// A workload got its quota.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Admitted {
    /// What it got.
    pub admission: Arc<Admission>,
    /// All required checks are listed, so that it is known whether it may start.
    pub is_listed: bool,
    /// It may start.
    pub is_admitted: bool,
    /// It had its quota before and only got a place.
    pub had_reservation: bool,
    /// Its failed nodes were replaced.
    pub recovered: bool,
    /// The slice it replaces, to be finished.
    pub replaces: Option<WorkloadId>,
    /// Flavors tried, for the event.
    pub considered: String,
}

/// A workload got nothing yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unadmitted {
    /// The reason clients see; none if it was not decided about.
    pub reason: Option<QuotaReservedReason>,
    /// The message clients see.
    pub message: String,
    /// Why it went back to its queue.
    pub requeue: RequeueReason,
    /// Workloads to evict for it.
    pub evict: Vec<Target>,
    /// Those of its targets that are being evicted already.
    pub already_evicted: usize,
    /// A sibling variant to evict, because this one is more favorable.
    pub migrate: Option<WorkloadId>,
    /// It may not preempt now.
    pub is_gated: bool,
    /// Whether clients should see it.
    pub write_status: bool,
    /// It was a second pass, which will be tried again.
    pub second_pass_failed: bool,
}

/// What happens to a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It got its quota, or its place.
    Admitted(Box<Admitted>),
    /// It waits.
    Unadmitted(Box<Unadmitted>),
    /// It is evicted because its failed nodes cannot be replaced.
    Evicted {
        /// The message clients see.
        message: String,
        /// Why they cannot be replaced.
        cause: String,
    },
    /// It waits until the pods of all admitted workloads are ready.
    WaitingForPodsReady,
}

/// A decision about a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The workload.
    pub workload: WorkloadId,
    /// The queue that decided.
    pub queue: QueueId,
    /// What it decided.
    pub outcome: Outcome,
}

/// All decisions of a cycle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CycleReport {
    /// Decisions, in the order in which they were made.
    pub decisions: Vec<Decision>,
    /// Per queue, preemptions left out because another entry took the targets or the room.
    pub skipped_preemptions: BTreeMap<QueueId, u32>,
    /// Per queue and result, how often targets were recomputed.
    pub recomputations: BTreeMap<(QueueId, &'static str), u32>,
    /// How many heads there were.
    pub heads: usize,
}

impl Decision {
    /// Whether the workload was admitted.
    pub const fn is_admission(&self) -> bool {
        matches!(self.outcome, Outcome::Admitted(_))
    }
}

impl CycleReport {
    /// Whether anything was admitted or evicted.
    pub fn made_progress(&self) -> bool {
        self.decisions
            .iter()
            .any(|decision| matches!(decision.outcome, Outcome::Admitted(_) | Outcome::Evicted { .. }))
    }

    /// How many workloads were admitted.
    pub fn admitted(&self) -> usize {
        self.decisions.iter().filter(|decision| decision.is_admission()).count()
    }
}
