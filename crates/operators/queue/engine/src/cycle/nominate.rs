//! Nomination of a head: flavors, places and preemption targets.

use std::sync::Arc;

use crate::flavors::{
    Assignment, Mode, Replaced, Size, Subject, assign, grow_counts, search_counts, tas_requests,
    topology_placement as topology,
};
use crate::model::PodSet;
use crate::preemption::{self, Simulation, Target};
use crate::state::{Queue, State};
use crate::tas::PlaceOptions;

/// The slice the workload replaces, if it holds quota of the same queue.
pub fn replaced_slice(state: &State, subject: &Subject) -> Option<Replaced> {
    if !state.settings.gates.elastic_slices {
        return None;
    }
    let key = subject.workload.replaces()?;
    let id = state.workload_id(key).filter(|_| key.namespace == subject.workload.key.namespace)?;
    state.held(id).filter(|held| held.queue == subject.queue && !state.is_hidden(id))?;
    let workload = Arc::clone(state.workload(id)?);
    let demands = workload.demands();
    Some(Replaced { id, workload, demands })
}

/// The assignment of a workload and its preemption targets. As `getAssignments` in Kueue's
/// `pkg/scheduler/scheduler.go`.
pub fn evaluate(state: &mut State, subject: &mut Subject) -> (Assignment, Vec<Target>) {
    let Some(queue) = state.queue(subject.queue).map(Arc::clone) else {
        return (Assignment::default(), Vec::new());
    };
    let generation = state.tree.generation(queue.node);
    let preserve = state.settings.gates.preserve_scan_progress;
    let shape = subject.workload.shape;
    if subject
        .progress
        .as_ref()
        .is_some_and(|progress| progress.is_outdated(generation, subject.cycle, shape, preserve))
    {
        subject.progress = None;
    }
    subject.replaced = replaced_slice(state, subject);
    let (mut assignment, targets) = initial(state, subject);
    reserve_places(state, subject, &queue, &mut assignment, &targets);
    (assignment, targets)
}

fn initial(state: &mut State, subject: &Subject) -> (Assignment, Vec<Target>) {
    let oracle = Simulation::default();
    let slice: Vec<Target> =
        subject.replaced.iter().map(|replaced| Target { workload: replaced.id, reason: None }).collect();
    let with_slice = |targets: Vec<Target>| slice.iter().copied().chain(targets).collect();
    let full = assign(state, &oracle, subject, None);
    match full.mode() {
        Mode::Fit => return (full, slice),
        Mode::Preempt => {
            let targets = preemption::targets(state, subject, &full, &oracle);
            if !targets.is_empty() {
                return (full, with_slice(targets));
            }
        }
        Mode::NoFit | Mode::DeferredFit => {}
    }
    if state.settings.gates.partial_admission && subject.workload.can_be_partially_admitted() {
        if subject.workload.is_elastic(&state.settings.gates) {
            return grown(state, subject, &oracle)
                .map_or((full, Vec::new()), |(grown, targets)| (grown, with_slice(targets)));
        }
        let sizes: Vec<(i32, i32)> = subject
            .workload
            .pod_sets
            .iter()
            .map(|pod_set| (pod_set.count, pod_set.min_count.unwrap_or(pod_set.count)))
            .collect();
        let found = search_counts(&sizes, |counts| {
            let reduced = assign(state, &oracle, subject, Some(counts));
            match reduced.mode() {
                Mode::Fit => Some((reduced, Vec::new())),
                Mode::Preempt => {
                    let targets = preemption::targets(state, subject, &reduced, &oracle);
                    (!targets.is_empty()).then_some((reduced, targets))
                }
                Mode::NoFit | Mode::DeferredFit => None,
            }
        });
        if let Some((reduced, targets)) = found {
            return (reduced, with_slice(targets));
        }
    }
    (full, Vec::new())
}

/// The largest size of an elastic job that fits. It has at least what the slice before has, and never evicts anyone only to
/// keep that.
fn grown(state: &mut State, subject: &Subject, oracle: &Simulation) -> Option<(Assignment, Vec<Target>)> {
    let held = |name: &str| {
        let replaced = subject.replaced.as_ref()?;
        let admission = replaced.workload.admission.as_ref()?;
        let at = admission.pod_sets.iter().position(|held| &*held.name == name)?;
        replaced.demands.get(at).map(|demand| demand.count)
    };
    let size = |pod_set: &PodSet| {
        let (full, held) = (pod_set.effective_count, held(&pod_set.name));
        let least = held.or(pod_set.min_count).unwrap_or(full).clamp(0, full.max(0));
        Size { least, full, divisible: pod_set.min_count.is_some() }
    };
    let held_all: Option<Vec<i32>> =
        subject.workload.pod_sets.iter().map(|pod_set| held(&pod_set.name)).collect();
    let sizes: Vec<Size> = subject.workload.pod_sets.iter().map(size).collect();
    let found = grow_counts(&sizes, |counts| {
        let assignment = assign(state, oracle, subject, Some(counts));
        let targets = match assignment.mode() {
            Mode::Fit => Vec::new(),
            Mode::Preempt if held_all.as_deref() != Some(counts) => {
                preemption::targets(state, subject, &assignment, oracle)
            }
            Mode::Preempt | Mode::NoFit | Mode::DeferredFit => return None,
        };
        (assignment.mode() == Mode::Fit || !targets.is_empty())
            .then(|| (counts.to_vec(), assignment, targets))
    });
    let (_, assignment, targets) = found.filter(|(counts, ..)| held_all.as_ref() != Some(counts))?;
    Some((assignment, targets))
}

/// An entry that has to preempt reserves places too: those it would get once its targets are gone, or,
/// without targets, on an empty cluster.
fn reserve_places(
    state: &mut State,
    subject: &Subject,
    queue: &Queue,
    assignment: &mut Assignment,
    targets: &[Target],
) {
    let workload = Arc::clone(&subject.workload);
    if !state.settings.gates.tas
        || assignment.mode() != Mode::Preempt
        || !(workload.is_explicitly_tas() || queue.tas_only)
        || workload.has_placement_on_failed_node()
    {
        return;
    }
    let requests = tas_requests(assignment, &workload, subject, state, queue);
    let placements = if targets.is_empty() {
        topology::place(state, &requests, PlaceOptions::on_empty(&workload))
    } else {
        let mark = state.mark();
        for target in targets {
            state.try_without(target.workload, false);
        }
        let placements = topology::place(state, &requests, PlaceOptions::explained(&workload));
        state.rollback(mark);
        placements
    };
    topology::apply(assignment, placements);
}
