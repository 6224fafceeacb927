//! The search for flavors.

use std::sync::Arc;

use super::{
    Assignment, Attempt, FlavorChoice, FlavorMode, Granular, Mode, NoFitReason, PodSetAssignment,
    Possibility, Progress, Reason, Replaced, compat, topology,
};
use crate::amount::Amount;
use crate::model::{Demand, Fr, ResourceGroup, Usage, Workload, usage_of};
use crate::names::{FlavorId, QueueId, ResourceId};
use crate::requests::Requests;
use crate::settings::Gates;
use crate::state::{Queue, State};
use crate::tas::PlaceOptions;

/// Answers whether preemption could make room for an amount of one flavor of one resource.
pub trait Oracle {
    /// What preemption would evict, and the height of the subtree borrowed from afterwards.
    fn possibility(&self, state: &mut State, subject: &Subject, fr: Fr, value: Amount) -> (Possibility, u32);
}

/// A workload under evaluation.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The workload.
    pub workload: Arc<Workload>,
    /// The queue that evaluates it.
    pub queue: QueueId,
    /// What it requests.
    pub demands: Vec<Demand>,
    /// How far the search came before.
    pub progress: Option<Progress>,
    /// Evaluated again: only these flavors, per pod set.
    pub pinned: Option<Vec<Vec<(ResourceId, FlavorId)>>>,
    /// The slice it replaces.
    pub replaced: Option<Replaced>,
    /// The scheduling cycle.
    pub cycle: i64,
}

impl Subject {
    /// A workload as it comes from its queue.
    pub fn new(workload: Arc<Workload>, queue: QueueId, cycle: i64) -> Self {
        let demands = workload.demands();
        Self { workload, queue, demands, progress: None, pinned: None, replaced: None, cycle }
    }

    fn replaced_request(&self, index: usize, resource: ResourceId) -> i64 {
        let name = self.workload.pod_sets.get(index).map(|pod_set| &pod_set.name);
        self.replaced.as_ref().map_or(0, |replaced| {
            let at =
                replaced.workload.admission.as_ref().and_then(|admission| {
                    admission.pod_sets.iter().position(|held| Some(&held.name) == name)
                });
            at.and_then(|at| replaced.demands.get(at)).map_or(0, |demand| demand.requests.get(resource))
        })
    }
}

/// Finds flavors for all pod sets, or for `counts` pods of each.
pub fn assign(
    state: &mut State,
    oracle: &impl Oracle,
    subject: &Subject,
    counts: Option<&[i32]>,
) -> Assignment {
    let Some(queue) = state.queue(subject.queue).map(Arc::clone) else {
        return Assignment::default();
    };
    Search { state, oracle, subject, queue: &queue }.run(counts)
}

/// Outcome of the search in one resource group.
struct GroupResult {
    flavors: Vec<(ResourceId, FlavorChoice)>,
    reasons: Vec<Reason>,
    attempts: Vec<Attempt>,
}

/// How one amount fits.
struct FitResult {
    mode: FlavorMode,
    height: u32,
    reason: Option<Reason>,
    no_fit: Option<NoFitReason>,
}

struct Search<'a, O> {
    state: &'a mut State,
    oracle: &'a O,
    subject: &'a Subject,
    queue: &'a Queue,
}

impl<O: Oracle> Search<'_, O> {
    fn gates(&self) -> &Gates {
        &self.state.settings.gates
    }

    fn run(mut self, counts: Option<&[i32]>) -> Assignment {
        let mut assignment = Assignment {
            progress: Progress {
                tried: Vec::new(),
                generation: self.state.tree.generation(self.queue.node),
                cycle: self.subject.cycle,
                shape: self.subject.workload.shape,
            },
            ..Assignment::default()
        };
        for group in self.pod_set_groups(counts) {
            if self.assign_group(group, &mut assignment) {
                return self.explained(assignment);
            }
        }
        if assignment.mode() == Mode::NoFit {
            return self.explained(assignment);
        }
        if self.gates().tas {
            self.place(&mut assignment);
        }
        self.explained(assignment)
    }

    /// Pod sets that must share a flavor, in order of their first members.
    fn pod_set_groups(&self, counts: Option<&[i32]>) -> Vec<Vec<PodSetAssignment>> {
        let workload = &self.subject.workload;
        let mut groups: Vec<(Option<&str>, Vec<PodSetAssignment>)> = Vec::new();
        for (index, demand) in self.subject.demands.iter().enumerate() {
            let Some(pod_set) = workload.pod_sets.get(index) else {
                continue;
            };
            let count = counts.and_then(|counts| counts.get(index).copied());
            let assigned =
                self.fresh(index, count.map_or_else(|| demand.clone(), |count| demand.scaled_to(count)));
            let name = pod_set.group();
            match groups.iter_mut().find(|(group, _)| name.is_some() && *group == name) {
                Some((_, members)) => members.push(assigned),
                None => groups.push((name, vec![assigned])),
            }
        }
        groups.into_iter().map(|(_, members)| members).collect()
    }

    /// A pod set before the search; with what it already has, if it is admitted.
    fn fresh(&self, index: usize, demand: Demand) -> PodSetAssignment {
        let workload = &self.subject.workload;
        let mut requests = demand.requests;
        if self.queue.spec.group_of(ResourceId::PODS).is_some() {
            requests.set(ResourceId::PODS, i64::from(demand.count));
        }
        let mut assigned = PodSetAssignment {
            index,
            name: workload.pod_sets.get(index).map_or_else(|| "".into(), |pod_set| Arc::clone(&pod_set.name)),
            flavors: Vec::new(),
            reasons: Vec::new(),
            error: None,
            requests,
            count: demand.count,
            topology: None,
            delayed: None,
            attempts: Arc::default(),
        };
        if self.gates().tas {
            let preset = |flavor| FlavorChoice { flavor, mode: Mode::Fit, tried: 0, height: 0 };
            assigned.flavors = demand.flavors.iter().map(|(id, flavor)| (*id, preset(*flavor))).collect();
            assigned.delayed = demand.delayed;
            if demand.placed {
                let held = workload.admission.as_ref().and_then(|admission| admission.pod_sets.get(index));
                assigned.topology = held.and_then(|held| held.topology.clone());
            }
        }
        assigned
    }

    /// Finds flavors for one group of pod sets; true if there are none and the search ends.
    fn assign_group(&mut self, members: Vec<PodSetAssignment>, assignment: &mut Assignment) -> bool {
        let mut requests = Requests::new();
        let mut chosen: Vec<(ResourceId, FlavorChoice)> = Vec::new();
        for member in &members {
            requests.add(&member.requests);
            merge(&mut chosen, &member.flavors);
        }
        let indices: Vec<usize> = members.iter().map(|member| member.index).collect();
        let mut reasons = Vec::new();
        let mut considered: Vec<Attempt> = Vec::new();
        let order = requests.scan_order(&self.state.names);
        for resource in order.iter().copied() {
            if self.queue.spec.group_of(resource).is_none()
                && (requests.get(resource) == 0 || self.state.settings.ignores_undeclared())
                || chosen.iter().any(|(id, _)| *id == resource)
            {
                continue;
            }
            let Some(group) = self.queue.spec.group_of(resource) else {
                (chosen, reasons) = (Vec::new(), vec![Reason::Undeclared(resource)]);
                break;
            };
            let result = self.search_group(group, &indices, (&requests, &order), resource, &assignment.usage);
            merge_attempts(&mut considered, result.attempts, group, resource);
            if result.flavors.is_empty() {
                (chosen, reasons) = (Vec::new(), result.reasons);
                break;
            }
            merge(&mut chosen, &result.flavors);
            reasons.extend(result.reasons);
        }
        if considered.len() > 1 {
            let names = &self.state.names;
            considered.sort_by(|a, b| names.flavor_name(a.flavor).cmp(names.flavor_name(b.flavor)));
        }
        let considered = Arc::new(considered);
        let mut failed = false;
        for mut member in members {
            member.flavors = self.flavors_of(&member, &chosen);
            member.reasons.clone_from(&reasons);
            member.attempts = Arc::clone(&considered);
            failed |= !member.requests.is_empty() && member.flavors.is_empty();
            self.append(assignment, member);
        }
        failed
    }

    /// A pod set gets the flavors of what it requests; one of a group that requests nothing shares the
    /// flavors that have a topology.
    fn flavors_of(
        &self,
        member: &PodSetAssignment,
        chosen: &[(ResourceId, FlavorChoice)],
    ) -> Vec<(ResourceId, FlavorChoice)> {
        let is_tas = |choice: &FlavorChoice| self.queue.tas_flavors.contains(&choice.flavor);
        let in_group =
            self.subject.workload.pod_sets.get(member.index).is_some_and(|pod_set| pod_set.group().is_some());
        let keep = |(resource, choice): &&(ResourceId, FlavorChoice)| {
            if member.requests.is_empty() {
                in_group && is_tas(choice)
            } else {
                member.requests.find(*resource).is_some()
            }
        };
        let mut kept: Vec<_> = chosen.iter().filter(keep).copied().collect();
        kept.sort_by_key(|(resource, _)| *resource);
        kept
    }

    fn append(&self, assignment: &mut Assignment, member: PodSetAssignment) {
        let mut tried = Vec::new();
        for (resource, choice) in &member.flavors {
            assignment.borrowing = assignment.borrowing.max(choice.height);
            let mut value = member.requests.get(*resource);
            if self.gates().elastic_slices {
                value = value.saturating_sub(self.subject.replaced_request(member.index, *resource));
            }
            let fr = Fr { flavor: choice.flavor, resource: *resource };
            crate::model::add_usage(&mut assignment.usage, fr, Amount::new(value));
            tried.push((*resource, choice.tried));
        }
        assignment.progress.tried.push(tried);
        assignment.pod_sets.push(member);
    }

    /// Tries the flavors of a resource group in order.
    fn search_group(
        &mut self,
        group: &ResourceGroup,
        indices: &[usize],
        (requests, order): (&Requests, &[ResourceId]),
        trigger: ResourceId,
        usage: &Usage,
    ) -> GroupResult {
        let policy = self.queue.spec.fungibility;
        let fungible = self.gates().flavor_fungibility;
        let order: Vec<_> = order.iter().copied().filter(|id| group.resources.contains(id)).collect();
        let mut result = GroupResult { flavors: Vec::new(), reasons: Vec::new(), attempts: Vec::new() };
        let mut best = Granular::WORST;
        let start = match (&self.subject.progress, indices.first()) {
            (Some(progress), Some(first)) if fungible => progress.next(*first, trigger),
            _ => 0,
        };
        let mut attempted = None;
        for (position, quotas) in group.flavors.iter().enumerate().skip(start) {
            attempted = Some(position);
            let flavor = quotas.flavor;
            if let Some(reason) = self.excluded(flavor, indices, trigger) {
                result.reasons.push(reason);
                continue;
            }
            if let Some(reason) = self.incompatible(group, flavor, indices) {
                result.attempts.push(Attempt {
                    flavor,
                    mode: Mode::NoFit,
                    height: 0,
                    possibility: None,
                    reasons: vec![reason.clone()],
                    no_fit: Some(NoFitReason::NoMatchingFlavor),
                });
                result.reasons.push(reason);
                continue;
            }
            let (flavors, mode, attempt) = self.try_flavor(flavor, &order, indices, requests, usage);
            result.reasons.extend(attempt.reasons.iter().cloned());
            result.attempts.push(attempt);
            if fungible {
                let go_on =
                    try_next(mode, policy.try_next_before_preempting, policy.try_next_before_borrowing);
                if !go_on || mode.is_better_than(best, policy.preemption_over_borrowing) {
                    (result.flavors, best) = (flavors, mode);
                }
                if !go_on {
                    break;
                }
            } else if mode.mode > best.mode {
                (result.flavors, best) = (flavors, mode);
                if best.mode == FlavorMode::Fit {
                    break;
                }
            }
        }
        if fungible {
            let last = attempted.is_some_and(|position| position + 1 == group.flavors.len());
            let tried = attempted.filter(|_| !last).and_then(|at| i32::try_from(at).ok()).unwrap_or(-1);
            for (_, choice) in &mut result.flavors {
                choice.tried = tried;
            }
        }
        if best.mode == FlavorMode::Fit {
            result.reasons.clear();
        }
        result
    }

    fn excluded(&self, flavor: FlavorId, indices: &[usize], trigger: ResourceId) -> Option<Reason> {
        if let Some(pinned) = &self.subject.pinned {
            let nominated =
                |index: &usize| pinned.get(*index).is_some_and(|chosen| chosen.contains(&(trigger, flavor)));
            if !indices.iter().any(nominated) {
                return Some(Reason::NotNominated(flavor, trigger));
            }
        }
        if self.gates().concurrent_admission
            && let Some(allowed) =
                self.subject.workload.links.as_ref().and_then(|links| links.allowed_flavors.as_ref())
            && !allowed.contains(&flavor)
        {
            return Some(Reason::NotAllowed(flavor));
        }
        None
    }

    fn incompatible(&self, group: &ResourceGroup, flavor: FlavorId, indices: &[usize]) -> Option<Reason> {
        let pod_sets = indices.iter().filter_map(|index| self.subject.workload.pod_sets.get(*index));
        pod_sets
            .into_iter()
            .find_map(|pod_set| compat::mismatch(self.state, self.queue, group, flavor, pod_set))
    }

    /// How well a flavor fits for all resources of its group: as the worst of them.
    fn try_flavor(
        &mut self,
        flavor: FlavorId,
        order: &[ResourceId],
        indices: &[usize],
        requests: &Requests,
        usage: &Usage,
    ) -> (Vec<(ResourceId, FlavorChoice)>, Granular, Attempt) {
        let rank = self.queue.spec.fungibility.preemption_over_borrowing;
        let mut worst = Granular::BEST;
        let mut height = 0;
        let mut flavors = Vec::new();
        let mut reasons = Vec::new();
        let mut no_fit = None;
        for resource in order.iter().copied() {
            let mut value = requests.get(resource);
            if self.gates().elastic_slices && self.subject.replaced.is_some() {
                match self.less_replaced(flavor, resource, indices, value) {
                    Ok(rest) => value = rest,
                    Err((reason, rest)) => {
                        worst = Granular::WORST;
                        reasons.push(reason);
                        no_fit = no_fit.max(Some(NoFitReason::NoMatchingFlavor));
                        value = rest;
                    }
                }
            }
            let fr = Fr { flavor, resource };
            let fit = self.fit(fr, usage_of(usage, fr), value);
            reasons.extend(fit.reason);
            no_fit = no_fit.max(fit.no_fit);
            height = height.max(fit.height);
            let mode = Granular { mode: fit.mode, height: fit.height };
            if worst.is_better_than(mode, rank) {
                worst = mode;
            }
            if worst.mode != FlavorMode::NoFit {
                flavors.push((
                    resource,
                    FlavorChoice { flavor, mode: fit.mode.mode(), tried: 0, height: fit.height },
                ));
            }
        }
        let attempt = Attempt {
            flavor,
            mode: worst.mode.mode(),
            height,
            possibility: worst.mode.possibility(),
            reasons,
            no_fit,
        };
        (flavors, worst, attempt)
    }

    /// What a slice requests beyond the one it replaces, which must use the same flavor.
    fn less_replaced(
        &self,
        flavor: FlavorId,
        resource: ResourceId,
        indices: &[usize],
        value: i64,
    ) -> Result<i64, (Reason, i64)> {
        let mut rest = value;
        for index in indices {
            let old = self.subject.replaced.as_ref().and_then(|replaced| replaced.demands.get(*index));
            let original = old.and_then(|demand| demand.flavor_of(resource));
            if original != Some(flavor) {
                return Err((Reason::OtherSliceFlavor(flavor, original), rest));
            }
            rest = rest.saturating_sub(old.map_or(0, |demand| demand.requests.get(resource)));
        }
        Ok(rest)
    }

    fn fit(&mut self, fr: Fr, considered: Amount, request: i64) -> FitResult {
        let node = self.queue.node;
        let value = if considered.is_unlimited() {
            considered
        } else {
            Amount::new(considered.get().saturating_add(request))
        };
        let maximum = self.state.tree.potential(node, fr);
        if value > maximum {
            return FitResult {
                mode: FlavorMode::NoFit,
                height: 0,
                reason: Some(Reason::ExceedsMaximum { fr, considered, request, maximum }),
                no_fit: Some(NoFitReason::ExceedsMaxQuota),
            };
        }
        let (height, may_reclaim) = self.state.tree.lowest_fitting_height(node, fr, value);
        let available = self.state.available(node, fr);
        if value <= available {
            return FitResult { mode: FlavorMode::Fit, height, reason: None, no_fit: None };
        }
        let reason = Some(Reason::Insufficient { fr, missing: value - available });
        if self.state.tree.quota(node, fr).nominal >= value
            || may_reclaim
            || self.can_preempt_while_borrowing()
        {
            let (possibility, height) = self.oracle.possibility(self.state, self.subject, fr, value);
            let mode = match possibility {
                Possibility::NoCandidates => FlavorMode::NoCandidates,
                Possibility::Preempt => FlavorMode::Preempt,
                Possibility::Reclaim => FlavorMode::Reclaim,
            };
            return FitResult { mode, height, reason, no_fit: None };
        }
        FitResult { mode: FlavorMode::NoFit, height, reason, no_fit: Some(NoFitReason::WaitingForQuota) }
    }

    fn can_preempt_while_borrowing(&self) -> bool {
        use crate::model::PreemptionPolicy::Never;
        let preemption = &self.queue.spec.preemption;
        preemption.borrowing_threshold().is_some()
            || self.state.settings.is_fair() && preemption.reclaim_within_cohort != Never
    }

    /// Finds places for pods whose quota fits; if there are none, checks whether an empty cluster has.
    fn place(&mut self, assignment: &mut Assignment) {
        let workload = Arc::clone(&self.subject.workload);
        let requests = topology::tas_requests(assignment, &workload, self.subject, self.state, self.queue);
        if assignment.mode() == Mode::Fit {
            let placements = topology::place(self.state, &requests, PlaceOptions::explained(&workload));
            match topology::failure(&placements) {
                Some((_, index, reason)) => {
                    if let Some(assigned) =
                        assignment.pod_sets.iter_mut().find(|assigned| assigned.index == index)
                    {
                        assigned.reasons.push(Reason::Topology(reason.to_owned()));
                    }
                    assignment.set_pod_set_mode(index, Mode::Preempt);
                }
                None => topology::apply(assignment, placements),
            }
        }
        if assignment.mode() == Mode::Preempt && workload.unhealthy_nodes.is_empty() {
            let empty = PlaceOptions::on_empty(&workload);
            let fits = topology::can_place(self.state, &requests, empty);
            let placements = if fits { Vec::new() } else { topology::place(self.state, &requests, empty) };
            if let Some((flavor, index, _)) = topology::failure(&placements) {
                if let Some(assigned) =
                    assignment.pod_sets.iter_mut().find(|assigned| assigned.index == index)
                    && let Some(attempt) = Arc::make_mut(&mut assigned.attempts)
                        .iter_mut()
                        .find(|attempt| attempt.flavor == flavor)
                {
                    attempt.mode = Mode::NoFit;
                    attempt.no_fit = Some(NoFitReason::TopologyPlacementFailed);
                }
                assignment.set_pod_set_mode(index, Mode::NoFit);
            } else {
                for request in requests.values().flatten() {
                    assignment.set_pod_set_mode(request.index, Mode::Preempt);
                }
            }
        }
    }

    /// Adds why nothing fits: per flavor the worst over resources, per group the mildest over flavors,
    /// then the worst over groups and over pod sets.
    fn explained(&self, mut assignment: Assignment) -> Assignment {
        if assignment.mode() != Mode::NoFit || !self.gates().observability {
            return assignment;
        }
        let mut overall: Option<NoFitReason> = None;
        for assigned in assignment.pod_sets.iter().filter(|assigned| assigned.mode() == Mode::NoFit) {
            if assigned.attempts.is_empty() {
                overall = overall.max(Some(NoFitReason::NoMatchingFlavor));
                continue;
            }
            let mut mildest: Vec<(Option<usize>, Option<NoFitReason>)> = Vec::new();
            for attempt in assigned.attempts.iter().filter(|attempt| attempt.mode == Mode::NoFit) {
                let groups = self.queue.spec.groups.iter();
                let group = groups
                    .into_iter()
                    .position(|group| group.flavors.iter().any(|quotas| quotas.flavor == attempt.flavor));
                match mildest.iter_mut().find(|(known, _)| group.is_some() && *known == group) {
                    Some((_, reason)) => *reason = (*reason).min(attempt.no_fit),
                    None => mildest.push((group, attempt.no_fit)),
                }
            }
            overall = overall.max(mildest.into_iter().filter_map(|(_, reason)| reason).max());
        }
        assignment.no_fit = overall;
        assignment
    }
}

/// Whether to try the next flavor although this one might do.
fn try_next(mode: Granular, before_preempting: bool, before_borrowing: bool) -> bool {
    match mode.mode {
        FlavorMode::NoFit | FlavorMode::NoCandidates => true,
        FlavorMode::Preempt | FlavorMode::Reclaim if before_preempting => true,
        _ => mode.height > 0 && before_borrowing,
    }
}

fn merge(chosen: &mut Vec<(ResourceId, FlavorChoice)>, more: &[(ResourceId, FlavorChoice)]) {
    for (resource, choice) in more {
        match chosen.iter_mut().find(|(id, _)| id == resource) {
            Some((_, known)) => *known = *choice,
            None => chosen.push((*resource, *choice)),
        }
    }
}

/// Joins what was found out about flavors for different resources: the worst counts.
fn merge_attempts(
    known: &mut Vec<Attempt>,
    found: Vec<Attempt>,
    group: &ResourceGroup,
    resource: ResourceId,
) {
    if !found.is_empty() {
        for attempt in known.iter_mut() {
            let of_group = group.flavors.iter().any(|quotas| quotas.flavor == attempt.flavor);
            if of_group && !found.iter().any(|found| found.flavor == attempt.flavor) {
                attempt.mode = Mode::NoFit;
                attempt.reasons.push(Reason::NotProvided(attempt.flavor, resource));
                attempt.no_fit = Some(NoFitReason::NoMatchingFlavor);
            }
        }
    }
    for attempt in found {
        match known.iter_mut().find(|known| known.flavor == attempt.flavor) {
            None => known.push(attempt),
            Some(known) => {
                known.mode = known.mode.min(attempt.mode);
                known.height = known.height.max(attempt.height);
                known.possibility = match (known.possibility, attempt.possibility) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                known.reasons.extend(attempt.reasons);
                known.no_fit = known.no_fit.max(attempt.no_fit);
            }
        }
    }
}
