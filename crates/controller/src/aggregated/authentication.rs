//! Who a request is from: the front proxy says so, by headers and with a client certificate that proves it is the one.

use std::{collections::BTreeMap, sync::Arc};

use http::HeaderMap;
use k8s_openapi::api::core::v1::ConfigMap;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject as _};
use x509_parser::parse_x509_certificate;

use crate::webhook::UserInfo;

/// Whose headers are believed, from the ConfigMap that the API server publishes.
#[derive(Debug)]
pub(super) struct FrontProxy {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Common names of its certificate; any if there are none.
    allowed_names: Vec<String>,
    user_headers: Vec<String>,
    uid_headers: Vec<String>,
    group_headers: Vec<String>,
    extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// Reads `extension-apiserver-authentication`.
    pub(super) fn read(published: &ConfigMap) -> Result<Self, String> {
        let data = published.data.as_ref();
        let text = |key: &str| data.and_then(|data| data.get(key)).map(String::as_str);
        let list = |key: &str| -> Result<Vec<String>, String> {
            let Some(text) = text(key).filter(|text| !text.is_empty()) else { return Ok(Vec::new()) };
            serde_json::from_str(text).map_err(|error| format!("{key} is not a list of texts: {error}"))
        };
        let authorities = text("requestheader-client-ca-file")
            .ok_or("it has no requestheader-client-ca-file: the API server does not aggregate")?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
            let authority = authority.map_err(|error| format!("requestheader-client-ca-file: {error:?}"))?;
            roots.add(authority).map_err(|error| format!("requestheader-client-ca-file: {error}"))?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| format!("requestheader-client-ca-file: {error}"))?;
        Ok(Self {
            verifier,
            allowed_names: list("requestheader-allowed-names")?,
            user_headers: list("requestheader-username-headers")?,
            uid_headers: list("requestheader-uid-headers")?,
            group_headers: list("requestheader-group-headers")?,
            extra_prefixes: list("requestheader-extra-headers-prefix")?,
        })
    }

    /// Whether a chain of certificates, the client's own first, is that of the front proxy.
    pub(super) fn is_presented_by(&self, chain: &[CertificateDer<'static>], now: UnixTime) -> bool {
        let Some((own, intermediates)) = chain.split_first() else { return false };
        self.verifier.verify_client_cert(own, intermediates, now).is_ok()
            && (self.allowed_names.is_empty()
                || common_name(own).is_some_and(|name| self.allowed_names.contains(&name)))
    }

    /// The user that the headers of a request name.
    pub(super) fn user(&self, headers: &HeaderMap) -> Option<UserInfo> {
        let first = |names: &[String]| {
            names
                .iter()
                .filter_map(|name| headers.get(name.as_str())?.to_str().ok())
                .find(|one| !one.is_empty())
        };
        let groups = self.group_headers.iter().flat_map(|name| headers.get_all(name.as_str()));
        Some(UserInfo {
            username: first(&self.user_headers)?.to_owned(),
            uid: first(&self.uid_headers).unwrap_or_default().to_owned(),
            groups: groups.filter_map(|group| Some(group.to_str().ok()?.to_owned())).collect(),
            extra: self.extra(headers),
        })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            let key = self.extra_prefixes.iter().find_map(|prefix| {
                let (own, rest) = name.as_str().split_at_checked(prefix.len())?;
                own.eq_ignore_ascii_case(prefix).then(|| unescaped(rest))
            });
            if let (Some(key), Ok(value)) = (key, value.to_str()) {
                extra.entry(key).or_default().push(value.to_owned());
            }
        }
        extra
    }
}

/// A key of extra information: what a header cannot carry is percent-encoded.
fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let decoded = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        out.push(decoded.unwrap_or(*byte));
        at += if decoded.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let name = certificate.subject().iter_common_name().next()?;
    name.as_str().ok().map(ToOwned::to_owned)
}

/// Asks clients for a certificate and takes any, as Go's `tls.RequestClientCert`: whether it is that of the front proxy is
/// decided per request, by the authorities that are published then. The handshake proves that the client has the key.
#[derive(Debug)]
pub(super) struct AnyClient(pub(super) Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

    use super::*;

    struct Authority(CertifiedIssuer<'static, KeyPair>);

    impl Authority {
        fn new() -> Self {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
        }

        fn client(&self, name: &str) -> Vec<CertificateDer<'static>> {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
            let key = KeyPair::generate().unwrap();
            vec![params.signed_by(&key, &self.0).unwrap().der().clone()]
        }

        fn published(&self, allowed: &str) -> ConfigMap {
            let list = |name: &str| format!("[\"{name}\"]");
            let data = [
                ("requestheader-client-ca-file", self.0.pem()),
                ("requestheader-allowed-names", allowed.to_owned()),
                ("requestheader-username-headers", list("X-Remote-User")),
                ("requestheader-uid-headers", list("X-Remote-Uid")),
                ("requestheader-group-headers", list("X-Remote-Group")),
                ("requestheader-extra-headers-prefix", list("X-Remote-Extra-")),
            ];
            let data = data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            ConfigMap { data: Some(data), ..ConfigMap::default() }
        }
    }

    #[test]
    fn only_the_front_proxy_is_believed() {
        let (ours, other, now) = (Authority::new(), Authority::new(), UnixTime::now());
        let proxy = FrontProxy::read(&ours.published("[\"front-proxy\"]")).unwrap();
        assert!(proxy.is_presented_by(&ours.client("front-proxy"), now));
        assert!(!proxy.is_presented_by(&ours.client("somebody"), now));
        assert!(!proxy.is_presented_by(&other.client("front-proxy"), now));
        assert!(!proxy.is_presented_by(&[], now));
        let any = FrontProxy::read(&ours.published("[]")).unwrap();
        assert!(any.is_presented_by(&ours.client("somebody"), now));
        assert!(FrontProxy::read(&ConfigMap::default()).unwrap_err().contains("does not aggregate"));
    }

    #[test]
    fn headers_name_the_user() {
        let proxy = FrontProxy::read(&Authority::new().published("")).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-remote-user", "ann"),
            ("x-remote-uid", "1"),
            ("x-remote-group", "team"),
            ("x-remote-group", "system:authenticated"),
            ("x-remote-extra-example.com%2frole", "a"),
            ("x-remote-extra-scopes", "b"),
            ("x-remote-extra-scopes", "c"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let user = proxy.user(&headers).unwrap();
        assert_eq!((user.username.as_str(), user.uid.as_str()), ("ann", "1"));
        assert_eq!(user.groups, ["team", "system:authenticated"]);
        assert_eq!(user.extra["example.com/role"], ["a"]);
        assert_eq!(user.extra["scopes"], ["b", "c"]);
        assert_eq!(proxy.user(&HeaderMap::new()), None);
    }
}
