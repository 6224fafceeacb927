//! The DNS domain under which Ray clusters are reached: the configured one, or that of OpenShift.

use quintet_controller::cache::{Cache, Caches, Selector, WatchSpec};
use quintet_controller::{ApiKind, Error, ObjectKey};
use serde::{Deserialize, Serialize};

use crate::settings::Hardening;

/// The name of OpenShift's only Ingress configuration.
const CLUSTER: &str = "cluster";

/// Where the domain comes from.
#[derive(Clone)]
pub(super) enum Domain {
    Configured(String),
    OfOpenShift(Cache<IngressConfig>),
}

/// What is kept of OpenShift's Ingress configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct IngressConfig {
    spec: IngressConfigSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct IngressConfigSpec {
    domain: String,
}

impl Domain {
    pub(super) fn watch(caches: &Caches, hardening: &Hardening) -> Result<Self, Error> {
        if !hardening.config.ingress_domain.is_empty() || !hardening.is_openshift {
            return Ok(Self::Configured(hardening.config.ingress_domain.clone()));
        }
        let kind = ApiKind::cluster_scoped("config.openshift.io", "v1", "Ingress", "ingresses");
        let spec = WatchSpec::projected(kind, |text| serde_json::from_str(text))
            .select(Selector::all().named(CLUSTER))
            .optional();
        caches.watch(spec).map(Self::OfOpenShift)
    }

    /// Resolves when it was asked for.
    pub(super) async fn known(&self) {
        if let Self::OfOpenShift(cache) = self {
            cache.synced().await;
        }
    }

    /// The domain; empty if the cluster does not say.
    pub(super) fn get(&self) -> String {
        match self {
            Self::Configured(domain) => domain.clone(),
            Self::OfOpenShift(cache) => cache
                .get(&ObjectKey::cluster(CLUSTER))
                .map(|config| config.object.spec.domain.clone())
                .unwrap_or_default(),
        }
    }
}
