//! The plan for one Deployment.

pub(crate) mod replicas;
mod revisions;
mod rollback;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet};
use quintet_api::owners::controller_reference;
use quintet_controller::api::PatchKind;
use quintet_controller::cache::Entry;
use quintet_controller::{Action, ApiKind, Error, Event, OnError, Plan, StatusPatch, Step};
use serde_json::json;

use super::observe::Observed;
use super::{labels, selector, status};
use crate::{claim, pod_events, template, time};
use replicas::{Bounds, Part};

type Set<'a> = &'a Entry<ReplicaSet>;

/// A Deployment with its ReplicaSets.
pub(super) struct Rollout<'a> {
    pub(super) observed: &'a Observed,
    pub(super) spec: &'a DeploymentSpec,
    pub(super) bounds: Bounds,
    /// The oldest ReplicaSet with the template of the Deployment.
    pub(super) new: Option<Set<'a>>,
    /// The others, in the order of age.
    pub(super) old: Vec<Set<'a>>,
}

/// What a rollout changes in one reconcile.
#[derive(Default)]
struct Progress {
    steps: Vec<Step>,
    /// What the steps say about progress.
    condition: Option<status::Progressing>,
}

/// Computes the plan.
pub(super) fn plan(observed: &Observed) -> Plan {
    let deployment = &observed.deployment;
    let (Some(spec), Some(owner)) = (&deployment.object.spec, controller_reference(&deployment.object))
    else {
        return Plan::nothing();
    };
    let Some(selector) = selector(&deployment.object) else { return selects_all(observed) };
    let kind = ApiKind::of::<ReplicaSet>();
    let claimed = claim::claim(&owner, deployment.deleting, Some(&selector), &kind, &observed.replica_sets);
    let rollout = Rollout::new(observed, spec, claimed.owned);
    let progress = rollout.progress();
    let mut steps = claimed.steps;
    steps.extend(progress.steps);
    let current = deployment.object.status.clone().unwrap_or_default();
    let outlook = status::status(&rollout, &current, progress.condition, observed.now);
    Plan {
        steps,
        status: StatusPatch::between(deployment, &current, &outlook.status),
        awaits: status::awaits(&rollout, &outlook.status),
        next: time::earliest(observed.now, outlook.deadline),
        ..Plan::default()
    }
}

/// A selector without requirements is a mistake of the user.
fn selects_all(observed: &Observed) -> Plan {
    let deployment = &observed.deployment;
    let current = deployment.object.status.clone().unwrap_or_default();
    let generation = deployment.object.metadata.generation;
    let desired = DeploymentStatus { observed_generation: generation, ..current.clone() };
    let note = "This deployment is selecting all pods. A non-empty selector is required.";
    Plan {
        status: StatusPatch::between(deployment, &current, &desired),
        events: vec![Event::warning(labels::SELECTING_ALL, "Select", note)],
        ..Plan::default()
    }
}

/// A ReplicaSet that could not be created: another one has its name, or it is rejected.
pub(super) fn on_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
    let is_creation = matches!(action, Action::Create { kind, .. } if *kind == ApiKind::of::<ReplicaSet>());
    if !is_creation || pod_events::is_namespace_terminating(error) {
        return OnError::default();
    }
    let deployment = &observed.deployment;
    let current = deployment.object.status.clone().unwrap_or_default();
    let mut desired = current.clone();
    if error.status().is_some_and(kube::core::Status::is_already_exists) {
        // Another name is tried.
        desired.collision_count = Some(current.collision_count.unwrap_or_default() + 1);
        return OnError {
            status: StatusPatch::between(deployment, &current, &desired),
            ..OnError::default()
        };
    }
    let name = action.target().map(|target| target.name().to_owned()).unwrap_or_default();
    let message = format!("Failed to create new replica set {name:?}: {}", pod_events::cause(error));
    let condition = status::Progressing::failed(labels::REPLICA_SET_CREATE_ERROR, message.clone());
    condition.set(&mut desired, observed.now);
    OnError {
        status: StatusPatch::between(deployment, &current, &desired),
        events: vec![Event::warning(labels::REPLICA_SET_CREATE_ERROR, "Create", message)],
        ..OnError::default()
    }
}

impl<'a> Rollout<'a> {
    fn new(observed: &'a Observed, spec: &'a DeploymentSpec, mut owned: Vec<Set<'a>>) -> Self {
        owned.sort_by(|a, b| age_key(a).cmp(&age_key(b)));
        let is_new = |set: &Set<'_>| {
            set.object
                .spec
                .as_ref()
                .and_then(|spec| spec.template.as_ref())
                .is_some_and(|of_set| template::are_equal(of_set, &spec.template))
        };
        let new = owned.iter().copied().find(is_new);
        let old = owned.into_iter().filter(|set| new.is_none_or(|new| new.uid != set.uid)).collect();
        Self { observed, spec, bounds: Bounds::of(spec), new, old }
    }

    pub(super) fn deployment(&self) -> &'a Deployment {
        &self.observed.deployment.object
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Set<'a>> + '_ {
        self.old.iter().copied().chain(self.new)
    }

    /// One step of the rollout. ReplicaSets grow or shrink in one reconcile, never both.
    fn progress(&self) -> Progress {
        if self.observed.deployment.deleting {
            return Progress::default();
        }
        let is_paused = self.spec.paused == Some(true);
        if is_paused {
            let mut progress = self.synchronized(false);
            progress.steps.extend(self.scale());
            progress.steps.extend(self.clean_up());
            return progress;
        }
        if let Some(steps) = rollback::plan(self) {
            return Progress { steps, condition: None };
        }
        if self.is_scaled() {
            let mut progress = self.synchronized(false);
            progress.steps.extend(self.scale());
            return progress;
        }
        if self.bounds.is_recreate { self.recreate() } else { self.roll() }
    }

    fn roll(&self) -> Progress {
        let mut progress = self.synchronized(true);
        let Some(new) = self.new else { return progress };
        let total = self.all().map(replicas_of).sum();
        let scaled_up = self.resize(new, self.bounds.of_new(replicas_of(new), total));
        if scaled_up.is_empty() {
            let parts: Vec<_> = self.old.iter().enumerate().map(|(age, set)| part(set, age)).collect();
            let sizes = replicas::old_in_rollout(self.bounds, &part(new, parts.len()), &parts);
            let scaled_down = self.old.iter().zip(sizes).flat_map(|(set, size)| self.resize(set, size));
            progress.steps.extend(scaled_down);
        }
        progress.steps.extend(scaled_up);
        if progress.steps.is_empty() && self.is_complete() {
            progress.steps.extend(self.clean_up());
        }
        progress
    }

    fn recreate(&self) -> Progress {
        let mut progress = self.synchronized(false);
        let down = self.old.iter().flat_map(|set| self.resize(set, 0));
        let before = progress.steps.len();
        progress.steps.extend(down);
        if progress.steps.len() > before || self.old_pods_run() {
            return progress;
        }
        let Some(new) = self.new else { return self.synchronized(true) };
        progress.steps.extend(self.resize(new, self.bounds.replicas));
        if progress.steps.is_empty() && self.is_complete() {
            progress.steps.extend(self.clean_up());
        }
        progress
    }

    /// Whether pods of old ReplicaSets have not ended; terminating ones count.
    fn old_pods_run(&self) -> bool {
        self.old.iter().any(|set| {
            let shown = set.object.status.as_ref().map_or(0, |status| status.replicas);
            shown > 0 || self.observed.pods.get(set.uid.as_str()).is_some_and(|pods| *pods > 0)
        })
    }

    /// Revisions and annotations; creates the new ReplicaSet if it `may_create` it.
    fn synchronized(&self, may_create: bool) -> Progress {
        let Some(new) = self.new else {
            let created = may_create.then(|| revisions::create(self));
            let condition = created.as_ref().map(|(name, _)| status::Progressing::created(name));
            return Progress { steps: created.into_iter().map(|(_, step)| step).collect(), condition };
        };
        let mut steps = Vec::new();
        steps.extend(revisions::annotate(self, new));
        steps.extend(self.set_revision(new));
        Progress { steps, condition: Some(status::Progressing::found(new.key.name())) }
    }

    /// The revision of a Deployment is that of its new ReplicaSet. It goes through the status subresource, as upstream's.
    fn set_revision(&self, new: Set<'_>) -> Option<Step> {
        let revision = revisions::annotation(new, labels::REVISION)?;
        let deployment = &self.observed.deployment;
        let current =
            self.deployment().metadata.annotations.as_ref().and_then(|all| all.get(labels::REVISION));
        if current == Some(revision) {
            return None;
        }
        let patch =
            json!({ "metadata": { "uid": deployment.uid, "annotations": { labels::REVISION: revision } } });
        let action = Action::Patch {
            kind: ApiKind::of::<Deployment>(),
            key: deployment.key.clone(),
            subresource: Some("status".to_owned()),
            patch_kind: PatchKind::Merge,
            patch,
        };
        Some(action.into())
    }

    /// Whether the replicas of the Deployment have changed since its ReplicaSets were scaled.
    fn is_scaled(&self) -> bool {
        let is_outdated = |set: Set<'_>| {
            let desired = revisions::annotation(set, labels::DESIRED_REPLICAS);
            desired
                .and_then(|text| text.parse::<i32>().ok())
                .is_some_and(|desired| desired != self.bounds.replicas)
        };
        self.all().any(|set| replicas_of(set) > 0 && is_outdated(set))
    }

    /// Follows a change of the Deployment's replicas.
    fn scale(&self) -> Vec<Step> {
        let active: Vec<_> = self.all().filter(|set| replicas_of(set) > 0).collect();
        let only = match active.as_slice() {
            [] => self.new.or_else(|| self.old.last().copied()),
            [one] => Some(*one),
            _ => None,
        };
        if let Some(set) = only {
            return self.resize_or_annotate(set, self.bounds.replicas);
        }
        if self.new.is_some_and(|new| self.is_saturated(new)) {
            return self.old.iter().flat_map(|set| self.resize(set, 0)).collect();
        }
        if self.bounds.is_recreate {
            return Vec::new();
        }
        // The new ReplicaSet counts as the youngest.
        let parts: Vec<_> = active.iter().enumerate().map(|(age, set)| part(set, age)).collect();
        let shown = self.deployment().status.as_ref().and_then(|status| status.replicas).unwrap_or_default();
        let sizes = replicas::proportional(self.bounds, &parts, shown);
        let size_of =
            |set: Set<'_>| sizes.iter().find(|(name, _)| name == set.key.name()).map(|(_, size)| *size);
        active.iter().flat_map(|set| self.resize_or_annotate(set, size_of(set).unwrap_or_default())).collect()
    }

    /// Whether a ReplicaSet has all replicas of the Deployment, and all are available.
    fn is_saturated(&self, set: Set<'_>) -> bool {
        let available = set.object.status.as_ref().and_then(|status| status.available_replicas);
        replicas_of(set) == self.bounds.replicas && available.unwrap_or_default() == self.bounds.replicas
    }

    fn is_complete(&self) -> bool {
        let Some(status) = &self.deployment().status else { return false };
        status::is_complete(self.deployment(), self.bounds.replicas, status)
    }

    /// Scales a ReplicaSet, if that changes anything.
    fn resize(&self, set: Set<'_>, size: i32) -> Vec<Step> {
        let before = replicas_of(set);
        if before == size { Vec::new() } else { self.resize_or_annotate(set, size) }
    }

    /// The same; also if only the annotations have to change.
    fn resize_or_annotate(&self, set: Set<'_>, size: i32) -> Vec<Step> {
        let before = replicas_of(set);
        let annotations = revisions::replica_annotations(&self.bounds);
        let is_annotated =
            annotations.iter().all(|(name, value)| revisions::annotation(set, name) == Some(value));
        if before == size && is_annotated {
            return Vec::new();
        }
        let patch = json!({
            "metadata": { "uid": set.uid, "annotations": annotations },
            "spec": { "replicas": size },
        });
        let action = Action::merge(ApiKind::of::<ReplicaSet>(), set.key.clone(), patch);
        if before == size {
            return vec![action.into()];
        }
        vec![action.with_event(scaling_event(set.key.name(), before, size))]
    }

    /// Deletes the oldest revisions beyond the limit.
    fn clean_up(&self) -> Vec<Step> {
        let limit = self.spec.revision_history_limit.unwrap_or(10);
        let mut candidates: Vec<_> = self.old.iter().copied().filter(|set| !set.deleting).collect();
        let excess = candidates.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        candidates.sort_by_key(|set| revisions::revision_of(set));
        let is_idle = |set: &&Set<'_>| {
            let status = set.object.status.as_ref();
            let observed = status.and_then(|status| status.observed_generation).unwrap_or_default();
            replicas_of(set) == 0
                && status.is_none_or(|status| status.replicas == 0)
                && observed >= set.object.metadata.generation.unwrap_or_default()
        };
        let idle = candidates.iter().take(excess).filter(is_idle);
        idle.map(|set| Action::delete(ApiKind::of::<ReplicaSet>(), *set).into()).collect()
    }
}

fn age_key(set: Set<'_>) -> (Option<jiff::Timestamp>, &str) {
    (set.object.metadata.creation_timestamp.as_ref().map(|time| time.0), set.key.name())
}

pub(super) fn replicas_of(set: Set<'_>) -> i32 {
    set.object.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn part(set: Set<'_>, age: usize) -> Part {
    let available = set.object.status.as_ref().and_then(|status| status.available_replicas);
    Part {
        name: set.key.name().to_owned(),
        spec: replicas_of(set),
        available: available.unwrap_or_default(),
        max_before: revisions::annotation(set, labels::MAX_REPLICAS).and_then(|text| text.parse().ok()),
        age,
    }
}

pub(super) fn scaling_event(name: &str, before: i32, after: i32) -> Event {
    let direction = if after > before { "up" } else { "down" };
    let note = format!("Scaled {direction} replica set {name} from {before} to {after}");
    Event::normal(labels::SCALING_REPLICA_SET, "Scale", note)
}
