//! The plan for one StatefulSet.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use quintet_api::owners::controller_reference;
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Event, Plan, StatusPatch, Step};

use super::objects::{self, ordinal_of};
use super::{Observed, claims, selector, status};
use crate::deployment::scaled;
use crate::pod::{Availability, Phase, PodView};
use crate::revision::{self, POD_REVISION, Update};
use crate::{claim, pod_events, time};

type Member<'a> = &'a Entry<PodView>;

/// A StatefulSet with its pods by ordinal.
pub(super) struct Members<'a> {
    pub(super) observed: &'a Observed,
    pub(super) spec: &'a StatefulSetSpec,
    pub(super) update: Update,
    pub(super) current: String,
    /// The template that pods below the partition are made of.
    current_template: PodTemplateSpec,
    /// Ordinals that should exist, in order.
    pub(super) replicas: BTreeMap<i32, Option<Member<'a>>>,
    /// Pods of other ordinals, the highest first.
    pub(super) condemned: Vec<Member<'a>>,
    claims: Vec<&'a Entry<PersistentVolumeClaim>>,
}

/// What is decided about pods.
#[derive(Default)]
struct Draft {
    steps: Vec<Step>,
    events: Vec<Event>,
    due: Option<Timestamp>,
}

/// Computes the plan.
pub(super) fn plan(observed: &Observed) -> Plan {
    let set = &observed.set;
    let (Some(spec), Some(owner)) = (&set.object.spec, controller_reference(&set.object)) else {
        return Plan::nothing();
    };
    let Some(selector) = selector(&set.object) else { return Plan::nothing() };
    let kind = ApiKind::of::<Pod>();
    let claimed = claim::claim(&owner, set.deleting, Some(&selector), &kind, &observed.pods);
    let members = Members::new(observed, spec, &claimed.owned);
    let mut draft = Draft { steps: claimed.steps, ..Draft::default() };
    if !set.deleting {
        draft.steps.extend(members.update.step.clone());
        members.reconcile(&mut draft);
        draft.steps.extend(members.clean_up_history());
    }
    let current = set.object.status.clone().unwrap_or_default();
    let desired = status::status(&members, &current);
    Plan {
        steps: draft.steps,
        status: StatusPatch::between(set, &current, &desired),
        events: draft.events,
        awaits: status::awaits(&members),
        next: time::earliest(observed.now, draft.due),
    }
}

impl<'a> Members<'a> {
    fn new(observed: &'a Observed, spec: &'a StatefulSetSpec, owned: &[Member<'a>]) -> Self {
        let set = &observed.set;
        let status = set.object.status.as_ref();
        let revisions: Vec<_> = observed.revisions.iter().map(|revision| &**revision).collect();
        let collisions = status.and_then(|status| status.collision_count);
        let update = revision::update(&set.object, &spec.template, collisions, &revisions);
        let known = status.and_then(|status| status.current_revision.as_deref());
        let current = revisions.iter().find(|revision| Some(revision.key.name()) == known);
        let current_template = current.and_then(|revision| revision::template_of(&revision.object));
        let first = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or_default();
        let count = spec.replicas.unwrap_or(1);
        let mut replicas: BTreeMap<_, _> = (first..first + count).map(|ordinal| (ordinal, None)).collect();
        let mut condemned = BTreeMap::new();
        for pod in owned {
            let Some(ordinal) = ordinal_of(set.key.name(), pod.key.name()) else { continue };
            match replicas.get_mut(&ordinal) {
                Some(slot) => *slot = Some(*pod),
                None => drop(condemned.insert(ordinal, *pod)),
            }
        }
        Self {
            current: current.map_or_else(|| update.name.clone(), |revision| revision.key.name().to_owned()),
            current_template: current_template.unwrap_or_else(|| spec.template.clone()),
            observed,
            spec,
            update,
            replicas,
            condemned: condemned.into_values().rev().collect(),
            claims: observed.claims.iter().map(|claim| &**claim).collect(),
        }
    }

    fn set(&self) -> &'a StatefulSet {
        &self.observed.set.object
    }

    pub(super) fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or_default()
    }

    fn is_ordered(&self) -> bool {
        self.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    /// Creates missing pods, removes those that are too many, then updates. With ordered management every pod waits for its
    /// predecessors.
    fn reconcile(&self, draft: &mut Draft) {
        for (ordinal, pod) in &self.replicas {
            let goes_on = match pod {
                None => {
                    self.create(*ordinal, draft);
                    false
                }
                Some(pod) => self.keep(*ordinal, pod, draft),
            };
            if !goes_on && self.is_ordered() {
                return;
            }
        }
        for pod in &self.condemned {
            let goes_on = self.condemn(pod, draft);
            if !goes_on && self.is_ordered() {
                return;
            }
        }
        // Only when all ordinals exist and are healthy: a broken revision stays until a user deletes its pod.
        if self.replicas.values().all(Option::is_some) {
            self.roll(draft);
        }
    }

    /// Whether a pod is made of the current revision rather than the newest one.
    fn uses_current(&self, ordinal: i32) -> bool {
        let strategy = self.spec.update_strategy.as_ref();
        if strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete")) {
            return false;
        }
        let first = self.replicas.keys().next().copied().unwrap_or_default();
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let of_status = || self.set().status.as_ref().and_then(|status| status.current_replicas);
        let old = rolling.map_or_else(of_status, |rolling| rolling.partition);
        ordinal < first + old.unwrap_or_default()
    }

    fn create(&self, ordinal: i32, draft: &mut Draft) {
        let uses_current = self.uses_current(ordinal);
        let (template, revision) = if uses_current {
            (&self.current_template, &self.current)
        } else {
            (&self.spec.template, &self.update.name)
        };
        let pod = objects::pod(self.set(), template, revision, ordinal);
        let name = pod.metadata.name.clone().unwrap_or_default();
        draft.steps.extend(self.missing_claims(ordinal, &name));
        let note = format!("Create Pod {name} in StatefulSet {} successful", self.observed.set.key.name());
        let event = Event::normal(pod_events::SUCCESSFUL_CREATE, "Create", note);
        draft.steps.push(Action::create(ApiKind::of::<Pod>(), &pod).with_event(event));
    }

    fn missing_claims(&self, ordinal: i32, pod: &str) -> Vec<Step> {
        let set = self.observed.set.key.name();
        let is_missing = |claim: &PersistentVolumeClaim| {
            self.claims.iter().all(|known| Some(known.key.name()) != claim.metadata.name.as_deref())
        };
        let missing = objects::claims(self.set(), ordinal).into_iter().filter(is_missing);
        missing
            .map(|claim| {
                let name = claim.metadata.name.as_deref().unwrap_or_default();
                let note = format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
                let event = Event::normal(pod_events::SUCCESSFUL_CREATE, "Create", note);
                Action::ensure(ApiKind::of::<PersistentVolumeClaim>(), &claim).with_event(event)
            })
            .collect()
    }

    fn delete(&self, pod: Member<'_>) -> Step {
        let note = format!(
            "Delete Pod {} in StatefulSet {} successful",
            pod.key.name(),
            self.observed.set.key.name()
        );
        let event = Event::normal(pod_events::SUCCESSFUL_DELETE, "Delete", note);
        Action::delete(ApiKind::of::<Pod>(), pod).with_event(event)
    }

    /// Looks after a pod that should exist; returns whether its successors need not wait.
    fn keep(&self, ordinal: i32, pod: Member<'_>, draft: &mut Draft) -> bool {
        if pod.object.is_deleting() {
            return false;
        }
        if pod.object.is_terminal() {
            draft.steps.push(self.delete(pod));
            return false;
        }
        if pod.object.status.phase == Phase::Pending {
            draft.steps.extend(self.missing_claims(ordinal, pod.key.name()));
        }
        let (steps, events) = claims::retain(&self.observed.set, &self.claims, pod, false);
        draft.steps.extend(steps);
        draft.events.extend(events);
        self.is_available(pod, draft)
    }

    /// Whether a pod has been ready for long enough; if it will be, that is when to requeue.
    fn is_available(&self, pod: Member<'_>, draft: &mut Draft) -> bool {
        match pod.object.availability(self.min_ready_seconds(), self.observed.now) {
            Availability::Available => is_healthy(pod),
            Availability::From(due) => {
                draft.due = Some(draft.due.map_or(due, |other| other.min(due)));
                false
            }
            Availability::Unavailable => false,
        }
    }

    /// Removes a pod that is too many; returns whether the others need not wait. An unhealthy pod waits for healthier ones to
    /// become so, unless it is the first unhealthy one.
    fn condemn(&self, pod: Member<'_>, draft: &mut Draft) -> bool {
        if pod.object.is_deleting() {
            return false;
        }
        let is_first_unhealthy = self.first_unhealthy().is_some_and(|first| first.key == pod.key);
        if self.is_ordered() && !is_first_unhealthy && !self.is_available(pod, draft) {
            return false;
        }
        let (steps, events) = claims::retain(&self.observed.set, &self.claims, pod, true);
        draft.steps.extend(steps);
        draft.events.extend(events);
        draft.steps.push(self.delete(pod));
        false
    }

    fn first_unhealthy(&self) -> Option<Member<'a>> {
        let all = self.replicas.values().flatten().chain(&self.condemned);
        all.copied().find(|pod| !is_healthy(pod))
    }

    /// Deletes pods of old revisions, the highest ordinal first, while few enough are unavailable.
    fn roll(&self, draft: &mut Draft) {
        let strategy = self.spec.update_strategy.as_ref();
        if strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete")) {
            return;
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or_default();
        let first = self.replicas.keys().next().copied().unwrap_or_default();
        let count = i32::try_from(self.replicas.len()).unwrap_or(i32::MAX);
        let max = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        let max = max.map_or(1, |max| scaled(max, count, false)).max(1);
        let is_unavailable = |pod: &Member<'_>| {
            let availability = pod.object.availability(self.min_ready_seconds(), self.observed.now);
            !is_healthy(pod) || availability != Availability::Available
        };
        let pods: Vec<_> = self.replicas.values().flatten().copied().collect();
        let unavailable = pods.iter().filter(|pod| is_unavailable(pod)).count();
        let mut budget = max - i32::try_from(unavailable).unwrap_or(i32::MAX);
        for pod in pods.iter().rev() {
            let ordinal = ordinal_of(self.observed.set.key.name(), pod.key.name()).unwrap_or_default();
            if ordinal < first + partition {
                break;
            }
            if revision_of(pod) == self.update.name || pod.object.is_deleting() {
                continue;
            }
            // One that is unavailable anyway can be replaced at once.
            if !is_unavailable(pod) {
                if budget <= 0 {
                    break;
                }
                budget -= 1;
            }
            draft.steps.push(self.delete(pod));
        }
    }

    fn clean_up_history(&self) -> Vec<Step> {
        let pods = self.replicas.values().flatten().chain(&self.condemned);
        let mut used: Vec<_> = pods.map(|pod| revision_of(pod).to_owned()).collect();
        used.extend([self.current.clone(), self.update.name.clone()]);
        let revisions: Vec<_> = self.observed.revisions.iter().map(|revision| &**revision).collect();
        let is_used = |revision: &Entry<_>| used.iter().any(|name| name == revision.key.name());
        revision::clean_up(&revisions, self.spec.revision_history_limit, is_used)
    }
}

pub(super) fn revision_of(pod: Member<'_>) -> &str {
    pod.object.metadata.labels.get(POD_REVISION).map(String::as_str).unwrap_or_default()
}

/// Whether a pod runs, is ready and stays.
pub(super) fn is_healthy(pod: Member<'_>) -> bool {
    pod.object.status.phase == Phase::Running && pod.object.is_ready() && !pod.object.is_deleting()
}
