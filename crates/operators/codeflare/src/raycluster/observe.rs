//! Everything a decision about the hardening of a RayCluster needs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use quintet_api::ray::v1::RayCluster;
use quintet_controller::cache::{Cache, Caches, Entry, ObjectMetadata, Selector, WatchSpec};
use quintet_controller::{ApiKind, Error, ObjectKey};
use serde::{Deserialize, Serialize};

use super::domain::Domain;
use super::names::{CLUSTER_NAME, CLUSTER_NAMESPACE, Names};
use super::objects::route_kind;
use crate::settings::Hardening;

/// Index: by RayCluster.
const BY_CLUSTER: &str = "hardened-cluster";

/// What was observed of a RayCluster and of what belongs to it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    pub(super) cluster: Arc<Entry<RayCluster>>,
    pub(super) hardening: Arc<Hardening>,
    pub(super) domain: String,
    pub(super) ca_secret: Option<Arc<Entry<ObjectMetadata>>>,
    pub(super) cookie_secret: Option<Arc<Entry<ObjectMetadata>>>,
    /// ClusterRoleBindings that were made for it, also under older names.
    pub(super) role_bindings: Vec<Arc<Entry<ObjectMetadata>>>,
    pub(super) service_account: Option<Arc<Entry<PullSecrets>>>,
    pub(super) head_pods: Vec<Arc<Entry<PullSecrets>>>,
    /// Namespaces of the operator of Ray.
    pub(super) operator_namespaces: Vec<String>,
}

/// Names of image pull secrets, of a ServiceAccount or a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PullSecrets {
    pub(super) cluster: Box<str>,
    pub(super) names: Vec<Box<str>>,
}

impl PullSecrets {
    fn project(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Raw {
            metadata: Metadata,
            #[serde(default)]
            image_pull_secrets: Vec<Reference>,
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default)]
            labels: std::collections::BTreeMap<String, String>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            image_pull_secrets: Vec<Reference>,
        }
        #[derive(Deserialize)]
        struct Reference {
            #[serde(default)]
            name: Box<str>,
        }
        let Raw { metadata, image_pull_secrets, spec } = serde_json::from_str(text)?;
        let label = |name: &str| metadata.labels.get(name).map(|value| value.as_str().into());
        let names = image_pull_secrets.into_iter().chain(spec.image_pull_secrets);
        Ok(Self {
            cluster: label("ray.io/cluster").or_else(|| label(CLUSTER_NAME)).unwrap_or_default(),
            names: names.map(|reference| reference.name).collect(),
        })
    }
}

/// What is kept of the platform's initialization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Initialization {
    spec: InitializationSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InitializationSpec {
    applications_namespace: String,
}

const INITIALIZATION: &str = "default-dsci";

fn initialization_kind() -> ApiKind {
    ApiKind::cluster_scoped(
        "dscinitialization.opendatahub.io",
        "v1",
        "DSCInitialization",
        "dscinitializations",
    )
}

/// The caches of the controller. Those that the settings do not need are absent.
pub(super) struct HardeningCaches {
    pub(super) clusters: Cache<RayCluster>,
    pub(super) secrets: Option<Cache<ObjectMetadata>>,
    pub(super) role_bindings: Option<Cache<ObjectMetadata>>,
    pub(super) service_accounts: Option<Cache<PullSecrets>>,
    pub(super) head_pods: Option<Cache<PullSecrets>>,
    /// Kinds of which only changes count.
    pub(super) others: Vec<Cache<ObjectMetadata>>,
    pub(super) operators: Cache<ObjectMetadata>,
    pub(super) initialization: Option<Cache<Initialization>>,
    pub(super) domain: Domain,
}

impl HardeningCaches {
    pub(super) fn new(caches: &Caches, hardening: &Hardening) -> Result<Self, Error> {
        let ours = || Selector::all().has_label(CLUSTER_NAME);
        let part = |kind: ApiKind| caches.watch(WatchSpec::metadata(kind).select(ours()));
        let has_oauth = hardening.makes_oauth_objects();
        let has_secrets = hardening.has_mtls() || has_oauth;
        let mut others = vec![part(ApiKind::of::<NetworkPolicy>())?];
        if hardening.makes_ingresses() {
            others.push(part(ApiKind::of::<Ingress>())?);
        }
        if has_oauth {
            others.push(part(ApiKind::of::<Service>())?);
            others.push(part(route_kind())?);
        }
        let role_bindings = WatchSpec::metadata(ApiKind::of::<ClusterRoleBinding>())
            .select(ours())
            .index(BY_CLUSTER, |entry| cluster_of_binding(entry).iter().map(ToString::to_string).collect());
        let accounts =
            WatchSpec::projected(ApiKind::of::<ServiceAccount>(), PullSecrets::project).select(ours());
        let heads = WatchSpec::projected(ApiKind::of::<Pod>(), PullSecrets::project)
            .select(Selector::all().label("ray.io/node-type", "head").has_label("ray.io/cluster"))
            .index(BY_CLUSTER, |pod| cluster_of_pods(pod).iter().map(ToString::to_string).collect());
        let operators = WatchSpec::metadata(ApiKind::of::<Pod>())
            .select(Selector::all().label("app.kubernetes.io/component", "kuberay-operator"));
        let initialization = WatchSpec::projected(initialization_kind(), |text| serde_json::from_str(text))
            .select(Selector::all().named(INITIALIZATION))
            .optional();
        Ok(Self {
            clusters: caches.watch(WatchSpec::typed())?,
            secrets: has_secrets.then(|| part(ApiKind::of::<Secret>())).transpose()?,
            role_bindings: has_oauth.then(|| caches.watch(role_bindings)).transpose()?,
            service_accounts: has_oauth.then(|| caches.watch(accounts)).transpose()?,
            head_pods: has_oauth.then(|| caches.watch(heads)).transpose()?,
            others,
            operators: caches.watch(operators)?,
            initialization: hardening.is_openshift.then(|| caches.watch(initialization)).transpose()?,
            domain: Domain::watch(caches, hardening)?,
        })
    }

    pub(super) fn read(&self, key: &ObjectKey, hardening: &Arc<Hardening>) -> Option<Observed> {
        let cluster = self.clusters.get(key)?;
        let names = Names::of(&cluster.object);
        let at = |name: String| ObjectKey::new(names.namespace, &name);
        let secret = |name: String| self.secrets.as_ref().and_then(|secrets| secrets.get(&at(name)));
        let accounts = self.service_accounts.as_ref();
        Some(Observed {
            hardening: Arc::clone(hardening),
            domain: self.domain.get(),
            ca_secret: secret(names.ca_secret()),
            cookie_secret: secret(names.cookie_secret()),
            role_bindings: self
                .role_bindings
                .as_ref()
                .map(|bindings| bindings.by_index(BY_CLUSTER, key.as_str()))
                .unwrap_or_default(),
            service_account: accounts.and_then(|accounts| accounts.get(&at(names.oauth_service_account()))),
            head_pods: self
                .head_pods
                .as_ref()
                .map(|pods| pods.by_index(BY_CLUSTER, key.as_str()))
                .unwrap_or_default(),
            operator_namespaces: self.operator_namespaces(),
            cluster,
        })
    }

    /// Where the operator of Ray runs.
    fn operator_namespaces(&self) -> Vec<String> {
        let Some(initialization) = &self.initialization else {
            let pods = self.operators.all();
            let namespace = pods.first().and_then(|pod| pod.key.namespace()).unwrap_or("ray-system");
            return vec![namespace.to_owned()];
        };
        // Without the platform's kind, its usual namespaces; upstream makes no policies then.
        match initialization.get(&ObjectKey::cluster(INITIALIZATION)) {
            Some(found) => vec![found.object.spec.applications_namespace.clone()],
            None => vec!["opendatahub".to_owned(), "redhat-ods-applications".to_owned()],
        }
    }
}

/// The RayCluster of a ClusterRoleBinding, from its labels.
pub(super) fn cluster_of_binding(entry: &Entry<ObjectMetadata>) -> Option<ObjectKey> {
    let label = |name: &str| entry.object.labels.get(name);
    Some(ObjectKey::new(label(CLUSTER_NAMESPACE)?, label(CLUSTER_NAME)?))
}

/// The RayCluster of a pod or ServiceAccount, from its labels.
pub(super) fn cluster_of_pods(entry: &Entry<PullSecrets>) -> Option<ObjectKey> {
    Some(ObjectKey::new(entry.key.namespace()?, &entry.object.cluster))
}

/// The RayClusters of an object: that of its label, and its owner.
pub(super) fn clusters_of(entry: &Entry<ObjectMetadata>) -> Vec<ObjectKey> {
    let namespace = entry.key.namespace().unwrap_or_default();
    let owner =
        entry.object.controller().filter(|owner| &*owner.kind == "RayCluster").map(|owner| &*owner.name);
    let label = entry.object.labels.get(CLUSTER_NAME).map(|name| &**name);
    owner.into_iter().chain(label).map(|name| ObjectKey::new(namespace, name)).collect()
}
