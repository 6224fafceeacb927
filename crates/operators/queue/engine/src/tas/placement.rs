//! Finding domains for the pods of a workload.

use std::cmp::Ordering;

use super::cache::Undo;
use super::counting::Counting;
use super::message::Miss;
use super::params::Params;
use super::stats::Shortages;
use super::tree::{DomainIdx, DomainState, Tree};
use super::usage::Assumed;
use super::{DomainAssignment, PlaceOptions, Tas, TasFlavor, TopologyAssignment};
use crate::model::{PodSet, PodSetUpdate};
use crate::names::{FlavorId, Names};
use crate::requests::Requests;
use crate::settings::Gates;

/// A pod set to place.
#[derive(Clone, Debug)]
pub struct PlacementRequest<'a> {
    /// Its position in the workload.
    pub index: usize,
    /// The pod set.
    pub pod_set: &'a PodSet,
    /// How many pods.
    pub count: i32,
    /// What one pod requests of its node.
    pub per_pod: Requests,
    /// No topology is requested but all flavors have one.
    pub implied: bool,
    /// What admission checks added to the pods.
    pub updates: Vec<&'a PodSetUpdate>,
    /// Where the pods of the slice being replaced are.
    pub previous: Option<TopologyAssignment>,
}

/// Where a pod set goes, or why it cannot go anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The pod set's position in the workload.
    pub index: usize,
    /// The placement.
    pub result: Result<TopologyAssignment, String>,
}

/// One workload's placement in one flavor.
pub(super) struct Placer<'a> {
    pub(super) tas: &'a Tas,
    pub(super) id: FlavorId,
    pub(super) flavor: &'a TasFlavor,
    pub(super) tree: &'a Tree,
    pub(super) options: PlaceOptions<'a>,
    pub(super) names: &'a Names,
    pub(super) gates: &'a Gates,
    pub(super) states: Vec<DomainState>,
    pub(super) shortages: Shortages,
    /// What was changed, while counts are to be remembered.
    pub(super) undo: Option<Undo>,
}

/// The constraint of a replacement: only leaves below this domain.
pub(super) type Within = Option<DomainIdx>;

impl<'a> Placer<'a> {
    pub(super) fn new(
        tas: &'a Tas,
        (id, flavor): (FlavorId, &'a TasFlavor),
        options: PlaceOptions<'a>,
        (names, gates): (&'a Names, &'a Gates),
    ) -> Self {
        Self {
            tas,
            id,
            flavor,
            tree: &flavor.tree,
            options,
            names,
            gates,
            states: Vec::new(),
            shortages: Shortages::default(),
            undo: None,
        }
    }

    #[expect(clippy::indexing_slicing, reason = "states has one entry per domain of the tree")]
    pub(super) fn state(&self, domain: DomainIdx) -> &DomainState {
        &self.states[domain]
    }

    #[expect(clippy::indexing_slicing, reason = "states has one entry per domain of the tree")]
    pub(super) fn state_mut(&mut self, domain: DomainIdx) -> &mut DomainState {
        let state = &mut self.states[domain];
        if let Some(undo) = &mut self.undo {
            undo.states.push((domain, *state));
        }
        state
    }

    pub(super) fn place_all(
        &mut self,
        requests: &[PlacementRequest<'_>],
        assumed: &mut Assumed,
    ) -> Vec<Placement> {
        let mut placed = Vec::new();
        for group in groups(requests) {
            let failed = if self.options.workload.is_some_and(|workload| !workload.unhealthy_nodes.is_empty())
            {
                self.replace_group(&group, assumed, &mut placed)
            } else {
                self.place_group(&group, assumed, &mut placed)
            };
            if failed {
                break;
            }
        }
        placed
    }

    fn place_group(
        &mut self,
        group: &[&PlacementRequest<'_>],
        assumed: &mut Assumed,
        placed: &mut Vec<Placement>,
    ) -> bool {
        let (workers, leader) = workers_and_leader(group);
        let Some(workers) = workers else {
            return false;
        };
        if self.gates.elastic_slices_tas
            && let Some(outcome) = self.place_elastic(workers, leader, assumed)
        {
            let failed = outcome.iter().any(|placement| placement.result.is_err());
            placed.extend(outcome);
            return failed;
        }
        match self.find(workers, leader, assumed, None) {
            Err(reason) => {
                placed.extend(
                    group
                        .iter()
                        .map(|request| Placement { index: request.index, result: Err(reason.clone()) }),
                );
                true
            }
            Ok((for_workers, for_leader)) => {
                let mut accept = |request: &PlacementRequest<'_>, assignment: TopologyAssignment| {
                    Tas::assume(self.flavor, assumed, &assignment, &request.per_pod);
                    placed.push(Placement { index: request.index, result: Ok(assignment) });
                };
                accept(workers, for_workers);
                if let (Some(leader), Some(assignment)) = (leader, for_leader) {
                    accept(leader, assignment);
                }
                false
            }
        }
    }

    /// Finds domains for the workers, and for their leader on top.
    pub(super) fn find(
        &mut self,
        workers: &PlacementRequest<'_>,
        leader: Option<&PlacementRequest<'_>>,
        assumed: &Assumed,
        within: Within,
    ) -> Result<(TopologyAssignment, Option<TopologyAssignment>), String> {
        let params = self.params(workers, leader.is_some())?;
        let counting = Counting::new(self, workers, leader, assumed, within);
        let key = self.count(&params, &counting, params.may_be_balanced(self.gates));
        let chosen = self.choose(&params, &counting).map(|leaves| self.assignments(leaves, leader.is_some()));
        self.remember(key);
        chosen
    }

    /// Whether a pod set fits if it is alone: what [`Placer::find`] finds out, without choosing. One domain
    /// has to be large enough if that is required; otherwise pods may be spread, preferred levels giving
    /// way up to the highest, so that all domains count together.
    pub(super) fn has_room(&mut self, request: &PlacementRequest<'_>) -> bool {
        let Ok(params) = self.params(request, false) else {
            return false;
        };
        let assumed = Assumed::default();
        let counting = Counting::new(self, request, None, &assumed, None);
        let key = self.count(&params, &counting, false);
        let level = if params.required { params.level } else { 0 };
        let domains = self.tree.by_level.get(level).map_or(&[][..], |domains| domains);
        let mut slices = domains.iter().map(|domain| i64::from(self.state(*domain).slices));
        let needed = i64::from(params.slices());
        let has_room = !domains.is_empty()
            && if params.required { slices.any(|own| own >= needed) } else { slices.sum::<i64>() >= needed };
        self.remember(key);
        has_room
    }

    /// Leaves with their pods.
    fn choose(&mut self, params: &Params, counting: &Counting<'_>) -> Result<Vec<DomainIdx>, String> {
        let mut chosen = None;
        if params.may_be_balanced(self.gates) {
            chosen = self.balanced(params);
        }
        let is_balanced = chosen.is_some();
        let (level, domains) = match chosen {
            Some(chosen) => chosen,
            None => self
                .fit_domains(params.level, params)
                .map_err(|miss| self.message(&miss, params, counting))?,
        };
        Ok(self.descend(level, domains, params, is_balanced))
    }

    fn least_free(&self, unconstrained: bool) -> bool {
        unconstrained && self.gates.tas_profile_mixed
    }

    fn compare_affinity(&self, a: &DomainState, b: &DomainState) -> Ordering {
        if self.gates.tas_preferred_affinity { b.affinity.cmp(&a.affinity) } else { Ordering::Equal }
    }

    /// The order in which domains are considered while a leader is to be placed.
    pub(super) fn leader_order(&self, a: DomainIdx, b: DomainIdx, unconstrained: bool) -> Ordering {
        let (x, y) = (self.state(a), self.state(b));
        let slices = x.slices_with_leader.cmp(&y.slices_with_leader);
        y.leaders
            .cmp(&x.leaders)
            .then_with(|| self.compare_affinity(x, y))
            .then(if self.least_free(unconstrained) { slices } else { slices.reverse() })
            .then(x.pods_with_leader.cmp(&y.pods_with_leader))
            .then(a.cmp(&b))
    }

    /// The order in which domains are considered for workers alone.
    pub(super) fn worker_order(&self, a: DomainIdx, b: DomainIdx, unconstrained: bool) -> Ordering {
        let (x, y) = (self.state(a), self.state(b));
        let slices = x.slices.cmp(&y.slices);
        self.compare_affinity(x, y)
            .then(if self.least_free(unconstrained) { slices } else { slices.reverse() })
            .then(x.pods.cmp(&y.pods))
            .then(a.cmp(&b))
    }

    pub(super) fn sorted_with_leader(&self, domains: &[DomainIdx], unconstrained: bool) -> Vec<DomainIdx> {
        let mut sorted = domains.to_vec();
        sorted.sort_by(|a, b| self.leader_order(*a, *b, unconstrained));
        sorted
    }

    pub(super) fn sorted(&self, domains: &[DomainIdx], unconstrained: bool) -> Vec<DomainIdx> {
        let mut sorted = domains.to_vec();
        sorted.sort_by(|a, b| self.worker_order(*a, *b, unconstrained));
        sorted
    }

    fn capacity(&self, domain: DomainIdx, unit: Unit, with_leader: bool) -> i32 {
        let state = self.state(domain);
        match (unit, with_leader) {
            (Unit::Slices, false) => state.slices,
            (Unit::Slices, true) => state.slices_with_leader,
            (Unit::Pods, false) => state.pods,
            (Unit::Pods, true) => state.pods_with_leader,
        }
    }

    /// The domain with the smallest capacity that is enough; the first if none is. With affinity, only
    /// domains that match as well as the first are considered.
    fn tightest(&self, domains: &[DomainIdx], needed: i32, unit: Unit, leaders: i32) -> Option<DomainIdx> {
        let first = *domains.first()?;
        let score = self.state(first).affinity;
        domains
            .iter()
            .copied()
            .take_while(|domain| !self.gates.tas_preferred_affinity || self.state(*domain).affinity == score)
            .filter(|domain| self.state(*domain).leaders >= leaders)
            .filter(|domain| self.capacity(*domain, unit, leaders > 0) >= needed)
            .min_by_key(|domain| self.capacity(*domain, unit, leaders > 0))
            .or(Some(first))
    }

    /// The level and domains that together hold everything.
    fn fit_domains(&mut self, level: usize, params: &Params) -> Result<(usize, Vec<DomainIdx>), Miss> {
        let domains = self.tree.by_level.get(level).map_or(&[][..], |domains| domains);
        let needed = params.slices();
        let (leaders, unconstrained) = (params.leaders, params.unconstrained);
        let by_order = |a: &DomainIdx, b: &DomainIdx| self.leader_order(*a, *b, unconstrained);
        let Some(first) = domains.iter().copied().min_by(by_order) else {
            return Err(Miss::NoDomains(level));
        };
        if self.least_free(unconstrained) {
            let enough = domains.iter().copied().filter(|domain| {
                self.state(*domain).leaders >= leaders
                    && self.capacity(*domain, Unit::Slices, leaders > 0) >= needed
            });
            if let Some(domain) = enough.min_by(by_order) {
                return Ok((level, vec![domain]));
            }
            if params.required {
                let last =
                    domains.iter().copied().max_by(by_order).map_or(0, |domain| self.state(domain).pods);
                return Err(Miss::Slices { fitting: last, needed, level });
            }
        }
        let fits = |domain: DomainIdx| {
            self.state(domain).slices_with_leader >= needed && self.state(domain).leaders >= leaders
        };
        if fits(first) {
            let domain = if self.least_free(unconstrained) {
                first
            } else {
                let sorted = self.sorted_with_leader(domains, unconstrained);
                self.tightest(&sorted, needed, Unit::Slices, leaders).unwrap_or(first)
            };
            return Ok((level, vec![domain]));
        }
        let sorted = self.sorted_with_leader(domains, unconstrained);
        if params.required {
            if self.gates.tas_preferred_affinity
                && let Some(at) = sorted.iter().position(|domain| fits(*domain))
                && let Some(domain) =
                    self.tightest(sorted.get(at..).unwrap_or_default(), needed, Unit::Slices, leaders)
            {
                return Ok((level, vec![domain]));
            }
            return Err(Miss::Slices { fitting: self.state(first).slices, needed, level });
        }
        if level > 0 && !unconstrained {
            return self.fit_domains(level - 1, params);
        }
        self.greedy(level, sorted, params)
    }

    /// Takes domains in order until everything is covered.
    fn greedy(
        &self,
        level: usize,
        sorted: Vec<DomainIdx>,
        params: &Params,
    ) -> Result<(usize, Vec<DomainIdx>), Miss> {
        let best_fit = !self.least_free(params.unconstrained);
        let needed = params.slices();
        let (mut left, mut leaders_left) = (needed, params.leaders);
        let mut chosen = Vec::new();
        let sorted = self.leader_first(sorted, params.count, params.leaders, params.slice_size, Unit::Slices);
        let mut position = 0;
        while leaders_left > 0
            && let Some(mut domain) = sorted.get(position).copied()
            && self.state(domain).leaders > 0
        {
            if best_fit && self.state(domain).slices_with_leader >= left {
                let rest = sorted.get(position..).unwrap_or_default();
                domain = self.tightest(rest, left, Unit::Slices, leaders_left).unwrap_or(domain);
            }
            chosen.push(domain);
            leaders_left -= self.state(domain).leaders;
            left -= self.state(domain).slices_with_leader;
            position += 1;
        }
        if leaders_left > 0 {
            return Err(Miss::Slices { fitting: params.leaders - leaders_left, needed, level });
        }
        let rest = self.sorted(sorted.get(position..).unwrap_or_default(), params.unconstrained);
        for (position, domain) in rest.iter().copied().enumerate() {
            if left <= 0 {
                break;
            }
            let mut domain = domain;
            if best_fit && self.state(domain).slices >= left {
                let rest = rest.get(position..).unwrap_or_default();
                domain = self.tightest(rest, left, Unit::Slices, 0).unwrap_or(domain);
            }
            chosen.push(domain);
            left -= self.state(domain).slices;
        }
        if left > 0 {
            return Err(Miss::Slices { fitting: needed - left, needed, level });
        }
        Ok((level, chosen))
    }

    /// Moves to the front the first domain that can host the leaders without making the whole too small.
    fn leader_first(
        &self,
        mut domains: Vec<DomainIdx>,
        count: i32,
        leaders: i32,
        slice_size: i32,
        unit: Unit,
    ) -> Vec<DomainIdx> {
        if leaders == 0 || domains.len() < 2 {
            return domains;
        }
        let needed = if unit == Unit::Slices { count / slice_size.max(1) } else { count };
        let total: i32 =
            domains.iter().fold(0i32, |sum, domain| sum.saturating_add(self.capacity(*domain, unit, false)));
        let able = domains.iter().position(|domain| {
            let loss = self.capacity(*domain, unit, false) - self.capacity(*domain, unit, true);
            self.state(*domain).leaders >= leaders && total - loss >= needed
        });
        if let Some(at) = able {
            domains.get_mut(..=at).unwrap_or_default().rotate_right(1);
        }
        domains
    }

    /// Gives each domain, in order, as much as it can take until everything is given; the last one is
    /// swapped for the tightest that suffices.
    fn minimise(
        &mut self,
        domains: Vec<DomainIdx>,
        count: i32,
        leaders: i32,
        slice_size: i32,
        unconstrained: bool,
        unit: Unit,
    ) -> Vec<DomainIdx> {
        let domains = self.leader_first(domains, count, leaders, slice_size, unit);
        let best_fit = !self.least_free(unconstrained);
        let size = if unit == Unit::Slices { slice_size.max(1) } else { 1 };
        let (mut left, mut leaders_left) = (count / size, leaders);
        let mut result = Vec::new();
        for (position, domain) in domains.iter().copied().enumerate() {
            let rest = domains.get(position..).unwrap_or_default();
            let with_leader = leaders_left > 0;
            let mut domain = domain;
            let enough = |this: &Self, domain: DomainIdx| {
                this.capacity(domain, unit, with_leader) >= left && this.state(domain).leaders >= leaders_left
            };
            if best_fit && enough(self, domain) {
                domain = self.tightest(rest, left, unit, leaders_left).unwrap_or(domain);
            }
            let last = enough(self, domain);
            let given = if last { left } else { self.capacity(domain, unit, with_leader).min(left) };
            let state = self.state_mut(domain);
            let hosted = if last { leaders_left } else { state.leaders.min(leaders_left) };
            state.leaders = hosted;
            state.pods = given * size;
            if unit == Unit::Slices {
                state.slices = given;
            }
            result.push(domain);
            if last {
                return result;
            }
            leaders_left -= hosted;
            left -= given;
        }
        // The level above promised more than its children hold; nothing is placed.
        Vec::new()
    }

    fn children_of(&self, domains: &[DomainIdx]) -> Vec<DomainIdx> {
        domains.iter().flat_map(|domain| self.tree.domain(*domain).children.iter().copied()).collect()
    }

    /// From the chosen domains down to leaves with their pods.
    fn descend(
        &mut self,
        level: usize,
        domains: Vec<DomainIdx>,
        params: &Params,
        balanced: bool,
    ) -> Vec<DomainIdx> {
        let (count, leaders, size) = (params.count, params.leaders, params.slice_size);
        let unconstrained = params.unconstrained;
        let lowest = self.tree.levels.len().saturating_sub(1);
        let mut domains = self.minimise(domains, count, leaders, size, unconstrained, Unit::Slices);
        let mut level = level;
        while level < lowest.min(params.slice_level) && !balanced {
            // Above the slice level the children of all chosen domains compete; the parents' shares do
            // not bind, so that fewer domains are used.
            let children = self.sorted(&self.children_of(&domains), unconstrained);
            domains = self.minimise(children, count, leaders, size, unconstrained, Unit::Slices);
            level += 1;
        }
        while level < lowest {
            let size = if level < params.slice_level {
                size
            } else {
                params.inner.get(&(level + 1)).copied().unwrap_or(1)
            };
            let mut next = Vec::new();
            for domain in domains {
                let children = self.sorted(&self.tree.domain(domain).children, unconstrained);
                let unit = if size > 1 { Unit::Slices } else { Unit::Pods };
                if size > 1 {
                    for child in &children {
                        let state = self.state_mut(*child);
                        state.slices = state.pods / size;
                        state.slices_with_leader = state.pods_with_leader / size;
                    }
                }
                let DomainState { pods, leaders, .. } = *self.state(domain);
                next.extend(self.minimise(children, pods, leaders, size, unconstrained, unit));
            }
            domains = next;
            level += 1;
        }
        domains
    }

    fn assignments(
        &self,
        leaves: Vec<DomainIdx>,
        with_leader: bool,
    ) -> (TopologyAssignment, Option<TopologyAssignment>) {
        let mut leaves = leaves;
        leaves.sort_unstable();
        let leader = with_leader.then(|| self.assignment(&leaves, |state| state.leaders));
        (self.assignment(&leaves, |state| state.pods), leader)
    }

    fn assignment(&self, leaves: &[DomainIdx], pods: impl Fn(&DomainState) -> i32) -> TopologyAssignment {
        let first = if self.tree.is_by_host() { self.tree.levels.len().saturating_sub(1) } else { 0 };
        let domains = leaves.iter().filter_map(|leaf| {
            let count = pods(self.state(*leaf));
            let values = self.tree.domain(*leaf).values.get(first..).unwrap_or_default().to_vec();
            (count > 0).then_some(DomainAssignment { values, count })
        });
        TopologyAssignment {
            domains: domains.collect(),
            levels: self.tree.levels.get(first..).unwrap_or_default().to_vec(),
        }
    }
}

/// What a domain's capacity is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Pods,
    Slices,
}

/// Requests by group, in order of each group's first member.
fn groups<'r, 'p>(requests: &'r [PlacementRequest<'p>]) -> Vec<Vec<&'r PlacementRequest<'p>>> {
    let mut groups: Vec<Vec<&PlacementRequest<'_>>> = Vec::new();
    for request in requests {
        let name = request.pod_set.group();
        let same = groups
            .iter_mut()
            .find(|group| name.is_some() && group.first().is_some_and(|first| first.pod_set.group() == name));
        match same {
            Some(group) => group.push(request),
            None => groups.push(vec![request]),
        }
    }
    groups
}

/// The larger pod set of a group, and the smaller as its leader.
fn workers_and_leader<'r, 'p>(
    group: &[&'r PlacementRequest<'p>],
) -> (Option<&'r PlacementRequest<'p>>, Option<&'r PlacementRequest<'p>>) {
    match (group.first().copied(), group.get(1).copied()) {
        (Some(first), Some(second)) if second.count > first.count => (Some(second), Some(first)),
        pair => pair,
    }
}
