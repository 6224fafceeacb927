//! Everything a decision about a registry needs.

use std::sync::Arc;

use jiff::Timestamp;
use quintet_api::aihub::Catalog;
use quintet_api::modelregistry::v1beta1::{ModelRegistry, ModelRegistryStatus};
use quintet_api::owners::controller_reference;
use quintet_api::platform::AIHub;
use quintet_controller::cache::{Cache, Caches, Entry, WatchSpec};
use quintet_controller::{Error, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::objects;
use crate::aihub;
use crate::domain::Domain;
use crate::managed::{Live, ManagedCaches, OptionalApis};
use crate::names::REGISTRY;
use crate::objects::Home;
use crate::pods::{self, PodView};
use crate::settings::Settings;

/// What was observed of a registry and of what belongs to it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    pub(super) registry: Arc<Entry<ModelRegistry>>,
    pub(super) settings: Arc<Settings>,
    pub(super) now: Timestamp,
    pub(super) apis: OptionalApis,
    /// The domain of Routes, or empty.
    pub(super) domain: String,
    pub(super) live: Live,
    /// Pods of the server and of its database.
    pub(super) pods: Vec<Arc<Entry<PodView>>>,
    /// The Secret of the database that the operator runs has to be made.
    pub(super) lacks_credentials: bool,
    /// What the log of a failing server says.
    pub(super) alert: Option<super::alert::Alert>,
    /// No other server in the namespace is reached through the Gateway.
    pub(super) is_last_in_namespace: bool,
}

impl Observed {
    /// The status as it is.
    pub(super) fn status(&self) -> ModelRegistryStatus {
        self.registry.object.status.clone().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.registry.key.name()
    }

    pub(super) fn namespace(&self) -> &str {
        self.registry.key.namespace().unwrap_or_default()
    }

    /// Where its objects are, and to whom they belong.
    pub(super) fn home(&self) -> Home<'_> {
        home(&self.registry)
    }
}

/// Where the objects of a registry are, and to whom they belong.
pub(super) fn home(registry: &Entry<ModelRegistry>) -> Home<'_> {
    let owner = controller_reference(&registry.object).map_or(Value::Null, |owner| json!(owner));
    Home { namespace: registry.key.namespace().unwrap_or_default(), owner }
}

/// The caches of the controller.
#[derive(Clone)]
pub(super) struct RegistryCaches {
    pub(super) registries: Cache<ModelRegistry>,
    pub(super) catalogs: Cache<Catalog>,
    pub(super) managed: ManagedCaches,
    pub(super) pods: Cache<PodView>,
    pub(super) domain: Domain,
    pub(super) hubs: Cache<AIHub>,
}

impl RegistryCaches {
    pub(super) fn new(caches: &Caches, settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            registries: caches.watch(WatchSpec::typed())?,
            catalogs: caches.watch(WatchSpec::typed())?,
            managed: ManagedCaches::new(caches)?,
            pods: caches.watch(pods::pods(REGISTRY))?,
            domain: Domain::watch(caches, settings)?,
            hubs: caches.watch(WatchSpec::typed())?,
        })
    }

    /// What the caches show. The rest takes requests.
    pub(super) fn read(&self, key: &ObjectKey, settings: &Arc<Settings>, now: Timestamp) -> Option<Observed> {
        let registry = self.registries.get(key)?;
        let settings = aihub::effective(settings, &self.hubs);
        let namespace = key.namespace().unwrap_or_default();
        let is_here = |other: &ObjectKey| other.namespace() == key.namespace() && other != key;
        let others = self.registries.all();
        let others = others.iter().filter(|other| !other.deleting).map(|other| &other.key);
        let catalogs = self.catalogs.all();
        let catalogs = catalogs.iter().filter(|other| !other.deleting).map(|other| &other.key);
        Some(Observed {
            now,
            apis: self.managed.apis(),
            domain: self.domain.get(),
            live: self.managed.read(&objects::inventory(namespace, key.name(), &settings)),
            pods: self.pods.by_index(pods::BY_APP, &pods::app_key(namespace, key.name())),
            lacks_credentials: false,
            alert: None,
            is_last_in_namespace: !others.chain(catalogs).any(is_here),
            settings,
            registry,
        })
    }
}
