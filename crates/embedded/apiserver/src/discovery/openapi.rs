//! OpenAPI v2 and v3 documents.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use http::Response;
use http::header;
use http::request::Parts;
use serde_json::Value;
use serde_json::json;

use super::GIT_VERSION;
use super::hash;
use super::header_text;
use super::json_response;
use super::tagged;

use crate::api::Api;
use crate::encoding::response;
use crate::model;
use crate::request::body::ResponseBody;
use crate::request::content_type::ContentType;
use crate::request::negotiate::media_ranges;
use crate::request::url::Query;
use crate::resources::GroupVersion;
use crate::resources::Registry;
use crate::status::Failure;

/// The name of a group version in OpenAPI paths.
fn document_name(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn openapi_document(api: &Api, registry: &Arc<Registry>, name: &str) -> Option<(Bytes, String)> {
    let cached = api.documents().cached(registry);
    if let Some(known) = cached.openapi.lock().get(name) {
        return Some(known.clone());
    }
    let document = registry.groups.iter().find_map(|group| {
        let version = group.versions.iter().find(|one| document_name(&group.name, &one.version) == name)?;
        Some(model::openapi_v3(&group.name, version, GIT_VERSION))
    })?;
    let bytes = Bytes::from(serde_json::to_vec(&document).unwrap_or_default());
    let entry = (bytes.clone(), hash(&bytes));
    cached.openapi.lock().insert(name.to_owned(), entry.clone());
    Some(entry)
}

pub(super) fn openapi_v3(
    api: &Api,
    registry: &Arc<Registry>,
    parts: &Parts,
    name: &str,
    query: &Query,
) -> Result<Response<ResponseBody>, Failure> {
    if name.is_empty() {
        let mut paths = serde_json::Map::new();
        for group in &registry.groups {
            for version in &group.versions {
                let name = document_name(&group.name, &version.version);
                // Not the hash of the document, which would have to be made for it, but of what it is made from.
                let id = openapi_hash(version);
                paths.insert(
                    name.clone(),
                    json!({"serverRelativeURL": format!("/openapi/v3/{name}?hash={id}")}),
                );
            }
        }
        return json_response(&parts.headers, &json!({"paths": paths}));
    }
    let version = registry
        .groups
        .iter()
        .flat_map(|group| group.versions.iter().map(move |version| (group, version)))
        .find(|(group, version)| document_name(&group.name, &version.version) == name);
    let id = version.map(|(_, version)| openapi_hash(version)).ok_or_else(Failure::no_page)?;
    let asked = query.get("hash");
    if asked.is_some_and(|asked| asked != id) {
        let mut response = response::with_body(301, ContentType::Text, "");
        if let Ok(location) = HeaderValue::from_str(&format!("/openapi/v3/{name}?hash={id}")) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        return Ok(response);
    }
    let (bytes, _) = openapi_document(api, registry, name).ok_or_else(Failure::no_page)?;
    let cache = if asked.is_some() { "public, immutable" } else { "no-cache, private" };
    Ok(tagged(&parts.headers, ContentType::Json, bytes, &format!("\"{id}\""), cache))
}

/// Changes whenever the document of a version does.
fn openapi_hash(version: &GroupVersion) -> String {
    let mut text = GIT_VERSION.to_owned();
    for resource in &version.resources {
        let line = format!("{}/{}/{};", resource.api_version, resource.kind, resource.epoch);
        text += &line;
    }
    hash(text.as_bytes())
}

/// The names by which clients ask for OpenAPI v2 documents in protobuf: the older one, and the one of the response.
const OPENAPI_PROTOBUF: [&str; 2] =
    ["application/com.github.proto-openapi.spec.v2@v1.0+protobuf", ContentType::OpenApiV2Protobuf.as_str()];

pub(super) fn openapi_v2(
    api: &Api,
    registry: &Arc<Registry>,
    parts: &Parts,
) -> Result<Response<ResponseBody>, Failure> {
    let accept = header_text(&parts.headers, &header::ACCEPT).unwrap_or("*/*");
    let mut is_protobuf = None;
    for range in media_ranges(accept) {
        match range.media_type {
            "application/json" | "*/*" => is_protobuf = Some(false),
            protobuf if OPENAPI_PROTOBUF.contains(&protobuf) => is_protobuf = Some(true),
            _ => continue,
        }
        break;
    }
    let is_protobuf = is_protobuf.ok_or_else(|| Failure::not_acceptable(ContentType::Json.as_str()))?;
    let cached = api.documents().cached(registry);
    let bytes = cached.openapi_v2.get_or_init(|| {
        let document = model::openapi_v2(registry, GIT_VERSION);
        Bytes::from(serde_json::to_vec(&document).unwrap_or_default())
    });
    if is_protobuf {
        let document: Value = serde_json::from_slice(bytes).map_err(Failure::internal)?;
        let bytes = Bytes::from(quintet_objects::protobuf::encode_document(&document));
        let tag = format!("\"{}\"", hash(&bytes));
        let content_type = ContentType::OpenApiV2Protobuf;
        return Ok(tagged(&parts.headers, content_type, bytes, &tag, "no-cache, private"));
    }
    let tag = format!("\"{}\"", hash(bytes));
    Ok(tagged(&parts.headers, ContentType::Json, bytes.clone(), &tag, "no-cache, private"))
}
