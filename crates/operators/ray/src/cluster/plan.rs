//! From what was seen of a cluster to what is done about it.

use k8s_openapi::api::core::v1 as core;
use quintet_api::owners::controller_reference;
use quintet_api::ray::v1::RayCluster;
use quintet_controller::{Action, ApiKind, Event, Next, Plan, StatusPatch, Step};
use serde_json::{Value, json};

use super::{
    deletion, objects, pods,
    seen::Seen,
    status::{self, has},
};
use crate::{
    labels, pod,
    validation::{Verdict, cluster as rules},
};

/// What a step that is part of ordinary work waits for before it is tried again.
const SOON: std::time::Duration = std::time::Duration::from_secs(10);

/// Steps in order, until something is missing that all later ones need.
pub(super) struct Draft<'a> {
    pub(super) seen: &'a Seen,
    pub(super) steps: Vec<Step>,
    pub(super) events: Vec<Event>,
    /// Something is missing that only others can bring: look again soon.
    pub(super) is_waiting: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn new(seen: &'a Seen) -> Self {
        Self { seen, steps: Vec::new(), events: Vec::new(), is_waiting: false }
    }

    pub(super) fn act(&mut self, action: Action) {
        self.steps.push(action.into());
    }

    pub(super) fn act_and_tell(&mut self, action: Action, event: Event) {
        self.steps.push(action.telling(event));
    }

    pub(super) fn warn(&mut self, reason: &str, action: &str, note: impl Into<String>) {
        self.events.push(Event::warning(reason, action, note));
    }

    fn finish(self, status: Option<StatusPatch>) -> Plan {
        let wait = if self.is_waiting { SOON } else { self.seen.settings.resync };
        Plan { steps: self.steps, status, events: self.events, next: Next::After(wait) }
    }
}

/// Decides about a cluster.
pub(super) fn plan(seen: &Seen) -> Plan {
    let cluster = seen.object();
    if labels::is_managed_elsewhere(cluster.spec.managed_by.as_deref()) {
        return Plan::nothing();
    }
    // Before validation: a mistake in the spec must not keep a cluster that nobody wants any more.
    if seen.cluster.deleting {
        return deletion::plan(seen);
    }
    if let Err(event) = validate(seen) {
        return Plan { events: vec![event], ..Plan::default() };
    }
    if deletion::clears_redis(seen) && !seen.has_finalizer(labels::REDIS_CLEANUP_FINALIZER) {
        // Before any pod is there that could write to Redis.
        let finalizers = cluster.metadata.finalizers.iter().flatten().cloned();
        let finalizers = finalizers.chain([labels::REDIS_CLEANUP_FINALIZER.to_owned()]);
        return Plan { steps: vec![set_finalizers(seen, finalizers).into()], ..Plan::default() };
    }
    let mut draft = Draft::new(seen);
    draft.events.extend(
        rules::restart_warning(&cluster.spec)
            .map(|note| Event::warning("InvalidRayClusterSpec", "Validate", note)),
    );
    if objects::plan(&mut draft) {
        pods::plan(&mut draft);
    }
    let status = status::compute(seen, None);
    let status = status.and_then(|status| {
        StatusPatch::between(&seen.cluster, &cluster.status.clone().unwrap_or_default(), &status)
    });
    draft.finish(status)
}

fn validate(seen: &Seen) -> Result<(), Event> {
    let cluster = seen.object();
    let annotations = cluster.metadata.annotations.clone().unwrap_or_default();
    let told = |reason: &str, what: &str, verdict: Verdict| {
        verdict.map_err(|error| {
            let note = format!("The RayCluster {what} is invalid {}: {error}", seen.key());
            Event::warning(reason, "Validate", note)
        })
    };
    told("InvalidRayClusterMetadata", "metadata", rules::validate_metadata(cluster))?;
    let spec = "InvalidRayClusterSpec";
    told(spec, "spec", rules::validate_spec(&cluster.spec, &annotations, &seen.settings))?;
    let is_missing = pod::tls::is_enabled(&cluster.spec) && !seen.settings.platform.cert_manager;
    let tls = if is_missing {
        Err("tlsOptions needs cert-manager, which is not installed in this cluster".to_owned())
    } else {
        Ok(())
    };
    told(spec, "spec", tls)?;
    told(spec, "spec", rules::validate_upgrade_strategy(cluster))
}

/// Whether the pods of a cluster are being deleted, or have been and are not wanted back.
pub(super) fn suspension(seen: &Seen) -> Suspension {
    let wants = seen.object().spec.suspend == Some(true);
    if !seen.settings.gates.status_conditions {
        return if wants { Suspension::DeletesPods } else { Suspension::None };
    }
    let status = seen.status();
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
pub(super) fn set_finalizers(seen: &Seen, finalizers: impl Iterator<Item = String>) -> Action {
    let finalizers: Vec<_> = finalizers.collect();
    let version = seen.cluster.version.to_string();
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version}});
    Action::merge(ApiKind::of::<RayCluster>(), seen.key().clone(), patch)
}

/// The kind of pods.
pub(super) fn pod_kind() -> ApiKind {
    ApiKind::of::<core::Pod>()
}
