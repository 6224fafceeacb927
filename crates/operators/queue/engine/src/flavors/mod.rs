//! Which flavor every pod set gets, and whether that fits now, after preemption, or not at all.

mod assign;
mod compat;
mod partial;
mod reasons;
pub(crate) mod topology;

use std::fmt::Write;
use std::sync::Arc;

pub use assign::{Oracle, Subject, assign};
pub use partial::{Size, grow_counts, search_counts};
pub use reasons::{NoFitReason, Reason};
pub(crate) use topology as topology_placement;
pub(crate) use topology::tas_requests;
pub use topology::{to_place, with_topology};

use crate::amount::Amount;
use crate::model::{Admission, Delayed, PodSetAdmission, ShapeHash, Usage, Workload, add_usage};
use crate::names::{FlavorId, Names, ResourceId, WorkloadId};
use crate::requests::Requests;
use crate::state::State;
use crate::tas::{TasUse, TopologyAssignment};

/// How well an assignment fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Not at all.
    NoFit,
    /// After preempting others.
    Preempt,
    /// After preemptions already issued for another workload.
    DeferredFit,
    /// Now.
    Fit,
}

impl Mode {
    /// The name clients see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoFit => "NoFit",
            Self::Preempt => "Preempt",
            Self::DeferredFit => "DeferredFit",
            Self::Fit => "Fit",
        }
    }
}

/// What preemption in one flavor would evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Possibility {
    /// There are no candidates.
    NoCandidates,
    /// Workloads of the own queue, among others.
    Preempt,
    /// Only workloads of queues that borrow.
    Reclaim,
}

impl Possibility {
    /// The name clients see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoCandidates => "NoCandidates",
            Self::Preempt => "Preempt",
            Self::Reclaim => "Reclaim",
        }
    }
}

/// How well one flavor fits, finely enough to rank flavors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlavorMode {
    /// Not at all.
    NoFit,
    /// Only with preemption, and there are no candidates.
    NoCandidates,
    /// With preemption in the own queue.
    Preempt,
    /// With preemption of borrowers only.
    Reclaim,
    /// Now.
    Fit,
}

impl FlavorMode {
    /// The coarse mode.
    pub const fn mode(self) -> Mode {
        match self {
            Self::NoFit => Mode::NoFit,
            Self::NoCandidates | Self::Preempt | Self::Reclaim => Mode::Preempt,
            Self::Fit => Mode::Fit,
        }
    }

    const fn possibility(self) -> Option<Possibility> {
        match self {
            Self::NoCandidates => Some(Possibility::NoCandidates),
            Self::Preempt => Some(Possibility::Preempt),
            Self::Reclaim => Some(Possibility::Reclaim),
            Self::NoFit | Self::Fit => None,
        }
    }
}

/// How well a flavor fits and how far it reaches for quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granular {
    /// How well.
    pub mode: FlavorMode,
    /// Height of the subtree it borrows from.
    pub height: u32,
}

impl Granular {
    const WORST: Self = Self { mode: FlavorMode::NoFit, height: u32::MAX };
    const BEST: Self = Self { mode: FlavorMode::Fit, height: 0 };

    /// Whether this is strictly better. A flavor without candidates is better only than no fit.
    pub fn is_better_than(self, other: Self, preemption_over_borrowing: bool) -> bool {
        use FlavorMode::{NoCandidates, NoFit};
        if self.mode == NoFit || other.mode == NoFit {
            return self.mode != NoFit;
        }
        if (self.mode == NoCandidates) != (other.mode == NoCandidates) {
            return other.mode == NoCandidates;
        }
        let (mode, height) = (self.mode.cmp(&other.mode), other.height.cmp(&self.height));
        let order = if preemption_over_borrowing { height.then(mode) } else { mode.then(height) };
        order.is_gt()
    }
}

/// A flavor given to a resource of a pod set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlavorChoice {
    /// The flavor.
    pub flavor: FlavorId,
    /// How well it fits.
    pub mode: Mode,
    /// The last flavor tried, or −1 if that was the last there is.
    pub tried: i32,
    /// Height of the subtree it borrows from.
    pub height: u32,
}

/// A flavor that was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The flavor.
    pub flavor: FlavorId,
    /// How well it fits.
    pub mode: Mode,
    /// Height of the subtree it would borrow from.
    pub height: u32,
    /// What preemption would evict.
    pub possibility: Option<Possibility>,
    /// What is wrong with it.
    pub reasons: Vec<Reason>,
    /// The worst of that.
    pub no_fit: Option<NoFitReason>,
}

/// What a pod set would get.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSetAssignment {
    /// Its position in the workload.
    pub index: usize,
    /// Its name.
    pub name: Arc<str>,
    /// Flavors per resource.
    pub flavors: Vec<(ResourceId, FlavorChoice)>,
    /// What is in the way.
    pub reasons: Vec<Reason>,
    /// What cannot be helped.
    pub error: Option<String>,
    /// Quota of all pods.
    pub requests: Requests,
    /// Pods.
    pub count: i32,
    /// Where they go.
    pub topology: Option<TopologyAssignment>,
    /// A placement still to come.
    pub delayed: Option<Delayed>,
    /// Flavors tried, by name.
    pub attempts: Arc<Vec<Attempt>>,
}

impl PodSetAssignment {
    /// The flavor of a resource.
    pub fn choice(&self, resource: ResourceId) -> Option<&FlavorChoice> {
        self.flavors.iter().find(|(id, _)| *id == resource).map(|(_, choice)| choice)
    }

    /// How well it fits.
    pub fn mode(&self) -> Mode {
        if self.error.is_some() {
            Mode::NoFit
        } else if self.reasons.is_empty() {
            Mode::Fit
        } else {
            self.flavors.iter().map(|(_, choice)| choice.mode).min().unwrap_or(Mode::NoFit)
        }
    }

    fn set_mode(&mut self, mode: Mode) {
        for (_, choice) in &mut self.flavors {
            choice.mode = mode;
        }
    }

    /// What is in the way, as text: sorted and joined.
    pub fn message(&self, names: &Names) -> String {
        if let Some(error) = &self.error {
            return error.clone();
        }
        let mut texts: Vec<_> = self.reasons.iter().map(|reason| reason.text(names)).collect();
        texts.sort();
        texts.join(", ")
    }
}

/// How far flavor search has come, so that it can go on there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// The last flavor tried, per pod set and resource; −1 is the last there is.
    pub tried: Vec<Vec<(ResourceId, i32)>>,
    /// The queue's generation then.
    pub generation: i64,
    /// The cycle.
    pub cycle: i64,
    /// The workload's shape then.
    pub shape: Option<ShapeHash>,
}

impl Progress {
    /// Whether some flavors were not tried yet.
    pub fn has_pending_flavors(&self) -> bool {
        self.tried.iter().flatten().any(|(_, tried)| *tried != -1)
    }

    /// Whether it was made for a workload of this shape, as far as one can know.
    pub fn matches_shape(&self, shape: Option<ShapeHash>) -> bool {
        self.shape.is_none() || shape.is_none() || self.shape == shape
    }

    /// Whether it no longer counts.
    pub fn is_outdated(&self, generation: i64, cycle: i64, shape: Option<ShapeHash>, preserve: bool) -> bool {
        if preserve {
            if !self.matches_shape(shape) {
                return true;
            }
            if cycle - self.cycle <= 1 {
                return false;
            }
        }
        generation > self.generation
    }

    fn next(&self, pod_set: usize, resource: ResourceId) -> usize {
        let tried = self.tried.get(pod_set).and_then(|tried| tried.iter().find(|(id, _)| *id == resource));
        tried.map_or(0, |(_, tried)| usize::try_from(tried + 1).unwrap_or(0))
    }
}

/// What a workload would get.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignment {
    /// Per pod set, group by group.
    pub pod_sets: Vec<PodSetAssignment>,
    /// Height of the highest subtree it borrows from.
    pub borrowing: u32,
    /// Quota it would use.
    pub usage: Usage,
    /// How far the search came.
    pub progress: Progress,
    /// Why it does not fit at all.
    pub no_fit: Option<NoFitReason>,
    mode: Option<Mode>,
}

impl Assignment {
    /// How well it fits: as the worst of its pod sets.
    pub fn mode(&self) -> Mode {
        if self.pod_sets.is_empty() {
            return Mode::NoFit;
        }
        self.mode
            .unwrap_or_else(|| self.pod_sets.iter().map(PodSetAssignment::mode).min().unwrap_or(Mode::Fit))
    }

    /// Declares how well it fits, for all its flavors.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = Some(mode);
        for pod_set in &mut self.pod_sets {
            pod_set.set_mode(mode);
        }
    }

    fn set_pod_set_mode(&mut self, index: usize, mode: Mode) {
        if let Some(pod_set) = self.pod_sets.iter_mut().find(|pod_set| pod_set.index == index) {
            pod_set.set_mode(mode);
            self.mode = Some(mode);
        }
    }

    /// What a pod set would get.
    pub fn pod_set(&self, index: usize) -> Option<&PodSetAssignment> {
        self.pod_sets.iter().find(|pod_set| pod_set.index == index)
    }

    /// The message clients see.
    pub fn message(&self, names: &Names) -> String {
        let mut parts = Vec::new();
        for pod_set in &self.pod_sets {
            let text = pod_set.message(names);
            if pod_set.error.is_some() {
                return format!("failed to assign flavors to pod set {}: {text}", pod_set.name);
            }
            if !pod_set.reasons.is_empty() {
                parts.push(format!("couldn't assign flavors to pod set {}: {text}", pod_set.name));
            }
        }
        parts.join("; ")
    }

    /// The flavors tried, as the admission event lists them; plain fits are left out.
    pub fn considered(&self, names: &Names) -> String {
        let mut parts = Vec::new();
        for pod_set in &self.pod_sets {
            let attempts: Vec<_> = pod_set
                .attempts
                .iter()
                .filter(|attempt| attempt.mode != Mode::Fit || attempt.height > 0)
                .map(|attempt| attempt.text(names))
                .collect();
            if !attempts.is_empty() {
                parts.push(format!("{}: {}", pod_set.name, attempts.join(", ")));
            }
        }
        parts.join(" | ")
    }

    /// The quota of all pods per flavor, or what it adds to a replaced slice. The implicit `pods` of a
    /// queue that counts them are not part of it.
    pub fn total_requests(&self, subject: &Subject, ignore_undeclared: bool) -> Usage {
        let mut usage = Usage::new();
        let is_partial = subject.workload.can_be_partially_admitted();
        for (index, demand) in subject.demands.iter().enumerate() {
            let Some(assigned) = self.pod_set(index) else {
                continue;
            };
            let replaced = subject.replaced.as_ref().and_then(|replaced| replaced.demands.get(index));
            // A slice that may grow partially has what it was assigned; others have all they ask for, as in Kueue.
            let own = if is_partial { assigned.count } else { demand.count };
            let count = replaced.map_or(assigned.count, |replaced| own.saturating_sub(replaced.count));
            for (resource, value) in demand.scaled_to(count).requests.iter() {
                let choice = assigned.choice(resource);
                if value == 0 || choice.is_none() && ignore_undeclared {
                    continue;
                }
                if let Some(choice) = choice {
                    let fr = crate::model::Fr { flavor: choice.flavor, resource };
                    add_usage(&mut usage, fr, Amount::new(value));
                }
            }
        }
        usage
    }

    /// The places it would occupy beyond those `previous` already counts.
    pub fn tas_usage(&self, workload: &Workload, state: &State, previous: Option<&Admission>) -> Vec<TasUse> {
        let mut uses = Vec::new();
        for assigned in &self.pod_sets {
            let (Some(topology), Some(pod_set)) = (&assigned.topology, workload.pod_sets.get(assigned.index))
            else {
                continue;
            };
            let Ok(flavor) = topology::only_tas_flavor(&assigned.flavors, state) else {
                continue;
            };
            let counted = previous.and_then(|admission| {
                let held = admission.pod_sets.iter().find(|held| held.name == assigned.name)?;
                held.topology.as_ref()
            });
            for domain in &topology.domains {
                let known: i32 = counted.map_or(0, |counted| {
                    let same = counted.domains.iter().filter(|known| known.values == domain.values);
                    same.map(|known| known.count).sum()
                });
                if domain.count > known {
                    uses.push(TasUse {
                        flavor,
                        domain: domain.domain_id().into(),
                        per_pod: pod_set.pod.requests.clone(),
                        count: domain.count - known,
                    });
                }
            }
        }
        uses
    }

    /// The admission clients see.
    pub fn admission(&self, queue: crate::names::QueueId) -> Admission {
        let pod_sets = self.pod_sets.iter().map(|assigned| PodSetAdmission {
            name: Arc::clone(&assigned.name),
            flavors: assigned.flavors.iter().map(|(resource, choice)| (*resource, choice.flavor)).collect(),
            usage: assigned
                .flavors
                .iter()
                .map(|(resource, _)| (*resource, assigned.requests.get(*resource)))
                .collect(),
            count: assigned.count,
            topology: assigned.topology.clone(),
            delayed: assigned.delayed,
        });
        Admission { queue, pod_sets: pod_sets.collect() }
    }
}

impl Attempt {
    fn text(&self, names: &Names) -> String {
        let mut text = format!("{}(", names.flavor_name(self.flavor));
        match self.possibility {
            None => text.push_str(self.mode.name()),
            Some(possibility) => {
                let _ = write!(text, "preemptionMode={}", possibility.name());
            }
        }
        if self.height > 0 {
            let _ = write!(text, ";borrow={}", self.height);
        }
        for reason in self.sorted_reasons(names) {
            text.push(';');
            text.push_str(&reason);
        }
        text.push(')');
        text
    }

    /// The reasons as text, sorted, each once.
    pub fn sorted_reasons(&self, names: &Names) -> Vec<String> {
        let mut texts: Vec<_> = self.reasons.iter().map(|reason| reason.text(names)).collect();
        texts.sort();
        texts.dedup();
        texts
    }
}

/// The slice a workload replaces.
#[derive(Clone, Debug)]
pub struct Replaced {
    /// Its id.
    pub id: WorkloadId,
    /// The slice.
    pub workload: Arc<Workload>,
    /// What it holds.
    pub demands: Vec<crate::model::Demand>,
}
