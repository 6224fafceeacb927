//! Hardened Ray clusters: authentication, mutual TLS and network policies around RayClusters.
//!
//! The webhook changes the pods, the controller makes what they need. Ray's own controller makes the pods; the two write
//! different objects, and different fields of the RayCluster.

mod domain;
mod inject;
mod names;
mod objects;
mod observe;
mod plan;
mod secrets;
#[cfg(test)]
mod tests;
mod validation;
mod webhook;

use std::sync::Arc;

use quintet_controller::api::Api;
use quintet_controller::cache::{Entry, ObjectMetadata};
use quintet_controller::clock::Clock;
use quintet_controller::{Controller, Error, ObjectKey, Plan};

use crate::Context;
use crate::settings::Hardening;
use observe::{HardeningCaches, Observed, cluster_of_binding, cluster_of_pods, clusters_of};
use secrets::SecretRequest;
pub(crate) use webhook::webhooks;

/// The controller of what surrounds RayClusters.
struct HardeningController {
    caches: HardeningCaches,
    hardening: Arc<Hardening>,
    api: Api,
    clock: Clock,
}

/// Adds the controller.
pub(crate) fn add(context: &Context, hardening: &Arc<Hardening>) -> Result<(), Error> {
    let caches = HardeningCaches::new(context.runtime.caches(), hardening)?;
    let clusters = caches.clusters.clone();
    let (secrets, others) = (caches.secrets.clone(), caches.others.clone());
    let (bindings, accounts, heads) =
        (caches.role_bindings.clone(), caches.service_accounts.clone(), caches.head_pods.clone());
    let (operators, initialization) = (caches.operators.clone(), caches.initialization.clone());
    let controller = HardeningController {
        caches,
        hardening: Arc::clone(hardening),
        api: context.runtime.api().clone(),
        clock: context.clock.clone(),
    };
    let all = {
        let clusters = clusters.clone();
        move || clusters.all().iter().map(|cluster| cluster.key.clone()).collect::<Vec<_>>()
    };
    let mut setup = context.runtime.add(controller, &clusters, context.concurrency);
    for cache in secrets.iter().chain(&others) {
        setup = setup.watches(cache, clusters_of);
    }
    for cache in accounts.iter().chain(&heads) {
        setup = setup.watches(cache, |entry| cluster_of_pods(entry).into_iter().collect());
    }
    if let Some(bindings) = &bindings {
        setup = setup.watches(bindings, |entry| cluster_of_binding(entry).into_iter().collect());
    }
    // The operator of Ray moves to another namespace: all policies name it. Its pods come and go in the same one.
    let (of_pods, of_platform) = (all.clone(), all);
    setup = setup.watches_changes(&operators, move |change| {
        let namespace = |pod: &Arc<Entry<ObjectMetadata>>| pod.key.namespace().map(str::to_owned);
        let is_same = change.old.as_ref().and_then(namespace) == change.new.as_ref().and_then(namespace);
        if is_same { Vec::new() } else { of_pods() }
    });
    if let Some(initialization) = &initialization {
        setup = setup.watches(initialization, move |_| of_platform());
    }
    setup.done();
    Ok(())
}

impl Controller for HardeningController {
    type Observed = Observed;
    type Call = SecretRequest;

    const NAME: &'static str = names::CONTROLLER;

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        Ok(self.caches.read(key, &self.hardening))
    }

    fn plan(observed: &Observed) -> Plan<SecretRequest> {
        plan::plan(observed)
    }

    async fn call(&self, call: &SecretRequest) -> Result<(), Error> {
        call.carry_out(&self.api, self.clock.now()).await
    }
}
