//! The model catalog: a server that lists models, MCP servers and agents, its sources and its database.

mod objects;
mod observe;
mod plan;
mod sources;
mod webhook;

use quintet_api::aihub::Catalog;
use quintet_controller::cache::{Cache, Entry};
use quintet_controller::{Action, Controller, Error, ObjectKey, OnError, Plan};
use serde_json::Value;

use crate::Context;
use crate::credentials::CredentialsRequest;
use crate::managed::{OptionalApis, controller_name, label};
use crate::names::{CATALOG, OWNER_NAMESPACE, REFERENCE_GRANT};
use crate::settings::Settings;
use observe::{CatalogCaches, Observed, home};
pub(crate) use webhook::webhook;

/// The controller of Catalogs.
struct CatalogController {
    context: Context,
    caches: CatalogCaches,
}

/// Adds the controller.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let caches = CatalogCaches::new(context.runtime.caches(), &context.settings)?;
    let CatalogCaches {
        catalogs, managed, pods, labelled_sources, user_sources, auths, domain, hubs, ..
    } = caches.clone();
    let controller = CatalogController { context: context.clone(), caches };
    let all = {
        let catalogs = catalogs.clone();
        move || catalogs.all().iter().map(|entry| entry.key.clone()).collect::<Vec<_>>()
    };
    let here = {
        let all = all.clone();
        move |key: &ObjectKey| {
            let mut catalogs = all();
            catalogs.retain(|catalog| catalog.namespace() == key.namespace());
            catalogs
        }
    };
    // Another Catalog that goes makes room for the next one.
    let others = all.clone();
    let mut setup =
        context.runtime.add(controller, &catalogs, context.concurrency).watches(&catalogs, move |_| others());
    for cache in managed.all() {
        let catalogs = catalogs.clone();
        setup = setup.watches(cache, move |entry| catalogs_of(entry, &catalogs));
    }
    for cache in managed.optional() {
        setup = setup.watches_presence(cache, all.clone());
    }
    for cache in user_sources.iter().chain([&labelled_sources]) {
        let here = here.clone();
        setup = setup.watches(cache, move |entry| here(&entry.key));
    }
    let (of_auths, of_domain) = (all.clone(), all.clone());
    setup
        .watches(&pods, move |entry| here(&entry.key))
        .watches(&auths, move |_| of_auths())
        .watches(&domain.config, move |_| of_domain())
        .watches(&hubs, move |_| all())
        .done();
    Ok(())
}

/// The Catalogs that an object belongs to: its controller, or those in its namespace.
fn catalogs_of(entry: &Entry<Value>, catalogs: &Cache<Catalog>) -> Vec<ObjectKey> {
    let object = &entry.object;
    if let (Some(namespace), Some(owner)) = (entry.key.namespace(), controller_name(object, "Catalog")) {
        return vec![ObjectKey::new(namespace, owner)];
    }
    let is_ours = label(object, "app") == Some(CATALOG) || entry.key.name() == REFERENCE_GRANT;
    if !is_ours {
        return Vec::new();
    }
    // HTTPRoutes are elsewhere.
    let namespace = label(object, OWNER_NAMESPACE);
    let all = catalogs.all();
    let concerned = all
        .iter()
        .filter(|catalog| namespace.is_none_or(|namespace| catalog.key.namespace() == Some(namespace)));
    concerned.map(|catalog| catalog.key.clone()).collect()
}

impl Controller for CatalogController {
    type Observed = Observed;
    type Call = CredentialsRequest;

    const NAME: &'static str = "catalog-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Context { settings, clock, runtime, .. } = &self.context;
        let Some(mut observed) = self.caches.read(key, settings, clock.now()) else { return Ok(None) };
        if !settings.skip_catalog_database && !observed.catalog.deleting && observed.older.is_none() {
            let request = objects::credentials(&home(&observed.catalog), settings);
            observed.lacks_credentials = request.is_needed(runtime.api()).await?;
        }
        Ok(Some(observed))
    }

    fn plan(observed: &Observed) -> Plan<CredentialsRequest> {
        plan::plan(observed)
    }

    async fn call(&self, call: &CredentialsRequest) -> Result<(), Error> {
        call.carry_out(self.context.runtime.api()).await
    }

    fn on_error(observed: &Observed, action: &Action<CredentialsRequest>, error: &Error) -> OnError {
        plan::on_error(observed, action, error)
    }
}

/// Everything that is made for the catalog, in order, but for the Secret of its database.
pub fn preview(
    catalog: &Catalog,
    settings: &Settings,
    apis: OptionalApis,
    domain: &str,
    (labelled_sources, admin_groups): (&[String], &[String]),
) -> Vec<Value> {
    let mut catalog = catalog.clone();
    catalog.metadata.uid.get_or_insert_with(|| "00000000-0000-0000-0000-000000000000".to_owned());
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let key = ObjectKey::new(&text(&catalog.metadata.namespace), &text(&catalog.metadata.name));
    let entry = Entry::new(key, catalog);
    let inputs = objects::Inputs {
        home: home(&entry),
        spec: &entry.object.spec,
        settings,
        apis,
        domain,
        labelled_sources,
        removed_sources: &[],
        admin_groups,
    };
    let users =
        objects::USER_SOURCES.map(|(name, text)| objects::user_sources(inputs.home.namespace, name, text));
    let all = users.into_iter().chain(objects::objects(&inputs));
    all.filter_map(|desired| desired.preview()).collect()
}
