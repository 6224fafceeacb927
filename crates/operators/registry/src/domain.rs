//! The domain under which Routes have their hosts.

use quintet_controller::cache::{Cache, Caches, Selector, WatchSpec};
use quintet_controller::{Error, ObjectKey};
use serde::{Deserialize, Serialize};

use crate::kinds;
use crate::settings::Settings;

/// OpenShift's only Ingress configuration.
const CLUSTER: &str = "cluster";

/// Where the domain comes from.
#[derive(Clone)]
pub(crate) struct Domain {
    configured: Option<String>,
    pub(crate) config: Cache<IngressConfig>,
}

/// What is kept of OpenShift's Ingress configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct IngressConfig {
    spec: IngressConfigSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct IngressConfigSpec {
    apps_domain: String,
    domain: String,
}

impl Domain {
    pub(crate) fn watch(caches: &Caches, settings: &Settings) -> Result<Self, Error> {
        let spec = WatchSpec::projected(kinds::ingress_config(), |text| serde_json::from_str(text))
            .select(Selector::all().named(CLUSTER))
            .optional();
        Ok(Self { configured: settings.default_domain.clone(), config: caches.watch(spec)? })
    }

    /// The domain; empty if nobody says it.
    pub(crate) fn get(&self) -> String {
        if let Some(domain) = &self.configured {
            return domain.clone();
        }
        let config = self.config.get(&ObjectKey::cluster(CLUSTER));
        config.map(|config| config.object.domain().to_owned()).unwrap_or_default()
    }
}

impl IngressConfig {
    fn domain(&self) -> &str {
        let IngressConfigSpec { apps_domain, domain } = &self.spec;
        if apps_domain.is_empty() { domain } else { apps_domain }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_domain_of_applications_goes_first() {
        let domain = |spec| {
            let config: IngressConfig = serde_json::from_value(json!({"spec": spec})).unwrap();
            config.domain().to_owned()
        };
        assert_eq!(domain(json!({"domain": "a", "appsDomain": "b"})), "b");
        assert_eq!(domain(json!({"domain": "a"})), "a");
        assert_eq!(domain(json!({})), "");
    }
}
