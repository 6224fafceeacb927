//! API groups and their resources, in the legacy and in the aggregated form.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderValue;
use http::Response;
use http::header;
use serde_json::Value;
use serde_json::json;

use super::hash;
use super::header_text;
use super::json_response;
use super::tagged;

use crate::api::Api;
use crate::request::body::ResponseBody;
use crate::request::content_type::ContentType;
use crate::request::negotiate::media_ranges;
use crate::resources::Group;
use crate::resources::GroupVersion;
use crate::resources::Registry;
use crate::resources::Resource;
use crate::resources::api_version;
use crate::status::Failure;

fn group_versions(group: &Group) -> Vec<Value> {
    let entry = |version: &GroupVersion| json!({"groupVersion": api_version(&group.name, &version.version), "version": &*version.version});
    group.versions.iter().map(entry).collect()
}

pub(super) fn legacy_group(group: &Group) -> Value {
    let versions = group_versions(group);
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": &*group.name, "versions": versions, "preferredVersion": preferred})
}

pub(super) fn groups(
    api: &Api,
    registry: &Arc<Registry>,
    headers: &HeaderMap,
    is_core: bool,
) -> Result<Response<ResponseBody>, Failure> {
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
    let mut response = json_response(headers, &value)?;
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

/// Groups that other servers serve.
pub(super) fn remote_groups(api: &Api) -> Vec<Value> {
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
) -> Response<ResponseBody> {
    let cached = api.documents().cached(registry);
    let [core, others] = &cached.aggregated;
    let remote = if is_core { Vec::new() } else { remote_aggregated(api) };
    if !remote.is_empty() {
        // What other servers have changes without notice.
        let (bytes, tag) = aggregated_document(registry, is_core, remote);
        return tagged(headers, ContentType::Discovery, bytes, &tag, "public");
    }
    let (bytes, tag) = (if is_core { core } else { others })
        .get_or_init(|| aggregated_document(registry, is_core, Vec::new()));
    tagged(headers, ContentType::Discovery, bytes.clone(), tag, "public")
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

pub(super) fn resource_list(group: &str, version: &GroupVersion) -> Value {
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
