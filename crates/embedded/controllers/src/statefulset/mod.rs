//! StatefulSet: pods with stable names and claims, created and updated in order.

mod claims;
mod objects;
mod plan;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use quintet_api::selector::Selector;
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{
    Action, ApiKind, Controller, Error, Event, NoCall, ObjectKey, OnError, Plan, Runtime,
};
use serde::{Deserialize, Serialize};

use crate::claim::{self, BY_NAMESPACE, index_by_namespace};
use crate::pod::PodView;
use crate::{Context, pod_events, revision};

/// Everything that a decision about a StatefulSet needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    set: Arc<Entry<StatefulSet>>,
    /// Its pods, and those that it may adopt.
    pods: Vec<Arc<Entry<PodView>>>,
    /// Its revisions.
    revisions: Vec<Arc<Entry<ControllerRevision>>>,
    /// Claims whose names begin with those of its templates.
    claims: Vec<Arc<Entry<PersistentVolumeClaim>>>,
    now: Timestamp,
}

/// The controller of StatefulSets.
struct StatefulSetController {
    sets: Cache<StatefulSet>,
    revisions: Cache<ControllerRevision>,
    claims: Cache<PersistentVolumeClaim>,
    context: Context,
}

/// Adds the controller of StatefulSets.
pub(crate) fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let caches = runtime.caches();
    let sets = caches.watch(WatchSpec::<StatefulSet>::typed().index(BY_NAMESPACE, index_by_namespace))?;
    let claims = WatchSpec::<PersistentVolumeClaim>::typed().index(BY_NAMESPACE, index_by_namespace);
    let controller = StatefulSetController {
        sets: sets.clone(),
        revisions: caches.watch(revision::watch())?,
        claims: caches.watch(claims)?,
        context: context.clone(),
    };
    let revisions = controller.revisions.clone();
    let (kind, roots) = (ApiKind::of::<StatefulSet>(), sets.clone());
    let owners = move |pod: &Entry<PodView>| claim::roots_of(pod, &kind, &roots, selector);
    let (kind, roots) = (ApiKind::of::<StatefulSet>(), sets.clone());
    runtime
        .add(controller, &sets, context.concurrency)
        .watches(&context.pods, owners)
        .watches(&revisions, move |revision| claim::roots_of(revision, &kind, &roots, |_| None))
        .done();
    Ok(())
}

fn selector(set: &StatefulSet) -> Option<Selector> {
    claim::selector(&set.spec.as_ref()?.selector)
}

impl Controller for StatefulSetController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "statefulset-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(set) = self.sets.get(key) else { return Ok(None) };
        let Context { api, pods, clock, .. } = &self.context;
        let kind = ApiKind::of::<StatefulSet>();
        let pods = claim::candidates(pods, &set, &kind, selector(&set.object).as_ref(), api).await?;
        let revisions = self.revisions.by_index(claim::BY_CONTROLLER, set.uid.as_str());
        let mut claims = self.claims.by_index(BY_NAMESPACE, key.namespace().unwrap_or_default());
        claims.retain(|claim| claims::is_of(&set, claim.key.name()));
        Ok(Some(Observed { set, pods, revisions, claims, now: clock.now() }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }

    fn on_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
        let pod = ApiKind::of::<Pod>();
        let (reason, verb) = match action {
            Action::Create { .. } => (pod_events::FAILED_CREATE, "Create"),
            Action::Delete { .. } => (pod_events::FAILED_DELETE, "Delete"),
            _ => return OnError::default(),
        };
        let (Some(kind), Some(target)) = (action.kind(), action.target()) else { return OnError::default() };
        if pod_events::is_namespace_terminating(error) {
            return OnError::default();
        }
        let what = if *kind == pod { "Pod" } else { "Claim" };
        let (name, set) = (target.name(), observed.set.key.name());
        let note =
            format!("{verb} {what} {name} in StatefulSet {set} failed error: {}", pod_events::cause(error));
        OnError { events: vec![Event::warning(reason, "Reconcile", note)], ..OnError::default() }
    }
}
