//! A client of the history server, for commands that read logs of clusters that are gone.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use crate::store::{Http, StoreError, content, percent_encoded};

/// How long the server may take to begin a response: loading a session may take two minutes by default.
const TIMEOUT: Duration = Duration::from_secs(150);

/// Responses that are kept in memory. Lists of logs are small.
const LARGEST: usize = 64 * 1024 * 1024;

/// A session that was chosen at a history server.
pub struct EnteredSession {
    http: Http,
    address: String,
    cookies: String,
    /// Its name, or `live` if the cluster still exists.
    pub name: String,
    /// The RayCluster.
    pub cluster: String,
}

/// A log file of a Ray node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogFile {
    /// The hexadecimal identifier of the node.
    pub node: String,
    /// The path below the node's directory of logs.
    pub name: String,
}

async fn get(http: &Http, url: &str, cookies: &str) -> Result<Response<Incoming>, String> {
    let failed = |why: String| format!("the history server at {url} cannot be reached: {why}");
    let mut request = Request::get(url).header("Accept", "*/*");
    if !cookies.is_empty() {
        request = request.header(COOKIE, cookies);
    }
    let request = request.body(content(Bytes::new())).map_err(|error| failed(error.to_string()))?;
    match tokio::time::timeout(TIMEOUT, http.send(request)).await {
        Ok(response) => response.map_err(failed),
        Err(_) => Err(failed(format!("no response within {} seconds", TIMEOUT.as_secs()))),
    }
}

async fn text(response: Response<Incoming>) -> Result<String, String> {
    let body = http_body_util::Limited::new(response.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| format!("the history server's response broke off: {error}"))?;
    Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

/// Reads a response that has to be a success.
async fn json(response: Response<Incoming>) -> Result<Value, String> {
    let status = response.status();
    let text = text(response).await?;
    if !status.is_success() {
        return Err(format!("the history server responds {status}: {}", text.trim()));
    }
    serde_json::from_str(&text).map_err(|error| format!("the history server's response is no JSON: {error}"))
}

/// The cookies that a response sets, as a request sends them.
fn cookies(headers: &HeaderMap) -> String {
    let values = headers.get_all(SET_COOKIE).iter().filter_map(|it| it.to_str().ok());
    let pairs: Vec<&str> = values.map(|it| it.split(';').next().unwrap_or_default()).collect();
    pairs.join("; ")
}

impl EnteredSession {
    /// Chooses the newest session of a RayCluster, RayJob or RayService; `None` if there is none.
    pub async fn enter(
        address: &str,
        namespace: &str,
        kind: &str,
        name: &str,
    ) -> Result<Option<Self>, String> {
        let http = Http::new().map_err(|StoreError(message)| message)?;
        let address = address.trim_end_matches('/');
        let address = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let [namespace, kind, name] = [namespace, kind, name].map(|it| percent_encoded(it, false));
        let url = format!("{address}/enter_cluster/{namespace}/{}/{name}", kind.to_ascii_lowercase());
        let response = get(&http, &url, "").await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let cookies = cookies(response.headers());
        let entered = json(response).await?;
        let field = |name: &str| entered[name].as_str().unwrap_or_default().to_owned();
        Ok(Some(Self { http, address, cookies, name: field("session"), cluster: field("name") }))
    }

    async fn get(&self, path: &str) -> Result<Response<Incoming>, String> {
        get(&self.http, &format!("{}{path}", self.address), &self.cookies).await
    }

    /// The logs of all nodes whose names match a pattern.
    pub async fn logs(&self, pattern: &str) -> Result<Vec<LogFile>, String> {
        let nodes = json(self.get("/nodes?view=summary").await?).await?;
        let nodes = nodes["data"]["summary"].as_array().cloned().unwrap_or_default();
        let mut found = Vec::new();
        for node in nodes.iter().filter_map(|node| node["raylet"]["nodeId"].as_str()) {
            let path = format!(
                "/api/v0/logs?node_id={}&glob={}",
                percent_encoded(node, false),
                percent_encoded(pattern, false)
            );
            let listed = json(self.get(&path).await?).await?;
            let categories = listed["data"]["result"].as_object().into_iter().flatten();
            let names = categories.flat_map(|(_, names)| names.as_array().into_iter().flatten());
            let files = names.filter_map(Value::as_str).filter(|name| !name.ends_with('/'));
            found.extend(files.map(|name| LogFile { node: node.to_owned(), name: name.to_owned() }));
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// The content of a log: all of it, or its last lines.
    pub async fn log(
        &self,
        file: &LogFile,
        lines: Option<u32>,
    ) -> Result<BoxStream<'static, std::io::Result<Bytes>>, String> {
        let lines = lines.map_or(-1, i64::from);
        let path = format!(
            "/api/v0/logs/file?node_id={}&filename={}&lines={lines}",
            percent_encoded(&file.node, false),
            percent_encoded(&file.name, false)
        );
        let response = self.get(&path).await?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("the history server responds {status}: {}", text(response).await?.trim()));
        }
        Ok(response.into_body().into_data_stream().map_err(std::io::Error::other).boxed())
    }
}
