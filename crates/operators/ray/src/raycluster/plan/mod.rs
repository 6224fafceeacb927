//! Computes the plan for one RayCluster from its observed state.

mod awaits;
mod deletion;
mod groups;
mod pods;

pub(crate) use awaits::progress;
pub(super) use deletion::on_error as on_deletion_error;
pub(super) use groups::is_named;
pub(super) use pods::{is_outdated, is_over};

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1 as core;
use quintet_api::owners::controller_reference;
use quintet_api::ray::v1::RayCluster;
use quintet_controller::{Action, ApiKind, Event, Next, Plan, StatusPatch, Step};
use serde_json::{Value, json};

use super::{
    events, objects,
    observe::Observed,
    status::{self, Outcome, has},
    validation as rules,
};
use crate::{labels, pod};

/// What a step that is part of ordinary work waits for before it is tried again.
const SOON: Duration = Duration::from_secs(10);

/// Steps in order, until something is missing that all later ones need.
pub(super) struct Draft<'a> {
    pub(super) observed: &'a Observed,
    pub(super) steps: Vec<Step>,
    pub(super) events: Vec<Event>,
    /// Something is missing that only others can bring: requeue soon.
    pub(super) is_waiting: bool,
    /// Pods that may still be made or deleted in this reconcile.
    room: usize,
    /// More pods have to be made or deleted than one reconcile has room for.
    has_more: bool,
    /// Names of pods that the reconcile makes.
    taken: BTreeSet<String>,
    /// Pods may only go: something that new ones need is not there yet.
    pub(super) makes_none: bool,
}

/// Pods that one reconcile makes or deletes: a few seconds of work. What asks for millions must not fill the memory before
/// a quota has a say, and others want to be looked at too.
const PODS_PER_RECONCILE: usize = 256;

impl<'a> Draft<'a> {
    pub(super) fn new(observed: &'a Observed) -> Self {
        Self {
            observed,
            steps: Vec::new(),
            events: Vec::new(),
            is_waiting: false,
            room: PODS_PER_RECONCILE,
            has_more: false,
            taken: BTreeSet::new(),
            makes_none: false,
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        self.steps.push(action.into());
    }

    pub(super) fn act_with_event(&mut self, action: Action, event: Event) {
        self.steps.push(action.with_event(event));
    }

    pub(super) fn warn(&mut self, reason: &str, action: &str, note: impl Into<String>) {
        self.events.push(Event::warning(reason, action, note));
    }

    /// Whether one more pod may be made or deleted in this reconcile.
    pub(super) fn takes_room(&mut self) -> bool {
        let has_room = self.room > 0;
        self.room = self.room.saturating_sub(1);
        self.has_more |= !has_room;
        has_room
    }

    /// Whether a pod of the cluster has this name, or gets it in this reconcile.
    pub(super) fn is_taken(&self, name: &str) -> bool {
        self.taken.contains(name) || self.observed.pods.iter().any(|pod| pod.key.name() == name)
    }

    pub(super) fn take_name(&mut self, name: &str) {
        self.taken.insert(name.to_owned());
    }

    fn finish(self, status: Option<StatusPatch>) -> Plan {
        let wait = match (self.has_more, self.is_waiting) {
            (true, _) => Duration::ZERO,
            (false, true) => SOON,
            (false, false) => self.observed.settings.resync,
        };
        let awaits = awaits::awaits(self.observed);
        Plan { steps: self.steps, status, events: self.events, awaits, next: Next::After(wait) }
    }
}

/// Computes the plan for one RayCluster.
pub(super) fn plan(observed: &Observed) -> Plan {
    let cluster = observed.object();
    if labels::is_managed_elsewhere(cluster.spec.managed_by.as_deref()) {
        return Plan::awaiting(labels::managed_elsewhere(cluster.spec.managed_by.as_deref()));
    }
    // Before validation: a mistake in the spec must not keep a cluster that is being deleted.
    if observed.cluster.deleting {
        return deletion::plan(observed);
    }
    if let Err(event) = validate(observed) {
        return Plan { awaits: vec![event.note.clone()], events: vec![event], ..Plan::default() };
    }
    if deletion::clears_redis(observed) && !observed.has_finalizer(labels::REDIS_CLEANUP_FINALIZER) {
        // Before any pod is there that could write to Redis.
        let finalizers = cluster.metadata.finalizers.iter().flatten().cloned();
        let finalizers = finalizers.chain([labels::REDIS_CLEANUP_FINALIZER.to_owned()]);
        return Plan { steps: vec![set_finalizers(observed, finalizers).into()], ..Plan::default() };
    }
    let mut draft = Draft::new(observed);
    let warning = rules::restart_warning(&cluster.spec);
    draft.events.extend(warning.map(|warning| events::questionable_spec(observed.key(), &warning)));
    if objects::plan(&mut draft) {
        pods::plan(&mut draft);
    }
    let status = status::compute(observed, &Outcome::Done);
    let status = status.and_then(|status| {
        StatusPatch::between(&observed.cluster, &cluster.status.clone().unwrap_or_default(), &status)
    });
    draft.finish(status)
}

fn validate(observed: &Observed) -> Result<(), Event> {
    let (key, cluster) = (observed.key(), observed.object());
    let annotations = cluster.metadata.annotations.clone().unwrap_or_default();
    rules::validate_metadata(cluster).map_err(|error| events::invalid_metadata(key, &error))?;
    rules::validate_spec(&cluster.spec, &annotations, &observed.settings)
        .map_err(|error| events::invalid_spec(key, &error))?;
    if pod::tls::is_enabled(&cluster.spec) && !observed.settings.platform.cert_manager {
        let error = "tlsOptions requires cert-manager, but cert-manager is not installed";
        return Err(events::invalid_spec(key, error));
    }
    rules::validate_upgrade_strategy(cluster)
        .map_err(|error| events::invalid_upgrade_strategy(key, &error))?;
    rules::validate_status(&observed.status()).map_err(|error| events::invalid_status(key, &error))
}

/// Whether the pods of a cluster are being deleted, or have been and are not wanted back.
pub(super) fn suspension(observed: &Observed) -> Suspension {
    let wants = observed.object().spec.suspend == Some(true);
    if !observed.settings.gates.status_conditions {
        return if wants { Suspension::DeletesPods } else { Suspension::None };
    }
    let status = observed.status();
    if has(&status, status::SUSPENDING) {
        Suspension::DeletesPods
    } else if has(&status, status::SUSPENDED) || wants {
        Suspension::MakesNone
    } else {
        Suspension::None
    }
}

/// What a suspension means for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspension {
    /// Nothing.
    None,
    /// They go.
    DeletesPods,
    /// None are made.
    MakesNone,
}

/// An object of ours as JSON, owned by the cluster.
pub(super) fn owned(cluster: &RayCluster, object: &impl serde::Serialize) -> Value {
    let mut object = serde_json::to_value(object).unwrap_or_default();
    if let Some(owner) = controller_reference(cluster) {
        object["metadata"]["ownerReferences"] = json!([owner]);
    }
    object
}

/// Sets the finalizers of the cluster, if it still is as it was seen.
pub(super) fn set_finalizers(observed: &Observed, finalizers: impl Iterator<Item = String>) -> Action {
    let finalizers: Vec<_> = finalizers.collect();
    let version = observed.cluster.version.to_string();
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
    Action::merge(ApiKind::of::<RayCluster>(), observed.key().clone(), patch)
}

/// The kind of pods.
pub(super) fn pod_kind() -> ApiKind {
    ApiKind::of::<core::Pod>()
}
