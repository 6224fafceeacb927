//! Content types of responses.

use http::HeaderValue;

/// What the body of a response is. Every response except proxied ones has one of these, so that the test below
/// covers all that clients get to parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// Objects and lists in JSON.
    Json,
    /// Objects and lists in YAML.
    Yaml,
    /// Objects and lists in Kubernetes' protobuf envelope.
    Protobuf,
    /// Watch events in protobuf.
    ProtobufWatch,
    /// Health, metrics, logs, and errors from before negotiation.
    Text,
    /// The keys of service account tokens.
    KeySet,
    /// Aggregated discovery.
    Discovery,
    /// The OpenAPI v2 document in protobuf. Clients also ask for it by a name with `@`, which is not a token of
    /// RFC 2045: Go's `mime.ParseMediaType` cannot read it in a response.
    OpenApiV2Protobuf,
}

impl ContentType {
    /// The value of the header.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::ProtobufWatch => "application/vnd.kubernetes.protobuf;stream=watch",
            Self::Text => "text/plain; charset=utf-8",
            Self::KeySet => "application/jwk-set+json",
            Self::Discovery => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Self::OpenApiV2Protobuf => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        }
    }

    /// As a header.
    pub(crate) fn header(self) -> HeaderValue {
        HeaderValue::from_static(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A successor of each, so that a new one cannot be left out.
    fn next(content_type: ContentType) -> Option<ContentType> {
        match content_type {
            ContentType::Json => Some(ContentType::Yaml),
            ContentType::Yaml => Some(ContentType::Protobuf),
            ContentType::Protobuf => Some(ContentType::ProtobufWatch),
            ContentType::ProtobufWatch => Some(ContentType::Text),
            ContentType::Text => Some(ContentType::KeySet),
            ContentType::KeySet => Some(ContentType::Discovery),
            ContentType::Discovery => Some(ContentType::OpenApiV2Protobuf),
            ContentType::OpenApiV2Protobuf => None,
        }
    }

    /// A token of RFC 2045.
    fn is_token(text: &str) -> bool {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte))
    }

    /// `type/subtype *(; attribute=token)`, each attribute once, as Go's `mime.ParseMediaType` wants it.
    fn is_media_type(text: &str) -> bool {
        let mut parts = text.split(';').map(str::trim);
        let is_type = |text: &str| text.split_once('/').is_some_and(|(a, b)| is_token(a) && is_token(b));
        let mut names = std::collections::BTreeSet::new();
        parts.next().is_some_and(is_type)
            && parts.all(|parameter| {
                let Some((name, value)) = parameter.split_once('=') else { return false };
                is_token(name) && is_token(value) && names.insert(name.to_ascii_lowercase())
            })
    }

    #[test]
    fn every_content_type_is_readable_to_go() {
        assert!(!is_media_type("application/com.github.proto-openapi.spec.v2@v1.0+protobuf"));
        assert!(!is_media_type("text/plain; a=b; A=c") && !is_media_type("text") && !is_media_type("a/b;c"));
        for content_type in std::iter::successors(Some(ContentType::Json), |one| next(*one)) {
            assert!(is_media_type(content_type.as_str()), "{}", content_type.as_str());
        }
    }
}
