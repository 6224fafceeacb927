//! Informer events to the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use quintet_api::conditions;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::reasons::QuotaReservedReason;
use quintet_api::kueue::v1beta2::Workload;
use quintet_controller::ObjectKey;
use quintet_controller::cache::Entry;
use quintet_controller::index::Update;
use quintet_queue_engine::ingest::IngestError;
use quintet_queue_engine::time::Time;

use super::{Assumed, Effect, FREED_INTERVAL, Scheduler, SchedulerEvent, engine_time};

impl Scheduler {
    pub(super) fn ingest(&mut self, event: SchedulerEvent, now: Time) {
        use SchedulerEvent as Of;
        use Update::{Applied, Deleted};
        match &event {
            Of::ClusterQueue(update) => self.statuses.observe_cluster_queue(update),
            Of::LocalQueue(update) => self.statuses.observe_local_queue(update),
            Of::Cohort(update) => self.statuses.observe_cohort(update),
            _ => {}
        }
        let engine = &mut self.engine;
        match event {
            Of::AdmissionCheck(Applied(entry)) => engine.apply_admission_check(&entry.object, now),
            Of::AdmissionCheck(Deleted(key)) => engine.delete_admission_check(key.name(), now),
            Of::ClusterQueue(Applied(entry)) => {
                let read = engine.apply_cluster_queue(&entry.object, now);
                if or_left_out("ClusterQueue", &entry.key, read).is_none() {
                    engine.delete_cluster_queue(entry.key.name());
                }
            }
            Of::ClusterQueue(Deleted(key)) => engine.delete_cluster_queue(key.name()),
            Of::Cohort(Applied(entry)) => {
                if or_left_out("Cohort", &entry.key, engine.apply_cohort(&entry.object, now)).is_none() {
                    engine.delete_cohort(entry.key.name(), now);
                }
            }
            Of::Cohort(Deleted(key)) => engine.delete_cohort(key.name(), now),
            Of::LocalQueue(Applied(entry)) => {
                engine.restore_usage(&entry.object, now);
                if or_left_out("LocalQueue", &entry.key, engine.apply_local_queue(&entry.object)).is_none() {
                    engine.delete_local_queue(namespace_of(&entry.key), entry.key.name());
                }
            }
            Of::LocalQueue(Deleted(key)) => engine.delete_local_queue(namespace_of(&key), key.name()),
            Of::Namespace(Applied(entry)) => engine.apply_namespace(&entry.object, now),
            Of::Namespace(Deleted(key)) => engine.delete_namespace(key.name(), now),
            Of::ResourceFlavor(Applied(entry)) => {
                let read = engine.apply_resource_flavor(&entry.object, now);
                if or_left_out("ResourceFlavor", &entry.key, read).is_none() {
                    engine.delete_resource_flavor(entry.key.name(), now);
                }
            }
            Of::ResourceFlavor(Deleted(key)) => engine.delete_resource_flavor(key.name(), now),
            Of::Topology(Applied(entry)) => engine.apply_topology(&entry.object, now),
            Of::Topology(Deleted(key)) => engine.delete_topology(key.name(), now),
            Of::Node(Applied(entry)) => {
                self.nodes.insert(entry.key.clone(), Some(entry));
            }
            Of::Node(Deleted(key)) => {
                self.nodes.insert(key, None);
            }
            Of::Pod(Applied(entry)) => {
                let on_node = entry.object.outside_topology();
                engine.apply_pod_on_node(namespace_of(&entry.key), entry.key.name(), on_node);
            }
            Of::Pod(Deleted(key)) => engine.delete_pod(namespace_of(&key), key.name()),
            Of::LimitRange(update) => {
                let key = update.key().clone();
                let read = match update {
                    Applied(entry) => engine.apply_limit_range(&entry.object),
                    Deleted(key) => engine.delete_limit_range(namespace_of(&key), key.name()),
                };
                or_left_out("LimitRange", &key, read);
                self.evaluate_again(now, |workload| workload.key.namespace() == key.namespace());
            }
            Of::DeviceClass(update) => {
                match update {
                    Applied(entry) => engine.apply_device_class(&entry.object),
                    Deleted(key) => engine.delete_device_class(key.name()),
                }
                self.devices_changed = true;
                self.evaluate_again(now, |workload| uses_extended_resources(&workload.object));
            }
            Of::ResourceClaimTemplate(update) => {
                let key = update.key().clone();
                let read = match update {
                    Applied(entry) => {
                        let read = engine.apply_resource_claim_template(&entry.object);
                        or_left_out("ResourceClaimTemplate", &key, read)
                    }
                    Deleted(_) => None,
                };
                if read.is_none() {
                    engine.delete_resource_claim_template(namespace_of(&key), key.name());
                }
                self.evaluate_again(now, |workload| {
                    workload.key.namespace() == key.namespace()
                        && templates(&workload.object).any(|template| template == key.name())
                });
            }
            Of::ResourceSlice(Applied(entry)) => {
                let read = engine.apply_resource_slice(&entry.object);
                if or_left_out("ResourceSlice", &entry.key, read).is_none() {
                    engine.delete_resource_slice(entry.key.name());
                }
                self.devices_changed = true;
            }
            Of::ResourceSlice(Deleted(key)) => {
                engine.delete_resource_slice(key.name());
                self.devices_changed = true;
            }
            Of::RuntimeClass(update) => {
                let class = update.key().name().to_owned();
                match update {
                    Applied(entry) => engine.apply_runtime_class(&entry.object),
                    Deleted(key) => engine.delete_runtime_class(key.name()),
                }
                self.evaluate_again(now, |workload| uses_class(&workload.object, &class));
            }
            Of::Workload(update) => self.ingest_workload(update, now),
        }
    }

    fn ingest_workload(&mut self, update: Update<Workload>, now: Time) {
        let settled = self.assumed.observe(&update);
        if let (Update::Applied(entry), Some(settled)) = (&update, &settled)
            && self.decided_on_same(entry)
            && let Some(again) = settled.clone().after_replaced(entry)
        {
            return self.write_again(entry, again);
        }
        let effect = settled.as_ref().map(|settled| settled.effect);
        let was_admission = effect == Some(Effect::Admission);
        if let Some(report) = settled.filter(|settled| settled.effect == Effect::Report) {
            self.overtaken.insert(update.key().clone(), report);
        }
        // Others may have been faster to write it, and whatever was refused may be allowed now. The eviction is decided
        // again, unless this state has it.
        let refused = self.refused.remove(update.key()).map(|(_, effect)| effect);
        if [effect, refused].contains(&Some(Effect::Preemption)) {
            self.undo(update.key(), Effect::Preemption, false, now);
        }
        match update {
            Update::Applied(entry) => {
                let known = self.workloads.insert(entry.key.clone(), Arc::clone(&entry));
                if known.is_some_and(|known| known.uid != entry.uid) {
                    self.engine.delete_workload(namespace_of(&entry.key), entry.key.name(), now);
                }
                // An admission on its way is newer than this state.
                if !self.is_admission_assumed(&entry.key) {
                    self.read_workload(&entry, now);
                }
                // Others were faster to write it.
                if was_admission && !entry.object.has_quota_reservation() {
                    self.keep_turn(&entry.key);
                }
            }
            Update::Deleted(key) => {
                self.workloads.remove(&key);
                self.untold.remove(&key);
                self.engine.delete_workload(namespace_of(&key), key.name(), now);
            }
        }
    }

    /// Whether a Workload is what decisions were made on, but for its status.
    fn decided_on_same(&self, entry: &Entry<Workload>) -> bool {
        let known = self.workloads.get(&entry.key).filter(|known| known.uid == entry.uid);
        known.is_some_and(|known| known.object.metadata.generation == entry.object.metadata.generation)
    }

    /// Makes an admission again for this state of its Workload; its quota is not given back in between.
    fn write_again(&mut self, entry: &Arc<Entry<Workload>>, admission: Assumed) {
        self.workloads.insert(entry.key.clone(), Arc::clone(entry));
        self.written += 1;
        let admission = Assumed { number: self.written, ..admission };
        self.assumed.assume(entry.key.clone(), entry.version, admission);
        self.assumed.repeat(&entry.key);
    }

    fn keep_turn(&mut self, key: &ObjectKey) {
        if let Some(id) = self.engine.workload_id(namespace_of(key), key.name()) {
            self.engine.keep_turn(id);
        }
    }

    pub(super) fn read_workload(&mut self, entry: &Entry<Workload>, now: Time) {
        let read = self.engine.apply_workload(&entry.object, now);
        match or_left_out("Workload", &entry.key, read) {
            Some(id) => {
                self.engine.queue_second_pass(id, 0, now);
                if is_report_outdated(&entry.object) {
                    self.engine.evaluate_again(id, now);
                    self.outdated.insert(entry.key.clone());
                }
            }
            None => self.engine.delete_workload(namespace_of(&entry.key), entry.key.name(), now),
        }
    }

    /// Requests of pending Workloads depend on LimitRanges and RuntimeClasses. Those that hold quota keep theirs.
    fn evaluate_again(&mut self, now: Time, is_affected: impl Fn(&Entry<Workload>) -> bool) {
        let affected: Vec<Arc<Entry<Workload>>> = self
            .workloads
            .values()
            .filter(|entry| is_affected(entry) && !self.is_admission_assumed(&entry.key))
            .map(Arc::clone)
            .collect();
        for entry in affected {
            self.read_workload(&entry, now);
        }
    }

    /// Counts the devices again that pending Workloads claim, if there are others.
    pub(super) fn take_in_devices(&mut self, now: Time) {
        if std::mem::take(&mut self.devices_changed) {
            self.evaluate_again(now, |workload| {
                !workload.object.has_quota_reservation() && templates(&workload.object).next().is_some()
            });
        }
    }

    /// Takes in the nodes that changed.
    pub(super) fn take_in_nodes(&mut self, now: Time) {
        let changed = std::mem::take(&mut self.nodes);
        let nodes: Vec<Arc<Entry<Node>>> = changed.values().flatten().map(Arc::clone).collect();
        if !nodes.is_empty() {
            let read = self.engine.apply_nodes(nodes.iter().map(|entry| &entry.object), now);
            if let Err(error) = read {
                tracing::warn!("cannot use a Node for topology aware scheduling: {error}");
            }
        }
        for (key, _) in changed.iter().filter(|(_, entry)| entry.is_none()) {
            self.engine.delete_node(key.name(), now);
        }
    }
}

impl Scheduler {
    /// Counts what pods outside topology aware scheduling use, and tells queues at intervals what became free.
    pub(super) fn take_in_pods(&mut self, now: Timestamp) {
        if self.engine.sync_pod_usage() && self.freed_due.is_none() {
            let next = self.freed_told.checked_add(FREED_INTERVAL).unwrap_or(now);
            self.freed_due = Some(next.max(now));
        }
        if self.freed_due.is_some_and(|due| due <= now) {
            self.engine.flush_freed(engine_time(now));
            (self.freed_due, self.freed_told) = (None, now);
        }
    }
}

/// Whether a pending Workload says nothing about its present state: an obstacle is gone, or its spec has changed.
pub(super) fn is_report_outdated(workload: &Workload) -> bool {
    let conditions = workload.status.as_ref().and_then(|status| status.conditions.as_deref());
    let reserved = WorkloadCondition::QuotaReserved.as_str();
    let report =
        conditions::find(conditions.unwrap_or_default(), reserved).filter(|own| own.status == "False");
    report.is_some_and(|report| {
        report.reason == QuotaReservedReason::PendingEvaluation.as_str()
            || report.observed_generation != workload.metadata.generation
    })
}

fn namespace_of(key: &ObjectKey) -> &str {
    key.namespace().unwrap_or_default()
}

fn uses_class(workload: &Workload, class: &str) -> bool {
    let sets = workload.spec.pod_sets.iter().flatten();
    let mut classes = sets.filter_map(|set| set.template.spec.as_ref()?.runtime_class_name.as_deref());
    classes.any(|own| own == class)
}

/// The ResourceClaimTemplates by which the pods of a Workload claim devices.
fn templates(workload: &Workload) -> impl Iterator<Item = &str> {
    let sets = workload.spec.pod_sets.iter().flatten();
    let claims = sets
        .filter_map(|set| set.template.spec.as_ref())
        .flat_map(|spec| spec.resource_claims.iter().flatten());
    claims.filter_map(|claim| claim.resource_claim_template_name.as_deref())
}

fn uses_extended_resources(workload: &Workload) -> bool {
    let sets = workload.spec.pod_sets.iter().flatten().filter_map(|set| set.template.spec.as_ref());
    let containers =
        sets.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    requests.flat_map(BTreeMap::keys).any(|name| name.contains('/'))
}

/// An object that cannot be read is left out, and said so: the webhook and the schema refuse such objects, but may not
/// have been there when it was stored.
fn or_left_out<T>(kind: &str, key: &ObjectKey, read: Result<T, IngestError>) -> Option<T> {
    read.inspect_err(|error| tracing::warn!("{kind} {key} is left out of scheduling: {error}")).ok()
}
