//! The certificates of a cluster: its authority, its server, its administrator.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::outbound::ClientIdentity;

/// Ten years: the authority is local to one machine and its key lies beside the data.
const AUTHORITY_LIFETIME: Duration = Duration::from_hours(10 * 365 * 24);
/// Certificates are made anew at every start.
const LEAF_LIFETIME: Duration = Duration::from_hours(365 * 24);
/// Clocks differ a little.
const SKEW: Duration = Duration::from_mins(5);

/// The authority that signs all others.
pub struct Authority {
    /// Its certificate, as PEM.
    pub certificate: String,
    /// Its key, as PEM.
    pub key: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

fn valid(params: &mut CertificateParams, lifetime: Duration) {
    let now = Duration::from_secs(
        u64::try_from(quintet_foundation::clock::Clock::system().now().as_second()).unwrap_or(0),
    );
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(SKEW);
    params.not_after = epoch + now + lifetime;
}

/// What every authority of ours says about itself; only keys differ.
fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    valid(&mut params, AUTHORITY_LIFETIME);
    params.distinguished_name.push(DnType::CommonName, "quintet authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params
}

/// The user that aggregated API servers know this one as.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";

/// How aggregated API servers know that a request was authenticated here: by a client certificate of an authority that
/// signs nothing else.
#[derive(Debug)]
pub struct FrontProxy {
    /// The certificate of the authority, as PEM.
    pub ca: String,
    pub(crate) identity: ClientIdentity,
}

impl FrontProxy {
    /// Makes an authority and a client certificate of it. Its key is forgotten.
    pub fn generate() -> Result<Self, rcgen::Error> {
        let authority = Authority::generate()?;
        let (certificate, key) =
            authority.issue(&[], FRONT_PROXY, None, ExtendedKeyUsagePurpose::ClientAuth)?;
        Ok(Self { ca: authority.certificate, identity: ClientIdentity { certificate, key } })
    }
}

/// Why an authority cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorityError {
    /// Its certificate is damaged.
    Certificate,
    /// Its key is.
    Key,
    /// They do not belong together.
    Mismatch,
}

impl Authority {
    /// Checks that it can sign what its certificate vouches for.
    pub fn check(&self) -> Result<(), AuthorityError> {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes());
        let certificate = certificate.map_err(|_| AuthorityError::Certificate)?;
        let (_, certificate) =
            X509Certificate::from_der(&certificate).map_err(|_| AuthorityError::Certificate)?;
        let key = KeyPair::from_pem(&self.key).map_err(|_| AuthorityError::Key)?;
        let is_own = *certificate.public_key().subject_public_key.data == *key.public_key_raw();
        if is_own { Ok(()) } else { Err(AuthorityError::Mismatch) }
    }

    /// Makes an authority.
    pub fn generate() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let params = authority_params();
        let certificate = params.self_signed(&key)?;
        Ok(Self { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// A certificate and key, as PEM, for a server with these names or for a client.
    fn issue(
        &self,
        names: &[String],
        common_name: &str,
        organization: Option<&str>,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<(String, String), rcgen::Error> {
        let issuer = Issuer::new(authority_params(), KeyPair::from_pem(&self.key)?);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        valid(&mut params, LEAF_LIFETIME);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        if let Some(organization) = organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &issuer)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// The certificate of the server.
    pub fn server(&self, names: &[String]) -> Result<(String, String), rcgen::Error> {
        self.issue(names, "quintet", None, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// The certificate of a client: the user and the group it is of.
    pub fn client(&self, user: &str, group: &str) -> Result<(String, String), rcgen::Error> {
        self.issue(&[], user, Some(group), ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A kubeconfig with which kubectl and everybody else reaches the server as its administrator.
    pub fn kubeconfig(&self, server: &str) -> Result<String, rcgen::Error> {
        let (certificate, key) = self.client("kubernetes-admin", crate::auth::MASTERS)?;
        let (authority, certificate, key) =
            (STANDARD.encode(&self.certificate), STANDARD.encode(certificate), STANDARD.encode(key));
        // Written by hand and not by a serializer, which folds long values: scripts read the file line by line. None of
        // the values needs quotes.
        Ok(format!(
            "apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority-data: {authority}
    server: {server}
  name: quintet
contexts:
- context:
    cluster: quintet
    user: quintet
  name: quintet
current-context: quintet
users:
- name: quintet
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
"
        ))
    }
}
