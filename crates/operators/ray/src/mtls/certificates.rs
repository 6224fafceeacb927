//! The objects that cert-manager works on.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use quintet_api::{owners::controller_reference, ray::v1::RayCluster};
use quintet_controller::ApiKind;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Value, json};

use crate::{
    k8s_service::head_service_name,
    labels, names,
    pod::{Role, tls},
};

pub(super) fn issuer_kind() -> ApiKind {
    kind("Issuer", "issuers")
}

pub(super) fn certificate_kind() -> ApiKind {
    kind("Certificate", "certificates")
}

fn kind(kind: &'static str, plural: &'static str) -> ApiKind {
    ApiKind::namespaced("cert-manager.io", "v1", kind, plural)
}

/// The certificate of the head or of the workers.
pub(super) fn leaf_name(cluster: &str, role: Role) -> String {
    match role {
        Role::Head => format!("ray-head-cert-{cluster}"),
        Role::Worker => format!("ray-worker-cert-{cluster}"),
    }
}

/// The names of everything that is made for a cluster.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Names {
    cluster: String,
    uid: String,
    head_host: String,
}

impl Names {
    pub(super) fn new(cluster: &RayCluster, domain: &str) -> Self {
        let metadata = &cluster.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        Self {
            cluster: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            head_host: names::service_host(&head_service_name(cluster), namespace, domain),
        }
    }

    /// The issuer that signs itself, and the one of the cluster's authority.
    pub(super) fn issuers(&self) -> [String; 2] {
        let name = &self.cluster;
        [format!("ray-selfsigned-issuer-{name}"), format!("ray-ca-issuer-{name}")]
    }

    /// The authority, then head and workers.
    pub(super) fn certificates(&self) -> [String; 3] {
        let name = &self.cluster;
        [format!("ray-ca-certificate-{name}"), leaf_name(name, Role::Head), leaf_name(name, Role::Worker)]
    }

    /// The Secrets of the certificates, in their order.
    pub(super) fn secrets(&self) -> [String; 3] {
        let authority = format!("{}-ca-secret-{}", self.cluster, quintet_api::names::head(&self.uid, 8));
        [
            authority,
            tls::secret_name(&self.cluster, Role::Head),
            tls::secret_name(&self.cluster, Role::Worker),
        ]
    }

    /// The names that the certificate of a role is good for.
    pub(super) fn hosts(&self, role: Role) -> BTreeSet<String> {
        let head = (role == Role::Head).then(|| self.head_host.clone());
        head.into_iter().chain(["localhost".to_owned()]).collect()
    }

    pub(super) fn self_signed(&self, cluster: &RayCluster) -> Value {
        let [name, _] = self.issuers();
        self.object(cluster, &name, "selfsigned-issuer", &json!({"selfSigned": {}}))
    }

    pub(super) fn issuer(&self, cluster: &RayCluster) -> Value {
        let [_, name] = self.issuers();
        let [secret, ..] = self.secrets();
        self.object(cluster, &name, "ca-issuer", &json!({"ca": {"secretName": secret}}))
    }

    pub(super) fn authority(&self, cluster: &RayCluster) -> Value {
        let [name, ..] = self.certificates();
        let [secret, ..] = self.secrets();
        let [issuer, _] = self.issuers();
        let spec = json!({
            "isCA": true,
            "commonName": format!("ray-ca-{}", self.cluster),
            "secretName": secret,
            "privateKey": {"algorithm": "RSA", "size": 4096},
            "duration": "87600h0m0s",
            "renewBefore": "720h0m0s",
            "usages": ["cert sign", "crl sign"],
            "issuerRef": {"name": issuer, "kind": "Issuer", "group": "cert-manager.io"},
        });
        self.object(cluster, &name, "ca-certificate", &spec)
    }

    pub(super) fn leaf(&self, cluster: &RayCluster, role: Role, addresses: &BTreeSet<String>) -> Value {
        let [_, issuer] = self.issuers();
        let spec = json!({
            "secretName": tls::secret_name(&self.cluster, role),
            "dnsNames": self.hosts(role),
            "ipAddresses": addresses,
            "duration": "2160h0m0s",
            "renewBefore": "360h0m0s",
            "usages": ["digital signature", "key encipherment", "server auth", "client auth"],
            "issuerRef": {"name": issuer, "kind": "Issuer", "group": "cert-manager.io"},
        });
        let component = if role == Role::Head { "head-certificate" } else { "worker-certificate" };
        self.object(cluster, &leaf_name(&self.cluster, role), component, &spec)
    }

    fn object(&self, cluster: &RayCluster, name: &str, component: &str, spec: &Value) -> Value {
        json!({
            "metadata": {
                "name": name,
                "namespace": cluster.metadata.namespace,
                "labels": {
                    labels::APP_NAME: labels::APPLICATION,
                    labels::APP_CREATED_BY: labels::CREATOR,
                    "app.kubernetes.io/component": component,
                    labels::CLUSTER: self.cluster,
                },
                "ownerReferences": controller_reference(cluster).map(|owner| [owner]),
            },
            "spec": spec,
        })
    }
}

/// What is kept of a Certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CertificateView {
    pub(super) cluster: Box<str>,
    pub(super) secret: Box<str>,
    pub(super) names: BTreeSet<String>,
    pub(super) addresses: BTreeSet<String>,
    pub(super) ready_since: Option<Timestamp>,
    pub(super) not_after: Option<Timestamp>,
}

impl CertificateView {
    pub(super) fn is_ready(&self) -> bool {
        self.ready_since.is_some()
    }

    pub(super) fn project(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: Metadata,
            spec: Spec,
            #[serde(default)]
            status: Status,
        }
        #[derive(Deserialize)]
        #[serde(default)]
        #[derive(Default)]
        struct Metadata {
            labels: BTreeMap<String, String>,
            generation: i64,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            secret_name: Box<str>,
            #[serde(default)]
            dns_names: BTreeSet<String>,
            #[serde(default)]
            ip_addresses: BTreeSet<String>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Status {
            not_after: Option<Timestamp>,
            conditions: Vec<Condition>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Condition {
            #[serde(rename = "type")]
            type_: Box<str>,
            status: Box<str>,
            #[serde(default)]
            observed_generation: i64,
            last_transition_time: Option<Timestamp>,
        }
        let Raw { mut metadata, spec, status } = serde_json::from_str(text)?;
        // Ready for what is wanted now, not for what was wanted before an address was added.
        let ready = status.conditions.into_iter().find(|one| {
            &*one.type_ == "Ready" && &*one.status == "True" && one.observed_generation == metadata.generation
        });
        Ok(Self {
            cluster: metadata.labels.remove(labels::CLUSTER).unwrap_or_default().into(),
            secret: spec.secret_name,
            names: spec.dns_names,
            addresses: spec.ip_addresses,
            ready_since: ready.map(|ready| ready.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH)),
            not_after: status.not_after,
        })
    }
}

/// What is kept of a Secret of cert-manager: never what it holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SecretView {
    pub(super) cluster: Option<Box<str>>,
    pub(super) owners: BTreeSet<String>,
    pub(super) keys: BTreeSet<String>,
}

impl SecretView {
    pub(super) fn is_complete(&self) -> bool {
        ["tls.crt", "tls.key", "ca.crt"].iter().all(|key| self.keys.contains(*key))
    }

    pub(super) fn project(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Raw {
            metadata: Metadata,
            #[serde(default)]
            #[expect(clippy::zero_sized_map_values, reason = "the values are skipped, and never in memory")]
            data: BTreeMap<String, IgnoredAny>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[derive(Default)]
        struct Metadata {
            annotations: BTreeMap<String, String>,
            owner_references: Vec<Owner>,
        }
        #[derive(Deserialize)]
        struct Owner {
            uid: String,
        }
        let raw: Raw = serde_json::from_str(text)?;
        let certificate = raw.metadata.annotations.get("cert-manager.io/certificate-name");
        let cluster = certificate.and_then(|name| {
            let prefixes = ["ray-ca-certificate-", "ray-head-cert-", "ray-worker-cert-"];
            prefixes.iter().find_map(|prefix| name.strip_prefix(prefix))
        });
        Ok(Self {
            cluster: cluster.map(Into::into),
            owners: raw.metadata.owner_references.into_iter().map(|owner| owner.uid).collect(),
            keys: raw.data.into_keys().collect(),
        })
    }
}
