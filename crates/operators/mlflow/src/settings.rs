//! What changes the operator's behaviour, from the configuration file and upstream's environment variables.

use quintet_api::config::mlflow::MLflowConfiguration;
use quintet_api::platform::MLflowOperatorSpec;
use serde::{Deserialize, Serialize};

/// The MLflow version that this operator migrates databases to, as `status.version` says it.
pub const SUPPORTED_VERSION: &str = "3.14.0";

/// The external address as long as none is configured.
const PLACEHOLDER_URL: &str = "https://mlflow.example.com";

pub(crate) const POD_NAMESPACE: &str = "POD_NAMESPACE";
pub(crate) const RELATED_IMAGE: &str = "RELATED_IMAGE_ODH_MLFLOW_IMAGE";
pub(crate) const IMAGE: &str = "MLFLOW_IMAGE";
pub(crate) const GATEWAY_NAME: &str = "GATEWAY_NAME";
pub(crate) const URL: &str = "MLFLOW_URL";
pub(crate) const SECTION_TITLE: &str = "SECTION_TITLE";
pub(crate) const APPLICATIONS_NAMESPACE: &str = "APPLICATIONS_NAMESPACE";
pub(crate) const MODULE_MODE: &str = "ENABLE_MLFLOW_OPERATOR_MODULE_CONTROLLER";
pub(crate) const NAMESPACE_RBAC: &str = "ENABLE_NAMESPACE_RBAC";
pub(crate) const RESOURCE_NAME_PREFIX: &str = "RESOURCE_NAME_PREFIX";

/// The settings of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Where the MLflow server and everything it needs is put.
    pub namespace: String,
    /// The image of servers whose spec names none.
    pub image: Option<String>,
    /// The supported MLflow version.
    pub version: String,
    /// The Gateway that routes are attached to.
    pub gateway_name: String,
    /// The external address, without `/mlflow`.
    pub url: String,
    /// Whether the external address was set. Only then it is published in `status.url`.
    pub url_is_configured: bool,
    /// The section of the console's application menu.
    pub section_title: String,
    /// Whether the platform's MLflowOperator is needed, and configures this operator.
    pub module_mode: bool,
    /// Whether labelled namespaces get RoleBindings for the groups of the platform.
    pub namespace_rbac: bool,
    /// What the names of the view and edit ClusterRoles begin with.
    pub role_prefix: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "opendatahub".to_owned(),
            image: None,
            version: SUPPORTED_VERSION.to_owned(),
            gateway_name: "data-science-gateway".to_owned(),
            url: PLACEHOLDER_URL.to_owned(),
            url_is_configured: false,
            section_title: "MLflow".to_owned(),
            module_mode: false,
            namespace_rbac: false,
            role_prefix: "mlflow-operator-".to_owned(),
        }
    }
}

impl Settings {
    /// Puts together what the configuration and the environment say. The error is for the user to fix.
    pub fn read(
        configuration: &MLflowConfiguration,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        // An empty variable counts as unset, but for the address.
        let text = |name: &str| environment(name).filter(|value| !value.is_empty());
        let is_on = |name: &str| text(name).is_some_and(|value| is_true(&value));
        let defaults = Self::default();
        let module_mode = is_on(MODULE_MODE);
        let own =
            configuration.namespace.clone().or_else(|| text(POD_NAMESPACE)).unwrap_or(defaults.namespace);
        let namespace = text(APPLICATIONS_NAMESPACE).filter(|_| module_mode).unwrap_or(own);
        if namespace.is_empty() {
            return Err("invalid startup configuration: namespace cannot be empty".to_owned());
        }
        Ok(Self {
            namespace,
            image: text(RELATED_IMAGE).or_else(|| text(IMAGE)),
            gateway_name: text(GATEWAY_NAME).unwrap_or(defaults.gateway_name),
            url: text(URL).unwrap_or(defaults.url),
            url_is_configured: environment(URL).is_some(),
            section_title: text(SECTION_TITLE).unwrap_or(defaults.section_title),
            module_mode,
            namespace_rbac: is_on(NAMESPACE_RBAC),
            role_prefix: text(RESOURCE_NAME_PREFIX).unwrap_or(defaults.role_prefix),
            version: defaults.version,
        })
    }

    /// The same with what the platform's MLflowOperator says laid over it.
    #[must_use]
    pub fn overlaid(mut self, module: &MLflowOperatorSpec) -> Self {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(gateway) = given(&module.gateway_name) {
            self.gateway_name = gateway;
        }
        if let Some(title) = given(&module.section_title) {
            self.section_title = title;
        }
        let domain = module.gateway.as_ref().and_then(|gateway| gateway.domain.as_deref());
        if let Some(domain) = domain.filter(|domain| !domain.is_empty()) {
            let domain = domain.trim_end_matches('/').trim();
            let is_complete =
                domain.is_empty() || domain.starts_with("https://") || domain.starts_with("http://");
            self.url = if is_complete { domain.to_owned() } else { format!("https://{domain}") };
            self.url_is_configured = true;
        }
        self
    }

    /// The address of the server inside the cluster, as clients need it.
    pub fn tracking_uri(&self) -> String {
        format!("{}/mlflow", self.service_url())
    }

    /// The address of the server inside the cluster, without a path.
    pub fn service_url(&self) -> String {
        format!("https://mlflow.{}.svc:8443", self.namespace)
    }
}

/// What Go's `strconv.ParseBool` takes for true.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

#[cfg(test)]
mod tests {
    use quintet_api::platform::MLflowGateway;

    use super::*;

    fn read(environment: &[(&str, &str)]) -> Result<Settings, String> {
        let lookup = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Settings::read(&MLflowConfiguration::default(), lookup)
    }

    #[test]
    fn without_variables_the_defaults_hold() {
        assert_eq!(read(&[]), Ok(Settings::default()));
    }

    #[test]
    fn the_related_image_is_preferred_and_empty_variables_count_as_unset() {
        let settings = read(&[(RELATED_IMAGE, "a"), (IMAGE, "b"), (GATEWAY_NAME, "")]).unwrap();
        assert_eq!(settings.image.as_deref(), Some("a"));
        assert_eq!(settings.gateway_name, "data-science-gateway");
        assert_eq!(read(&[(RELATED_IMAGE, ""), (IMAGE, "b")]).unwrap().image.as_deref(), Some("b"));
    }

    #[test]
    fn an_empty_address_is_configured_and_has_the_placeholder() {
        let settings = read(&[(URL, "")]).unwrap();
        assert_eq!((settings.url.as_str(), settings.url_is_configured), (PLACEHOLDER_URL, true));
    }

    #[test]
    fn the_applications_namespace_counts_in_module_mode_only() {
        assert_eq!(read(&[(APPLICATIONS_NAMESPACE, "apps")]).unwrap().namespace, "opendatahub");
        let module = read(&[(APPLICATIONS_NAMESPACE, "apps"), (MODULE_MODE, "true"), (POD_NAMESPACE, "own")]);
        assert_eq!(module.unwrap().namespace, "apps");
        assert_eq!(read(&[(MODULE_MODE, "1"), (POD_NAMESPACE, "own")]).unwrap().namespace, "own");
    }

    #[test]
    fn an_empty_namespace_is_rejected() {
        let configuration = MLflowConfiguration { namespace: Some(String::new()) };
        let error = Settings::read(&configuration, |_| None).unwrap_err();
        assert_eq!(error, "invalid startup configuration: namespace cannot be empty");
    }

    #[test]
    fn the_module_overrides_what_it_names() {
        let domain = |domain: &str| MLflowOperatorSpec {
            gateway: Some(MLflowGateway { domain: Some(domain.to_owned()) }),
            section_title: Some(String::new()),
            gateway_name: Some("gw".to_owned()),
        };
        let settings = Settings::default().overlaid(&domain(" x.example.com "));
        assert_eq!((settings.url.as_str(), settings.url_is_configured), ("https://x.example.com", true));
        assert_eq!((settings.gateway_name.as_str(), settings.section_title.as_str()), ("gw", "MLflow"));
        assert_eq!(Settings::default().overlaid(&domain("http://x/")).url, "http://x");
        assert_eq!(Settings::default().overlaid(&domain("/")).url, "");
        assert_eq!(Settings::default().overlaid(&MLflowOperatorSpec::default()), Settings::default());
    }
}
