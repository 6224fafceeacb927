//! Counting: which pods of a Job have ended, and which of them are accounted for.
//!
//! Every pod carries a finalizer until it is counted, so that no end is missed or counted twice. A reconcile first writes
//! the uids of ended pods into the status (`uncountedTerminatedPods`), or the index of a success into `completedIndexes`.
//! The next one removes their finalizers and then, in one write, moves the uids to the counters.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{JobStatus, UncountedTerminatedPods};
use quintet_controller::cache::Entry;

use super::super::indexes::Indexes;
use super::super::labels;
use super::super::settings::Settings;
use super::policies::{FailureAction, failure_action};
use crate::pod::{Phase, PodView};

/// Uids in the status at a time, as upstream's `MaxUncountedPods`.
const MAX_UNCOUNTED: usize = 500;

type Pod<'a> = &'a Entry<PodView>;

/// The pods of a Job by what has become of them.
pub(super) struct Tally<'a> {
    pub(super) active: Vec<Pod<'a>>,
    pub(super) terminating: Vec<Pod<'a>>,
    pub(super) ready: i32,
    /// Successes and failures, whether accounted for or not.
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    pub(super) succeeded_indexes: Indexes,
    pub(super) failed_indexes: Indexes,
    /// Why the pod failure policy fails the Job.
    pub(super) fail_job: Option<String>,
    /// The last failed pod of indexes that will be tried again: it carries the number of failures until its replacement
    /// exists.
    pub(super) delayed: BTreeMap<i32, Pod<'a>>,
    tracked: Vec<Pod<'a>>,
    uncounted: Uncounted,
}

/// Uids of pods that have ended and are not in the counters yet.
struct Uncounted {
    succeeded: Vec<String>,
    failed: Vec<String>,
}

impl Uncounted {
    fn of(status: &JobStatus) -> Self {
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        Self {
            succeeded: uncounted.succeeded.unwrap_or_default(),
            failed: uncounted.failed.unwrap_or_default(),
        }
    }

    fn contains(&self, pod: Pod<'_>) -> bool {
        self.succeeded.iter().chain(&self.failed).any(|uid| uid == pod.uid.as_str())
    }
}

/// What accounting changes.
pub(super) struct Accounting<'a> {
    /// Pods whose finalizers are to be removed before the status is written.
    pub(super) counted: Vec<Pod<'a>>,
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    pub(super) uncounted: UncountedTerminatedPods,
    /// Whether every pod is accounted for once that is done.
    pub(super) is_complete: bool,
}

impl<'a> Tally<'a> {
    pub(super) fn of(settings: &Settings<'_>, pods: &[Pod<'a>], status: &JobStatus) -> Self {
        let select = |is: fn(&PodView) -> bool| pods.iter().copied().filter(move |pod| is(&pod.object));
        let active: Vec<_> = select(PodView::is_active).collect();
        let tracked: Vec<_> = select(|pod| pod.has_finalizer(labels::TRACKING_FINALIZER)).collect();
        let mut tally = Self {
            ready: count(active.iter().filter(|pod| pod.object.is_ready())),
            active,
            terminating: select(PodView::is_terminating).collect(),
            succeeded: status.succeeded.unwrap_or_default(),
            failed: status.failed.unwrap_or_default(),
            succeeded_indexes: Indexes::parse(status.completed_indexes.as_deref(), settings.indexes()),
            failed_indexes: Indexes::parse(status.failed_indexes.as_deref(), settings.indexes()),
            fail_job: None,
            delayed: BTreeMap::new(),
            tracked,
            uncounted: Uncounted::of(status),
        };
        tally.count_ends(settings);
        if settings.is_indexed {
            tally.succeeded = tally.succeeded_indexes.len();
        }
        if settings.backoff_limit_per_index.is_some() {
            tally.delay_finalizers(settings);
        }
        for pod in pods.iter().filter(|pod| settings.has_failed(&pod.object)) {
            if let FailureAction::FailJob(message) = failure_action(settings, pod) {
                tally.fail_job.get_or_insert(message);
            }
        }
        tally
    }

    fn count_ends(&mut self, settings: &Settings<'_>) {
        self.succeeded += count(&self.uncounted.succeeded);
        self.failed += count(&self.uncounted.failed);
        for pod in self.tracked.iter().filter(|pod| !self.uncounted.contains(pod)) {
            let index = settings.index_of(&pod.object);
            if settings.is_indexed && index.is_none() {
                continue;
            }
            if pod.object.status.phase == Phase::Succeeded {
                self.succeeded += 1;
                self.succeeded_indexes.0.extend(index);
            } else if settings.has_failed(&pod.object) {
                let action = failure_action(settings, pod);
                self.failed += i32::from(action != FailureAction::Ignore);
                if fails_index(settings, pod, &action) {
                    self.failed_indexes.0.extend(index);
                }
            }
        }
    }

    fn delay_finalizers(&mut self, settings: &Settings<'_>) {
        let active: BTreeSet<_> =
            self.active.iter().filter_map(|pod| settings.index_of(&pod.object)).collect();
        for pod in self.tracked.iter().filter(|pod| settings.has_failed(&pod.object)) {
            let Some(index) = settings.index_of(&pod.object) else { continue };
            let is_over = self.succeeded_indexes.contains(index) || self.failed_indexes.contains(index);
            if is_over || active.contains(&index) {
                continue;
            }
            let before = self.delayed.get(&index).map_or(-1, |pod| total_failures(&pod.object));
            if total_failures(&pod.object) >= before {
                self.delayed.insert(index, pod);
            }
        }
    }

    /// Accounts for ended pods. When the Job `is_finishing`, pods that have not ended count as failed.
    pub(super) fn account(
        &self,
        settings: &Settings<'_>,
        status: &JobStatus,
        is_finishing: bool,
        is_deleting: bool,
    ) -> Accounting<'a> {
        let recorded = Indexes::parse(status.completed_indexes.as_deref(), settings.indexes());
        let (mut counted, mut left) = (Vec::new(), 0);
        let (mut succeeded, mut failed) = (Vec::new(), Vec::new());
        for pod in &self.tracked {
            let has_succeeded = pod.object.status.phase == Phase::Succeeded;
            let has_failed = is_finishing || settings.has_failed(&pod.object);
            let index = settings.index_of(&pod.object);
            let is_delayed = index
                .is_some_and(|index| self.delayed.get(&index).is_some_and(|delayed| delayed.uid == pod.uid));
            let is_counted = if !has_succeeded && !has_failed {
                // An active pod of a Job that is being deleted: garbage collection removes it.
                left += 1;
                continue;
            } else if self.uncounted.contains(pod) {
                true
            } else if is_delayed && !is_finishing && !is_deleting {
                left += 1;
                continue;
            } else if settings.is_indexed && index.is_none() {
                true
            } else if has_succeeded && settings.is_indexed {
                index.is_some_and(|index| recorded.contains(index))
            } else if has_succeeded {
                succeeded.push(pod.uid.to_string());
                false
            } else if failure_action(settings, pod) == FailureAction::Ignore {
                true
            } else {
                failed.push(pod.uid.to_string());
                false
            };
            if is_counted {
                counted.push(*pod);
            } else {
                left += 1;
            }
        }
        failed.truncate(MAX_UNCOUNTED);
        succeeded.truncate(MAX_UNCOUNTED - failed.len());
        let list = |uids: Vec<String>| (!uids.is_empty()).then_some(uids);
        Accounting {
            counted,
            succeeded: status.succeeded.unwrap_or_default() + count(&self.uncounted.succeeded),
            failed: status.failed.unwrap_or_default() + count(&self.uncounted.failed),
            uncounted: UncountedTerminatedPods { succeeded: list(succeeded), failed: list(failed) },
            is_complete: left == 0,
        }
    }
}

/// Whether a failed pod is the last one of its index.
fn fails_index(settings: &Settings<'_>, pod: Pod<'_>, action: &FailureAction) -> bool {
    let Some(limit) = settings.backoff_limit_per_index else { return false };
    match action {
        FailureAction::Ignore => false,
        FailureAction::FailIndex => true,
        FailureAction::Count | FailureAction::FailJob(_) => {
            failures(&pod.object, labels::INDEX_FAILURES) >= limit
        }
    }
}

/// How often the index of a pod had failed before the pod.
pub(super) fn failures(pod: &PodView, annotation: &str) -> i32 {
    pod.metadata.annotations.get(annotation).and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// The same, with failures that the pod failure policy ignores.
pub(super) fn total_failures(pod: &PodView) -> i32 {
    failures(pod, labels::INDEX_FAILURES) + failures(pod, labels::INDEX_IGNORED_FAILURES)
}

pub(super) fn count<T>(all: impl IntoIterator<Item = T>) -> i32 {
    i32::try_from(all.into_iter().count()).unwrap_or(i32::MAX)
}
