//! The requests that are measured: on ConfigMaps of about 1 KB, and on the status of Deployments of as much.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Something to ask a server for, again and again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Get,
    Merge,
    Status,
    Apply,
}

impl Operation {
    pub(crate) const ALL: [Self; 5] = [Self::Create, Self::Get, Self::Merge, Self::Status, Self::Apply];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Get => "get",
            Self::Merge => "merge patch",
            Self::Status => "status patch",
            Self::Apply => "server-side apply",
        }
    }

    /// What has to be there before, besides the objects that were created by then.
    pub(crate) fn preparation(self, client: &str) -> Result<Option<Request<Full<Bytes>>>, http::Error> {
        if self != Self::Status {
            return Ok(None);
        }
        let labels = json!({"app": client});
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("{client}-0")},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "example.invalid/image"}]}}}});
        let request = Request::post(DEPLOYMENTS).header("host", "localhost");
        request
            .header("content-type", "application/json")
            .body(Full::new(object.to_string().into()))
            .map(Some)
    }

    /// The request number `count` of a client. All but creates are about the first object that the client created.
    pub(crate) fn request(self, client: &str, count: u64) -> Result<Request<Full<Bytes>>, http::Error> {
        let name = format!("{client}-{}", if self == Self::Create { count } else { 0 });
        match self {
            Self::Create => create(&name),
            Self::Get => {
                Request::get(format!("{MAPS}/{name}")).header("host", "localhost").body(Full::default())
            }
            Self::Merge => {
                let change = json!({"data": {"n": count.to_string()}});
                patch(&format!("{MAPS}/{name}"), "application/merge-patch+json", &change)
            }
            Self::Status => {
                let change = json!({"status": {"observedGeneration": count}});
                patch(&format!("{DEPLOYMENTS}/{name}/status"), "application/merge-patch+json", &change)
            }
            Self::Apply => patch(
                &format!("{MAPS}/{name}?fieldManager=bench&force=true"),
                "application/apply-patch+yaml",
                &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                    "data": {"n": count.to_string()}}),
            ),
        }
    }
}

pub(crate) fn create(name: &str) -> Result<Request<Full<Bytes>>, http::Error> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"payload": "x".repeat(900)}});
    let request = Request::post(MAPS).header("host", "localhost").header("content-type", "application/json");
    request.body(Full::new(object.to_string().into()))
}

pub(crate) fn patch(path: &str, kind: &str, patch: &Value) -> Result<Request<Full<Bytes>>, http::Error> {
    let request = Request::patch(path).header("host", "localhost").header("content-type", kind);
    request.body(Full::new(patch.to_string().into()))
}
