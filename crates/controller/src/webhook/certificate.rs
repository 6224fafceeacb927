//! Certificates: made, read, judged.

use std::{sync::Arc, time::Duration};

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
use x509_parser::{parse_x509_certificate, prelude::X509Certificate};

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
    /// It could not be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// It could not be read.
    #[error("cannot read the {what}: {why}")]
    Read {
        /// Certificate, key or authorities.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// It does not verify.
    #[error("the certificate does not verify for {name}: {why}")]
    Verify {
        /// Host that clients use.
        name: String,
        /// Why not.
        why: String,
    },
}

fn unreadable(what: &'static str, why: impl Into<String>) -> CertificateError {
    CertificateError::Read { what, why: why.into() }
}

impl Certificates {
    /// Makes a fresh authority and a certificate for `names`, valid for `lifetime` from `now`. The
    /// authority's key is thrown away: it signs this one certificate and never another. `trusted` are
    /// older authorities that others may still serve certificates of; expired ones are left out.
    pub fn make(
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
        // Unlike names keep a client from taking one authority for another while both are trusted.
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

    /// Whether it is time for a new one: two thirds of the life are over, or a name is missing, or it
    /// cannot be used at all.
    pub fn is_due(&self, names: &[String], now: Timestamp) -> bool {
        let Ok(chain) = chain(&self.certificate) else {
            return true;
        };
        let Some(validity) = chain
            .first()
            .and_then(|leaf| parse_x509_certificate(leaf).ok().map(|(_, leaf)| leaf.validity().clone()))
        else {
            return true;
        };
        let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        let turn = from + (to - from) / 3 * 2;
        now.as_second() >= turn || names.iter().any(|name| self.verify(&self.ca, name, now).is_err())
    }

    /// Checks that a client that trusts `authorities` and connects to `name` accepts the certificate now.
    pub fn verify(&self, authorities: &str, name: &str, now: Timestamp) -> Result<(), CertificateError> {
        let failed = |why: String| CertificateError::Verify { name: name.to_owned(), why };
        let chain = chain(&self.certificate)?;
        let (leaf, intermediates) =
            chain.split_first().ok_or_else(|| unreadable("certificate", "there is none in it"))?;
        let mut roots = RootCertStore::empty();
        for authority in self::chain(authorities)? {
            roots.add(authority).map_err(|error| unreadable("authorities", error.to_string()))?;
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
            .map_err(|error| unreadable("key", error.to_string()))?;
        let provider = aws_lc_rs::default_provider();
        CertifiedKey::from_der(chain(&self.certificate)?, key, &provider)
            .map_err(|error| unreadable("key", format!("it does not fit the certificate: {error}")))
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
        .map_err(|error| unreadable("certificate", error.to_string()))
}

/// The certificates of a bundle that have not expired, at most a few.
fn still_valid(bundle: &str, now: Timestamp) -> String {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    let is_valid = |pem: &str| {
        let Ok(chain) = chain(pem) else { return false };
        let ends = |certificate: &X509Certificate<'_>| certificate.validity().not_after.timestamp();
        chain.first().is_some_and(|certificate| {
            parse_x509_certificate(certificate).is_ok_and(|(_, parsed)| ends(&parsed) > now.as_second())
        })
    };
    let certificates = bundle.split(BEGIN).skip(1).map(|rest| format!("{BEGIN}{rest}"));
    // One is enough in the ordinary course; a few more survive somebody's experiments with the Secret.
    certificates.filter(|pem| is_valid(pem)).take(3).collect()
}
