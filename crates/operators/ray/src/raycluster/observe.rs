//! Everything a decision about one RayCluster needs.

use std::{collections::BTreeSet, sync::Arc};

use base64::Engine as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, ServiceAccount};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use quintet_api::ray::v1::{RayCluster, RayClusterStatus, WorkerGroupSpec};
use quintet_controller::{
    ApiKind, Error, ObjectKey,
    cache::{Cache, Entry, ObjectMetadata, Selector, WatchSpec},
    plan::REDACTED,
};
use serde::{Deserialize, Serialize, Serializer};

use super::{ClusterController, objects, owners_of, pod_names::PodNames};
use crate::{
    k8s_service::head_service_name,
    labels,
    mtls::Pki,
    names, pod,
    pod_view::PodView,
    schedulers::{self, native},
    settings::Settings,
    watches::{self, BY_CLUSTER, JobView, ServiceView},
};

/// A pod as the caches show it.
pub(super) type Pod = Arc<Entry<PodView>>;

/// What was observed of a cluster and of what belongs to it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    pub(super) cluster: Arc<Entry<RayCluster>>,
    pub(super) settings: Arc<Settings>,
    pub(super) now: Timestamp,
    pub(super) pods: Vec<Pod>,
    pub(super) services: Vec<Arc<Entry<ServiceView>>>,
    /// Jobs that clear Redis.
    pub(super) cleanup_jobs: Vec<Arc<Entry<JobView>>>,
    /// The Ingress of the name ours would have, whoever made it.
    pub(super) ingress: Option<Arc<Entry<ObjectMetadata>>>,
    /// Which of the objects that are made once are there.
    pub(super) present: Present,
    /// The claim that the head's state is kept on.
    pub(super) claim: Option<Arc<Entry<ClaimView>>>,
    /// Whether the certificates of a cluster with TLS can be used; the error says what is missing.
    pub(super) certificates: Result<(), String>,
    /// A token to store, if the cluster needs one and has none.
    pub(super) new_token: Option<NewToken>,
    pub(super) names: PodNames,
    /// What Kubernetes' own scheduler knows of the cluster as a gang.
    pub(super) gang: Option<native::Observed>,
}

/// Objects that are made once and left alone.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is about an object of its own")]
pub(super) struct Present {
    pub(super) service_account: bool,
    pub(super) role: bool,
    pub(super) role_binding: bool,
    pub(super) route: bool,
}

/// A token that is about to be stored in a Secret. It is redacted when the observed state is serialized.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct NewToken(pub(super) String);

impl Serialize for NewToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

/// What is kept of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimView {
    /// Its owners.
    pub owners: Vec<OwnerReference>,
    /// What it asks for.
    pub size: Option<String>,
    /// The class it asks for.
    pub storage_class: Option<String>,
    /// How it may be mounted.
    pub access_modes: BTreeSet<String>,
}

impl ClaimView {
    pub(super) fn project(text: &str) -> Result<Self, serde_json::Error> {
        let claim: PersistentVolumeClaim = serde_json::from_str(text)?;
        let spec = claim.spec.unwrap_or_default();
        let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
        Ok(Self {
            owners: claim.metadata.owner_references.unwrap_or_default(),
            size: requests.get("storage").map(|size| size.0.clone()),
            storage_class: spec.storage_class_name,
            access_modes: spec.access_modes.into_iter().flatten().collect(),
        })
    }
}

impl Observed {
    pub(super) fn object(&self) -> &RayCluster {
        &self.cluster.object
    }

    pub(super) fn key(&self) -> &ObjectKey {
        &self.cluster.key
    }

    pub(super) fn name(&self) -> &str {
        self.cluster.key.name()
    }

    pub(super) fn namespace(&self) -> &str {
        self.cluster.key.namespace().unwrap_or_default()
    }

    pub(super) fn status(&self) -> RayClusterStatus {
        self.object().status.clone().unwrap_or_default()
    }

    pub(super) fn groups(&self) -> &[WorkerGroupSpec] {
        self.object().spec.worker_group_specs.as_deref().unwrap_or_default()
    }

    pub(super) fn heads(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| pod.object.is_head())
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| pod.object.is_worker())
    }

    /// The pods of a group. A head is never a worker, whatever a group is called.
    pub(super) fn workers_of<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.workers().filter(move |pod| pod.object.label(labels::GROUP) == group)
    }

    /// Services in front of the head.
    pub(super) fn head_services(&self) -> impl Iterator<Item = &Arc<Entry<ServiceView>>> {
        let is_head = |service: &&Arc<Entry<ServiceView>>| {
            let label = |name: &str| service.object.labels.get(name).map(String::as_str);
            label(labels::NODE_TYPE) == Some(labels::HEAD)
        };
        self.services.iter().filter(is_head)
    }

    pub(super) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.object().metadata.finalizers.iter().flatten().any(|one| one == finalizer)
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.object().metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }
}

/// Pods that a group should have: replicas within their bounds, times hosts; none while it is suspended.
pub(super) fn wanted_pods(group: &WorkerGroupSpec) -> i32 {
    if group.suspend == Some(true) {
        return 0;
    }
    let min = group.min_replicas.unwrap_or_default();
    let max = group.max_replicas.unwrap_or(i32::MAX);
    let replicas = group.replicas.unwrap_or(min).max(min).min(max);
    replicas.saturating_mul(hosts(group)).max(0)
}

/// Pods of one replica.
pub(super) fn hosts(group: &WorkerGroupSpec) -> i32 {
    group.num_of_hosts.unwrap_or(1)
}

/// Index of Routes: by the RayCluster that controls them.
const BY_OWNER: &str = "owner";

/// What the controller of RayClusters watches.
pub(super) struct Caches {
    pub(super) clusters: Cache<RayCluster>,
    pub(super) pods: Cache<PodView>,
    pub(super) services: Cache<ServiceView>,
    pub(super) jobs: Cache<JobView>,
    pub(super) ingresses: Cache<ObjectMetadata>,
    pub(super) service_accounts: Cache<ObjectMetadata>,
    pub(super) roles: Cache<ObjectMetadata>,
    pub(super) role_bindings: Cache<ObjectMetadata>,
    pub(super) secrets: Cache<ObjectMetadata>,
    /// Only where routes are served.
    pub(super) routes: Option<Cache<ObjectMetadata>>,
    /// Only where claims are made.
    pub(super) claims: Option<Cache<ClaimView>>,
    /// Only where certificates are made.
    pub(super) pki: Option<Pki>,
    /// Only where a batch scheduler wants them.
    pub(super) pod_groups: Option<Cache<ObjectMetadata>>,
    /// Only where Kubernetes' own scheduler starts gangs.
    pub(super) gangs: Option<native::Watched>,
}

impl Caches {
    pub(super) fn new(
        caches: &quintet_controller::cache::Caches,
        settings: &Settings,
    ) -> Result<Self, Error> {
        let ours = || Selector::all().has_label(labels::CLUSTER);
        let labelled = |kind| caches.watch(WatchSpec::metadata(kind).select(ours()));
        let claims = WatchSpec::projected(ApiKind::of::<PersistentVolumeClaim>(), ClaimView::project);
        let keeps_claims = settings.gates.embedded_storage;
        let routes = WatchSpec::metadata(objects::route_kind())
            .select(ours())
            .index(BY_OWNER, |route| owners_of(route).iter().map(ToString::to_string).collect());
        Ok(Self {
            clusters: caches.watch(watches::clusters())?,
            pods: caches.watch(watches::pods())?,
            services: caches.watch(watches::services())?,
            jobs: caches.watch(watches::jobs())?,
            ingresses: caches.watch(WatchSpec::metadata(ApiKind::of::<Ingress>()))?,
            service_accounts: caches.watch(WatchSpec::metadata(ApiKind::of::<ServiceAccount>()))?,
            roles: labelled(ApiKind::of::<Role>())?,
            role_bindings: labelled(ApiKind::of::<RoleBinding>())?,
            secrets: labelled(ApiKind::of::<Secret>())?,
            routes: settings.platform.routes.then(|| caches.watch(routes)).transpose()?,
            claims: keeps_claims.then(|| caches.watch(claims)).transpose()?,
            pki: Pki::watch(caches, settings)?,
            pod_groups: schedulers::pod_group_kind(settings)
                .map(|kind| caches.watch(WatchSpec::metadata(kind).optional()))
                .transpose()?,
            gangs: native::Watched::watch(caches, settings)?,
        })
    }
}

impl ClusterController {
    /// Reads the caches.
    pub(super) fn read(&self, key: &ObjectKey, cluster: Arc<Entry<RayCluster>>) -> Observed {
        let caches = &self.caches;
        let namespace = key.namespace().unwrap_or_default();
        let in_namespace = |name: &str| ObjectKey::new(namespace, name);
        let object = &cluster.object;
        let mut services = caches.services.by_index(BY_CLUSTER, key.as_str());
        // A RayJob or RayService of the same name has a Service of the same name: only what is ours counts.
        let is_ours = |service: &Arc<Entry<ServiceView>>| {
            service.object.controller.as_deref() == Some(cluster.uid.as_str())
        };
        let by_name = [
            names::headless_service(key.name()),
            names::serve_service(key.name()),
            head_service_name(object),
        ];
        for service in by_name.iter().filter_map(|name| caches.services.get(&in_namespace(name))) {
            if is_ours(&service) && services.iter().all(|one| one.key != service.key) {
                services.push(service);
            }
        }
        let jobs = caches.jobs.by_index(BY_CLUSTER, key.as_str());
        let is_cleanup = |job: &Arc<Entry<JobView>>| {
            job.object.labels.get(labels::NODE_TYPE).is_some_and(|kind| kind == labels::REDIS_CLEANUP)
        };
        let is_there = |cache: &Cache<ObjectMetadata>, name: &str| cache.get(&in_namespace(name)).is_some();
        let account = pod::service_account(object);
        let own_name = names::object_name(key.name());
        let present = Present {
            service_account: is_there(&caches.service_accounts, account)
                || is_there(&caches.service_accounts, &names::object_name(account)),
            role: is_there(&caches.roles, &own_name),
            role_binding: is_there(&caches.role_bindings, &own_name),
            route: caches
                .routes
                .as_ref()
                .is_some_and(|routes| !routes.by_index(BY_OWNER, key.as_str()).is_empty()),
        };
        let needs_token = objects::makes_token(object) && !is_there(&caches.secrets, &own_name);
        Observed {
            settings: Arc::clone(&self.settings),
            now: self.clock.now(),
            pods: caches.pods.by_index(BY_CLUSTER, key.as_str()),
            services,
            cleanup_jobs: jobs.into_iter().filter(is_cleanup).collect(),
            ingress: caches.ingresses.get(&in_namespace(&objects::ingress_name(key.name()))),
            present,
            claim: caches
                .claims
                .as_ref()
                .and_then(|claims| claims.get(&in_namespace(&pod::claim_name(object)))),
            certificates: caches.pki.as_ref().map_or(Ok(()), |pki| pki.readiness(key)),
            new_token: needs_token.then(random_token).flatten().map(NewToken),
            names: self.memory.names(&cluster.uid),
            gang: caches.gangs.as_ref().map(|gangs| gangs.look(key)),
            cluster,
        }
    }
}

/// 32 random bytes, as text.
fn random_token() -> Option<String> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(base64::engine::general_purpose::STANDARD.encode(bytes))
}
