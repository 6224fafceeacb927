//! Finalizers of objects that others use: ClusterQueues, ResourceFlavors, AdmissionChecks and Topologies.

use std::fmt::Debug;
use std::sync::Arc;

use quintet_api::kueue::WorkloadLifecycle;
use quintet_api::kueue::metadata::RESOURCE_IN_USE;
use quintet_api::kueue::v1beta2::{AdmissionCheck, ClusterQueue, ResourceFlavor, Topology};
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, Plan};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::Context;
use crate::watches::{self, BY_ADMISSION, BY_CHECK, BY_FLAVOR, BY_TOPOLOGY};

/// A kind that is kept while it is in use.
trait Protected: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope> + 'static {
    const NAME: &'static str;
}

impl Protected for ClusterQueue {
    const NAME: &'static str = "clusterqueue";
}

impl Protected for ResourceFlavor {
    const NAME: &'static str = "resourceflavor";
}

impl Protected for AdmissionCheck {
    const NAME: &'static str = "admissioncheck";
}

impl Protected for Topology {
    const NAME: &'static str = "topology";
}

/// Keeps the objects of a kind.
struct Protection<K> {
    objects: Cache<K>,
    is_used: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

/// An object, and whether others use it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Observed<K> {
    object: Arc<Entry<K>>,
    finalizers: Vec<String>,
    is_used: bool,
}

/// Adds a controller per kind.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let caches = context.runtime.caches();
    let workloads = caches.watch(watches::workloads())?;
    let queues = caches.watch(watches::cluster_queues())?;
    let flavors = caches.watch(watches::resource_flavors())?;
    let checks: Cache<AdmissionCheck> = caches.watch(WatchSpec::typed())?;
    let topologies: Cache<Topology> = caches.watch(WatchSpec::typed())?;

    let holders = workloads.clone();
    // By what counts as used: a deactivated Workload keeps its admission until its job has stopped, but no queue.
    let is_used =
        move |name: &str| holders.by_index(BY_ADMISSION, name).iter().any(|own| own.object.holds_quota());
    protect(context, &queues, is_used)
        .watches(&workloads, |entry| {
            let admission = entry.object.status.as_ref().and_then(|status| status.admission.as_ref());
            keys(admission.and_then(|admission| admission.cluster_queue.clone()))
        })
        .done();

    let users = queues.clone();
    protect(context, &flavors, move |name| !users.by_index(BY_FLAVOR, name).is_empty())
        .watches(&queues, |entry| keys(watches::flavors_of(&entry.object)))
        .done();

    let users = queues.clone();
    protect(context, &checks, move |name| !users.by_index(BY_CHECK, name).is_empty())
        .watches(&queues, |entry| {
            let strategy = entry.object.spec.admission_checks_strategy.as_ref();
            let rules = strategy.into_iter().flat_map(|strategy| &strategy.admission_checks);
            keys(rules.map(|rule| rule.name.clone()))
        })
        .done();

    let users = flavors.clone();
    protect(context, &topologies, move |name| !users.by_index(BY_TOPOLOGY, name).is_empty())
        .watches(&flavors, |entry| keys(entry.object.spec.topology_name.clone()))
        .done();
    Ok(())
}

fn protect<K>(
    context: &Context,
    objects: &Cache<K>,
    is_used: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> quintet_controller::controller::Setup
where
    K: Protected + Serialize + DeserializeOwned + Clone + Debug + Send + Sync,
{
    let controller = Protection { objects: objects.clone(), is_used: Box::new(is_used) };
    context.runtime.add(controller, objects, context.concurrency)
}

fn keys(names: impl IntoIterator<Item = String>) -> Vec<ObjectKey> {
    names.into_iter().map(|name| ObjectKey::cluster(&name)).collect()
}

impl<K> Controller for Protection<K>
where
    K: Protected + Serialize + DeserializeOwned + Clone + Debug + Send + Sync,
{
    type Observed = Observed<K>;
    type Call = NoCall;

    const NAME: &'static str = K::NAME;

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed<K>>, Error> {
        Ok(self.objects.get(key).map(|object| Observed {
            finalizers: object.object.meta().finalizers.clone().unwrap_or_default(),
            is_used: (self.is_used)(key.name()),
            object,
        }))
    }

    fn plan(observed: &Observed<K>) -> Plan {
        let steps = finalizers(&observed.finalizers, observed.object.deleting, observed.is_used)
            .map(|finalizers| {
                let patch = json!({ "metadata": { "finalizers": finalizers } });
                Action::merge_exactly(ApiKind::of::<K>(), &observed.object, patch).into()
            })
            .into_iter()
            .collect();
        Plan { steps, ..Plan::default() }
    }
}

/// The finalizers that an object should have, if they differ.
fn finalizers(known: &[String], is_deleting: bool, is_used: bool) -> Option<Vec<String>> {
    let is_protected = known.iter().any(|own| own == RESOURCE_IN_USE);
    match (is_protected, is_deleting) {
        (false, false) => Some(known.iter().cloned().chain([RESOURCE_IN_USE.to_owned()]).collect()),
        (true, true) if !is_used => {
            Some(known.iter().filter(|own| *own != RESOURCE_IN_USE).cloned().collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finalizer_is_added_once_and_removed_when_the_object_is_deleted_and_unused() {
        let known = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let protected = known(&["other", RESOURCE_IN_USE]);
        let table = [
            (known(&["other"]), false, false, Some(protected.clone())),
            (protected.clone(), false, false, None),
            (protected.clone(), true, true, None),
            (protected, true, false, Some(known(&["other"]))),
            (known(&[]), true, false, None),
        ];
        for (known, is_deleting, is_used, expected) in table {
            assert_eq!(
                finalizers(&known, is_deleting, is_used),
                expected,
                "{known:?} {is_deleting} {is_used}"
            );
        }
    }
}
