//! Model registries: a REST server, its database and who may reach it.

mod alert;
mod defaulting;
mod effective;
mod objects;
mod observe;
mod plan;
mod pod_details;
mod proxy_readiness;
mod status;
mod validation;
mod webhook;

use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use quintet_api::modelregistry::v1beta1::ModelRegistry;
use quintet_controller::cache::{Cache, Entry};
use quintet_controller::{Action, Controller, Error, ObjectKey, OnError, Plan};
use serde_json::Value;

use crate::Context;
use crate::credentials::CredentialsRequest;
use crate::managed::{OptionalApis, controller_name, label};
use crate::names::{OWNER_NAMESPACE, REFERENCE_GRANT};
use crate::settings::Settings;
pub use observe::Observed;
use observe::{RegistryCaches, home};
pub(crate) use webhook::webhooks;

/// How much of a failing server's log is read.
const LOG_LINES: i64 = 100;
const LOG_BYTES: i64 = 64 << 10;

/// The controller of ModelRegistries.
struct RegistryController {
    context: Context,
    caches: RegistryCaches,
}

/// Adds the controller.
pub(crate) fn add(context: &Context) -> Result<(), Error> {
    let caches = RegistryCaches::new(context.runtime.caches(), &context.settings)?;
    let RegistryCaches { registries, managed, pods, domain, hubs, .. } = caches.clone();
    let controller = RegistryController { context: context.clone(), caches };
    let mut setup = context.runtime.add(controller, &registries, context.concurrency).watches(&pods, |pod| {
        let namespace = pod.key.namespace().unwrap_or_default();
        vec![ObjectKey::new(namespace, &pod.object.app)]
    });
    for cache in managed.all() {
        let registries = registries.clone();
        setup = setup.watches(cache, move |entry| registries_of(entry, &registries));
    }
    let all = move || registries.all().iter().map(|entry| entry.key.clone()).collect::<Vec<_>>();
    for cache in managed.optional() {
        setup = setup.watches_presence(cache, all.clone());
    }
    let of_domain = all.clone();
    setup.watches(&domain.config, move |_| of_domain()).watches(&hubs, move |_| all()).done();
    Ok(())
}

/// The registries that an object belongs to: its controller, or those of its labels.
fn registries_of(entry: &Entry<Value>, registries: &Cache<ModelRegistry>) -> Vec<ObjectKey> {
    let object = &entry.object;
    if let (Some(namespace), Some(owner)) = (entry.key.namespace(), controller_name(object, "ModelRegistry"))
    {
        return vec![ObjectKey::new(namespace, owner)];
    }
    if let (Some(namespace), Some(app)) = (label(object, OWNER_NAMESPACE), label(object, "app")) {
        return vec![ObjectKey::new(namespace, app)];
    }
    let all = registries.all();
    let concerned = all.iter().filter(|registry| match label(object, "app") {
        // Groups, HTTPRoutes and Endpoints have no owner; names of registries are unique.
        Some(app) => registry.key.name() == app,
        None => entry.key.name() == REFERENCE_GRANT && registry.key.namespace() == entry.key.namespace(),
    });
    concerned.map(|registry| registry.key.clone()).collect()
}

impl Controller for RegistryController {
    type Observed = Observed;
    type Call = CredentialsRequest;

    const NAME: &'static str = "modelregistry-controller";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        let Context { settings, clock, runtime, .. } = &self.context;
        let Some(mut observed) = self.caches.read(key, settings, clock.now()) else { return Ok(None) };
        if effective::is_generated(&observed.registry.object.spec) && !observed.registry.deleting {
            let request = objects::credentials(key.name(), &home(&observed.registry));
            observed.lacks_credentials = request.is_needed(runtime.api()).await?;
        }
        if let Some(pod) = pod_details::failing_server(&observed.pods) {
            observed.alert = self.read_log(&pod.key).await;
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

impl RegistryController {
    /// What the log of a failing server says. A log that cannot be read says nothing.
    async fn read_log(&self, pod: &ObjectKey) -> Option<alert::Alert> {
        let pods = kube::Api::<Pod>::namespaced(self.context.client.clone(), pod.namespace()?);
        let params = LogParams {
            container: Some(objects::SERVER.to_owned()),
            tail_lines: Some(LOG_LINES),
            limit_bytes: Some(LOG_BYTES),
            ..LogParams::default()
        };
        match pods.logs(pod.name(), &params).await {
            Ok(log) => alert::find(&log),
            Err(error) => {
                tracing::debug!(%pod, "cannot read the log of the server: {error}");
                None
            }
        }
    }
}

/// Everything that is made for a registry, in order, but for the Secret of a database.
pub fn preview(
    registry: &ModelRegistry,
    settings: &Settings,
    apis: OptionalApis,
    domain: &str,
) -> Vec<Value> {
    let mut registry = registry.clone();
    registry.metadata.uid.get_or_insert_with(|| "00000000-0000-0000-0000-000000000000".to_owned());
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let key = ObjectKey::new(&text(&registry.metadata.namespace), &text(&registry.metadata.name));
    let entry = Entry::new(key, registry);
    let (name, stored) = (entry.key.name(), &entry.object.spec);
    let specs = plan::Specs::new(name, stored.clone(), stored, settings, domain);
    let inputs = objects::Inputs {
        name,
        home: home(&entry),
        annotations: entry.object.metadata.annotations.as_ref(),
        stored: &specs.stored,
        spec: &specs.filled,
        connected: &specs.connected,
        settings,
        apis,
    };
    let all = objects::database(&inputs).into_iter().chain(objects::objects(&inputs));
    all.filter_map(|desired| desired.preview()).collect()
}
