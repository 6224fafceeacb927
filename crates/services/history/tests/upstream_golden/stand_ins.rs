//! A dashboard and a Kubernetes API that answer from a recording and note what they are asked.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

type Answered = Response<Full<Bytes>>;

/// Requests that a stand-in received.
pub(crate) type Seen = Arc<Mutex<Vec<Value>>>;

async fn serve(
    answer: impl Fn(&Request<Incoming>) -> Answered + Clone + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answered = answer(&request);
                async move { Ok::<_, Infallible>(answered) }
            });
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    address
}

fn note(seen: &Seen, request: &Request<Incoming>) {
    let mut headers = serde_json::Map::new();
    for name in request.headers().keys() {
        let values =
            request.headers().get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        headers.insert(name.as_str().to_owned(), values.collect::<Vec<_>>().join(", ").into());
    }
    let uri = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let request = json!({"method": request.method().as_str(), "uri": uri, "headers": headers});
    seen.lock().expect("not poisoned").push(request);
}

fn answered(status: u16, content_type: &str, body: String) -> Answered {
    Response::builder()
        .status(status)
        .header("Content-Type", content_type)
        .body(Full::new(Bytes::from(body)))
        .expect("a response")
}

/// The status that a request asks for: `?st=503`.
fn wanted_status(request: &Request<Incoming>) -> Option<&str> {
    let first = request.uri().query()?.split('&').next()?;
    first.strip_prefix("st=")
}

/// A dashboard that echoes.
pub(crate) async fn dashboard(seen: Seen) -> SocketAddr {
    serve(move |request| {
        note(&seen, request);
        let uri = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        match wanted_status(request) {
            Some(status) => {
                let mut answer =
                    answered(status.parse().expect("a status"), "text/plain", format!("status {status}"));
                answer.headers_mut().insert("Set-Cookie", "dash=1; Path=/".parse().expect("a cookie"));
                answer
            }
            None => answered(200, "application/json", json!({"echo": true, "uri": uri}).to_string()),
        }
    })
    .await
}

/// A Kubernetes API with these objects.
pub(crate) async fn kubernetes(objects: Vec<Value>, seen: Seen) -> SocketAddr {
    serve(move |request| {
        let path = request.uri().path().to_owned();
        let elements: Vec<&str> = path.trim_matches('/').split('/').collect();
        if elements.get(6).is_some_and(|it| *it == "proxy") {
            note(&seen, request);
            let uri = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            return match wanted_status(request) {
                Some(status) => answered(status.parse().expect("a status"), "text/plain", "status".to_owned()),
                None => answered(200, "application/json", json!({"echo": true, "uri": uri}).to_string()),
            };
        }
        let query = request.uri().query().unwrap_or_default().replace("%2F", "/").replace("%3D", "=").replace("%2C", ",");
        let selector = query.strip_prefix("labelSelector=").unwrap_or_default();
        let found = |kind: &str, namespace: Option<&str>, name: Option<&str>| -> Vec<Value> {
            let of_kind = objects.iter().filter(|object| object["kind"] == kind);
            let fits = of_kind.filter(|object| {
                let metadata = &object["metadata"];
                let labels = selector.split(',').filter_map(|pair| pair.split_once('='));
                namespace.is_none_or(|it| metadata["namespace"] == it)
                    && name.is_none_or(|it| metadata["name"] == it)
                    && labels.clone().all(|(label, value)| metadata["labels"][label] == value)
            });
            let mut found: Vec<Value> = fits.cloned().collect();
            found.sort_by_key(|object| object["metadata"]["name"].to_string());
            found
        };
        let (kind, plural, namespace, name) = match elements.as_slice() {
            ["apis", "ray.io", "v1", "rayclusters"] => ("RayCluster", "rayclusters.ray.io", None, None),
            ["apis", "ray.io", "v1", "namespaces", namespace, "rayclusters"] => {
                ("RayCluster", "rayclusters.ray.io", Some(*namespace), None)
            }
            ["apis", "ray.io", "v1", "namespaces", namespace, "rayclusters", name] => {
                ("RayCluster", "rayclusters.ray.io", Some(*namespace), Some(*name))
            }
            ["api", "v1", "namespaces", namespace, "secrets", name] => {
                ("Secret", "secrets", Some(*namespace), Some(*name))
            }
            _ => return answered(404, "text/plain", "404 page not found\n".to_owned()),
        };
        let items = found(kind, namespace, name);
        match (name, items.into_iter().next()) {
            (None, _) => {
                answered(200, "application/json", json!({"items": found(kind, namespace, None)}).to_string())
            }
            (Some(_), Some(object)) => answered(200, "application/json", object.to_string()),
            (Some(name), None) => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
                    "code": 404, "message": format!("{plural} \"{name}\" not found")});
                answered(404, "application/json", status.to_string())
            }
        }
    })
    .await
}

/// Objects as the API stores them: with creation times and encoded Secrets.
pub(crate) fn stored(objects: &Value, dashboard: SocketAddr) -> Vec<Value> {
    let text = objects.to_string().replace("\"@DASHBOARD_PORT@\"", &dashboard.port().to_string());
    let mut objects: Vec<Value> = serde_json::from_str(&text).expect("objects");
    for object in &mut objects {
        object["metadata"]["creationTimestamp"] = json!("2026-01-11T19:38:40Z");
        if let Some(data) = object.get("stringData").and_then(Value::as_object).cloned() {
            let encode = |value: &Value| {
                base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default())
            };
            object["data"] = data.iter().map(|(name, value)| (name.clone(), json!(encode(value)))).collect();
        }
    }
    objects
}

/// What a dashboard answers, by URI: lists of answers, of which the last one stays.
pub(crate) type Answers = Arc<Mutex<std::collections::BTreeMap<String, Vec<(u16, String)>>>>;

/// The answers of a recorded dashboard.
pub(crate) fn dashboard_answers(dashboard: &Value) -> std::collections::BTreeMap<String, Vec<(u16, String)>> {
    let mut answers = std::collections::BTreeMap::new();
    set_nodes(&mut answers, &dashboard["nodes"]);
    let single = |value: &Value| -> (u16, String) {
        match value {
            Value::Array(pair) => {
                let status = pair.first().and_then(Value::as_u64).and_then(|it| u16::try_from(it).ok());
                (
                    status.expect("a status"),
                    pair.get(1).and_then(Value::as_str).unwrap_or_default().to_owned(),
                )
            }
            value => (200, value.as_str().unwrap_or_default().to_owned()),
        }
    };
    for (uri, answer) in dashboard["answers"].as_object().into_iter().flatten() {
        let list = match answer {
            Value::Array(list) if !list.first().is_some_and(Value::is_u64) => {
                list.iter().map(single).collect()
            }
            value => vec![single(value)],
        };
        answers.insert(uri.clone(), list);
    }
    answers
}

/// The list of nodes that collectors ask for.
pub(crate) const NODES: &str = "/api/v0/nodes?limit=10000";

/// Sets the rows of the list of nodes.
pub(crate) fn set_nodes(answers: &mut std::collections::BTreeMap<String, Vec<(u16, String)>>, nodes: &Value) {
    let rows: Value = nodes
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| json!({"node_id": row[0], "node_ip": row[1], "state": row[2]}))
        .collect();
    let body = json!({"result": true, "data": {"result": {"result": rows}}}).to_string();
    answers.insert(NODES.to_owned(), vec![(200, body)]);
}

/// A dashboard with these answers.
pub(crate) async fn ray_dashboard(answers: Answers, seen: Seen) -> SocketAddr {
    serve(move |request| {
        note(&seen, request);
        let uri = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        let mut answers = answers.lock().expect("not poisoned");
        let Some(list) = answers.get_mut(&uri) else {
            return answered(404, "text/plain", "404: Not Found".to_owned());
        };
        let (status, body) = if list.len() > 1 { list.remove(0) } else { list[0].clone() };
        answered(status, "application/json", body)
    })
    .await
}
