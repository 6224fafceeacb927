//! Whose certificates are believed, and which one is presented.
//!
//! As Go verifies: a certificate of the bundle itself is believed, whether or not it is an authority. envtest puts the
//! serving certificate into `caBundle`, and `openssl req -x509` makes certificates that are their own authority.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    server::ParsedCertificate,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// A client certificate with its key, as PEM.
pub(crate) struct ClientIdentity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientIdentity").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// Sets up TLS with a verifier and an identity.
pub(super) fn config(verifier: Verifier, identity: Option<&ClientIdentity>) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(&verifier.provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes());
    match (certificate, key) {
        (Ok(certificate), Ok(key)) => {
            builder.with_client_auth_cert(vec![certificate], key).map_err(|error| error.to_string())
        }
        (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
    }
}

/// Believes any certificate: for `insecureSkipTLSVerify` only.
pub(super) fn anyone() -> Verifier {
    Verifier { provider: Arc::new(aws_lc_rs::default_provider()), bundle: None }
}

/// Believes the certificates of a bundle, and those that its authorities signed.
pub(super) fn bundle(pem: &[u8]) -> Verifier {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).flatten().collect();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    // There is none without a root; then only the certificates themselves are believed.
    let signed =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().ok();
    Verifier { provider, bundle: Some(Bundle { certificates, signed }) }
}

/// Verifies the certificate of a server.
#[derive(Debug)]
pub(super) struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None` believes anything.
    bundle: Option<Bundle>,
}

#[derive(Debug)]
struct Bundle {
    certificates: Vec<CertificateDer<'static>>,
    signed: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(bundle) = &self.bundle else { return Ok(ServerCertVerified::assertion()) };
        if bundle.certificates.contains(end_entity) {
            return verify_itself(end_entity, server_name, now);
        }
        match &bundle.signed {
            Some(signed) => {
                signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies a certificate that is believed as such: it must be valid now, for a server, and for this one.
fn verify_itself(
    der: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < certificate.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > certificate.validity().not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    let usage = certificate.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_some_and(|usage| !usage.value.any && !usage.value.server_auth) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    verify_server_name(&ParsedCertificate::try_from(der)?, name)?;
    Ok(ServerCertVerified::assertion())
}
