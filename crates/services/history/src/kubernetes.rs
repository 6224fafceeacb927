//! What the history server asks Kubernetes: which RayClusters run, where their dashboards are, and their tokens.

use base64::Engine as _;
use kube::{Client, Config};
use serde::Deserialize;

use crate::layout::{Kind, Owner};

/// A running RayCluster, as far as it matters here.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RayCluster {
    pub(crate) metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    creation_timestamp: Option<String>,
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}

#[derive(Debug, Clone, Deserialize)]
struct OwnerReference {
    kind: String,
    name: String,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    head_group_spec: HeadGroup,
    auth_options: Option<AuthOptions>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct HeadGroup {
    template: Template,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Template {
    spec: PodSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PodSpec {
    containers: Vec<Container>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Container {
    ports: Vec<Port>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Port {
    name: Option<String>,
    container_port: u16,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AuthOptions {
    mode: Option<String>,
    secret_name: Option<String>,
    enable_k8s_token_auth: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    head: Head,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Head {
    service_name: String,
}

#[derive(Deserialize)]
struct List {
    items: Vec<RayCluster>,
}

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    data: std::collections::BTreeMap<String, String>,
}

/// The dashboard's port if the head container declares none.
const DASHBOARD_PORT: u16 = 8265;

/// The key of the token in its Secret.
const TOKEN_KEY: &str = "auth_token";

/// Names of Secrets are made from the last characters of the cluster's.
const LONGEST_NAME: usize = 50;

impl RayCluster {
    /// Seconds since 1970.
    pub(crate) fn created(&self) -> i64 {
        let time =
            self.metadata.creation_timestamp.as_deref().and_then(|it| it.parse::<jiff::Timestamp>().ok());
        time.map_or(0, jiff::Timestamp::as_second)
    }

    /// The RayJob or RayService that controls the cluster.
    pub(crate) fn owner(&self) -> Option<Owner> {
        let reference = self.metadata.owner_references.iter().find(|it| it.controller == Some(true))?;
        Some(Owner { kind: Kind::parse(&reference.kind)?, name: reference.name.clone() })
    }

    /// The name of the head's Service, once there is one.
    pub(crate) fn service(&self) -> Option<&str> {
        Some(self.status.head.service_name.as_str()).filter(|name| !name.is_empty())
    }

    pub(crate) fn dashboard_port(&self) -> u16 {
        let container = self.spec.head_group_spec.template.spec.containers.first();
        let ports = container.map(|it| it.ports.as_slice()).unwrap_or_default();
        let port = ports.iter().find(|port| port.name.as_deref() == Some("dashboard"));
        port.map_or(DASHBOARD_PORT, |port| port.container_port)
    }
}

/// The Kubernetes API.
#[derive(Clone)]
pub(crate) struct Kubernetes {
    client: Client,
}

/// Why Kubernetes did not answer as hoped.
#[derive(Debug)]
pub(crate) enum Failure {
    NotFound(String),
    Other(String),
}

impl Failure {
    pub(crate) fn into_message(self) -> String {
        match self {
            Self::NotFound(message) | Self::Other(message) => message,
        }
    }
}

impl Kubernetes {
    /// A client that sends nothing again: what a dashboard answers through the API is the answer, also when it is busy.
    pub(crate) fn new(mut config: Config) -> kube::Result<Self> {
        config.default_retry = false;
        Ok(Self { client: Client::try_from(config)? })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(|error| Failure::Other(format!("{path}: {error}")))?;
        self.client.request(request).await.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => Failure::NotFound(status.message.clone()),
            kube::Error::Api(status) => Failure::Other(status.message.clone()),
            error => Failure::Other(format!(
                "the Kubernetes API cannot be reached: {}",
                crate::store::cause(&error)
            )),
        })
    }

    /// All RayClusters.
    pub(crate) async fn clusters(&self) -> Result<Vec<RayCluster>, Failure> {
        self.get::<List>("/apis/ray.io/v1/rayclusters").await.map(|list| list.items)
    }

    /// A RayCluster by name.
    pub(crate) async fn cluster(&self, namespace: &str, name: &str) -> Result<RayCluster, Failure> {
        let (namespace, name) = (encoded(namespace), encoded(name));
        self.get(&format!("/apis/ray.io/v1/namespaces/{namespace}/rayclusters/{name}")).await
    }

    /// The RayClusters of a RayJob or RayService.
    pub(crate) async fn clusters_of(
        &self,
        namespace: &str,
        owner: &Owner,
    ) -> Result<Vec<RayCluster>, Failure> {
        let selector = format!(
            "ray.io/originated-from-cr-name={},ray.io/originated-from-crd={}",
            owner.name,
            owner.kind.label()
        );
        let path = format!(
            "/apis/ray.io/v1/namespaces/{}/rayclusters?labelSelector={}",
            encoded(namespace),
            encoded(&selector)
        );
        self.get::<List>(&path).await.map(|list| list.items)
    }

    /// The token that a cluster's dashboard asks for; `None` if it asks for none.
    pub(crate) async fn token(&self, cluster: &RayCluster) -> Result<Option<String>, String> {
        let Metadata { namespace, name, .. } = &cluster.metadata;
        let Some(options) =
            cluster.spec.auth_options.as_ref().filter(|it| it.mode.as_deref() == Some("token"))
        else {
            return Ok(None);
        };
        if options.enable_k8s_token_auth == Some(true) {
            return Err(format!(
                "cannot authenticate proxied requests to RayCluster {namespace}/{name}: Kubernetes-delegated token \
                 auth (enableK8sTokenAuth) is not supported by the history server"
            ));
        }
        let secret = match options.secret_name.as_deref() {
            Some(secret) if !secret.is_empty() => secret.to_owned(),
            _ => secret_name(name),
        };
        let path = format!("/api/v1/namespaces/{}/secrets/{}", encoded(namespace), encoded(&secret));
        let found: Secret = self.get(&path).await.map_err(|failure| {
            format!("failed to get auth secret {namespace}/{secret}: {}", failure.into_message())
        })?;
        let Some(token) = found.data.get(TOKEN_KEY) else {
            return Err(format!("{TOKEN_KEY} key not found in secret {namespace}/{secret}"));
        };
        let token = base64::engine::general_purpose::STANDARD.decode(token).unwrap_or_default();
        let token = String::from_utf8_lossy(&token).into_owned();
        if token.is_empty() {
            return Err(format!("{TOKEN_KEY} key in secret {namespace}/{secret} is empty"));
        }
        Ok(Some(token))
    }
}

fn encoded(text: &str) -> String {
    crate::store::percent_encoded(text, false)
}

/// The name of a cluster's Secret: its last 50 characters, and `r` for a first one that is no letter.
fn secret_name(cluster: &str) -> String {
    let start = cluster.len().saturating_sub(LONGEST_NAME);
    let name = cluster.get(start..).unwrap_or(cluster);
    match name.chars().next() {
        Some(first) if first.is_ascii_digit() || first.is_ascii_punctuation() => {
            format!("r{}", &name[first.len_utf8()..])
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::secret_name;

    #[test]
    fn secrets_have_names_that_kubernetes_takes() {
        assert_eq!(secret_name("tok"), "tok");
        assert_eq!(secret_name("123"), "r23");
        let long = format!("a-{}", "b".repeat(49));
        assert_eq!(secret_name(&long), format!("r{}", "b".repeat(49)));
    }
}
