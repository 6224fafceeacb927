//! Discovery and OpenAPI documents.

use serde_json::{Value, json};

use super::{GROUP, VERSIONS};

/// A document about the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Document {
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group,
    /// `/apis/GROUP/VERSION`
    Resources(&'static str),
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiV3Index,
    /// `/openapi/v3/apis/GROUP/VERSION`
    OpenApiV3(&'static str),
}

const KIND: &str = "PendingWorkloadsSummary";

/// Where definitions are in each version of OpenAPI.
const DEFINITIONS_V2: &str = "#/definitions";
const DEFINITIONS_V3: &str = "#/components/schemas";

impl Document {
    pub(super) fn content(self) -> Value {
        match self {
            Self::Groups => {
                let mut group = group();
                if let Some(fields) = group.as_object_mut() {
                    fields.remove("kind");
                    fields.remove("apiVersion");
                }
                json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] })
            }
            Self::Group => group(),
            Self::Resources(version) => resources(version),
            Self::OpenApiV2 => open_api_v2(),
            Self::OpenApiV3Index => {
                let paths = VERSIONS.iter().map(|version| {
                    let path = format!("apis/{GROUP}/{version}");
                    let url = json!({ "serverRelativeURL": format!("/openapi/v3/{path}") });
                    (path, url)
                });
                json!({ "paths": paths.collect::<serde_json::Map<_, _>>() })
            }
            Self::OpenApiV3(version) => open_api_v3(version),
        }
    }
}

fn group() -> Value {
    let version = |version: &str| json!({ "groupVersion": format!("{GROUP}/{version}"), "version": version });
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "versions": VERSIONS.iter().map(|one| version(one)).collect::<Vec<_>>(),
        "preferredVersion": VERSIONS.first().map(|one| version(one)),
    })
}

fn resources(version: &str) -> Value {
    let queue = |plural: &str, singular: &str, namespaced: bool| {
        [
            json!({ "name": plural, "singularName": singular, "namespaced": namespaced, "kind": KIND, "verbs": [] }),
            json!({
                "name": format!("{plural}/pendingworkloads"), "singularName": "", "namespaced": namespaced,
                "kind": KIND, "verbs": ["get"],
            }),
        ]
    };
    let queues = [queue("clusterqueues", "clusterqueue", false), queue("localqueues", "localqueue", true)];
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{version}"),
        "resources": queues.concat(),
    })
}

/// A parameter of a request, of either version of OpenAPI.
fn parameter(name: &str, place: &str, kind: &str, is_v3: bool, about: &str) -> Value {
    let mut parameter =
        json!({ "name": name, "in": place, "description": about, "required": place == "path" });
    if is_v3 {
        parameter["schema"] = json!({ "type": kind });
    } else {
        parameter["type"] = kind.into();
    }
    parameter
}

fn paths(version: &str, is_v3: bool) -> serde_json::Map<String, Value> {
    let schema = json!({ "$ref": format!("{}/{}", definitions_at(is_v3), definition(version, KIND)) });
    let content = if is_v3 {
        json!({ "description": "OK", "content": { "application/json": { "schema": schema } } })
    } else {
        json!({ "description": "OK", "schema": schema })
    };
    let path = |scope: &str, path: &str, kind: &str, names: &[(&str, &str)]| {
        let mut parameters: Vec<Value> =
            names.iter().map(|(name, about)| parameter(name, "path", "string", is_v3, about)).collect();
        for (name, about) in
            [("limit", "most items to return, 1000 by default"), ("offset", "items to leave out")]
        {
            parameters.push(parameter(name, "query", "integer", is_v3, about));
        }
        let version_word = version.replacen('v', "V", 1);
        let mut get = json!({
            "description": "list pending Workloads in the order in which they are tried",
            "operationId": format!("readVisibilityKueue{version_word}{scope}{kind}PendingWorkloads"),
            "tags": [format!("visibilityKueue_{version}")],
            "parameters": parameters,
            "responses": { "200": content },
            "x-kubernetes-action": "get",
            "x-kubernetes-group-version-kind": { "group": GROUP, "version": version, "kind": KIND },
        });
        if !is_v3 {
            get["produces"] = json!(["application/json"]);
            get["schemes"] = json!(["https"]);
        }
        (format!("/apis/{GROUP}/{version}/{path}/pendingworkloads"), json!({ "get": get }))
    };
    let name = ("name", "name of the queue");
    [
        path("", "clusterqueues/{name}", "ClusterQueue", &[name]),
        path(
            "Namespaced",
            "namespaces/{namespace}/localqueues/{name}",
            "LocalQueue",
            &[("namespace", "namespace of the queue"), name],
        ),
    ]
    .into_iter()
    .collect()
}

fn definitions_at(is_v3: bool) -> &'static str {
    if is_v3 { DEFINITIONS_V3 } else { DEFINITIONS_V2 }
}

/// The name of a type among the definitions, which are those of all servers of the cluster.
fn definition(version: &str, kind: &str) -> String {
    format!("io.x-k8s.kueue.visibility.{version}.{kind}")
}

fn definitions(version: &str, is_v3: bool) -> serde_json::Map<String, Value> {
    let reference =
        |kind: &str| json!({ "$ref": format!("{}/{}", definitions_at(is_v3), definition(version, kind)) });
    let text = |about: &str| json!({ "type": "string", "description": about });
    let number = |about: &str| json!({ "type": "integer", "format": "int32", "description": about });
    let metadata = |about: &str| json!({ "type": "object", "description": about });
    let workload = json!({
        "description": "A Workload that waits for quota.", "type": "object",
        "required": ["priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"],
        "properties": {
            "metadata": metadata("Name, namespace, owners and time of creation of the Workload."),
            "priority": number("Its priority."),
            "localQueueName": text("The LocalQueue it was submitted to."),
            "positionInClusterQueue": number("How many of the ClusterQueue are tried before it."),
            "positionInLocalQueue": number("How many of the LocalQueue are tried before it."),
        },
    });
    let summary = json!({
        "description": "Workloads that wait in a queue, in the order in which they are tried.", "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": text("Version of the schema."),
            "kind": text("Kind of the object."),
            "metadata": metadata("Empty."),
            "items": { "type": "array", "items": reference("PendingWorkload"), "description": "The Workloads." },
        },
        "x-kubernetes-group-version-kind": [{ "group": GROUP, "version": version, "kind": KIND }],
    });
    [(definition(version, "PendingWorkload"), workload), (definition(version, KIND), summary)]
        .into_iter()
        .collect()
}

fn information() -> Value {
    json!({ "title": "Quintet visibility", "version": env!("CARGO_PKG_VERSION") })
}

fn open_api_v2() -> Value {
    let all = |part: fn(&str, bool) -> serde_json::Map<String, Value>| {
        VERSIONS.iter().flat_map(|version| part(version, false)).collect::<serde_json::Map<_, _>>()
    };
    json!({
        "swagger": "2.0", "info": information(), "paths": all(paths), "definitions": all(definitions),
    })
}

fn open_api_v3(version: &str) -> Value {
    json!({
        "openapi": "3.0.0", "info": information(), "paths": paths(version, true),
        "components": { "schemas": definitions(version, true) },
    })
}
