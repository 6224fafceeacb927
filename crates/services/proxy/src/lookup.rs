//! What is read of the Kubernetes API to decide about a request: Services and ConfigMaps.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::Value;

use crate::backend::Backend;
use crate::headers::Identity;
use crate::path::encode;
use crate::template::ComputeTemplate;

/// The label of Services that KubeRay and Quintet make for Ray clusters.
const KUBERAY_SERVICES: &str = "app.kubernetes.io/name=kuberay";

/// How long the API may take to respond.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Responses are not larger: etcd holds 1.5 MiB per object.
const LIMIT: usize = 4 << 20;

/// A Service as the Kubernetes API names it in paths: `[scheme:]name[:port]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceName<'a>(&'a str);

impl<'a> ServiceName<'a> {
    /// Reads the segment of a path. Without a scheme there may be no port, as in `net.SplitSchemeNamePort`.
    pub(crate) fn read(segment: &'a str) -> Option<Self> {
        let parts: Vec<&str> = segment.split(':').collect();
        let ([name] | [name, _] | ["" | "http" | "https", name, _]) = *parts.as_slice() else { return None };
        (!name.is_empty()).then_some(Self(name))
    }
}

/// Why something was not found out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Failed(String),
}

/// Whether there is a Service of this name that belongs to a Ray cluster.
pub(crate) async fn is_ray_service(
    backend: &Backend,
    identity: &Identity,
    namespace: &str,
    ServiceName(name): &ServiceName<'_>,
) -> Result<bool, LookupError> {
    let namespace = path_segment("namespace", namespace)?;
    let field = encode(&format!("metadata.name={name}"));
    let label = encode(KUBERAY_SERVICES);
    let path = format!("/api/v1/namespaces/{namespace}/services?fieldSelector={field}&labelSelector={label}");
    let services = get(backend, identity, &path).await?;
    Ok(services["items"].as_array().is_some_and(|items| !items.is_empty()))
}

/// Reads a compute template. Errors have the texts of upstream's `GetComputeTemplate`.
pub(crate) async fn compute_template(
    backend: &Backend,
    identity: &Identity,
    namespace: &str,
    name: &str,
) -> Result<ComputeTemplate, String> {
    let read = async {
        if name.is_empty() {
            return Err(LookupError::Failed("resource name may not be empty".to_owned()));
        }
        let namespace = path_segment("namespace", namespace)?;
        let name = path_segment("resource name", name)?;
        get(backend, identity, &format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await
    };
    let read = read.await.map_err(|error| {
        let cause = match error {
            LookupError::NotFound(message) => {
                format!("NotFoundError: Compute template {name} not found: {message}")
            }
            LookupError::Failed(message) => format!("Get compute template failed: {message}"),
        };
        format!("Cannot get compute template for name '{name}' in namespace '{namespace}', error: {cause}")
    });
    read.map(|config_map| ComputeTemplate::read(name, &config_map))
}

/// Encodes what is to be one segment. What an API server could take for several is refused, as client-go does.
fn path_segment(what: &str, text: &str) -> Result<String, LookupError> {
    let mut problems = Vec::new();
    if text == "." || text == ".." {
        problems.push(format!("may not be '{text}'"));
    } else {
        let illegal = ["/", "%"].into_iter().filter(|illegal| text.contains(illegal));
        problems.extend(illegal.map(|illegal| format!("may not contain '{illegal}'")));
    }
    if problems.is_empty() {
        // A blank is no plus here.
        return Ok(encode(text).replace('+', "%20"));
    }
    Err(LookupError::Failed(format!("invalid {what} {text:?}: [{}]", problems.join(" "))))
}

async fn get(backend: &Backend, identity: &Identity, path: &str) -> Result<Value, LookupError> {
    let failed = |why: String| LookupError::Failed(why);
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = path.parse().map_err(|error| failed(format!("{error}")))?;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let read = async {
        let response = backend.send(identity, request).await.map_err(|error| failed(error.to_string()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LIMIT).collect().await;
        let body = body.map_err(|error| failed(error.to_string()))?.to_bytes();
        Ok((status, serde_json::from_slice::<Value>(&body).unwrap_or_default()))
    };
    let (status, body) = match tokio::time::timeout(TIMEOUT, read).await {
        Ok(read) => read?,
        Err(_) => return Err(failed(format!("no response within {} s", TIMEOUT.as_secs()))),
    };
    let message = || match body["message"].as_str() {
        Some(message) => message.to_owned(),
        None => format!("the Kubernetes API answered {status}"),
    };
    match status {
        StatusCode::OK if body.is_object() => Ok(body),
        StatusCode::OK => Err(failed("the response of the Kubernetes API is not JSON".to_owned())),
        StatusCode::NOT_FOUND => Err(LookupError::NotFound(message())),
        _ => Err(failed(message())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_a_name_and_maybe_scheme_and_port() {
        for (segment, name) in [
            ("s", Some("s")),
            ("s:1", Some("s")),
            ("s:", Some("s")),
            ("http:s:1", Some("s")),
            ("https:s:", Some("s")),
            (":s:1", Some("s")),
            ("ftp:s:1", None),
            ("", None),
            (":", None),
            (":1", None),
            ("::", None),
            ("a:b:c:d", None),
        ] {
            assert_eq!(ServiceName::read(segment), name.map(ServiceName), "{segment:?}");
        }
    }

    #[test]
    fn segments_cannot_become_paths() {
        assert_eq!(path_segment("namespace", "a b").unwrap(), "a%20b");
        for (text, expected) in [
            ("..", "invalid resource name \"..\": [may not be '..']"),
            ("a/b%", "invalid resource name \"a/b%\": [may not contain '/' may not contain '%']"),
        ] {
            assert_eq!(path_segment("resource name", text).unwrap_err().to_string(), expected);
        }
    }
}
