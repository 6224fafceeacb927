//! Controllers that kube-controller-manager runs in other clusters: garbage collection, namespaces, quotas, pods,
//! protection finalizers, and the expiry of events and watch histories.

mod events;
mod garbage;
mod history;
pub(crate) mod namespaces;
mod pods;
mod protection;
pub(crate) mod queue;
pub(crate) mod quotas;

use crate::api::Api;

/// Starts all controllers.
pub(crate) fn start(api: &Api) {
    events::start(api);
    garbage::start(api);
    history::start(api);
    namespaces::start(api);
    pods::start(api);
    protection::start(api);
    quotas::start(api);
    crate::crd::removal::start(api);
}
