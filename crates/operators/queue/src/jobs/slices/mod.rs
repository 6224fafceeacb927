//! Elastic jobs: a job that changes its size while it runs has a chain of Workloads, its slices.
//!
//! A job that shrinks, or whose slice waits, gets the count of its slice changed. A job that grows gets another slice that
//! replaces the first once it is admitted; until then the new pods are gated. As `pkg/workloadslicing` of Kueue.
//!
//! A job may also grow by what there is quota for. Then its slice is admitted with fewer pods than it asks for, and another
//! one asks for the rest. Kueue has no such jobs.

mod partial;
#[cfg(test)]
mod tests;
mod ungater;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::metadata::{ELASTIC_JOB, SLICE_REPLACEMENT_FOR};
use quintet_api::kueue::reasons::FinishedReason;
use quintet_api::kueue::v1beta2::{PodSet, Workload};
use quintet_controller::cache::Entry;
use quintet_queue_engine::ingest::MIN_COUNTS;

use super::JobKind;
use super::compose::{self, annotation};
use super::lifecycle::with_assigned_counts;
use crate::settings::Settings;
pub(super) use partial::{PARTIAL_SCALE_UP, asks_for_rest, covers, grows_partially, has_granted};
pub(super) use ungater::add as add_ungater;

/// Annotation of a slice and of its pods: the first slice of the job, by its name.
pub(crate) const SLICE_NAME: &str = "kueue.x-k8s.io/workload-slice-name";
/// Scheduling gate of pods that wait for the admission of their slice.
pub(super) const ELASTIC_GATE: &str = "kueue.x-k8s.io/elastic-job";

const REPLACED: &str = "Replaced to accommodate a new workload slice";
pub(super) const OUT_OF_SYNC: &str = "The workload slice is out of sync with its parent job";

/// Whether a job or a Workload may change its size while it runs.
pub(super) fn is_elastic(metadata: &ObjectMeta, settings: &Settings) -> bool {
    settings.scheduling.elastic_slices && annotation(metadata, ELASTIC_JOB) == Some("true")
}

/// The first slice of a chain, which all of its pods name.
pub(crate) fn first_of(workload: &Workload) -> &str {
    let own = workload.metadata.name.as_deref().unwrap_or_default();
    annotation(&workload.metadata, SLICE_NAME).unwrap_or(own)
}

/// Whether a Workload is one of several slices of a job.
pub(crate) fn is_slice(workload: &Workload) -> bool {
    annotation(&workload.metadata, SLICE_NAME).is_some()
}

/// Whether a slice replaces another one.
pub(super) fn is_replacement(workload: &Workload) -> bool {
    annotation(&workload.metadata, SLICE_REPLACEMENT_FOR).is_some()
}

/// Whether a job asks for more pods than its slice does.
pub(super) fn is_outgrown(slice: &Workload, job: &[PodSet]) -> bool {
    let asked = asked(slice);
    counts(job).iter().any(|(name, count)| asked.get(name).is_some_and(|own| own < count))
}

/// How many pods of each pod set a job asks for, if it is elastic.
pub(super) fn counts_of<J: JobKind>(job: &J, settings: &Settings) -> Option<Counts> {
    let is_elastic = J::TAKES_SLICES && is_elastic(job.meta(), settings);
    let sets = is_elastic.then(|| job.pod_sets(&settings.scheduling, &[]).ok())?;
    sets.map(|sets| counts(&sets))
}

/// The unfinished slices of a job.
#[derive(Default)]
pub(super) struct Slices<'w> {
    /// The one that has the size of the job, or is to get it.
    pub(super) selected: Option<&'w Entry<Workload>>,
    /// The one that it replaces, which has quota until then.
    pub(super) retained: Option<&'w Entry<Workload>>,
    /// Those that stand for nothing any more, and why.
    pub(super) obsolete: Vec<(&'w Entry<Workload>, FinishedReason, &'static str)>,
}

impl<'w> Slices<'w> {
    pub(super) fn of(workloads: &'w [Arc<Entry<Workload>>]) -> Self {
        let mut slices: Vec<&Entry<Workload>> =
            workloads.iter().map(|entry| &**entry).filter(|entry| !entry.object.is_finished()).collect();
        slices.sort_by_key(|entry| {
            (entry.object.metadata.creation_timestamp.clone(), entry.uid.as_str().to_owned())
        });
        if let [only] = slices[..] {
            return Self { selected: Some(only), ..Self::default() };
        }
        let replacements = replacements(&slices);
        let live = || slices.iter().copied().filter(|entry| !entry.object.is_evicted());
        let replacement_of = |entry: &Entry<Workload>| replacements.get(entry.key.as_str()).copied();
        let reserved = live().rfind(|entry| {
            entry.object.has_quota_reservation()
                && replacement_of(entry).is_none_or(|other| !other.object.has_quota_reservation())
        });
        let selected = match reserved {
            Some(reserved) => replacement_of(reserved).or(Some(reserved)),
            None => live().next_back(),
        };
        let is = |entry: &Entry<Workload>, other: Option<&Entry<Workload>>| {
            other.is_some_and(|other| other.key == entry.key)
        };
        let obsolete = slices.iter().filter(|entry| !is(entry, selected) && !is(entry, reserved));
        let obsolete = obsolete.map(|entry| match replacement_of(entry) {
            Some(_) => (*entry, FinishedReason::WorkloadSliceReplaced, REPLACED),
            None => (*entry, FinishedReason::OutOfSync, OUT_OF_SYNC),
        });
        let obsolete = obsolete.collect();
        let retained = reserved.filter(|entry| !is(entry, selected));
        Self { selected, retained, obsolete }
    }
}

/// Slices by the key of the one they replace. Of two that claim the same one, that with quota counts.
fn replacements<'w>(slices: &[&'w Entry<Workload>]) -> BTreeMap<&'w str, &'w Entry<Workload>> {
    let mut found: BTreeMap<&str, &Entry<Workload>> = BTreeMap::new();
    for entry in slices.iter().filter(|entry| !entry.object.is_evicted()) {
        let Some(replaced) = annotation(&entry.object.metadata, SLICE_REPLACEMENT_FOR) else { continue };
        let is_better = |known: &&Entry<Workload>| {
            !known.object.has_quota_reservation() && entry.object.has_quota_reservation()
        };
        if found.get(replaced).is_none_or(is_better) {
            found.insert(replaced, entry);
        }
    }
    found
}

/// How a job and its slice differ in size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resize {
    None,
    /// The slice gets other counts.
    InPlace,
    /// Another slice has to replace it.
    Replace,
    /// They have different pod sets.
    Incompatible,
}

impl Resize {
    /// A slice of a job that grows partially has the pods that it was granted, not those that it asked for.
    pub(super) fn between(slice: &Workload, job: &[PodSet], is_partial: bool) -> Self {
        let (of_slice, of_job) = (asked(slice), counts(job));
        if !of_slice.keys().eq(of_job.keys()) {
            return Self::Incompatible;
        }
        let has = if is_partial && slice.is_admitted() { granted(slice) } else { of_slice.clone() };
        let grows = has.values().zip(of_job.values()).any(|(old, new)| new > old);
        if slice.has_quota_reservation() && grows {
            return Self::Replace;
        }
        if of_slice == of_job { Self::None } else { Self::InPlace }
    }
}

/// Numbers of pods by pod set.
pub type Counts = BTreeMap<String, i32>;

fn counts(sets: &[PodSet]) -> Counts {
    sets.iter().map(|set| (set.name.clone().unwrap_or_default(), set.count.unwrap_or(1))).collect()
}

fn asked(slice: &Workload) -> Counts {
    counts(slice.spec.pod_sets.as_deref().unwrap_or_default())
}

/// How many pods a slice lets run: as many as it was admitted with, or fewer if its job has shrunk since.
pub(super) fn granted(slice: &Workload) -> Counts {
    let sets = slice.spec.pod_sets.clone().unwrap_or_default();
    let mut granted = counts(&with_assigned_counts(sets, slice));
    for (name, asked) in asked(slice) {
        granted.entry(name).and_modify(|count| *count = asked.min(*count));
    }
    granted
}

/// A slice with the size of its job.
pub(super) fn resized(slice: &Workload, job: &[PodSet]) -> Workload {
    let mut resized = slice.clone();
    resize(resized.spec.pod_sets.get_or_insert_default(), job);
    resized
}

fn resize(sets: &mut [PodSet], job: &[PodSet]) {
    for set in sets {
        if let Some(own) = job.iter().find(|own| own.name == set.name) {
            set.count = own.count;
        }
    }
}

/// Makes the Workload of an elastic job a slice, maybe one that replaces another. Its name depends on the revision of the
/// job, so that every size has its own.
pub(super) fn link<J: JobKind>(
    workload: &mut Workload,
    job: &J,
    uid: &str,
    replaced: Option<&Entry<Workload>>,
    settings: &Settings,
) {
    let metadata = job.meta();
    let unique = format!("{uid}\n{}", job.revision());
    let (kind, group) = (J::kind(&()), J::group(&()));
    let job_name = metadata.name.as_deref().unwrap_or_default();
    let asks_again = replaced.filter(|old| asks_for_rest(workload, &old.object));
    let unique = match asks_again {
        Some(old) => format!("{unique}\n{}", old.key.name()),
        None => unique,
    };
    let name = compose::workload_name(&kind, &group, job_name, &unique, settings);
    let first = replaced.map_or(name.as_str(), |old| first_of(&old.object)).to_owned();
    let annotations = workload.metadata.annotations.get_or_insert_default();
    annotations.insert(ELASTIC_JOB.to_owned(), "true".to_owned());
    annotations.insert(SLICE_NAME.to_owned(), first.clone());
    if let Some(old) = replaced {
        annotations.insert(SLICE_REPLACEMENT_FOR.to_owned(), old.key.to_string());
    }
    if grows_partially(job, settings) {
        annotations.insert(MIN_COUNTS.to_owned(), partial::text_of(&job.min_counts()));
    }
    workload.metadata.name = Some(name);
    if let Some(old) = replaced.filter(|_| !job.is_suspended()) {
        take_templates(&mut workload.spec.pod_sets, old, &first);
    }
}

/// A job that runs has in its templates what was injected at its start: those of the slice before have not. Pods keep the
/// name of the first slice.
fn take_templates(sets: &mut Option<Vec<PodSet>>, old: &Entry<Workload>, first: &str) {
    let olds = old.object.spec.pod_sets.iter().flatten();
    for set in sets.iter_mut().flatten() {
        let Some(original) = olds.clone().find(|own| own.name == set.name) else { continue };
        set.template = original.template.clone();
        let metadata = set.template.metadata.get_or_insert_default();
        metadata.annotations.get_or_insert_default().insert(SLICE_NAME.to_owned(), first.to_owned());
    }
}
