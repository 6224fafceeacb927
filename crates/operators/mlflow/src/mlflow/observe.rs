//! Everything a decision about the MLflow needs.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use quintet_api::mlflow::{MLflow, MLflowStatus, TraceArchival};
use quintet_api::platform::MLflowOperator;
use quintet_controller::cache::{Cache, Caches, Entry, ObjectMetadata, Selector, WatchSpec};
use quintet_controller::object::Uid;
use quintet_controller::{ApiKind, Error, ObjectKey};
use serde::{Deserialize, Serialize};

use super::objects::{Bundles, OptionalApis};
use crate::names;
use crate::settings::Settings;
use crate::watches::{self, DeploymentView, JobView, PodView};

/// What was observed of an MLflow and of what belongs to it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    pub(super) mlflow: Arc<Entry<MLflow>>,
    pub(super) settings: Arc<Settings>,
    pub(super) now: Timestamp,
    pub(super) apis: OptionalApis,
    /// The platform's MLflowOperator, if there is one; looked for in module mode only.
    pub(super) module: Option<Arc<Entry<MLflowOperator>>>,
    pub(super) deployment: Option<DeploymentView>,
    /// All migration Jobs.
    pub(super) jobs: Vec<Arc<Entry<JobView>>>,
    /// Pods of migration Jobs.
    pub(super) pods: Vec<Arc<Entry<PodView>>>,
    pub(super) bundles: Bundles,
    /// Whether the ConfigMap that the spec names is missing.
    pub(super) custom_bundle_is_missing: bool,
    /// Objects of tasks that the spec no longer wants.
    pub(super) leftovers: Vec<Leftover>,
}

/// An object that has to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Leftover {
    pub(super) kind: ApiKind,
    pub(super) key: ObjectKey,
    pub(super) uid: Uid,
}

impl Observed {
    /// The status as it is.
    pub(super) fn status(&self) -> MLflowStatus {
        self.mlflow.object.status.clone().unwrap_or_default()
    }

    /// The generation of the spec.
    pub(super) fn generation(&self) -> i64 {
        self.mlflow.object.metadata.generation.unwrap_or_default()
    }
}

/// The caches of the controller.
pub(super) struct MLflowCaches {
    pub(super) mlflows: Cache<MLflow>,
    pub(super) modules: Option<Cache<MLflowOperator>>,
    pub(super) deployments: Cache<DeploymentView>,
    pub(super) jobs: Cache<JobView>,
    pub(super) pods: Cache<PodView>,
    pub(super) config_maps: Cache<ObjectMetadata>,
    pub(super) service_accounts: Cache<ObjectMetadata>,
    pub(super) cron_jobs: Cache<ObjectMetadata>,
    pub(super) gc_role: Cache<ObjectMetadata>,
    pub(super) gc_binding: Cache<ObjectMetadata>,
    /// Kinds of which only changes count.
    pub(super) others: Vec<Cache<ObjectMetadata>>,
    pub(super) console_links: Cache<ObjectMetadata>,
    pub(super) http_routes: Cache<ObjectMetadata>,
    pub(super) service_monitors: Cache<ObjectMetadata>,
}

impl MLflowCaches {
    pub(super) fn new(caches: &Caches, settings: &Settings) -> Result<Self, Error> {
        let namespace = settings.namespace.as_str();
        let part = |kind: ApiKind| caches.watch(watches::parts(kind, namespace));
        let role = |name| caches.watch(watches::cluster_part(ApiKind::of::<ClusterRole>(), name));
        let binding = |name| caches.watch(watches::cluster_part(ApiKind::of::<ClusterRoleBinding>(), name));
        let optional = |kind: ApiKind| {
            let named = Selector::all().named(names::MLFLOW);
            let selector = if kind.namespaced { named.in_namespace(namespace) } else { named };
            caches.watch(WatchSpec::metadata(kind).select(selector).optional())
        };
        let monitors = Selector::all().in_namespace(namespace).named(names::SERVICE_MONITOR);
        let modules = settings.module_mode.then(|| caches.watch(WatchSpec::<MLflowOperator>::typed()));
        Ok(Self {
            mlflows: caches.watch(WatchSpec::typed())?,
            modules: modules.transpose()?,
            deployments: caches.watch(watches::deployments(namespace))?,
            jobs: caches.watch(watches::jobs(namespace))?,
            pods: caches.watch(watches::pods(namespace))?,
            config_maps: caches.watch(watches::config_maps(namespace))?,
            service_accounts: part(ApiKind::of::<ServiceAccount>())?,
            cron_jobs: part(ApiKind::of::<CronJob>())?,
            gc_role: role(names::GC)?,
            gc_binding: binding(names::GC)?,
            others: vec![
                role(names::MLFLOW)?,
                binding(names::MLFLOW)?,
                part(ApiKind::of::<Service>())?,
                part(ApiKind::of::<PersistentVolumeClaim>())?,
                part(ApiKind::of::<NetworkPolicy>())?,
            ],
            console_links: optional(watches::console_link_kind())?,
            http_routes: optional(watches::http_route_kind())?,
            service_monitors: caches
                .watch(WatchSpec::metadata(watches::service_monitor_kind()).select(monitors).optional())?,
        })
    }

    /// Caches of kinds that the cluster may not serve.
    pub(super) fn optional(&self) -> [&Cache<ObjectMetadata>; 3] {
        [&self.console_links, &self.http_routes, &self.service_monitors]
    }

    /// Caches of objects of which only metadata counts.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Cache<ObjectMetadata>> {
        let named = [&self.service_accounts, &self.cron_jobs, &self.gc_role, &self.gc_binding];
        named.into_iter().chain(&self.others).chain(self.optional())
    }

    pub(super) fn read(
        &self,
        mlflow: Arc<Entry<MLflow>>,
        settings: &Arc<Settings>,
        now: Timestamp,
    ) -> Observed {
        let namespace = settings.namespace.as_str();
        let in_namespace = |name: &str| ObjectKey::new(namespace, name);
        let exists = |config_map: &str| self.config_maps.get(&in_namespace(config_map)).is_some();
        let custom = mlflow.object.spec.ca_bundle_config_map.as_ref().map(|bundle| bundle.name.clone());
        Observed {
            settings: Arc::clone(settings),
            now,
            apis: OptionalApis {
                console_links: self.console_links.is_served(),
                http_routes: self.http_routes.is_served(),
                service_monitors: self.service_monitors.is_served(),
            },
            module: self.modules.as_ref().and_then(|modules| modules.get(&ObjectKey::cluster(names::MODULE))),
            deployment: self
                .deployments
                .get(&in_namespace(names::MLFLOW))
                .map(|deployment| deployment.object.clone()),
            jobs: self.jobs.all(),
            pods: self.pods.all(),
            custom_bundle_is_missing: custom.as_deref().is_some_and(|name| !exists(name)),
            bundles: Bundles { platform: exists(names::PLATFORM_CA), custom },
            leftovers: self.leftovers(&mlflow.object, namespace),
            mlflow,
        }
    }

    /// Objects of tasks that are off.
    fn leftovers(&self, mlflow: &MLflow, namespace: &str) -> Vec<Leftover> {
        let in_namespace = |name: &str| ObjectKey::new(namespace, name);
        let mut unwanted = Vec::new();
        if mlflow.spec.garbage_collection.is_none() {
            unwanted.extend([
                (&self.cron_jobs, in_namespace(names::GC)),
                (&self.service_accounts, in_namespace(names::GC_SERVICE_ACCOUNT)),
                (&self.gc_binding, ObjectKey::cluster(names::GC)),
                (&self.gc_role, ObjectKey::cluster(names::GC)),
            ]);
        }
        let archives = |archival: &TraceArchival| archival.enabled == Some(true);
        if !mlflow.spec.trace_archival.as_ref().is_some_and(archives) {
            unwanted.extend([
                (&self.cron_jobs, in_namespace(names::ARCHIVAL)),
                (&self.service_accounts, in_namespace(names::ARCHIVAL_SERVICE_ACCOUNT)),
                (&self.config_maps, in_namespace(names::ARCHIVAL_CONFIG)),
            ]);
        }
        let found = unwanted.into_iter().filter_map(|(cache, key)| Some((cache, cache.get(&key)?)));
        found
            .filter(|(_, entry)| !entry.deleting)
            .map(|(cache, entry)| Leftover {
                kind: cache.kind().clone(),
                key: entry.key.clone(),
                uid: entry.uid.clone(),
            })
            .collect()
    }
}
