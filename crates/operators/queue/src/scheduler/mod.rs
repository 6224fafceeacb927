//! The scheduler: an index over all objects that decide who gets quota.
//!
//! Informer events feed the engine, which decides in cycles whenever something changed. A decision leaves as one status
//! write of a Workload and counts in the engine at once (assumed): the next cycle does not wait for the write. A newer state
//! of the Workload replaces the assumption, a refusal takes it back, and a write without a response is sent again.
//!
//! All state is derived from objects, so a restarted or newly elected operator comes to the same state.

mod counting;
mod ingest;
mod queue_status;
mod slices;
mod start;
#[cfg(test)]
mod tests;

pub use queue_status::StatusOf;
pub use start::{SchedulerCaches, start};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Node};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate, ResourceSlice};
use quintet_api::config::kueue::QueueConfiguration;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::events::SCHEDULER;
use quintet_api::kueue::reasons::QuotaReservedReason;
use quintet_api::kueue::v1beta2::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, Workload, WorkloadStatus,
};
use quintet_controller::cache::Entry;
use quintet_controller::events::Regarding;
use quintet_controller::index::{Assumptions, Index, Update, Write, WriteOutcome};
use quintet_controller::object::ResourceVersion;
use quintet_controller::{ApiKind, Event, ObjectKey, StatusPatch};
use quintet_queue_engine::names::WorkloadId;
use quintet_queue_engine::settings::Gates;
use quintet_queue_engine::status;
use quintet_queue_engine::time::Time;
use quintet_queue_engine::{Decision, Engine};

use crate::field_managers;
use crate::metrics::QueueMetrics;
use crate::topology::PodView;
use queue_status::QueueStatuses;
use slices::Replaced;

/// Code of a refusal because the object does not exist.
const NOT_FOUND: u16 = 404;
/// How long after a refusal the same decision may be made again.
const REFUSED_FOR: SignedDuration = SignedDuration::from_secs(10);
/// How long after queues were told that pods have ended they may be told again: pods come and go all the time, and with
/// every time all that waits is evaluated again. As `defaultRequeueBatchInterval` of Kueue.
const FREED_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// A change of an object that scheduling depends on.
pub enum SchedulerEvent {
    /// Whether a check can be made.
    AdmissionCheck(Update<AdmissionCheck>),
    /// Quotas and policies.
    ClusterQueue(Update<ClusterQueue>),
    /// Shared quotas.
    Cohort(Update<Cohort>),
    /// Which devices are of a class, and the extended resource that they stand for.
    DeviceClass(Update<DeviceClass>),
    /// Defaults of requests.
    LimitRange(Update<LimitRange>),
    /// Which Workloads go to which ClusterQueue.
    LocalQueue(Update<LocalQueue>),
    /// Labels that ClusterQueues select by.
    Namespace(Update<Namespace>),
    /// Capacity, for topology aware scheduling.
    Node(Update<Node>),
    /// What pods use of their nodes.
    Pod(Update<PodView>),
    /// The devices that pods claim.
    ResourceClaimTemplate(Update<ResourceClaimTemplate>),
    /// Labels, taints and topology of a flavor.
    ResourceFlavor(Update<ResourceFlavor>),
    /// The devices that there are.
    ResourceSlice(Update<ResourceSlice>),
    /// Overhead of pods.
    RuntimeClass(Update<RuntimeClass>),
    /// Levels of a topology.
    Topology(Update<Topology>),
    /// Who waits for quota, and who holds it.
    Workload(Update<Workload>),
}

/// What a status write decides about a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It gets quota.
    Admission,
    /// It is preempted: it has to stop in favor of another.
    Preemption,
    /// It has to stop, because its failed nodes cannot be replaced.
    Eviction,
    /// Why it waits, or that its slice is replaced. Quota does not change.
    Report,
}

/// A write on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// A decision about a Workload.
    Workload(WorkloadDecision),
    /// What a queue or cohort reports.
    Status(StatusOf),
}

/// A decision about a Workload on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadDecision {
    workload: ObjectKey,
    base: ResourceVersion,
    number: u64,
    effect: Effect,
}

/// A write that counts as done until its outcome is known; kept so that it can be sent again.
#[derive(Clone)]
struct Assumed {
    patch: StatusPatch,
    /// What the status will be.
    status: Option<WorkloadStatus>,
    events: Vec<Event>,
    /// Distinguishes it from earlier writes of the same version.
    number: u64,
    effect: Effect,
    /// The write that it replaces, which may have been sent.
    replaces: Option<Replaces>,
}

/// A write about the same version that was decided before.
#[derive(Clone)]
struct Replaces {
    /// What the status is if it was sent.
    status: Option<WorkloadStatus>,
    /// How many events are recorded then: the first ones of those of both.
    events: usize,
}

/// What a scheduler does with what it observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// Decides who gets quota.
    pub schedule: bool,
    /// Writes the status of queues and cohorts.
    pub report: bool,
}

/// The index. See the module.
pub struct Scheduler {
    configuration: Arc<QueueConfiguration>,
    gates: Gates,
    tasks: Tasks,
    engine: Engine,
    /// As last observed: decisions change their status.
    workloads: BTreeMap<ObjectKey, Arc<Entry<Workload>>>,
    assumed: Assumptions<Assumed>,
    /// How many writes were decided.
    written: u64,
    /// Decisions that the API server refused, and when they may be made again. Until then, a Workload whose admission was
    /// refused is left out, unless it changes.
    refused: BTreeMap<ObjectKey, (Timestamp, Effect)>,
    /// Nodes that changed since the last decision. They are taken in together, as all domains are counted again.
    nodes: BTreeMap<ObjectKey, Option<Arc<Entry<Node>>>>,
    /// Devices have changed since the last decision. A pool has many slices, which are published one after another.
    devices_changed: bool,
    /// When queues may be told that pods outside topology aware scheduling have ended; `None` if none have.
    freed_due: Option<Timestamp>,
    /// When they were told last.
    freed_told: Timestamp,
    /// When the usage of LocalQueues was sampled last, for admission fair sharing.
    sampled: Option<Timestamp>,
    statuses: QueueStatuses,
    /// Events about Workloads of which nothing was written when they happened, for the next write.
    untold: BTreeMap<ObjectKey, Vec<Event>>,
    /// Events about Workloads that nothing is written for.
    events: Vec<(Regarding, Event)>,
    /// Workloads whose report is outdated.
    outdated: BTreeSet<ObjectKey>,
    /// Reports on Workloads that have changed before these were written.
    overtaken: BTreeMap<ObjectKey, Assumed>,
    /// Slices that end when those that replace them are admitted.
    replaced: Vec<Replaced>,
    metrics: Option<Arc<QueueMetrics>>,
}

impl Scheduler {
    /// A scheduler without objects.
    pub fn new(configuration: Arc<QueueConfiguration>, gates: Gates) -> Self {
        let engine = Engine::configured(&configuration, gates.clone());
        Self {
            configuration,
            gates,
            tasks: Tasks { schedule: true, report: true },
            engine,
            workloads: BTreeMap::new(),
            assumed: Assumptions::default(),
            written: 0,
            refused: BTreeMap::new(),
            nodes: BTreeMap::new(),
            devices_changed: false,
            freed_due: None,
            freed_told: Timestamp::MIN,
            sampled: None,
            statuses: QueueStatuses::default(),
            untold: BTreeMap::new(),
            events: Vec::new(),
            outdated: BTreeSet::new(),
            overtaken: BTreeMap::new(),
            replaced: Vec::new(),
            metrics: None,
        }
    }

    /// The same, which counts what it decides and observes.
    #[must_use]
    pub(crate) fn counted_by(self, metrics: Arc<QueueMetrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// The same scheduler for some tasks only.
    #[must_use]
    pub fn with_tasks(self, tasks: Tasks) -> Self {
        Self { tasks, ..self }
    }

    /// What decisions are made on.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A Workload as it was last observed.
    pub(crate) fn observed(&self, key: &ObjectKey) -> Option<&Workload> {
        self.workloads.get(key).map(|entry| &entry.object)
    }

    /// Runs cycles until none changes anything, or there is no room for more writes.
    fn run_cycles(&mut self, now: Time, room: usize, writes: &mut Vec<Write<Decided>>) {
        loop {
            let active = self.engine.active();
            let started = std::time::Instant::now();
            let report = self.engine.schedule(now);
            self.count_cycle(&report, started.elapsed());
            for decision in &report.decisions {
                self.write(decision, now, writes);
                self.report_second_pass(decision);
            }
            // Where a head became inadmissible, the next is tried.
            let is_idle = !report.made_progress() && self.engine.active() >= active;
            if is_idle || writes.len() >= room {
                return;
            }
        }
    }

    /// The writes of a decision. Evictions for it come first.
    fn write(&mut self, decision: &Decision, now: Time, writes: &mut Vec<Write<Decided>>) {
        // Evictions have events about the preemptor, too, which are recorded with what is written about it.
        let mut of_preemptor: Vec<status::Event> = Vec::new();
        for write in status::writes(decision, &self.engine) {
            let Some(key) = self.key_of(write.workload()) else { continue };
            if let status::Write::FinishSlice { message, .. } = &write {
                let message = message.clone();
                let by = self.key_of(decision.workload);
                self.replaced.extend(by.map(|by| Replaced { by, slice: key, message }));
                continue;
            }
            let Some(entry) = self.workloads.get(&key).map(Arc::clone) else { continue };
            let mut object = entry.object.clone();
            // What is on its way is not written again.
            let earlier = self.assumed.get(&key).filter(|earlier| earlier.patch.version == entry.version.0);
            if let Some(earlier) = earlier {
                object.status.clone_from(&earlier.status);
            }
            // One that has to stop already is not evicted again while it does.
            if matches!(&write, status::Write::Evict { .. }) && object.is_evicted() {
                continue;
            }
            let took_quota = earlier.is_some_and(|earlier| earlier.effect == Effect::Admission);
            // It may not have been sent: then this write replaces it, and its events are recorded with this one. If it has,
            // this write is a conflict, and decided again, but for an admission: that keeps its quota.
            let replaces = earlier.map(Assumed::replaced);
            let earlier = earlier.map(|earlier| earlier.events.clone()).unwrap_or_default();
            let before = object.status.clone();
            write.apply(&mut object, &self.engine, now);
            if matches!(&write, status::Write::Admit(..)) {
                self.follow_replaced(&mut object);
            }
            let events = status::events(decision, &write, &object, &self.engine, now);
            let (mut events, others): (Vec<_>, Vec<_>) =
                events.into_iter().partition(|event| event.workload == write.workload());
            for mut event in others {
                // Events about the same version of an object are a series, with the text of the first, as in client-go.
                if let Some(first) = of_preemptor.iter().find(|first| first.reason == event.reason) {
                    event.message.clone_from(&first.message);
                }
                of_preemptor.push(event);
            }
            let is_of_preemptor = write.workload() == decision.workload;
            if object.status == before {
                if is_of_preemptor && !of_preemptor.is_empty() {
                    let events = of_preemptor.drain(..).map(recorded);
                    self.untold.entry(key).or_default().extend(events);
                }
                continue;
            }
            let Some(patch) = field_managers::status_patch(&entry, object.status.as_ref()) else { continue };
            if is_of_preemptor {
                events.splice(0..0, of_preemptor.drain(..));
            }
            let mut events: Vec<Event> = events.into_iter().map(recorded).collect();
            // What was decided before happened, even if its report comes too late.
            if let Some(overtaken) = self.overtaken.remove(&key) {
                events.splice(0..0, overtaken.events);
            }
            events.splice(0..0, self.untold.remove(&key).unwrap_or_default());
            events.splice(0..0, earlier);
            // A write that replaces an admission takes the quota back if it fails.
            let effect = if took_quota { Effect::Admission } else { Effect::of(&write) };
            self.count_preemption(decision, effect, &object);
            self.written += 1;
            let (status, number) = (object.status, self.written);
            let assumed = Assumed { patch, status, events, number, effect, replaces };
            writes.push(assumed.write(&key, entry.version));
            self.assumed.assume(key, entry.version, assumed);
        }
    }

    /// Says that a second pass found no place. The Workload keeps its quota, and its status says nothing new.
    fn report_second_pass(&mut self, decision: &Decision) {
        let Some(event) = status::second_pass_event(decision, false) else { return };
        let entry = self.key_of(decision.workload).and_then(|key| self.workloads.get(&key));
        if let Some(entry) = entry {
            let kind = ApiKind::of::<Workload>();
            let regarding = Regarding { kind, key: entry.key.clone(), uid: entry.uid.clone() };
            self.events.push((regarding, recorded(event)));
        }
    }

    /// Writes reports again whose Workload was changed by others in between: the engine does not repeat them, because for
    /// it nothing has changed.
    fn repeat_reports(&mut self, writes: &mut Vec<Write<Decided>>) {
        for (key, overtaken) in std::mem::take(&mut self.overtaken) {
            let Some(entry) = self.workloads.get(&key).filter(|_| !self.assumed.contains(&key)) else {
                continue;
            };
            let is_pending = entry.object.is_active()
                && !entry.object.has_quota_reservation()
                && !entry.object.is_finished();
            let Some(reported) = overtaken.status.as_ref().filter(|_| is_pending) else { continue };
            let status = Some(with_report(entry.object.status.clone().unwrap_or_default(), reported));
            let Some(patch) = field_managers::status_patch(entry, status.as_ref()) else { continue };
            self.written += 1;
            let number = self.written;
            let assumed = Assumed { patch, status, number, replaces: None, ..overtaken };
            writes.push(assumed.write(&key, entry.version));
            self.assumed.assume(key, entry.version, assumed);
        }
    }

    /// Reports on Workloads that are not evaluated, because others of their shape did not fit.
    fn report_bypassed(&mut self, now: Time, writes: &mut Vec<Write<Decided>>) {
        const MESSAGE: &str = "Bypassed scheduling evaluation because an equivalent workload recently failed";
        for key in std::mem::take(&mut self.outdated) {
            let Some(entry) = self.workloads.get(&key).filter(|_| !self.assumed.contains(&key)) else {
                continue;
            };
            let id = self.engine.workload_id(key.namespace().unwrap_or_default(), key.name());
            let Some(reason) = id.and_then(|id| self.engine.unfit_reason(id)) else { continue };
            if !ingest::is_report_outdated(&entry.object) {
                continue;
            }
            let mut object = entry.object.clone();
            let gates = &self.engine.settings().gates;
            let reason = if gates.observability { reason } else { QuotaReservedReason::Pending };
            status::unset_quota_reservation(&mut object, reason, MESSAGE, now, gates);
            let Some(patch) = field_managers::status_patch(entry, object.status.as_ref()) else { continue };
            self.written += 1;
            let (status, number) = (object.status, self.written);
            let assumed =
                Assumed { patch, status, events: Vec::new(), number, effect: Effect::Report, replaces: None };
            writes.push(assumed.write(&key, entry.version));
            self.assumed.assume(key, entry.version, assumed);
        }
    }

    /// When the usage of LocalQueues is sampled next.
    fn sampling_due(&self) -> Option<Timestamp> {
        let interval = self.engine.settings().afs()?.sampling_interval;
        let interval = SignedDuration::from_nanos(interval.as_nanos());
        self.sampled
            .filter(|_| interval.is_positive())
            .map(|sampled| sampled.checked_add(interval).unwrap_or(Timestamp::MAX))
    }

    /// Samples the usage of LocalQueues, if it is time.
    fn sample_usage(&mut self, now: Timestamp) {
        let is_due = self.sampling_due().is_some_and(|due| due <= now);
        if is_due {
            self.engine.sample_usage(engine_time(now));
            self.statuses.touch(now);
        }
        if is_due || self.sampled.is_none() {
            self.sampled = Some(now);
        }
    }

    /// Whether the engine counts quota of a Workload whose admission is on its way.
    fn is_admission_assumed(&self, key: &ObjectKey) -> bool {
        self.assumed.get(key).is_some_and(|assumed| assumed.effect == Effect::Admission)
    }

    fn key_of(&self, id: WorkloadId) -> Option<ObjectKey> {
        let workload = &self.engine.workload(id)?.key;
        Some(ObjectKey::new(self.engine.names().namespaces.name(workload.namespace), &workload.name))
    }

    /// Takes a decision back that did not take effect, because the Workload has changed or is gone.
    fn undo(&mut self, key: &ObjectKey, effect: Effect, is_gone: bool, now: Time) {
        if !is_gone && self.restore_reservation(key, effect, now) {
            return;
        }
        let Some(id) = self.engine.workload_id(key.namespace().unwrap_or_default(), key.name()) else {
            return;
        };
        match effect {
            Effect::Admission => self.engine.admission_failed(id, is_gone, now),
            Effect::Preemption => self.engine.preemption_failed(id),
            Effect::Eviction => {
                self.engine.eviction_failed(id, is_gone, now);
            }
            Effect::Report => {}
        }
    }

    /// A second pass changes the placement of a Workload that has its quota already: if that fails, it keeps the quota.
    fn restore_reservation(&mut self, key: &ObjectKey, effect: Effect, now: Time) -> bool {
        let observed = self.workloads.get(key).filter(|entry| entry.object.has_quota_reservation());
        let Some(entry) = observed.filter(|_| effect == Effect::Admission).map(Arc::clone) else {
            return false;
        };
        self.read_workload(&entry, now);
        true
    }

    /// Takes a decision back that the API server refuses. To make it again at once would be refused, too.
    fn hold_back(&mut self, key: &ObjectKey, effect: Effect, now: Timestamp) {
        let time = engine_time(now);
        if self.restore_reservation(key, effect, time) {
            return;
        }
        match effect {
            Effect::Admission => {
                self.engine.delete_workload(key.namespace().unwrap_or_default(), key.name(), time);
            }
            // The engine waits before it tries an eviction again; a report is made when it changes.
            Effect::Eviction | Effect::Report => return self.undo(key, effect, false, time),
            Effect::Preemption => {}
        }
        self.refused.insert(key.clone(), (now + REFUSED_FOR, effect));
    }

    /// Lets refused decisions be made again whose time has come.
    fn retry_refused(&mut self, now: Timestamp) {
        let due: Vec<(ObjectKey, Effect)> = self
            .refused
            .iter()
            .filter(|(_, (at, _))| *at <= now)
            .map(|(key, (_, effect))| (key.clone(), *effect))
            .collect();
        for (key, effect) in due {
            self.refused.remove(&key);
            match self.workloads.get(&key).map(Arc::clone) {
                Some(entry) if effect == Effect::Admission => self.read_workload(&entry, engine_time(now)),
                _ => self.undo(&key, effect, false, engine_time(now)),
            }
        }
    }
}

impl Effect {
    fn of(write: &status::Write<'_>) -> Self {
        match write {
            status::Write::Admit(..) => Self::Admission,
            status::Write::Preempt { .. } => Self::Preemption,
            status::Write::Evict { .. } => Self::Eviction,
            status::Write::Unadmit(..)
            | status::Write::FinishSlice { .. }
            | status::Write::WaitForPodsReady(_) => Self::Report,
        }
    }
}

impl Assumed {
    /// What a write that replaces this one has to know of it. Of several, only the first can have been sent: the others wait for
    /// its outcome.
    fn replaced(&self) -> Replaces {
        let own = || Replaces { status: self.status.clone(), events: self.events.len() };
        self.replaces.clone().unwrap_or_else(own)
    }

    /// An admission that was decided while another write of ours was on its way, for the state after that; `None` if
    /// `entry` is not that state.
    fn after_replaced(mut self, entry: &Entry<Workload>) -> Option<Self> {
        let replaced = self.replaces.take().filter(|_| self.effect == Effect::Admission)?;
        if entry.object.status != replaced.status {
            return None;
        }
        let patch = field_managers::status_patch(entry, self.status.as_ref())?;
        let events = self.events.split_off(replaced.events.min(self.events.len()));
        Some(Self { patch, events, ..self })
    }

    fn write(&self, key: &ObjectKey, base: ResourceVersion) -> Write<Decided> {
        let decided =
            WorkloadDecision { workload: key.clone(), base, number: self.number, effect: self.effect };
        let decided = Decided::Workload(decided);
        let write = Write::status(ApiKind::of::<Workload>(), key.clone(), self.patch.clone(), decided);
        write.with_events(self.events.clone())
    }
}

impl Index for Scheduler {
    type Event = SchedulerEvent;
    type Decision = Decided;

    const NAME: &'static str = SCHEDULER;

    fn apply(&mut self, event: SchedulerEvent, now: Timestamp) {
        // Pods have no part in statuses.
        if !matches!(event, SchedulerEvent::Pod(_)) {
            self.statuses.touch(now);
        }
        self.count_transition(&event);
        self.ingest(event, engine_time(now));
    }

    fn decide(&mut self, now: Timestamp, room: usize) -> Vec<Write<Decided>> {
        self.retry_refused(now);
        let (at, now) = (now, engine_time(now));
        self.take_in_nodes(now);
        self.take_in_devices(now);
        self.take_in_pods(at);
        self.sample_usage(at);
        let lost: Vec<ObjectKey> = self.assumed.take_lost().collect();
        let again = lost.iter().filter_map(|key| {
            let assumed = self.assumed.get(key)?;
            Some(assumed.write(key, ResourceVersion(assumed.patch.version)))
        });
        let mut writes: Vec<Write<Decided>> = again.collect();
        // The inbox was taken in as a whole, so a burst of events is one flush.
        self.engine.process_flushes(now, false);
        if self.tasks.schedule {
            self.run_cycles(now, room, &mut writes);
            self.finish_replaced(now, &mut writes);
            self.repeat_reports(&mut writes);
            self.report_bypassed(now, &mut writes);
        }
        if !writes.is_empty() {
            self.statuses.touch(at);
        }
        self.publish_gauges(at);
        if self.tasks.report {
            writes.extend(self.statuses.writes(&self.engine, at));
        }
        writes
    }

    fn outcome(&mut self, decided: Decided, outcome: WriteOutcome, now: Timestamp) {
        match decided {
            Decided::Workload(decided) => self.workload_outcome(decided, outcome, now),
            Decided::Status(of) => match outcome {
                WriteOutcome::Refused(refusal) => {
                    if refusal.code != NOT_FOUND {
                        tracing::warn!(?of, "a status was refused: {}", refusal.message);
                    }
                    self.statuses.refused(&of);
                }
                _ => self.statuses.written(&of, now),
            },
        }
    }

    fn take_events(&mut self) -> Vec<(Regarding, Event)> {
        std::mem::take(&mut self.events)
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let due = self.engine.next_due().filter(|_| self.tasks.schedule);
        let due = due.and_then(|due| Timestamp::from_nanosecond(due.as_nanos().into()).ok());
        let refused = self.refused.values().map(|(at, _)| *at);
        let freed = self.freed_due.filter(|_| self.tasks.schedule);
        due.into_iter()
            .chain(refused)
            .chain(freed)
            .chain(self.sampling_due())
            .chain(self.statuses.due().filter(|_| self.tasks.report))
            .min()
    }

    fn empty(&self) -> Self {
        Self::new(Arc::clone(&self.configuration), self.gates.clone()).with_tasks(self.tasks)
    }

    fn fingerprint(&self) -> u64 {
        self.engine.holdings_fingerprint()
    }
}

impl Scheduler {
    fn workload_outcome(&mut self, decided: WorkloadDecision, outcome: WriteOutcome, now: Timestamp) {
        let WorkloadDecision { workload, base, number, .. } = decided;
        // A newer write about the same version has an outcome of its own.
        let Some(assumed) = self.assumed.get(&workload).filter(|assumed| assumed.number == number) else {
            return;
        };
        // The state that it is in conflict with is about to be observed, and may be our own.
        let is_after_own = assumed.effect == Effect::Admission && assumed.replaces.is_some();
        if is_after_own && matches!(outcome, WriteOutcome::Conflict) {
            return;
        }
        let Some(dropped) = self.assumed.outcome(&workload, base, &outcome) else { return };
        match outcome {
            WriteOutcome::Refused(refusal) if refusal.code != NOT_FOUND => {
                tracing::warn!(%workload, "a decision was refused: {}", refusal.message);
                self.hold_back(&workload, dropped.effect, now);
            }
            WriteOutcome::Refused(_) => self.undo(&workload, dropped.effect, true, engine_time(now)),
            WriteOutcome::Conflict => self.undo(&workload, dropped.effect, false, engine_time(now)),
            WriteOutcome::Written { .. } | WriteOutcome::Lost | WriteOutcome::Superseded => {}
        }
    }
}

pub(crate) fn engine_time(now: Timestamp) -> Time {
    i64::try_from(now.as_nanosecond()).map_or(Time::LAST, Time::from_nanos)
}

/// A status with what a report says about the wait for quota.
fn with_report(mut status: WorkloadStatus, reported: &WorkloadStatus) -> WorkloadStatus {
    let kinds = [
        WorkloadCondition::QuotaReserved,
        WorkloadCondition::Admitted,
        WorkloadCondition::BlockedOnPreemptionGates,
    ];
    let conditions = status.conditions.get_or_insert_default();
    for reported in reported.conditions.iter().flatten() {
        if kinds.iter().any(|kind| kind.as_str() == reported.type_) {
            match conditions.iter_mut().find(|own| own.type_ == reported.type_) {
                Some(own) => own.clone_from(reported),
                None => conditions.push(reported.clone()),
            }
        }
    }
    status.resource_requests.clone_from(&reported.resource_requests);
    status
}

/// An event as Kueue's scheduler records it: its action is its reason.
fn recorded(event: status::Event) -> Event {
    let make = if event.is_warning { Event::warning } else { Event::normal };
    make(&event.reason, &event.reason, event.message)
}
