//! The decision about one Workload on other clusters. Pure, in the order of Kueue's `multikueue/workload.go`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use quintet_api::conditions;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::events::WorkloadEvent;
use quintet_api::kueue::reasons::FinishedReason;
use quintet_api::kueue::v1beta2::{
    AdmissionCheckState, CheckState, DelayedTopologyRequestState, Workload, WorkloadStatus,
};
use quintet_controller::cache::Entry;
use quintet_controller::plan::EventKind;
use quintet_controller::{Action, Class, Error, Event, Next, OnError, Plan, StatusPatch, Step};
use quintet_queue_engine::status;
use serde_json::{Value, json};

use super::copies::{
    Comparison, blocked_since, compare, create_job, create_workload, deactivate, is_elastic, open_gate,
    opened_at, remove, resize_job,
};
use super::dispatch::{Nomination, nominate};
use super::observe::{Copies, Job, LocalJob, Observed, Present, Reach, RemoteJob};
use super::{Call, Writes};
use crate::field_managers;
use crate::jobs::is_sent_elsewhere;
use crate::scheduler::engine_time;
use crate::workload::after;

const LOST: &str = "Reserving remote lost";

/// How long a copy that may preempt is given before another one may, too.
const GATE_INTERVAL: Duration = Duration::from_mins(5);

/// When a write that a cluster did not take is tried again: as long as the cluster may take to answer.
const RETRY: Duration = Duration::from_secs(10);

/// The plan for a Workload.
pub(super) fn plan(observed: &Observed) -> Plan<Call> {
    match observed {
        Observed::Gone(copies) => write(String::new(), copies.iter().filter_map(removal)),
        Observed::Present(present) => Decision { present }.plan(),
    }
}

/// A cluster that does not take a write, for now: what the others do is not kept waiting by a growing backoff.
pub(super) fn on_error(action: &Action<Call>, error: &Error) -> OnError {
    if !matches!(action, Action::Call(_)) || !matches!(error.class(), Class::Transient | Class::Throttled) {
        return OnError::default();
    }
    let reason = WorkloadEvent::MultiKueue.as_str();
    let events = vec![Event::warning(reason, reason, error.to_string())];
    OnError { events, requeue: Some(Next::After(RETRY)), ..OnError::default() }
}

fn write(queue: String, writes: impl Iterator<Item = Writes>) -> Plan<Call> {
    let writes: Vec<Writes> = writes.collect();
    let steps =
        if writes.is_empty() { Vec::new() } else { vec![Step::from(Action::Call(Call { queue, writes }))] };
    Plan { steps, ..Plan::default() }
}

/// Removes what a cluster has. One that is away is asked when it is back.
fn removal(copies: &Copies) -> Option<Writes> {
    let actions = if copies.is_connected() { remove(copies) } else { Vec::new() };
    (!actions.is_empty()).then(|| Writes { cluster: copies.cluster.clone(), actions })
}

fn condition(workload: &Workload, kind: WorkloadCondition) -> Option<&Condition> {
    let conditions = workload.status.as_ref()?.conditions.as_deref()?;
    conditions::find(conditions, kind.as_str()).filter(|own| own.status == "True")
}

/// Whether another slice of its job has taken its place.
fn is_replaced(workload: &Workload) -> bool {
    let finished = condition(workload, WorkloadCondition::Finished);
    finished.is_some_and(|own| own.reason == FinishedReason::WorkloadSliceReplaced.as_str())
}

struct Decision<'o> {
    present: &'o Present,
}

impl<'o> Decision<'o> {
    fn workload(&self) -> &'o Workload {
        &self.present.workload.object
    }

    fn status(&self) -> Option<&'o WorkloadStatus> {
        self.workload().status.as_ref()
    }

    fn check(&self) -> Option<&'o AdmissionCheckState> {
        self.status()?.admission_checks.iter().flatten().find(|own| own.name == self.present.check)
    }

    fn queue(&self) -> String {
        let admission = self.status().and_then(|status| status.admission.as_ref());
        admission.and_then(|admission| admission.cluster_queue.clone()).unwrap_or_default()
    }

    /// The cluster that runs it.
    fn chosen(&self) -> Option<&'o str> {
        self.status()?.cluster_name.as_deref()
    }

    fn connected(&self) -> impl Iterator<Item = &'o Copies> + use<'o> {
        self.present.copies.iter().filter(|own| own.is_connected())
    }

    fn write(&self, writes: impl Iterator<Item = Writes>) -> Plan<Call> {
        write(self.queue(), writes)
    }

    fn plan(&self) -> Plan<Call> {
        let workload = self.workload();
        if is_replaced(workload) {
            // What its cluster has goes on for the slice that replaces it.
            return Plan::nothing();
        }
        if self.present.workload.deleting || workload.is_finished() || !workload.has_quota_reservation() {
            return self.write(self.present.copies.iter().filter_map(removal));
        }
        let jobs = match &self.present.job {
            Job::Unsupported(kind) => {
                let message = kind.as_ref().map_or_else(
                    || "No multikueue adapter found".to_owned(),
                    |kind| format!("No multikueue adapter found for owner kind {kind:?}"),
                );
                return self.decide(CheckState::Rejected, &self.since(&message));
            }
            Job::Missing => return Plan::awaiting("its job"),
            Job::Found(jobs) => jobs.as_slice(),
        };
        let mut verdicts = jobs.iter().map(|own| is_sent_elsewhere(&own.entry.object, &own.managed_by));
        if let Some(why) = verdicts.find_map(Result::err) {
            return self.decide(CheckState::Rejected, &why);
        }
        if workload.is_evicted() {
            return self.stop(jobs);
        }
        if let Some(plan) = self.finish(jobs) {
            return plan;
        }
        match self.check().map(|check| check.state) {
            Some(CheckState::Ready) => self.follow(jobs),
            Some(CheckState::Pending) => self.place(jobs),
            _ => Plan::nothing(),
        }
    }

    /// A message that says how the check was before.
    fn since(&self, message: &str) -> String {
        let before = self.check().map(|check| format!(", Previously: \"{:?}\"", check.state));
        format!("{message}{}", before.unwrap_or_default())
    }

    /// Changes the check, if that says something else.
    fn decide(&self, state: CheckState, message: &str) -> Plan<Call> {
        let Some(known) = self.check() else { return Plan::nothing() };
        if known.state == state {
            return Plan::nothing();
        }
        let plan =
            self.write_status(|status| set_check(status, &known.name, state, message, self.present.now));
        Plan { events: vec![event(message)], ..plan }
    }

    fn write_status(&self, change: impl FnOnce(&mut WorkloadStatus)) -> Plan<Call> {
        let before = &self.workload().status;
        let mut after = before.clone().unwrap_or_default();
        change(&mut after);
        let status = field_managers::status_patch(&self.present.workload, Some(&after));
        Plan { status, ..Plan::default() }
    }

    /// An evicted Workload: the copy that runs is stopped, and what becomes of its job is reported. Others are of no use.
    fn stop(&self, jobs: &[LocalJob]) -> Plan<Call> {
        let runs = |own: &&Copies| {
            own.workload.as_ref().is_some_and(|copy| copy.object.is_admitted()) || !own.jobs.is_empty()
        };
        let (running, others): (Vec<&Copies>, Vec<&Copies>) = self.connected().partition(|own| runs(own));
        let is_connecting = self.present.copies.iter().any(|own| own.reach == Reach::Connecting);
        let told = |job: &LocalJob| match running.iter().find_map(|own| job_of(own, job)) {
            Some(remote) => report(job, remote),
            // Nothing is known of pods on a cluster that is lost: the quota is not kept for them.
            None if !is_connecting && job.facts.is_active && (running.is_empty() || is_pod(job)) => {
                Some(idle(job))
            }
            None => None,
        };
        let reports: Vec<Step<Call>> = jobs.iter().filter_map(told).map(Step::from).collect();
        let stopped = running.iter().filter_map(|own| {
            let copy = own.workload.as_ref()?;
            let is_stopping = !copy.object.is_active()
                || copy.object.is_finished()
                || copy.object.is_true(WorkloadCondition::DeactivationTarget);
            let action = if is_stopping { None } else { deactivate(copy, self.present.now) }?;
            Some(Writes { cluster: own.cluster.clone(), actions: vec![action] })
        });
        let removed = others.into_iter().filter_map(removal);
        let plan = self.write(stopped.chain(removed));
        let steps = reports.into_iter().chain(plan.steps).collect();
        Plan { steps, ..Plan::awaiting("the end of its job on other clusters") }
    }

    /// A copy that is finished.
    fn finish(&self, jobs: &[LocalJob]) -> Option<Plan<Call>> {
        let chosen = self.chosen();
        let counts = |own: &&Copies| chosen.is_none_or(|chosen| chosen == own.cluster);
        let (copies, finished) = self.connected().filter(counts).find_map(|own| {
            let copy = own.workload.as_ref()?;
            Some((own, condition(&copy.object, WorkloadCondition::Finished)?))
        })?;
        if finished.reason == FinishedReason::OutOfSync.as_str() {
            let cluster = &copies.cluster;
            let message = self.since(&format!(
                "Remote workload on worker cluster {cluster:?} is out of sync with its user job, resetting for re-dispatch"
            ));
            let plan = self.decide(CheckState::Retry, &message);
            let events = plan.events.into_iter().map(|event| Event { kind: EventKind::Warning, ..event });
            return Some(Plan { events: events.collect(), ..plan });
        }
        let remote: Vec<(&LocalJob, &RemoteJob)> =
            jobs.iter().filter_map(|job| Some((job, job_of(copies, job)?))).collect();
        let ended = [FinishedReason::Succeeded.as_str(), FinishedReason::Failed.as_str()];
        if remote.iter().any(|(_, own)| !own.facts.has_ended) && ended.contains(&finished.reason.as_str()) {
            // The copy is deleted after this: the last status of its job comes first.
            return Some(Plan::awaiting("the last status of its job"));
        }
        let mut changed = self.workload().clone();
        let (kind, now) = (WorkloadCondition::Finished, engine_time(self.present.now));
        status::set_condition(&mut changed, kind, true, &finished.reason, &finished.message, now);
        let status = field_managers::status_patch(&self.present.workload, changed.status.as_ref());
        let reports = remote.into_iter().filter_map(|(job, remote)| report(job, remote)).map(Step::from);
        Some(Plan { steps: reports.collect(), status, ..Plan::default() })
    }

    /// A Workload that runs on another cluster.
    fn follow(&self, jobs: &[LocalJob]) -> Plan<Call> {
        // Before Kueue recorded the cluster, only the copy that was admitted told which it is.
        let recorded = self.chosen();
        let chosen =
            recorded.or_else(|| Some(self.first_admitted(&self.present.configured)?.cluster.as_str()));
        let chosen = chosen.unwrap_or_default();
        let known = self.present.copies.iter().find(|own| own.cluster == chosen);
        let Some(copies) = known.filter(|own| own.is_connected()) else {
            return self.await_return(known.map_or(Reach::Unknown, |own| own.reach));
        };
        let Some(copy) = &copies.workload else { return self.decide(CheckState::Retry, LOST) };
        if copy.object.is_evicted() {
            let message =
                format!("Workload evicted on worker cluster: {chosen:?}, resetting for re-admission");
            return self.decide(CheckState::Retry, &message);
        }
        if !copy.object.is_admitted() {
            return self.decide(CheckState::Retry, LOST);
        }
        let update = match compare(self.workload(), copy) {
            Comparison::Same => None,
            Comparison::Updated(update) => Some(*update),
            Comparison::Different => return self.write(removal(copies).into_iter()),
        };
        // A job that is larger than its slice would be out of sync there.
        let changes = self.change_jobs(copies, jobs).into_iter().chain(update);
        let actions: Vec<Action> = self.create_jobs(copies, jobs).into_iter().chain(changes).collect();
        let own = (!actions.is_empty()).then(|| Writes { cluster: chosen.to_owned(), actions });
        let others = self.present.copies.iter().filter(|own| own.cluster != chosen).filter_map(removal);
        let plan = self.write(own.into_iter().chain(others));
        let reports = jobs.iter().filter_map(|job| {
            let remote = job_of(copies, job)?;
            // A job that has not been started here cannot be running.
            (!job.facts.is_suspended || remote.facts.has_ended).then(|| report(job, remote))?
        });
        let steps = reports.map(Step::from).chain(plan.steps).collect();
        Plan { steps, ..Plan::default() }
    }

    /// Creates the jobs that a cluster lacks. A pod that has ended is not run again.
    fn create_jobs(&self, copies: &Copies, jobs: &[LocalJob]) -> Vec<Action> {
        let (workload, origin) = (self.present.workload.key.name(), self.origin());
        let is_missing =
            |job: &&LocalJob| job_of(copies, job).is_none() && !(is_pod(job) && job.facts.has_ended);
        jobs.iter().filter(is_missing).map(|job| create_job(job, workload, origin)).collect()
    }

    /// Lets jobs on another cluster follow those here, as far as they may change.
    fn change_jobs(&self, copies: &Copies, jobs: &[LocalJob]) -> Vec<Action> {
        let name = self.present.workload.key.name();
        let is_elastic = is_elastic(self.workload());
        let change = |job: &LocalJob| {
            let remote = job_of(copies, job)?;
            let follows = is_elastic && !self.is_outgrown_by(job);
            let resized = follows.then(|| resize_job(job, &remote.entry, name));
            resized.flatten().or_else(|| self.sync_spec(job, remote))
        };
        jobs.iter().filter_map(change).collect()
    }

    /// Whether a job asks for more pods than this slice has: another one will replace it.
    fn is_outgrown_by(&self, job: &LocalJob) -> bool {
        let sets = || self.workload().spec.pod_sets.iter().flatten();
        let count = |name: &str| sets().find(|set| set.name.as_deref() == Some(name))?.count;
        let mut wanted = job.counts.iter().flatten();
        wanted.any(|(name, wanted)| count(name).is_some_and(|count| count < *wanted))
    }

    /// What users may change of a job that runs elsewhere: the applications of a RayService.
    fn sync_spec(&self, job: &LocalJob, remote: &RemoteJob) -> Option<Action> {
        const FIELD: &str = "serveConfigV2";
        let (own, other) = (&job.entry.object["spec"][FIELD], &remote.entry.object["spec"][FIELD]);
        let is_changed = job.kind.kind == "RayService" && own != other;
        (is_changed && self.present.settings.gates.multikueue_spec_sync).then(|| {
            let patch = json!({ "metadata": { "uid": remote.entry.uid }, "spec": { FIELD: own } });
            Action::merge(job.kind.clone(), job.entry.key.clone(), patch)
        })
    }

    fn origin(&self) -> &'o str {
        &self.present.settings.configuration.multi_kueue.origin
    }

    /// The cluster that runs it cannot be reached: it may come back in time.
    fn await_return(&self, reach: Reach) -> Plan<Call> {
        let since = match reach {
            Reach::Connected | Reach::Connecting => return Plan::awaiting("the connection to its cluster"),
            Reach::LostSince(since) => Some(since),
            // Nothing says when it was deleted.
            Reach::Unknown => self.check().map(|check| check.last_transition_time.0),
        };
        let timeout = self.present.settings.configuration.multi_kueue.worker_lost_timeout.0;
        let ends = after(since.unwrap_or(self.present.now), timeout);
        if ends <= self.present.now {
            return self.decide(CheckState::Retry, LOST);
        }
        Plan { next: self.requeue_at(ends), ..Plan::awaiting("the cluster that runs it") }
    }

    fn requeue_at(&self, time: Timestamp) -> Next {
        let wait = Duration::try_from(time.duration_since(self.present.now)).unwrap_or_default();
        Next::After(wait.max(Duration::from_millis(10)))
    }

    /// A Workload that no other cluster has admitted yet.
    fn place(&self, jobs: &[LocalJob]) -> Plan<Call> {
        let checks = self.status().into_iter().flat_map(|status| status.admission_checks.iter().flatten());
        let mut others = checks.filter(|own| own.name != self.present.check);
        if !others.all(|own| own.state == CheckState::Ready) {
            return Plan::awaiting("its other checks");
        }
        let Nomination { clusters, next_round } = nominate(self.present);
        let status = self.status();
        // A slice runs where the one that it replaces runs.
        let (clusters, next_round) = match self.chosen().filter(|_| is_elastic(self.workload())) {
            Some(chosen) => (vec![chosen.to_owned()], None),
            None => (clusters, next_round),
        };
        let is_chosen = self.chosen().is_some();
        let known = status.and_then(|status| status.nominated_cluster_names.as_deref()).unwrap_or_default();
        if clusters != known && !is_chosen {
            // A cluster is chosen among those that were nominated before: the choice is another write.
            return self.write_status(|status| {
                status.nominated_cluster_names = (!clusters.is_empty()).then_some(clusters);
            });
        }
        if let Some(first) = self.first_admitted(&clusters) {
            return self.choose(jobs, first);
        }
        let offers = self.present.copies.iter().filter_map(|own| self.offer(own, &clusters));
        let (gate, next_gate) = self.open_gate(&clusters);
        let mut plan = self.write(offers.chain(gate));
        let next = [next_round, next_gate].into_iter().flatten().min();
        plan.next = next.map_or(Next::AwaitChange, |at| self.requeue_at(at));
        plan.awaits.push(match clusters.as_slice() {
            [] => "a cluster that can be reached".to_owned(),
            names => format!("admission on {}", names.join(", ")),
        });
        plan
    }

    /// Lets the copy preempt that waits for it longest, if no other could do so lately; and when the next may.
    fn open_gate(&self, nominated: &[String]) -> (Option<Writes>, Option<Timestamp>) {
        if !self.present.settings.scheduling.orchestrated_preemption {
            return (None, None);
        }
        let copies = self.connected().filter(|own| nominated.contains(&own.cluster));
        let copies: Vec<(&Copies, &Arc<Entry<Workload>>)> =
            copies.filter_map(|own| Some((own, own.workload.as_ref()?))).collect();
        let blocked =
            copies.iter().filter_map(|(own, copy)| Some((blocked_since(&copy.object)?, *own, *copy)));
        let Some((_, own, copy)) = blocked.min_by_key(|(since, own, _)| (*since, own.cluster.as_str()))
        else {
            return (None, None);
        };
        let opened = copies.iter().filter_map(|(_, copy)| opened_at(&copy.object)).max();
        if let Some(next) = opened.map(|at| after(at, GATE_INTERVAL)).filter(|next| *next > self.present.now)
        {
            return (None, Some(next));
        }
        let action = open_gate(copy, self.present.now);
        (action.map(|action| Writes { cluster: own.cluster.clone(), actions: vec![action] }), None)
    }

    /// The copy that was admitted first, if it still stands for the Workload.
    fn first_admitted(&self, nominated: &[String]) -> Option<&'o Copies> {
        let admitted = self.connected().filter(|own| nominated.contains(&own.cluster)).filter_map(|own| {
            let copy = own.workload.as_ref().filter(|copy| !copy.deleting && !copy.object.is_evicted())?;
            let admitted = condition(&copy.object, WorkloadCondition::Admitted)?;
            let stands = compare(self.workload(), copy) != Comparison::Different;
            stands.then_some((admitted.last_transition_time.0, own.cluster.as_str(), own))
        });
        admitted.min_by_key(|(since, cluster, _)| (*since, *cluster)).map(|(_, _, own)| own)
    }

    fn choose(&self, jobs: &[LocalJob], copies: &Copies) -> Plan<Call> {
        let (name, now) = (&copies.cluster, self.present.now);
        let changes = self.change_jobs(copies, jobs);
        let actions: Vec<Action> = self.create_jobs(copies, jobs).into_iter().chain(changes).collect();
        let own = (!actions.is_empty()).then(|| Writes { cluster: name.clone(), actions });
        let message = format!("The workload was admitted on {name:?}");
        let decided = self.write_status(|status| {
            set_check(status, &self.present.check, CheckState::Ready, &message, now);
            // Where its pods go is decided there.
            let assignments =
                status.admission.iter_mut().flat_map(|own| own.pod_set_assignments.iter_mut().flatten());
            for assignment in assignments.filter(|own| own.delayed_topology_request.is_some()) {
                assignment.delayed_topology_request = Some(DelayedTopologyRequestState::Ready);
            }
            status.cluster_name = Some(name.clone());
            status.nominated_cluster_names = None;
        });
        Plan { steps: self.write(own.into_iter()).steps, events: vec![event(&message)], ..decided }
    }

    /// What a cluster is asked while none has admitted the Workload.
    fn offer(&self, copies: &Copies, nominated: &[String]) -> Option<Writes> {
        let (workload, is_nominated) = (self.workload(), nominated.contains(&copies.cluster));
        let compared = copies.workload.as_ref().map(|copy| compare(workload, copy));
        let action = match compared {
            _ if !copies.is_connected() => return None,
            _ if !is_nominated => return removal(copies),
            // It runs for the slice that this one replaces.
            None if !copies.jobs.is_empty() && !is_elastic(workload) => return removal(copies),
            None => {
                let is_gated = self.present.settings.scheduling.orchestrated_preemption;
                create_workload(workload, self.origin(), is_gated)
            }
            Some(Comparison::Same) => return None,
            Some(Comparison::Updated(action)) => *action,
            Some(Comparison::Different) => return removal(copies),
        };
        Some(Writes { cluster: copies.cluster.clone(), actions: vec![action] })
    }
}

/// The job that runs on a cluster in the place of one here.
fn job_of<'c>(copies: &'c Copies, job: &LocalJob) -> Option<&'c RemoteJob> {
    copies.jobs.iter().find(|own| own.kind == job.kind && own.entry.key == job.entry.key)
}

fn is_pod(job: &LocalJob) -> bool {
    job.kind.group.is_empty() && job.kind.kind == "Pod"
}

/// Reports what a job does elsewhere. A pod stays one that waits for its gate until it is scheduled there.
fn report(job: &LocalJob, remote: &RemoteJob) -> Option<Action<Call>> {
    let is_scheduled = || {
        let conditions = remote.status["conditions"].as_array().into_iter().flatten();
        let mut scheduled = conditions.filter(|own| own["type"] == "PodScheduled");
        scheduled.any(|own| own["status"] == "True")
    };
    if is_pod(job) && !remote.facts.has_ended && !is_scheduled() {
        return None;
    }
    copy_status(job, &remote.status)
}

/// Reports this status of a job.
fn copy_status(job: &LocalJob, status: &Value) -> Option<Action<Call>> {
    let patch = StatusPatch::between(&job.entry, &job.entry.object["status"], status)?;
    // A job that has no status yet, as none of its fields is known.
    if status.is_null() {
        return None;
    }
    Some(Action::Status { kind: job.kind.clone(), key: job.entry.key.clone(), patch })
}

/// Reports that nothing runs any more.
fn idle(job: &LocalJob) -> Action<Call> {
    let status = if (job.kind.group.as_ref(), job.kind.kind.as_ref()) == ("batch", "Job") {
        json!({ "active": 0, "ready": 0, "terminating": 0, "startTime": null })
    } else if is_pod(job) {
        let gated = json!({ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" });
        json!({ "phase": "Pending", "conditions": [gated], "startTime": null, "hostIP": null, "hostIPs": null,
            "podIP": null, "podIPs": null, "containerStatuses": null, "initContainerStatuses": null })
    } else {
        Value::Null
    };
    Action::Patch {
        kind: job.kind.clone(),
        key: job.entry.key.clone(),
        subresource: Some("status".to_owned()),
        patch_kind: quintet_controller::plan::PatchKind::Merge,
        patch: json!({ "metadata": { "uid": job.entry.uid }, "status": status }),
    }
}

fn set_check(status: &mut WorkloadStatus, name: &str, state: CheckState, message: &str, now: Timestamp) {
    let checks = status.admission_checks.iter_mut().flatten();
    for check in checks.filter(|own| own.name == name) {
        check.state = state;
        message.clone_into(&mut check.message);
        check.last_transition_time = status::api_time(engine_time(now));
    }
}

fn event(note: &str) -> Event {
    let reason = WorkloadEvent::MultiKueue.as_str();
    Event::normal(reason, reason, note)
}
