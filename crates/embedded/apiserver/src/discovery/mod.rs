//! Everything that is served beside resources: discovery, OpenAPI, version, health and metrics.

mod groups;
mod health;
mod openapi;

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use http::Response;
use http::header;
use http::request::Parts;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::json;

use crate::api::Api;
use crate::auth::tokens;
use crate::encoding::response;
use crate::request::body::ResponseBody;
use crate::request::content_type::ContentType;
use crate::request::negotiate::Offer;
use crate::request::negotiate::negotiate;
use crate::request::url::Query;
use crate::request::url::Route;
use crate::resources::Registry;
use crate::status::Failure;

use groups::{groups, legacy_group, remote_groups, resource_list};
use health::{health, metrics, version};
use openapi::{openapi_v2, openapi_v3};

/// The version of Kubernetes whose API this is.
const MINOR: &str = "36";
const GIT_VERSION: &str = concat!("v1.36.0+quintet-", env!("CARGO_PKG_VERSION"));

/// Documents that are made once for a registry.
#[derive(Debug, Default)]
pub(crate) struct Documents(Mutex<Option<(Arc<Registry>, Arc<Cached>)>>);

#[derive(Debug, Default)]
struct Cached {
    aggregated: [std::sync::OnceLock<(Bytes, String)>; 2],
    openapi: Mutex<std::collections::HashMap<String, (Bytes, String)>>,
    openapi_v2: std::sync::OnceLock<Bytes>,
}

impl Documents {
    pub(crate) fn forget(&self) {
        *self.0.lock() = None;
    }

    fn cached(&self, registry: &Arc<Registry>) -> Arc<Cached> {
        let mut documents = self.0.lock();
        match &*documents {
            Some((of, cached)) if Arc::ptr_eq(of, registry) => Arc::clone(cached),
            _ => {
                let cached = Arc::new(Cached::default());
                *documents = Some((Arc::clone(registry), Arc::clone(&cached)));
                cached
            }
        }
    }
}

/// The SHA-512 of a document in upper-case hexadecimal.
fn hash(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA512, bytes);
    digest.as_ref().iter().fold(String::with_capacity(128), |mut text, byte| {
        use std::fmt::Write as _;
        let _ = write!(text, "{byte:02X}");
        text
    })
}

fn header_text<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Serves everything that is no resource.
pub(crate) fn serve(
    api: &Api,
    parts: &Parts,
    route: &Route,
    query: &Query,
) -> Result<Response<ResponseBody>, Failure> {
    let registry = api.registry();
    let path = parts.uri.path();
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Failure::method_not_allowed());
    }
    match route {
        Route::Groups { is_core } => groups(api, &registry, &parts.headers, *is_core),
        Route::Group(name) => {
            let group = registry.group(name).filter(|group| !group.name.is_empty()).map(legacy_group);
            let mut value = group
                .or_else(|| remote_groups(api).into_iter().find(|group| group["name"] == **name))
                .ok_or_else(Failure::no_page)?;
            let map = crate::json::as_map(&mut value);
            map.insert("kind".into(), "APIGroup".into());
            map.insert("apiVersion".into(), "v1".into());
            json_response(&parts.headers, &value)
        }
        Route::Version { group, version } => {
            let found = registry.group(group).ok_or_else(Failure::no_page)?;
            let found = found
                .versions
                .iter()
                .find(|one| *one.version == **version)
                .ok_or_else(Failure::no_resource)?;
            json_response(&parts.headers, &resource_list(group, found))
        }
        Route::Resource(_) => Err(Failure::no_resource()),
        Route::Other => other(api, &registry, parts, path, query),
    }
}

fn json_response(headers: &HeaderMap, value: &Value) -> Result<Response<ResponseBody>, Failure> {
    let offer = Offer { has_protobuf: false, is_watch: false, is_resource: false, has_table: false };
    let accepted = negotiate(header_text(headers, &header::ACCEPT), offer)?;
    let bytes = response::encode(value, accepted.format, false)?;
    Ok(response::with_body(200, accepted.format.content_type(false), bytes))
}

fn text_response(code: u16, text: impl Into<Bytes>) -> Response<ResponseBody> {
    response::with_body(code, ContentType::Text, text)
}

fn other(
    api: &Api,
    registry: &Arc<Registry>,
    parts: &Parts,
    path: &str,
    query: &Query,
) -> Result<Response<ResponseBody>, Failure> {
    let trimmed = path.trim_end_matches('/');
    let (first, rest) = match trimmed.strip_prefix('/').unwrap_or_default().split_once('/') {
        Some((first, rest)) => (first, rest),
        None => (trimmed.trim_start_matches('/'), ""),
    };
    match first {
        "" => {
            let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
            for group in registry.groups.iter().filter(|group| !group.name.is_empty()) {
                paths.push(format!("/apis/{}", group.name));
                paths.extend(group.versions.iter().map(|v| format!("/apis/{}/{}", group.name, v.version)));
            }
            paths.extend(
                [
                    "/healthz",
                    "/livez",
                    "/metrics",
                    "/openapi/v2",
                    "/openapi/v3",
                    "/openid/v1/jwks",
                    "/readyz",
                    "/version",
                ]
                .map(str::to_owned),
            );
            json_response(&parts.headers, &json!({"paths": paths}))
        }
        "version" if rest.is_empty() => json_response(&parts.headers, &version()),
        "healthz" | "livez" | "readyz" => Ok(health(api, first, rest, query)),
        "metrics" if rest.is_empty() => Ok(text_response(200, metrics(api))),
        "openapi" if rest == "v2" => openapi_v2(api, registry, parts),
        "openapi" if rest == "v3" || rest.starts_with("v3/") => {
            let document = rest.strip_prefix("v3").unwrap_or_default().trim_start_matches('/');
            openapi_v3(api, registry, parts, document, query)
        }
        "openid" if rest == "v1/jwks" => {
            let keys = api.tokens().key_set();
            Ok(response::with_body(200, ContentType::KeySet, keys.to_string()))
        }
        ".well-known" if rest == "openid-configuration" => json_response(
            &parts.headers,
            &json!({"issuer": tokens::ISSUER, "jwks_uri": format!("https://{}/openid/v1/jwks", api.address()),
                "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"]}),
        ),
        _ => Err(Failure::no_page()),
    }
}

/// A response with an ETag, `304 Not Modified` if the client has it.
fn tagged(
    headers: &HeaderMap,
    content_type: ContentType,
    bytes: Bytes,
    tag: &str,
    cache: &'static str,
) -> Response<ResponseBody> {
    let is_known = header_text(headers, &header::IF_NONE_MATCH)
        .is_some_and(|known| known.split(',').any(|one| one.trim() == tag));
    let mut response = if is_known {
        response::with_body(304, content_type, "")
    } else {
        response::with_body(200, content_type, bytes)
    };
    let out = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(tag) {
        out.insert(header::ETAG, tag);
    }
    out.insert(header::VARY, HeaderValue::from_static("Accept"));
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}
