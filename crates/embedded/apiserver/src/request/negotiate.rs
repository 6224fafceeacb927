//! Content negotiation.

use super::content_type::ContentType;
use crate::status::Failure;

/// How bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON, in one line or indented.
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes' protobuf envelope.
    Protobuf,
}

impl Format {
    /// The content type of a response.
    pub fn content_type(self, is_watch: bool) -> ContentType {
        match (self, is_watch) {
            (Self::Json, _) => ContentType::Json,
            (Self::Yaml, _) => ContentType::Yaml,
            (Self::Protobuf, false) => ContentType::Protobuf,
            (Self::Protobuf, true) => ContentType::ProtobufWatch,
        }
    }
}

/// The content type of Kubernetes' protobuf.
pub const PROTOBUF: &str = ContentType::Protobuf.as_str();

/// What of an object is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// All of it.
    Whole,
    /// Rows for people.
    Table,
    /// Only metadata; a list of that if it says so.
    Metadata {
        /// `PartialObjectMetadataList` was asked for.
        is_list: bool,
    },
}

/// An accepted representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// How bytes are written.
    pub format: Format,
    /// What is shown.
    pub view: View,
}

/// Properties of the response that limit its representations.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent property of the response")]
pub struct Offer {
    /// Protobuf messages exist for the kind.
    pub has_protobuf: bool,
    /// A stream of events.
    pub is_watch: bool,
    /// It is of a resource, so that there is metadata of it.
    pub is_resource: bool,
    /// It is of a resource whose objects can be read again, so that there are columns for it.
    pub has_table: bool,
}

/// One entry of an Accept header.
pub struct MediaRange<'a> {
    /// `type/subtype`.
    pub media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaRange<'a> {
    /// A parameter.
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// The entries of an Accept header, in order.
pub fn media_ranges(header: &str) -> impl Iterator<Item = MediaRange<'_>> {
    header.split(',').map(str::trim).filter(|range| !range.is_empty()).map(|range| {
        let mut parts = range.split(';').map(str::trim);
        MediaRange {
            media_type: parts.next().unwrap_or_default(),
            parameters: parts.filter_map(|part| part.split_once('=')).collect(),
        }
    })
}

/// The first entry of the Accept header that can be served.
pub fn negotiate(header: Option<&str>, offer: Offer) -> Result<Accepted, Failure> {
    let header = header.map(str::trim).filter(|header| !header.is_empty()).unwrap_or("*/*");
    for range in media_ranges(header) {
        let format = match range.media_type {
            "*/*" | "application/json" => Format::Json,
            "application/yaml" if !offer.is_watch => Format::Yaml,
            PROTOBUF => Format::Protobuf,
            _ => continue,
        };
        let view = match range.parameter("as") {
            None => View::Whole,
            Some(_) if !offer.is_resource => continue,
            Some(wanted) => {
                let is_known = range.parameter("g") == Some("meta.k8s.io")
                    && matches!(range.parameter("v"), Some("v1" | "v1beta1"));
                match wanted {
                    _ if !is_known => continue,
                    "Table" if offer.has_table => View::Table,
                    "PartialObjectMetadata" => View::Metadata { is_list: false },
                    "PartialObjectMetadataList" => View::Metadata { is_list: true },
                    _ => continue,
                }
            }
        };
        // Metadata has protobuf messages for every kind.
        let can_protobuf = match view {
            View::Whole => offer.has_protobuf,
            View::Metadata { .. } => true,
            View::Table => false,
        };
        if format == Format::Protobuf && !can_protobuf {
            continue;
        }
        return Ok(Accepted { format, view });
    }
    let mut accepted = vec![Format::Json];
    if !offer.is_watch {
        accepted.push(Format::Yaml);
    }
    if offer.has_protobuf {
        accepted.push(Format::Protobuf);
    }
    let accepted = accepted.into_iter().map(|format| format.content_type(offer.is_watch).as_str());
    Err(Failure::not_acceptable(&accepted.collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILT_IN: Offer = Offer { has_protobuf: true, is_watch: false, is_resource: true, has_table: true };
    const CUSTOM: Offer = Offer { has_protobuf: false, is_watch: false, is_resource: true, has_table: true };

    #[test]
    fn the_first_acceptable_entry_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(negotiate(Some(table), CUSTOM).unwrap().view, View::Table);
        let both = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(negotiate(Some(both), BUILT_IN).unwrap().format, Format::Protobuf);
        assert_eq!(negotiate(Some(both), CUSTOM).unwrap().format, Format::Json);
        assert_eq!(negotiate(None, CUSTOM).unwrap().format, Format::Json);
        assert_eq!(negotiate(Some("application/*"), CUSTOM).unwrap_err().code(), 406);
        let old = "application/json;as=Table;v=v1alpha1;g=meta.k8s.io";
        assert_eq!(negotiate(Some(old), CUSTOM).unwrap_err().code(), 406);
    }
}
