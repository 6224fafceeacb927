//! Everything that a decision about one RayService needs.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use quintet_api::ray::v1::{RayCluster, RayService, RayServiceClusterStatus};
use quintet_controller::{ObjectKey, cache::Entry};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    BY_SERVICE, ServiceController, gateway, objects,
    plan::serve,
    upgrade::{self, Side},
};
use crate::{
    dashboard::{self, Address, Applications, HealthPoll, Observation, ProxyAddress, ServePoll},
    k8s_service, names,
    pod_view::PodView,
    settings::Settings,
    watches::{self, ServiceView},
};

/// Everything that a decision about a RayService needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// The RayService.
    pub service: Arc<Entry<RayService>>,
    /// All clusters that were made for it.
    pub clusters: Vec<Arc<Entry<RayCluster>>>,
    /// The cluster that serves.
    pub active: ObservedSide,
    /// The cluster that will.
    pub pending: ObservedSide,
    /// All Services that were made for it.
    pub services: Vec<Arc<Entry<ServiceView>>>,
    /// Its Service in front of the head.
    pub head_service: Option<Arc<Entry<ServiceView>>>,
    /// Its Service for requests.
    pub serve_service: Option<Arc<Entry<ServiceView>>>,
    /// Its Gateway.
    pub gateway: Option<Arc<Entry<Value>>>,
    /// Its HTTPRoute.
    pub route: Option<Arc<Entry<Value>>>,
    /// Pods that take requests.
    pub endpoints: usize,
    /// What is the same for all.
    pub settings: Arc<Settings>,
    /// The time.
    pub now: Timestamp,
}

/// One of the two clusters of a RayService.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedSide {
    /// The cluster.
    pub cluster: Option<Arc<Entry<RayCluster>>>,
    /// Its head.
    pub head: Option<Arc<Entry<PodView>>>,
    /// Its own Service for requests.
    pub serve_service: Option<Arc<Entry<ServiceView>>>,
    /// Where its dashboard is.
    pub address: Option<Address>,
    /// What Ray last said of its applications.
    pub applications: Option<Observation<Applications>>,
    /// Whether Serve's proxy on its head takes requests.
    pub healthy: Option<Observation<bool>>,
}

impl Observed {
    pub(super) fn object(&self) -> &RayService {
        &self.service.object
    }

    pub(super) fn side(&self, side: Side) -> &ObservedSide {
        match side {
            Side::Active => &self.active,
            Side::Pending => &self.pending,
        }
    }
}

impl ServiceController {
    fn side(&self, namespace: &str, status: Option<&RayServiceClusterStatus>) -> ObservedSide {
        let name = status.and_then(|side| side.ray_cluster_name.as_deref()).filter(|name| !name.is_empty());
        let Some(name) = name else { return ObservedSide::default() };
        let named = |name: &str| ObjectKey::new(namespace, name);
        let cluster = self.clusters.get(&named(name));
        let heads = self.pods.by_index(watches::BY_CLUSTER, named(name).as_str());
        let own = cluster.as_ref().map(|cluster| k8s_service::head_service_name(&cluster.object));
        let own = own.and_then(|name| self.services.get(&named(&name)));
        let host = own.and_then(|service| dashboard::host(&service, &self.settings.cluster_domain));
        ObservedSide {
            address: cluster.as_ref().zip(host).map(|(cluster, host)| Address::of(&cluster.object, &host)),
            head: heads.into_iter().find(|pod| pod.object.is_head() && !pod.deleting),
            serve_service: self.services.get(&named(&names::serve_service(name))),
            cluster,
            applications: None,
            healthy: None,
        }
    }

    /// Has Ray polled about both clusters, and takes over the last responses.
    fn poll(&self, root: &Entry<RayService>, sides: &mut [ObservedSide; 2]) {
        let conditions_are_on = self.settings.gates.status_conditions;
        let mut asked = Vec::new();
        let mut checked = Vec::new();
        let wants_heads = root.object.spec.exclude_head_pod_from_serve_svc != Some(true);
        for (index, side) in sides.iter().enumerate() {
            if let Some(at) = side.address.as_ref().filter(|_| serve::head_is_ready(side, conditions_are_on))
            {
                asked.push((index, ServePoll(at.clone())));
            }
            if let Some(head) = side.head.as_ref().filter(|head| wants_heads && !head.object.ip.is_empty()) {
                let port = head.object.ray_port(k8s_service::SERVE).unwrap_or(k8s_service::SERVE_PORT);
                let at = ProxyAddress {
                    namespace: head.key.namespace().unwrap_or_default().to_owned(),
                    pod: head.key.name().to_owned(),
                    ip: head.object.ip.to_string(),
                    port,
                };
                checked.push((index, HealthPoll(at)));
            }
        }
        let polls: Vec<_> = asked.iter().map(|(_, poll)| poll.clone()).collect();
        for ((index, _), heard) in asked.iter().zip(self.applications.watch(&root.key, &polls)) {
            sides[*index].applications = heard;
        }
        let polls: Vec<_> = checked.iter().map(|(_, poll)| poll.clone()).collect();
        for ((index, _), heard) in checked.iter().zip(self.health.watch(&root.key, &polls)) {
            sides[*index].healthy = heard;
        }
    }

    fn endpoints(&self, root: &Entry<RayService>) -> usize {
        let namespace = root.key.namespace().unwrap_or_default();
        let names = if upgrade::is_incremental(&root.object.spec, &self.settings) {
            let status = root.object.status.as_ref();
            let sides = status.map(|status| [&status.active_service_status, &status.pending_service_status]);
            let clusters =
                sides.into_iter().flatten().filter_map(|side| side.as_ref()?.ray_cluster_name.as_deref());
            clusters.map(names::serve_service).collect()
        } else {
            vec![objects::serve_service_name(&root.object)]
        };
        let slices = names
            .iter()
            .flat_map(|name| self.slices.by_index(BY_SERVICE, ObjectKey::new(namespace, name).as_str()));
        // A pod with two addresses is in two slices.
        let uids: BTreeSet<_> = slices.flat_map(|slice| slice.object.ready.clone()).collect();
        uids.len()
    }

    /// Reads the caches, and has the pollers poll what the RayService needs from Ray.
    pub(super) fn read(&self, key: &ObjectKey) -> Option<Observed> {
        let Some(service) = self.rayservices.get(key) else {
            self.applications.forget(key);
            self.health.forget(key);
            return None;
        };
        let namespace = key.namespace().unwrap_or_default();
        let named = |name: &str| ObjectKey::new(namespace, name);
        let status = service.object.status.as_ref();
        let active = status.and_then(|status| status.active_service_status.as_ref());
        let pending = status.and_then(|status| status.pending_service_status.as_ref());
        let mut sides = [self.side(namespace, active), self.side(namespace, pending)];
        self.poll(&service, &mut sides);
        let [active, pending] = sides;
        let origin = watches::origin(namespace, "RayService", key.name());
        let routing = self.routing.as_ref();
        Some(Observed {
            clusters: self.clusters.by_index(watches::BY_ORIGIN, &origin),
            services: self.services.by_index(watches::BY_ORIGIN, &origin),
            head_service: self.services.get(&named(&names::head_service(key.name()))),
            serve_service: self.services.get(&named(&objects::serve_service_name(&service.object))),
            gateway: routing.and_then(|both| both.gateways.get(&named(&gateway::gateway_name(key.name())))),
            route: routing.and_then(|both| both.routes.get(&named(&gateway::route_name(key.name())))),
            endpoints: self.endpoints(&service),
            active,
            pending,
            settings: Arc::clone(&self.settings),
            now: self.clock.now(),
            service,
        })
    }
}
