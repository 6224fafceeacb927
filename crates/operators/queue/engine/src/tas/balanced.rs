//! Balanced placement: for a preferred level, spread slices evenly over as few domains as best fit
//! would use.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::params::Params;
use super::placement::Placer;
use super::tree::{DomainIdx, DomainState};

/// What taking domains greedily would use.
struct Greedy {
    domains: i32,
    last_with_leader: Option<DomainIdx>,
    last: Option<DomainIdx>,
}

impl Placer<'_> {
    /// The level and domains of a balanced placement; `None` leaves the placement to best fit, with all
    /// states as they were.
    pub(super) fn balanced(&mut self, params: &Params) -> Option<(usize, Vec<DomainIdx>)> {
        let before = self.states.clone();
        let found = self.best_sibling_set(params).and_then(|(domains, threshold, states)| {
            self.states = states;
            self.spread(params, threshold, domains)
        });
        if found.is_none() {
            self.states = before;
        }
        found
    }

    /// Among the sets of siblings at the requested level, the one that allows the highest threshold per
    /// domain, then the fewest domains; with the states after pruning what stays below it.
    fn best_sibling_set(&mut self, params: &Params) -> Option<(Vec<DomainIdx>, i32, Vec<DomainState>)> {
        let sets: Vec<Vec<DomainIdx>> = match params.level.checked_sub(1) {
            None => vec![self.tree.by_level.first()?.clone()],
            Some(above) => {
                let parents = self.tree.by_level.get(above)?;
                parents.iter().map(|parent| self.tree.domain(*parent).children.clone()).collect()
            }
        };
        let slices = params.slices();
        let original = self.states.clone();
        let mut best: Option<(Vec<DomainIdx>, i32, i32, Vec<DomainState>)> = None;
        for siblings in sets {
            self.states.clone_from(&original);
            let lower =
                if params.level < params.slice_level { self.below(&siblings) } else { siblings.clone() };
            let Some(greedy) = self.greedy_count(&lower, slices, params.leaders) else {
                continue;
            };
            let mut threshold = self.threshold(slices, &greedy);
            let reserved = match greedy.last {
                Some(last) if params.leaders > 0 => threshold.min(self.state(last).slices_with_leader),
                _ => threshold,
            };
            let best_threshold = best.as_ref().map_or(0, |best| best.1);
            if threshold < best_threshold {
                continue;
            }
            self.prune(&siblings, threshold, params);
            let mut pruned = self.greedy_count(&siblings, slices, params.leaders);
            if pruned.is_none() && reserved < threshold {
                if reserved <= 0 || reserved < best_threshold {
                    continue;
                }
                threshold = reserved;
                self.states.clone_from(&original);
                self.prune(&siblings, threshold, params);
                pruned = self.greedy_count(&siblings, slices, params.leaders);
            }
            let Some(pruned) = pruned else {
                continue;
            };
            let fewer = best.as_ref().is_none_or(|best| pruned.domains < best.2);
            if threshold > best_threshold || threshold == best_threshold && fewer && best.is_some() {
                best = Some((siblings, threshold, pruned.domains, self.states.clone()));
            }
        }
        self.states = original;
        best.filter(|best| best.1 > 0).map(|(domains, threshold, _, states)| (domains, threshold, states))
    }

    fn below(&self, domains: &[DomainIdx]) -> Vec<DomainIdx> {
        domains.iter().flat_map(|domain| self.tree.domain(*domain).children.iter().copied()).collect()
    }

    /// How many domains best-first selection needs, or `None` if all together are not enough.
    fn greedy_count(&self, domains: &[DomainIdx], slices: i32, leaders: i32) -> Option<Greedy> {
        let mut greedy = Greedy { domains: 0, last_with_leader: None, last: None };
        let (mut left, mut leaders_left) = (slices, leaders);
        let mut rest = domains.to_vec();
        if leaders > 0 {
            let sorted = self.sorted_with_leader(domains, false);
            let mut taken = 0;
            for domain in sorted.iter().copied() {
                if leaders_left <= 0 || self.state(domain).leaders <= 0 {
                    break;
                }
                greedy.domains += 1;
                greedy.last_with_leader = Some(domain);
                leaders_left -= self.state(domain).leaders;
                left -= self.state(domain).slices_with_leader;
                taken += 1;
            }
            rest = sorted.get(taken..).unwrap_or_default().to_vec();
        }
        if leaders_left > 0 {
            return None;
        }
        for domain in self.sorted(&rest, false) {
            if left <= 0 || self.state(domain).slices <= 0 {
                break;
            }
            greedy.domains += 1;
            greedy.last = Some(domain);
            left -= self.state(domain).slices;
        }
        (left <= 0).then_some(greedy)
    }

    fn threshold(&self, slices: i32, greedy: &Greedy) -> i32 {
        let mut threshold = slices.checked_div(greedy.domains).unwrap_or(0);
        if let Some(domain) = greedy.last_with_leader {
            threshold = threshold.min(self.state(domain).slices_with_leader);
        }
        if let Some(domain) = greedy.last {
            threshold = threshold.min(self.state(domain).slices);
        }
        threshold
    }

    /// Drops from the counts every domain, and every child, that cannot hold `threshold` slices.
    fn prune(&mut self, domains: &[DomainIdx], threshold: i32, params: &Params) {
        let flat = Params { inner: BTreeMap::new(), ..params.clone() };
        for child in self.below(domains) {
            self.prune_one(child, threshold, params.leaders > 0);
        }
        for domain in domains {
            self.sum_subtree(*domain, params.level, &flat);
            self.prune_one(*domain, threshold, params.leaders > 0);
        }
    }

    fn sum_subtree(&mut self, domain: DomainIdx, level: usize, params: &Params) {
        for child in self.tree.domain(domain).children.clone() {
            self.sum_subtree(child, level + 1, params);
        }
        self.sum_domain(domain, level, params);
    }

    fn prune_one(&mut self, domain: DomainIdx, threshold: i32, needs_leader: bool) {
        let state = *self.state(domain);
        if state.slices < threshold {
            self.for_subtree(domain, &|state| {
                *state = DomainState { affinity: state.affinity, ..DomainState::default() }
            });
        } else if needs_leader && state.leaders > 0 && state.slices_with_leader < threshold {
            self.for_subtree(domain, &|state| {
                (state.pods_with_leader, state.slices_with_leader, state.leaders) = (0, 0, 0);
            });
        }
    }

    fn for_subtree(&mut self, domain: DomainIdx, change: &impl Fn(&mut DomainState)) {
        change(self.state_mut(domain));
        for child in self.tree.domain(domain).children.clone() {
            self.for_subtree(child, change);
        }
    }

    fn spread(
        &mut self,
        params: &Params,
        threshold: i32,
        domains: Vec<DomainIdx>,
    ) -> Option<(usize, Vec<DomainIdx>)> {
        let (mut level, mut domains) = (params.level, domains);
        if params.level < params.slice_level {
            domains = self.below(&self.optimal_set(&domains, params, true)?);
            level += 1;
        }
        self.spread_evenly(&domains, params, threshold).map(|domains| (level, domains))
    }

    /// Of all sets of as many domains as greedy selection uses, the one whose capacity exceeds the need
    /// least.
    fn optimal_set(
        &self,
        domains: &[DomainIdx],
        params: &Params,
        by_entropy: bool,
    ) -> Option<Vec<DomainIdx>> {
        /// Sets by leaders still needed and by pods still needed.
        type Sets = BTreeMap<i32, BTreeMap<i32, Vec<DomainIdx>>>;
        let size =
            usize::try_from(self.greedy_count(domains, params.slices(), params.leaders)?.domains).ok()?;
        let mut ordered = domains.to_vec();
        if by_entropy {
            ordered.sort_by(|a, b| self.capacity_and_entropy_order(*a, *b));
        } else {
            ordered.sort_unstable();
        }
        let mut sets: Vec<Sets> = vec![Sets::new(); size + 1];
        let need = BTreeMap::from([(params.slices() * params.slice_size, Vec::new())]);
        sets.first_mut()?.insert(params.leaders, need);
        for domain in ordered {
            let state = *self.state(domain);
            for taken in (1..=size).rev() {
                let smaller = sets.get(taken - 1)?.clone();
                let larger = sets.get_mut(taken)?;
                for (leaders, by_pods) in smaller {
                    for (pods, set) in by_pods {
                        if leaders <= 0 && pods <= 0 {
                            continue;
                        }
                        let mut set = set;
                        set.push(domain);
                        if leaders > 0 && state.leaders > 0 {
                            let by_pods = larger.entry(leaders - state.leaders).or_default();
                            by_pods.entry(pods - state.pods_with_leader).or_insert_with(|| set.clone());
                        }
                        if state.slices > 0 {
                            larger.entry(leaders).or_default().entry(pods - state.pods).or_insert(set);
                        }
                    }
                }
            }
        }
        let covering = sets.get(size)?.get(&0)?;
        covering.range(..=0).next_back().map(|(_, set)| set.clone())
    }

    /// More capacity first, then the more even.
    pub(super) fn capacity_and_entropy_order(&self, a: DomainIdx, b: DomainIdx) -> Ordering {
        let (x, y) = (self.state(a), self.state(b));
        let entropy = |domain| self.entropy(&self.tree.domain(domain).children);
        y.leaders
            .cmp(&x.leaders)
            .then(y.slices_with_leader.cmp(&x.slices_with_leader))
            .then_with(|| entropy(b).partial_cmp(&entropy(a)).unwrap_or(Ordering::Equal))
            .then(a.cmp(&b))
    }

    fn entropy(&self, domains: &[DomainIdx]) -> f64 {
        let pods = |domain: &DomainIdx| f64::from(self.state(*domain).pods);
        let total: f64 = domains.iter().map(pods).sum();
        let parts = domains.iter().map(pods).filter(|part| *part > 0.0 && total > 0.0);
        parts.map(|part| part / total).map(|share| -share * share.log2()).sum()
    }

    /// Every domain of the optimal set gets the threshold; what is left goes to the first ones.
    fn spread_evenly(
        &mut self,
        domains: &[DomainIdx],
        params: &Params,
        threshold: i32,
    ) -> Option<Vec<DomainIdx>> {
        let chosen = self.optimal_set(domains, params, false)?;
        let floor = i32::try_from(chosen.len()).ok()?.checked_mul(threshold)?;
        let mut extra = params.slices() - floor;
        if extra < 0 {
            return None;
        }
        let chosen = self.sorted_with_leader(&chosen, false);
        let mut leaders = params.leaders;
        for domain in &chosen {
            let state = self.state_mut(*domain);
            let taken = if leaders > 0 {
                leaders -= 1;
                state.leaders = 1;
                extra.min(state.slices_with_leader - threshold)
            } else {
                state.leaders = 0;
                if extra > 0 { extra.min(state.slices - threshold) } else { 0 }
            };
            state.slices = threshold + taken;
            state.pods = state.slices * params.slice_size;
            state.slices_with_leader = state.slices;
            state.pods_with_leader = state.pods - state.leaders;
            extra -= taken;
        }
        (extra <= 0 && leaders <= 0).then_some(chosen)
    }
}
