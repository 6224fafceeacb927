//! Slices of elastic jobs that others have replaced. They end once the admission of those is observed: pods of a job are
//! let through by the slice that has quota, so at no time may none have it.

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::events::WorkloadEvent;
use quintet_api::kueue::metadata::SLICE_REPLACEMENT_FOR;
use quintet_api::kueue::reasons::FinishedReason;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::index::Write;
use quintet_controller::{Event, ObjectKey};
use quintet_queue_engine::status;
use quintet_queue_engine::time::Time;

use super::{Assumed, Decided, Effect, Scheduler};
use crate::field_managers;

/// A slice that ends when another is admitted.
pub(super) struct Replaced {
    /// The other.
    pub(super) by: ObjectKey,
    pub(super) slice: ObjectKey,
    pub(super) message: String,
}

impl Scheduler {
    /// Ends slices whose time has come. If an admission was taken back, its slice goes on.
    pub(super) fn finish_replaced(&mut self, now: Time, writes: &mut Vec<Write<Decided>>) {
        for replaced in std::mem::take(&mut self.replaced) {
            let other = self.workloads.get(&replaced.by);
            let is_admitted = other.is_some_and(|entry| entry.object.has_quota_reservation());
            let is_written = |key: &ObjectKey| self.assumed.contains(key);
            if is_admitted && !is_written(&replaced.slice) {
                writes.extend(self.finish(replaced, now));
            } else if is_admitted || is_written(&replaced.by) {
                self.replaced.push(replaced);
            }
        }
    }

    /// A slice runs on the cluster where the one that it replaces runs.
    pub(super) fn follow_replaced(&self, object: &mut Workload) {
        let annotations = object.metadata.annotations.as_ref();
        let replaced = annotations.and_then(|own| own.get(SLICE_REPLACEMENT_FOR)?.split_once('/'));
        let replaced =
            replaced.and_then(|(namespace, name)| self.workloads.get(&ObjectKey::new(namespace, name)));
        let cluster = replaced.and_then(|entry| entry.object.status.as_ref()?.cluster_name.clone());
        if let Some(cluster) = cluster {
            object.status.get_or_insert_default().cluster_name = Some(cluster);
        }
    }

    fn finish(&mut self, replaced: Replaced, now: Time) -> Option<Write<Decided>> {
        let Replaced { slice, message, .. } = replaced;
        let entry = self.workloads.get(&slice).filter(|entry| !entry.object.is_finished())?;
        let mut object = entry.object.clone();
        let reason = FinishedReason::WorkloadSliceReplaced.as_str();
        status::set_condition(&mut object, WorkloadCondition::Finished, true, reason, &message, now);
        let patch = field_managers::status_patch(entry, object.status.as_ref())?;
        let event = WorkloadEvent::WorkloadSliceReplaced.as_str();
        let events = vec![Event::normal(event, event, message)];
        let version = entry.version;
        self.written += 1;
        let (status, number) = (object.status, self.written);
        let assumed = Assumed { patch, status, events, number, effect: Effect::Report, replaces: None };
        let write = assumed.write(&slice, version);
        self.assumed.assume(slice, version, assumed);
        Some(write)
    }
}
