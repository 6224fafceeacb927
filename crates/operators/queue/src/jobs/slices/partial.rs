//! Jobs that grow by as many pods as there is quota for.

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::v1beta2::{PodSet, Workload};

use super::{Counts, asked, counts, granted, is_elastic};
use crate::jobs::JobKind;
use crate::jobs::compose::annotation;
use crate::settings::Settings;

/// Annotation of an elastic job that grows by as many pods as there is quota for. Not Kueue's.
pub(in super::super) const PARTIAL_SCALE_UP: &str = "queue.quintet.dev/partial-scale-up";

/// Whether a job wants a part of the pods that it asks for, if there is no quota for all of them.
pub(in super::super) fn grows_partially<J: JobKind>(job: &J, settings: &Settings) -> bool {
    let metadata = job.meta();
    J::TAKES_SLICES
        && settings.scheduling.partial_admission
        && is_elastic(metadata, settings)
        && annotation(metadata, PARTIAL_SCALE_UP) == Some("true")
        && !job.min_counts().is_empty()
}

/// Whether a slice has as many pods of every pod set as its job asks for.
pub(in super::super) fn covers(slice: &Workload, job: &[PodSet]) -> bool {
    let (has, asks) = (granted(slice), counts(job));
    has.keys().eq(asks.keys()) && has.values().zip(asks.values()).all(|(has, asks)| asks <= has)
}

/// Whether a slice asks for what the one that it replaces has asked for, and was not given.
pub(in super::super) fn asks_for_rest(slice: &Workload, replaced: &Workload) -> bool {
    asked(slice) == asked(replaced)
}

/// Whether a slice is admitted, so that its job can run with what it was granted.
pub(in super::super) fn has_granted(slice: &Workload) -> bool {
    slice.is_admitted() && !slice.is_finished()
}

/// How few pods are enough, as the annotation of a slice has it.
pub(super) fn text_of(counts: &Counts) -> String {
    let entries: Vec<String> = counts.iter().map(|(name, count)| format!("{name}={count}")).collect();
    entries.join(",")
}
