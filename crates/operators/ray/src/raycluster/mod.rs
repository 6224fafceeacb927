//! RayCluster: one head, groups of workers, and what leads to them.

mod events;
pub(crate) mod metrics;
mod objects;
mod observe;
mod plan;
mod pod_names;
mod status;
#[cfg(test)]
mod tests;
pub mod validation;

use std::sync::Arc;

use quintet_api::ray::reasons;
use quintet_api::ray::v1::RayCluster;
use quintet_controller::{
    Action, Controller, Error, NoCall, ObjectKey, OnError, Plan, Runtime, StatusPatch,
    cache::{Entry, ObjectMetadata},
    clock::Clock,
};

pub(crate) use objects::annotations_for_others;
pub use observe::{ClaimView, Observed};
pub(crate) use plan::progress;
pub(crate) use status::{is_ready, sum_of_templates};

use crate::{
    Context, labels,
    schedulers::native,
    settings::Settings,
    watches::{self, ServiceView},
};
use events::Deletion;
use observe::{Caches, NewToken, Present};
use pod_names::Memory;
use status::Outcome;

/// The controller of RayClusters.
pub struct ClusterController {
    settings: Arc<Settings>,
    clock: Clock,
    caches: Caches,
    memory: Arc<Memory>,
}

/// Adds the controller of RayClusters.
pub fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let controller = ClusterController {
        settings: Arc::clone(&context.settings),
        clock: context.clock.clone(),
        caches: Caches::new(runtime.caches(), &context.settings)?,
        memory: Arc::new(Memory::new(context.seed)),
    };
    let Caches { clusters, pods, services, jobs, ingresses, service_accounts, .. } = &controller.caches;
    let Caches { roles, role_bindings, secrets, .. } = &controller.caches;
    let (clusters, pods, services, jobs) = (clusters.clone(), pods.clone(), services.clone(), jobs.clone());
    let owned = [ingresses, service_accounts, roles, role_bindings, secrets].map(Clone::clone);
    let memory = Arc::clone(&controller.memory);
    pods.subscribe(move |change| memory.record_deletion(change));
    let memory = Arc::clone(&controller.memory);
    clusters.subscribe(move |change| {
        // Another one may have taken the name of one that went.
        match (&change.old, &change.new) {
            (Some(old), Some(new)) if old.uid == new.uid => {}
            (old, new) => {
                if let Some(gone) = old {
                    memory.forget(&gone.uid);
                }
                if let Some(made) = new {
                    memory.remember(&made.uid);
                }
            }
        }
    });
    let (routes, claims) = (controller.caches.routes.clone(), controller.caches.claims.clone());
    let pod_groups = controller.caches.pod_groups.clone();
    let (pki, gangs) = (controller.caches.pki.clone(), controller.caches.gangs.clone());
    let mut setup = runtime
        .add(controller, &clusters, context.concurrency)
        .watches(&pods, |pod| watches::cluster_of(pod, &pod.object.labels).into_iter().collect())
        .watches(&services, clusters_of_service)
        .watches(&jobs, |job| watches::cluster_of(job, &job.object.labels).into_iter().collect());
    for cache in owned.iter().chain(&routes).chain(&pod_groups) {
        setup = setup.watches(cache, owners_of);
    }
    if let Some(claims) = &claims {
        setup = setup.watches(claims, |claim| {
            let owners = claim.object.owners.iter().filter(|owner| owner.kind == "RayCluster");
            let namespace = claim.key.namespace().unwrap_or_default();
            owners.map(|owner| ObjectKey::new(namespace, &owner.name)).collect()
        });
    }
    if let Some(pki) = &pki {
        setup = pki.wake(setup);
    }
    if let Some(gangs) = &gangs {
        setup = gangs.wake(setup);
    }
    setup.done();
    Ok(())
}

/// The clusters that a Service may belong to.
fn clusters_of_service(service: &Entry<ServiceView>) -> Vec<ObjectKey> {
    let names = [labels::CLUSTER, labels::HEADLESS_WORKER_SERVICE, labels::ORIGIN_NAME];
    let names = names.iter().filter_map(|label| service.object.labels.get(*label));
    let namespace = service.key.namespace().unwrap_or_default();
    names.map(|name| ObjectKey::new(namespace, name)).collect()
}

/// The clusters that own an object; some schedulers want that they are not its controller.
fn owners_of(entry: &Entry<ObjectMetadata>) -> Vec<ObjectKey> {
    let owners = entry.object.owner_references.iter().filter(|owner| &*owner.kind == "RayCluster");
    let namespace = entry.key.namespace().unwrap_or_default();
    owners.map(|owner| ObjectKey::new(namespace, &owner.name)).collect()
}

/// The objects that would be made for a new cluster, in order. The error is for the user to fix.
///
/// Names of pods end with characters that differ in every process; here they are always the same.
pub fn preview(cluster: &RayCluster, settings: &Settings) -> Result<Vec<serde_json::Value>, String> {
    let metadata = &cluster.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or("default");
    let key = ObjectKey::new(namespace, metadata.name.as_deref().unwrap_or_default());
    let mut cluster = cluster.clone();
    cluster.metadata.namespace = Some(namespace.to_owned());
    cluster.metadata.uid.get_or_insert_with(|| "00000000-0000-0000-0000-000000000000".to_owned());
    // As if that had been done already: it would hide all that follows.
    cluster.metadata.finalizers = Some(vec![labels::REDIS_CLEANUP_FINALIZER.to_owned()]);
    let uid = quintet_controller::object::Uid::from(cluster.metadata.uid.as_deref().unwrap_or_default());
    let new_token = objects::makes_token(&cluster).then(|| NewToken("<32 random bytes>".to_owned()));
    let mut entry = Entry::new(key, cluster);
    entry.uid = uid.clone();
    let observed = Observed {
        cluster: Arc::new(entry),
        settings: Arc::new(settings.clone()),
        now: jiff::Timestamp::UNIX_EPOCH,
        pods: Vec::new(),
        services: Vec::new(),
        cleanup_jobs: Vec::new(),
        ingress: None,
        present: Present::default(),
        claim: None,
        certificates: Ok(()),
        new_token,
        names: Memory::new(Some(0)).names(&uid),
        gang: settings.gates.native_gang_scheduling.then(native::Observed::default),
    };
    let plan = plan::plan(&observed);
    if let Some(warning) = plan.events.first().filter(|_| plan.steps.is_empty()) {
        return Err(warning.note.clone());
    }
    let object = |step: quintet_controller::Step| match step.action {
        Action::Create { object, .. } | Action::Apply { object, .. } => Some(object),
        Action::Patch { .. }
        | Action::Status { .. }
        | Action::CreateSubresource { .. }
        | Action::Delete { .. }
        | Action::Call(_) => None,
    };
    Ok(plan.steps.into_iter().filter_map(object).collect())
}

impl Controller for ClusterController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "raycluster-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        Ok(self.caches.clusters.get(key).map(|cluster| self.read(key, cluster)))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }

    fn on_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
        on_error(observed, action, error)
    }
}

/// What users learn of a write that failed.
fn on_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
    if let Some(finalize) = plan::on_deletion_error(observed, action, error) {
        return finalize;
    }
    let Some((kind, target)) = action.kind().zip(action.target()) else {
        return OnError::default();
    };
    let cause = error.cause();
    let (event, marker) = match (action, observed.pods.iter().find(|pod| pod.key == target)) {
        (Action::Create { object, .. }, _) if &*kind.kind == "Pod" => {
            if object["metadata"]["labels"][labels::NODE_TYPE] == labels::HEAD {
                let event = events::failed_to_create_head_pod(&target, &cause);
                (event, Some(reasons::FAILED_CREATE_HEAD_POD))
            } else {
                let event = events::failed_to_create_worker_pod(observed.key(), &cause);
                (event, Some(reasons::FAILED_CREATE_WORKER_POD))
            }
        }
        (Action::Delete { .. }, Some(pod)) if &*kind.kind == "Pod" => {
            let why = Deletion::of(observed, pod);
            let marker = match why {
                Deletion::Suspension | Deletion::Recreation => reasons::FAILED_DELETE_ALL_PODS,
                _ if pod.object.is_head() => reasons::FAILED_DELETE_HEAD_POD,
                _ => reasons::FAILED_DELETE_WORKER_POD,
            };
            (events::failed_to_delete(observed.key(), pod, &why, &cause), Some(marker))
        }
        _ => {
            let verb = match action {
                Action::Create { .. } => "Create",
                Action::Delete { .. } => "Delete",
                Action::Apply { .. } if &*kind.kind == "Ingress" && observed.ingress.is_none() => "Create",
                Action::Apply { .. }
                | Action::Patch { .. }
                | Action::Status { .. }
                | Action::CreateSubresource { .. }
                | Action::Call(_) => "Update",
            };
            (events::failed_to_write(verb, &kind.kind, &target, &cause), None)
        }
    };
    let outcome = match marker {
        Some(marker) => Outcome::PodsFailed { marker, cause },
        None => Outcome::OtherFailed,
    };
    let status = status::compute(observed, &outcome)
        .and_then(|status| StatusPatch::between(&observed.cluster, &observed.status(), &status));
    OnError { status, events: vec![event], ..OnError::default() }
}
