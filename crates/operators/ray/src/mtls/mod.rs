//! TLS inside clusters: an authority per cluster, and certificates for its head and its workers, issued by
//! cert-manager.

mod certificates;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use quintet_api::ray::events;
use quintet_api::ray::v1::RayCluster;
use quintet_controller::{
    Action, ApiKind, Controller, Error, Event, Next, NoCall, ObjectKey, OnError, Plan, Runtime,
    api::FIELD_MANAGER,
    cache::{Cache, Caches, Entry, ObjectMetadata, Selector, WatchSpec},
    clock::Clock,
    controller::Setup,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(crate) use certificates::CertificateView;

use crate::{
    Context, labels,
    pod::{Role, tls},
    pod_view::{Phase, PodView},
    settings::Settings,
    watches::{self, BY_CLUSTER},
};
use certificates::{Names, SecretView};

/// A certificate that ends sooner is worth a warning: Ray does not read it anew.
const SOON: SignedDuration = SignedDuration::from_hours(24);
/// How often certificates are looked at although nothing changed.
const LOOK: Duration = Duration::from_mins(1);

/// What certificates are made of and from.
#[derive(Clone)]
pub(crate) struct Pki {
    issuers: Cache<ObjectMetadata>,
    certificates: Cache<CertificateView>,
    secrets: Cache<SecretView>,
}

impl Pki {
    /// Watches certificates, if clusters can have them.
    pub(crate) fn watch(caches: &Caches, settings: &Settings) -> Result<Option<Self>, Error> {
        if !settings.gates.mtls || !settings.platform.cert_manager {
            return Ok(None);
        }
        let ours = || Selector::all().has_label(labels::CLUSTER);
        let certificates =
            WatchSpec::projected(certificates::certificate_kind(), CertificateView::project).select(ours());
        // cert-manager marks what it keeps; of other secrets nothing is seen.
        let kept = Selector::all().has_label("controller.cert-manager.io/fao");
        let secrets = WatchSpec::projected(ApiKind::of::<Secret>(), SecretView::project).select(kept);
        Ok(Some(Self {
            issuers: caches.watch(WatchSpec::metadata(certificates::issuer_kind()).select(ours()))?,
            certificates: caches.watch(certificates)?,
            secrets: caches.watch(secrets)?,
        }))
    }

    /// Lets a controller of RayClusters look whenever a certificate changes.
    pub(crate) fn wake(&self, setup: Setup) -> Setup {
        setup
            .watches(&self.certificates, |one| named(&one.key, Some(&one.object.cluster)))
            .watches(&self.secrets, |one| named(&one.key, one.object.cluster.as_deref()))
    }

    /// Whether pods of a cluster can be made; the error says what is missing.
    pub(crate) fn readiness(&self, cluster: &ObjectKey) -> Result<(), String> {
        let namespace = cluster.namespace().unwrap_or_default();
        for role in [Role::Head, Role::Worker] {
            let name = certificates::leaf_name(cluster.name(), role);
            let certificate = self.certificates.get(&ObjectKey::new(namespace, &name));
            if !certificate.is_some_and(|certificate| certificate.object.is_ready()) {
                return Err(format!("Certificate {namespace}/{name} is not ready"));
            }
            let name = tls::secret_name(cluster.name(), role);
            let secret = self.secrets.get(&ObjectKey::new(namespace, &name));
            if !secret.is_some_and(|secret| secret.object.is_complete()) {
                return Err(format!("Secret {namespace}/{name} has no certificate yet"));
            }
        }
        Ok(())
    }
}

struct MtlsController {
    clusters: Cache<RayCluster>,
    pods: Cache<PodView>,
    pki: Pki,
    settings: Arc<Settings>,
    clock: Clock,
}

/// Everything that a decision about the certificates of a cluster needs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Observed {
    cluster: Arc<Entry<RayCluster>>,
    names: Names,
    addresses: [BTreeSet<String>; 2],
    issuers: BTreeSet<String>,
    certificates: Vec<Arc<Entry<CertificateView>>>,
    secrets: Vec<Arc<Entry<SecretView>>>,
    readiness: Result<(), String>,
    now: Timestamp,
}

/// Adds the controller, if clusters can have certificates.
pub fn add(runtime: &Runtime, context: &Context) -> Result<(), Error> {
    let Some(pki) = Pki::watch(runtime.caches(), &context.settings)? else {
        return Ok(());
    };
    let clusters = runtime.caches().watch(watches::clusters())?;
    let pods = runtime.caches().watch(watches::pods())?;
    let controller = MtlsController {
        clusters: clusters.clone(),
        pods: pods.clone(),
        pki: pki.clone(),
        settings: Arc::clone(&context.settings),
        clock: context.clock.clone(),
    };
    let setup = runtime
        .add(controller, &clusters, context.concurrency)
        .watches(&pods, |pod| watches::cluster_of(pod, &pod.object.labels).into_iter().collect())
        .watches(&pki.issuers, |issuer| {
            named(&issuer.key, issuer.object.labels.get(labels::CLUSTER).map(|name| &**name))
        });
    pki.wake(setup).done();
    Ok(())
}

/// The cluster of that name, where the object is.
fn named(object: &ObjectKey, cluster: Option<&str>) -> Vec<ObjectKey> {
    let namespace = object.namespace().unwrap_or_default();
    cluster.map(|name| ObjectKey::new(namespace, name)).into_iter().collect()
}

impl MtlsController {
    fn look(&self, key: &ObjectKey, cluster: Arc<Entry<RayCluster>>) -> Observed {
        let namespace = key.namespace().unwrap_or_default();
        let names = Names::new(&cluster.object, &self.settings.cluster_domain);
        let pods = self.pods.by_index(BY_CLUSTER, key.as_str());
        let addresses = |is_counted: fn(&PodView) -> bool| {
            let is_live = |pod: &&Arc<Entry<PodView>>| {
                let view = &pod.object;
                let is_over = matches!(view.phase, Phase::Succeeded | Phase::Failed);
                is_counted(view) && !pod.deleting && !is_over && !view.ip.is_empty()
            };
            let mut all: BTreeSet<_> =
                pods.iter().filter(is_live).map(|pod| pod.object.ip.to_string()).collect();
            all.insert("127.0.0.1".to_owned());
            all
        };
        let get = |name: &String| ObjectKey::new(namespace, name);
        Observed {
            addresses: [addresses(PodView::is_head), addresses(PodView::is_worker)],
            issuers: names
                .issuers()
                .into_iter()
                .filter(|name| self.pki.issuers.get(&get(name)).is_some())
                .collect(),
            certificates: names
                .certificates()
                .iter()
                .filter_map(|name| self.pki.certificates.get(&get(name)))
                .collect(),
            secrets: names.secrets().iter().filter_map(|name| self.pki.secrets.get(&get(name))).collect(),
            readiness: self.pki.readiness(key),
            now: self.clock.now(),
            names,
            cluster,
        }
    }
}

impl Controller for MtlsController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "raycluster-mtls-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        Ok(self.clusters.get(key).map(|cluster| self.look(key, cluster)))
    }

    fn plan(observed: &Observed) -> Plan {
        plan(observed)
    }

    fn on_error(_: &Observed, action: &Action, error: &Error) -> OnError {
        let object = action.target().map(|key| key.to_string()).unwrap_or_default();
        let kind = action.kind().map(|kind| kind.kind.to_string()).unwrap_or_default();
        let note = format!("Failed to reconcile mTLS {kind} {object}: {}", error.cause());
        OnError {
            events: vec![Event::warning(events::MTLS_FAILED_TO_RECONCILE, "Reconcile", note)],
            ..OnError::default()
        }
    }
}

fn plan(observed: &Observed) -> Plan {
    let cluster = &observed.cluster.object;
    let is_elsewhere = labels::is_managed_elsewhere(cluster.spec.managed_by.as_deref());
    if observed.cluster.deleting || is_elsewhere || !tls::is_enabled(&cluster.spec) {
        return Plan::nothing();
    }
    let mut plan = Plan { next: Next::After(LOOK), ..Plan::default() };
    let [self_signed, authority] = observed.names.issuers();
    let find = |name: &str| observed.certificates.iter().find(|live| live.key.name() == name);
    if !observed.issuers.contains(&self_signed) {
        plan.steps
            .push(Action::create(certificates::issuer_kind(), &observed.names.self_signed(cluster)).into());
    }
    if find(&observed.names.certificates()[0]).is_none() {
        plan.steps.push(
            Action::create(certificates::certificate_kind(), &observed.names.authority(cluster)).into(),
        );
    }
    if !observed.issuers.contains(&authority) {
        plan.steps.push(Action::create(certificates::issuer_kind(), &observed.names.issuer(cluster)).into());
    }
    for (role, addresses) in [Role::Head, Role::Worker].into_iter().zip(&observed.addresses) {
        let leaf = observed.names.leaf(cluster, role, addresses);
        let live = find(&certificates::leaf_name(observed.cluster.key.name(), role));
        let hosts = observed.names.hosts(role);
        match live {
            None => plan.steps.push(Action::create(certificates::certificate_kind(), &leaf).into()),
            Some(live) if live.object.names != hosts || live.object.addresses != *addresses => {
                let what = if role == Role::Head { "head" } else { "worker" };
                let note = format!("Updated {what} certificate SANs (IPs: [{}])", join(addresses));
                let apply = Action::apply(certificates::certificate_kind(), FIELD_MANAGER, &leaf);
                plan.steps.push(apply.with_event(Event::normal(
                    events::MTLS_CERTIFICATES_UPDATED,
                    "Update",
                    note,
                )));
            }
            Some(_) => {}
        }
    }
    own_secrets(observed, &mut plan);
    tell(observed, &mut plan);
    plan
}

fn join(addresses: &BTreeSet<String>) -> String {
    addresses.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// Secrets go with their certificates, and so with the cluster.
fn own_secrets(observed: &Observed, plan: &mut Plan) {
    for certificate in &observed.certificates {
        let secret = observed.secrets.iter().find(|secret| secret.key.name() == &*certificate.object.secret);
        let Some(secret) = secret.filter(|secret| !secret.object.owners.contains(certificate.uid.as_str()))
        else {
            continue;
        };
        let owner = json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "name": certificate.key.name(), "uid": certificate.uid,
        });
        let patch = json!({"metadata": {
            "ownerReferences": [owner], "resourceVersion": secret.version.to_string(),
        }});
        plan.steps.push(Action::merge(ApiKind::of::<Secret>(), secret.key.clone(), patch).into());
    }
}

fn tell(observed: &Observed, plan: &mut Plan) {
    let latest = observed.certificates.iter().filter_map(|one| one.object.ready_since).max();
    let is_news = latest.is_some_and(|at| observed.now.duration_since(at) < SignedDuration::from_mins(1));
    if let Err(missing) = &observed.readiness {
        let note = "Waiting for cert-manager to issue mTLS certificates";
        plan.awaits.push(missing.clone());
        plan.events.push(Event::normal(events::MTLS_CERTS_NOT_READY, "Reconcile", note));
    } else if is_news {
        let note = "mTLS PKI is ready: CA, head, and worker certificates issued";
        plan.events.push(Event::normal(events::MTLS_PKI_READY, "Reconcile", note));
    }
    for certificate in &observed.certificates {
        let left = certificate.object.not_after.map(|end| end.duration_since(observed.now));
        if let Some(left) = left.filter(|left| *left < SOON) {
            let note = format!(
                "TLS certificate {} expires in {:.1} hours; Ray does not hot-reload certs so a pod restart will be needed \
                 after renewal",
                certificate.key.name(),
                left.as_secs_f64().max(0.0) / 3600.0
            );
            plan.events.push(Event::warning(events::MTLS_CERTIFICATE_EXPIRING_SOON, "Reconcile", note));
        }
    }
}
