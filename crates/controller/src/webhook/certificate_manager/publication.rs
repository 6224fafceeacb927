//! Objects that tell the API server which authorities to trust for our webhooks and aggregated APIs.

use std::fmt;

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::{CertificateError, Certificates};
use crate::{
    api::{Api, PatchKind},
    error::{Class, Error},
    object::{ApiKind, ObjectKey},
};

/// An object with `caBundle`s for our servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "name")]
pub enum Publication {
    /// A `ValidatingWebhookConfiguration` of this name.
    #[serde(rename = "ValidatingWebhookConfiguration")]
    Validating(String),
    /// A `MutatingWebhookConfiguration` of this name.
    #[serde(rename = "MutatingWebhookConfiguration")]
    Mutating(String),
    /// The conversion section of the CRD of this name.
    #[serde(rename = "CustomResourceDefinition")]
    Conversion(String),
    /// The APIService of this name.
    #[serde(rename = "APIService")]
    Aggregated(String),
}

/// Whether an object trusts our servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum PublicationState {
    /// The object does not exist.
    Absent,
    /// The object does not call our Service.
    Unreferenced,
    /// Every entry that calls our Service trusts the certificate.
    Published,
    /// The object cannot be read or changed, or an entry does not trust the certificate.
    Failed {
        /// Why.
        error: String,
    },
}

impl fmt::Display for PublicationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("the object does not exist"),
            Self::Unreferenced => f.write_str("the object does not call our Service"),
            Self::Published => f.write_str("published"),
            Self::Failed { error } => f.write_str(error),
        }
    }
}

impl fmt::Display for Publication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind_name(), self.name())
    }
}

impl Publication {
    pub(super) fn name(&self) -> &str {
        let (Self::Validating(name) | Self::Mutating(name) | Self::Conversion(name) | Self::Aggregated(name)) =
            self;
        name
    }

    pub(super) fn kind_name(&self) -> &'static str {
        match self {
            Self::Validating(_) => "ValidatingWebhookConfiguration",
            Self::Mutating(_) => "MutatingWebhookConfiguration",
            Self::Conversion(_) => "CustomResourceDefinition",
            Self::Aggregated(_) => "APIService",
        }
    }

    fn kind(&self) -> ApiKind {
        match self {
            Self::Validating(_) => ApiKind::of::<ValidatingWebhookConfiguration>(),
            Self::Mutating(_) => ApiKind::of::<MutatingWebhookConfiguration>(),
            Self::Conversion(_) => ApiKind::of::<CustomResourceDefinition>(),
            Self::Aggregated(_) => ApiKind::of::<APIService>(),
        }
    }

    /// Sets the `caBundle` of every entry that calls one of `services` and lacks the newest authority. Other entries are
    /// not touched.
    pub(super) async fn publish(
        &self,
        api: &Api,
        services: &[ObjectKey],
        certificates: &Certificates,
    ) -> Result<PublicationState, Error> {
        // Another replica may publish the same at the same time: a patch that fails is decided by reading again.
        let mut failed = None;
        for _ in 0..2 {
            let Some(object) = self.read(api).await? else { return Ok(PublicationState::Absent) };
            let entries = self.entries_of(services, &object);
            if entries.is_empty() {
                return Ok(PublicationState::Unreferenced);
            }
            // An older replica's bundle must not replace a newer one, which contains the older authorities too.
            let newest = certificates.newest_authority();
            let lacking: Vec<_> = entries
                .iter()
                .filter(|entry| !bundle(&object, entry).is_ok_and(|bundle| bundle.contains(newest)))
                .collect();
            if lacking.is_empty() {
                return Ok(PublicationState::Published);
            }
            match self.patch(api, &object, &lacking, &certificates.ca).await {
                Ok(()) => return Ok(PublicationState::Published),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(PublicationState::Published), Err)
    }

    /// Checks that every entry that calls one of `services` trusts our certificate for the name it calls.
    pub(super) async fn verify(
        &self,
        api: &Api,
        services: &[ObjectKey],
        trusts: impl Fn(&str, &str) -> Result<(), CertificateError>,
    ) -> Result<PublicationState, Error> {
        let Some(object) = self.read(api).await? else { return Ok(PublicationState::Absent) };
        let entries = self.entries_of(services, &object);
        if entries.is_empty() {
            return Ok(PublicationState::Unreferenced);
        }
        for entry in entries {
            let called = object.pointer(&format!("{entry}/service")).unwrap_or(&Value::Null);
            let part = |name: &str| called[name].as_str().unwrap_or_default();
            let name = format!("{}.{}.svc", part("name"), part("namespace"));
            let trusted = bundle(&object, &entry)
                .and_then(|bundle| trusts(&bundle, &name).map_err(|error| error.to_string()));
            trusted.map_err(|error| {
                let attempt = format!("the API server does not trust {name} by {self}{entry}");
                Error::new(Class::Invalid, attempt, error)
            })?;
        }
        Ok(PublicationState::Published)
    }

    async fn read(&self, api: &Api) -> Result<Option<Value>, Error> {
        let (kind, key) = (self.kind(), ObjectKey::cluster(self.name()));
        let Some(text) = api.get(&kind, &key).await? else { return Ok(None) };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| Error::new(Class::Transient, format!("cannot decode {self}"), error.to_string()))
    }

    /// JSON pointers to what calls one of `services` and has a `caBundle` for it. Those with a URL or another Service belong to
    /// other programs.
    fn entries_of(&self, services: &[ObjectKey], object: &Value) -> Vec<String> {
        let candidates = match self {
            Self::Validating(_) | Self::Mutating(_) => {
                let webhooks = object["webhooks"].as_array().map_or(0, Vec::len);
                (0..webhooks).map(|index| format!("/webhooks/{index}/clientConfig")).collect()
            }
            Self::Conversion(_) => vec!["/spec/conversion/webhook/clientConfig".to_owned()],
            Self::Aggregated(_) => vec!["/spec".to_owned()],
        };
        let is_ours = |entry: &String| {
            object.pointer(entry).and_then(|config| config.get("service")).is_some_and(|called| {
                services.iter().any(|service| {
                    called["name"].as_str() == Some(service.name())
                        && called["namespace"].as_str() == service.namespace()
                })
            })
        };
        candidates.into_iter().filter(is_ours).collect()
    }

    async fn patch(
        &self,
        api: &Api,
        object: &Value,
        entries: &[&String],
        authorities: &str,
    ) -> Result<(), Error> {
        // Positions in a list are valid only for the version they were read from.
        let mut patch = vec![json!({
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": object["metadata"]["resourceVersion"],
        })];
        let value = ByteString(authorities.as_bytes().to_vec());
        patch.extend(
            entries
                .iter()
                .map(|entry| json!({ "op": "add", "path": format!("{entry}/caBundle"), "value": value })),
        );
        let (kind, key) = (self.kind(), ObjectKey::cluster(self.name()));
        api.patch(&kind, &key, None, &PatchKind::Json, &Value::Array(patch)).await.map(drop)
    }
}

/// The authorities of an entry.
fn bundle(object: &Value, entry: &str) -> Result<String, String> {
    let encoded = object.pointer(&format!("{entry}/caBundle")).ok_or("it has no caBundle")?;
    let bytes: ByteString = serde_json::from_value(encoded.clone())
        .map_err(|error| format!("its caBundle cannot be decoded: {error}"))?;
    String::from_utf8(bytes.0).map_err(|_| "its caBundle is not PEM".to_owned())
}
