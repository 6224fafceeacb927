//! The platform's order to run model registries and the catalog.
//!
//! Upstream's controller installs two other operators by it, with the settings that it names. Here, the same process does
//! their work: what remains is to take over the settings ([`crate::settings::Settings::overlaid`]), to make the namespace
//! and the Catalog, and to report.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use quintet_api::aihub::Catalog;
use quintet_api::platform::AIHub;
use quintet_controller::cache::{Cache, Entry, ObjectMetadata, Selector, WatchSpec};
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, OnError, Plan};
use serde::{Deserialize, Serialize};

use crate::Context;
use crate::names::THE_CATALOG;
use crate::settings::Settings;

/// The only name that an AIHub may have.
const THE_AIHUB: &str = "default-aihub";
/// The ConfigMap with the version of the platform.
const PLATFORM_CONFIG: &str = "odh-modelregistry-config";

/// What was observed of an AIHub.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observed {
    hub: Arc<Entry<AIHub>>,
    now: Timestamp,
    /// The namespace of registries exists.
    has_namespace: bool,
    catalog: Option<Arc<Entry<Catalog>>>,
    platform_version: Option<String>,
}

/// What is kept of the ConfigMap with the version of the platform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct PlatformConfig {
    data: BTreeMap<String, String>,
}

/// The settings with those of the AIHub, if there is one.
pub(crate) fn effective(settings: &Arc<Settings>, hubs: &Cache<AIHub>) -> Arc<Settings> {
    match hubs.get(&ObjectKey::cluster(THE_AIHUB)) {
        Some(hub) => Arc::new(settings.overlaid(&hub.object.spec)),
        None => Arc::clone(settings),
    }
}

/// The controller of the AIHub.
struct HubController {
    context: Context,
    hubs: Cache<AIHub>,
    namespaces: Cache<ObjectMetadata>,
    catalogs: Cache<Catalog>,
    configs: Cache<PlatformConfig>,
}

/// Adds the controller.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let caches = context.runtime.caches();
    let hubs: Cache<AIHub> = caches.watch(WatchSpec::typed())?;
    let namespaces = caches.watch(WatchSpec::metadata(ApiKind::of::<Namespace>()))?;
    let catalogs = caches.watch(WatchSpec::typed())?;
    let configs = WatchSpec::projected(ApiKind::of::<ConfigMap>(), |text| serde_json::from_str(text))
        .select(Selector::all().named(PLATFORM_CONFIG));
    let configs = caches.watch(configs)?;
    let controller = HubController {
        context: context.clone(),
        hubs: hubs.clone(),
        namespaces: namespaces.clone(),
        catalogs: catalogs.clone(),
        configs: configs.clone(),
    };
    let the_hub = || vec![ObjectKey::cluster(THE_AIHUB)];
    let concerned = hubs.clone();
    context
        .runtime
        .add(controller, &hubs, 1)
        .watches(&namespaces, move |entry| {
            let all = concerned.all();
            let of = |hub: &&Arc<Entry<AIHub>>| hub.object.spec.instances_namespace == entry.key.name();
            all.iter().filter(of).map(|hub| hub.key.clone()).collect()
        })
        .watches(&catalogs, move |_| the_hub())
        .watches(&configs, move |_| the_hub())
        .done();
    Ok(())
}

impl Controller for HubController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "aihub-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Some(hub) = self.hubs.get(key) else { return Ok(None) };
        let spec = &hub.object.spec;
        let config = ObjectKey::new(&spec.application_namespace, PLATFORM_CONFIG);
        let config = self.configs.get(&config);
        let version = config.and_then(|config| config.object.data.get("platformVersion").cloned());
        Ok(Some(Observed {
            now: self.context.clock.now(),
            has_namespace: self.namespaces.get(&ObjectKey::cluster(&spec.instances_namespace)).is_some(),
            catalog: self.catalogs.get(&ObjectKey::new(&spec.instances_namespace, THE_CATALOG)),
            platform_version: version,
            hub,
        }))
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }

    fn on_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
        plan::on_error(observed, action, error)
    }
}
