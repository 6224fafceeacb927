//! What a cluster does by itself: objects every cluster has, dependents of deleted objects, namespaces.

pub(crate) mod bootstrap;
mod events;
mod garbage;
mod history;
pub(crate) mod namespaces;
mod pods;
mod protection;
pub(crate) mod queue;
pub(crate) mod quotas;

use crate::api::Api;

/// Starts the background work.
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
