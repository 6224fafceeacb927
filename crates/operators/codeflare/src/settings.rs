//! What changes the behaviour of the operator.

use std::sync::Arc;

use quintet_api::config::codeflare::{AppWrapperConfiguration, CodeFlareConfiguration, KubeRayConfiguration};
use serde::{Deserialize, Serialize};

/// The image of the init container that makes certificates.
pub(crate) const CERT_GENERATOR_IMAGE: &str = "CERT_GENERATOR_IMAGE";
/// The image of the OAuth proxy.
pub(crate) const OAUTH_PROXY_IMAGE: &str = "OAUTH_PROXY_IMAGE";

const DEFAULT_CERT_GENERATOR_IMAGE: &str =
    "registry.redhat.io/ubi9@sha256:770cf07083e1c85ae69c25181a205b7cdef63c11b794c89b3b487d4670b4c328";
const DEFAULT_OAUTH_PROXY_IMAGE: &str = "registry.redhat.io/openshift4/ose-oauth-proxy@sha256:\
                                         1ea6a01bf3e63cdcf125c6064cbd4a4a270deaf0f157b3eabb78f60556840366";

/// What the operator does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// How AppWrappers are reconciled; `None` if they are not.
    pub(crate) appwrapper: Option<Arc<AppWrapperConfiguration>>,
    /// Whether their webhooks are served.
    pub(crate) appwrapper_webhooks: bool,
    /// What is added to Ray clusters; `None` if nothing is.
    pub(crate) hardening: Option<Arc<Hardening>>,
}

/// What is added to Ray clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hardening {
    pub(crate) config: KubeRayConfiguration,
    /// The cluster serves OpenShift's APIs.
    pub(crate) is_openshift: bool,
    pub(crate) cert_generator_image: String,
    pub(crate) oauth_proxy_image: String,
}

impl Settings {
    /// Reads the section and the environment.
    pub(crate) fn read(
        section: CodeFlareConfiguration,
        environment: &dyn Fn(&str) -> Option<String>,
        is_openshift: bool,
    ) -> Self {
        let (appwrapper, appwrapper_webhooks) = match section.appwrapper {
            Some(switch) => (switch.enabled.then_some(switch.config), switch.webhooks_enabled),
            None => (Some(AppWrapperConfiguration::default()), true),
        };
        // As upstream, a variable that is set and empty counts.
        let image = |name: &str, default: &str| environment(name).unwrap_or_else(|| default.to_owned());
        let hardening = section.kuberay.map(|config| {
            Arc::new(Hardening {
                config,
                is_openshift,
                cert_generator_image: image(CERT_GENERATOR_IMAGE, DEFAULT_CERT_GENERATOR_IMAGE),
                oauth_proxy_image: image(OAUTH_PROXY_IMAGE, DEFAULT_OAUTH_PROXY_IMAGE),
            })
        });
        Self {
            appwrapper_webhooks: appwrapper_webhooks && appwrapper.is_some(),
            appwrapper: appwrapper.map(Arc::new),
            hardening,
        }
    }
}

impl Hardening {
    /// An OAuth proxy guards the dashboard. It needs OpenShift; as upstream, the pods are changed on any cluster.
    pub(crate) fn has_oauth(&self) -> bool {
        self.config.ray_dashboard_oauth_enabled
    }

    /// Ray's processes authenticate each other.
    pub(crate) fn has_mtls(&self) -> bool {
        self.config.mtls_enabled
    }

    /// Objects for the OAuth proxy are made.
    pub(crate) fn makes_oauth_objects(&self) -> bool {
        self.has_oauth() && self.is_openshift
    }

    /// Ingresses are made.
    pub(crate) fn makes_ingresses(&self) -> bool {
        !self.has_oauth() && !self.is_openshift
    }
}

#[cfg(test)]
mod tests {
    use quintet_api::config::codeflare::AppWrapperSwitch;

    use super::*;

    fn read(section: CodeFlareConfiguration) -> Settings {
        Settings::read(section, &|_| None, false)
    }

    #[test]
    fn without_a_section_appwrappers_are_reconciled_and_ray_clusters_left_alone() {
        let settings = read(CodeFlareConfiguration::default());
        assert!(
            settings.appwrapper.is_some() && settings.appwrapper_webhooks && settings.hardening.is_none()
        );
    }

    #[test]
    fn a_section_says_what_is_on() {
        let section = CodeFlareConfiguration {
            kuberay: Some(KubeRayConfiguration::default()),
            appwrapper: Some(AppWrapperSwitch::default()),
        };
        let settings = read(section);
        assert!(settings.appwrapper.is_none() && !settings.appwrapper_webhooks);
        assert_eq!(settings.hardening.unwrap().cert_generator_image, DEFAULT_CERT_GENERATOR_IMAGE);
    }

    #[test]
    fn images_come_from_the_environment() {
        let section =
            CodeFlareConfiguration { kuberay: Some(KubeRayConfiguration::default()), appwrapper: None };
        let variable = |name: &str| (name == OAUTH_PROXY_IMAGE).then(String::new);
        let hardening = Settings::read(section, &variable, true).hardening.unwrap();
        assert_eq!(hardening.oauth_proxy_image, "", "set and empty");
    }
}
