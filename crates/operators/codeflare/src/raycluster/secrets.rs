//! Secrets whose contents are made up once: the certificate authority, and the secret of the proxy's cookies.
//!
//! They are made by calls, not by plans: a plan is stored and printed, and cannot be random.

use std::fmt;
use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use k8s_openapi::api::core::v1::Secret;
use quintet_controller::api::{Api, PatchKind};
use quintet_controller::{ApiKind, Class, Error, ObjectKey};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_RSA_SHA256, RsaKeySize, SerialNumber,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::names::CLUSTER_NAME;

/// Bytes of a cookie secret, as upstream has them: a SHA-1.
const COOKIE_BYTES: usize = 20;

/// Makes a Secret, or gives one that exists its label and its owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SecretRequest {
    pub(super) key: ObjectKey,
    pub(super) contents: Contents,
    pub(super) cluster: String,
    /// The owner reference to the RayCluster.
    pub(super) owner: Value,
}

/// What a Secret is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Contents {
    /// A certificate authority.
    Authority,
    /// What cookies are encrypted with.
    Cookie,
}

impl fmt::Display for SecretRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.contents {
            Contents::Authority => "certificate authority",
            Contents::Cookie => "cookie secret",
        };
        write!(f, "ensure the {what} in Secret {}", self.key)
    }
}

impl SecretRequest {
    /// Makes or completes the Secret.
    pub(super) async fn carry_out(&self, api: &Api, now: Timestamp) -> Result<(), Error> {
        let kind = ApiKind::of::<Secret>();
        if let Some(text) = api.get(&kind, &self.key).await? {
            return self.adopt(api, &kind, &text).await;
        }
        let data = self.generate(now).await?;
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
            "metadata": {
                "name": self.key.name(), "namespace": self.key.namespace(),
                "labels": {CLUSTER_NAME: self.cluster}, "ownerReferences": [self.owner],
            },
        });
        match api.create(&kind, &self.key, &object).await {
            // Another attempt was faster; the next reconcile looks at it.
            Err(error) if error.has_code(409) => Ok(()),
            created => created.map(drop),
        }
    }

    /// Gives a Secret that exists its label and owner. Its contents stay.
    async fn adopt(&self, api: &Api, kind: &ApiKind, text: &str) -> Result<(), Error> {
        let live: Value = serde_json::from_str(text).map_err(|error| {
            Error::new(Class::Transient, format!("cannot decode Secret {}", self.key), error.to_string())
        })?;
        let mut owners = live["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        owners.retain(|owner| owner["uid"] != self.owner["uid"]);
        owners.push(self.owner.clone());
        let patch = json!({"metadata": {
            "resourceVersion": live["metadata"]["resourceVersion"],
            "labels": {CLUSTER_NAME: self.cluster},
            "ownerReferences": owners,
        }});
        api.patch(kind, &self.key, None, &PatchKind::Merge, &patch).await.map(drop)
    }

    async fn generate(&self, now: Timestamp) -> Result<Value, Error> {
        let failed = |cause: String| Error::new(Class::Transient, format!("cannot {self}"), cause);
        match self.contents {
            Contents::Cookie => cookie().map_err(failed),
            Contents::Authority => {
                // A key of 2048 bits takes a while.
                let made = tokio::task::spawn_blocking(move || authority(now)).await;
                made.map_err(|error| failed(error.to_string()))?.map_err(failed)
            }
        }
    }
}

fn cookie() -> Result<Value, String> {
    let mut bytes = [0; COOKIE_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|error| error.to_string())?;
    // The variable of the proxy is base64, and so are the values of Secrets.
    Ok(json!({"cookie_secret": STANDARD.encode(STANDARD.encode(bytes))}))
}

/// A self-signed authority for a year, as upstream makes it.
fn authority(now: Timestamp) -> Result<Value, String> {
    let key =
        KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).map_err(|error| error.to_string())?;
    let mut params = CertificateParams::new(Vec::new()).map_err(|error| error.to_string())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "root-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    params.serial_number = Some(SerialNumber::from(serial()?));
    let end = now.to_zoned(TimeZone::UTC).checked_add(1.year()).map_err(|error| error.to_string())?;
    let since_epoch = |at: Timestamp| Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default());
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    (params.not_before, params.not_after) = (epoch + since_epoch(now), epoch + since_epoch(end.timestamp()));
    let certificate = params.self_signed(&key).map_err(|error| error.to_string())?;
    let key = pem("RSA PRIVATE KEY", pkcs1(key.serialized_der()).ok_or("the key is not PKCS #8")?);
    Ok(json!({"ca.key": STANDARD.encode(key), "ca.crt": STANDARD.encode(certificate.pem())}))
}

/// A positive number of 63 bits.
fn serial() -> Result<u64, String> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok((u64::from_be_bytes(bytes) >> 1).max(1))
}

/// The PKCS #1 key inside of a PKCS #8 key: a sequence of version, algorithm and an octet string.
fn pkcs1(pkcs8: &[u8]) -> Option<&[u8]> {
    let (outer, _) = der_value(pkcs8, 0x30)?;
    let (_, after_version) = der_value(outer, 0x02)?;
    let (_, after_algorithm) = der_value(after_version, 0x30)?;
    der_value(after_algorithm, 0x04).map(|(key, _)| key)
}

/// The contents of the first DER value, if it has this tag, and what follows it.
fn der_value(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (_, rest) = bytes.split_first().filter(|(first, _)| **first == tag)?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = if *length < 0x80 {
        (usize::from(*length), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(*length & 0x7f))?;
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
    };
    rest.split_at_checked(length)
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use x509_parser::pem::parse_x509_pem;

    use super::*;

    fn decoded(data: &Value, key: &str) -> Vec<u8> {
        STANDARD.decode(data[key].as_str().unwrap()).unwrap()
    }

    #[test]
    fn an_authority_signs_for_a_year() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let data = authority(now).unwrap();
        let certificate = decoded(&data, "ca.crt");
        let (_, pem) = parse_x509_pem(&certificate).unwrap();
        let certificate = pem.parse_x509().unwrap();
        assert_eq!(certificate.subject().to_string(), "CN=root-ca");
        assert_eq!(certificate.issuer(), certificate.subject());
        assert!(certificate.is_ca());
        let validity = certificate.validity();
        assert_eq!(validity.not_before.timestamp(), now.as_second());
        assert_eq!(validity.not_after.timestamp(), now.as_second() + 365 * 24 * 3600);
        let key = String::from_utf8(decoded(&data, "ca.key")).unwrap();
        assert!(key.starts_with("-----BEGIN RSA PRIVATE KEY-----\nMII"), "{}", &key[..40]);
    }

    #[test]
    fn a_cookie_secret_is_text_and_random() {
        let text = |data: &Value| String::from_utf8(decoded(data, "cookie_secret")).unwrap();
        let (one, other) = (text(&cookie().unwrap()), text(&cookie().unwrap()));
        assert_eq!(one.len(), 28);
        assert_ne!(one, other);
    }
}
