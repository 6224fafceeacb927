//! Preemption: which workloads to evict so that another fits.

mod candidates;
mod classical;
mod fair;
mod removal;

use std::cell::RefCell;
use std::sync::Arc;

pub use candidates::{compare_candidates, satisfies_policy};
pub use fair::{FairOrder, TargetQueue};
pub use quintet_api::kueue::reasons::PreemptionReason;

use crate::amount::Amount;
use crate::flavors::topology_placement::{self as topology, TasRequests};
use crate::flavors::{Assignment, Mode, Oracle, Possibility, Subject, tas_requests};
use crate::model::{Fr, Usage};
use crate::names::WorkloadId;
use crate::quota::NodeId;
use crate::state::{Queue, State};
use crate::tas::{PlaceOptions, TasUse};

/// A workload to preempt. A slice that is replaced is a target without a reason: it is finished, not
/// evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The workload.
    pub workload: WorkloadId,
    /// Why.
    pub reason: Option<PreemptionReason>,
}

/// A search for targets.
pub(crate) struct Need<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) queue: Arc<Queue>,
    /// What the workload needs in all.
    pub(crate) usage: Usage,
    /// Where it already is.
    pub(crate) tas: Vec<TasUse>,
    /// What there is not enough of.
    pub(crate) frs: Vec<Fr>,
    /// Pods that must find places too.
    pub(crate) places: TasRequests<'a>,
}

impl Need<'_> {
    pub(crate) fn node(&self) -> NodeId {
        self.queue.node
    }

    /// Whether the workload fits now.
    pub(crate) fn fits(&self, state: &State, allow_borrowing: bool) -> bool {
        self.has_quota(state, allow_borrowing) && self.can_be_placed(state)
    }

    fn has_quota(&self, state: &State, allow_borrowing: bool) -> bool {
        let node = self.node();
        self.usage.iter().all(|(fr, value)| {
            (allow_borrowing || !state.tree.is_borrowing_with(node, *fr, *value))
                && *value <= state.available(node, *fr)
        })
    }

    fn can_be_placed(&self, state: &State) -> bool {
        topology::can_place(state, &self.places, self.options())
    }

    /// Whether at most one pod set wants places, so that more room is never worse. Where several are placed
    /// one after another, more room for the first may leave less for the second.
    fn is_alone(&self) -> bool {
        topology::is_alone(&self.places, self.options())
    }

    fn options(&self) -> PlaceOptions<'_> {
        PlaceOptions { workload: Some(&self.subject.workload), ..PlaceOptions::default() }
    }
}

/// Finds the targets of an assignment in mode [`Mode::Preempt`]; none if preemption would not help.
///
/// `known` is what the oracle found on the way to the assignment: the same need has the same answer.
pub fn targets(
    state: &mut State,
    subject: &Subject,
    assignment: &Assignment,
    known: &Simulation,
) -> Vec<Target> {
    let Some(queue) = state.queue(subject.queue).map(Arc::clone) else {
        return Vec::new();
    };
    let mut frs: Vec<Fr> = Vec::new();
    for pod_set in &assignment.pod_sets {
        for (resource, choice) in &pod_set.flavors {
            let fr = Fr { flavor: choice.flavor, resource: *resource };
            if choice.mode == Mode::Preempt && !frs.contains(&fr) {
                frs.push(fr);
            }
        }
    }
    let workload = &subject.workload;
    let tas = workload
        .admission
        .as_ref()
        .map_or_else(Vec::new, |admission| crate::state::tas_uses(workload, admission));
    let usage = assignment.total_requests(subject, state.settings.ignores_undeclared());
    let places = if state.settings.gates.tas {
        tas_requests(&mut assignment.clone(), workload, subject, state, &queue)
    } else {
        TasRequests::new()
    };
    if places.is_empty()
        && let Some(found) = known.recall(&usage, &frs)
    {
        return found;
    }
    let need = Need { subject, queue, usage, tas, frs, places };
    search(state, &need)
}

fn search(state: &mut State, need: &Need<'_>) -> Vec<Target> {
    if state.settings.is_fair() { fair::search(state, need) } else { classical::search(state, need) }
}

/// The oracle of flavor search: a real search for targets, for one flavor of one resource. It remembers
/// answers and is good for one evaluation only.
#[derive(Clone, Debug, Default)]
pub struct Simulation {
    /// The last need and its targets.
    last: RefCell<Option<(Usage, Vec<Target>)>>,
}

impl Simulation {
    fn recall(&self, usage: &Usage, frs: &[Fr]) -> Option<Vec<Target>> {
        let last = self.last.borrow();
        let (known, targets) = last.as_ref()?;
        (known == usage && frs.len() == 1 && usage.iter().all(|(fr, _)| frs.contains(fr)))
            .then(|| targets.clone())
    }
}

impl Oracle for Simulation {
    fn possibility(&self, state: &mut State, subject: &Subject, fr: Fr, value: Amount) -> (Possibility, u32) {
        let Some(queue) = state.queue(subject.queue).map(Arc::clone) else {
            return (Possibility::NoCandidates, 0);
        };
        let node = queue.node;
        let usage = vec![(fr, value)];
        let (tas, places) = (Vec::new(), TasRequests::new());
        let need = Need { subject, queue, usage, tas, frs: vec![fr], places };
        let found = search(state, &need);
        self.last.replace(Some((need.usage, found.clone())));
        if found.is_empty() {
            return (Possibility::NoCandidates, state.tree.lowest_fitting_height(node, fr, value).0);
        }
        let mark = state.mark();
        let mut own = false;
        for target in &found {
            own |= state.held(target.workload).is_some_and(|held| held.queue == subject.queue);
            state.try_without(target.workload, false);
        }
        let (height, _) = state.tree.lowest_fitting_height(node, fr, value);
        state.rollback(mark);
        (if own { Possibility::Preempt } else { Possibility::Reclaim }, height)
    }
}
