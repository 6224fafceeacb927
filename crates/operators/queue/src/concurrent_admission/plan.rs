//! The decision about a parent and its variants. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use quintet_api::conditions;
use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::conditions::WorkloadCondition;
use quintet_api::kueue::events::WorkloadEvent;
use quintet_api::kueue::metadata::ADMISSION_GATED_BY;
use quintet_api::kueue::reasons::{AdmittedReason, EvictionReason, QuotaReservedReason};
use quintet_api::kueue::v1beta2::{ConcurrentAdmissionMode, GatePosition, PreemptionGateState, Workload};
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Event, Next, Plan, Step};
use quintet_queue_engine::status;
use serde_json::json;

use super::{GATE, Observed, variant};
use crate::field_managers;
use crate::scheduler::engine_time;
use crate::watches::flavors_of;
use crate::workload::without_finalizer;

/// How long only one more variant may preempt. As `preemptionTimeout` of Kueue.
const PREEMPTION_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

/// A variant and the position of its flavor in the queue.
struct Variant<'o> {
    entry: &'o Entry<Workload>,
    flavor: usize,
}

impl Variant<'_> {
    fn object(&self) -> &Workload {
        &self.entry.object
    }

    fn is_admitted(&self) -> bool {
        self.object().is_admitted() && !self.object().is_evicted()
    }
}

/// What is decided. A variant is written at most once: what follows is the next reconcile's.
struct Draft<'o> {
    observed: &'o Observed,
    parent: Workload,
    steps: Vec<Step>,
    next: Next,
}

/// The plan for a parent.
pub(super) fn plan(observed: &Observed) -> Plan {
    let parent = observed.parent.object.clone();
    let mut draft = Draft { observed, parent, steps: Vec::new(), next: Next::AwaitChange };
    if !observed.parent.deleting {
        draft.decide();
    }
    draft.into_plan()
}

impl<'o> Draft<'o> {
    fn into_plan(self) -> Plan {
        let Self { observed, parent, steps, next } = self;
        let status = field_managers::status_patch(&observed.parent, parent.status.as_ref());
        Plan { steps, status, next, ..Plan::default() }
    }

    fn decide(&mut self) {
        let observed = self.observed;
        if self.parent.is_finished() {
            return self.finish();
        }
        let flavors = flavors_of(&observed.cluster_queue.object);
        let mut variants = self.follow_flavors(&flavors);
        variants.sort_by_key(|variant| variant.flavor);
        if self.follow_eviction(&variants) {
            return;
        }
        let admitted = variants.iter().find(|variant| variant.is_admitted());
        self.deactivate(&variants, admitted, &flavors);
        self.activate(&variants, admitted, &flavors);
        self.follow_admission(admitted);
        self.open_gate(&variants);
    }

    /// Variants end with their parent.
    fn finish(&mut self) {
        let conditions = self.parent.status.as_ref().and_then(|status| status.conditions.as_deref());
        let finished = conditions::find(conditions.unwrap_or_default(), WorkloadCondition::Finished.as_str());
        let Some(finished) = finished.cloned() else { return };
        let observed = self.observed;
        for entry in observed.variants.iter().filter(|entry| !entry.object.is_finished()) {
            let now = engine_time(observed.now);
            self.patch(entry, |object| {
                let (reason, message) = (&finished.reason, &finished.message);
                status::set_condition(object, WorkloadCondition::Finished, true, reason, message, now);
            });
        }
    }

    /// Creates variants for new flavors, and deletes those for flavors that are gone. Returns the others.
    fn follow_flavors(&mut self, flavors: &[String]) -> Vec<Variant<'o>> {
        let observed = self.observed;
        let entries: Vec<&'o Arc<Entry<Workload>>> =
            observed.variants.iter().filter(|entry| !entry.deleting).collect();
        let kind = ApiKind::of::<Workload>;
        let parent = &observed.parent;
        for flavor in flavors {
            if entries.iter().any(|entry| variant::flavor_of(&entry.object) == Some(flavor.as_str())) {
                continue;
            }
            let variant = variant::of(parent, flavor, &observed.settings);
            let name = variant.metadata.name.clone().unwrap_or_default();
            let namespace = parent.key.namespace().unwrap_or_default();
            let note = format!("Variant Workload \"{namespace}/{name}\" created");
            let reason = WorkloadEvent::CreatedVariant.as_str();
            let event = Event::normal(reason, reason, note);
            self.steps.push(Action::create(kind(), &variant).with_event(event));
        }
        let mut kept = Vec::new();
        for entry in entries {
            let flavor = variant::flavor_of(&entry.object).unwrap_or_default();
            if let Some(flavor) = flavors.iter().position(|own| own == flavor) {
                kept.push(Variant { entry, flavor });
                continue;
            }
            let note = format!(
                "Variant Workload \"{}\" deleted; flavor \"{flavor}\" no longer in ClusterQueue",
                entry.key
            );
            let reason = WorkloadEvent::DeletedVariant.as_str();
            let event = Event::normal(reason, reason, note);
            self.steps.extend(without_finalizer(entry).map(Into::into));
            self.steps.push(Action::delete(kind(), entry).with_event(event));
        }
        kept
    }

    /// The job of an evicted variant has to stop before the quota is given back: the parent is evicted, too. True while it
    /// holds quota.
    fn follow_eviction(&mut self, variants: &[Variant<'o>]) -> bool {
        for variant in variants {
            if !variant.object().is_evicted() || !variant.object().has_quota_reservation() {
                continue;
            }
            let is_of_job = self.parent.has_quota_reservation()
                && flavors_assigned(&self.parent) == flavors_assigned(variant.object());
            if is_of_job {
                if !self.parent.is_evicted() {
                    self.evict(EvictionReason::VariantEvicted, "Admitted variant was evicted");
                }
                return true;
            }
            self.give_back(variant.entry);
        }
        false
    }

    /// Takes the reservation of an evicted variant away.
    fn give_back(&mut self, entry: &Entry<Workload>) {
        let conditions = entry.object.status.as_ref().and_then(|status| status.conditions.as_deref());
        let evicted = conditions::find(conditions.unwrap_or_default(), WorkloadCondition::Evicted.as_str());
        let Some(evicted) = evicted.cloned() else { return };
        let (now, gates) = (engine_time(self.observed.now), &self.observed.settings.scheduling);
        let is_queued_again =
            [EvictionReason::Preempted, EvictionReason::NodeFailures].map(EvictionReason::as_str);
        let is_requeued = is_queued_again.contains(&evicted.reason.as_str());
        let pending = if gates.observability {
            QuotaReservedReason::PendingEvaluation
        } else {
            QuotaReservedReason::Pending
        };
        self.patch(entry, |object| {
            let (reason, message) = (&evicted.reason, &evicted.message);
            status::set_condition(object, WorkloadCondition::Requeued, is_requeued, reason, message, now);
            status::unset_quota_reservation(object, pending, message, now, gates);
        });
    }

    /// Deactivates variants that are not to be admitted any more.
    fn deactivate(&mut self, variants: &[Variant<'o>], admitted: Option<&Variant<'o>>, flavors: &[String]) {
        if !self.parent.is_active() {
            let why = format!("Parent Workload \"{}\" not active", self.observed.parent.key);
            for variant in variants {
                self.set_active(variant, false, &why);
            }
            return;
        }
        let Some(admitted) = admitted else { return };
        let key = &admitted.entry.key;
        for variant in variants {
            match self.mode() {
                ConcurrentAdmissionMode::RetainFirstAdmission if variant.entry.key != *key => {
                    let why = format!("RetainFirstAdmission: another Variant \"{key}\" is admitted");
                    self.set_active(variant, false, &why);
                }
                ConcurrentAdmissionMode::RetainFirstAdmission => {}
                ConcurrentAdmissionMode::TryPreferredFlavors => {
                    let last = self.last_acceptable(flavors);
                    let below =
                        last.filter(|(position, _)| variant.entry.key != *key && variant.flavor > *position);
                    if let Some((_, last)) = below {
                        let why = format!(
                            "being below lastAcceptableFlavor: \"{last}\" and another Variant admitted \"{key}\""
                        );
                        self.set_active(variant, false, &why);
                    } else if variant.flavor > admitted.flavor {
                        let why = format!("being lower priority than admitted Variant \"{key}\"");
                        self.set_active(variant, false, &why);
                    }
                }
            }
        }
    }

    /// Activates variants that may be admitted again.
    fn activate(&mut self, variants: &[Variant<'o>], admitted: Option<&Variant<'o>>, flavors: &[String]) {
        if !self.parent.is_active() {
            return;
        }
        let Some(admitted) = admitted else {
            for variant in variants {
                self.set_active(variant, true, "no other Variant being admitted");
            }
            return;
        };
        if self.mode() == ConcurrentAdmissionMode::RetainFirstAdmission {
            return;
        }
        let key = &admitted.entry.key;
        for variant in variants.iter().filter(|variant| variant.flavor < admitted.flavor) {
            match self.last_acceptable(flavors) {
                Some((position, last)) if variant.flavor <= position => {
                    let why = format!(
                        "being at least lastAcceptableFlavor: \"{last}\" and higher priority than admitted Variant \"{key}\""
                    );
                    self.set_active(variant, true, &why);
                }
                Some(_) => {}
                None => {
                    let why = format!("being higher priority than admitted Variant \"{key}\"");
                    self.set_active(variant, true, &why);
                }
            }
        }
    }

    fn set_active(&mut self, variant: &Variant<'o>, is_active: bool, why: &str) {
        let is_over = variant.object().is_finished() || self.is_written(variant.entry);
        if variant.object().is_active() == is_active || is_over {
            return;
        }
        let (event, what) = if is_active {
            (WorkloadEvent::ActivatedVariant, "activated")
        } else {
            (WorkloadEvent::DeactivatedVariant, "deactivated")
        };
        let kind = ApiKind::of::<Workload>;
        let note = format!("Variant Workload {what} due to {why}");
        let event = Event::normal(event.as_str(), event.as_str(), note).about(kind(), variant.entry);
        let patch = json!({ "spec": { "active": is_active } });
        self.steps.push(Action::merge_exactly(kind(), variant.entry, patch).with_event(event));
    }

    /// The parent has the admission of its variant, the variant the readiness of the pods.
    fn follow_admission(&mut self, admitted: Option<&Variant<'o>>) {
        let Some(admitted) = admitted else {
            if self.parent.is_admitted() && !self.parent.is_evicted() {
                self.evict(EvictionReason::ConcurrentAdmission, "No variant is running");
            }
            return;
        };
        if !self.parent.is_active() {
            return;
        }
        let conditions = self.parent.status.as_ref().and_then(|status| status.conditions.as_deref());
        let ready = conditions::find(conditions.unwrap_or_default(), WorkloadCondition::PodsReady.as_str());
        if let Some(ready) = ready.cloned() {
            self.patch(admitted.entry, |object| {
                let known = object.status.get_or_insert_default().conditions.get_or_insert_default();
                match known.iter_mut().find(|own| own.type_ == ready.type_) {
                    Some(own) => *own = ready,
                    None => known.push(ready),
                }
            });
        }
        let admission = admitted.object().status.as_ref().and_then(|status| status.admission.clone());
        if let Some(admission) = admission.filter(|_| !self.parent.is_admitted()) {
            let now = engine_time(self.observed.now);
            status::set_quota_reservation(&mut self.parent, admission, now);
            let reason = AdmittedReason::Admitted.as_str();
            let message = format!("The variant {} is admitted", admitted.entry.key.name());
            let kind = WorkloadCondition::Admitted;
            status::set_condition(&mut self.parent, kind, true, reason, &message, now);
        }
    }

    /// Lets the best variant that needs it preempt, and no other for a while.
    fn open_gate(&mut self, variants: &[Variant<'o>]) {
        let waiting = || variants.iter().filter(|variant| is_admissible(variant.object()));
        let mut candidate = None;
        for variant in waiting().filter(|variant| opened_at(variant.object()).is_none()) {
            let object = variant.object();
            if object.is_true(WorkloadCondition::BlockedOnPreemptionGates) {
                candidate = Some(variant);
                break;
            }
            if object.condition_status(WorkloadCondition::QuotaReserved).is_none() {
                // It was not evaluated yet, and goes first.
                break;
            }
        }
        let Some(candidate) = candidate.filter(|candidate| !self.is_written(candidate.entry)) else { return };
        let last = waiting().filter_map(|variant| opened_at(variant.object())).max();
        let due = last.and_then(|last| last.checked_add(PREEMPTION_TIMEOUT).ok());
        let left = due.map(|due| due.duration_since(self.observed.now)).filter(SignedDuration::is_positive);
        self.next = Next::After(Duration::try_from(left.unwrap_or(PREEMPTION_TIMEOUT)).unwrap_or_default());
        if left.is_some() {
            return;
        }
        let now = status::api_time(engine_time(self.observed.now));
        let opened = PreemptionGateState {
            name: GATE.to_owned(),
            position: GatePosition::Open,
            last_transition_time: now,
        };
        let mut object = candidate.object().clone();
        let gates = object.status.get_or_insert_default().preemption_gates.get_or_insert_default();
        gates.retain(|gate| gate.name != opened.name);
        gates.push(opened);
        let entry = candidate.entry;
        let Some(write) = field_managers::write_status(entry, object.status.as_ref()) else { return };
        let reason = WorkloadEvent::PreemptionUngatedVariant.as_str();
        let note = format!("Opened preemption gate for variant workload \"{}\"", entry.key);
        let event = Event::normal(reason, reason, note).about(ApiKind::of::<Workload>(), entry);
        self.steps.push(write.with_event(event));
    }

    /// Changes the status of a variant.
    fn patch(&mut self, entry: &Entry<Workload>, change: impl FnOnce(&mut Workload)) {
        if self.is_written(entry) {
            return;
        }
        let mut object = entry.object.clone();
        change(&mut object);
        self.steps.extend(field_managers::write_status(entry, object.status.as_ref()).map(Step::from));
    }

    fn is_written(&self, entry: &Entry<Workload>) -> bool {
        self.steps.iter().any(|step| step.action.target().as_ref() == Some(&entry.key))
    }

    fn evict(&mut self, reason: EvictionReason, message: &str) {
        let now = engine_time(self.observed.now);
        let kind = WorkloadCondition::Evicted;
        status::set_condition(&mut self.parent, kind, true, reason.as_str(), message, now);
    }

    fn mode(&self) -> ConcurrentAdmissionMode {
        let policy = self.observed.cluster_queue.object.spec.concurrent_admission_policy.as_ref();
        policy.map(|policy| policy.migration.mode).unwrap_or_default()
    }

    /// The last flavor that is worth a migration, and its position.
    fn last_acceptable(&self, flavors: &[String]) -> Option<(usize, String)> {
        let policy = self.observed.cluster_queue.object.spec.concurrent_admission_policy.as_ref()?;
        let last = policy.migration.constraints.as_ref()?.last_acceptable_flavor_name.clone()?;
        Some((flavors.iter().position(|own| *own == last).unwrap_or_default(), last))
    }
}

/// The flavors of every pod set.
fn flavors_assigned(workload: &Workload) -> Vec<&BTreeMap<String, String>> {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let sets = admission.into_iter().flat_map(|admission| admission.pod_set_assignments.iter().flatten());
    sets.filter_map(|set| set.flavors.as_ref()).collect()
}

/// When the gate of a variant was opened; `None` while it is closed.
fn opened_at(variant: &Workload) -> Option<jiff::Timestamp> {
    let gates = variant.status.as_ref().and_then(|status| status.preemption_gates.as_deref());
    let mut gates = gates.unwrap_or_default().iter();
    let gate = gates.find(|gate| gate.name == GATE)?;
    (gate.position == GatePosition::Open).then_some(gate.last_transition_time.0)
}

/// Whether a variant waits in its queue. As `IsAdmissible` of Kueue.
fn is_admissible(variant: &Workload) -> bool {
    let conditions = variant.status.as_ref().and_then(|status| status.conditions.as_deref());
    let reserved =
        conditions::find(conditions.unwrap_or_default(), WorkloadCondition::QuotaReserved.as_str());
    let is_on_hold = reserved.is_some_and(|own| own.reason == QuotaReservedReason::OnHold.as_str());
    let annotations = variant.metadata.annotations.as_ref();
    let gated_by = annotations.and_then(|annotations| annotations.get(ADMISSION_GATED_BY));
    variant.is_active()
        && !variant.is_finished()
        && !variant.has_quota_reservation()
        && !is_on_hold
        && gated_by.is_none_or(String::is_empty)
        && !variant.is_true(WorkloadCondition::WaitingForReplacementPods)
}
