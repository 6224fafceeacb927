//! TLS certificates: issuing, decoding, verifying.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::aws_lc_rs,
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use x509_parser::{certificate::Validity, parse_x509_certificate, prelude::X509Certificate};

/// A key and its certificate, with the authorities that vouch for it, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificates {
    /// Authorities, newest first.
    pub ca: String,
    /// The certificate that is served, with intermediates.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("ca", &self.ca).finish_non_exhaustive()
    }
}

/// What is wrong with a certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// It could not be issued.
    #[error("cannot issue a certificate: {0}")]
    Issue(#[from] rcgen::Error),
    /// It could not be decoded.
    #[error("cannot decode the {what}: {why}")]
    Decode {
        /// Certificate, key or authorities.
        what: &'static str,
        /// The cause.
        why: String,
    },
    /// It does not verify.
    #[error("the certificate does not verify for {name}: {why}")]
    Verify {
        /// Host that clients use.
        name: String,
        /// The cause.
        why: String,
    },
}

fn undecodable(what: &'static str, why: impl Into<String>) -> CertificateError {
    CertificateError::Decode { what, why: why.into() }
}

impl Certificates {
    /// Issues a certificate for `names` by a new authority, valid for `lifetime` from `now`. The authority's key
    /// is discarded: it signs this one certificate only. `trusted` are older authorities of which other replicas
    /// may still serve certificates; expired ones are left out.
    pub fn issue(
        names: &[String],
        now: Timestamp,
        lifetime: Duration,
        trusted: &str,
    ) -> Result<Self, CertificateError> {
        // Clocks differ a little between machines.
        let skew = Duration::from_mins(5);
        let now_seconds = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let valid = |params: &mut CertificateParams| {
            params.not_before = epoch + now_seconds.saturating_sub(skew);
            params.not_after = epoch + now_seconds + lifetime;
        };
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::default();
        valid(&mut ca);
        // Distinct names: clients look authorities up by name, and two are trusted during a rotation.
        ca.distinguished_name
            .push(DnType::CommonName, format!("quintet webhook authority {}", now.as_second()));
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca_certificate = ca.self_signed(&ca_key)?;
        let issuer = Issuer::new(ca, ca_key);

        let key = KeyPair::generate()?;
        let mut leaf = CertificateParams::new(names)?;
        valid(&mut leaf);
        leaf.distinguished_name.push(DnType::CommonName, "quintet webhooks");
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = leaf.signed_by(&key, &issuer)?;
        let older = still_valid(trusted, now);
        Ok(Self {
            ca: ca_certificate.pem() + &older,
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// When the certificate expires, if it can be decoded.
    pub fn expires(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.validity()?.not_after.timestamp()).ok()
    }

    /// Whether the certificate has expired, or cannot be used at all.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires().is_none_or(|expires| expires <= now)
    }

    fn validity(&self) -> Option<Validity> {
        let chain = chain(&self.certificate).ok()?;
        let (_, leaf) = parse_x509_certificate(chain.first()?).ok()?;
        Some(leaf.validity().clone())
    }

    /// Whether it has to be rotated: two thirds of its lifetime are over, or it is not valid for a name, or it
    /// cannot be used at all.
    pub fn is_due(&self, names: &[String], now: Timestamp) -> bool {
        let Some(validity) = self.validity() else {
            return true;
        };
        let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        let rotation = from + (to - from) / 3 * 2;
        let is_usable = self.certified_key().is_ok();
        !is_usable
            || now.as_second() >= rotation
            || names.iter().any(|name| self.verify(&self.ca, name, now).is_err())
    }

    /// Checks that a client that trusts `authorities` and connects to `name` accepts the certificate now.
    pub fn verify(&self, authorities: &str, name: &str, now: Timestamp) -> Result<(), CertificateError> {
        let failed = |why: String| CertificateError::Verify { name: name.to_owned(), why };
        let chain = chain(&self.certificate)?;
        let (leaf, intermediates) =
            chain.split_first().ok_or_else(|| undecodable("certificate", "there is none in it"))?;
        let mut roots = RootCertStore::empty();
        for authority in self::chain(authorities)? {
            roots.add(authority).map_err(|error| undecodable("authorities", error.to_string()))?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let server = ServerName::try_from(name.to_owned()).map_err(|error| failed(error.to_string()))?;
        let now =
            UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0)));
        verifier
            .verify_server_cert(leaf, intermediates, &server, &[], now)
            .map(drop)
            .map_err(|error| failed(error.to_string()))
    }

    /// The key and certificate as the server takes them; fails if they do not belong together.
    pub fn certified_key(&self) -> Result<CertifiedKey, CertificateError> {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(|error| undecodable("key", error.to_string()))?;
        let provider = aws_lc_rs::default_provider();
        CertifiedKey::from_der(chain(&self.certificate)?, key, &provider)
            .map_err(|error| undecodable("key", format!("it does not fit the certificate: {error}")))
    }

    /// The newest authority alone.
    pub fn newest_authority(&self) -> &str {
        const END: &str = "-----END CERTIFICATE-----\n";
        self.ca.find(END).map_or(&*self.ca, |end| &self.ca[..end + END.len()])
    }
}

fn chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| undecodable("certificate", error.to_string()))
}

/// The certificates of a bundle that have not expired, each once, at most three.
fn still_valid(bundle: &str, now: Timestamp) -> String {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    let is_valid = |pem: &str| {
        let Ok(chain) = chain(pem) else { return false };
        let ends = |certificate: &X509Certificate<'_>| certificate.validity().not_after.timestamp();
        chain.first().is_some_and(|certificate| {
            parse_x509_certificate(certificate).is_ok_and(|(_, parsed)| ends(&parsed) > now.as_second())
        })
    };
    let mut known = BTreeSet::new();
    let certificates = bundle.split(BEGIN).skip(1).map(|rest| format!("{BEGIN}{}\n", rest.trim_end()));
    // One is enough for a rotation. A few more cover a Secret that was changed by hand.
    certificates.filter(|pem| is_valid(pem) && known.insert(pem.clone())).take(3).collect()
}
