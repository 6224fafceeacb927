//! Removal of candidates until a workload fits, and the return of those it does not need.

use super::{Need, Target};
use crate::state::State;

/// The candidates removed so far.
///
/// Checking whether pods find places is expensive. Where more room never makes it worse, it is not done
/// after every victim: first at distances that double, then by halving between the last *no* and the
/// first *yes*. The result equals that of checking every time.
pub(super) struct Removal<'a> {
    need: &'a Need<'a>,
    borrowing: bool,
    targets: Vec<Target>,
    /// With so many taken it is known not to fit.
    too_few: usize,
    /// How many more to remove before the next check.
    stride: usize,
    fits: bool,
}

impl<'a> Removal<'a> {
    pub(super) const fn new(need: &'a Need<'a>, borrowing: bool) -> Self {
        Self { need, borrowing, targets: Vec::new(), too_few: 0, stride: 1, fits: false }
    }

    /// Takes one away; true if the workload fits now.
    pub(super) fn take(&mut self, state: &mut State, target: Target) -> bool {
        state.try_without(target.workload, true);
        self.targets.push(target);
        let taken = self.targets.len();
        if !self.need.has_quota(state, self.borrowing) {
            self.too_few = taken;
        } else if taken - self.too_few >= self.stride {
            self.check(state);
        }
        self.fits
    }

    fn check(&mut self, state: &State) {
        self.fits = self.need.can_be_placed(state);
        if !self.fits {
            self.too_few = self.targets.len();
            self.stride *= if self.need.is_alone() { 2 } else { 1 };
        }
    }

    /// The victims that are needed, if the workload fits at all.
    pub(super) fn finish(mut self, state: &mut State) -> Option<Vec<Target>> {
        if !self.fits && self.too_few < self.targets.len() {
            self.check(state);
        }
        if !self.fits {
            return None;
        }
        self.take_back_surplus(state);
        fill_back(state, self.need, &mut self.targets, self.borrowing);
        Some(self.targets)
    }

    /// Goes back to the first moment when it fitted.
    fn take_back_surplus(&mut self, state: &mut State) {
        let (mut too_few, mut enough, mut taken) = (self.too_few, self.targets.len(), self.targets.len());
        let mut go_to = |state: &mut State, wanted: usize| {
            for target in self.targets.get(wanted..taken).unwrap_or_default().iter().rev() {
                state.try_with(target.workload);
            }
            for target in self.targets.get(taken..wanted).unwrap_or_default() {
                state.try_without(target.workload, true);
            }
            taken = wanted;
        };
        while enough - too_few > 1 {
            let middle = too_few.midpoint(enough);
            go_to(state, middle);
            if self.need.can_be_placed(state) {
                enough = middle;
            } else {
                too_few = middle;
            }
        }
        go_to(state, enough);
        self.targets.truncate(enough);
    }
}

/// Gives back, last first, every target the workload can do without. The last one found is never
/// reconsidered, and takes the place of each one given back.
pub(super) fn fill_back(
    state: &mut State,
    need: &Need<'_>,
    targets: &mut Vec<Target>,
    allow_borrowing: bool,
) {
    let mut left = targets.len().saturating_sub(1);
    // What can be given back together can be given back one by one.
    let mut together = 1;
    while left > 0 {
        together = left.min(together);
        let first = left - together;
        let batch = targets.get(first..left).unwrap_or_default();
        for target in batch.iter().rev() {
            state.try_with(target.workload);
        }
        if need.fits(state, allow_borrowing) {
            for at in (first..left).rev() {
                targets.swap_remove(at);
            }
            left = first;
            together *= if need.is_alone() { 2 } else { 1 };
            continue;
        }
        for target in batch {
            state.try_without(target.workload, true);
        }
        if together == 1 {
            left = first;
        }
        together = together.div_ceil(4);
    }
}
