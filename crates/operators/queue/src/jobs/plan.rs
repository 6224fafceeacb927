//! The decision about one job: whether it is managed, and which Workload stands for it.

use std::collections::BTreeMap;

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::events::JobEvent;
use quintet_api::kueue::metadata::{JOB_UID, QUEUE_NAME};
use quintet_api::kueue::reasons::FinishedReason;
use quintet_api::kueue::v1beta2::{PodSet, ReclaimablePod, Workload};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Event, Plan, Step};
use serde_json::json;

use super::ancestors::Ancestor;
use super::compose::{self, label};
use super::lifecycle::{
    Lifecycle, ManagedJob, Stop, StopReason, all, conclude, event, find, one, orphaned, with_assigned_counts,
};
use super::observe::{ObservedJob, Prebuilt, PresentJob};
use super::pod_set_info::PodSetInfo;
use super::priority::Priority;
use super::slices::{self, Resize, Slices};
use super::{JobEnd, JobKind, equivalence};
use crate::workload::without_finalizer;

/// The plan for a job.
pub(super) fn plan<J: JobKind>(observed: &ObservedJob<J>) -> Plan {
    match observed {
        ObservedJob::Present(present) => Decision { observed: present }.decide(),
        ObservedJob::Gone(gone) => {
            let steps = gone.workloads.iter().filter_map(|entry| orphaned(entry, &gone.settings, gone.now));
            all(steps.map(Step::from).collect())
        }
    }
}

struct Decision<'o, J: JobKind> {
    observed: &'o PresentJob<J>,
}

/// The Workload of a job, or what to do first.
enum Found<'w> {
    Workload(&'w Entry<Workload>),
    None,
    First(Plan),
}

impl<J: JobKind> Decision<'_, J> {
    fn job(&self) -> &J {
        &self.observed.job.object
    }

    fn lifecycle(&self) -> Lifecycle<'_, PresentJob<J>> {
        let PresentJob { settings, now, priority, flavors, .. } = self.observed;
        Lifecycle { job: self.observed, settings, now: *now, priority, flavors }
    }

    fn decide(&self) -> Plan {
        let observed = self.observed;
        if observed.job.deleting {
            if self.job().outlives_deletion(&observed.settings) {
                return Plan::awaiting("the end of its deletion");
            }
            return self.delete();
        }
        if let Some(step) = observed.leftovers.iter().find_map(|entry| without_finalizer(entry)) {
            return one(step);
        }
        if !observed.is_namespace_managed || !self.job().is_managed(&observed.settings) {
            return Plan::nothing();
        }
        let has_queue = label(self.job().meta(), QUEUE_NAME).is_some();
        match &observed.ancestor {
            Ancestor::TooDeep => {
                let reason = JobEvent::JobNestingTooDeep.as_str();
                let note =
                    "Terminated search for Kueue-managed Job because ancestor depth exceeded limit of 10";
                Plan { events: vec![Event::warning(reason, reason, note)], ..Plan::default() }
            }
            Ancestor::Missing(owner) => Plan::awaiting(format!("{owner}, which controls it")),
            Ancestor::Managed(_) => self.follow_ancestor(),
            Ancestor::None if has_queue || observed.settings.configuration.manage_jobs_without_queue_name => {
                match &observed.pod_sets {
                    Ok(sets) => self.manage(sets),
                    Err(why) => {
                        let reason = JobEvent::ErrWorkloadCompose.as_str();
                        let event = Event::warning(reason, reason, why.as_str());
                        Plan { events: vec![event], ..Plan::awaiting(why.as_str()) }
                    }
                }
            }
            Ancestor::None => Plan::nothing(),
        }
    }

    /// A job that runs these pods and waits for its own Workload.
    fn manage(&self, sets: &[PodSet]) -> Plan {
        match self.find(sets) {
            Found::First(plan) => plan,
            Found::None => self.create(sets),
            Found::Workload(workload) => self.lifecycle().follow(workload),
        }
    }

    /// The Workloads of a deleted job give their quota back, and nothing keeps it any more.
    fn delete(&self) -> Plan {
        let PresentJob { settings, now, workloads, leftovers, .. } = self.observed;
        let owned = workloads.iter().chain(leftovers);
        let steps = owned.filter_map(|entry| orphaned(entry, settings, *now)).map(Step::from);
        all(steps.chain(self.observed.finalize()).collect())
    }

    /// The job of a managed ancestor runs only while that is admitted.
    fn follow_ancestor(&self) -> Plan {
        if self.observed.is_ancestor_admitted || self.job().is_suspended() || self.job().end().is_some() {
            return Plan::nothing();
        }
        let (reason, note) = (StopReason::NotAdmitted, "Kueue managed child job suspended");
        let mut steps = J::stop(&self.observed.job, &[], &Stop { reason, note, now: self.observed.now });
        record_event(&mut steps, event(JobEvent::Suspended, note));
        all(steps)
    }

    fn find(&self, sets: &[PodSet]) -> Found<'_> {
        if let Some(prebuilt) = &self.observed.prebuilt {
            return self.find_prebuilt(prebuilt, sets);
        }
        if self.observed.is_elastic()
            && let Some(found) = self.find_slice(sets)
        {
            return found;
        }
        let matching =
            self.observed.workloads.iter().position(|entry| self.is_equivalent(&entry.object, sets));
        let others: Vec<_> = self
            .observed
            .workloads
            .iter()
            .enumerate()
            .filter(|(index, _)| matching != Some(*index))
            .map(|(_, entry)| entry)
            .collect();
        let is_running = !self.job().is_suspended() && self.job().end().is_none();
        if matching.is_none()
            && let Some(outdated) = others.first()
        {
            if self.job().end().is_some() {
                return Found::Workload(outdated);
            }
            if is_running {
                let note = "No matching Workload; restoring pod templates according to existent Workload";
                return Found::First(self.stop(Some(outdated), note));
            }
            if others.len() == 1 && !outdated.object.has_quota_reservation() && !outdated.object.is_finished()
            {
                return Found::First(self.rewrite(outdated, sets));
            }
        }
        if let Some(other) = others.first() {
            let note = format!("Deleted not matching Workload: {}", other.key);
            let delete = Action::delete(ApiKind::of::<Workload>(), other);
            let mut steps: Vec<Step> = without_finalizer(other).map(Step::from).into_iter().collect();
            if !other.deleting {
                steps.push(delete.with_event(event(JobEvent::DeletedWorkload, note)));
            }
            return Found::First(all(steps));
        }
        let Some(entry) = matching.and_then(|index| self.observed.workloads.get(index)) else {
            return Found::None;
        };
        let is_over = entry.deleting || entry.object.is_finished();
        let gated = if is_over { None } else { self.lifecycle().follow_gates(entry) };
        gated.map_or(Found::Workload(entry), Found::First)
    }

    /// The slice of an elastic job; `None` if its Workload has other pod sets, so that it is that of any job.
    fn find_slice(&self, sets: &[PodSet]) -> Option<Found<'_>> {
        let observed = self.observed;
        if let Some(annotate) = self.annotate() {
            return Some(Found::First(one(annotate)));
        }
        let has_ended = self.job().end().is_some();
        let mut finished = observed.workloads.iter().filter(|entry| entry.object.is_finished());
        let kept = finished.find_map(|entry| Some((entry, without_finalizer(entry)?)));
        let slices = Slices::of(&observed.workloads);
        match kept {
            Some((entry, _)) if has_ended && slices.selected.is_none() => {
                return Some(Found::Workload(entry));
            }
            Some((_, unprotect)) => return Some(Found::First(one(unprotect))),
            None => {}
        }
        if let Some((entry, reason, message)) = slices.obsolete.first() {
            return Some(Found::First(self.conclude_slice(entry, *reason, message)));
        }
        let Some(selected) = slices.selected else { return Some(Found::None) };
        if has_ended {
            return Some(Found::Workload(selected));
        }
        let is_partial = observed.grows_partially();
        if let Some(retained) = slices.retained {
            // A job does not wait for what it asks for beyond what it has.
            if self.job().is_suspended() && slices::has_granted(&retained.object) {
                return Some(Found::Workload(retained));
            }
            if let Some(plan) = self.retain(retained, selected, sets, is_partial) {
                return Some(Found::First(plan));
            }
        }
        match Resize::between(&selected.object, sets, is_partial) {
            Resize::Replace
                if is_partial && self.job().is_suspended() && slices::has_granted(&selected.object) =>
            {
                Some(Found::Workload(selected))
            }
            Resize::None => Some(Found::Workload(selected)),
            Resize::InPlace => {
                let resized = slices::resized(&selected.object, sets);
                let update = Action::update(ApiKind::of::<Workload>(), selected, &resized);
                Some(update.map_or(Found::Workload(selected), |update| Found::First(one(update))))
            }
            Resize::Replace if selected.deleting => Some(Found::Workload(selected)),
            Resize::Replace => Some(Found::First(self.create_workload(sets, Some(selected)))),
            Resize::Incompatible => None,
        }
    }

    /// What to do about the slice that a job runs with while another one waits to replace it.
    fn retain(
        &self,
        retained: &Entry<Workload>,
        waiting: &Entry<Workload>,
        sets: &[PodSet],
        is_partial: bool,
    ) -> Option<Plan> {
        if let Some(plan) = self.lifecycle().follow_priority(retained) {
            return Some(plan);
        }
        if !is_partial {
            return None;
        }
        // Quota of a job that shrinks is given back without waiting in the queue.
        if slices::covers(&retained.object, sets) {
            return Some(self.conclude_slice(waiting, FinishedReason::OutOfSync, slices::OUT_OF_SYNC));
        }
        self.lifecycle().report_pods(retained).map(one)
    }

    /// Writes annotations that the job does not have yet.
    fn annotate(&self) -> Option<Action> {
        let PresentJob { job, annotations, .. } = self.observed;
        let known = job.object.meta().annotations.as_ref();
        let is_known = |name: &str, value: &String| known.and_then(|known| known.get(name)) == Some(value);
        let missing: BTreeMap<_, _> =
            annotations.iter().filter(|(name, value)| !is_known(name, value)).collect();
        let patch = json!({ "metadata": { "annotations": missing } });
        (!missing.is_empty()).then(|| Action::merge_exactly(ApiKind::of::<J>(), job, patch))
    }

    /// Ends a slice that stands for nothing any more. If it was evicted, the pods that ran with its quota end first.
    fn conclude_slice(&self, slice: &Entry<Workload>, reason: FinishedReason, message: &str) -> Plan {
        let evicted = find(&slice.object, WorkloadCondition::Evicted).filter(|own| own.status == "True");
        if let Some(evicted) = evicted.filter(|_| slice.object.has_quota_reservation()) {
            let (note, now) = (evicted.message.as_str(), self.observed.now);
            let reason = StopReason::WorkloadEvicted(evicted.reason.clone());
            let steps = self.observed.stop(Some(&slice.object), &Stop { reason, note, now });
            if !steps.is_empty() {
                return all(steps);
            }
            if self.job().is_active() {
                return Plan::awaiting("the end of its pods");
            }
        }
        conclude(slice, reason, message, self.observed.now).map_or_else(Plan::default, one)
    }

    /// A Workload that the user has made is taken over, unless another job has it.
    fn find_prebuilt<'w>(&self, prebuilt: &'w Prebuilt, sets: &[PodSet]) -> Found<'w> {
        let missing = || {
            let mut plan = if self.job().is_suspended() || self.job().end().is_some() {
                Plan::default()
            } else {
                self.stop(None, "missing workload")
            };
            plan.awaits.push(format!("Workload {}", prebuilt.name));
            Found::First(plan)
        };
        let Some(workload) = &prebuilt.workload else { return missing() };
        let owners = workload.object.metadata.owner_references.as_deref().unwrap_or_default();
        let controller = owners.iter().find(|owner| owner.controller == Some(true));
        match controller {
            Some(controller) if controller.uid != self.observed.job.uid.as_str() => return missing(),
            Some(_) => {}
            None => return Found::First(one(self.adopt(workload))),
        }
        if !workload.object.is_finished() && !self.is_in_sync(&workload.object, sets) {
            let message = "The prebuilt workload is out of sync with its user job";
            let action = conclude(workload, FinishedReason::OutOfSync, message, self.observed.now);
            return Found::First(action.map_or_else(Plan::default, one));
        }
        Found::Workload(workload)
    }

    fn adopt(&self, workload: &Entry<Workload>) -> Action {
        let uid = self.observed.job.uid.as_str();
        let mut owners = workload.object.metadata.owner_references.clone().unwrap_or_default();
        owners.push(compose::owner_reference(self.job(), uid));
        let patch = json!({ "metadata": { "ownerReferences": owners, "labels": { JOB_UID: uid } } });
        Action::merge_exactly(ApiKind::of::<Workload>(), workload, patch)
    }

    /// Whether a prebuilt Workload stands for its job. Whoever changes the size of an elastic job changes that of its slice with
    /// another write, and the slices that follow the first are checked by nobody else. As `ensureOneWorkload` of Kueue.
    fn is_in_sync(&self, workload: &Workload, of_job: &[PodSet]) -> bool {
        if !self.observed.is_elastic() {
            return self.is_equivalent(workload, of_job);
        }
        let is_covered = slices::is_replacement(workload) || !slices::is_outgrown(workload, of_job);
        is_covered && self.is_equivalent(&slices::resized(workload, of_job), of_job)
    }

    fn is_equivalent(&self, workload: &Workload, of_job: &[PodSet]) -> bool {
        if compose::max_execution_time(self.job().meta()) != workload.spec.maximum_execution_time_seconds {
            return false;
        }
        let raw = workload.spec.pod_sets.clone().unwrap_or_default();
        let is_same = equivalence::are_equivalent(of_job, &raw, true);
        if self.job().is_suspended() && is_same {
            return true;
        }
        workload.has_quota_reservation()
            && equivalence::are_equivalent(of_job, &with_assigned_counts(raw, workload), false)
            || is_same
    }

    /// Rewrites the Workload of a job that was changed while it waits.
    fn rewrite(&self, outdated: &Entry<Workload>, sets: &[PodSet]) -> Plan {
        let observed = self.observed;
        let priority = match &observed.priority {
            Ok(priority) => priority,
            Err(missing) => return self.lifecycle().without_class(missing),
        };
        let mut desired = outdated.object.clone();
        let fresh = self.workload(sets, priority);
        let active = desired.spec.active;
        desired.spec = fresh.spec;
        desired.spec.active = active;
        let update = Action::update(ApiKind::of::<Workload>(), outdated, &desired);
        let note = format!("Updated not matching Workload for suspended job: {}", outdated.key);
        update.map_or_else(Plan::default, |update| {
            one(update.with_event(event(JobEvent::UpdatedWorkload, note)))
        })
    }

    fn create(&self, sets: &[PodSet]) -> Plan {
        let observed = self.observed;
        if self.job().end().is_some() {
            return all(observed.finalize());
        }
        if !observed.is_elastic() {
            if !self.job().is_suspended() {
                return self.stop(None, "No matching Workload");
            }
            if self.job().is_active() {
                return Plan::awaiting("the end of its pods");
            }
        }
        self.create_workload(sets, None)
    }

    /// Creates the Workload of the job, which may be a slice that replaces another.
    fn create_workload(&self, sets: &[PodSet], replaced: Option<&Entry<Workload>>) -> Plan {
        let observed = self.observed;
        let priority = match &observed.priority {
            Ok(priority) => priority,
            Err(missing) => return self.lifecycle().without_class(missing),
        };
        let (uid, settings) = (observed.job.uid.as_str(), &observed.settings);
        let mut workload = self.workload(sets, priority);
        if observed.is_elastic() {
            slices::link(&mut workload, self.job(), uid, replaced, settings);
        }
        let name = workload.metadata.name.as_deref().unwrap_or_default();
        let note = format!("Created Workload: {}/{name}", observed.job.key.namespace().unwrap_or_default());
        let create = Action::create(ApiKind::of::<Workload>(), &workload);
        one(create.with_event(event(JobEvent::CreatedWorkload, note)))
    }

    fn workload(&self, sets: &[PodSet], priority: &Priority) -> Workload {
        let PresentJob { job, settings, .. } = self.observed;
        compose::workload(&job.object, job.uid.as_str(), sets.to_vec(), priority, settings)
    }

    /// The stop of a job that no Workload stands for.
    fn stop(&self, workload: Option<&Entry<Workload>>, note: &str) -> Plan {
        let stop = Stop { reason: StopReason::NoMatchingWorkload, note, now: self.observed.now };
        all(self.observed.stop(workload.map(|entry| &entry.object), &stop))
    }
}

impl<J: JobKind> PresentJob<J> {
    fn grows_partially(&self) -> bool {
        slices::grows_partially(&self.job.object, &self.settings)
    }
}

impl<J: JobKind> ManagedJob for PresentJob<J> {
    fn metadata(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        self.job.object.meta()
    }

    fn is_suspended(&self) -> bool {
        self.job.object.is_suspended()
    }

    fn is_active(&self) -> bool {
        self.job.object.is_active()
    }

    fn end(&self) -> Option<JobEnd> {
        self.job.object.end()
    }

    fn is_on_hold(&self) -> bool {
        self.job.object.is_on_hold()
    }

    fn has_pods_ready(&self, workload: &Workload) -> bool {
        let job = &self.job.object;
        job.has_all_pods_ready() || self.grows_partially() && job.has_ready(&slices::granted(workload))
    }

    fn reclaimable_pods(&self) -> Vec<ReclaimablePod> {
        self.reclaimable_pods.clone()
    }

    fn ends_when_stopped(&self) -> bool {
        J::ENDS_WHEN_STOPPED
    }

    fn waits_while_elsewhere(&self) -> bool {
        J::WAITS_WHILE_ELSEWHERE
    }

    fn is_elastic(&self) -> bool {
        J::TAKES_SLICES && slices::is_elastic(self.job.object.meta(), &self.settings)
    }

    fn start(&self, infos: &[PodSetInfo], note: &str) -> Result<Vec<Step>, String> {
        let mut steps = J::start_steps(&self.job, infos)?;
        if let Some(last) = steps.last_mut() {
            last.event = Some(event(JobEvent::Started, note));
        }
        Ok(steps)
    }

    fn stop(&self, workload: Option<&Workload>, stop: &Stop<'_>) -> Vec<Step> {
        if self.job.object.is_stopped(&stop.reason) {
            return Vec::new();
        }
        let sets = workload.and_then(|workload| workload.spec.pod_sets.clone());
        let sets = sets.or_else(|| self.pod_sets.clone().ok()).unwrap_or_default();
        let mut steps = J::stop(&self.job, &sets, stop);
        record_event(&mut steps, event(JobEvent::Stopped, stop.note));
        steps
    }

    fn finalize(&self) -> Vec<Step> {
        J::finalize(&self.job).map(Step::from).into_iter().collect()
    }

    fn delete(&self, event: &Event) -> Vec<Step> {
        vec![Action::delete(ApiKind::of::<J>(), &self.job).with_event(event.clone())]
    }

    fn event(&self, event: Event) -> Event {
        event
    }
}

/// The event is recorded with the first write.
fn record_event(steps: &mut [Step], event: Event) {
    if let Some(first) = steps.first_mut() {
        first.event = Some(event);
    }
}
