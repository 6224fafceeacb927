//! Where Services lead to: EndpointSlices, and Endpoints for clients that still read them.

mod addresses;
mod legacy;
mod slices;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use quintet_api::selector::Selector;
use quintet_controller::cache::{Cache, Entry, WatchSpec};
use quintet_controller::{Controller, Error, NoCall, ObjectKey, Plan, Runtime};
use serde::{Deserialize, Serialize};

use crate::Context;
use crate::claim::{BY_NAMESPACE, index_by_namespace};
use crate::node::NodeView;
use crate::pod::{BY_NODE, PodView};

/// The label that names the Service of a slice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label that says who manages a slice.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SLICE_MANAGER: &str = "endpointslice-controller.k8s.io";
/// The label of what belongs to a Service without an address.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// The label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";
/// The index of slices by the Service they belong to.
const BY_SERVICE: &str = "service";

/// Everything that a decision about the endpoints of one Service needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    service: Arc<Entry<Service>>,
    /// The pods that it selects.
    pods: Vec<Arc<Entry<PodView>>>,
    /// The nodes of these pods that exist, with their zones.
    nodes: BTreeMap<String, Option<String>>,
    /// The slices of the Service that this controller manages.
    slices: Vec<Arc<Entry<EndpointSlice>>>,
    /// The Endpoints of the same name.
    endpoints: Option<Arc<Entry<Endpoints>>>,
}

/// What both controllers observe.
#[derive(Clone)]
struct Caches {
    services: Cache<Service>,
    pods: Cache<PodView>,
    nodes: Cache<NodeView>,
    slices: Cache<EndpointSlice>,
    endpoints: Cache<Endpoints>,
}

struct SliceController(Caches);
struct EndpointsController(Caches);

/// Adds the controllers of EndpointSlices and Endpoints.
pub(crate) fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let watches = runtime.caches();
    let caches =
        Caches {
            services: watches.watch(WatchSpec::<Service>::typed().index(BY_NAMESPACE, index_by_namespace))?,
            pods: context.pods.clone(),
            nodes: watches.watch(NodeView::watch())?,
            slices: watches.watch(WatchSpec::<EndpointSlice>::typed().index(BY_SERVICE, |slice| {
                service_of(slice).map(|key| key.to_string()).into_iter().collect()
            }))?,
            endpoints: watches.watch(WatchSpec::<Endpoints>::typed())?,
        };
    let (of_pods, of_nodes) = (caches.clone(), caches.clone());
    runtime
        .add(SliceController(caches.clone()), &caches.services, context.concurrency)
        .watches(&caches.pods, move |pod| of_pods.services_of(pod))
        .watches_changes(&caches.nodes, move |change| of_nodes.services_on(change))
        .watches(&caches.slices, |slice| service_of(slice).into_iter().collect())
        .done();
    let of_pods = caches.clone();
    runtime
        .add(EndpointsController(caches.clone()), &caches.services, context.concurrency)
        .watches(&caches.pods, move |pod| of_pods.services_of(pod))
        .watches(&caches.endpoints, |endpoints| vec![endpoints.key.clone()])
        .done();
    Ok(())
}

/// The Service of a slice that this controller manages.
fn service_of(slice: &Entry<EndpointSlice>) -> Option<ObjectKey> {
    let labels = slice.object.metadata.labels.as_ref()?;
    let service =
        labels.get(SERVICE_NAME).filter(|_| labels.get(MANAGED_BY).is_some_and(|by| by == SLICE_MANAGER))?;
    Some(ObjectKey::new(slice.key.namespace()?, service))
}

/// Which pods a Service leads to. Endpoints of Services without a selector are managed by their users.
fn selector_of(service: &Service) -> Option<Selector> {
    let spec = service.spec.as_ref()?;
    let is_external = spec.type_.as_deref() == Some("ExternalName");
    let labels = spec.selector.as_ref().filter(|labels| !labels.is_empty() && !is_external)?;
    Some(Selector::from_labels(labels))
}

impl Caches {
    /// The Services that select a pod.
    fn services_of(&self, pod: &Entry<PodView>) -> Vec<ObjectKey> {
        let services = self.services.by_index(BY_NAMESPACE, pod.key.namespace().unwrap_or_default());
        let selects = |service: &Arc<Entry<Service>>| {
            selector_of(&service.object).is_some_and(|selector| selector.matches(&pod.object.metadata.labels))
        };
        services.iter().filter(|service| selects(service)).map(|service| service.key.clone()).collect()
    }

    /// The Services that lead to pods on a node that appeared, disappeared or changed its zone.
    fn services_on(&self, change: &quintet_controller::cache::Change<NodeView>) -> Vec<ObjectKey> {
        let zone = |node: &Option<Arc<Entry<NodeView>>>| {
            node.as_ref().map(|node| node.object.metadata.labels.get(ZONE).cloned())
        };
        if zone(&change.old) == zone(&change.new) {
            return Vec::new();
        }
        let Some(node) = change.states().next() else { return Vec::new() };
        let pods = self.pods.by_index(BY_NODE, node.key.name());
        pods.iter().flat_map(|pod| self.services_of(pod)).collect()
    }

    fn observe(&self, key: &ObjectKey) -> Option<Observed> {
        let service = self.services.get(key)?;
        let selector = selector_of(&service.object);
        let in_namespace = self.pods.by_index(BY_NAMESPACE, key.namespace().unwrap_or_default());
        let is_selected = |pod: &Arc<Entry<PodView>>| {
            selector.as_ref().is_some_and(|selector| selector.matches(&pod.object.metadata.labels))
        };
        let pods: Vec<_> = in_namespace.into_iter().filter(is_selected).collect();
        let zone = |node: &String| {
            let node = self.nodes.get(&ObjectKey::cluster(node))?;
            Some((node.key.name().to_owned(), node.object.metadata.labels.get(ZONE).cloned()))
        };
        Some(Observed {
            nodes: pods.iter().filter_map(|pod| zone(pod.object.spec.node_name.as_ref()?)).collect(),
            slices: self.slices.by_index(BY_SERVICE, key.as_str()),
            endpoints: self.endpoints.get(key),
            pods,
            service,
        })
    }
}

impl Controller for SliceController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "endpoint-slice-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        Ok(self.0.observe(key))
    }

    fn plan(observed: &Observed) -> Plan {
        slices::plan(observed)
    }
}

impl Controller for EndpointsController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "endpoint-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        Ok(self.0.observe(key))
    }

    fn plan(observed: &Observed) -> Plan {
        legacy::plan(observed)
    }
}
