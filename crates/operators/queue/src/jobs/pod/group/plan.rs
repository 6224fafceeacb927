//! The decision about one group of pods. As `FindMatchingWorkloads` and `ConstructComposableWorkload` of Kueue.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::events::{JobEvent, WorkloadEvent};
use quintet_api::kueue::metadata::{POD_GROUP_SERVING, QUEUE_NAME, RETRIABLE_IN_GROUP};
use quintet_api::kueue::reasons::FinishedReason;
use quintet_api::kueue::v1beta2::{PodSet, ReclaimablePod, Workload};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Event, Plan, Step};
use quintet_queue_engine::status;
use serde_json::json;

use super::super::super::compose::{annotation, label, max_execution_time};
use super::super::super::lifecycle::{
    Lifecycle, ManagedJob, Stop, StopReason, all, conclude, event, find, one, write_status,
};
use super::super::super::observe::prebuilt_name;
use super::super::super::{JobEnd, PodSetInfo};
use super::super::members::{self, Member, role_of};
use super::super::{has_ended, is_gated, is_managed, is_ready, is_stopped, phase, terminate, ungate};
use super::{ObservedGroup, compose, is_group_workload};
use crate::scheduler::engine_time;
use crate::workload::{after, without_finalizer};

const OUT_OF_SYNC: &str = "The prebuilt workload is out of sync with its user job";
const NEEDS_REPLACEMENT: &str = "Some Failed pods need replacement";
const NEEDS_NONE: &str = "No pods need replacement";
const NO_MATCH: &str = "No matching Workload; restoring pod templates according to existent Workload";

/// The plan for a group.
pub(in super::super) fn plan(observed: &ObservedGroup) -> Plan {
    let Some(first) = observed.pods.first() else {
        // Nothing refers to the Workload any more.
        let workload = observed.workload.as_ref().filter(|entry| is_group_workload(&entry.object));
        return workload.and_then(|entry| without_finalizer(entry)).map_or_else(Plan::default, one);
    };
    let has_queue = label(&first.object.metadata, QUEUE_NAME).is_some();
    let is_queued = has_queue || observed.settings.configuration.manage_jobs_without_queue_name;
    if !observed.is_namespace_managed || !is_managed(&first.object, &observed.settings) || !is_queued {
        return Plan::nothing();
    }
    let group = Group { observed, pods: observed.pods.clone() };
    match prebuilt_name(&first.object.metadata, &observed.settings) {
        Some(name) => group.follow_prebuilt(name),
        None => match &observed.workload {
            None => group.create(),
            Some(workload) => group.follow(workload),
        },
    }
}

/// The pods of a group that count.
struct Group<'o> {
    observed: &'o ObservedGroup,
    pods: Vec<Member>,
}

fn warning(reason: JobEvent, note: impl Into<String>) -> Event {
    Event::warning(reason.as_str(), reason.as_str(), note)
}

impl Group<'_> {
    fn lifecycle(&self) -> Lifecycle<'_, Self> {
        let ObservedGroup { settings, now, priority, flavors, .. } = self.observed;
        Lifecycle { job: self, settings, now: *now, priority, flavors }
    }

    fn first(&self) -> Option<&Pod> {
        self.pods.first().map(|entry| &entry.object)
    }

    /// A StatefulSet, or the user, has made the Workload.
    fn follow_prebuilt(&self, name: &str) -> Plan {
        let observed = self.observed;
        let own = observed.workload.as_ref().filter(|workload| {
            let owners = workload.object.metadata.owner_references.iter().flatten();
            let mut controllers = owners.filter(|owner| owner.controller == Some(true));
            name == observed.key.name()
                && controllers.all(|owner| self.pods.iter().any(|pod| pod.uid.as_str() == owner.uid))
        });
        let Some(workload) = own else {
            let stop = self.stop_of(StopReason::NoMatchingWorkload, "missing workload");
            let awaits = vec![format!("Workload {name}")];
            return Plan { awaits, ..all(self.stop(None, &stop)) };
        };
        if let Some(step) = self.add_owners(workload) {
            return one(step);
        }
        match compose::pod_sets(&self.pods, &observed.settings) {
            Err(problem) => Plan::awaiting(problem),
            Ok(sets) if workload.object.is_finished() || is_equivalent(&workload.object, &sets) => {
                self.lifecycle().follow(workload)
            }
            Ok(_) => conclude(workload, FinishedReason::OutOfSync, OUT_OF_SYNC, observed.now)
                .map_or_else(Plan::default, one),
        }
    }

    /// Lets the pods follow their Workload, if it still stands for them.
    fn follow(mut self, workload: &Entry<Workload>) -> Plan {
        let observed = self.observed;
        if observed.settings.gates.validate_group_owner && !is_group_workload(&workload.object) {
            return self.refuse(workload);
        }
        let sets = workload.object.spec.pod_sets.as_deref().unwrap_or_default();
        let is_fast = self.first().is_some_and(compose::is_fast);
        let selection = members::select(&observed.pods, sets, is_fast, observed.now);
        let of_pods = compose::pod_sets(&selection.kept, &observed.settings);
        let is_fitting = match &of_pods {
            // No pod of a group with fast admission may run: it waits for one.
            Err(_) => is_fast,
            Ok(sets) => is_equivalent(&workload.object, sets),
        };
        let max_time = workload.object.spec.maximum_execution_time_seconds;
        if selection.kept.is_empty() || !is_fitting || max_execution_time(self.metadata()) != max_time {
            return self.replace(workload);
        }
        self.pods = selection.kept;
        let mut steps: Vec<Step> = self.add_owners(workload).into_iter().collect();
        steps.extend(remove_excess(&selection.excess));
        steps.extend(finalize(&selection.replaced));
        if !steps.is_empty() {
            return all(steps);
        }
        if let Some(action) = self.report_absent(workload, selection.absent > 0) {
            return one(action);
        }
        let is_over = workload.deleting || workload.object.is_finished();
        if let Some(plan) = self.lifecycle().follow_gates(workload).filter(|_| !is_over) {
            return plan;
        }
        self.lifecycle().follow(workload)
    }

    /// The Workload of that name is another's. Pods that are deleted do not wait for it.
    fn refuse(&self, workload: &Entry<Workload>) -> Plan {
        let (_, inactive) = members::partition(&self.pods);
        let name = workload.key.name();
        let note = format!(
            "A Workload named {name:?} already exists but is not a pod group workload; this pod group cannot be admitted"
        );
        let events = vec![self.event(warning(JobEvent::WorkloadNameConflict, note))];
        Plan { events, awaits: vec![format!("the end of Workload {name}")], ..all(finalize(&inactive)) }
    }

    /// The Workload no longer stands for the pods: it is rewritten while they wait, and made again otherwise.
    fn replace(&self, outdated: &Entry<Workload>) -> Plan {
        let is_unfinished = self.end().is_none();
        if !self.is_suspended() && is_unfinished {
            let stop = self.stop_of(StopReason::NoMatchingWorkload, NO_MATCH);
            let steps = self.stop(Some(&outdated.object), &stop);
            if !steps.is_empty() {
                return all(steps);
            }
        } else if !outdated.object.has_quota_reservation()
            && !outdated.object.is_finished()
            && !outdated.deleting
        {
            return self.composed().map_or_else(
                |plan| *plan,
                |fresh| {
                    let mut desired = outdated.object.clone();
                    let active = desired.spec.active;
                    desired.spec = fresh.spec;
                    desired.spec.active = active;
                    let update = Action::update(ApiKind::of::<Workload>(), outdated, &desired);
                    let note = format!("Updated not matching Workload for suspended job: {}", outdated.key);
                    let event = self.event(event(JobEvent::UpdatedWorkload, note));
                    update.map_or_else(Plan::default, |update| one(update.with_event(event)))
                },
            );
        }
        let mut steps: Vec<Step> = without_finalizer(outdated).map(Step::from).into_iter().collect();
        if !outdated.deleting {
            let note = format!("Deleted not matching Workload: {}", outdated.key);
            let delete = Action::delete(ApiKind::of::<Workload>(), outdated);
            steps.push(delete.with_event(self.event(event(JobEvent::DeletedWorkload, note))));
        }
        all(steps)
    }

    fn create(&self) -> Plan {
        if self.end().is_some() {
            return all(self.finalize());
        }
        self.composed().map_or_else(
            |plan| *plan,
            |workload| {
                let note = format!("Created Workload: {}", self.observed.key);
                let event = self.event(event(JobEvent::CreatedWorkload, note));
                one(Action::create(ApiKind::of::<Workload>(), &workload).with_event(event))
            },
        )
    }

    /// A Workload of the pods that there are; or what to do, or to wait for, first.
    fn composed(&self) -> Result<Workload, Box<Plan>> {
        let ObservedGroup { key, settings, priority, .. } = self.observed;
        let (mut active, inactive) = members::partition(&self.pods);
        let steps = finalize(&inactive);
        if !steps.is_empty() {
            return Err(Box::new(all(steps)));
        }
        let refused = |problem: String| {
            let events = vec![self.event(warning(JobEvent::ErrWorkloadCompose, problem.clone()))];
            Box::new(Plan { events, ..Plan::awaiting(problem) })
        };
        if let Some(problem) = compose::problem(key, &self.pods, active.len()) {
            return Err(refused(problem));
        }
        let total = self.first().map_or(Ok(0), compose::total_count).map_err(refused)?;
        let excess = members::excess_of(&mut active, total);
        if !excess.is_empty() {
            return Err(Box::new(all(remove_excess(&excess))));
        }
        let priority =
            priority.as_ref().map_err(|missing| Box::new(self.lifecycle().without_class(missing)))?;
        active.sort_by(|a, b| a.key.cmp(&b.key));
        compose::workload(key, &active, priority, settings).map_err(refused)
    }

    /// All pods own their Workload: it exists as long as one of them does.
    fn add_owners(&self, workload: &Entry<Workload>) -> Option<Step> {
        let mut owners = workload.object.metadata.owner_references.clone().unwrap_or_default();
        let known = owners.len();
        for pod in &self.pods {
            if !owners.iter().any(|owner| owner.uid == pod.uid.as_str()) {
                owners.push(compose::owner_reference(pod));
            }
        }
        let added = owners.len() - known;
        let kind = ApiKind::of::<Workload>();
        let reason = WorkloadEvent::OwnerReferencesAdded.as_str();
        let event = Event::normal(reason, reason, format!("Added {added} owner reference(s)"));
        (added > 0).then(|| {
            let patch = json!({ "metadata": { "ownerReferences": owners } });
            Action::merge_exactly(kind.clone(), workload, patch).with_event(event.about(kind, workload))
        })
    }

    /// Says whether pods have to be replaced, and why.
    fn report_absent(&self, workload: &Entry<Workload>, is_absent: bool) -> Option<Action> {
        let kind = WorkloadCondition::WaitingForReplacementPods;
        let known = find(&workload.object, kind);
        let evicted =
            find(&workload.object, WorkloadCondition::Evicted).filter(|evicted| evicted.status == "True");
        let is_known = known.is_some_and(|known| known.status == "True");
        let (reason, message) = match (is_absent, evicted) {
            (true, Some(evicted)) => (evicted.reason.as_str(), evicted.message.as_str()),
            (true, None) if is_known => return None,
            (true, None) => ("PodsFailed", NEEDS_REPLACEMENT),
            (false, _) if !is_known => return None,
            (false, _) => ("PodsReady", NEEDS_NONE),
        };
        let mut changed = workload.object.clone();
        let now = engine_time(self.observed.now);
        status::set_condition(&mut changed, kind, is_absent, reason, message, now);
        write_status(workload, &changed)
    }

    fn stop_of<'s>(&self, reason: StopReason, note: &'s str) -> Stop<'s> {
        Stop { reason, note, now: self.observed.now }
    }

    fn is_serving(&self) -> bool {
        self.first().is_some_and(|pod| annotation(&pod.metadata, POD_GROUP_SERVING) == Some("true"))
    }

    /// Until when a pod counts as active: a deleted one no longer than it was given to end, so that a lost node does not
    /// keep its quota.
    fn activity(&self, pod: &Pod) -> Option<Timestamp> {
        if phase(pod) != "Running" {
            return None;
        }
        let Some(deleted) = &pod.metadata.deletion_timestamp else { return Some(Timestamp::MAX) };
        let grace = u64::try_from(pod.metadata.deletion_grace_period_seconds.unwrap_or_default());
        let until = after(deleted.0, std::time::Duration::from_secs(grace.unwrap_or_default()));
        (!self.observed.settings.gates.fast_quota_release && until >= self.observed.now).then_some(until)
    }
}

impl ManagedJob for Group<'_> {
    fn metadata(&self) -> &ObjectMeta {
        static NONE: std::sync::LazyLock<ObjectMeta> = std::sync::LazyLock::new(ObjectMeta::default);
        self.first().map_or(&NONE, |pod| &pod.metadata)
    }

    fn is_suspended(&self) -> bool {
        self.pods.iter().any(|entry| has_ended(&entry.object) || is_gated(&entry.object))
    }

    fn is_active(&self) -> bool {
        self.pods.iter().any(|entry| self.activity(&entry.object).is_some())
    }

    fn active_until(&self) -> Option<Timestamp> {
        let until = self.pods.iter().filter_map(|entry| self.activity(&entry.object)).max()?;
        (until < Timestamp::MAX).then_some(until)
    }

    /// A group that serves never ends. Others have succeeded when enough pods have, or none is left that may be replaced.
    fn end(&self) -> Option<JobEnd> {
        let total = compose::total_count(self.first()?).ok()?;
        let succeeded = self.pods.iter().filter(|entry| phase(&entry.object) == "Succeeded").count();
        let has_ended = self.pods.iter().all(|entry| has_ended(&entry.object));
        let is_final = self
            .pods
            .iter()
            .any(|entry| annotation(&entry.object.metadata, RETRIABLE_IN_GROUP) == Some("false"));
        let ends = !self.is_serving() && (succeeded == total || has_ended && is_final);
        ends.then(|| JobEnd { succeeded: true, message: format!("Pods succeeded: {succeeded}/{total}.") })
    }

    fn has_pods_ready(&self, _: &Workload) -> bool {
        let is_fine = |pod: &Pod| is_ready(pod) || phase(pod) == "Succeeded";
        let total = self.first().and_then(|first| compose::total_count(first).ok());
        total.is_some_and(|total| self.pods.len() >= total)
            && self.pods.iter().all(|entry| is_fine(&entry.object))
    }

    fn reclaimable_pods(&self) -> Vec<ReclaimablePod> {
        let mut reclaimable: Vec<ReclaimablePod> = Vec::new();
        if self.is_serving() {
            return reclaimable;
        }
        for entry in self.pods.iter().filter(|entry| phase(&entry.object) == "Succeeded") {
            let role = role_of(&entry.object);
            match reclaimable.iter_mut().find(|own| own.name == role) {
                Some(own) => own.count += 1,
                None => reclaimable.push(ReclaimablePod { name: role, count: 1 }),
            }
        }
        reclaimable.sort_by(|a, b| a.name.cmp(&b.name));
        reclaimable
    }

    /// The Workload of a StatefulSet has the queue of that.
    fn names_queue(&self) -> bool {
        !self.is_serving()
    }

    fn start(&self, infos: &[PodSetInfo], note: &str) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        let kind = ApiKind::of::<Pod>();
        for entry in self.pods.iter().filter(|entry| is_gated(&entry.object) && !entry.deleting) {
            let role = role_of(&entry.object);
            let info = infos.iter().find(|info| info.name == role);
            let info = info.ok_or_else(|| {
                format!("invalid podset infos: podSetInfo with the name '{role}' is not found")
            })?;
            let mut started = entry.object.clone();
            ungate(&mut started, info)?;
            let event = event(JobEvent::Started, note).about(kind.clone(), entry);
            steps
                .extend(Action::update(kind.clone(), entry, &started).map(|update| update.with_event(event)));
        }
        Ok(steps)
    }

    fn waits_while_elsewhere(&self) -> bool {
        true
    }

    fn stop(&self, _: Option<&Workload>, stop: &Stop<'_>) -> Vec<Step> {
        // Nothing waits for the pods of a Workload that is deleted.
        let mut steps = if stop.reason == StopReason::WorkloadDeleted { self.finalize() } else { Vec::new() };
        for entry in self.pods.iter().filter(|entry| !is_stopped(&entry.object, &stop.reason)) {
            let [mut mark, delete] = terminate(entry, stop);
            mark.event = Some(event(JobEvent::Stopped, stop.note).about(ApiKind::of::<Pod>(), entry));
            steps.extend([mark, delete]);
        }
        steps
    }

    fn finalize(&self) -> Vec<Step> {
        finalize(&self.pods)
    }

    fn delete(&self, event: &Event) -> Vec<Step> {
        let kind = ApiKind::of::<Pod>();
        let delete = |entry: &Member| {
            Action::delete(kind.clone(), entry).with_event(event.clone().about(kind.clone(), entry))
        };
        self.pods.iter().filter(|entry| !entry.deleting).map(delete).collect()
    }

    fn event(&self, event: Event) -> Event {
        match self.pods.first() {
            Some(first) => event.about(ApiKind::of::<Pod>(), first),
            None => event,
        }
    }
}

/// Whether the Workload has every role of the pods, and none with more pods than it has.
fn is_equivalent(workload: &Workload, of_pods: &[PodSet]) -> bool {
    let sets = workload.spec.pod_sets.as_deref().unwrap_or_default();
    let is_finished = workload.is_finished();
    of_pods.iter().all(|own| {
        let known = sets.iter().find(|set| set.name == own.name);
        known.is_some_and(|known| is_finished || own.count.unwrap_or(1) <= known.count.unwrap_or(1))
    })
}

fn finalize(pods: &[Member]) -> Vec<Step> {
    pods.iter().filter_map(|entry| super::super::without_finalizer(entry)).map(Step::from).collect()
}

fn remove_excess(pods: &[Member]) -> Vec<Step> {
    let kind = ApiKind::of::<Pod>();
    let mut steps = finalize(pods);
    for entry in pods.iter().filter(|entry| !entry.deleting) {
        let event = event(JobEvent::ExcessPodDeleted, "Excess pod deleted").about(kind.clone(), entry);
        steps.push(Action::delete(kind.clone(), entry).with_event(event));
    }
    steps
}
