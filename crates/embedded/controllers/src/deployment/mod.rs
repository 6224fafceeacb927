//! Deployment: rolling updates over ReplicaSets.

mod labels;
mod observe;
mod plan;
mod status;
#[cfg(test)]
mod tests;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use quintet_api::selector::Selector;
use quintet_controller::cache::{Cache, Change, Entry, WatchSpec};
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, OnError, Plan, Runtime};

pub(crate) use observe::Observed;
pub(crate) use plan::replicas::scaled;

use crate::claim::{self, Claimable as _};
use crate::pod::PodView;
use crate::{Context, replicaset};

/// The controller of Deployments.
struct DeploymentController {
    deployments: Cache<Deployment>,
    replica_sets: Cache<ReplicaSet>,
    context: Context,
}

/// Adds the controller of Deployments.
pub(crate) fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let spec = WatchSpec::<Deployment>::typed().index(claim::BY_NAMESPACE, claim::index_by_namespace);
    let deployments = runtime.caches().watch(spec)?;
    let replica_sets = runtime.caches().watch(replicaset::watch())?;
    let controller = DeploymentController {
        deployments: deployments.clone(),
        replica_sets: replica_sets.clone(),
        context: context.clone(),
    };
    let (kind, roots) = (ApiKind::of::<Deployment>(), deployments.clone());
    let owners = move |child: &Entry<ReplicaSet>| claim::roots_of(child, &kind, &roots, selector);
    let of_pods = replica_sets.clone();
    runtime
        .add(controller, &deployments, context.concurrency)
        .watches(&replica_sets, owners)
        .watches_changes(&context.pods, move |change| deployment_of_ended_pod(change, &of_pods))
        .done();
    Ok(())
}

fn selector(deployment: &Deployment) -> Option<Selector> {
    claim::selector(&deployment.spec.as_ref()?.selector)
}

/// Strategy Recreate waits for the end of old pods, which no ReplicaSet's status shows.
fn deployment_of_ended_pod(change: &Change<PodView>, replica_sets: &Cache<ReplicaSet>) -> Vec<ObjectKey> {
    let has_ended = change.new.as_ref().is_none_or(|new| new.object.is_terminal());
    let Some(pod) = change.old.as_ref().filter(|_| has_ended) else { return Vec::new() };
    let namespace = pod.key.namespace().unwrap_or_default();
    let replica_set = pod.object.controller().filter(|owner| owner.kind == "ReplicaSet");
    let replica_set = replica_set.and_then(|owner| replica_sets.get(&ObjectKey::new(namespace, &owner.name)));
    let deployment = replica_set.as_ref().and_then(|replica_set| replica_set.object.controller());
    deployment.map(|owner| ObjectKey::new(namespace, &owner.name)).into_iter().collect()
}

impl Controller for DeploymentController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "deployment-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(deployment) = self.deployments.get(key) else { return Ok(None) };
        let Context { api, pods, clock, .. } = &self.context;
        let (kind, selector) = (ApiKind::of::<Deployment>(), selector(&deployment.object));
        let replica_sets =
            claim::candidates(&self.replica_sets, &deployment, &kind, selector.as_ref(), api).await?;
        let running = |replica_set: &Entry<ReplicaSet>| {
            let pods = pods.by_index(claim::BY_CONTROLLER, replica_set.uid.as_str());
            pods.iter().filter(|pod| !pod.object.is_terminal()).count()
        };
        let pods = replica_sets.iter().map(|one| (one.uid.to_string(), running(one))).collect();
        Ok(Some(Observed { deployment, replica_sets, pods, now: clock.now() }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }

    fn on_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
        plan::on_error(observed, action, error)
    }
}
