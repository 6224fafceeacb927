//! The requests that are measured: on ConfigMaps of about 1 KB.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Something to ask a server for, again and again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Get,
    Merge,
    Apply,
}

impl Operation {
    pub(crate) const ALL: [Self; 4] = [Self::Create, Self::Get, Self::Merge, Self::Apply];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Get => "get",
            Self::Merge => "merge patch",
            Self::Apply => "server-side apply",
        }
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
                patch(&name, "application/merge-patch+json", &json!({"data": {"n": count.to_string()}}))
            }
            Self::Apply => patch(
                &format!("{name}?fieldManager=bench&force=true"),
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

pub(crate) fn patch(name: &str, kind: &str, patch: &Value) -> Result<Request<Full<Bytes>>, http::Error> {
    let request =
        Request::patch(format!("{MAPS}/{name}")).header("host", "localhost").header("content-type", kind);
    request.body(Full::new(patch.to_string().into()))
}
