//! What changes the operator's behaviour: upstream's environment variables.

use quintet_api::platform::AIHubSpec;
use serde::{Deserialize, Serialize};

pub(crate) const REST_IMAGE: &str = "RELATED_IMAGE_ODH_MODEL_REGISTRY_IMAGE";
pub(crate) const PROXY_IMAGE: &str = "RELATED_IMAGE_ODH_KUBE_RBAC_PROXY_IMAGE";
pub(crate) const POSTGRES_IMAGE: &str = "RELATED_IMAGE_POSTGRESQL_16_IMAGE";
pub(crate) const METADATA_IMAGE: &str = "RELATED_IMAGE_ODH_MODEL_METADATA_COLLECTION_IMAGE";
pub(crate) const PERFORMANCE_IMAGE: &str = "RELATED_IMAGE_ODH_MODEL_PERFORMANCE_DATA_IMAGE";
pub(crate) const REGISTRIES_NAMESPACE: &str = "REGISTRIES_NAMESPACE";
pub(crate) const ENABLE_WEBHOOKS: &str = "ENABLE_WEBHOOKS";
pub(crate) const DEFAULT_DOMAIN: &str = "DEFAULT_DOMAIN";
pub(crate) const SKIP_CATALOG_DATABASE: &str = "SKIP_MODEL_CATALOG_DB_CREATION";
pub(crate) const CATALOG_USER: &str = "CATALOG_POSTGRES_USER";
pub(crate) const CATALOG_DATABASE: &str = "CATALOG_POSTGRES_DATABASE";
pub(crate) const GATEWAY_DOMAIN: &str = "GATEWAY_DOMAIN";
pub(crate) const GATEWAY_NAME: &str = "GATEWAY_NAME";
pub(crate) const GATEWAY_NAMESPACE: &str = "GATEWAY_NAMESPACE";
pub(crate) const HTTPROUTE_NAMESPACE: &str = "HTTPROUTE_NAMESPACE";
pub(crate) const MIGRATION_SOURCE: &str = "STORAGE_MIGRATION_SOURCE_VERSION";
pub(crate) const MIGRATION_TARGET: &str = "STORAGE_MIGRATION_TARGET_VERSION";

/// The variables of upstream's operator that Quintet honours.
pub(crate) const ENVIRONMENT: &[&str] = &[
    CATALOG_DATABASE,
    CATALOG_USER,
    DEFAULT_DOMAIN,
    ENABLE_WEBHOOKS,
    GATEWAY_DOMAIN,
    GATEWAY_NAME,
    GATEWAY_NAMESPACE,
    HTTPROUTE_NAMESPACE,
    METADATA_IMAGE,
    MIGRATION_SOURCE,
    MIGRATION_TARGET,
    PERFORMANCE_IMAGE,
    POSTGRES_IMAGE,
    PROXY_IMAGE,
    REGISTRIES_NAMESPACE,
    REST_IMAGE,
    SKIP_CATALOG_DATABASE,
];

/// The settings of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Image of registry servers and of the catalog server.
    pub rest_image: String,
    /// Image of the proxy.
    pub proxy_image: String,
    /// Image of databases that the operator runs.
    pub postgres_image: String,
    /// Image with the models of the catalog.
    pub metadata_image: String,
    /// Image with the benchmarks of the catalog.
    pub performance_image: String,
    /// The only namespace in which registries and the catalog may be; any if there is none.
    pub registries_namespace: Option<String>,
    /// Whether admission webhooks are served. Without them, the controller defaults and validates.
    pub webhooks: bool,
    /// The domain of Routes. On OpenShift the cluster says it otherwise.
    pub default_domain: Option<String>,
    /// Whether the catalog's database is somebody else's.
    pub skip_catalog_database: bool,
    /// User of the catalog's database.
    pub catalog_user: String,
    /// Name of the catalog's database.
    pub catalog_database: String,
    /// How registries are reached through a Gateway, if they are.
    pub gateway: Option<Gateway>,
    /// Name and namespace of the Gateway, also if it has no domain.
    pub gateway_key: GatewayKey,
    /// Where HTTPRoutes are made.
    pub http_route_namespace: String,
    /// The version that stored registries are migrated from, and to.
    pub migration: Option<(String, String)>,
}

/// The Gateway of the platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// Its host name.
    pub domain: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// Which Gateway it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayKey {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

impl GatewayKey {
    fn with(&self, domain: String) -> Gateway {
        Gateway { domain, name: self.name.clone(), namespace: self.namespace.clone() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::read(|_| None)
    }
}

impl Settings {
    /// Puts together what the environment says. An empty variable counts as unset.
    pub fn read(environment: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name: &str| environment(name).filter(|value| !value.is_empty());
        let or = |name: &str, default: &str| text(name).unwrap_or_else(|| default.to_owned());
        let metadata = "quay.io/opendatahub/odh-model-metadata-collection:latest";
        let gateway_key = GatewayKey {
            name: or(GATEWAY_NAME, "data-science-gateway"),
            namespace: or(GATEWAY_NAMESPACE, "openshift-ingress"),
        };
        let source = text(MIGRATION_SOURCE).unwrap_or_default();
        let target = text(MIGRATION_TARGET).unwrap_or_default();
        Self {
            rest_image: or(REST_IMAGE, "quay.io/opendatahub/model-registry:latest"),
            proxy_image: or(PROXY_IMAGE, "quay.io/openshift/origin-kube-rbac-proxy:latest"),
            postgres_image: or(POSTGRES_IMAGE, "quay.io/sclorg/postgresql-16-c10s:latest"),
            metadata_image: or(METADATA_IMAGE, metadata),
            performance_image: or(PERFORMANCE_IMAGE, metadata),
            registries_namespace: text(REGISTRIES_NAMESPACE)
                .map(|name| name.trim().to_owned())
                .filter(|name| is_dns_label(name)),
            webhooks: environment(ENABLE_WEBHOOKS).as_deref() != Some("false"),
            default_domain: text(DEFAULT_DOMAIN),
            skip_catalog_database: environment(SKIP_CATALOG_DATABASE).as_deref() == Some("true"),
            catalog_user: or(CATALOG_USER, "catalog_user"),
            catalog_database: or(CATALOG_DATABASE, "model_catalog"),
            gateway: text(GATEWAY_DOMAIN).map(|domain| gateway_key.with(domain)),
            gateway_key,
            http_route_namespace: or(HTTPROUTE_NAMESPACE, "redhat-ods-applications"),
            migration: (source != target).then_some((source, target)),
        }
    }
}

impl Settings {
    /// The same with what the platform's AIHub says laid over it.
    #[must_use]
    pub fn overlaid(&self, hub: &AIHubSpec) -> Self {
        let mut settings = self.clone();
        settings.registries_namespace = Some(hub.instances_namespace.clone());
        settings.http_route_namespace.clone_from(&hub.application_namespace);
        let domain = hub.gateway.as_ref().and_then(|gateway| gateway.domain.as_deref());
        if let Some(domain) = domain.filter(|domain| !domain.is_empty()) {
            settings.gateway = Some(settings.gateway_key.with(domain.to_owned()));
        }
        settings
    }
}

/// Whether a text is a DNS label, as names of namespaces and volumes are.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(environment: &[(&str, &str)]) -> Settings {
        Settings::read(|name| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn webhooks_are_off_and_flags_are_on_for_one_word_only() {
        for (value, webhooks) in [("false", false), ("FALSE", true), ("0", true), ("", true)] {
            assert_eq!(read(&[(ENABLE_WEBHOOKS, value)]).webhooks, webhooks, "{value}");
        }
        for (value, skips) in [("true", true), ("True", false), ("1", false), ("", false)] {
            assert_eq!(read(&[(SKIP_CATALOG_DATABASE, value)]).skip_catalog_database, skips, "{value}");
        }
    }

    #[test]
    fn a_namespace_that_is_none_restricts_nothing() {
        for (value, expected) in [
            ("models", Some("models")),
            (" models\n", Some("models")),
            ("", None),
            ("No.Name", None),
            ("-a", None),
        ] {
            let settings = read(&[(REGISTRIES_NAMESPACE, value)]);
            assert_eq!(settings.registries_namespace.as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn a_domain_makes_a_gateway() {
        assert_eq!(read(&[(GATEWAY_NAME, "gw")]).gateway, None);
        let gateway = read(&[(GATEWAY_DOMAIN, "gw.example.com"), (GATEWAY_NAME, "gw")]).gateway.unwrap();
        assert_eq!((gateway.name.as_str(), gateway.namespace.as_str()), ("gw", "openshift-ingress"));
    }

    #[test]
    fn the_hub_says_where_registries_are() {
        let hub = |domain: Option<&str>| AIHubSpec {
            application_namespace: "apps".to_owned(),
            instances_namespace: "models".to_owned(),
            gateway: domain
                .map(|domain| quintet_api::platform::AIHubGateway { domain: Some(domain.to_owned()) }),
        };
        let plain = read(&[(GATEWAY_NAME, "gw")]).overlaid(&hub(None));
        assert_eq!(plain.registries_namespace.as_deref(), Some("models"));
        assert_eq!((plain.http_route_namespace.as_str(), plain.gateway), ("apps", None));
        let gateway = read(&[(GATEWAY_NAME, "gw")]).overlaid(&hub(Some("d"))).gateway.unwrap();
        assert_eq!((gateway.name.as_str(), gateway.domain.as_str()), ("gw", "d"));
    }

    #[test]
    fn versions_are_migrated_if_they_differ() {
        assert_eq!(read(&[]).migration, None);
        let both = [(MIGRATION_SOURCE, "v1alpha1"), (MIGRATION_TARGET, "v1beta1")];
        assert_eq!(read(&both).migration, Some(("v1alpha1".to_owned(), "v1beta1".to_owned())));
    }
}
