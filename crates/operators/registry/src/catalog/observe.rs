//! Everything a decision about the catalog needs.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use quintet_api::aihub::{Catalog, CatalogStatus};
use quintet_api::modelregistry::v1beta1::ModelRegistry;
use quintet_api::owners::controller_reference;
use quintet_api::platform::AIHub;
use quintet_controller::cache::{Cache, Caches, Entry, Selector, WatchSpec};
use quintet_controller::{ApiKind, Error, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::objects::{self, USER_SOURCES};
use super::sources::{self, SourcesView};
use crate::aihub;
use crate::domain::Domain;
use crate::kinds;
use crate::managed::{Live, ManagedCaches, OptionalApis};
use crate::names::{AUTH, CATALOG, CATALOG_SOURCE};
use crate::objects::Home;
use crate::pods::{self, PodView};
use crate::settings::Settings;

/// What was observed of the catalog and of what belongs to it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    pub(super) catalog: Arc<Entry<Catalog>>,
    pub(super) settings: Arc<Settings>,
    pub(super) now: Timestamp,
    pub(super) apis: OptionalApis,
    /// The domain of Routes, or empty.
    pub(super) domain: String,
    pub(super) live: Live,
    /// Pods of the server and of its database.
    pub(super) pods: Vec<Arc<Entry<PodView>>>,
    /// The Secret of the database has to be made or completed.
    pub(super) lacks_credentials: bool,
    /// ConfigMaps with further sources, in order.
    pub(super) labelled_sources: Vec<String>,
    /// The ConfigMaps of users that exist, in the order of [`USER_SOURCES`].
    pub(super) user_sources: Vec<Option<Arc<Entry<SourcesView>>>>,
    /// Groups of administrators.
    pub(super) admin_groups: Vec<String>,
    /// A Catalog that was there before: names of objects leave room for one in the cluster.
    pub(super) older: Option<ObjectKey>,
    /// No registry in the namespace is reached through the Gateway.
    pub(super) is_alone_in_namespace: bool,
}

impl Observed {
    /// The status as it is.
    pub(super) fn status(&self) -> CatalogStatus {
        self.catalog.object.status.clone().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.catalog.key.namespace().unwrap_or_default()
    }

    pub(super) fn home(&self) -> Home<'_> {
        home(&self.catalog)
    }
}

/// Where the objects of the catalog are, and to whom they belong.
pub(super) fn home(catalog: &Entry<Catalog>) -> Home<'_> {
    let owner = controller_reference(&catalog.object).map_or(Value::Null, |owner| json!(owner));
    Home { namespace: catalog.key.namespace().unwrap_or_default(), owner }
}

/// The platform's groups of users. A list with anything but texts counts as none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Auth {
    spec: Value,
}

impl Auth {
    fn admin_groups(&self) -> Vec<String> {
        Vec::deserialize(&self.spec["adminGroups"]).unwrap_or_default()
    }
}

/// The caches of the controller.
#[derive(Clone)]
pub(super) struct CatalogCaches {
    pub(super) catalogs: Cache<Catalog>,
    pub(super) registries: Cache<ModelRegistry>,
    pub(super) managed: ManagedCaches,
    pub(super) pods: Cache<PodView>,
    pub(super) labelled_sources: Cache<SourcesView>,
    /// One per name of [`USER_SOURCES`].
    pub(super) user_sources: Vec<Cache<SourcesView>>,
    pub(super) auths: Cache<Auth>,
    pub(super) domain: Domain,
    pub(super) hubs: Cache<AIHub>,
}

impl CatalogCaches {
    pub(super) fn new(caches: &Caches, settings: &Settings) -> Result<Self, Error> {
        let sources = |selector: Selector| {
            let project = |text: &str| serde_json::from_str(text);
            caches.watch(WatchSpec::projected(ApiKind::of::<ConfigMap>(), project).select(selector))
        };
        let user_sources = USER_SOURCES.iter().map(|(name, _)| sources(Selector::all().named(name)));
        let auths = WatchSpec::projected(kinds::auth(), |text| serde_json::from_str(text))
            .select(Selector::all().named(AUTH))
            .optional();
        Ok(Self {
            catalogs: caches.watch(WatchSpec::typed())?,
            registries: caches.watch(WatchSpec::typed())?,
            managed: ManagedCaches::new(caches)?,
            pods: caches.watch(pods::pods(CATALOG))?,
            labelled_sources: sources(Selector::all().label(CATALOG_SOURCE, "true"))?,
            user_sources: user_sources.collect::<Result<_, _>>()?,
            auths: caches.watch(auths)?,
            domain: Domain::watch(caches, settings)?,
            hubs: caches.watch(WatchSpec::typed())?,
        })
    }

    /// What the caches show. The rest takes a request.
    pub(super) fn read(&self, key: &ObjectKey, settings: &Arc<Settings>, now: Timestamp) -> Option<Observed> {
        let catalog = self.catalogs.get(key)?;
        let settings = aihub::effective(settings, &self.hubs);
        let namespace = key.namespace().unwrap_or_default();
        let is_here = |other: &ObjectKey| other.namespace() == key.namespace();
        let mut labelled: Vec<_> = self
            .labelled_sources
            .all()
            .iter()
            .filter(|entry| is_here(&entry.key) && entry.object.text().is_some() && !entry.deleting)
            .map(|entry| entry.key.name().to_owned())
            .filter(|name| sources::can_be_mounted(name))
            .collect();
        labelled.sort();
        let user_sources = self.user_sources.iter().zip(USER_SOURCES);
        let user_sources = user_sources.map(|(cache, (name, _))| cache.get(&ObjectKey::new(namespace, name)));
        let auth = self.auths.get(&ObjectKey::cluster(AUTH));
        let age = |entry: &Entry<Catalog>| {
            let created = entry.object.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (created, entry.key.clone())
        };
        let others = self.catalogs.all();
        let older = others.iter().find(|other| !other.deleting && age(other) < age(&catalog));
        let registries = self.registries.all();
        Some(Observed {
            now,
            apis: self.managed.apis(),
            domain: self.domain.get(),
            live: self.managed.read(&objects::inventory(namespace, &settings)),
            pods: self.pods.by_index(pods::BY_APP, &pods::app_key(namespace, CATALOG)),
            lacks_credentials: false,
            labelled_sources: labelled,
            user_sources: user_sources.collect(),
            admin_groups: auth.map(|auth| auth.object.admin_groups()).unwrap_or_default(),
            older: older.map(|other| other.key.clone()),
            is_alone_in_namespace: !registries
                .iter()
                .any(|registry| is_here(&registry.key) && !registry.deleting),
            settings,
            catalog,
        })
    }
}
