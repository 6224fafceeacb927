//! `modelregistry.opendatahub.io/v1beta1`: model registries.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::rules::{CERTIFICATE_WITH_KEY, ONE_PROXY, POSTGRES};
use crate::resource::resource;
use crate::schema::{HOST_NAME_OR_EMPTY, rules};

resource! {
    /// A model registry server with its database connection and, optionally, an authenticating proxy. Names
    /// are unique in the whole cluster.
    ModelRegistry in "modelregistry.opendatahub.io" "v1beta1", namespaced "modelregistries" {
        /// The server, its database and its access. `rest` and one database are required.
        #[serde(default)]
        spec: ModelRegistrySpec,
    }
    maybe {
        /// Addresses and health of the registry; written by the operator only.
        status: ModelRegistryStatus,
    }
}

/// A registry. One of `postgres` and `mysql` is required; if both are set, `postgres` is used. At most one
/// proxy.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(ONE_PROXY))]
pub struct ModelRegistrySpec {
    /// Ignored; kept for old manifests.
    #[serde(rename = "downgrade_db_schema_version")]
    pub downgrade_db_schema_version: Option<i64>,
    /// Ignored; kept for old manifests. The server migrates its database by itself.
    #[serde(rename = "enable_database_upgrade")]
    pub enable_database_upgrade: Option<bool>,
    /// Ignored; the server offers REST only. Kept for old manifests.
    pub grpc: Option<GrpcSpec>,
    /// Proxy that lets in only callers allowed to `get` the registry's Service. Added by default on
    /// OpenShift; elsewhere absent means no authentication.
    #[serde(rename = "kubeRBACProxy")]
    pub kube_rbac_proxy: Option<KubeRbacProxyConfig>,
    /// Existing MySQL database to use. Ignored if `postgres` is set too.
    pub mysql: Option<MySqlConfig>,
    /// Former proxy settings. Deprecated: moved to `kubeRBACProxy` (all but the image) as soon as they are
    /// set.
    pub oauth_proxy: Option<OAuthProxyConfig>,
    /// PostgreSQL database to use or to create.
    pub postgres: Option<PostgresConfig>,
    /// The REST server; may be empty (`{}`).
    #[schemars(required)]
    pub rest: Option<RestSpec>,
}

/// Settings of the former gRPC server, without effect.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrpcSpec {
    /// Ignored.
    pub image: Option<String>,
    /// Ignored.
    #[schemars(range(min = 0, max = 65535), extend("default" = 9090))]
    pub port: Option<i32>,
    /// Ignored.
    pub resources: Option<ResourceRequirements>,
}

/// The proxy in front of the REST server, which checks bearer tokens and permissions with Kubernetes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(CERTIFICATE_WITH_KEY))]
pub struct KubeRbacProxyConfig {
    /// Domain of the external host name, which is the registry's name, `-rest.` and this. Absent: the
    /// cluster's own domain for applications.
    #[schemars(length(max = 253), regex(pattern = HOST_NAME_OR_EMPTY))]
    pub domain: Option<String>,
    /// Image of the proxy. Absent: the operator's.
    pub image: Option<String>,
    /// Port on which the proxy and the Service listen with HTTPS; default 8443.
    #[schemars(range(min = 0, max = 65535), extend("default" = 8443))]
    pub port: Option<i32>,
    /// Port shown in the external address; default 443. It does not change where the router listens.
    #[schemars(range(min = 0, max = 65535), extend("default" = 443))]
    pub route_port: Option<i32>,
    /// Whether an OpenShift Route to the proxy is made; default `enabled`. Without effect on other clusters.
    #[schemars(extend("default" = "enabled"))]
    pub service_route: Option<RouteState>,
    /// Certificate of the proxy; set together with `tlsKeySecret`. Absent: `tls.crt` of the Secret named
    /// after the registry with `-kube-rbac-proxy`, which OpenShift issues and others must supply.
    pub tls_certificate_secret: Option<SecretKeyValue>,
    /// Private key of the proxy; set together with `tlsCertificateSecret`. Absent: `tls.key` of the same
    /// default Secret.
    pub tls_key_secret: Option<SecretKeyValue>,
}

/// Whether a Route exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum RouteState {
    #[serde(rename = "disabled")]
    /// No Route; an existing one is deleted.
    Disabled,
    #[default]
    #[serde(rename = "enabled")]
    /// A Route is made.
    Enabled,
}

/// A key of a Secret in the registry's namespace.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyValue {
    /// Key in the Secret.
    pub key: String,
    /// Name of the Secret.
    pub name: String,
}

/// Connection to an existing MySQL database.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MySqlConfig {
    /// Name of the database.
    pub database: String,
    /// Host name or address of the server. If empty, the whole `mysql` section is dropped.
    pub host: String,
    /// Password of the user; none when absent. Avoid `@`, `/`, `:` and `?` in it, since it goes into a
    /// connection string as it is.
    pub password_secret: Option<SecretKeyValue>,
    /// Port of the server; default 3306.
    #[schemars(range(min = 1, max = 65535), extend("default" = 3306))]
    pub port: Option<i32>,
    /// Ignored; kept for old manifests.
    #[serde(rename = "skipDBCreation")]
    #[schemars(extend("default" = false))]
    pub skip_db_creation: Option<bool>,
    /// Client certificate (PEM), if the server asks for one; needs `sslKeySecret`.
    pub ssl_certificate_secret: Option<SecretKeyValue>,
    /// Ciphers to permit, separated by colons. Absent: the library's choice.
    pub ssl_cipher: Option<String>,
    /// Private key (PEM) of `sslCertificateSecret`.
    pub ssl_key_secret: Option<SecretKeyValue>,
    /// CA certificate (PEM) to trust for the server, from a ConfigMap; wins over `sslRootCertificateSecret`.
    pub ssl_root_certificate_config_map: Option<ConfigMapKeyValue>,
    /// CA certificate (PEM) to trust for the server, from a Secret.
    pub ssl_root_certificate_secret: Option<SecretKeyValue>,
    /// ConfigMap holding several CA certificates. Does not work with current servers, which expect one file:
    /// use `sslRootCertificateConfigMap`.
    pub ssl_root_certificates_config_map_name: Option<String>,
    /// Secret holding several CA certificates. Does not work with current servers, which expect one file: use
    /// `sslRootCertificateSecret`.
    pub ssl_root_certificates_secret_name: Option<String>,
    /// User to connect as.
    pub username: String,
    /// Whether the registry verifies the database's certificate. Absent: the registry server's own default.
    pub verify_server_cert: Option<bool>,
}

/// A key of a ConfigMap in the registry's namespace.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKeyValue {
    /// Key in the ConfigMap.
    pub key: String,
    /// Name of the ConfigMap.
    pub name: String,
}

/// Former proxy settings, taken over into `kubeRBACProxy`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(CERTIFICATE_WITH_KEY))]
pub struct OAuthProxyConfig {
    /// Taken over as `kubeRBACProxy.domain`.
    #[schemars(length(max = 253), regex(pattern = HOST_NAME_OR_EMPTY))]
    pub domain: Option<String>,
    /// Ignored; not taken over.
    pub image: Option<String>,
    /// Taken over as `kubeRBACProxy.port`; default 8443.
    #[schemars(range(min = 0, max = 65535), extend("default" = 8443))]
    pub port: Option<i32>,
    /// Taken over as `kubeRBACProxy.routePort`; default 443.
    #[schemars(range(min = 0, max = 65535), extend("default" = 443))]
    pub route_port: Option<i32>,
    /// Taken over as `kubeRBACProxy.serviceRoute`; default `enabled`.
    #[schemars(extend("default" = "enabled"))]
    pub service_route: Option<RouteState>,
    /// Taken over as `kubeRBACProxy.tlsCertificateSecret`; set together with `tlsKeySecret`.
    pub tls_certificate_secret: Option<SecretKeyValue>,
    /// Taken over as `kubeRBACProxy.tlsKeySecret`; set together with `tlsCertificateSecret`.
    pub tls_key_secret: Option<SecretKeyValue>,
}

/// Connection to a PostgreSQL database: either a host, or `generateDeployment`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(POSTGRES))]
pub struct PostgresConfig {
    /// Name of the database; needs `username`. Ignored with `generateDeployment`.
    pub database: Option<String>,
    /// When true, a PostgreSQL server with a 5Gi volume is created for the registry and deleted with it, data
    /// included; user, database, port and TLS settings here are then ignored. Default false. Excludes `host`
    /// and `hostAddress`.
    pub generate_deployment: Option<bool>,
    /// Host name of the server; wins over `hostAddress`. One of the two is required unless
    /// `generateDeployment` is true.
    pub host: Option<String>,
    /// IP address of the server, used if `host` is not set.
    pub host_address: Option<String>,
    /// Image of the server made by `generateDeployment`. Absent: the operator's.
    pub image: Option<String>,
    /// Password of the user; none when absent. Avoid `@`, `/`, `:` and `?` in it, since it goes into a
    /// connection string as it is.
    pub password_secret: Option<SecretKeyValue>,
    /// Port of the server; default 5432.
    #[schemars(range(min = 1, max = 65535), extend("default" = 5432))]
    pub port: Option<i32>,
    /// Ignored; kept for old manifests.
    #[serde(rename = "skipDBCreation")]
    #[schemars(extend("default" = false))]
    pub skip_db_creation: Option<bool>,
    /// Client certificate (PEM), if the server asks for one; needs `sslKeySecret`. Any certificate setting
    /// makes the registry server connect with `require`, whatever `sslMode` says.
    pub ssl_certificate_secret: Option<SecretKeyValue>,
    /// Private key (PEM) of `sslCertificateSecret`.
    pub ssl_key_secret: Option<SecretKeyValue>,
    /// How far the connection is encrypted and verified, as in libpq; default `disable`.
    #[schemars(extend("default" = "disable"))]
    pub ssl_mode: Option<PostgresSslMode>,
    /// Pass phrase of the key in `sslKeySecret`. Without effect on current servers: use an unencrypted key.
    pub ssl_password_secret: Option<SecretKeyValue>,
    /// CA certificate (PEM) to trust for the server, from a ConfigMap; wins over `sslRootCertificateSecret`.
    pub ssl_root_certificate_config_map: Option<ConfigMapKeyValue>,
    /// CA certificate (PEM) to trust for the server, from a Secret.
    pub ssl_root_certificate_secret: Option<SecretKeyValue>,
    /// User to connect as. Ignored with `generateDeployment`.
    pub username: Option<String>,
}

/// Encryption and verification of the connection, from weakest to strongest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PostgresSslMode {
    #[default]
    #[serde(rename = "disable")]
    /// Never encrypt.
    Disable,
    #[serde(rename = "allow")]
    /// Encrypt only if the server insists.
    Allow,
    #[serde(rename = "prefer")]
    /// Encrypt if the server can.
    Prefer,
    #[serde(rename = "require")]
    /// Always encrypt, without checking whose certificate it is.
    Require,
    #[serde(rename = "verify-ca")]
    /// Always encrypt, and check that a trusted CA issued the certificate.
    VerifyCa,
    #[serde(rename = "verify-full")]
    /// As `verify-ca`, and the certificate must carry the host's name.
    VerifyFull,
}

/// The REST server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestSpec {
    /// Image of the server. Absent: the operator's. One from the default image's repository, whatever its
    /// tag, is dropped with `resources` while `status.specDefaults` is empty.
    pub image: Option<String>,
    /// Port of the server, and of the Service if there is no proxy; default 8080.
    #[schemars(range(min = 1, max = 65535), extend("default" = 8080))]
    pub port: Option<i32>,
    /// Requests and limits of the server; `claims` are not used. Absent: 100m CPU requested, 256Mi memory
    /// requested and as limit.
    pub resources: Option<ResourceRequirements>,
    /// Whether an unauthenticated OpenShift Route to this port is made; default `disabled`. Useless together
    /// with a proxy, since the Service then has no such port.
    #[schemars(extend("default" = "disabled"))]
    pub service_route: Option<RouteState>,
}

/// What was observed of a registry.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelRegistryStatus {
    /// `Available`, `Progressing`, `KubeRBACProxyAvailable` (with a proxy) and, while being deleted,
    /// `Degraded`.
    pub conditions: Option<Vec<Condition>>,
    /// Host names that reach the registry, external ones first.
    pub hosts: Option<Vec<String>>,
    /// The same host names, joined by commas.
    pub hosts_str: Option<String>,
    /// Settings the operator has filled in for absent ones, as the text of a JSON merge patch on the spec.
    pub spec_defaults: Option<String>,
}
