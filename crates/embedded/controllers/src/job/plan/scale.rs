//! Which pods a Job creates and removes while it runs.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use quintet_controller::cache::Entry;
use quintet_controller::{ApiKind, Step};
use serde_json::json;

use super::super::labels;
use super::super::objects::{self, Indexed};
use super::super::observe::Observed;
use super::super::settings::Settings;
use super::backoff;
use super::policies::{FailureAction, failure_action};
use super::tally::{Tally, count, failures, total_failures};
use crate::claim::patch_metadata;
use crate::pod::PodView;
use crate::removal::RemovalOrder;
use crate::{names, pod_events};

/// Pods created or deleted in one reconcile, as upstream's `MaxPodCreateDeletePerSync`.
const MAX_PER_RECONCILE: usize = 500;

/// What changes.
#[derive(Default)]
pub(super) struct Scale {
    pub(super) steps: Vec<Step>,
    /// Active pods once the steps are done.
    pub(super) active: i32,
    /// Pods that begin to terminate by the steps.
    pub(super) removed: i32,
    /// When the next pod may be created.
    pub(super) due: Option<Timestamp>,
}

/// Removes all active pods of a suspended Job. They lose the finalizer first: they do not count as failures.
pub(super) fn suspend(tally: &Tally<'_>) -> Scale {
    let mut all = tally.active.clone();
    all.truncate(MAX_PER_RECONCILE);
    remove(tally, &all)
}

/// Brings the number of active pods to what the Job asks for.
pub(super) fn scale(
    observed: &Observed,
    settings: &Settings<'_>,
    pods: &[&Entry<PodView>],
    tally: &Tally<'_>,
) -> Scale {
    let active = count(&tally.active);
    let wanted = match settings.completions {
        // Once one has succeeded, the others are waited for and no new ones are made.
        None if tally.succeeded > 0 => active,
        None => settings.parallelism,
        Some(completions) => {
            let open = completions - tally.succeeded - tally.failed_indexes.len();
            open.min(settings.parallelism).max(0)
        }
    };
    let mut superfluous =
        superfluous(observed, settings, tally, usize::try_from(active - wanted).unwrap_or_default());
    superfluous.truncate(MAX_PER_RECONCILE);
    if !superfluous.is_empty() {
        return remove(tally, &superfluous);
    }
    let terminating = if settings.replaces_failed_only { count(&tally.terminating) } else { 0 };
    let missing = usize::try_from(wanted - terminating - active).unwrap_or_default().min(MAX_PER_RECONCILE);
    if missing == 0 {
        return Scale { active, ..Scale::default() };
    }
    let mut scale = if settings.backoff_limit_per_index.is_some() {
        create_indexes(observed, settings, pods, tally, missing)
    } else {
        let ended = pods.iter().map(|pod| &pod.object);
        let due = backoff::after_failures(ended, |pod| settings.has_failed(pod));
        match due.filter(|due| *due > observed.now) {
            Some(due) => Scale { due: Some(due), ..Scale::default() },
            None if settings.is_indexed => create_indexes(observed, settings, pods, tally, missing),
            None => create(observed, pods, missing),
        }
    };
    scale.active += active;
    scale
}

/// Removes pods without counting them.
fn remove(tally: &Tally<'_>, pods: &[&Entry<PodView>]) -> Scale {
    let tracked = pods.iter().filter(|pod| pod.object.has_finalizer(labels::TRACKING_FINALIZER));
    let steps = tracked.map(|pod| untrack(pod)).chain(pods.iter().map(|pod| pod_events::delete(pod)));
    let removed = count(pods);
    Scale { steps: steps.collect(), active: count(&tally.active) - removed, removed, due: None }
}

/// Removes the finalizer of a pod.
pub(in crate::job) fn untrack(pod: &Entry<PodView>) -> Step {
    let finalizers = json!({ "$deleteFromPrimitiveList/finalizers": [labels::TRACKING_FINALIZER] });
    patch_metadata(&ApiKind::of::<Pod>(), &pod.key, &pod.uid, &finalizers)
}

/// Pods that are too many: second pods of an index, pods whose index is out of range, and then as many others as are
/// needed to have `at_least` so many.
fn superfluous<'a>(
    observed: &Observed,
    settings: &Settings<'_>,
    tally: &Tally<'a>,
    at_least: usize,
) -> Vec<&'a Entry<PodView>> {
    let order = RemovalOrder::plain(observed.now);
    let mut sorted = tally.active.clone();
    order.sort(&mut sorted);
    let (mut removed, mut kept) = (Vec::new(), Vec::new());
    if settings.is_indexed {
        let mut seen = BTreeSet::new();
        // The most useful pod of an index is kept.
        for pod in sorted.into_iter().rev() {
            match settings.index_of(&pod.object) {
                Some(index) if seen.insert(index) => kept.push(pod),
                _ => removed.push(pod),
            }
        }
        kept.reverse();
    } else {
        kept = sorted;
    }
    let more = at_least.saturating_sub(removed.len());
    removed.extend(kept.into_iter().take(more));
    removed
}

fn create(observed: &Observed, pods: &[&Entry<PodView>], missing: usize) -> Scale {
    let job = &observed.job;
    let is_taken = |name: &String| pods.iter().any(|pod| pod.key.name() == name);
    let free = observed.entropy.names(&names::prefix(job.key.name()), "pod").filter(|name| !is_taken(name));
    let steps: Vec<_> =
        free.take(missing).map(|name| pod_events::create(&objects::pod(&job.object, name, None))).collect();
    Scale { active: count(&steps), steps, ..Scale::default() }
}

/// Creates pods for the lowest indexes that have none. With a limit per index, each has a backoff of its own.
fn create_indexes(
    observed: &Observed,
    settings: &Settings<'_>,
    pods: &[&Entry<PodView>],
    tally: &Tally<'_>,
    missing: usize,
) -> Scale {
    let job = &observed.job;
    let mut taken: BTreeSet<i32> =
        tally.active.iter().filter_map(|pod| settings.index_of(&pod.object)).collect();
    if settings.replaces_failed_only {
        taken.extend(tally.terminating.iter().filter_map(|pod| settings.index_of(&pod.object)));
    }
    let is_open = |index: &i32| {
        !taken.contains(index)
            && !tally.succeeded_indexes.contains(*index)
            && !tally.failed_indexes.contains(*index)
    };
    let mut scale = Scale::default();
    for index in (0..settings.indexes()).filter(is_open) {
        if scale.steps.len() == missing {
            break;
        }
        let failed = tally.delayed.get(&index).copied();
        if let Some(due) = failed.and_then(|pod| index_due(&pod.object)).filter(|due| *due > observed.now) {
            scale.due = Some(scale.due.map_or(due, |other| other.min(due)));
            continue;
        }
        let failures = settings.backoff_limit_per_index.map(|_| next_failures(settings, failed));
        let is_taken = |name: &String| pods.iter().any(|pod| pod.key.name() == name);
        let prefix = objects::indexed_prefix(job.key.name(), index);
        let Some(name) = observed.entropy.names(&prefix, index).find(|name| !is_taken(name)) else {
            continue;
        };
        let pod = objects::pod(&job.object, name, Some(&Indexed { index, failures }));
        scale.steps.push(pod_events::create(&pod));
    }
    scale.active = count(&scale.steps);
    scale
}

/// When an index may be tried again after its last pod failed.
fn index_due(pod: &PodView) -> Option<Timestamp> {
    let failures = usize::try_from(total_failures(pod) + 1).unwrap_or(1);
    backoff::finished(pod).map(|at| backoff::due(failures, at))
}

/// How often an index has failed, counted and ignored.
fn next_failures(settings: &Settings<'_>, failed: Option<&Entry<PodView>>) -> (i32, i32) {
    let Some(pod) = failed else { return (0, 0) };
    let counted = failures(&pod.object, labels::INDEX_FAILURES);
    let ignored = failures(&pod.object, labels::INDEX_IGNORED_FAILURES);
    match failure_action(settings, pod) {
        FailureAction::Ignore => (counted, ignored + 1),
        _ => (counted + 1, ignored),
    }
}
