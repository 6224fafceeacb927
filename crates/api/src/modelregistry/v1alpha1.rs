//! `modelregistry.opendatahub.io/v1alpha1`: the deprecated version, with Istio.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

use super::rules::ISTIO_OR_PROXY;
use super::v1beta1::{
    ConfigMapKeyValue, GrpcSpec, ModelRegistryStatus, MySqlConfig, OAuthProxyConfig, PostgresSslMode,
    RestSpec, RouteState, SecretKeyValue,
};
use crate::resource::resource;
use crate::schema::{HOST_NAME_OR_EMPTY, rules};

resource! {
    /// A model registry server with its database connection and, optionally, an authenticating proxy. Names
    /// are unique in the whole cluster.
    ModelRegistry in "modelregistry.opendatahub.io" "v1alpha1", namespaced "modelregistries" {
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
#[schemars(transform = rules(ISTIO_OR_PROXY))]
pub struct ModelRegistrySpec {
    /// Ignored; kept for old manifests.
    #[serde(rename = "downgrade_db_schema_version")]
    pub downgrade_db_schema_version: Option<i64>,
    /// Ignored; kept for old manifests. The server migrates its database by itself.
    #[serde(rename = "enable_database_upgrade")]
    pub enable_database_upgrade: Option<bool>,
    /// Ignored; the server offers REST only. Kept for old manifests.
    #[schemars(required)]
    pub grpc: Option<GrpcSpec>,
    /// Serve through Istio. Replaced by a proxy in `v1beta1`, to which it is converted.
    pub istio: Option<IstioConfig>,
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

/// How the registry was once exposed through Istio.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IstioConfig {
    /// Token audiences that are accepted.
    pub audiences: Option<Vec<String>>,
    /// Labels by which the authorization provider finds its configuration.
    pub auth_config_labels: Option<BTreeMap<String, String>>,
    /// The name of the external authorization provider.
    pub auth_provider: Option<String>,
    /// The gateway that lets outside clients in; without it the service is internal.
    pub gateway: Option<GatewayConfig>,
    /// TLS mode between the mesh and the registry, `ISTIO_MUTUAL` by default.
    #[schemars(extend("default" = "ISTIO_MUTUAL"))]
    pub tls_mode: Option<String>,
}

/// The gateway of a registry.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayConfig {
    /// The name of the service mesh control plane.
    pub control_plane: Option<String>,
    /// The DNS domain under which host names are made.
    #[schemars(length(max = 253), regex(pattern = HOST_NAME_OR_EMPTY))]
    pub domain: Option<String>,
    /// The gateway's gRPC server.
    pub grpc: ServerConfig,
    /// The ingress gateway to attach to.
    pub istio_ingress: Option<String>,
    /// The gateway's REST server; its route and port carry over to `v1beta1`.
    pub rest: ServerConfig,
}

/// One server of the gateway.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerConfig {
    /// Whether an OpenShift Route is made for it.
    pub gateway_route: Option<RouteState>,
    /// The port it listens on.
    #[schemars(range(min = 0, max = 65535))]
    pub port: Option<i32>,
    /// Its TLS settings; without them it speaks plain text.
    pub tls: Option<TlsServerSettings>,
}

/// TLS of one server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsServerSettings {
    /// The Secret with the certificate and key.
    pub credential_name: Option<String>,
    /// How clients are authenticated.
    #[schemars(extend("default" = "SIMPLE"))]
    pub mode: Option<TlsMode>,
}

/// Who shows a certificate to whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum TlsMode {
    #[default]
    #[serde(rename = "SIMPLE")]
    /// The server does.
    Simple,
    #[serde(rename = "MUTUAL")]
    /// Server and client do.
    Mutual,
    #[serde(rename = "ISTIO_MUTUAL")]
    /// Both do, with certificates that Istio manages.
    IstioMutual,
    #[serde(rename = "OPTIONAL_MUTUAL")]
    /// The server does, and the client may.
    OptionalMutual,
}

/// Connection to a PostgreSQL database: either a host, or `generateDeployment`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostgresConfig {
    /// Name of the database; needs `username`. Ignored with `generateDeployment`.
    pub database: String,
    /// Host name of the server; wins over `hostAddress`. One of the two is required unless
    /// `generateDeployment` is true.
    pub host: Option<String>,
    /// IP address of the server, used if `host` is not set.
    pub host_address: Option<String>,
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
