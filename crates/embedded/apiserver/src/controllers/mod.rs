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

/// A controller that other clusters run outside of the API server, and that can be left out here too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Deletes what has no owner any more, and carries out foreground deletion.
    GarbageCollector,
    /// Empties namespaces that are being deleted.
    Namespace,
    /// Deletes pods that are being deleted and have no node.
    PodGarbageCollector,
    /// Removes the protection of unused volumes and claims.
    VolumeProtection,
    /// Counts what quotas limit.
    ResourceQuota,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::GarbageCollector,
        Self::Namespace,
        Self::PodGarbageCollector,
        Self::VolumeProtection,
        Self::ResourceQuota,
    ];

    /// The name that kube-controller-manager gives it.
    pub fn name(self) -> &'static str {
        match self {
            Self::GarbageCollector => "garbage-collector-controller",
            Self::Namespace => "namespace-controller",
            Self::PodGarbageCollector => "pod-garbage-collector-controller",
            Self::VolumeProtection => "persistentvolumeclaim-protection-controller",
            Self::ResourceQuota => "resourcequota-controller",
        }
    }

    fn start(self, api: &Api) {
        match self {
            Self::GarbageCollector => garbage::start(api),
            Self::Namespace => namespaces::start(api),
            Self::PodGarbageCollector => pods::start(api),
            Self::VolumeProtection => protection::start(api),
            Self::ResourceQuota => quotas::start(api),
        }
    }
}

/// Starts the controllers that are not disabled, and what belongs to the API server itself.
pub(crate) fn start(api: &Api) {
    for controller in Controller::ALL.into_iter().filter(|controller| api.runs(*controller)) {
        controller.start(api);
    }
    events::start(api);
    history::start(api);
    crate::crd::removal::start(api);
}
