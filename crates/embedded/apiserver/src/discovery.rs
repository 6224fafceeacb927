//! What the server says about itself: groups, resources, schemas, version, health.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, header, request::Parts};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    api::Api,
    auth::tokens,
    model,
    request::{
        body::Answer,
        negotiate::{Format, Offer, media_ranges, negotiate},
        url::{Place, Query},
    },
    resources::{Group, GroupVersion, Registry, Resource, api_version},
    show,
    status::Failure,
};

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
    place: &Place,
    query: &Query,
) -> Result<Response<Answer>, Failure> {
    let registry = api.registry();
    let path = parts.uri.path();
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Failure::method_not_allowed());
    }
    match place {
        Place::Groups { is_core } => groups(api, &registry, &parts.headers, *is_core),
        Place::Group(name) => {
            let group = registry.group(name).filter(|group| !group.name.is_empty()).map(legacy_group);
            let mut value = group
                .or_else(|| remote_groups(api).into_iter().find(|group| group["name"] == **name))
                .ok_or_else(Failure::no_page)?;
            let map = crate::json::as_map(&mut value);
            map.insert("kind".into(), "APIGroup".into());
            map.insert("apiVersion".into(), "v1".into());
            json_answer(&parts.headers, &value)
        }
        Place::Version { group, version } => {
            let found = registry.group(group).ok_or_else(Failure::no_page)?;
            let found = found
                .versions
                .iter()
                .find(|one| *one.version == **version)
                .ok_or_else(Failure::no_resource)?;
            json_answer(&parts.headers, &resource_list(group, found))
        }
        Place::Resource(_) => Err(Failure::no_resource()),
        Place::Other => other(api, &registry, parts, path, query),
    }
}

fn json_answer(headers: &HeaderMap, value: &Value) -> Result<Response<Answer>, Failure> {
    let offer = Offer { has_protobuf: false, is_watch: false, is_resource: false };
    let accepted = negotiate(header_text(headers, &header::ACCEPT), offer)?;
    let bytes = show::encode(value, accepted.format, false)?;
    Ok(show::answer(200, accepted.format.content_type(false), bytes))
}

fn text_answer(code: u16, text: impl Into<Bytes>) -> Response<Answer> {
    show::answer(code, "text/plain; charset=utf-8", text)
}

fn other(
    api: &Api,
    registry: &Arc<Registry>,
    parts: &Parts,
    path: &str,
    query: &Query,
) -> Result<Response<Answer>, Failure> {
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
            json_answer(&parts.headers, &json!({"paths": paths}))
        }
        "version" if rest.is_empty() => json_answer(&parts.headers, &version()),
        "healthz" | "livez" | "readyz" => Ok(health(api, first, rest, query)),
        "metrics" if rest.is_empty() => Ok(text_answer(200, metrics(api))),
        "openapi" if rest == "v2" => openapi_v2(api, registry, parts),
        "openapi" if rest == "v3" || rest.starts_with("v3/") => {
            let document = rest.strip_prefix("v3").unwrap_or_default().trim_start_matches('/');
            openapi_v3(api, registry, parts, document, query)
        }
        "openid" if rest == "v1/jwks" => {
            let keys = api.tokens().key_set();
            Ok(show::answer(200, "application/jwk-set+json", keys.to_string()))
        }
        ".well-known" if rest == "openid-configuration" => json_answer(
            &parts.headers,
            &json!({"issuer": tokens::ISSUER, "jwks_uri": format!("https://{}/openid/v1/jwks", api.address()),
                "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"]}),
        ),
        _ => Err(Failure::no_page()),
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR, "gitVersion": GIT_VERSION, "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, platform()),
        "emulationMajor": "1", "emulationMinor": MINOR, "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
    })
}

/// Machines as Go calls them.
fn platform() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn health(api: &Api, endpoint: &str, check: &str, query: &Query) -> Response<Answer> {
    let excluded: Vec<&str> = query.all("exclude").collect();
    let checks = [("ping", true), ("log", true), ("etcd", api.store().is_healthy())];
    let checks =
        checks.iter().filter(|(name, _)| (check.is_empty() || *name == check) && !excluded.contains(name));
    let (mut lines, mut is_well) = (String::new(), true);
    for (name, is_ok) in checks {
        is_well &= is_ok;
        let line =
            if *is_ok { format!("[+]{name} ok\n") } else { format!("[-]{name} failed: reason withheld\n") };
        lines += &line;
    }
    if !is_well {
        return text_answer(500, format!("{lines}{endpoint} check failed\n"));
    }
    if query.is_set("verbose") {
        return text_answer(200, format!("{lines}{endpoint} check passed\n"));
    }
    text_answer(200, "ok")
}

fn metrics(api: &Api) -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "# HELP apiserver_storage_objects Number of stored objects.\n# TYPE apiserver_storage_objects gauge\n",
    );
    let mut buckets = api.store().buckets();
    buckets.sort();
    for bucket in buckets {
        let _ = writeln!(
            text,
            "apiserver_storage_objects{{resource=\"{bucket}\"}} {}",
            api.store().count(&bucket)
        );
    }
    text
}

fn group_versions(group: &Group) -> Vec<Value> {
    let entry = |version: &GroupVersion| json!({"groupVersion": api_version(&group.name, &version.version), "version": &*version.version});
    group.versions.iter().map(entry).collect()
}

fn legacy_group(group: &Group) -> Value {
    let versions = group_versions(group);
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": &*group.name, "versions": versions, "preferredVersion": preferred})
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn groups(
    api: &Api,
    registry: &Arc<Registry>,
    headers: &HeaderMap,
    is_core: bool,
) -> Result<Response<Answer>, Failure> {
    let accept = header_text(headers, &header::ACCEPT).unwrap_or("*/*");
    for range in media_ranges(accept) {
        let wants = range.parameter("as") == Some("APIGroupDiscoveryList")
            && range.parameter("g") == Some("apidiscovery.k8s.io")
            && range.parameter("v") == Some("v2");
        if range.media_type == "application/json" && wants {
            return Ok(aggregated_groups(api, registry, headers, is_core));
        }
        if matches!(range.media_type, "application/json" | "*/*" | "application/yaml")
            && range.parameter("as").is_none()
        {
            break;
        }
    }
    let value = if is_core {
        json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": api.address()}]})
    } else {
        let mut groups: Vec<Value> =
            registry.groups.iter().filter(|group| !group.name.is_empty()).map(legacy_group).collect();
        groups.extend(remote_groups(api));
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    };
    let mut response = json_answer(headers, &value)?;
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

/// Groups that other servers serve.
fn remote_groups(api: &Api) -> Vec<Value> {
    let mut groups: Vec<(String, Vec<Value>)> = Vec::new();
    for (group, version, _) in api.services().discovered(api) {
        let version = json!({"groupVersion": api_version(&group, &version), "version": version});
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, versions)) => versions.push(version),
            None => groups.push((group, vec![version])),
        }
    }
    let shown = |(name, versions): (String, Vec<Value>)| json!({"name": name, "versions": versions, "preferredVersion": versions.first()});
    groups.into_iter().map(shown).collect()
}

/// What other servers serve, with their resources as they were last known.
fn remote_aggregated(api: &Api) -> Vec<Value> {
    let mut groups: Vec<(String, Vec<Value>)> = Vec::new();
    for (group, version, resources) in api.services().discovered(api) {
        let shown = match resources {
            Some(resources) => json!({"version": version, "freshness": "Current", "resources": *resources}),
            None => json!({"version": version, "freshness": "Stale"}),
        };
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, versions)) => versions.push(shown),
            None => groups.push((group, vec![shown])),
        }
    }
    let shown = |(name, versions): (String, Vec<Value>)| json!({"metadata": {"name": name, "creationTimestamp": null}, "versions": versions});
    groups.into_iter().map(shown).collect()
}

fn aggregated_groups(
    api: &Api,
    registry: &Arc<Registry>,
    headers: &HeaderMap,
    is_core: bool,
) -> Response<Answer> {
    let cached = api.documents().cached(registry);
    let [core, others] = &cached.aggregated;
    let remote = if is_core { Vec::new() } else { remote_aggregated(api) };
    if !remote.is_empty() {
        // What other servers have changes without anybody telling this one.
        let (bytes, tag) = aggregated_document(registry, is_core, remote);
        return tagged(headers, AGGREGATED, bytes, &tag, "public");
    }
    let (bytes, tag) = (if is_core { core } else { others })
        .get_or_init(|| aggregated_document(registry, is_core, Vec::new()));
    tagged(headers, AGGREGATED, bytes.clone(), tag, "public")
}

fn aggregated_document(registry: &Registry, is_core: bool, remote: Vec<Value>) -> (Bytes, String) {
    let groups = registry.groups.iter().filter(|group| group.name.is_empty() == is_core);
    let mut items: Vec<Value> = groups
        .map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> =
                        version.resources.iter().map(|resource| aggregated_resource(resource)).collect();
                    json!({"version": &*version.version, "freshness": "Current", "resources": *resources})
                })
                .collect();
            let metadata = if is_core {
                json!({"creationTimestamp": null})
            } else {
                json!({"name": &*group.name, "creationTimestamp": null})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    items.extend(remote);
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items});
    let bytes = serde_json::to_vec(&list).unwrap_or_default();
    let tag = format!("\"{}\"", hash(&bytes));
    (bytes.into(), tag)
}

/// An answer that a client may already have.
fn tagged(
    headers: &HeaderMap,
    content_type: &'static str,
    bytes: Bytes,
    tag: &str,
    cache: &'static str,
) -> Response<Answer> {
    let is_known = header_text(headers, &header::IF_NONE_MATCH)
        .is_some_and(|known| known.split(',').any(|one| one.trim() == tag));
    let mut response =
        if is_known { show::answer(304, content_type, "") } else { show::answer(200, content_type, bytes) };
    let out = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(tag) {
        out.insert(header::ETAG, tag);
    }
    out.insert(header::VARY, HeaderValue::from_static("Accept"));
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}

fn aggregated_resource(resource: &Resource) -> Value {
    let is_custom = resource.as_custom().is_some();
    let kind =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let own = if is_custom {
        kind(&resource.group, &resource.version, &resource.kind)
    } else {
        kind("", "", &resource.kind)
    };
    let mut value = json!({
        "resource": &*resource.plural, "responseKind": own,
        "scope": if resource.is_namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs,
    });
    let map = crate::json::as_map(&mut value);
    if !resource.short_names.is_empty() {
        map.insert("shortNames".into(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        map.insert("categories".into(), json!(resource.categories));
    }
    if !resource.subresources.is_empty() {
        let subs: Vec<Value> = resource
            .subresources
            .iter()
            .map(|sub| {
                let (name, version) = (if sub.kind.is_empty() { &*resource.kind } else { &sub.kind }, &sub.version);
                json!({"subresource": sub.name, "responseKind": kind(&sub.group, version, name), "verbs": sub.verbs})
            })
            .collect();
        map.insert("subresources".into(), subs.into());
    }
    value
}

fn resource_list(group: &str, version: &GroupVersion) -> Value {
    let mut resources = Vec::new();
    for resource in &version.resources {
        let mut entry = json!({"name": &*resource.plural, "singularName": resource.singular,
            "namespaced": resource.is_namespaced, "kind": &*resource.kind, "verbs": resource.verbs});
        let map = crate::json::as_map(&mut entry);
        if !resource.short_names.is_empty() {
            map.insert("shortNames".into(), json!(resource.short_names));
        }
        if !resource.categories.is_empty() {
            map.insert("categories".into(), json!(resource.categories));
        }
        if resource.allows("list") {
            let id =
                hash(format!("{}/{}/{}", resource.group, resource.storage_version, resource.kind).as_bytes());
            map.insert("storageVersionHash".into(), id.get(..12).unwrap_or_default().into());
        }
        resources.push(entry);
        for sub in &resource.subresources {
            let kind = if sub.kind.is_empty() { &*resource.kind } else { &sub.kind };
            let mut entry = json!({"name": format!("{}/{}", resource.plural, sub.name), "singularName": "",
                "namespaced": resource.is_namespaced, "kind": kind, "verbs": sub.verbs});
            let is_foreign =
                !sub.version.is_empty() && (sub.group != *resource.group || sub.version != *resource.version);
            if is_foreign {
                let map = crate::json::as_map(&mut entry);
                map.insert("group".into(), sub.group.as_str().into());
                map.insert("version".into(), sub.version.as_str().into());
            }
            resources.push(entry);
        }
    }
    let mut list = json!({"kind": "APIResourceList", "groupVersion": api_version(group, &version.version), "resources": resources});
    if !group.is_empty() {
        crate::json::as_map(&mut list).insert("apiVersion".into(), "v1".into());
    }
    list
}

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

fn openapi_v3(
    api: &Api,
    registry: &Arc<Registry>,
    parts: &Parts,
    name: &str,
    query: &Query,
) -> Result<Response<Answer>, Failure> {
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
        return json_answer(&parts.headers, &json!({"paths": paths}));
    }
    let version = registry
        .groups
        .iter()
        .flat_map(|group| group.versions.iter().map(move |version| (group, version)))
        .find(|(group, version)| document_name(&group.name, &version.version) == name);
    let id = version.map(|(_, version)| openapi_hash(version)).ok_or_else(Failure::no_page)?;
    let asked = query.get("hash");
    if asked.is_some_and(|asked| asked != id) {
        let mut response = show::answer(301, "text/plain", "");
        if let Ok(location) = HeaderValue::from_str(&format!("/openapi/v3/{name}?hash={id}")) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        return Ok(response);
    }
    let (bytes, _) = openapi_document(api, registry, name).ok_or_else(Failure::no_page)?;
    let cache = if asked.is_some() { "public, immutable" } else { "no-cache, private" };
    Ok(tagged(&parts.headers, "application/json", bytes, &format!("\"{id}\""), cache))
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

/// The content type of OpenAPI v2 documents in protobuf.
const OPENAPI_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

fn openapi_v2(api: &Api, registry: &Arc<Registry>, parts: &Parts) -> Result<Response<Answer>, Failure> {
    let accept = header_text(&parts.headers, &header::ACCEPT).unwrap_or("*/*");
    let mut is_protobuf = None;
    for range in media_ranges(accept) {
        match range.media_type {
            "application/json" | "*/*" => is_protobuf = Some(false),
            OPENAPI_PROTOBUF | "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" => {
                is_protobuf = Some(true);
            }
            _ => continue,
        }
        break;
    }
    let is_protobuf = is_protobuf.ok_or_else(|| Failure::not_acceptable(Format::Json.content_type(false)))?;
    let cached = api.documents().cached(registry);
    let bytes = cached.openapi_v2.get_or_init(|| {
        let document = model::openapi_v2(registry, GIT_VERSION);
        Bytes::from(serde_json::to_vec(&document).unwrap_or_default())
    });
    if is_protobuf {
        let document: Value = serde_json::from_slice(bytes).map_err(Failure::internal)?;
        let bytes = Bytes::from(quintet_objects::protobuf::encode_document(&document));
        let tag = format!("\"{}\"", hash(&bytes));
        return Ok(tagged(&parts.headers, OPENAPI_PROTOBUF, bytes, &tag, "no-cache, private"));
    }
    let tag = format!("\"{}\"", hash(bytes));
    Ok(tagged(&parts.headers, "application/json", bytes.clone(), &tag, "no-cache, private"))
}
