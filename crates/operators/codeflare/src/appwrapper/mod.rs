//! AppWrappers: several objects admitted, run, retried and removed as one.

mod component;
pub(crate) mod defaulting;
mod metrics;
mod node_health;
mod objects;
mod observe;
mod options;
mod plan;
mod pod_view;
mod podsets;
mod status;
#[cfg(test)]
mod tests;
pub(crate) mod validation;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use quintet_api::appwrapper::AppWrapper;
use quintet_api::config::codeflare::AppWrapperConfiguration;
use quintet_controller::cache::{Cache, Entry, ObjectMetadata, WatchSpec};
use quintet_controller::clock::Clock;
use quintet_controller::discovery::Discovery;
use quintet_controller::{Action, ApiKind, Controller, Error, NoCall, ObjectKey, OnError, Plan};

use crate::Context;
use observe::{Observed, Sources};
use pod_view::{BY_NODE, PodView, appwrapper_of};

/// The controller of AppWrappers.
struct AppWrapperController {
    sources: Sources,
    config: Arc<AppWrapperConfiguration>,
    clock: Clock,
}

/// Adds the controller.
pub(crate) fn add(context: &Context, config: AppWrapperConfiguration) -> Result<(), Error> {
    let caches = context.runtime.caches();
    let appwrappers = caches.watch(WatchSpec::<AppWrapper>::typed())?;
    let pods = caches.watch(pod_view::pods())?;
    let nodes =
        config.autopilot.monitor_nodes.then(|| caches.watch(WatchSpec::metadata(ApiKind::of::<Node>())));
    let nodes = nodes.transpose()?;
    metrics::register(&context.metrics, &appwrappers);
    let config = Arc::new(config);
    let controller = AppWrapperController {
        sources: Sources {
            api: context.runtime.unfenced_api().clone(),
            discovery: Discovery::new(context.runtime.unfenced_api().clone()),
            appwrappers: appwrappers.clone(),
            pods: pods.clone(),
            nodes: nodes.clone(),
        },
        config: Arc::clone(&config),
        clock: context.clock.clone(),
    };
    let mut setup = context
        .runtime
        .add(controller, &appwrappers, context.concurrency)
        // Most changes of a pod are none to its AppWrapper, and every reconcile reads the components.
        .watches_changes(&pods, |change| {
            let [old, new] = [&change.old, &change.new].map(|state| state.as_deref());
            let seen = |pod: &Entry<PodView>| (pod.object.clone(), pod.deleting);
            match (old.map(seen), new.map(seen)) {
                (before, after) if before == after => Vec::new(),
                _ => change.states().filter_map(|pod| appwrapper_of(pod)).collect(),
            }
        });
    if let Some(nodes) = &nodes {
        setup = setup.watches(nodes, move |node| appwrappers_on(&pods, &config, node));
    }
    setup.done();
    Ok(())
}

/// AppWrappers with pods on a node that has to be left.
fn appwrappers_on(
    pods: &Cache<PodView>,
    config: &AppWrapperConfiguration,
    node: &Entry<ObjectMetadata>,
) -> Vec<ObjectKey> {
    if node_health::resources_to_leave(&node.object, config).is_empty() {
        return Vec::new();
    }
    pods.by_index(BY_NODE, node.key.name()).iter().filter_map(|pod| appwrapper_of(pod)).collect()
}

impl Controller for AppWrapperController {
    type Observed = Observed;
    type Call = NoCall;

    const NAME: &'static str = "appwrappers";

    async fn observe(&self, key: &ObjectKey) -> Result<Option<Observed>, Error> {
        self.sources.read(key, &self.config, self.clock.now()).await
    }

    fn plan(observed: &Observed) -> Plan {
        plan::plan(observed)
    }

    fn on_error(observed: &Observed, action: &Action, error: &Error) -> OnError {
        plan::on_error(observed, action, error)
    }
}
