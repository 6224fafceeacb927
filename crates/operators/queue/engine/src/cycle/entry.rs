//! An entry of a cycle: a head with its assignment, targets and outcome.

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::reasons::QuotaReservedReason;

use crate::flavors::{Assignment, Mode, Subject};
use crate::model::{PreemptionPolicy, Usage};
use crate::names::WorkloadId;
use crate::preemption::Target;
use crate::queue::{Pending, RequeueReason};
use crate::state::{Queue, State};
use crate::tas::TasUse;

/// The status of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryStatus {
    /// Evaluated only.
    #[default]
    NotNominated,
    /// Chosen.
    Nominated,
    /// Left out because of another entry.
    Skipped,
    /// Needs preemption but may not preempt.
    PreemptionGated,
    /// Evicted.
    Evicted,
    /// Admitted.
    Assumed,
}

/// A head.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The workload.
    pub id: WorkloadId,
    /// What is evaluated.
    pub subject: Subject,
    /// What it would get.
    pub assignment: Assignment,
    /// What it would preempt.
    pub targets: Vec<Target>,
    /// Whether it waits for victims already.
    pub is_preemptor: bool,
    /// The number of the try, if it is a second pass.
    pub second_pass: Option<u32>,
    /// How far it came.
    pub status: EntryStatus,
    /// The message clients see.
    pub message: String,
    /// The reason clients see.
    pub reason: Option<QuotaReservedReason>,
    /// Why it goes back to its queue.
    pub requeue: RequeueReason,
    /// Nothing is to be written.
    pub skip_status: bool,
    pub(crate) evict: Vec<Target>,
    pub(crate) already_evicted: usize,
    pub(crate) migrate: Option<WorkloadId>,
}

/// A boxed entry: it is large, is moved several times, and a cycle may have thousands.
pub type Head = Box<Entry>;

impl Entry {
    /// A head before evaluation.
    pub fn new(id: WorkloadId, subject: Subject) -> Self {
        Self {
            id,
            subject,
            assignment: Assignment::default(),
            targets: Vec::new(),
            is_preemptor: false,
            second_pass: None,
            status: EntryStatus::default(),
            message: String::new(),
            reason: None,
            requeue: RequeueReason::default(),
            skip_status: false,
            evict: Vec::new(),
            already_evicted: 0,
            migrate: None,
        }
    }

    /// What goes back to the queue.
    pub(crate) fn pending(&mut self, evaluated_generation: i64) -> Pending {
        Pending {
            workload: std::sync::Arc::clone(&self.subject.workload),
            shape: self.subject.workload.shape,
            progress: self.subject.progress.take().map(Box::new),
            evaluated_generation,
        }
    }

    pub(crate) fn record(&mut self, mut assignment: Assignment, targets: Vec<Target>, state: &State) {
        self.message =
            if assignment.mode() == Mode::Fit { String::new() } else { assignment.message(&state.names) };
        self.subject.progress = Some(std::mem::take(&mut assignment.progress));
        self.assignment = assignment;
        self.targets = targets;
    }

    /// Leaves the entry out of this cycle; how far its search came is kept only with `preserve`.
    pub fn skip(&mut self, message: &str, reason: QuotaReservedReason, preserve: bool) {
        self.status = EntryStatus::Skipped;
        message.clone_into(&mut self.message);
        self.reason = Some(reason);
        if !preserve {
            self.subject.progress = None;
        }
    }

    /// Notes how many victims were evicted, or could not be.
    pub fn preempted(&mut self, preempted: usize, failed: usize) {
        self.subject.progress = None;
        let (message, requeue) = preemption_outcome(preempted, failed);
        self.message.push_str(&message);
        self.requeue = requeue.unwrap_or(self.requeue);
    }

    /// What it would add: quota unless it has it already, and places beyond those it has.
    pub(super) fn net_usage(&self, state: &State) -> (Usage, Vec<TasUse>) {
        (self.net_quota(self.assignment.usage.clone()), self.net_places(state))
    }

    fn net_quota(&self, quota: Usage) -> Usage {
        if self.subject.workload.has_quota_reservation() { Usage::new() } else { quota }
    }

    fn net_places(&self, state: &State) -> Vec<TasUse> {
        let workload = &self.subject.workload;
        if state.settings.gates.tas {
            self.assignment.tas_usage(workload, state, workload.admission.as_deref())
        } else {
            Vec::new()
        }
    }

    /// What it keeps from others while it waits without victims.
    pub(super) fn reservation(&self, state: &State, queue: &Queue) -> (Usage, Vec<TasUse>) {
        (self.net_quota(reserved_without_targets(&self.assignment, state, queue)), self.net_places(state))
    }
}

/// What the message of an entry ends with whose victims are on their way out.
pub(crate) fn preempting(count: usize) -> String {
    format!(". Pending the preemption of {count} workload(s)")
}

/// The end of the message, and why the entry goes back, when `preempted` victims are on their way out
/// and `failed` could not be evicted.
pub(crate) fn preemption_outcome(preempted: usize, failed: usize) -> (String, Option<RequeueReason>) {
    match (preempted, failed) {
        (0, 0) => (String::new(), None),
        (0, failed) => (
            format!(". Preempting {failed} workload(s) failed, will retry."),
            Some(RequeueReason::PreemptionFailed),
        ),
        (preempted, _) => (preempting(preempted), Some(RequeueReason::PendingPreemption)),
    }
}

/// Quota that an entry which needs preemption but has no candidates keeps from those behind it: what it
/// requests, up to what its queue may use. A queue over its borrowing limit keeps a negative amount.
pub fn reserved_without_targets(assignment: &Assignment, state: &State, queue: &Queue) -> Usage {
    if assignment.mode() != Mode::Preempt {
        return assignment.usage.clone();
    }
    let reserve = |(fr, value): &(crate::model::Fr, crate::amount::Amount)| {
        let quota = state.tree.quota(queue.node, *fr);
        let used = state.tree.usage(queue.node, *fr);
        let reserved = match (assignment.borrowing > 0, quota.borrowing_limit) {
            (true, None) => *value,
            (true, Some(limit)) => (*value).min(quota.nominal + limit - used),
            (false, _) => (*value).min(quota.nominal - used).floor_zero(),
        };
        (*fr, reserved)
    };
    assignment.usage.iter().map(reserve).collect()
}

/// Whether the queue can always reclaim its quota.
pub(super) fn can_always_reclaim(queue: &Queue) -> bool {
    queue.spec.preemption.reclaim_within_cohort == PreemptionPolicy::Any
}
