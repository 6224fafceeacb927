//! The webhooks of ModelRegistries.

use std::sync::Arc;

use quintet_api::modelregistry::v1beta1::ModelRegistry;
use quintet_api::platform::AIHub;
use quintet_component::Webhook;
use quintet_controller::Runtime;
use quintet_controller::cache::{Cache, WatchSpec};
use quintet_controller::webhook::{Admission, Mutation, Operation, Verdict};
use serde_json::Value;

use super::{defaulting, validation};
use crate::aihub;
use crate::managed::ManagedCaches;
use crate::settings::Settings;

const MUTATE: &str = "/mutate-modelregistry-opendatahub-io-modelregistry";
const VALIDATE: &str = "/validate-modelregistry-opendatahub-io-modelregistry";

/// The webhooks.
pub(crate) fn webhooks(settings: &Arc<Settings>) -> Vec<Webhook> {
    let on = |webhook: Webhook| {
        let group = "modelregistry.opendatahub.io";
        let operations = &["CREATE", "UPDATE"];
        let resources = &["modelregistries"];
        webhook.on(operations, group, "v1beta1", resources).on(operations, group, "v1alpha1", resources)
    };
    vec![on(mutating(Arc::clone(settings))), on(validating(Arc::clone(settings)))]
}

fn mutating(settings: Arc<Settings>) -> Webhook {
    let configuration = "model-registry-operator-mutating-webhook-configuration";
    Webhook::mutating(configuration, "mmodelregistry.opendatahub.io", MUTATE, move |routes, runtime| {
        let openshift = ManagedCaches::new(runtime.caches())?.routes;
        Ok(routes.mutate(MUTATE, move |admission: Admission<Value>| {
            let (settings, openshift) = (Arc::clone(&settings), openshift.clone());
            async move {
                openshift.synced().await;
                let mut registry = admission.object;
                defaulting::admit(&mut registry, &settings, openshift.is_served());
                Mutation::to(registry)
            }
        }))
    })
}

fn validating(settings: Arc<Settings>) -> Webhook {
    let configuration = "model-registry-operator-validating-webhook-configuration";
    Webhook::validating(configuration, "vmodelregistry.opendatahub.io", VALIDATE, move |routes, runtime| {
        let registries = registries(runtime)?;
        let hubs = runtime.caches().watch(WatchSpec::<AIHub>::typed())?;
        Ok(routes.validate(VALIDATE, move |admission: Admission<Value>| {
            let (settings, registries, hubs) = (Arc::clone(&settings), registries.clone(), hubs.clone());
            async move {
                registries.synced().await;
                hubs.synced().await;
                let settings = aihub::effective(&settings, &hubs);
                let duplicate = match admission.request.operation {
                    Operation::Create => duplicate(&admission.object, &registries),
                    _ => None,
                };
                let denial = duplicate.or_else(|| validation::check(&admission.object, &settings));
                denial.map_or_else(Verdict::allow, Verdict::deny)
            }
        }))
    })
}

fn registries(runtime: &Runtime) -> Result<Cache<ModelRegistry>, quintet_controller::Error> {
    runtime.caches().watch(WatchSpec::typed())
}

fn duplicate(registry: &Value, registries: &Cache<ModelRegistry>) -> Option<String> {
    let name = registry["metadata"]["name"].as_str().unwrap_or_default();
    let all = registries.all();
    let others: Vec<_> = all
        .iter()
        .filter(|other| other.key.name() == name)
        .map(|other| other.key.namespace().unwrap_or_default().to_owned())
        .collect();
    validation::check_name(name, &others)
}
