//! Metrics of AppWrappers.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::{counter::Counter, family::Family};
use quintet_api::appwrapper::{AppWrapper, Phase};
use quintet_controller::cache::{Cache, Cause, Entry};
use quintet_controller::metrics::MetricsRegistry;

/// Where an AppWrapper is, and its phase.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    namespace: String,
    phase: String,
}

/// Counts transitions between phases, under the name of the AppWrapper operator's own metric.
pub(super) fn register(registry: &MetricsRegistry, appwrappers: &Cache<AppWrapper>) {
    let transitions = Family::<Labels, Counter>::default();
    registry.register(|registry| {
        registry.register("appwrapper_phase", "Transitions of AppWrappers into a phase", transitions.clone());
    });
    appwrappers.subscribe(move |change| {
        let (before, after) = (change.old.as_deref().map(phase), change.new.as_deref().map(phase));
        let Some(after) = after.filter(|phase| is_counted(phase) && before.as_ref() != Some(phase)) else {
            return;
        };
        if matches!(change.cause, Cause::Initial | Cause::Relist) {
            return;
        }
        let namespace = change.new.as_ref().and_then(|entry| entry.key.namespace()).unwrap_or_default();
        transitions.get_or_create(&Labels { namespace: namespace.to_owned(), phase: after }).inc();
    });
}

fn phase(entry: &Entry<AppWrapper>) -> String {
    entry.object.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default()
}

fn is_counted(phase: &str) -> bool {
    !matches!(Phase::parse(phase), Some(Phase::Empty | Phase::Terminating))
}
