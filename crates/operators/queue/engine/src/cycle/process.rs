//! Deciding about the entries of a cycle, one after another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::reasons::QuotaReservedReason;

use super::decision::CycleReport;
use super::entry::{Entry, EntryStatus, can_always_reclaim};
use super::nominate::evaluate;
use crate::flavors::{Mode, NoFitReason};
use crate::model::Usage;
use crate::names::{FlavorId, WorkloadId};
use crate::preemption::Target;
use crate::queue::RequeueReason;
use crate::quota::NodeId;
use crate::state::{Queue, State};
use crate::tas::TasUse;

/// Whether usage fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fits {
    /// It does.
    Ok,
    /// Not enough quota.
    NoQuota,
    /// Not enough room on the nodes.
    NoTas,
}

/// Whether quota and places fit with all victims and targets gone; one that is both counts once.
pub fn fits(
    state: &mut State,
    queue: &Queue,
    (quota, places): (&Usage, &[TasUse]),
    victims: &Victims,
    targets: &[Target],
) -> Fits {
    let now = fits_now(state, queue, quota, places);
    // Removals never take room away, so what fits already needs no trial.
    if now == Fits::Ok || victims.all.is_empty() && targets.is_empty() {
        return now;
    }
    let mark = state.mark();
    if places.is_empty() {
        // Quota is shared within a tree only; nodes may be shared by all.
        for victim in victims.by_root.get(&state.tree.root(queue.node)).into_iter().flatten() {
            state.try_without(*victim, false);
        }
    } else {
        for victim in &victims.all {
            state.try_without(*victim, false);
        }
    }
    for target in targets.iter().filter(|target| !victims.contains(target.workload)) {
        state.try_without(target.workload, false);
    }
    let result = fits_now(state, queue, quota, places);
    state.rollback(mark);
    result
}

fn fits_now(state: &State, queue: &Queue, quota: &Usage, places: &[TasUse]) -> Fits {
    if quota.iter().any(|(fr, value)| state.available(queue.node, *fr) < *value) {
        Fits::NoQuota
    } else if state.tas.fits(places) {
        Fits::Ok
    } else {
        Fits::NoTas
    }
}

/// All workloads preempted in a cycle.
#[derive(Clone, Debug, Default)]
pub struct Victims {
    all: BTreeSet<WorkloadId>,
    by_root: BTreeMap<NodeId, Vec<WorkloadId>>,
}

impl Victims {
    /// Whether the workload is among them.
    pub fn contains(&self, id: WorkloadId) -> bool {
        self.all.contains(&id)
    }

    /// Whether any of the targets is among them.
    pub fn contains_any(&self, targets: &[Target]) -> bool {
        !self.all.is_empty() && targets.iter().any(|target| self.contains(target.workload))
    }

    /// Adds the targets of an entry.
    pub fn add(&mut self, targets: &[Target], state: &State) {
        for target in targets {
            if self.all.insert(target.workload)
                && let Some(queue) = state.held(target.workload).and_then(|held| state.queue(held.queue))
            {
                self.by_root.entry(state.tree.root(queue.node)).or_default().push(target.workload);
            }
        }
    }
}

/// A cycle while its entries are decided about.
pub(crate) struct Processing<'a> {
    pub(crate) state: &'a mut State,
    /// Evictions decided earlier and not observed yet.
    pub(crate) expected: &'a BTreeSet<WorkloadId>,
    /// Pods of workloads that hold quota are not ready, and others have to wait for them.
    pub(crate) blocked: bool,
    /// All workloads preempted in this cycle.
    pub(crate) victims: Victims,
    pub(crate) report: &'a mut CycleReport,
}

/// What follows for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processed {
    /// It is to be admitted.
    Admit,
    /// It would be, but has to wait for the pods of others.
    WaitForPodsReady,
    /// It is not.
    Requeue,
}

impl Processing<'_> {
    /// Decides about an entry.
    pub(crate) fn process(&mut self, entry: &mut Entry) -> Processed {
        let Some(queue) = self.state.queue(entry.subject.queue).map(Arc::clone) else {
            return Processed::Requeue;
        };
        let gates = self.state.settings.gates.clone();
        let preserve = gates.preserve_scan_progress;
        if gates.concurrent_admission && self.sibling(entry, &queue, |own, other| other < own).is_some() {
            entry.skip(
                "A more favorable variant is already admitted",
                QuotaReservedReason::PendingEvaluation,
                preserve,
            );
            return Processed::Requeue;
        }
        let (usage, fit) = self.refreshed(entry, &queue);
        let mode = entry.assignment.mode();
        if gates.tas_fail_fast && entry.subject.workload.has_placement_on_failed_node() && mode != Mode::Fit {
            entry.status = EntryStatus::Evicted;
            return Processed::Requeue;
        }
        match mode {
            Mode::NoFit => {
                entry.requeue = RequeueReason::NoFit;
                entry.reason = entry.assignment.no_fit.map(NoFitReason::quota_reserved_reason);
                return Processed::Requeue;
            }
            Mode::Preempt if entry.targets.is_empty() => {
                entry.requeue = RequeueReason::PreemptionNoCandidates;
                entry.reason = Some(QuotaReservedReason::WaitingForQuota);
                if !can_always_reclaim(&queue) || gates.prioritize_preemptors && entry.is_preemptor {
                    let (quota, places) = entry.reservation(self.state, &queue);
                    self.add(&queue, &quota, &places);
                }
                return Processed::Requeue;
            }
            Mode::Preempt
                if (gates.concurrent_admission || gates.orchestrated_preemption)
                    && entry.subject.workload.is_preemption_gated() =>
            {
                entry.status = EntryStatus::PreemptionGated;
                "Workload requires preemption, but it's gated".clone_into(&mut entry.message);
                entry.reason = Some(QuotaReservedReason::AdmissionGated);
                entry.requeue = RequeueReason::PreemptionGated;
                entry.subject.progress = None;
                return Processed::Requeue;
            }
            Mode::DeferredFit => {
                "Workload has overlapping preemption targets with another workload, but will fit after these preemptions complete"
                    .clone_into(&mut entry.message);
                entry.reason = Some(QuotaReservedReason::WaitingForPreemptedWorkloads);
                entry.requeue = RequeueReason::PendingPreemption;
                entry.subject.progress = None;
                self.add(&queue, &usage.0, &usage.1);
                return Processed::Requeue;
            }
            Mode::Preempt | Mode::Fit => {}
        }
        let overlaps = self.victims.contains_any(&entry.targets);
        if overlaps || !fit {
            let message = if overlaps {
                "Workload has overlapping preemption targets with another workload"
            } else {
                "Workload no longer fits after processing another workload"
            };
            entry.skip(message, QuotaReservedReason::WaitingForQuota, preserve);
            if overlaps || mode == Mode::Preempt {
                *self.report.skipped_preemptions.entry(entry.subject.queue).or_default() += 1;
            }
            return Processed::Requeue;
        }
        self.victims.add(&entry.targets, self.state);
        self.add(&queue, &usage.0, &usage.1);
        if mode == Mode::Preempt {
            self.preempt(entry);
            return Processed::Requeue;
        }
        if self.blocked && !entry.subject.workload.needs_second_pass() {
            entry.status = EntryStatus::Nominated;
            return Processed::WaitForPodsReady;
        }
        if gates.concurrent_admission
            && let Some(sibling) = self.sibling(entry, &queue, |own, other| other > own)
        {
            Self::migrate(entry, &queue, sibling);
            return Processed::Requeue;
        }
        entry.status = EntryStatus::Nominated;
        Processed::Admit
    }

    fn add(&mut self, queue: &Queue, quota: &Usage, places: &[TasUse]) {
        self.state.tree.add_all(queue.node, quota);
        self.state.tas.change_usage(places, 1);
    }

    /// What the entry adds, and whether that fits; evaluated again with its flavors pinned if others took
    /// its targets or its places.
    fn refreshed(&mut self, entry: &mut Entry, queue: &Queue) -> ((Usage, Vec<TasUse>), bool) {
        let usage = entry.net_usage(self.state);
        let fit = fits(self.state, queue, (&usage.0, &usage.1), &self.victims, &entry.targets);
        let gates = &self.state.settings.gates;
        let overlaps = gates.recompute_on_overlap && self.victims.contains_any(&entry.targets);
        let lost_places = fit == Fits::NoTas && gates.tas_recompute_in_cycle;
        if !overlaps && !lost_places {
            return (usage, fit == Fits::Ok);
        }
        let mark = self.state.mark();
        if overlaps {
            for victim in &self.victims.all {
                self.state.try_without(*victim, true);
            }
        }
        entry.subject.progress = None;
        entry.subject.pinned = Some(pinned(entry));
        let (mut assignment, targets) = evaluate(self.state, &mut entry.subject);
        entry.subject.pinned = None;
        self.state.rollback(mark);
        if overlaps && assignment.mode() == Mode::Fit {
            assignment.set_mode(Mode::DeferredFit);
        }
        entry.record(assignment, targets, self.state);
        let usage = entry.net_usage(self.state);
        let fit = fits(self.state, queue, (&usage.0, &usage.1), &self.victims, &entry.targets);
        if overlaps {
            let still = self.victims.contains_any(&entry.targets);
            let result = if entry.assignment.mode() == Mode::DeferredFit {
                "deferred_fit"
            } else if !entry.targets.is_empty() && fit == Fits::Ok && !still {
                "new_targets"
            } else {
                "skipped"
            };
            *self.report.recomputations.entry((entry.subject.queue, result)).or_default() += 1;
        }
        (usage, fit == Fits::Ok)
    }

    fn preempt(&mut self, entry: &mut Entry) {
        entry.reason = Some(QuotaReservedReason::WaitingForPreemptedWorkloads);
        for target in entry.targets.iter().filter(|target| target.reason.is_some()) {
            let evicted = self.state.workload(target.workload).is_some_and(|workload| workload.is_evicted());
            if evicted || self.expected.contains(&target.workload) {
                entry.already_evicted += 1;
            } else {
                entry.evict.push(*target);
            }
        }
        entry.preempted(entry.evict.len() + entry.already_evicted, 0);
    }

    fn migrate(entry: &mut Entry, queue: &Queue, sibling: WorkloadId) {
        let flavors: Vec<FlavorId> = queue
            .spec
            .groups
            .first()
            .map_or_else(Vec::new, |group| group.flavors.iter().map(|quotas| quotas.flavor).collect());
        let position = |flavor: FlavorId| flavors.iter().position(|own| *own == flavor);
        if let Some(Some(last)) = queue.spec.migration
            && let Some(own) = variant_flavor(entry).and_then(position)
            && position(last).is_none_or(|last| own > last)
        {
            "Target flavor is below LastAcceptableFlavorName".clone_into(&mut entry.message);
            entry.reason = Some(QuotaReservedReason::PendingEvaluation);
            return;
        }
        entry.migrate = Some(sibling);
        entry.subject.progress = None;
        entry.requeue = RequeueReason::PendingMigration;
        entry.reason = Some(QuotaReservedReason::WaitingForPreemptedWorkloads);
        entry.message.push_str(". Pending the migration of 1 workload(s)");
    }

    /// An admitted variant of the same parent whose flavor compares as wanted with the entry's.
    fn sibling(
        &self,
        entry: &Entry,
        queue: &Queue,
        wanted: impl Fn(usize, usize) -> bool,
    ) -> Option<WorkloadId> {
        let parent = entry.subject.workload.links.as_ref()?.parent_uid.clone()?;
        let flavors = &queue.spec.groups.first()?.flavors;
        let position = |flavor: FlavorId| flavors.iter().position(|quotas| quotas.flavor == flavor);
        let own = position(variant_flavor(entry)?)?;
        self.state.reserved(entry.subject.queue).find(|id| {
            let Some(workload) = self.state.workload(*id).filter(|workload| workload.is_admitted()) else {
                return false;
            };
            let links = workload.links.as_ref();
            let other =
                links.and_then(|links| links.allowed_flavors.as_ref()?.first().copied()).and_then(position);
            *id != entry.id
                && links.is_some_and(|links| links.parent_uid.as_ref() == Some(&parent))
                && other.is_some_and(|other| wanted(own, other))
        })
    }
}

fn variant_flavor(entry: &Entry) -> Option<FlavorId> {
    entry.subject.workload.links.as_ref()?.allowed_flavors.as_ref()?.first().copied()
}

/// The flavors an entry was nominated on, per pod set.
fn pinned(entry: &Entry) -> Vec<Vec<(crate::names::ResourceId, FlavorId)>> {
    let mut pinned = vec![Vec::new(); entry.subject.workload.pod_sets.len()];
    for assigned in &entry.assignment.pod_sets {
        if let Some(slot) = pinned.get_mut(assigned.index) {
            *slot = assigned.flavors.iter().map(|(resource, choice)| (*resource, choice.flavor)).collect();
        }
    }
    pinned
}
