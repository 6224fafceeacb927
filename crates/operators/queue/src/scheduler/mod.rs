//! The scheduler: an index over all objects that decide who gets quota.
//!
//! Informer events feed the engine, which decides in cycles whenever something changed. A decision leaves as one status
//! write of a Workload and counts in the engine at once (assumed): the next cycle does not wait for the write. A newer state
//! of the Workload replaces the assumption, a refusal takes it back, and a write without a response is sent again.
//!
//! All state is derived from objects, so a restarted or newly elected operator comes to the same state.

mod ingest;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Node};
use k8s_openapi::api::node::v1::RuntimeClass;
use quintet_api::config::kueue::QueueConfiguration;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::v1beta2::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, Workload, WorkloadStatus,
};
use quintet_controller::cache::Entry;
use quintet_controller::index::{Assumptions, Index, Update, Write, WriteOutcome};
use quintet_controller::object::ResourceVersion;
use quintet_controller::{ApiKind, Event, ObjectKey, StatusPatch};
use quintet_queue_engine::settings::Gates;
use quintet_queue_engine::status;
use quintet_queue_engine::time::Time;
use quintet_queue_engine::{Decision, Engine};

/// Code of a refusal because the object does not exist.
const NOT_FOUND: u16 = 404;
/// How long after a refusal the same decision may be made again.
const REFUSED_FOR: SignedDuration = SignedDuration::from_secs(10);

/// A change of an object that scheduling depends on.
pub enum SchedulerEvent {
    /// Whether a check can be made.
    AdmissionCheck(Update<AdmissionCheck>),
    /// Quotas and policies.
    ClusterQueue(Update<ClusterQueue>),
    /// Shared quotas.
    Cohort(Update<Cohort>),
    /// Defaults of requests.
    LimitRange(Update<LimitRange>),
    /// Which Workloads go to which ClusterQueue.
    LocalQueue(Update<LocalQueue>),
    /// Labels that ClusterQueues select by.
    Namespace(Update<Namespace>),
    /// Capacity, for topology aware scheduling.
    Node(Update<Node>),
    /// Labels, taints and topology of a flavor.
    ResourceFlavor(Update<ResourceFlavor>),
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
pub struct Decided {
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
    /// Tells it apart from earlier writes of the same version.
    number: u64,
    effect: Effect,
}

/// The index. See the module.
pub struct Scheduler {
    configuration: Arc<QueueConfiguration>,
    gates: Gates,
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
}

impl Scheduler {
    /// A scheduler without objects.
    pub fn new(configuration: Arc<QueueConfiguration>, gates: Gates) -> Self {
        let engine = Engine::configured(&configuration, gates.clone());
        Self {
            configuration,
            gates,
            engine,
            workloads: BTreeMap::new(),
            assumed: Assumptions::default(),
            written: 0,
            refused: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }

    /// What decisions are made on.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Runs cycles until none changes anything, or there is no room for more writes.
    fn run_cycles(&mut self, now: Time, room: usize, writes: &mut Vec<Write<Decided>>) {
        loop {
            let active = self.engine.active();
            let report = self.engine.schedule(now);
            for decision in &report.decisions {
                self.write(decision, now, writes);
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
        let mut of_preemptor = Vec::new();
        for write in status::writes(decision, &self.engine) {
            let Some(key) = self.key_of(&write) else { continue };
            let Some(entry) = self.workloads.get(&key).map(Arc::clone) else { continue };
            let mut object = entry.object.clone();
            // What is on its way is not written again.
            let earlier = self.assumed.get(&key).filter(|earlier| earlier.patch.version == entry.version.0);
            if let Some(earlier) = earlier {
                object.status.clone_from(&earlier.status);
            }
            let took_quota = earlier.is_some_and(|earlier| earlier.effect == Effect::Admission);
            let before = object.status.clone();
            write.apply(&mut object, &self.engine, now);
            let events = status::events(decision, &write, &object, &self.engine, now);
            let (mut events, others): (Vec<_>, Vec<_>) =
                events.into_iter().partition(|event| event.workload == write.workload());
            of_preemptor.extend(others);
            if object.status == before {
                continue;
            }
            let Some(patch) = StatusPatch::between(&entry, &entry.object.status, &object.status) else {
                continue;
            };
            if write.workload() == decision.workload {
                events.splice(0..0, of_preemptor.drain(..));
            }
            let events = events.into_iter().map(recorded).collect();
            // A write that replaces an admission takes the quota back if it fails.
            let effect = if took_quota { Effect::Admission } else { Effect::of(&write) };
            self.written += 1;
            let assumed = Assumed { patch, status: object.status, events, number: self.written, effect };
            writes.push(assumed.write(&key, entry.version));
            self.assumed.assume(key, entry.version, assumed);
        }
    }

    /// Whether the engine counts quota of a Workload whose admission is on its way.
    fn is_admission_assumed(&self, key: &ObjectKey) -> bool {
        self.assumed.get(key).is_some_and(|assumed| assumed.effect == Effect::Admission)
    }

    fn key_of(&self, write: &status::Write<'_>) -> Option<ObjectKey> {
        let workload = &self.engine.workload(write.workload())?.key;
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
    fn write(&self, key: &ObjectKey, base: ResourceVersion) -> Write<Decided> {
        let decided = Decided { workload: key.clone(), base, number: self.number, effect: self.effect };
        let write = Write::status(ApiKind::of::<Workload>(), key.clone(), self.patch.clone(), decided);
        write.telling(self.events.clone())
    }
}

impl Index for Scheduler {
    type Event = SchedulerEvent;
    type Decision = Decided;

    const NAME: &'static str = "scheduler";

    fn apply(&mut self, event: SchedulerEvent, now: Timestamp) {
        self.ingest(event, engine_time(now));
    }

    fn decide(&mut self, now: Timestamp, room: usize) -> Vec<Write<Decided>> {
        self.retry_refused(now);
        let now = engine_time(now);
        self.take_in_nodes(now);
        let lost: Vec<ObjectKey> = self.assumed.take_lost().collect();
        let again = lost.iter().filter_map(|key| {
            let assumed = self.assumed.get(key)?;
            Some(assumed.write(key, ResourceVersion(assumed.patch.version)))
        });
        let mut writes: Vec<Write<Decided>> = again.collect();
        self.engine.process_flushes(now, true);
        self.run_cycles(now, room, &mut writes);
        writes
    }

    fn outcome(&mut self, decided: Decided, outcome: WriteOutcome, now: Timestamp) {
        let Decided { workload, base, number, .. } = decided;
        // A newer write about the same version has an outcome of its own.
        if self.assumed.get(&workload).is_none_or(|assumed| assumed.number != number) {
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

    fn next_deadline(&self) -> Option<Timestamp> {
        let due = self.engine.next_due();
        let due = due.and_then(|due| Timestamp::from_nanosecond(due.as_nanos().into()).ok());
        due.into_iter().chain(self.refused.values().map(|(at, _)| *at)).min()
    }

    fn empty(&self) -> Self {
        Self::new(Arc::clone(&self.configuration), self.gates.clone())
    }

    fn fingerprint(&self) -> u64 {
        self.engine.holdings_fingerprint()
    }
}

fn engine_time(now: Timestamp) -> Time {
    i64::try_from(now.as_nanosecond()).map_or(Time::LAST, Time::from_nanos)
}

/// An event as Kueue's scheduler records it: its action is its reason.
fn recorded(event: status::Event) -> Event {
    let make = if event.is_warning { Event::warning } else { Event::normal };
    make(&event.reason, &event.reason, event.message)
}
