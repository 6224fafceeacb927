//! RayCluster: one head, groups of workers, and what leads to them.

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

use base64::Engine as _;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, ServiceAccount};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use quintet_api::ray::v1::RayCluster;
use quintet_api::ray::{events, reasons};
use quintet_controller::{
    Action, ApiKind, Controller, Error, Event, NoCall, ObjectKey, OnError, Plan, Runtime, StatusPatch,
    cache::{Cache, Entry, ObjectMetadata, Selector, WatchSpec},
    clock::Clock,
};

pub(crate) use objects::annotations_for_others;
pub use observe::{ClaimView, Observed};
pub(crate) use plan::progress;
pub(crate) use status::{is_ready, sum_of_templates};

use crate::{
    Context,
    k8s_service::head_service_name,
    labels,
    mtls::Pki,
    names, pod,
    pod_view::PodView,
    schedulers::{self, native},
    settings::Settings,
    watches::{self, BY_CLUSTER, JobView, ServiceView},
};
use observe::{NewToken, Present};
use pod_names::Memory;
use status::Outcome;

/// Index of Routes: by the RayCluster that controls them.
const BY_OWNER: &str = "owner";

/// The controller of RayClusters.
pub struct ClusterController {
    settings: Arc<Settings>,
    clock: Clock,
    caches: Caches,
    memory: Arc<Memory>,
}

/// What it looks at.
struct Caches {
    clusters: Cache<RayCluster>,
    pods: Cache<PodView>,
    services: Cache<ServiceView>,
    jobs: Cache<JobView>,
    ingresses: Cache<ObjectMetadata>,
    service_accounts: Cache<ObjectMetadata>,
    roles: Cache<ObjectMetadata>,
    role_bindings: Cache<ObjectMetadata>,
    secrets: Cache<ObjectMetadata>,
    /// Only where routes are served.
    routes: Option<Cache<ObjectMetadata>>,
    /// Only where claims are made.
    claims: Option<Cache<ClaimView>>,
    /// Only where certificates are made.
    pki: Option<Pki>,
    /// Only where a batch scheduler wants them.
    pod_groups: Option<Cache<ObjectMetadata>>,
    /// Only where Kubernetes' own scheduler starts gangs.
    gangs: Option<native::Watched>,
}

impl Caches {
    fn new(caches: &quintet_controller::cache::Caches, settings: &Settings) -> Result<Self, Error> {
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

impl ClusterController {
    fn look(&self, key: &ObjectKey, cluster: Arc<Entry<RayCluster>>) -> Observed {
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
        Action::Patch { .. } | Action::Delete { .. } | Action::Call(_) => None,
    };
    Ok(plan.steps.into_iter().filter_map(object).collect())
}

/// 32 random bytes, as text.
fn random_token() -> Option<String> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(base64::engine::general_purpose::STANDARD.encode(bytes))
}

impl Controller for ClusterController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "raycluster-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        Ok(self.caches.clusters.get(key).map(|cluster| self.look(key, cluster)))
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
    let Some((kind, target)) = action.kind().zip(action.target()) else {
        return OnError::default();
    };
    let verb = match action {
        Action::Create { .. } => "Create",
        Action::Delete { .. } => "Delete",
        Action::Apply { .. } | Action::Patch { .. } | Action::Call(_) => "Update",
    };
    let is_head = match action {
        Action::Create { object, .. } => object["metadata"]["labels"][labels::NODE_TYPE] == labels::HEAD,
        _ => observed.heads().any(|head| head.key == target),
    };
    let is_suspending = plan::suspension(observed) == plan::Suspension::DeletesPods;
    let (noun, phrase, marker) = match (&*kind.kind, verb) {
        ("Pod", "Create") if is_head => ("HeadPod", "head Pod", Some(reasons::FAILED_CREATE_HEAD_POD)),
        ("Pod", "Create") => ("WorkerPod", "worker Pod", Some(reasons::FAILED_CREATE_WORKER_POD)),
        ("Pod", "Delete") if is_suspending => {
            ("PodCollection", "Pods", Some(reasons::FAILED_DELETE_ALL_PODS))
        }
        ("Pod", "Delete") if is_head => ("HeadPod", "head Pod", Some(reasons::FAILED_DELETE_HEAD_POD)),
        ("Pod", "Delete") => ("WorkerPod", "worker Pod", Some(reasons::FAILED_DELETE_WORKER_POD)),
        ("PersistentVolumeClaim", _) => ("PVC", "PVC", None),
        ("Job", _) => ("RedisCleanupJob", "Redis cleanup Job", None),
        (kind, _) => (kind, kind, None),
    };
    let note = format!("Failed to {} {phrase} {target}, {error}", verb.to_lowercase());
    let event = Event::warning(&events::failed_to(verb, noun), verb, note);
    let outcome = match marker {
        Some(marker) => Outcome::PodsFailed { marker, cause: error.to_string() },
        None => Outcome::OtherFailed,
    };
    let status = status::compute(observed, &outcome)
        .and_then(|status| StatusPatch::between(&observed.cluster, &observed.status(), &status));
    OnError { status, events: vec![event] }
}
