//! ReplicaSet: a number of pods of one template.

mod observe;
mod plan;
mod status;
#[cfg(test)]
pub(crate) mod tests;

use k8s_openapi::api::apps::v1::ReplicaSet;
use quintet_api::selector::Selector;
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, OnError, Plan, Runtime};

pub(crate) use observe::Observed;
pub(crate) use status::REPLICA_FAILURE;

use crate::claim::{self, Claimable as _};
use crate::pod::PodView;
use crate::{Context, pod_events};

/// The controller of ReplicaSets.
struct ReplicaSetController {
    replica_sets: Cache<ReplicaSet>,
    context: Context,
}

/// Adds the controller of ReplicaSets.
pub(crate) fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let replica_sets = runtime.caches().watch(watch())?;
    context.names.forget_owners(&replica_sets);
    let controller = ReplicaSetController { replica_sets: replica_sets.clone(), context: context.clone() };
    let (kind, roots) = (ApiKind::of::<ReplicaSet>(), replica_sets.clone());
    let owners = move |pod: &Entry<PodView>| claim::roots_of(pod, &kind, &roots, selector);
    runtime.add(controller, &replica_sets, context.concurrency).watches(&context.pods, owners).done();
    Ok(())
}

/// The watch that all controllers share.
pub(crate) fn watch() -> WatchSpec<ReplicaSet> {
    WatchSpec::typed()
        .index(claim::BY_NAMESPACE, claim::index_by_namespace)
        .index(claim::BY_CONTROLLER, claim::index_by_controller)
}

fn selector(replica_set: &ReplicaSet) -> Option<Selector> {
    claim::selector(&replica_set.spec.as_ref()?.selector)
}

impl Controller for ReplicaSetController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "replicaset-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(replica_set) = self.replica_sets.get(key) else { return Ok(None) };
        let Context { api, pods, names, clock, .. } = &self.context;
        let (kind, selector) = (ApiKind::of::<ReplicaSet>(), selector(&replica_set.object));
        let pods = claim::candidates(pods, &replica_set, &kind, selector.as_ref(), api).await?;
        let entropy = names.entropy(&replica_set.uid);
        let siblings = self.siblings(&replica_set);
        Ok(Some(Observed { replica_set, pods, siblings, entropy, now: clock.now() }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }

    fn on_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
        let failure = pod_events::failure(action, error);
        let status = failure
            .as_ref()
            .and_then(|(reason, message)| plan::status_patch(observed, Some((reason, message))));
        OnError { status, ..pod_events::on_error(action, error) }
    }
}

impl ReplicaSetController {
    /// Active pods per node of all ReplicaSets of the same controller.
    fn siblings(&self, replica_set: &Entry<ReplicaSet>) -> std::collections::BTreeMap<String, usize> {
        let family = match replica_set.object.controller() {
            Some(owner) => self.replica_sets.by_index(claim::BY_CONTROLLER, &owner.uid),
            None => Vec::new(),
        };
        let uids = family.iter().map(|sibling| &sibling.uid).chain([&replica_set.uid]);
        let uids: std::collections::BTreeSet<_> = uids.collect();
        let mut by_node = std::collections::BTreeMap::new();
        for uid in uids {
            for pod in self.context.pods.by_index(claim::BY_CONTROLLER, uid.as_str()) {
                if let Some(node) = pod.object.spec.node_name.clone().filter(|_| pod.object.is_active()) {
                    *by_node.entry(node).or_default() += 1;
                }
            }
        }
        by_node
    }
}
