//! The decision about one Workload on other clusters. Pure, in the order of Kueue's `multikueue/workload.go`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use quintet_api::conditions;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::events::WorkloadEvent;
use quintet_api::kueue::reasons::FinishedReason;
use quintet_api::kueue::v1beta2::{AdmissionCheckState, CheckState, Workload, WorkloadStatus};
use quintet_controller::{Action, Class, Error, Event, Next, OnError, Plan, StatusPatch, Step};
use quintet_queue_engine::status;
use serde_json::{Value, json};

use super::copies::{Comparison, compare, create_job, create_workload, deactivate, remove};
use super::dispatch::{Nomination, nominate};
use super::observe::{Copies, Job, LocalJob, Observed, Present, Reach, RemoteJob};
use super::{Call, Writes};
use crate::jobs::is_sent_elsewhere;
use crate::scheduler::engine_time;
use crate::workload::after;

const LOST: &str = "Reserving remote lost";

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
        if self.present.workload.deleting || workload.is_finished() || !workload.has_quota_reservation() {
            return self.write(self.present.copies.iter().filter_map(removal));
        }
        let job = match &self.present.job {
            Job::Unsupported(kind) => {
                let message = kind.as_ref().map_or_else(
                    || "No multikueue adapter found".to_owned(),
                    |kind| format!("No multikueue adapter found for owner kind {kind:?}"),
                );
                return self.decide(CheckState::Rejected, &message);
            }
            Job::Missing => return Plan::awaiting("its job"),
            Job::Found(job) => job,
        };
        if let Err(why) = is_sent_elsewhere(&job.entry.object, &job.managed_by) {
            return self.decide(CheckState::Rejected, &why);
        }
        if workload.is_evicted() {
            return self.stop(job);
        }
        if let Some(plan) = self.finish(job) {
            return plan;
        }
        match self.check().map(|check| check.state) {
            Some(CheckState::Ready) => self.follow(job),
            Some(CheckState::Pending) => self.place(job),
            _ => Plan::nothing(),
        }
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
        let status = StatusPatch::between(&self.present.workload, before, &Some(after));
        Plan { status, ..Plan::default() }
    }

    /// An evicted Workload: the copy that runs is stopped, and what becomes of its job is reported. Others are of no use.
    fn stop(&self, job: &LocalJob) -> Plan<Call> {
        let runs = |own: &&Copies| {
            own.workload.as_ref().is_some_and(|copy| copy.object.is_admitted()) || !own.jobs.is_empty()
        };
        let (running, others): (Vec<&Copies>, Vec<&Copies>) = self.connected().partition(|own| runs(own));
        let reported = running.iter().find_map(|own| job_of(own, job));
        let is_connecting = self.present.copies.iter().any(|own| own.reach == Reach::Connecting);
        let report = match reported {
            Some(remote) => copy_status(job, &remote.status),
            // Nothing is known of pods on a cluster that is lost: the quota is not kept for them.
            None if running.is_empty() && !is_connecting && job.facts.is_active => Some(idle(job)),
            None => None,
        };
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
        let mut steps: Vec<Step<Call>> = report.map(Step::from).into_iter().collect();
        steps.extend(plan.steps);
        Plan { steps, ..Plan::awaiting("the end of its job on other clusters") }
    }

    /// A copy that is finished.
    fn finish(&self, job: &LocalJob) -> Option<Plan<Call>> {
        let chosen = self.chosen();
        let counts = |own: &&Copies| chosen.is_none_or(|chosen| chosen == own.cluster);
        let (copies, finished) = self.connected().filter(counts).find_map(|own| {
            let copy = own.workload.as_ref()?;
            Some((own, condition(&copy.object, WorkloadCondition::Finished)?))
        })?;
        if finished.reason == FinishedReason::OutOfSync.as_str() {
            return Some(self.decide(CheckState::Retry, &finished.message));
        }
        let remote = job_of(copies, job);
        let ended = [FinishedReason::Succeeded.as_str(), FinishedReason::Failed.as_str()];
        if remote.is_some_and(|remote| !remote.facts.has_ended) && ended.contains(&finished.reason.as_str()) {
            // The copy is deleted after this: the last status of its job comes first.
            return Some(Plan::awaiting("the last status of its job"));
        }
        let mut changed = self.workload().clone();
        let (kind, now) = (WorkloadCondition::Finished, engine_time(self.present.now));
        status::set_condition(&mut changed, kind, true, &finished.reason, &finished.message, now);
        let status = StatusPatch::between(&self.present.workload, &self.workload().status, &changed.status);
        let report = remote.and_then(|remote| copy_status(job, &remote.status)).map(Step::from);
        Some(Plan { steps: report.into_iter().collect(), status, ..Plan::default() })
    }

    /// A Workload that runs on another cluster.
    fn follow(&self, job: &LocalJob) -> Plan<Call> {
        let chosen = self.chosen().unwrap_or_default();
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
        let remote = job_of(copies, job);
        let create = remote.is_none().then(|| self.create_job(job));
        let actions: Vec<Action> = update.into_iter().chain(create).collect();
        let own = (!actions.is_empty()).then(|| Writes { cluster: chosen.to_owned(), actions });
        let others = self.present.copies.iter().filter(|own| own.cluster != chosen).filter_map(removal);
        let plan = self.write(own.into_iter().chain(others));
        // A job that has not been started here cannot be running.
        let report = remote.filter(|remote| !job.facts.is_suspended || remote.facts.has_ended);
        let report = report.and_then(|remote| copy_status(job, &remote.status));
        let steps = report.map(Step::from).into_iter().chain(plan.steps).collect();
        Plan { steps, ..Plan::default() }
    }

    fn create_job(&self, job: &LocalJob) -> Action {
        create_job(job, self.present.workload.key.name(), self.origin())
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
    fn place(&self, job: &LocalJob) -> Plan<Call> {
        let checks = self.status().into_iter().flat_map(|status| status.admission_checks.iter().flatten());
        let mut others = checks.filter(|own| own.name != self.present.check);
        if !others.all(|own| own.state == CheckState::Ready) {
            return Plan::awaiting("its other checks");
        }
        let Nomination { clusters, next_round } = nominate(self.present);
        let status = self.status();
        let known = status.and_then(|status| status.nominated_cluster_names.as_deref()).unwrap_or_default();
        if clusters != known {
            // A cluster is chosen among those that were nominated before: the choice is another write.
            return self.write_status(|status| {
                status.nominated_cluster_names = (!clusters.is_empty()).then_some(clusters);
            });
        }
        if let Some(first) = self.first_admitted(&clusters) {
            return self.choose(job, first);
        }
        let writes = self.present.copies.iter().filter_map(|own| self.offer(own, &clusters));
        let mut plan = self.write(writes);
        plan.next = next_round.map_or(Next::AwaitChange, |at| self.requeue_at(at));
        plan.awaits.push(match clusters.as_slice() {
            [] => "a cluster that can be reached".to_owned(),
            names => format!("admission on {}", names.join(", ")),
        });
        plan
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

    fn choose(&self, job: &LocalJob, copies: &Copies) -> Plan<Call> {
        let (name, now) = (&copies.cluster, self.present.now);
        let create = job_of(copies, job).is_none().then(|| self.create_job(job));
        let own = create.map(|action| Writes { cluster: name.clone(), actions: vec![action] });
        let message = format!("The workload was admitted on {name:?}");
        let decided = self.write_status(|status| {
            set_check(status, &self.present.check, CheckState::Ready, &message, now);
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
            Some(_) if !is_nominated => return removal(copies),
            None if !is_nominated || !copies.jobs.is_empty() => return removal(copies),
            None => create_workload(workload, self.origin()),
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

/// Reports what a job does elsewhere.
fn copy_status(job: &LocalJob, status: &Value) -> Option<Action<Call>> {
    let patch = StatusPatch::between(&job.entry, &job.entry.object["status"], status)?;
    // A job that has no status yet, as none of its fields is known.
    if status.is_null() {
        return None;
    }
    Some(Action::status(job.kind.clone(), job.entry.key.clone(), patch))
}

/// Reports that nothing runs any more.
fn idle(job: &LocalJob) -> Action<Call> {
    let status = if (job.kind.group.as_ref(), job.kind.kind.as_ref()) == ("batch", "Job") {
        json!({ "active": 0, "ready": 0, "terminating": 0, "startTime": null })
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
